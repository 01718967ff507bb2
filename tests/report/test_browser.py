"""The page in a real browser: it draws, zooms, tells the right numbers and asks for nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regimekit import metrics as evaluate
from regimekit import report

Open = Callable[..., Any]


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Open:
    """Write a report and open it; any error on the console or request elsewhere fails the test."""
    trouble: list[str] = []
    pages = []

    def go(case: Any, width: int = 1200, scheme: str = "light", **more: Any) -> Any:
        content = {"run": case.run, "model": case.model, "y": case.y, "times": case.times}
        file = report.write_report(tmp_path / "report.html", **content | more)
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        pages.append(page)
        page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda r: r.url.startswith("file:") or trouble.append(r.url))
        page.goto(file.as_uri())
        page.wait_for_selector("body[data-ready]")
        return page

    yield go
    for page in pages:
        page.close()
    assert not trouble


def _bucket(page: Any) -> int:
    return int(page.evaluate("document.body.dataset.bucket"))


def _window(page: Any) -> list[float]:
    return page.evaluate("[regimekitReport.timeline.min, regimekitReport.timeline.max]")


def _opening_seconds(page: Any) -> float:
    """Return the CPU time of the page's main thread for opening the report once more."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _task_seconds(session)
    page.reload()
    page.wait_for_selector("body[data-ready]")
    return _task_seconds(session) - before


def _task_seconds(session: Any) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def _plot_box(page: Any, chart: str = "#chart-series") -> dict[str, float]:
    return page.locator(f"{chart} .u-over").bounding_box()


def _inked(page: Any, chart: str) -> int:
    """Pixels of a chart that are not empty."""
    return page.evaluate(
        """(chart) => {
            const canvas = document.querySelector(chart + " canvas");
            const pen = canvas.getContext("2d");
            const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
            return data.filter((value, j) => j % 4 === 3 && value > 0).length;
        }""",
        chart,
    )


def test_every_chart_is_drawn(visit: Open, case: Any) -> None:
    page = visit(case, title="Two levels")
    assert page.title() == page.locator("h1").inner_text() == "Two levels"
    for name in ("series", "ribbon", "weight", "pit", "coverage", "next"):
        assert _inked(page, f"#chart-{name}") > 500, name
    assert page.locator(".sample canvas").count() == len(set(case.run.path) - {-1})


def test_the_columns_arrive_to_five_digits(visit: Open, case: Any) -> None:
    page = visit(case)
    for name, truth in (("y0", case.y), ("mean0", case.run.mean), ("upper0", case.run.upper)):
        values = page.evaluate(f"Array.from(regimekitReport.columns.{name})")
        found = np.array([np.nan if v is None else v for v in values], dtype=float)
        spread = np.nanquantile(case.y, 0.999) - np.nanquantile(case.y, 0.001)
        expected = np.array(truth, dtype=float)
        if name != "y0":
            expected[0] = np.nan  # the prior is not drawn
        np.testing.assert_allclose(found, expected, atol=spread / 2e4)
    assert page.evaluate("Array.from(regimekitReport.columns.regime)") == case.run.path.tolist()
    assert page.evaluate("regimekitReport.x[239]") == case.times[239].astype("M8[s]").astype(int)


def test_pointing_shows_the_numbers_of_one_observation(visit: Open, case: Any) -> None:
    page = visit(case)
    page.locator("[data-zoom=end]").click()
    assert _bucket(page) == 1
    low, high = _window(page)
    t = 100
    x = page.evaluate(f"regimekitReport.x[{t}]")
    box = _plot_box(page)
    page.mouse.move(box["x"] + box["width"] * (x - low) / (high - low), box["y"] + 40)
    text = page.locator("#readout").inner_text()
    assert text.startswith("2020-01-05 04:00 · observed 60 (outlier)")
    values = float(re.search(r"forecast (-?[\d.]+)", text)[1])
    assert values == pytest.approx(case.run.mean[t], abs=1e-3)
    assert text.endswith(f"regime {case.run.path[t]}")


