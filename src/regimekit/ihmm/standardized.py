"""A regime model that learns the units of its stream: nothing need be known about y.

Where no noise is told (`units="auto"`), y is measured in units of its own noise (`regimekit.preprocessing.scaling`),
around its own centre. The model inside works in these units, with noise 1 and levels of variance
100, and all that it says is told in the user's units. While the units are still being learnt, over
the first 80 observations, and when a stream later turns out to have changed them, the model is
begun afresh on the observations at hand; the regime that was reported last keeps its id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.core.explain import coefficient_names
from regimekit.core.recorder import Block
from regimekit.distributions.forecast import Forecast, Forecasts, log_densities
from regimekit.ihmm.emissions.base import EmissionSettings
from regimekit.ihmm.model import CHUNK, RegimeModel
from regimekit.ihmm.reporting import Reporter
from regimekit.ihmm.settings import RegimeSettings
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.units import Units
from regimekit.results import NO_REGIME, OPENED, OUTLIER, Event, Regime, Step
from regimekit.serialization.validation import Arrays, Part, Values

Array = NDArray[np.float64]
WINDOW = 200  # observations that are kept to begin afresh on


class InUnits(RegimeModel):
    """A regime model in units learnt from the stream."""

    def __init__(self, name: str, settings: RegimeSettings, emission: EmissionSettings) -> None:
        super().__init__(name, settings, emission)
        self.units = Units(self.dim or 1, WINDOW)
        self.rows: list[Row | None] = []  # covariates beside units.buffer

    def blank(self) -> Self:
        twin = super().blank()
        twin.units, twin.rows = Units(self.dim or 1, WINDOW), []
        return twin

    # ------------------------------------------------------------------ observations

    def _predict(self, x: Row | None) -> Forecast:
        return self._outward(super()._predict(x))

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        return [self._outward(forecast) for forecast in super()._forecast(rows)]

    def _outward(self, inside: Forecast) -> Forecast:
        if self.engine is None:  # nothing is known of the units
            return inside
        return self.units.forecast(inside)

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        block = next(self._stretches(y[None], [x]))
        return block.forecasts[0], block.step(0)

    def _update(self, y: Array, x: Row | None) -> Step:
        return next(self._stretches(y[None], [x])).step(0)

    def _blocks(self, y: Array, rows: list[Any], progress: bool) -> Iterator[Block]:
        for start in self._ticks(len(y), CHUNK, progress):
            stop = min(start + CHUNK, len(y))
            yield from self._stretches(y[start:stop], rows[start:stop])

    def _stretches(self, y: Array, rows: list[Row | None]) -> Iterator[Block]:
        """What is told of observations, from one change of units to the next."""
        at = 0
        if self.engine is None:
            self._start(y.shape[1], rows[0])
            self.units = Units(y.shape[1], WINDOW)
        assert self.engine is not None
        self._check_width(self.engine, rows[0])  # before the units have seen anything
        while at < len(y):
            centre, told = self.units.centre, self.units.told_scale
            measured = self.units.to_units(y[at:])  # before the units learn from them
            stop, changed = self._learn_units(y, rows, at)
            inside = self._learn(measured[: stop - at], rows[at:stop])
            block = _outward(inside, y[at:stop], centre, told)
            if changed:
                _forgive(block)
                self._begin_afresh(block)
            yield block
            at = stop

    def _learn_units(self, y: Array, rows: list[Row | None], at: int) -> tuple[int, bool]:
        """Show observations to the units until they change; one past the last, whether they did."""
        for t in range(at, len(y)):
            changed = self.units.learn(y[t])
            self.rows = [*self.rows, rows[t]][-len(self.units.buffer) :]
            if changed:
                return t + 1, True
        return len(y), False

    def _begin_afresh(self, block: Block) -> None:
        """The model anew, in the present units, on what the buffer holds."""
        assert self.engine is not None
        now, before = int(self.engine.clock.time), self.reporter
        buffer = np.array(self.units.buffer)
        self._start(buffer.shape[1], self.rows[0])
        self.engine.clock.time = now - len(buffer)
        self.reporter = Reporter()
        self._learn(self.units.to_units(buffer), self.rows)
        self.reporter.follow(before)
        if before.regime == NO_REGIME != self.reporter.regime:
            first = now - len(buffer)
            block.events.append(Event(now - 1, OPENED, self.reporter.regime, NO_REGIME, first))
            block.regime[-1] = self.reporter.regime

    # ------------------------------------------------------------------ what it knows

    def regimes(self) -> list[Regime]:
        return [self._regime_outward(regime) for regime in super().regimes()]

    def _regime_outward(self, regime: Regime) -> Regime:
        """Coefficients in the user's units: levels are moved and scaled, lags stay as they are."""
        d = self.units.dim
        names = (coefficient_names(self) or [])[: regime.mean.size // d]
        lags = np.array([name.startswith("lag") for name in names], bool)
        level = np.array([name == "intercept" for name in names], bool)
        if len(names) * d != regime.mean.size or (lags.any() and d > 1):
            return regime
        factor = np.where(lags, 1.0, self.units.scale[:, None])
        mean = factor * regime.mean.reshape(d, -1)
        mean[:, level] += (self.units.centre * (1.0 - mean[:, lags].sum(axis=1)))[:, None]
        sd = factor * regime.sd.reshape(d, -1)
        return regime._replace(mean=mean.ravel(), sd=sd.ravel())

    # ------------------------------------------------------------------ keeping

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        values, arrays = super()._pack()
        if self.engine is None:
            return values, arrays
        own_values, own = self.units.pack()
        if self._like is not None:
            own["covariates"] = np.array([row.values for row in self.rows if row is not None])
        return values | {"units": own_values}, arrays | {f"units/{k}": a for k, a in own.items()}

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        kept, stored = Values.of(values), Arrays.of(arrays)
        super()._unpack(kept, stored)
        if self.engine is None:
            return
        self.units = Units(self.dim or 1, WINDOW)
        own = Part(stored, "units/")
        self.units.unpack(kept.part("units"), own)
        n = len(self.units.buffer)
        self.rows = [None] * n
        if self._like is not None:
            shape = (n, *self._like.values.shape)
            table = own.floats("covariates", shape)
            self.rows = [Row(line, self._like.names) for line in table]


def _forgive(block: Block) -> None:
    """The observation that changed the units is no outlier: it was judged in the wrong ones."""
    last = block.first + len(block.weight) - 1
    block.weight[-1], block.outlier[-1] = 1.0, False
    block.events[:] = [e for e in block.events if e.kind != OUTLIER or e.time != last]


def _outward(block: Block, y: Array, centre: Array, scale: Array) -> Block:
    """What was said in units, in the user's own."""
    inside = block.forecasts
    assert isinstance(inside, Forecasts)
    spread = inside.spread * scale[:, None] * scale
    location = centre + scale * inside.location
    parts = (inside.offset, inside.share, location, spread, inside.dof, inside.outlier)
    forecasts = Forecasts(*parts)
    return replace(block, forecasts=forecasts, log_score=log_densities(forecasts, y))
