"""The scripts of the page in Node, with stubs for the page and uPlot."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regimekit import assets, report

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def run_page(case: Any, tmp_path: Path) -> dict[str, Any]:
    """Render a report, run its scripts and return what was drawn."""
    content = {"run": case.run, "model": case.model, "y": case.y, "times": case.times}
    page = report.write_report(tmp_path / "report.html", **content)
    harness = Path(__file__).with_name("harness.js")
    done = subprocess.run(
        [str(NODE), str(harness), str(page)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_chart_is_drawn_with_aligned_columns(case: Any, tmp_path: Path) -> None:
    found = run_page(case, tmp_path)
    places = ["chart-series", "chart-ribbon", "chart-weight", "chart-pit", "chart-coverage"]
    assert found["places"][:6] == [*places, "chart-next"]
    assert len(found["places"]) == 6 + len(set(case.run.path) - {-1})
    assert found["aligned"]
    assert found["calls"]["fillRect"] >= len(found["segments"]) and found["calls"]["fill"] >= 1


def test_columns_are_decoded(case: Any, tmp_path: Path) -> None:
    found = run_page(case, tmp_path)
    y = np.array([np.nan if v is None else v for v in found["y"]], dtype=float)
    np.testing.assert_allclose(y, case.y, atol=1e-3)
    assert found["regime"] == case.run.path.tolist()
    assert found["last"] == case.times[-1].astype("M8[s]").astype(int)
    assert found["range"][1] < 60  # the spike is outside the vertical axis


def test_zoom_readout_theme_and_print(case: Any, tmp_path: Path) -> None:
    found = run_page(case, tmp_path)
    low, high = found["full"]
    assert found["zoomed"][1] - found["zoomed"][0] == pytest.approx((high - low) / 2)
    assert found["row"].startswith("2020-01-05 04:00 · observed 60 (outlier) · forecast ")
    assert found["row"].endswith(f"regime {case.run.path[100]}")
    assert found["around"][1] - found["around"][0] == 120 * 3600
    assert found["theme"] == "dark" and found["printed"] == "light"


def test_long_streams_are_drawn_in_buckets(long_case: Any, tmp_path: Path) -> None:
    found = run_page(long_case, tmp_path)
    assert found["bucket"] > 100 and found["aligned"]


def test_the_chart_module_can_be_imported(tmp_path: Path) -> None:
    """A server serves the same file as a module: its exports are those that the page uses."""
    module = tmp_path / "charts.mjs"
    module.write_text(assets.read("charts.js"))
    code = "import(process.argv[1]).then((m) => console.log(Object.keys(m).join(' ')))"
    done = subprocess.run(
        [str(NODE), "-e", code, str(module)], capture_output=True, text=True, timeout=60, check=True
    )
    exported = set(done.stdout.split())
    declared = re.findall(r"^export (?:function|class|const) (\w+)", module.read_text(), re.M)
    assert exported == set(declared) and {"Timeline", "drawOutliers", "drawRibbon"} <= exported


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ([0, 0.5, 1], ["0", "0.5", "1"]),
        ([999_950, 1_000_000, 1_000_050], ["999.95K", "1M", "1.00005M"]),
        ([100_000, 200_000], ["100K", "200K"]),
        ([-2e-5, 0, 2e-5], ["-2E-5", "0", "2E-5"]),
    ],
)
def test_labels_of_an_axis_differ_and_fit(ticks: Any, labels: Any, tmp_path: Path) -> None:
    module = tmp_path / "charts.mjs"
    module.write_text(assets.read("charts.js"))
    code = """import(process.argv[1]).then((m) => {
        const labels = m.formatTicks(JSON.parse(process.argv[2]));
        console.log(JSON.stringify([labels, m.axisWidth(null, labels)]));
    })"""
    done = subprocess.run(
        [str(NODE), "-e", code, str(module), json.dumps(ticks)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found, width = json.loads(done.stdout)
    assert found == labels
    # A digit of a font of 12 pixels is at most 7 wide; ticks and gaps take 10.
    assert width >= 10 + 7 * max(map(len, labels))
