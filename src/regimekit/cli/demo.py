"""Run a model on a generated stream with known regimes: `regimekit demo`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from regimekit import metrics, plotting
from regimekit.cli import output
from regimekit.cli.console import Console
from regimekit.cli.output import ResultFolder
from regimekit.cli.pipeline import PipelineOptions
from regimekit.cli.stream_run import print_scores, run_file
from regimekit.core.exceptions import whole
from regimekit.core.registry import make
from regimekit.datasets import Dataset, regime_stream
from regimekit.io import ColumnChoice, TableRequest
from regimekit.results import Run

TABLE, FIGURE = output.DEMO
_BURN_IN = 50  # first observations that are not scored
_MIN_LENGTH = 20
# Noise variance and prior variance of the generated stream, for the model that does not
# estimate them from the first observations.
_KNOWN_SETTINGS = {"br_ihmm": {"noise": 0.16, "prior_var": 4.0}}


def run_demo(out: Path, n: int, seed: int, model: str, console: Console) -> None:
    """Generate a stream, run a model on it, and compare the result with the truth."""
    whole("--n", n, _MIN_LENGTH, output.REPORT_ROWS)
    settings: dict[str, Any] = dict(_KNOWN_SETTINGS.get(model, {}))
    settings |= {"seed": seed} if "seed" in make(model).settings() else {}
    stream = regime_stream(seed=seed, n=n)
    with ResultFolder(out, output.DEMOS) as folder:
        output.write_csv(folder.path(TABLE), {"y": stream.y.tolist()})
        folder.commit()
    options = PipelineOptions(
        TableRequest(str(out / TABLE)), ColumnChoice("y"), model, settings, burn_in=_BURN_IN
    )
    stream_run, summary = run_file(options, out, "csv", console)
    run = stream_run.recent.run()
    with ResultFolder(out, output.DEMOS) as folder:
        shutil.copyfile(out / TABLE, folder.path(TABLE))
        title = f"{model} on a generated stream"
        folder.save_figure(
            FIGURE, lambda: plotting.run_figure(run, stream.y, title, truth=stream.regimes), console
        )
        files = [*folder.commit(), *summary["files"]]
    scores, truth = _scores(run, stream), _compare_with_truth(run, stream)
    console.result({"model": model, "scores": scores, "truth": truth, "out": str(out)})
    console.info()
    console.info(f"{model} on {n} generated values: recurring levels, single and grouped outliers")
    print_scores(scores, "y without outliers", 0.9, console)
    console.table(["", "found", "true"], [[name, *pair] for name, pair in truth.items()])
    console.info(f"results in {out}: {', '.join(files)}")
    console.info(f"run it with other options: regimekit run {out / TABLE}")


def _scores(run: Run, stream: Dataset) -> dict[str, float]:
    """Return the forecast errors against the values before outliers were added."""
    assert stream.clean is not None
    scores = metrics.RunningScores(skip=_BURN_IN)
    scores.add(run, target=stream.clean)
    return scores.table()


def _compare_with_truth(run: Run, stream: Dataset) -> dict[str, tuple[str, str]]:
    """Return what was found and what is true, by name."""
    regimes, outliers = stream.regimes, stream.outliers
    assert regimes is not None and outliers is not None
    caught, flagged = int((run.outlier & outliers).sum()), int(run.outlier.sum())
    return {
        "regimes": (str(metrics.n_regimes(run.path)), str(metrics.n_regimes(regimes))),
        "switches": (str(metrics.switches(run.path)), str(metrics.switches(regimes))),
        "outliers caught": (str(caught), str(int(outliers.sum()))),
        "false alarms": (str(flagged - caught), "0"),
        "agreement (ARI)": (f"{metrics.adjusted_rand(run.path, regimes):.3f}", "1"),
    }
