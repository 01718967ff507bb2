"""The command line: thin, over the library's public functions."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

import holdfast as hf
from holdfast import data, evaluate, plot
from holdfast._numba import cache_folder, cache_root
from holdfast.errors import HoldfastError, whole
from holdfast.frames import Table
from holdfast.results import OUTLIER, Run
from holdfast.serve.cli import add_commands as add_service_commands
from holdfast.tune import TuneResult, tune

app = typer.Typer(
    help="Online regimes and honest forecasts from a stream, unshaken by outliers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
add_service_commands(app)
console = Console()

File = Annotated[Path, typer.Argument(help="CSV, Parquet or JSON lines, one row per time.")]
Target = Annotated[str, typer.Option(help="Column to forecast.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for the results.")]
Columns = Annotated[str, typer.Option(help="Covariates: column names, comma-separated.")]
Lags = Annotated[str, typer.Option(help="Lags of the target, comma-separated.")]
Season = Annotated[str, typer.Option(help="Season lengths, comma-separated.")]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the model, as name=value; repeat for more."),
]


def main() -> None:
    """Run the command line; a bad argument gives one line instead of a traceback."""
    try:
        app()
    except HoldfastError as error:
        console.print(f"[red]holdfast:[/red] {escape(str(error))}", highlight=False)
        raise SystemExit(2) from None


@app.command()
def demo(
    out: Out = Path("out/demo"),
    n: Annotated[int, typer.Option(help="Length of the stream.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the stream and of the model.")] = 0,
) -> None:
    """Run the model on a generated stream whose truth is known."""
    _greet_compiler()
    stream = data.regime_stream(seed=seed, n=n)
    model = hf.br_ihmm(noise=0.16, prior_var=4.0, seed=seed)
    result = evaluate.prequential(model, stream.y, clean=stream.clean, skip=50, progress=True)
    _print_scores(result.scores(), "errors against the uncontaminated values")
    assert stream.regimes is not None and stream.outliers is not None
    console.print(_truth_table(result.run, stream.regimes, stream.outliers))
    _draw(
        lambda: plot.run_figure(
            result.run, stream.y, "br_ihmm on a generated stream", truth=stream.regimes
        ),
        out / "demo.png",
    )


@app.command()
def run(
    file: File,
    target: Target,
    out: Out = Path("out"),
    columns: Columns = "",
    lags: Lags = "",
    season: Season = "",
    model: Annotated[str, typer.Option(help="Model by name (br_ihmm); see `models`.")] = "",
    burn_in: Annotated[
        int | None, typer.Option(help="First rows that set the units and are not scored (100).")
    ] = None,
    settings_file: Annotated[
        Path | None, typer.Option("--settings", help="What `tune` wrote; other options win.")
    ] = None,
    set_: Setting = None,
) -> None:
    """Forecast a column and name its regimes, one row at a time."""
    tuned = _tuned(settings_file)
    settings = tuned.best | _settings(set_ or [])
    if columns or lags or season or "features" not in settings:
        settings["features"] = _features(columns, lags, season)
    columns = columns or tuned.info.get("columns", "")
    burn_in = int(tuned.info.get("burn_in", 100)) if burn_in is None else burn_in
    model = model or tuned.model_name
    y, X = _pick(_read_file(file), target, _words(columns))
    scaled, centre, scale = _standardised(y, burn_in)
    maker = hf.make(model, **settings)
    _greet_compiler()
    skip = min(burn_in, len(y) // 2)
    result = evaluate.prequential(maker, scaled, X, skip=skip, progress=True)
    out.mkdir(parents=True, exist_ok=True)
    found = _in_units(result.run, centre, scale)
    _write_run(found, out)
    maker.save(out / "model.holdfast")
    _write_units(out, file, target, centre, scale)
    _print_scores(result.scores(), f"errors in units of {scale:.6g} (the first {skip} rows apart)")
    _draw(lambda: plot.run_figure(found, y, f"{target}: {model}"), out / "run.png")
    console.print(f"results in {out}: run.csv, events.csv, model.holdfast, units.json")


@app.command("tune")
def tune_command(
    file: File,
    target: Target,
    out: Annotated[Path, typer.Option("--out", help="Settings file.")] = Path("settings.json"),
    columns: Columns = "",
    lags: Lags = "",
    season: Season = "",
    model: Annotated[str, typer.Option(help="Model by name; see `models`.")] = "br_ihmm",
    objective: Annotated[
        str, typer.Option(help="rmse, mae, lookahead_mae, log_score or crps.")
    ] = "rmse",
    budget: Annotated[int, typer.Option(help="Number of trials.")] = 50,
    train: Annotated[int | None, typer.Option(help="Rows of the training part (all).")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of the model to average over.")] = 1,
    jobs: Annotated[int, typer.Option(help="Trials run side by side.")] = 1,
    backend: Annotated[str, typer.Option(help="optuna or bayesopt.")] = "optuna",
    space: Annotated[
        Path | None, typer.Option(help='JSON file of settings: {"batch": ["int", 1, 24, "log"]}.')
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="File of finished trials; a rerun continues."),
    ] = None,
    burn_in: Annotated[
        int, typer.Option(help="First rows that set the units and are not scored.")
    ] = 100,
    set_: Setting = None,
) -> None:
    """Choose settings by how well they forecast a training part; `run --settings` takes them."""
    y, X = _pick(_read_file(file), target, _words(columns))
    rows = len(y) if train is None else train
    burn_in = min(burn_in, rows)  # the units too are of the training part alone
    _greet_compiler()
    result = tune(
        model, _standardised(y, burn_in)[0], X, _read_space(space), objective, budget,
        backend=backend, train=train, skip=min(burn_in, rows // 2), seeds=seeds, jobs=jobs,
        settings={"features": _features(columns, lags, season)} | _settings(set_ or []),
        storage=log, progress=True,
    )  # fmt: skip
    about = {"file": file.name, "target": target, "columns": columns, "burn_in": burn_in}
    out.parent.mkdir(parents=True, exist_ok=True)
    replace(result, info=result.info | about).save(out)
    _print_tuned(result, out)


@app.command()
def reproduce(
    items: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures by name, `all`, or `list`.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Seeds of a cheap run; dear ones get fewer.")] = 100,
    jobs: Annotated[int, typer.Option(help="Runs side by side, each in a process.")] = 2,
    out: Out = Path("out/reproduction"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Few rows and particles, one run: a smoke test.")
    ] = False,
) -> None:
    """Make the paper's tables and figures; what was run before is not run again."""
    from holdfast import experiments

    if not items or "list" in items:
        table = Grid("item", "what it is", "in the paper", box=None)
        for item in experiments.ITEMS.values():
            table.add_row(item.name, item.title, item.source)
        console.print(table)
        return
    chosen = experiments.choose(items)
    plan = experiments.Plan(whole("--runs", runs), quick)
    _greet_compiler()
    for done in experiments.reproduce(chosen, out, plan, whole("--jobs", jobs), progress=True):
        console.print(
            f"[bold]{done.name}[/bold]: {done.runs} runs; figure: {done.figure or 'none'}"
        )
        for what, reason in done.absent.items():
            console.print(f"  {what}: {reason}", highlight=False)
    console.print(f"all of it: {out / 'index.md'}")


