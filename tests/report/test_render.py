"""The report's text: what it says, what it carries, what it refuses."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regimekit as rk
from regimekit import assets, report
from regimekit import metrics as evaluate
from regimekit.plotting import style
from regimekit.preprocessing.time_index import read_times
from regimekit.report import tables
from regimekit.report.content import Content
from regimekit.report.packing import Packer, grid_for
from regimekit.results import segments


def _page(case: Any, **more: Any) -> str:
    content = {"run": case.run, "model": case.model, "y": case.y, "times": case.times}
    return report.render(**content | more)


def _text(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_it_is_one_file_that_asks_for_nothing(case: Any) -> None:
    page = _page(case)
    markup = re.sub(r"<script\b.*?</script>", "", page, flags=re.S)
    assert not re.search(r"""(src|href)=["'](?!#)""", markup)
    assert "@import" not in page and "url(" not in page
    assert "default-src 'none'" in page
    assert "Leon Sorokin" in page  # the licence of the charts asks for it


def test_pages_and_figures_have_the_same_regime_colours() -> None:
    found = re.findall(r"--regime-\d: (#\w{6})", assets.read("style.css"))
    assert tuple(found) == style.REGIMES


def test_it_is_the_same_each_time(case: Any) -> None:
    assert _page(case) == _page(case)


def test_all_tags_are_closed(case: Any) -> None:
    open_tags: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag not in {"meta", "br", "input"}:
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Balance().feed(_page(case))
    assert open_tags == []


def test_words_of_the_user_cannot_become_markup(case: Any) -> None:
    evil = "</script><script>alert(1)</script>"
    page = _page(case, title=evil, warnings=[evil], settings={evil: evil}, names=[evil])
    assert "alert(1)</script>" not in page


def test_regimes_are_listed_with_coefficients_durations_and_transitions(case: Any) -> None:
    text = _text(_page(case))
    for regime in case.model.regimes():
        assert f"Regime {regime.id}" in text
        assert f"intercept {regime.mean[0]:.3g}"[:13] in text
    assert "duration" in text and "next regime" in text and "removed from the model" not in text


def test_stays_add_up_to_the_path() -> None:
    path = np.array([-1, 2, 2, 0, 0, 0, 2])
    found = segments(path)
    lengths = [(s.regime, s.end - s.start) for s in found]
    assert lengths == [(-1, 1), (2, 2), (0, 3), (2, 1)]
    assert segments(np.array([], dtype=int)) == []


def test_the_summary_has_the_numbers_of_the_run(case: Any) -> None:
    context = Content(case.run, case.model, case.y).context()
    data, regimes, changes, outliers, forecasts = context["summary"]
    assert data.startswith("There are 240 observations")
    assert "They form 2 regimes" in regimes
    assert f"changed {len(case.run.changepoints)} times" in changes
    assert f"to regime {case.run.path[-1]}" in changes
    assert outliers.startswith(f"{case.run.outlier.sum()} observations")
    inside = evaluate.coverage(case.y[48:], case.run.lower[48:], case.run.upper[48:])
    covered = float(re.search(r"covered ([\d.]+)", forecasts)[1])
    assert covered == pytest.approx(100 * inside, abs=0.5)


def test_a_quiet_stream_is_summarized_in_plain_words() -> None:
    y = 5.0 + 0.1 * np.random.default_rng(0).normal(size=60)
    model = rk.auto()
    text = " ".join(Content(model.run(y), model, y).context()["summary"])
    assert "One regime describes all of them" in text
    assert "No change of regime was found. No observation was flagged" in text


def test_one_coverage_is_reported(case: Any) -> None:
    scores = {"rmse": 1.0, "mae": 0.8, "mae_last_value": 1.0, "coverage": 0.833}
    text = _text(_page(case, scores=scores))
    assert "interval covered 83 % of the observations" in text


def test_rows_without_times_are_named_as_rows(case: Any) -> None:
    context = Content(case.run, case.model, case.y).context()
    text = " ".join([*context["summary"], context["next_step"]])
    assert "from row 0 to row 239" in text and "at row 240, is expected" in text


def test_regimes_are_described_once(case: Any) -> None:
    (regime, *_) = case.model.regimes()
    assert regime.summary.startswith("typically")
    notes = [
        card["differences"] for card in Content(case.run, case.model, case.y).context()["entries"]
    ]
    assert notes and not any("typically" in note or "only " in note for note in notes)


