"""Options that several commands share, and what they mean for a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import regimekit

if TYPE_CHECKING:
    from regimekit.cli.pipeline import PipelineOptions


def _complete_model(incomplete: str) -> list[str]:
    """Return model names for shell completion."""
    return [name for name in regimekit.models() if name.startswith(incomplete)]


File = Annotated[
    str,
    typer.Argument(
        help="CSV (also gzipped), xlsx, Parquet, JSON lines, a duckdb or SQLite database, or - "
        "for standard input; one row per time. Not needed with --sql."
    ),
]
Target = Annotated[
    str | None, typer.Option(help="Column to forecast; detected if only one contains numbers.")
]
Time = Annotated[
    str | None, typer.Option(help="Column with the times, or none; detected if there is one.")
]
TimeFormat = Annotated[
    str | None,
    typer.Option(help="Format of the times, such as %d.%m.%Y %H:%M; detected if it is usual."),
]
Timezone = Annotated[
    str | None,
    typer.Option(help="Time zone of the times, such as Europe/Berlin (default: their own)."),
]
Missing = Annotated[
    str, typer.Option(help="Cells that mean not observed, comma-separated, such as -9999.")
]
Sheet = Annotated[str | None, typer.Option(help="Sheet of an xlsx workbook.")]
Wide = Annotated[bool, typer.Option("--wide", help="Each numeric column is a series.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for the results.")]
Columns = Annotated[str, typer.Option(help="Covariates: column names, comma-separated.")]
Lags = Annotated[str, typer.Option(help="Lags of the target, comma-separated.")]
Season = Annotated[
    str,
    typer.Option(
        help="Season lengths in steps, comma-separated: candidates for auto, features for other "
        "models."
    ),
]
Table = Annotated[str | None, typer.Option(help="Table of a database.")]
Sql = Annotated[
    str | None,
    typer.Option("--sql", help="One SELECT statement, on the database FILE or on files it names."),
]
Sort = Annotated[bool, typer.Option("--sort", help="Sort the rows by time first.")]
Model = Annotated[
    str, typer.Option(help="Name of the model; see `models`.", autocompletion=_complete_model)
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the model, as name=value; repeat for more."),
]
Level = Annotated[float, typer.Option(help="Probability of the intervals.")]
BurnIn = Annotated[int, typer.Option(help="First rows that are not scored (at most half of all).")]
Horizon = Annotated[int, typer.Option(help="Steps to forecast after the last row.")]
Future = Annotated[
    str | None, typer.Option(help="Table with the covariates of these steps, one row each.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Snapshot = Annotated[Path, typer.Argument(help="A model.regimekit, or the folder of a run.")]


def table_options(
    file: str,
    table: str | None,
    sql: str | None,
    target: str | None,
    time: str | None,
    columns: str,
    lags: str,
    season: str,
    *,
    by: str | None = None,
    time_format: str | None = None,
    timezone: str | None = None,
    missing: str = "",
    sheet: str | None = None,
    **others: Any,
) -> PipelineOptions:
    """Parse the options that describe a table; `others` are fields of `PipelineOptions`."""
    from regimekit.cli import pipeline
    from regimekit.io import ColumnChoice, TableRequest
    from regimekit.io.cell_parsing import parse_missing
    from regimekit.preprocessing.time_index import find_zone

    if timezone is not None:
        find_zone(timezone)
    choice = ColumnChoice(
        target,
        time,
        pipeline.parse_names(columns),
        by,
        time_format,
        timezone,
        parse_missing(missing),
    )
    return pipeline.PipelineOptions(
        TableRequest(file, sheet or table, sql),
        choice,
        lags=pipeline.parse_steps("--lags", lags),
        seasons=pipeline.parse_numbers("--season", season),
        **others,
    )