@app.command()
def models() -> None:
    """List the models."""
    table = Grid("model", "what it is", box=None)
    for name, line in hf.models().items():
        table.add_row(name, line)
    console.print(table)


@app.command()
def warm_up() -> None:
    """Compile the kernels now, so that the first run starts at once."""
    _greet_compiler()
    rng = np.random.default_rng(0)
    for name in hf.models():
        hf.make(name).run(rng.standard_normal(20))
    hf.br_ihmm().run(rng.standard_normal((20, 2)))
    console.print(f"kernels are ready in {cache_root()}")


def _draw(figure: Callable[[], Any], path: Path) -> None:
    """Write a picture, or say what it needs; everything else is done without it."""
    try:
        console.print(f"picture: {plot.save(figure(), path)}")
    except plot.NoPictures as error:
        console.print(f"no picture. {error}", markup=False)


def _greet_compiler() -> None:
    folder = cache_folder("holdfast.engine.step")
    if not folder.exists() and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0"):
        console.print("compiling kernels, once (about half a minute)")


def _read_file(file: Path) -> dict[str, NDArray[Any]]:
    """Columns of a CSV, Parquet or JSON file."""
    import duckdb

    if not file.exists():
        raise HoldfastError(f"FILE {file} does not exist.")
    try:
        quoted = str(file).replace("'", "''")
        return dict(duckdb.execute(f"SELECT * FROM '{quoted}'").fetchnumpy())
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise HoldfastError(f"FILE {file} cannot be read as a table: {first}") from None


def _pick(
    table: dict[str, NDArray[Any]], target: str, columns: list[str]
) -> tuple[NDArray[np.float64], Any]:
    """The target, and the covariates as named columns or None."""
    for name in [target, *columns]:
        if name not in table:
            raise HoldfastError(
                f"The file has no column {name!r}; it has {', '.join(map(str, table))}."
            )
    y = _column(table, target)
    if not columns:
        return y, None
    values = np.column_stack([_column(table, name) for name in columns])
    return y, Table(values, tuple(columns))


