"""An observation variance that changes with time and is known: R_t = v_t R, v_t a column of x.

    y_t / sqrt(v_t)  =  (F_t / sqrt(v_t)) theta + e_t,      e_t ~ N(0, R)

Divided by sqrt(v_t), observation and features follow the model with constant R, so the filter does
not change. Forecasts are multiplied by sqrt(v_t); the v_t of the forecast row has to be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.core.recorder import Block
from regimekit.distributions.forecast import Forecast, Forecasts
from regimekit.ihmm.emissions.base import EmissionSettings
from regimekit.ihmm.model import WITH_COLUMNS, RegimeModel
from regimekit.ihmm.settings import RegimeSettings
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row, Table, aligned, read_row
from regimekit.results import Step

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Divided(Features):
    """A feature map of the other columns of x, divided by the square root of one column.

    Args:
        terms: the terms of the map.
        column: name of the column, or its position if columns have no names.
    """

    column: str | int = 0

    @property
    def inner(self) -> Features:
        """The map before the division."""
        return Features(self.terms)

    @property
    def needs_x(self) -> bool:
        """Whether covariates are used: the column always is."""
        return True

    @property
    def is_constant(self) -> bool:
        """Whether the features are the same for every observation."""
        return False

    def check(self, x: Any, like: Row | None = None) -> Row:
        if x is None:
            raise RegimekitError(f"x is missing; noise_column={self.column!r} needs it.")
        row = read_row(x)
        row = row if like is None else aligned(row, like)
        variance = self.variance(row)
        if not (np.isfinite(variance) and variance > 0.0):
            raise RegimekitError(f"Column {self.column!r} of x must be positive, got {variance}.")
        self.inner.check(self.others(row))
        return row

    def check_all(self, table: Table | None, n: int, like: Row | None) -> None:
        return None  # row by row

    def row(self, x: Row | None, t: int, past: Array) -> Array:
        assert x is not None
        return self.inner.row(self.others(x), t, past) / np.sqrt(self.variance(x))

    def block(self, rows: Sequence[Row | None], t: int, past: Array, y: Array) -> Array:
        inner = self.inner.block([self.others(x) for x in rows if x is not None], t, past, y)
        return inner / self.scales(rows)[:, None]

    def names(self, x: Row | None, dim: int) -> list[str]:
        return self.inner.names(None if x is None else self.others(x), dim)

    def scales(self, rows: Sequence[Row | None]) -> Array:
        """Return the square roots of the column, (T,)."""
        return np.sqrt([self.variance(x) for x in rows if x is not None])

    def variance(self, x: Row) -> float:
        """Return the value of the column."""
        return float(x.values[self._position(x)])

    def others(self, x: Row) -> Row | None:
        """Return the covariates without the column; None if the features use none."""
        if not self.inner.needs_x:
            return None
        at = self._position(x)
        names = None if x.names is None else x.names[:at] + x.names[at + 1 :]
        return Row(np.delete(x.values, at), names)

    def _position(self, x: Row) -> int:
        if x.values.ndim != 1:
            raise RegimekitError("noise_column needs x to be a vector, not a design matrix.")
        if isinstance(self.column, str):
            if x.names is None or self.column not in x.names:
                raise RegimekitError(f"x has no column {self.column!r}; it has {x.names}.")
            return x.names.index(self.column)
        if not 0 <= self.column < x.values.size:
            raise RegimekitError(f"x has no column {self.column}; it has {x.values.size} columns.")
        return int(self.column)


class VaryingNoise(RegimeModel):
    """A regime model whose observation variance is a known multiple of R at each time."""

    def __init__(self, name: str, settings: RegimeSettings, emission: EmissionSettings) -> None:
        super().__init__(name, settings, emission)
        column = settings.noise_column
        if not isinstance(column, str | int) or isinstance(column, bool):
            raise RegimekitError(
                f"noise_column must be the name or the position of a column, got {column!r}."
            )
        self._column: str | int = column
        if self.features.depth or self.features.is_matrix:
            raise RegimekitError(
                f"noise_column cannot be used with lags or a design matrix ({self.features!r})."
            )
        self.features = Divided(self.features.terms, self._column)

    def _check(self, x: Any) -> Row:
        chosen = self.features
        assert isinstance(chosen, Divided)
        if self._open and x is not None:
            chosen = Divided(_terms_for(read_row(x)).terms, self._column)
        return chosen.check(x, like=self._like)

    def _check_rows(self, table: Table | None, n: int) -> list[Any]:
        return Model._check_rows(self, table, n)

    def _settle_features(self, x: Row | None) -> None:
        if self._open and x is not None:
            self.features = Divided(_terms_for(x).terms, self._column)
        self._open = False
        self.chosen = replace(self.chosen, features=self.features.to_json())

    def _predict(self, x: Row | None) -> Forecast:
        assert x is not None and isinstance(self.features, Divided)
        if self._open:  # as the first observation would settle it
            settled = replace(self.chosen, features=_terms_for(x))
            return type(self)(self.name, settled, self.spec)._predict(x)
        return super()._predict(x).rescaled(0.0, np.sqrt(self.features.variance(x)))

    def _update(self, y: Array, x: Row | None) -> Step:
        return self._learn(y[None], [x]).scored(y[None]).step(0)

    def _learn(self, y: Array, rows: list[Row | None]) -> Block:
        if self.engine is None:
            self._start(y.shape[1], rows[0])
        assert isinstance(self.features, Divided)
        scale = self.features.scales(rows)
        block = super()._learn(y / scale[:, None], rows)
        inside = block.forecasts
        assert isinstance(inside, Forecasts)
        factor = np.repeat(scale, np.diff(inside.offset))[:, None]
        forecasts = inside.rescaled(np.zeros(1), np.ones(inside.location.shape[1]))
        forecasts.location = inside.location * factor
        forecasts.spread = inside.spread * (factor * factor)[:, :, None]
        return replace(block, forecasts=forecasts, log_score=forecasts.log_density(y))

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        assert isinstance(self.features, Divided)
        if self._open:
            settled = replace(self.chosen, features=_terms_for(rows[0]))
            return type(self)(self.name, settled, self.spec)._forecast(rows)
        scales = self.features.scales(rows)
        pairs = zip(super()._forecast(rows), scales, strict=True)
        return [forecast.rescaled(0.0, scale) for forecast, scale in pairs]


def _terms_for(x: Row) -> Features:
    """Return the default features: an intercept, and the other columns of x if there are any."""
    return WITH_COLUMNS if x.values.size > 1 else feature_maps.intercept()
