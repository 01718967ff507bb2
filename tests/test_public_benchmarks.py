"""The public benchmarks: NAB's scoring by hand, resuming, and failures that are shown."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from benchmarks.public import __main__ as command
from benchmarks.public import forecasters, nab, report, series, tasks


def test_windows_share_a_tenth_of_the_series_and_join_where_they_meet():
    assert nab.windows([(500, 500)], 1000) == [(450, 550)]
    assert nab.windows([(300, 300), (700, 700)], 1000) == [(275, 325), (675, 725)]
    assert nab.windows([(300, 300), (310, 310)], 1000) == [(275, 335)]


def test_nab_rewards_early_alarms_and_ignores_later_ones_in_a_window():
    spans = [(400, 499)]
    first = nab.raw_score([400], spans, 1000)
    assert first == pytest.approx(1.0)
    assert nab.raw_score([400, 450], spans, 1000) == first
    late = nab.raw_score([499], spans, 1000)
    assert 0 < late < 0.1 < first
    assert nab.raw_score([], spans, 1000) == -1


def test_nab_charges_false_alarms_and_forgives_the_learning_rows():
    spans = [(400, 499)]
    assert nab.raw_score([200, 400], spans, 1000) == pytest.approx(1 - 0.11)
    assert nab.raw_score([100, 400], spans, 1000) == pytest.approx(1.0)
    near, far = nab.raw_score([400, 501], spans, 1000), nab.raw_score([400, 990], spans, 1000)
    assert 1 > near > far == pytest.approx(1 - 0.11)


def test_nab_is_100_for_a_perfect_detector_and_0_for_silence():
    assert nab.normalised(2.0, 2) == 100
    assert nab.normalised(-2.0, 2) == 0


def test_no_detector_is_charged_for_what_a_higher_threshold_would_spare_it():
    scores = np.ones(1000)  # fires always, whatever the threshold below 1
    raw = nab.raw_scores(scores, [(500, 500)])
    assert max(raw) == raw[-1] == -1
    assert raw[0] < -50


def test_auto_ets_is_fitted_to_more_than_its_first_rows():
    fitted = []

    class Spy:
        def fit(self, y):
            fitted.append(len(y))

        def forward(self, y, h, level):
            return {"mean": [0.0], "lo-90": [-1.0], "hi-90": [1.0]}

    peer = forecasters.Ets.__new__(forecasters.Ets)
    forecasters.Guest.__init__(peer, series.Series("s", np.zeros(1)))
    peer.model, peer.past, peer.fitted_at = Spy(), [], 0
    for _ in range(300):
        peer.predict()
        peer.learn(0.0)
    assert fitted[0] == 10
    assert max(np.diff(fitted)) <= forecasters.REFIT
    assert all(later <= 1.1 * earlier + 1 for earlier, later in itertools.pairwise(fitted))


def test_a_peer_that_fails_borrows_and_says_so():
    class Broken:
        def learn_one(self, y):
            """Learns nothing."""

        def forecast(self, horizon):
            raise RuntimeError("no")

    one = series.Series("s", np.zeros(1))
    peer = forecasters.OfRiver(one, Broken())
    lender = forecasters.PEERS["last_value"](one)
    for y in (4.0, 4.5, 3.0):
        assert peer.predict().interval(0.9) == lender.predict().interval(0.9)
        assert not peer.own
        peer.learn(y)
        lender.learn(y)
    assert peer.predict().mean == 3.0


def test_a_guest_works_in_the_units_of_the_series_and_is_scored_in_scaled_ones():
    class Latest:
        seen: list[float] = []  # noqa: RUF012

        def learn_one(self, y):
            self.seen.append(y)

        def forecast(self, horizon):
            return self.seen[-1:]

    one = series.scaled(series.Series("s", 1000.0 + 10.0 * np.arange(30.0)))
    peer = forecasters.OfRiver(one, Latest())
    for y in one.y[:5]:
        peer.predict()
        peer.learn(float(y))
    np.testing.assert_allclose(Latest.seen, 1000.0 + 10.0 * np.arange(5.0))
    assert peer.predict().mean == pytest.approx(one.y[4])
    assert peer.own


@pytest.fixture
def small(monkeypatch):
    """One generated series and three peers, one of which fails."""
    y = np.repeat([0.0, 3.0], 60) + np.random.default_rng(0).standard_normal(120)
    made = {"two_levels": lambda: series.Series("two_levels", y, annotations={"truth": [60]})}

    def fails(y):
        raise RuntimeError("this peer fails")

    peers = {"no_change": lambda y: [], "right": lambda y: [60], "broken": fails}
    monkeypatch.setattr(tasks.detectors, "CHANGES", peers)
    task = tasks.Task(made, peers, tasks.find_changes)
    names = {
        "last_value": forecasters.PEERS["last_value"],
        "least_squares": forecasters.PEERS["least_squares"],
    }
    both = {"changes": task, "forecasts": tasks.Task(made, names, tasks.forecast)}
    monkeypatch.setattr(command, "TASKS", both)


def test_results_resume_and_failures_are_shown(small, tmp_path):
    command.main(["--out", str(tmp_path)])
    text = (tmp_path / "report.md").read_text()
    assert "| right | 1 of 1 | 1.000 | 1.000 | - | - |" in text  # none that all managed
    assert "| broken | 0 of 1 | - | - | - | - |" in text
    assert "| two_levels | failed | 0.50, 0.67, 0 | 1.00, 1.00, 1 |" in text
    assert f"`{command.source()}` (2)" in text
    assert "RuntimeError: this peer fails" in text
    path = tmp_path / "changes" / "two_levels" / "right.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"covering": 0.25}))
    command.main(["--out", str(tmp_path)])
    assert "| right | 1 of 1 | 0.250 | 1.000 |" in (tmp_path / "report.md").read_text()


def test_models_are_measured_again_when_their_source_has_changed(small, tmp_path):
    command.main(["--out", str(tmp_path)])
    ours, theirs = (
        tmp_path / "forecasts" / "two_levels" / "last_value.json",
        tmp_path / "changes" / "two_levels" / "right.json",
    )
    for path in (ours, theirs):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"source": "of before"}))
    page = tmp_path / "page.md"
    command.main(["--out", str(tmp_path), "--page", str(page)])
    assert "`of before` (1)" in page.read_text()
    command.main(["--out", str(tmp_path), "--renew"])
    assert json.loads(ours.read_text())["source"] == command.source()
    assert json.loads(theirs.read_text())["source"] == "of before"


def test_what_was_cut_is_said():
    row = {"task": "forecasts", "series": "long", "peer": "x", "error": "no"}
    text = report.markdown([row | {"taken": 30, "length": 90}], {})
    assert "forecasts, long: the first 30 of 90 rows." in text


def test_quick_runs_on_what_is_installed(small, tmp_path):
    command.main(["--quick", "--out", str(tmp_path)])
    result = json.loads((tmp_path / "forecasts" / "two_levels" / "least_squares.json").read_text())
    assert result["rows"] == 100
    assert result["crps"] < result["mae"]
    assert result["borrowed"] == 0
    assert result["versions"]["numpy"] == np.__version__


def test_scaling_looks_at_the_first_tenth_only():
    y = np.arange(400.0)
    changed = np.concatenate([y[:40], 1e6 * y[40:]])
    one, other = (series.scaled(series.Series("s", values)).y for values in (y, changed))
    assert (one[:40] == other[:40]).all()


def test_series_of_packages_that_are_not_here_are_a_failure_too():
    with pytest.raises(series.Absent, match="no_such_package is not installed"):
        series._file("no_such_package", "x.csv")
    assert "None." in report.markdown([], {})