def _column(table: dict[str, NDArray[Any]], name: str) -> NDArray[np.float64]:
    values = np.ma.asarray(table[name])
    try:
        return np.ma.filled(values.astype(float), np.nan)
    except (TypeError, ValueError):
        raise HoldfastError(f"The column {name!r} is not numeric.") from None


def _standardised(y: NDArray[np.float64], burn_in: int) -> tuple[NDArray[np.float64], float, float]:
    """y in units of its first rows: median and normal-consistent median deviation."""
    first = y[: max(burn_in, 2)]
    first = first[np.isfinite(first)]
    if first.size == 0:
        raise HoldfastError("The target has no observed value among the burn-in rows.")
    centre = float(np.median(first))
    scale = 1.4826 * float(np.median(np.abs(first - centre))) or float(first.std()) or 1.0
    return (y - centre) / scale, centre, scale


def _features(columns: str, lags: str, season: str) -> Any:
    parts = hf.features.intercept()
    if columns:
        parts = parts + hf.features.columns(*_words(columns))
    for period in _words(season):
        parts = parts + hf.features.season(_number("--season", period))
    if lags:
        parts = parts + hf.features.lags(*(int(_number("--lags", w)) for w in _words(lags)))
    return parts


def _settings(given: list[str]) -> dict[str, Any]:
    chosen = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals:
            raise HoldfastError(f"--set takes name=value, got {item!r}.")
        try:
            chosen[name] = json.loads(value)
        except ValueError:
            chosen[name] = value
    return chosen


def _tuned(file: Path | None) -> TuneResult:
    """What `tune` wrote to a file; without one, the plain model."""
    if file is None:
        return TuneResult("br_ihmm", {}, float("nan"), [], "")
    return TuneResult.read(file)


def _read_space(file: Path | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        space: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise HoldfastError(f"--space {file} cannot be read as JSON: {error}.") from None
    return space


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise HoldfastError(f"{option} takes numbers, got {text!r}.") from None


def _in_units(run: Run, centre: float, scale: float) -> Run:
    """The run's forecasts back in the target's units."""
    moved = {name: getattr(run, name) * scale + centre for name in ("mean", "lower", "upper")}
    return replace(run, sd=run.sd * scale, log_score=run.log_score - np.log(scale), **moved)


def _write_run(run: Run, out: Path) -> None:
    columns = run.columns()
    with (out / "run.csv").open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    with (out / "events.csv").open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(["time", "kind", "regime", "previous"])
        writer.writerows(run.events)


def _write_units(out: Path, file: Path, target: str, centre: float, scale: float) -> None:
    units = {"file": file.name, "target": target, "centre": centre, "scale": scale}
    (out / "units.json").write_text(json.dumps(units, indent=2) + "\n")


def _print_scores(scores: dict[str, float], heading: str) -> None:
    table = Grid("", "RMSE", "MAE", box=None)
    table.add_row("model", f"{scores['rmse']:.4g}", f"{scores['mae']:.4g}")
    for name in scores:
        if name.startswith("rmse_"):
            label = name.removeprefix("rmse_")
            table.add_row(
                label.replace("_", " "), f"{scores[name]:.4g}", f"{scores['mae_' + label]:.4g}"
            )
    console.print(heading)
    console.print(table)
    console.print(
        f"coverage of the 90 % interval {scores['coverage']:.1%}, "
        f"{scores['n_regimes']:.0f} regimes, {scores['switches']:.0f} switches, "
        f"{1e3 * scores['seconds_per_observation']:.2g} ms per observation\n"
    )


def _print_tuned(result: TuneResult, out: Path) -> None:
    table = Grid("setting", "best", box=None)
    for name in result.trials[0]["settings"]:
        value = result.best[name]
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    console.print(table)
    failed = f", {len(result.failures)} failed" if result.failures else ""
    console.print(
        f"{result.objective} {result.value:.4g} after {len(result.trials)} trials{failed}"
    )
    console.print(f"settings in {out}; use them with: holdfast run FILE --settings {out}")


def _truth_table(found: Run, regimes: NDArray[np.int64], outliers: NDArray[np.bool_]) -> Grid:
    caught = int((found.outlier & outliers).sum())
    table = Grid("", "found", "true", box=None)
    table.add_row("regimes", str(evaluate.n_regimes(found.path)), str(evaluate.n_regimes(regimes)))
    table.add_row("switches", str(evaluate.switches(found.path)), str(evaluate.switches(regimes)))
    table.add_row("outliers caught", str(caught), str(int(outliers.sum())))
    flagged = sum(event.kind == OUTLIER for event in found.events)
    table.add_row("flagged besides", str(flagged - caught), "0")
    table.add_row("agreement (ARI)", f"{evaluate.adjusted_rand(found.path, regimes):.3f}", "1")
    return table


if __name__ == "__main__":
    main()