def test_drag_zooms_all_three_charts_and_double_click_undoes_it(
    visit: Open, long_case: Any
) -> None:
    page = visit(long_case)
    full, coarse = _window(page), _bucket(page)
    assert coarse > 100
    for _ in range(3):
        box = _plot_box(page)
        page.mouse.move(box["x"] + 0.40 * box["width"], box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.45 * box["width"], box["y"] + 80, steps=4)
        page.mouse.up()
    low, high = _window(page)
    assert (high - low) / (full[1] - full[0]) == pytest.approx(0.05**3, rel=0.2)
    assert _bucket(page) == 1
    scales = page.evaluate(
        "regimekitReport.timeline.charts.map((c) => [c.scales.x.min, c.scales.x.max])"
    )
    assert scales == [[low, high]] * 3
    box = _plot_box(page)
    page.mouse.dblclick(box["x"] + 100, box["y"] + 50)
    assert _window(page) == full and _bucket(page) == coarse


def test_buttons_move_the_window_and_stop_at_the_ends(visit: Open, case: Any) -> None:
    page = visit(case)
    full = _window(page)
    page.locator("[data-zoom=in]").click()
    low, high = _window(page)
    assert high - low == pytest.approx((full[1] - full[0]) / 2)
    for _ in range(5):
        page.locator("[data-zoom=left]").click()
    assert _window(page) == pytest.approx([full[0], full[0] + high - low])
    page.locator("[data-zoom=out]").click()
    assert _window(page) == pytest.approx(full)


def test_a_change_and_a_stay_can_be_shown(visit: Open, case: Any) -> None:
    page = visit(case)
    full = _window(page)
    page.locator("#changes [data-around]").first.click()
    around = _window(page)
    assert around != full
    page.locator("#regimes [data-from]").first.click()
    assert _window(page) not in (full, around)


def test_100_000_observations_are_small_and_open_fast(
    visit: Open, long_case: Any, tmp_path: Path
) -> None:
    page = visit(long_case)
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    assert _opening_seconds(page) < 3.0
    assert page.evaluate("regimekitReport.columns.y0[5000]") == 1e12
    assert page.evaluate("Number.isNaN(regimekitReport.columns.y0[720])")
    box = _plot_box(page)
    share = _inked(page, "#chart-series") / (box["width"] * box["height"])
    assert share < 0.75  # never a solid block of ink


