"""Commands and their options.

Each command imports what it needs when it runs, so that `regimekit --help` starts fast.
"""

from __future__ import annotations

import errno
import importlib
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import regimekit
from regimekit.cli import bridges
from regimekit.cli.console import Console, Json, Quiet
from regimekit.cli.options import (
    BurnIn,
    Future,
    Horizon,
    Level,
    Model,
    Out,
    Snapshot,
    Sql,
    TableOptions,
    expand_groups,
)
from regimekit.core.warnings import RegimekitWarning

_SUMMARY = "Infer regimes and forecast a stream online, with calibrated intervals; outlier-robust."
_INTERRUPTED = 130  # exit code after Ctrl-C, as in shells

app = typer.Typer(
    help=_SUMMARY,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Boxes around the help would take a third of its time.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"regimekit {regimekit.__version__}")
        raise typer.Exit


@app.callback(help=_SUMMARY)
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version."),
    ] = False,
) -> None: ...


@app.command()
@expand_groups
def run(
    source: TableOptions,
    model: Model = "",
    settings: Annotated[
        Path | None,
        typer.Option("--settings", help="Settings file of `tune`; other options take precedence."),
    ] = None,
    level: Level = 0.9,
    horizon: Horizon = 0,
    future: Future = None,
    by: Annotated[
        str | None, typer.Option(help="Column with the name of the series: one model each.")
    ] = None,
    wide: Annotated[bool, typer.Option("--wide", help="Each numeric column is a series.")] = False,
    jobs: Annotated[int, typer.Option(help="Series run in parallel (--by); -1 for all cores.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the models of the series (--by).")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the results (default: out; none with --follow)."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="File format of the rows: csv or parquet.")
    ] = "csv",
    burn_in: BurnIn = 50,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more rows; print one JSON line for each.")
    ] = False,
    snapshot_every: Annotated[
        int, typer.Option(help="Observations between two checkpoints (--follow).")
    ] = 1000,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a stopped --follow after its checkpoint.")
    ] = False,
    idle: Annotated[
        float | None, typer.Option(help="Seconds without a row after which --follow stops.")
    ] = None,
    *,
    console: Console,
) -> None:
    """Forecast a column and infer its regimes, one row at a time.

    If the table has one numeric column, no option is needed; a time column is detected. Rows must
    be in the order of time, or pass --sort. Rows with a repeated time are skipped, gaps are missing
    observations. Results: run.csv, events.csv, regimes.csv, model.regimekit, report.html, and with
    --horizon forecasts.csv.
    """
    from regimekit.cli import pipeline
    from regimekit.core.exceptions import RegimekitError

    if format_ not in ("csv", "parquet"):
        raise RegimekitError(f"--format must be csv or parquet, got {format_!r}.")
    tuned = pipeline.read_tuned_settings(settings)
    options = source.parse(
        by,
        tuned,
        model=model or (tuned.model_name if tuned else ""),
        level=level,
        horizon=horizon,
        future=future,
        burn_in=burn_in,
        wide=wide,
    )
    folder = out or Path("out")
    if follow or resume:
        from regimekit.cli.follow import follow_stream

        follow_stream(options, out, snapshot_every, resume, idle, console)
    elif by is not None or wide:
        from regimekit.cli.panel import run_panel

        run_panel(options, folder, jobs, seed, format_, console)
    else:
        from regimekit.cli.stream_run import print_summary, run_file

        _, summary = run_file(options, folder, format_, console)
        print_summary(summary, console)
        if summary["interrupted"]:
            raise typer.Exit(_INTERRUPTED)


@app.command()
@expand_groups
def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of an earlier run.")],
    file: Annotated[
        str | None, typer.Argument(help="Table with more rows (default: the table of the run).")
    ] = None,
    sql: Sql = None,
    *,
    console: Console,
) -> None:
    """Continue an earlier run with the rows that were added to its table.

    With a time column, rows after the last time are new; without one, rows after the last row.
    Results are appended to the folder.
    """
    from regimekit.cli.stream_run import resume_run

    resume_run(folder, file, sql, console)


