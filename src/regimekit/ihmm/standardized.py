"""A regime model that estimates the units of its stream.

With `units="auto"`, y is standardized by its own noise around its own centre (`scaling`). The model
inside works in these units, with noise 1 and levels of variance 100; its outputs are converted to
the user's units. While the units are refined, over the first 80 observations, and if the stream
turns out to have changed them later, the model is rebuilt on the stored observations; the regime
that was reported last keeps its id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.core.explain import coefficient_names
from regimekit.core.recorder import Block
from regimekit.distributions.forecast import Forecast, Forecasts
from regimekit.ihmm.emissions.base import EmissionSettings
from regimekit.ihmm.model import CHUNK, RegimeModel
from regimekit.ihmm.reporting import Reporter
from regimekit.ihmm.settings import RegimeSettings
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.scaling import Standardizer
from regimekit.results import NO_REGIME, OPENED, OUTLIER, Event, Regime, Step
from regimekit.serialization import schema
from regimekit.serialization.validation import Arrays, Values

Array = NDArray[np.float64]
WINDOW = 200  # observations that are stored to rebuild the model on


class InUnits(RegimeModel):
    """A regime model in units that are estimated from the stream."""

    def __init__(self, name: str, settings: RegimeSettings, emission: EmissionSettings) -> None:
        super().__init__(name, settings, emission)
        self.units = Standardizer(self.dim or 1, WINDOW)
        self.rows: list[Row | None] = []  # covariates of the observations in units.buffer

    def blank(self) -> Self:
        twin = super().blank()
        twin.units, twin.rows = Standardizer(self.dim or 1, WINDOW), []
        return twin

    # ------------------------------------------------------------------ observations

    def _predict(self, x: Row | None) -> Forecast:
        engine = self.engine
        if engine is None or self.features.depth or self.dim != 1:
            return self._in_user_units(super()._predict(x))
        centre, reported = self.units.first_units()
        share, location, spread, dof = engine.predict_one(
            self._design(engine, x), True, centre, reported
        )
        return Forecast(share, location, spread, dof, engine.rate())

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        return [self._in_user_units(forecast) for forecast in super()._forecast(rows)]

    def _in_user_units(self, inside: Forecast) -> Forecast:
        if self.engine is None:  # nothing is known about the units
            return inside
        return self.units.forecast(inside)

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        block = next(self._stretches(y[None], [x]))
        return block.forecasts[0], block.step(0)

    def _update(self, y: Array, x: Row | None) -> Step:
        engine = self.engine
        if engine is None or self.features.depth or self.dim != 1:
            return next(self._stretches(y[None], [x])).scored(y[None]).step(0)
        design = self._design(engine, x)
        centre, reported = self.units.first_units()
        measured = self.units.to_units(y)
        if self._append(y, x):
            units = np.array([centre]), np.array([reported])
            block = self._learn_in_units(measured[None], y[None], [x], *units, True)
            return block.scored(y[None]).step(0)
        return self._step(engine, measured, design, float(y[0]), centre, reported)

    def _append(self, y: Array, x: Row | None) -> bool:
        """Store an observation with its covariates; return whether the units changed."""
        changed = bool(self.units.update(y))
        self.rows.append(x)
        if len(self.rows) > self.units.size:
            del self.rows[: len(self.rows) - self.units.size]
        return changed

    def _blocks(self, y: Array, rows: list[Any], progress: bool) -> Iterator[Block]:
        for start in self._ticks(len(y), CHUNK, progress):
            stop = min(start + CHUNK, len(y))
            yield from self._stretches(y[start:stop], rows[start:stop])

    def _stretches(self, y: Array, rows: list[Row | None]) -> Iterator[Block]:
        """Yield the outputs of observations, from one change of units to the next."""
        at = 0
        if self.engine is None:
            self._start(y.shape[1], rows[0])
            self.units = Standardizer(y.shape[1], WINDOW)
        assert self.engine is not None
        self._check_width(self.engine, rows[0])  # before the units are updated
        while at < len(y):
            centre, scale = np.array(self.units.centre), np.array(self.units.reported_scale)
            measured = self.units.to_units(y[at:])  # in the units before these observations
            stop, changed = at, False
            while stop < len(y) and not changed:
                changed = self._append(y[stop], rows[stop])
                stop += 1
            yield self._learn_in_units(
                measured[: stop - at], y[at:stop], rows[at:stop], centre, scale, changed
            )
            at = stop

    def _learn_in_units(
        self,
        measured: Array,
        y: Array,
        rows: list[Row | None],
        centre: Array,
        scale: Array,
        changed: bool,
    ) -> Block:
        """Learn observations in units; rebuild the model if the last one changed them.

        Args:
            measured: (T, d) observations in the units before them.
            y: (T, d) the same in the user's units.
            rows: covariates.
            centre, scale: (d,) of these units, for forecasts.
            changed: whether the last observation changed the units.
        """
        block = _in_user_units(self._learn(measured, rows), centre, scale, y)
        if changed:
            _clear_outlier(block)
            self._rebuild(block)
        return block

    def _rebuild(self, block: Block) -> None:
        """Rebuild the model in the present units on the stored observations."""
        assert self.engine is not None
        now, before = int(self.engine.clock.time), self.reporter
        buffer = np.array(self.units.buffer)
        self._start(buffer.shape[1], self.rows[0])
        self.engine.clock.time = now - len(buffer)
        self.reporter = Reporter()
        self._learn(self.units.to_units(buffer), self.rows)
        self.reporter.follow(before)
        if before.regime != NO_REGIME:
            self._forget_unnamed()
        if before.regime == NO_REGIME != self.reporter.regime:
            first = now - len(buffer)
            block.events.append(Event(now - 1, OPENED, self.reporter.regime, NO_REGIME, first))
            block.regime[-1] = self.reporter.regime

    def _forget_unnamed(self) -> None:
        """Count regimes without an id as not reported."""
        assert self.engine is not None
        pool = self.engine.pool
        unnamed = ~np.isin(np.asarray(pool.label), list(self.reporter.names))
        np.asarray(pool.reported)[unnamed] = 0
        self.engine.matcher.report_label()

    # ------------------------------------------------------------------ state

    def _regimes(self) -> list[Regime]:
        return [self._regime_in_user_units(regime) for regime in super()._regimes()]

    def _regime_in_user_units(self, regime: Regime) -> Regime:
        """Return the regime with levels shifted and scaled; coefficients of lags stay."""
        d = self.units.dim
        names = (coefficient_names(self) or [])[: regime.mean.size // d]
        lags = np.array([name.startswith("lag") for name in names], bool)
        level = np.array([name == "intercept" for name in names], bool)
        if len(names) * d != regime.mean.size or (lags.any() and d > 1):
            return regime
        centre, scale = np.asarray(self.units.centre), np.asarray(self.units.scale)
        factor = np.where(lags, 1.0, scale[:, None])
        mean = factor * regime.mean.reshape(d, -1)
        mean[:, level] += (centre * (1.0 - mean[:, lags].sum(axis=1)))[:, None]
        sd = factor * regime.sd.reshape(d, -1)
        return regime._replace(mean=mean.ravel(), sd=sd.ravel())

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        values, arrays = super()._pack()
        if self.engine is None:
            return values, arrays
        own_values, own = schema.pack_state(self.units, "units.")
        if self._like is not None:
            own["covariates"] = np.array([row.values for row in self.rows if row is not None])
        return values | own_values, arrays | own

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        kept, stored = Values.of(values), Arrays.of(arrays)
        super()._unpack(kept, stored)
        if self.engine is None:
            return
        self.units = Standardizer(self.dim or 1, WINDOW)
        schema.unpack_state(self.units, kept, stored, "units.")
        n = len(self.units.buffer)
        self.rows = [None] * n
        if self._like is not None:
            table = stored.floats("covariates", (n, *self._like.values.shape))
            self.rows = [Row(line, self._like.names) for line in table]


def _clear_outlier(block: Block) -> None:
    """Clear the outlier flag of the observation that changed the units it was judged in."""
    last = block.first + len(block.weight) - 1
    block.weight[-1], block.outlier[-1] = 1.0, False
    block.events[:] = [e for e in block.events if e.kind != OUTLIER or e.time != last]


def _in_user_units(block: Block, centre: Array, scale: Array, y: Array) -> Block:
    """Return a block whose forecasts and log scores are in the user's units."""
    inside = block.forecasts
    assert isinstance(inside, Forecasts)
    forecasts = inside.rescaled(centre, scale)
    # Not the score in units plus a constant: extreme values are cut there, and the reported scale
    # of a constant stream is wider.
    return replace(block, forecasts=forecasts, log_score=forecasts.log_density(y))
