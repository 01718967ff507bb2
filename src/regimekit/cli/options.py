"""Arguments that several commands share, with the words that explain them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _model_names(incomplete: str) -> list[str]:
    """Names of models for the shell's completion."""
    import regimekit as rk

    return [name for name in rk.models() if name.startswith(incomplete)]


File = Annotated[
    str,
    typer.Argument(
        help="CSV (also gzipped), Parquet, JSON lines, a duckdb or SQLite database, a SQL query, "
        "or - for standard input; one row per time."
    ),
]
Target = Annotated[
    str | None, typer.Option(help="Column to forecast; found if only one holds numbers.")
]
Time = Annotated[str | None, typer.Option(help="Column with the times; found if there is one.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for the results.")]
Columns = Annotated[str, typer.Option(help="Covariates: column names, comma-separated.")]
Lags = Annotated[str, typer.Option(help="Lags of the target, comma-separated.")]
Season = Annotated[
    str,
    typer.Option(
        help="Season lengths in steps, comma-separated: auto is told to expect them, other models "
        "take them as features."
    ),
]
Table = Annotated[str | None, typer.Option(help="Table of a database.")]
Query = Annotated[str | None, typer.Option(help="SQL over a database.")]
Sort = Annotated[bool, typer.Option("--sort", help="Sort the rows by time first.")]
Model = Annotated[
    str, typer.Option(help="Model by name; see `models`.", autocompletion=_model_names)
]
Settings = Annotated[
    Path | None, typer.Option("--settings", help="What `tune` wrote; other options win.")
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the model, as name=value; repeat for more."),
]
Level = Annotated[float, typer.Option(help="Probability that the limits should hold.")]
BurnIn = Annotated[
    int, typer.Option(help="First rows that are learnt but not scored (at most half of all).")
]
Horizon = Annotated[int, typer.Option(help="Steps to forecast after the last row.")]
Future = Annotated[
    str | None, typer.Option(help="Table with the covariates of those steps, one row each.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and no words.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Snapshot = Annotated[
    Path, typer.Argument(help="A model.regimekit, or the folder of a run that holds one.")
]