def test_changes_that_did_not_remain_are_explained(case: Any) -> None:
    path = np.full(240, case.run.path[0])
    corrected = dataclasses.replace(case.run, path=path)
    assert corrected.changepoints == []
    reported = sum(event.is_change for event in case.run.events)
    text = _text(report.render(run=corrected, model=case.model, y=case.y))
    assert f"{reported} changes of regime were reported, none of which remains in hindsight" in text
    assert "0 changes remain in hindsight" in text and "1 more regime" not in text


def test_outliers_are_listed_with_what_was_expected(case: Any) -> None:
    rows = Content(case.run, case.model, case.y).context()["outliers"]
    assert [row["row"] for row in rows] == np.flatnonzero(case.run.outlier).tolist()
    assert all(" to " in row["expected"] for row in rows)


def test_the_overview_links_every_series_and_escapes_its_name() -> None:
    entry = {
        **dict.fromkeys(("missing", "changes", "outliers"), 0),
        **dict.fromkeys(("last_change", "mae", "ratio", "coverage"), ""),
        "key": "<b>shop</b>",
        "page": "reports/shop 1.html",
        "values": np.array([1.0, 2.0, np.nan, 3.0]),
        "observations": 4,
        "regimes": 1,
        "regime": 0,
    }
    page = report.render_overview(title="sales", entries=[entry], model="auto", errors={"x": "bad"})
    assert "&lt;b&gt;shop&lt;/b&gt;" in page and "<b>shop</b>" not in page
    assert 'href="reports/shop%201.html"' in page
    assert page.count("<polyline") == 2 and "<b>x</b>: bad" in page


def test_scores_stand_beside_the_simple_forecasters(case: Any) -> None:
    scores = {"rmse": 1.0, "rmse_last_value": 2.0, "crps": 0.5, "seconds_per_observation": 0.002}
    table = tables.score_table(scores, "ours")
    assert table["heads"] == ["RMSE", "CRPS"] and table["milliseconds"] == "2"
    assert [row["name"] for row in table["rows"]] == ["ours", "last value"]
    assert [cell["best"] for row in table["rows"] for cell in row["cells"][:1]] == [True, False]
    nested = tables.score_table({"ours": {"mae": 1.0}, "last_value": {"mae": 0.5}}, "ours")
    assert [row["cells"][0]["best"] for row in nested["rows"]] == [False, True]


def test_a_better_simple_forecaster_is_named() -> None:
    worse = {"rmse": 2.0, "rmse_last_value": 1.0, "rmse_running_mean": 1.5}
    assert '"last value" has a lower RMSE than ours: 1 and 2' in tables.better_reference(
        worse, "ours"
    )
    assert tables.better_reference({"rmse": 1.0, "rmse_last_value": 2.0}, "ours") == ""
    assert tables.better_reference({}, "ours") == ""


def test_scores_are_computed_where_none_are_given(case: Any) -> None:
    found, skip = tables.plain_scores(case.run, case.y[:, None])
    assert found["rmse"] == pytest.approx(evaluate.rmse(case.y[skip:], case.run.mean[skip:]))
    assert {"rmse_last_value", "mae_running_mean", "coverage"} <= set(found)


def test_changes_are_listed_once_latest_first(case: Any) -> None:
    labels = read_times(case.times, len(case.y)).labels()
    found = tables.changes(case.run, labels)
    assert found["n"] == len(case.run.changepoints)
    assert [row["since"] for row in found["rows"]] == sorted(
        (row["since"] for row in found["rows"]), reverse=True
    )


def test_too_many_outliers_and_too_narrow_bands_are_warned_of(case: Any) -> None:
    y = case.y + 10 * np.sin(np.arange(240))
    content = Content(case.run, case.model, y)
    assert any("too narrow" in warning for warning in content._found_warnings())


def test_a_forecast_that_cannot_be_made_is_explained(case: Any) -> None:
    x = np.random.default_rng(0).standard_normal(40)
    features = rk.features.columns("wind")
    model = rk.br_ihmm(features=features, particles=10)
    run = model.run(x * 2.0, _wind(x))
    text = _text(report.render(run=run, model=model, y=2.0 * x))
    assert "The next 24 steps are not forecast" in text and "wind" in text
    text = _text(report.render(run=run, model=model, y=2.0 * x, horizon=3, X=_wind(x[:3])))
    assert "Next 3 steps" in text


