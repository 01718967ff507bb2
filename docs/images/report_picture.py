"""Takes docs/images/report.png anew: the report of docs/report.md in Chromium.

python docs/images/report_picture.py
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

import regimekit as rk
from regimekit.report import write_report


def example(folder: Path) -> Path:
    """The report that the page explains."""
    stream = rk.data.regime_stream(seed=0, n=2000)
    times = np.datetime64("2024-01-01") + np.arange(2000) * np.timedelta64(1, "h")
    model = rk.br_ihmm(noise=0.16, prior_var=4.0)
    result = rk.evaluate.prequential(model, stream.y, skip=50)
    return write_report(
        folder / "report.html",
        run=result.run,
        model=model,
        y=stream.y,
        times=times,
        title="A generated stream: levels that return, spikes and bursts",
        scores=result.scores(),
        calibration=rk.evaluate.calibration(result.pit[50:]),
    )


def main() -> None:
    """Open the report and photograph its upper part."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--headless", "--no-sandbox", "--disable-gpu"],
        )
        page = chromium.new_page(viewport={"width": 1200, "height": 1330})
        page.goto(example(Path(folder)).as_uri())
        page.wait_for_selector("body[data-ready]")
        page.screenshot(path=Path(__file__).with_name("report.png"))
        chromium.close()


if __name__ == "__main__":
    main()