@app.command()
@expand_groups
def compare(
    source: TableOptions,
    models: Annotated[
        str, typer.Option(help="Names of the models, comma-separated; see `models`.")
    ] = "",
    burn_in: BurnIn = 50,
    level: Level = 0.9,
    out: Out = Path("out"),
    *,
    console: Console,
) -> None:
    """Run several models on one table and write a table and a figure of their errors."""
    from regimekit.cli.model_selection import compare_models
    from regimekit.cli.pipeline import parse_names

    options = source.parse(level=level, burn_in=burn_in)
    compare_models(options, parse_names(models), out, console)


@app.command()
@expand_groups
def backtest(
    source: TableOptions,
    model: Model = "",
    horizon: Horizon = 24,
    step: Annotated[
        int | None, typer.Option(help="Rows between two origins (default: the horizon).")
    ] = None,
    start: Annotated[
        int | None, typer.Option(help="Rows before the first origin (default: half of them).")
    ] = None,
    level: Level = 0.9,
    out: Out = Path("out"),
    *,
    console: Console,
) -> None:
    """Forecast several steps ahead from many origins, and score the forecasts.

    Covariates of the forecast steps are taken from the table. Results: backtest.csv with one row
    per origin and step, and backtest.png.
    """
    from regimekit.cli.model_selection import backtest_model

    options = source.parse(model=model, level=level)
    backtest_model(options, horizon, step or horizon, start, out, console)


@app.command()
@expand_groups
def tune(
    source: TableOptions,
    out: Annotated[Path, typer.Option("--out", help="Settings file.")] = Path("settings.json"),
    model: Model = "br_ihmm",
    objective: Annotated[
        str, typer.Option(help="crps, mae, rmse, lookahead_mae, log_score or regimes.")
    ] = "crps",
    budget: Annotated[int, typer.Option(help="Number of trials.")] = 50,
    train: Annotated[int | None, typer.Option(help="First rows to use (default: all).")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of the model to average over.")] = 1,
    jobs: Annotated[int, typer.Option(help="Trials run in parallel.")] = 1,
    backend: Annotated[str, typer.Option(help="optuna or bayesopt.")] = "optuna",
    space: Annotated[
        Path | None,
        typer.Option(help='JSON file with the search space: {"batch": ["int", 1, 24, "log"]}.'),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="File with finished trials; the next search continues it.")
    ] = None,
    burn_in: BurnIn = 50,
    *,
    console: Console,
) -> None:
    """Search the settings with the smallest forecast error; `run --settings` uses them."""
    from regimekit.cli.model_selection import tune_model

    tune_model(
        source.parse(model=model, burn_in=burn_in),
        out,
        space,
        console,
        objective=objective,
        budget=budget,
        backend=backend,
        train=train,
        seeds=seeds,
        jobs=jobs,
        storage=log,
    )


@app.command()
@expand_groups
def forecast(
    snapshot: Snapshot,
    horizon: Horizon = 24,
    level: Level = 0.9,
    future: Future = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="CSV file for the forecasts (default: print).")
    ] = None,
    *,
    console: Console,
) -> None:
    """Forecast the next steps with the model of an earlier run."""
    from regimekit.cli.snapshots import forecast_snapshot

    forecast_snapshot(snapshot, horizon, level, future, out, console)


@app.command()
@expand_groups
def inspect(snapshot: Snapshot, *, console: Console) -> None:
    """Print the settings, regimes and transitions of a model."""
    from regimekit.cli.snapshots import inspect_snapshot

    inspect_snapshot(snapshot, console)


@app.command()
@expand_groups
def label(
    snapshot: Snapshot,
    id: Annotated[int, typer.Argument(help="Id of a regime; see `inspect`.")],
    name: Annotated[str | None, typer.Option(help="Name of the regime; '' for none.")] = None,
    status: Annotated[str | None, typer.Option(help="normal, fault or unknown.")] = None,
    *,
    console: Console,
) -> None:
    """Give a regime of a saved model a name or a status.

    The snapshot is replaced. `regimekit report FOLDER` writes the report with the new labels, and
    `resume` continues with them.
    """
    from regimekit.cli.snapshots import label_snapshot

    label_snapshot(snapshot, id, name, status, console)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="HTML file (default: report.html in the folder).")
    ] = None,
    horizon: Horizon = 24,
    quiet: Quiet = False,
) -> None:
    """Write the report of an earlier run again."""
    from regimekit.cli.snapshots import rewrite_report

    rewrite_report(folder, out, horizon, Console(quiet=quiet))


