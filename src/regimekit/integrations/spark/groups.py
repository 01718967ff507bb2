"""Tables: every key is one group, its rows sorted and run through one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame

from regimekit.integrations.spark.recipe import in_order, make_recipe


def run_groups(
    df: DataFrame,
    key: str | Sequence[str],
    time: str,
    target: str,
    *,
    covariates: Sequence[str] = (),
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    level: float = 0.9,
) -> DataFrame:
    """Run one model per key over a table; one row out for every key and time.

    Rows are sorted by time within a key; of rows with the same time one is kept; rows without a
    time are left out. A group must fit into a worker's memory.

    Args:
        df: the table.
        key: the column (or columns) that names a series.
        time: the column that orders it.
        target: the column that is forecast; null means not observed.
        covariates: numeric columns that are known before the target.
        model: name of a regimekit model; the default one if not given.
        settings: the model's settings.
        level: probability that the interval `lower` .. `upper` should hold.
    """
    recipe = make_recipe(df, key, time, target, covariates, model, settings, level)

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        return recipe.learn(recipe.start(), in_order(rows, recipe.time))

    return recipe.needed(df).groupBy(*recipe.key).applyInPandas(run, recipe.schema(df))