def _wind(x: np.ndarray) -> Any:
    import pandas

    return pandas.DataFrame({"wind": x})


@pytest.mark.parametrize(
    "y", [[1.0], [np.nan] * 5, [3.0] * 30, [1e-8, 2e-8] * 10, [1e9, 1e9 + 1] * 9]
)
def test_odd_streams_give_a_report(y: list[float]) -> None:
    model = rk.br_ihmm(particles=10)
    assert "</html>" in report.render(run=model.run(y), model=model, y=y)


@pytest.mark.parametrize("name", list(rk.models()))
def test_every_model_can_be_reported(name: str, stream: np.ndarray) -> None:
    model = rk.make(name)
    run = model.run(stream[:40])
    assert f"<h1>{name} on 40 observations</h1>" in report.render(
        run=run, model=model, y=stream[:40], horizon=2
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"y": [1.0, 2.0]}, "y must have the 240 rows of the run, got 2"),
        ({"times": [1, 2]}, "one entry per observation"),
        ({"times": list(range(240))[::-1]}, "decreases at row 1"),
        ({"times": ["soon"] * 240}, "Write dates as"),
        ({"calibration": {"pit": 3}}, "calibration must be"),
        ({"level": 2}, "level must lie"),
        ({"horizon": -1}, "horizon must be"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(
    case: Any, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(rk.RegimekitError, match=words):
        _page(case, **more)


def test_nothing_half_written_is_left_behind(case: Any, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.mkdir()  # cannot be replaced by a file
    with pytest.raises(OSError):
        report.write_report(target, run=case.run, model=case.model, y=case.y)
    assert list(tmp_path.iterdir()) == [target]


def _unpacked(payload: dict[str, Any]) -> dict[str, np.ndarray]:
    """The page's way of reading, in Python."""
    payload = json.loads(json.dumps(payload))
    raw, n = zlib.decompress(base64.b64decode(payload["data"])), payload["length"]
    blocks = iter(np.frombuffer(raw, np.uint8).reshape(-1, 4, n))

    def block() -> np.ndarray:
        folded = np.ascontiguousarray(next(blocks).T).view("<u4").ravel().astype(np.int64)
        return np.cumsum((folded >> 1) ^ -(folded & 1))

    whole, columns = {}, {}
    for about in payload["columns"]:
        steps = block() + (whole[about["minus"]] if about["minus"] else 0)
        whole[about["name"]] = steps
        values = (about["base"] + steps) * 10.0 ** about["exponent"]
        if about["missing"]:
            values[block() == 1] = np.nan
        for t, value in about["extreme"].items():
            values[int(t)] = value
        columns[about["name"]] = values
    return columns


@pytest.mark.parametrize("n", [60, 5000])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e7])
@pytest.mark.parametrize("centre", [0.0, -3.0, 1e6])
def test_packed_columns_come_back(
    n: int, scale: float, centre: float, rng: np.random.Generator
) -> None:
    y = scale * (centre + rng.standard_normal(n))
    y[7], y[20:30], y[0] = 1e30, np.nan, np.nan
    near = y + scale * 0.01
    packer = Packer(n)
    packer.add("y", y, grid_for(y))
    packer.add("near", near, grid_for(y), minus="y")
    found = _unpacked(packer.payload())
    np.testing.assert_allclose(found["y"], y, rtol=1e-12, atol=scale * 7 / 2e4)
    np.testing.assert_allclose(found["near"], near, rtol=1e-12, atol=scale * 7 / 2e4)


def test_only_the_scripts_of_the_report_are_permitted(case: Any) -> None:
    page = _page(case, title="<script>alert(1)</script>")
    policy = re.search(r"script-src ([^\"]*)\"", page)
    assert policy is not None and "unsafe" not in policy[1]
    permitted = set(re.findall(r"'sha256-([^']+)'", policy[1]))
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    assert {base64.b64encode(digest).decode() for digest in digests} == permitted
    # They do not depend on the page.
    assert f"script-src {policy[1]}" == report.script_policy()