@app.command()
def models(json: Json = False) -> None:
    """List the models."""
    from regimekit.core.registry import REGISTRY

    console, entries = Console(json), REGISTRY.values()
    console.result({"models": [entry._asdict() for entry in entries]})
    rows = [[e.name, "online" if e.online else "offline", e.summary] for e in entries]
    console.table(["model", "", "description"], rows)


@app.command()
@expand_groups
def demo(
    out: Out = Path("out/demo"),
    n: Annotated[int, typer.Option(help="Length of the stream.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the stream and of the model.")] = 0,
    model: Model = "br_ihmm",
    *,
    console: Console,
) -> None:
    """Run a model on a generated stream with known regimes."""
    from regimekit.cli.demo import run_demo

    run_demo(out, n, seed, model, console)


@app.command()
def reproduce(
    items: Annotated[
        list[str] | None, typer.Argument(help="Names of tables and figures, `all`, or `list`.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Largest number of seeds per experiment.")] = 20,
    jobs: Annotated[int, typer.Option(help="Runs in parallel, each in a process.")] = 2,
    out: Out = Path("out/reproduction"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Few rows and particles, one run: a smoke test.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print the run time without running anything.")
    ] = False,
) -> None:
    """Make the tables and figures of the paper; finished runs are not repeated."""
    from regimekit.core.exceptions import whole

    console, paper = Console(), _import_paper()
    if not items or "list" in items:
        rows = [[item.name, item.title, item.source] for item in paper.ITEMS.values()]
        console.table(["item", "description", "in the paper"], rows)
        return
    chosen = paper.choose(items)
    plan = paper.Plan(whole("--runs", runs), quick)
    if estimate:
        due = paper.estimate(chosen, out, plan)
        due.append(("total", sum(n for _, n, _ in due), sum(minutes for *_, minutes in due)))
        rows = [[name, str(n), f"{minutes:.1f}"] for name, n, minutes in due]
        console.table(["item", "runs to do", "core minutes"], rows)
        return
    for done in paper.reproduce(chosen, out, plan, whole("--jobs", jobs), progress=True):
        console.info(f"{done.name}: {done.runs} runs; figure: {done.figure or 'none'}")
        for name, reason in done.absent.items():
            console.info(f"  {name}: {reason}")
    console.info(f"index of all results: {out / 'index.md'}")


def _import_paper() -> Any:
    """Import the folder `paper` of a source checkout; it is not installed with the library."""
    from regimekit.core.exceptions import RegimekitError

    for root in (Path.cwd(), Path(regimekit.__file__).resolve().parents[2]):
        if (root / "paper" / "catalogue.py").is_file():
            sys.path.insert(0, str(root))
            return importlib.import_module("paper")
    raise RegimekitError(
        "`reproduce` needs the folder `paper` of a source checkout, which is not part of the "
        "installed library. Run it from the top folder of the checkout."
    )


def _register_service() -> None:
    """Add the commands of the service, if it is installed."""
    try:
        service = importlib.import_module("regimekit.server.cli")
    except ModuleNotFoundError:
        return
    service.register(app)


_register_service()
bridges.register(app)


def main() -> None:
    """Run the command line; a RegimekitError is printed as one line, with exit code 2."""
    default = warnings.showwarning

    def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
        # Warnings about the data are for users, who need no position in the code.
        if issubclass(category, RegimekitWarning):
            print(f"regimekit: {message}", file=sys.stderr)
        else:
            default(message, category, *rest, **more)

    warnings.showwarning = show
    try:
        app()
    except KeyboardInterrupt:
        print("regimekit: interrupted; no results were written.", file=sys.stderr)
        raise SystemExit(_INTERRUPTED) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"regimekit: {error.strerror}: {error.filename or 'output'}.", file=sys.stderr)
        raise SystemExit(2) from None
    except ValueError as error:
        from regimekit.core.exceptions import RegimekitError

        if not isinstance(error, RegimekitError):
            raise
        print(f"regimekit: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
