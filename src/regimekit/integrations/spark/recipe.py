"""What is run for each key and which columns come out: shared by tables and streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StructField,
    StructType,
)

from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.integrations.making import default_model, fresh

RESULTS: dict[str, DataType] = {
    "y": DoubleType(),
    "mean": DoubleType(),
    "sd": DoubleType(),
    "lower": DoubleType(),
    "upper": DoubleType(),
    "log_score": DoubleType(),
    "weight": DoubleType(),
    "outlier": BooleanType(),
    "regime": LongType(),
    "regime_probability": DoubleType(),
    "change_probability": DoubleType(),
    "n_regimes": LongType(),
}


class Recipe(NamedTuple):
    """Names of the columns, and the model that every key begins with."""

    key: tuple[str, ...]
    time: str
    target: str
    covariates: tuple[str, ...]
    model: str
    settings: Mapping[str, Any]
    level: float

    def start(self) -> Model:
        return fresh(self.model, self.settings, covariates=bool(self.covariates))

    def learn(self, model: Model, rows: pd.DataFrame, **more: Any) -> pd.DataFrame:
        """Run `model` on, over rows in order; keys, time, results and `more` columns.

        The table is made at once: to add its columns one by one takes longer than to learn a row.
        """
        X = rows[list(self.covariates)].to_numpy(float) if self.covariates else None
        y = rows[self.target].to_numpy(float)
        run = model.run(y, X, level=self.level)
        columns = {name: rows[name].array for name in (*self.key, self.time)} | {"y": y}
        columns |= {name: getattr(run, name) for name in RESULTS if name != "y"}
        return pd.DataFrame(columns | more)

    def schema(self, df: DataFrame, **more: DataType) -> StructType:
        """Keys and time as `df` has them, the results, and `more`."""
        fields = [df.schema[name] for name in (*self.key, self.time)]
        return StructType(
            fields + [StructField(name, kind) for name, kind in (RESULTS | more).items()]
        )

    def needed(self, df: DataFrame) -> DataFrame:
        """The columns that are used, of the rows that have a time."""
        columns = [*self.key, self.time, self.target, *self.covariates]
        return df.select(*columns).where(df[self.time].isNotNull())


def make_recipe(
    df: DataFrame,
    key: str | Sequence[str],
    time: str,
    target: str,
    covariates: Sequence[str],
    model: str | None,
    settings: Mapping[str, Any] | None,
    level: float,
) -> Recipe:
    """The recipe, refused on the driver if a column is missing or the model cannot be made."""
    keys = (key,) if isinstance(key, str) else tuple(key)
    for argument, names in {
        "key": keys,
        "time": (time,),
        "target": (target,),
        "covariates": covariates,
    }.items():
        if absent := [name for name in names if name not in df.columns]:
            raise RegimekitError(
                f"{argument}={absent[0]!r} is no column of the frame; it has "
                f"{', '.join(df.columns)}."
            )
    if taken := [name for name in (*keys, time) if name in RESULTS]:
        raise RegimekitError(f"The column {taken[0]!r} has the name of a result; rename it.")
    if not 0 < level < 1:
        raise RegimekitError(f"level must lie strictly between 0 and 1, got {level!r}.")
    recipe = Recipe(
        keys, time, target, tuple(covariates), model or default_model(), dict(settings or {}), level
    )
    recipe.start()
    return recipe


def in_order(rows: pd.DataFrame, time: str) -> pd.DataFrame:
    """Sorted by time, the first of several rows with one time kept."""
    return rows.sort_values(time, kind="stable").drop_duplicates(time).reset_index(drop=True)


def unlearnt(rows: pd.DataFrame, recipe: Recipe) -> pd.DataFrame:
    """Rows that are reported but not learnt: keys, time and y, the results empty."""
    table = rows[[*recipe.key, recipe.time]].reset_index(drop=True)
    table["y"] = rows[recipe.target].to_numpy(float)
    for name, kind in RESULTS.items():
        if name != "y":
            empty = np.nan if isinstance(kind, DoubleType) else None
            table[name] = pd.Series([empty] * len(table), dtype=_NULLABLE.get(kind.typeName()))
    return table


_NULLABLE = {"double": "float64", "boolean": "boolean", "long": "Int64"}
