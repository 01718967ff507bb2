"""Compare, tune or backtest models on one table: `compare`, `tune`, `backtest`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit import plotting
from regimekit.cli.console import Console, format_number, read_json_file
from regimekit.cli.output import (
    BACKTEST,
    BACKTESTS,
    COMPARISON,
    COMPARISONS,
    ResultFolder,
    check_not_input,
    check_writable,
    write_csv,
)
from regimekit.cli.pipeline import Pipeline, PipelineOptions, open_pipeline, takes_features
from regimekit.core.display import count
from regimekit.core.exceptions import unknown
from regimekit.core.registry import DEFAULT_MODEL, REGISTRY, make
from regimekit.io.columns import columns_of
from regimekit.metrics import Backtest, backtest, comparison
from regimekit.panel import with_seasons
from regimekit.preprocessing.time_index import seasons_of
from regimekit.tuning import TuneResult, tune

_DEFAULT_MODELS = (DEFAULT_MODEL, "student_t_ihmm", "br_ihmm", "least_squares", "last_value")
# Settings in units of y; the default estimates them.
_SCALE_SETTINGS = ("noise", "noise_scale", "prior_mean", "prior_var")


def compare_models(
    options: PipelineOptions, models: tuple[str, ...], out: Path, console: Console
) -> None:
    """Run several models on one table and write their scores and a figure."""
    with ResultFolder(out, COMPARISONS, options.inputs, options.request.sql) as folder:
        pipeline = open_pipeline(options, console, show_model=False)
        block = pipeline.read_all(console)
        target = pipeline.layout.target
        if not models:
            seasonal = ("seasonal_last_value",) if pipeline.season else ()
            models = (*_DEFAULT_MODELS, *seasonal)
        compared = comparison.compare(
            {name: _settings_for(name, pipeline) for name in models},
            block.y,
            block.X,
            season=pipeline.season,
            skip=options.burn_in,
            level=options.level,
            on_start=lambda name: console.info(f"running {name}"),
        )
        rows = [one.row() for one in compared]
        table_file, figure_file = COMPARISON
        write_csv(folder.path(table_file), columns_of(rows))
        folder.save_figure(figure_file, lambda: comparison.figure(compared, target), console)
        files = folder.commit()
    console.result({"models": rows, "out": str(out), "files": files})
    console.info(f"one-step forecast errors, in units of {target}")
    printed = [
        [
            row["model"],
            *(format_number(row.get(name)) for name in ("rmse", "mae", "log_score")),
            f"{row['coverage']:.1%}" if "coverage" in row else "",
            str(row["regimes"]),
            f"{row['ms_per_observation']:.2g}",
            row["remark"],
        ]
        for row in rows
    ]
    header = ["", "RMSE", "MAE", "log score", "coverage", "regimes", "ms", ""]
    console.table(header, printed)
    console.info(f"results in {out}: {', '.join(files)}")


def _settings_for(name: str, pipeline: Pipeline) -> dict[str, Any]:
    """Return the requested features and settings that a model accepts."""
    if name not in REGISTRY:
        raise unknown("--models", name, REGISTRY)
    options, accepted = pipeline.options, make(name).settings()
    kept = {key: value for key, value in options.settings.items() if key in accepted}
    options = replace(options, model=name, settings=kept)
    covariates = pipeline.layout.covariates
    if not takes_features(name):
        options = replace(options, choice=options.choice._replace(columns=()), lags=())
        covariates = ()
    settings = options.model_settings(covariates)
    if "period" in accepted and pipeline.season:
        settings.setdefault("period", pipeline.season)
    return with_seasons(name, settings, seasons_of(pipeline.frequency))


def backtest_model(
    options: PipelineOptions,
    horizon: int,
    step: int,
    start: int | None,
    out: Path,
    console: Console,
) -> None:
    """Forecast from many origins of a table, score the forecasts, and write them."""
    with ResultFolder(out, BACKTESTS, options.inputs, options.request.sql) as folder:
        pipeline = open_pipeline(options, console)
        block = pipeline.read_all(console)
        done = backtest(
            pipeline.model(),
            block.y,
            block.X,
            horizon=horizon,
            step=step,
            start=start,
            level=options.level,
            period=pipeline.season,
        )
        table_file, figure_file = BACKTEST
        columns = {name: values.tolist() for name, values in done.columns().items()}
        times = [block.times[t] for t in done.origin + done.step - 1]
        write_csv(folder.path(table_file), {"time": times} | columns)
        folder.save_figure(figure_file, lambda: plotting.plot_backtest(done).figure, console)
        files = folder.commit()
    scores = done.scores()
    console.result({"scores": scores, "origins": len(done.origins), "files": files})
    console.info(
        f"errors of forecasts up to {count(horizon, 'step')} ahead, in units of "
        f"{pipeline.layout.target} ({count(len(done.origins), 'origin')})"
    )
    shown = sorted({1, max(horizon // 4, 1), max(horizon // 2, 1), horizon})
    header = ["steps ahead", "MAE", *(f"MAE of the {n.replace('_', ' ')}" for n in done.references)]
    rows = [_backtest_row(str(h), done, done.step == h) for h in shown]
    rows.append(_backtest_row("all", done, done.step > 0))
    console.table([*header, "CRPS", "coverage"], rows)
    console.info(f"results in {out}: {', '.join(files)}")


def _backtest_row(label: str, done: Backtest, rows: NDArray[np.bool_]) -> list[str]:
    found = done.scores_of(rows)
    names = ["mae", *(f"mae_{name}" for name in done.references), "crps"]
    errors = [format_number(found[name]) for name in names]
    return [label, *errors, f"{found['coverage']:.1%}"]


def tune_model(
    options: PipelineOptions, out: Path, space: Path | None, console: Console, **search: Any
) -> None:
    """Search settings on a table and write the best ones."""
    check_not_input(out, (*options.inputs, space))
    check_writable(out)
    pipeline = open_pipeline(options, console)
    block = pipeline.read_all(console)
    result = tune(
        options.model_name,
        block.y,
        block.X,
        read_json_file("--space", space),
        skip=min(options.burn_in, (search["train"] or len(block.y)) // 2),
        settings=options.model_settings(),
        progress=console.prints_text,
        **search,
    )
    layout = pipeline.layout
    info = {"file": options.request.name, "target": layout.target}
    info |= {"columns": ",".join(layout.columns), "burn_in": str(options.burn_in)}
    replace(result, info=result.info | info).save(out)
    _print_tuned(result, _run_command(pipeline, out), out, console)


def _run_command(pipeline: Pipeline, out: Path) -> str:
    """Return the command that runs the table with the settings file."""
    options, request = pipeline.options, pipeline.options.request
    words = ["regimekit", "run", *filter(None, [request.file]), "--target", pipeline.layout.target]
    given = {"--time": options.choice.time, "--table": request.table, "--sql": request.sql}
    for option, value in given.items():
        words += [option, value] if value else []
    words += ["--sort"] if options.sort else []
    return shlex.join([*words, "--settings", str(out)])


def _print_tuned(result: TuneResult, command: str, out: Path, console: Console) -> None:
    """Print the best settings, and their score beside those of the default and the last value."""
    trials = len(result.trials)
    console.result(
        {
            "model": result.model_name,
            "objective": result.objective,
            "best": result.value,
            "default": result.default,
            "last_value": result.last_value,
            "settings": result.best,
            "trials": trials,
            "failed": len(result.failures),
            "out": str(out),
            "hint": command,
        }
    )
    searched = result.trials[0]["settings"]
    fixed = {name: value for name, value in result.best.items() if name not in searched}
    default = make(result.model_name, **fixed).settings()
    if default.get("units") == "auto":
        default |= dict.fromkeys(_SCALE_SETTINGS, "estimated")
    rows = [[name, _format(default[name]), _format(result.best[name])] for name in searched]
    console.table(["setting", "default", "best"], rows)
    values = {
        f"best of {count(trials, 'trial')}": result.value,
        "default settings": result.default,
        "last value": result.last_value,
    }
    rows = [[n, "failed" if v is None else format_number(v)] for n, v in values.items()]
    console.table(["", result.objective], rows)
    if result.failures:
        console.info(f"{count(len(result.failures), 'trial')} failed")
    console.info(f"settings in {out}; use them with: {command}")
    if result.default is not None and result.default <= result.value:
        how = "as well as" if result.default == result.value else "better than"
        console.info(f"note: the default settings forecast {how} the best trial; keep them.")


def _format(value: Any) -> str:
    return format_number(value) if isinstance(value, float) else str(value)
