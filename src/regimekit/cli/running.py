"""`regimekit run` and `regimekit resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regimekit.cli import options

if TYPE_CHECKING:
    from regimekit.cli.console import Voice
    from regimekit.cli.job import Job

By = Annotated[
    str | None,
    typer.Option(help="Column with the name of the series, for many series in one table."),
]
Jobs = Annotated[int, typer.Option(help="Series run side by side (--by); -1 for all cores.")]
Seed = Annotated[int, typer.Option(help="Seed of the series' models (--by).")]
Follow = Annotated[
    bool, typer.Option("--follow", help="Wait for more rows; print one JSON line for each.")
]
SnapshotEvery = Annotated[
    int, typer.Option(help="Observations between two snapshots of a followed stream.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a followed stream where it was stopped.")
]
Idle = Annotated[
    float | None, typer.Option(help="Stop following after so many seconds without a row.")
]


def run(
    file: options.File,
    target: options.Target = None,
    time: options.Time = None,
    columns: options.Columns = "",
    lags: options.Lags = "",
    season: options.Season = "",
    model: options.Model = "",
    set_: options.Setting = None,
    settings: options.Settings = None,
    level: options.Level = 0.9,
    horizon: options.Horizon = 0,
    future: options.Future = None,
    by: By = None,
    jobs: Jobs = 1,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the results (out; none to follow).")
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="csv or parquet, of the rows.")] = "csv",
    burn_in: options.BurnIn = 50,
    sort: options.Sort = False,
    table: options.Table = None,
    query: options.Query = None,
    follow: Follow = False,
    snapshot_every: SnapshotEvery = 1000,
    resume: Resume = False,
    idle: Idle = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Forecast a column and name its regimes, one row at a time.

    With one numeric column, and maybe a column of times, no option is needed. Rows must be in the
    order of time (or say --sort); a repeated time is left out, a gap is missing observations.
    Results: run.csv, events.csv, regimes.csv, model.regimekit, report.html, and forecasts.csv with
    --horizon.
    """
    from regimekit.cli.console import Voice
    from regimekit.cli.job import Job, numbers, read_settings, read_tuned, steps, words
    from regimekit.core.exceptions import RegimekitError
    from regimekit.io import Request, Wishes

    if format_ not in ("csv", "parquet"):
        raise RegimekitError(f"--format is csv or parquet, got {format_!r}.")
    tuned = read_tuned(settings)
    kept = tuned.info if tuned else {}
    chosen = (tuned.best if tuned else {}) | read_settings(set_ or [])
    job = Job(
        Request(file, table, query),
        Wishes(target or kept.get("target"), time, words(columns or kept.get("columns", "")), by),
        model or (tuned.model_name if tuned else ""),
        chosen,
        steps("--lags", lags),
        numbers("--season", season),
        level,
        horizon,
        future,
        burn_in,
        sort,
        features_set="features" in chosen and not (columns or lags or season),
    )
    voice = Voice(json, quiet)
    if follow or resume:
        from regimekit.cli.live import follow_stream

        follow_stream(job, out, snapshot_every, resume, idle, voice)
    elif by is not None:
        from regimekit.cli.series import run_by

        run_by(job, out or Path("out"), jobs, seed, format_, voice)
    else:
        run_whole(job, out or Path("out"), format_, voice)


def run_whole(job: Job, out: Path, form: str, voice: Voice) -> dict[str, Any]:
    """Run one series from its first row to its last."""
    from regimekit.cli.batch import Batch, finish
    from regimekit.cli.destination import Destination
    from regimekit.cli.job import prepare
    from regimekit.metrics import RunningCalibration, RunningScores

    job.check()
    with Destination(out) as destination:
        prepared = prepare(job, voice)
        scores = RunningScores(prepared.season, job.burn_in)
        calibration = RunningCalibration(job.burn_in)
        batch = Batch(prepared, prepared.model(), prepared.reading(), scores, calibration)
        greet_compiler(voice)
        batch.go(destination, prepared.chunks(), voice)
        summary = finish(batch, destination, form, voice)
    tell(summary, voice)
    if batch.interrupted:
        raise typer.Exit(130)
    return summary


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of an earlier run.")],
    file: Annotated[
        str | None, typer.Argument(help="Table with more rows; by default the same file, grown.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on with an earlier run: rows it has not seen are learnt and appended to its results.

    With a column of times, rows after the last time are new; without one, rows after those that
    the run has read.
    """
    from regimekit.cli.batch import carry_over, finish
    from regimekit.cli.console import Voice
    from regimekit.cli.destination import Destination
    from regimekit.cli.resuming import resumed

    voice = Voice(json, quiet)
    batch, chunks, form = resumed(folder, file)
    before = batch.done
    with Destination(folder) as destination:
        carry_over(folder, destination, form)
        greet_compiler(voice)
        batch.go(destination, chunks, voice)
        if batch.done == before:
            voice.result({"observations": before, "new": 0, "out": str(folder)})
            voice.say(f"no row is new; {folder} is as it was, with {before} observations")
            return
        summary = finish(batch, destination, form, voice)
    voice.say(f"{batch.done - before} observations more, {batch.done} in all")
    tell(summary, voice)


def greet_compiler(voice: Voice) -> None:
    """Say why the first run of all waits."""
    import os

    from regimekit._numba import cache_root

    if not cache_root().exists() and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0"):
        voice.say("compiling kernels, once (about half a minute)")


def tell(summary: dict[str, Any], voice: Voice) -> None:
    """Sum a run up, in words or as JSON."""
    from regimekit.core.display import count

    voice.result(summary)
    voice.say()
    for warning in summary["warnings"]:
        voice.say(f"note: {warning}")
    tell_scores(summary["scores"], summary["target"], summary["level"], voice)
    counts = ", ".join(
        count(summary[f"{what}s"], what) for what in ("observation", "regime", "outlier")
    )
    voice.say(f"{counts}, {summary['ms_per_observation']:.2g} ms per observation")
    voice.say(f"results in {summary['out']}: {', '.join(summary['files'])}")


def tell_scores(scores: dict[str, float], target: str, level: float, voice: Voice) -> None:
    """Errors of the model beside those of the trivial forecasters."""
    from regimekit.cli.console import number

    if not scores:
        return
    voice.say(
        f"errors of the next value, in units of {target} "
        f"({scores['n_scored']:.0f} observations, the first {scores['n_skipped']:.0f} left out)"
    )
    names = {"model": "", "last value": "_last_value", "seasonal last": "_seasonal_last_value"}
    rows = [
        [label, number(scores[f"rmse{end}"]), number(scores[f"mae{end}"])]
        for label, end in names.items()
        if f"rmse{end}" in scores
    ]
    voice.table(["", "RMSE", "MAE"], rows)
    voice.say(f"the {level:.0%} limits held {scores['coverage']:.1%} of the observations")
