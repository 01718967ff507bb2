"""Options that several commands share, and what they mean for a table."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

import regimekit

if TYPE_CHECKING:
    from regimekit.cli.pipeline import PipelineOptions
    from regimekit.tuning import TuneResult


def _complete_model(incomplete: str) -> list[str]:
    """Return model names for shell completion."""
    return [name for name in regimekit.models() if name.startswith(incomplete)]


Out = Annotated[Path, typer.Option("--out", help="Folder for the results.")]
Model = Annotated[
    str, typer.Option(help="Name of the model; see `models`.", autocompletion=_complete_model)
]
Level = Annotated[float, typer.Option(help="Probability of the intervals.")]
BurnIn = Annotated[int, typer.Option(help="First rows that are not scored (at most half of all).")]
Horizon = Annotated[int, typer.Option(help="Steps to forecast after the last row.")]
Future = Annotated[
    str | None, typer.Option(help="Table with the covariates of these steps, one row each.")
]
Sql = Annotated[
    str | None,
    typer.Option("--sql", help="One SELECT statement, on the database FILE or on files it names."),
]
Snapshot = Annotated[Path, typer.Argument(help="A model.regimekit, or the folder of a run.")]


class TableOptions(NamedTuple):
    """Options of every command that reads a table."""

    file: Annotated[
        str,
        typer.Argument(
            help="CSV (also gzipped), xlsx, Parquet, JSON lines, a duckdb or SQLite database, or - "
            "for standard input; one row per time. Not needed with --sql."
        ),
    ] = ""
    target: Annotated[
        str | None, typer.Option(help="Column to forecast; detected if only one contains numbers.")
    ] = None
    time: Annotated[
        str | None, typer.Option(help="Column with the times, or none; detected if there is one.")
    ] = None
    columns: Annotated[str, typer.Option(help="Covariates: column names, comma-separated.")] = ""
    lags: Annotated[str, typer.Option(help="Lags of the target, comma-separated.")] = ""
    season: Annotated[
        str,
        typer.Option(
            help="Season lengths in steps, comma-separated: candidates for auto, features for "
            "other models."
        ),
    ] = ""
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the model, as name=value; repeat for more."),
    ] = None
    sort: Annotated[bool, typer.Option("--sort", help="Sort the rows by time first.")] = False
    time_format: Annotated[
        str | None,
        typer.Option(help="Format of the times, such as %d.%m.%Y %H:%M; detected if it is usual."),
    ] = None
    timezone: Annotated[
        str | None,
        typer.Option(help="Time zone of the times, such as Europe/Berlin (default: their own)."),
    ] = None
    missing: Annotated[
        str, typer.Option(help="Cells that mean not observed, comma-separated, such as -9999.")
    ] = ""
    sheet: Annotated[str | None, typer.Option(help="Sheet of an xlsx workbook.")] = None
    table: Annotated[str | None, typer.Option(help="Table of a database.")] = None
    sql: Sql = None

    def parse(
        self, by: str | None = None, tuned: TuneResult | None = None, **others: Any
    ) -> PipelineOptions:
        """Return the options of a pipeline.

        Args:
            by: column with the name of the series.
            tuned: result of a search; options on the command line take precedence.
            **others: further fields of `PipelineOptions`.
        """
        from regimekit.cli import pipeline
        from regimekit.io import ColumnChoice, TableRequest
        from regimekit.io.cell_parsing import parse_missing
        from regimekit.preprocessing.time_index import find_zone

        if self.timezone is not None:
            find_zone(self.timezone)
        info, best = (tuned.info, tuned.best) if tuned else ({}, {})
        settings = best | pipeline.parse_settings(self.set_)
        choice = ColumnChoice(
            self.target or info.get("target"),
            self.time,
            pipeline.parse_names(self.columns or info.get("columns", "")),
            by,
            self.time_format,
            self.timezone,
            parse_missing(self.missing),
        )
        return pipeline.PipelineOptions(
            TableRequest(self.file, self.sheet or self.table, self.sql),
            choice,
            settings=settings,
            lags=pipeline.parse_steps("--lags", self.lags),
            seasons=pipeline.parse_numbers("--season", self.season),
            sort=self.sort,
            keep_features="features" in settings and not (self.columns or self.lags or self.season),
            **others,
        )


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with one option per field, instead of each parameter that is a group.

    A group is a parameter whose type is a NamedTuple with a default for every field, such as
    `TableOptions`. The command gets its parsed values as one argument.
    """
    types: dict[str, Any] = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in types.items() if hasattr(kind, "_field_defaults")}
    expanded: dict[str, tuple[Any, Any]] = {}  # type and default of every option
    for name, parameter in signature(command).parameters.items():
        kind = groups.get(name)
        if kind is None:
            expanded[name] = types[name], parameter.default
        else:
            own = get_type_hints(kind, include_extras=True)
            expanded |= {n: (own[n], kind._field_defaults[n]) for n in kind._fields}

    @wraps(command)
    def with_groups(**given: Any) -> None:
        made = {n: kind(**{f: given.pop(f) for f in kind._fields}) for n, kind in groups.items()}
        command(**given, **made)

    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in expanded.items()
    ]
    with_groups.__dict__["__signature__"] = signature(command).replace(parameters=parameters)
    return with_groups