def test_dark_phone_and_a_switch_of_theme(visit: Open, case: Any) -> None:
    page = visit(case, width=390, scheme="dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    assert _inked(page, "#chart-series") > 500


def test_print_is_light_and_comes_back(visit: Open, case: Any) -> None:
    page = visit(case, scheme="dark")
    assert len(page.pdf()) > 20_000
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_several_coordinates_and_a_given_calibration(visit: Open, case: Any) -> None:
    import regimekit as rk

    y = np.column_stack([case.y, 10 - case.y])[:80]
    model = rk.br_ihmm(particles=10)
    found = evaluate.calibration(np.linspace(0.01, 0.99, 50), bins=5)
    page = visit(case, run=model.run(y), model=model, y=y, times=None, horizon=5, calibration=found)
    page.locator("#coordinate").select_option("1")
    first = page.evaluate("regimekitReport.timeline.series.y[3]")
    assert first == pytest.approx(10 - case.y[3], abs=1e-3)
    assert page.evaluate("regimekitReport.data.pit.length") == 5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_map_of_transitions_can_be_read(visit: Open, case: Any, scheme: str) -> None:
    page = visit(case, scheme=scheme)
    contrasts = page.evaluate(
        """() => {
            const often = { willReadFrequently: true };
            const pen = document.createElement("canvas").getContext("2d", often);
            const light = (colour) => {
                pen.fillStyle = colour;
                pen.fillRect(0, 0, 1, 1);
                const part = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
                    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2] + 0.05;
            };
            const cell = document.querySelector(".transitions td");
            return [0, 0.2, 0.4, 0.6, 0.8, 1].map((p) => {
                cell.style.setProperty("--p", p);
                const { color, backgroundColor } = getComputedStyle(cell);
                const [one, other] = [light(color), light(backgroundColor)];
                return Math.max(one, other) / Math.min(one, other);
            });
        }"""
    )
    assert min(contrasts) >= 4.5  # what WCAG asks of text
    assert contrasts[0] > 1.5 * contrasts[-1]  # and the shade still says how probable


def _usual(name: str) -> Any:
    """Series of the kinds that people look at first, as a run of `auto`."""
    import regimekit as rk

    rng = np.random.default_rng(5)
    n = {"load": 700, "well_log": 900, "sales": 96}[name]
    start = np.datetime64("2024-01-01T00")
    if name == "load":
        times: Any = start + np.arange(n) * np.timedelta64(1, "h")
        y = 30_000 + 4_000 * np.sin(np.arange(n) * np.pi / 12) + 300 * rng.standard_normal(n)
    elif name == "well_log":
        times = None
        levels = np.repeat([112_000.0, 135_000.0, 118_000.0], n // 3)
        y = levels + 2_500 * rng.standard_normal(n)
        y[rng.choice(n, 12)] = 65_000
    else:
        times = np.datetime64("2016-01", "M") + np.arange(n)
        y = (2e6 + 1e4 * np.arange(n)) * (1 + 0.2 * np.sin(np.arange(n) * np.pi / 6))
        y += 2e4 * rng.standard_normal(n)
    model = rk.auto(seasons={"load": 24, "sales": 12}.get(name))
    return SimpleNamespace(run=model.run(y), model=model, y=y, times=times)


_AT_THE_LEFT_EDGE = """() => [...document.querySelectorAll("canvas")].map((canvas) => {
    const copy = document.createElement("canvas");
    Object.assign(copy, { width: 2, height: canvas.height });
    const pen = copy.getContext("2d", { willReadFrequently: true });
    pen.drawImage(canvas, 0, 0);
    const { data } = pen.getImageData(0, 0, 2, canvas.height);
    return data.filter((value, j) => j % 4 === 3 && value > 0).length;
})"""


@pytest.mark.parametrize("name", ["load", "well_log", "sales"])
def test_the_report_of_a_usual_series_is_complete(visit: Open, name: str, tmp_path: Path) -> None:
    page = visit(_usual(name), title=name)
    titles = page.locator("h2").all_inner_texts()
    assert titles[0] == "Summary"
    assert {"Series", "Regimes", "Calibration", "Scores and reference forecasters"} <= set(titles)
    for chart in ("series", "ribbon", "weight", "pit", "coverage", "next"):
        assert _inked(page, f"#chart-{chart}") > 500, chart
    assert max(page.evaluate(_AT_THE_LEFT_EDGE)) == 0, "a label of an axis is cut off"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture = page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
    assert len(picture) > 50_000
    text = page.inner_text("#summary")
    assert 3 <= text.count(". ") + 1 <= 7 and "nan" not in page.inner_text("main")


def test_the_report_of_many_series_leads_to_each(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["day,shop,sales"]
    for day in range(80):
        date = np.datetime64("2024-01-01") + day
        for shop, base in (("north", 20), ("south & west", 900)):
            lines.append(f"{date},{shop},{base + rng.standard_normal():.3f}")
    (tmp_path / "shops.csv").write_text("\n".join(lines))
    command = [sys.executable, "-m", "regimekit.cli", "run", "shops.csv", "--by", "shop"]
    subprocess.run([*command, "--out", "out", "--quiet"], cwd=tmp_path, check=True)
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto((tmp_path / "out" / "report.html").as_uri())
    assert page.locator("h1").inner_text() == "sales by shop"
    assert page.locator("tbody tr").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("text=south & west")
    page.wait_for_selector("body[data-ready]")
    assert page.locator("h1").inner_text().startswith("south & west")
    assert max(page.evaluate(_AT_THE_LEFT_EDGE)) == 0
    page.click("text=All series")
    page.wait_for_selector("#overview")
    page.close()
