"""Commands that run models to choose among them: `compare` and `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regimekit.cli import options

if TYPE_CHECKING:
    from regimekit.cli.console import Voice
    from regimekit.cli.job import Prepared
    from regimekit.io import Block
    from regimekit.tuning import TuneResult


def compare(
    file: options.File,
    models: Annotated[
        str, typer.Option(help="Models by name, comma-separated; see `models`.")
    ] = "",
    target: options.Target = None,
    time: options.Time = None,
    columns: options.Columns = "",
    lags: options.Lags = "",
    season: options.Season = "",
    set_: options.Setting = None,
    burn_in: options.BurnIn = 50,
    level: options.Level = 0.9,
    sort: options.Sort = False,
    table: options.Table = None,
    query: options.Query = None,
    out: options.Out = Path("out"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run several models along one table: one table of errors, one figure."""
    from regimekit.cli.console import Voice
    from regimekit.cli.destination import Destination, write_sheet
    from regimekit.cli.job import table_of, words
    from regimekit.metrics.comparison import compare as compare_models
    from regimekit.metrics.comparison import figure

    voice = Voice(json, quiet)
    with Destination(out) as destination:
        prepared, block = _whole_table(
            (file, table, query),
            (target, time, columns),
            lags,
            season,
            set_,
            burn_in,
            level,
            sort,
            voice,
            several=True,
        )
        names = words(models) or _usual(prepared)
        makers = {name: _settings_for(name, prepared) for name in names}
        rivals = compare_models(
            makers,
            block.y,
            _table(prepared, block),
            season=prepared.season,
            skip=burn_in,
            level=level,
            told=voice.say,
        )
        rows = [rival.row() for rival in rivals]
        write_sheet(destination.path("comparison.csv"), table_of(rows))
        _draw(lambda: figure(rivals, prepared.layout.target), destination, voice)
        files = destination.commit()
    voice.result({"models": rows, "out": str(out), "files": files})
    _tell_rivals(rows, prepared.layout.target, voice)
    voice.say(f"results in {out}: {', '.join(files)}")


def tune(
    file: options.File,
    target: options.Target = None,
    time: options.Time = None,
    out: Annotated[Path, typer.Option("--out", help="Settings file.")] = Path("settings.json"),
    columns: options.Columns = "",
    lags: options.Lags = "",
    season: options.Season = "",
    model: options.Model = "br_ihmm",
    objective: Annotated[
        str, typer.Option(help="crps, mae, rmse, lookahead_mae or log_score.")
    ] = "crps",
    budget: Annotated[int, typer.Option(help="Number of trials.")] = 50,
    train: Annotated[int | None, typer.Option(help="Rows of the training part (all).")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of the model to average over.")] = 1,
    jobs: Annotated[int, typer.Option(help="Trials run side by side.")] = 1,
    backend: Annotated[str, typer.Option(help="optuna or bayesopt.")] = "optuna",
    space: Annotated[
        Path | None, typer.Option(help='JSON file of settings: {"batch": ["int", 1, 24, "log"]}.')
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="File of finished trials; a rerun continues.")
    ] = None,
    burn_in: options.BurnIn = 50,
    sort: options.Sort = False,
    table: options.Table = None,
    query: options.Query = None,
    set_: options.Setting = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Choose settings by how well they forecast a training part; `run --settings` takes them."""
    from dataclasses import replace

    from regimekit.cli.console import Voice
    from regimekit.cli.tuned import check_output, hint_of, read_space, tell_tuned
    from regimekit.tuning import tune as search

    voice = Voice(json, quiet)
    check_output(out)
    prepared, block = _whole_table(
        (file, table, query),
        (target, time, columns),
        lags,
        season,
        set_,
        burn_in,
        0.9,
        sort,
        voice,
        model,
    )
    X = _table(prepared, block)
    rows = len(block.y) if train is None else train
    skip = min(burn_in, rows // 2)
    result: TuneResult = search(
        model,
        block.y,
        X,
        read_space(space),
        objective,
        budget,
        backend=backend,
        train=train,
        skip=skip,
        seeds=seeds,
        jobs=jobs,
        settings=prepared.job.model_settings(),
        storage=log,
        progress=voice.words,
    )
    layout = prepared.layout
    about = {"file": file, "target": layout.target, "columns": ",".join(layout.columns)}
    about |= {"burn_in": str(burn_in)}
    replace(result, info=result.info | about).save(out)
    tell_tuned(result, hint_of(prepared, out), out, voice)


def _whole_table(
    request: tuple[str, str | None, str | None],
    wishes: tuple[str | None, str | None, str],
    lags: str,
    season: str,
    set_: list[str] | None,
    burn_in: int,
    level: float,
    sort: bool,
    voice: Voice,
    model: str = "",
    several: bool = False,
) -> tuple[Prepared, Block]:
    """The table opened and read whole: models are run along it more than once."""
    from dataclasses import replace

    from regimekit.cli.job import Job, numbers, prepare, read_settings, steps, words
    from regimekit.cli.running import greet_compiler
    from regimekit.core.exceptions import RegimekitError
    from regimekit.io import Request, Wishes
    from regimekit.io.reading import as_block

    target, time, columns = wishes
    job = Job(
        Request(*request),
        Wishes(target, time, words(columns)),
        model,
        read_settings(set_ or []),
        steps("--lags", lags),
        numbers("--season", season),
        level,
        burn_in=burn_in,
        sort=sort,
    )
    prepared = replace(prepare(replace(job, settings={}), voice, several), job=job)
    reading = prepared.reading()
    found = [o for chunk in prepared.chunks() for row in chunk for o in reading.take(row)]
    for line in reading.words():
        voice.say(f"note: {line}")
    if len(found) < 4:
        raise RegimekitError(f"{request[0]} has {len(found)} rows; that is too few to compare by.")
    greet_compiler(voice)
    return prepared, as_block(found)


def _usual(prepared: Prepared) -> tuple[str, ...]:
    names = [prepared.model_name, "student_t_ihmm", "br_ihmm", "least_squares", "last_value"]
    return tuple(dict.fromkeys(names + (["seasonal_last_value"] if prepared.season else [])))


def _settings_for(name: str, prepared: Prepared) -> dict[str, Any]:
    """The asked-for features and settings, as far as this model takes them."""
    from dataclasses import replace

    from regimekit.cli.job import takes_features
    from regimekit.core.exceptions import unknown
    from regimekit.core.registry import REGISTRY, make
    from regimekit.panel import with_seasons
    from regimekit.preprocessing.time_index import seasons_of

    if name not in REGISTRY:
        raise unknown("--models", name, REGISTRY)
    takes = make(name).settings()
    kept = {key: value for key, value in prepared.job.settings.items() if key in takes}
    job = replace(prepared.job, model=name, settings=kept)
    if not takes_features(name):
        job = replace(job, wishes=job.wishes._replace(columns=()), lags=())
    settings = job.model_settings()
    if "period" in takes and prepared.season:
        settings.setdefault("period", prepared.season)
    return with_seasons(name, settings, seasons_of(prepared.frequency))


def _table(prepared: Prepared, block: Block) -> Any:
    from regimekit.panel import with_names

    return with_names(block.X, prepared.layout)


def _draw(draw: Any, destination: Any, voice: Voice) -> None:
    """Write the figure, or say what it needs."""
    from regimekit import plotting as plot

    try:
        plot.save(draw(), destination.path("comparison.png"))
    except plot.NoPictures as error:
        voice.warn(f"comparison.png is not written. {error}")


def _tell_rivals(rows: list[dict[str, Any]], target: str, voice: Voice) -> None:
    from regimekit.cli.console import number

    shown = [
        [
            row["model"],
            *(number(row[n]) if n in row else "" for n in ("rmse", "mae", "log_score")),
            f"{row['coverage']:.1%}" if "coverage" in row else "",
            str(row["regimes"]),
            f"{row['ms_per_observation']:.2g}",
            row["remark"],
        ]
        for row in rows
    ]
    voice.say(f"errors of the next value, in units of {target}")
    voice.table(["", "RMSE", "MAE", "log score", "held", "regimes", "ms", ""], shown)
