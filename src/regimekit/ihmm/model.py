"""The online infinite HMM family as one model: an emission, an engine, settings.

Variants of the paper are settings, not subclasses: `ihmm` has batch 1 and no weight, `wolf_ihmm`
batch 1 and weighted updates under a plain likelihood for regimes, `br_ihmm` weights both and
gives one regime to each batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.core.covariates import (
    pack_first,
    pack_lags,
    read_dim,
    read_first,
    read_lags,
    read_shape,
)
from regimekit.core.exceptions import RegimekitError, SnapshotError, share, unknown, whole
from regimekit.core.limits import MAX_DIM
from regimekit.core.maker import json_value
from regimekit.core.model import Array, Model
from regimekit.core.recorder import Block
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm import lagged, snapshots
from regimekit.ihmm.deviations import read_rule
from regimekit.ihmm.emissions.base import Emission, EmissionSettings, PythonEmission, Shape
from regimekit.ihmm.label_matching import KNOWN_SHARE
from regimekit.ihmm.multistep import paths_ahead, rows_ahead
from regimekit.ihmm.regime_filter import RegimeFilter
from regimekit.ihmm.reporting import Particle, Reporter
from regimekit.ihmm.settings import RegimeSettings, check_scales
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row, Table
from regimekit.preprocessing.lag_buffer import CLEAN, SUSPECT_BELOW, LagBuffer
from regimekit.results import Regime, Step, Transitions
from regimekit.serialization.validation import Arrays, Values, affordable

UNITS = ("auto", "given")
WITH_COLUMNS = feature_maps.intercept() + feature_maps.columns()  # default features if x is given
CHUNK = 512  # observations per call of the kernels


class RegimeModel(Model):
    """An online infinite HMM: regimes are opened as needed, stored, and recognized on return."""

    state_version = 3

    def __init__(self, name: str, settings: RegimeSettings, emission: EmissionSettings) -> None:
        self.name = name
        self.spec = emission
        if settings.units not in UNITS:
            raise unknown("units", settings.units, UNITS)
        self.features: Features = feature_maps.read(settings.features)
        # Without features the first observation decides: an intercept, and the columns of x if any.
        self._open = settings.features is None
        emission.check()
        check_scales(emission)
        features = None if self._open else self.features.to_json()
        self.chosen = replace(settings.resolved(), features=features)
        self._islands = self.chosen.n_islands()
        self._outlier_weight = share("outlier_weight", settings.outlier_weight)
        whole("seed", settings.seed, least=0)
        self.dim = emission.dim_hint()
        if settings.dim is not None:
            self.dim = whole("dim", settings.dim, most=MAX_DIM)
        self.reporter = Reporter()
        self.engine: RegimeFilter | None = None
        self._like: Row | None = None  # the first covariates: later ones take their order
        self.past = LagBuffer(self.features.depth, self.dim or 1)
        self._constant: Array | None = None  # design, if the features are constant

    def blank(self) -> Self:
        """Return a new model with the same settings, which are not validated again.

        Objects that are never changed are shared. Call it only before the first observation.
        """
        twin = type(self).__new__(type(self))
        twin.__dict__ |= self.__dict__ | {"_lock": twin._lock, "_book": twin._book}
        twin.reporter = Reporter()
        twin._constant = None
        twin.past = LagBuffer(self.features.depth, self.dim or 1)
        return twin

    # ------------------------------------------------------------------ observations

    @property
    def n_observations(self) -> int:
        return 0 if self.engine is None else int(self.engine.clock.time)

    def _check(self, x: Any) -> Row | None:
        if self._open and x is not None:
            return WITH_COLUMNS.check(x)
        return self.features.check(x, like=self._like)

    def _check_rows(self, table: Table | None, n: int) -> list[Any]:
        opening = self._open and table is not None
        features, like = (WITH_COLUMNS, None) if opening else (self.features, self._like)
        rows = features.check_all(table, n, like)
        return super()._check_rows(table, n) if rows is None else rows

    def _settle_features(self, x: Row | None) -> None:
        if self._open and x is not None:
            self.features = WITH_COLUMNS
        self._open = False
        self.chosen = replace(self.chosen, features=self.features.to_json())

    def _predict(self, x: Row | None) -> Forecast:
        if self._open and x is not None:  # as the first observation would determine it
            twin = type(self)(self.name, replace(self.chosen, features=WITH_COLUMNS), self.spec)
            return twin._predict(x)
        if self.engine is None:
            dim = self.dim or 1
            past = LagBuffer(self.features.depth, dim)
            return lagged.expect(self._build(dim, x), self.features, past, x)
        if self.features.depth:
            self._check_width(self.engine, x)
            return lagged.expect(self.engine, self.features, self.past, x)
        design = self._design(self.engine, x)
        share, location, spread, dof = self.engine.predict_one(design, True)
        return Forecast(share, location, spread, dof, self.engine.rate())

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        block = self._learn(y[None], [x])
        return block.forecasts[0], block.step(0)

    def _update(self, y: Array, x: Row | None) -> Step:
        engine = self.engine
        if engine is None or self.features.depth:
            return self._learn(y[None], [x]).scored(y[None]).step(0)
        return self._step(engine, y, self._design(engine, x))

    def _step(self, engine: RegimeFilter, y: Array, design: Array, *units: float) -> Step:
        """Learn one observation without building the arrays of a run.

        Args:
            engine: the filter.
            y: (d,) the observation in the units of the filter.
            design: its features.
            units: target, centre and scale, see `RegimeFilter.step`.
        """
        time = int(engine.clock.time)
        score, anomaly, change = engine.step(y, design, *units)
        if y.size > 1:
            # The shares as in a run, so that both have the same bits.
            share, location, spread, dof = engine.forecast.arrays(True)
            forecast = Forecast(share, location, spread, dof, engine.rate())
            score, anomaly = float(forecast.log_density(y)), forecast.anomaly_score(y)
        seen = engine.emission.observation.n_seen > 0
        outlier = seen and engine.weight < self._outlier_weight
        events = self.reporter.step(time, change, outlier)
        return Step(
            regime=self.reporter.regime,
            regime_probability=engine.regime_probability,
            weight=engine.weight,
            outlier=outlier,
            change_probability=engine.change_probability,
            n_regimes=engine.n_regimes,
            ess=engine.ess,
            log_score=score,
            anomaly_score=anomaly,
            settled=engine.settled,
            events=events,
        )

    def _design(self, engine: RegimeFilter, x: Row | None) -> Array:
        """Return the design of one observation without lags; a constant one is stored."""
        if x is None and self._constant is not None:
            return self._constant
        self._check_width(engine, x)
        phi = self.features.row(x, engine.clock.time, self.past.values[CLEAN])
        design = np.ascontiguousarray(engine.designs(phi[None])[0], np.float64)
        if self.features.is_constant:
            self._constant = design
        return design

    def _blocks(self, y: Array, rows: list[Any], progress: bool) -> Iterator[Block]:
        for start in self._ticks(len(y), CHUNK, progress):
            stop = min(start + CHUNK, len(y))
            yield self._learn(y[start:stop], rows[start:stop])

    def _learn(self, y: Array, rows: list[Row | None]) -> Block:
        """Learn observations y (T, d) with their covariates and return their outputs."""
        if self.engine is None:
            self._start(y.shape[1], rows[0])
        engine = self.engine
        assert engine is not None
        for row in rows[:1]:
            self._check_width(engine, row)
        first = int(engine.clock.time)
        out = lagged.observe(engine, self.features, self.past, y, rows, self.doubt)
        outlier = ~np.isnan(y).all(axis=1) & (out.weight < self._outlier_weight)
        return self.reporter.block(first, y, out, outlier)

    # ------------------------------------------------------------------ forecasts

    @property
    def doubt(self) -> float:
        """Weight below which an observation is flagged as a possible outlier (D13)."""
        return SUSPECT_BELOW if self.features.depth and read_rule(self.chosen.rule).D13 else 0.0

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        engine = self.engine or self._build(self.dim or 1, rows[0])
        for x in rows:
            self._check_width(engine, x)
        if not self.features.depth:
            return rows_ahead(engine, self.features, rows)
        if len(rows) == 1:
            return [lagged.expect(engine, self.features, self.past, rows[0])]
        return paths_ahead(engine, self.features, self.past, rows)

    # ------------------------------------------------------------------ regimes and particles

    def _regimes(self) -> list[Regime]:
        if self.engine is None:
            return []
        engine, pool = self.engine, self.engine.pool
        held, label = engine.row_mass(), np.asarray(pool.label)
        known = []
        for identity, name in sorted(self.reporter.names.items(), key=lambda pair: pair[1]):
            rows = np.flatnonzero((label == identity) & (held > 0))
            if held[rows].sum() < KNOWN_SHARE - 1e-9:
                continue
            row = int(rows[np.argmax(held[rows])])  # the version with most of the weight
            mean, sd = engine.emission.coefficients(row)
            visits, first, last = (
                int(c[row]) for c in (pool.visits, pool.first_seen, pool.last_seen)
            )
            total = min(1.0, float(held[rows].sum()))
            known.append(Regime(name, visits, first, last, mean, sd, total))
        return known

    def particles(self) -> list[Particle]:
        """Return the particles of the filter with the regimes of each.

        Returns:
            One `Particle` per particle; empty before the first observation.

        Example:
            >>> import regimekit as rk
            >>> model = rk.br_ihmm(noise=0.25, particles=20)
            >>> run = model.run([0.0, 0.1, -0.2, 0.1, 0.0, 0.2, 0.1])
            >>> round(sum(particle.weight for particle in model.particles()), 9)
            1.0
        """
        if self.engine is None:
            return []
        p, emission = self.engine.particles, self.engine.emission
        weight = np.exp(np.asarray(p.log_weight))
        weight /= weight.sum()
        found = []
        for i, omega in enumerate(weight.tolist()):
            k, at = int(p.n_regimes[i]), int(p.current[i])
            rows = np.asarray(p.slots)[i, :k]
            names = self._ids(i)
            found.append(
                Particle(
                    weight=omega,
                    current=names[at] if at >= 0 else -1,
                    regimes=names,
                    mean=np.array([emission.coefficients(int(row))[0] for row in rows]),
                    alpha=float(p.alpha[i]),
                    gamma=float(p.gamma[i]),
                    beta=np.exp(np.asarray(p.log_beta)[i, : k + 1]),
                    counts=np.asarray(p.counts)[i, :k, :k].copy(),
                )
            )
        return found

    def _ids(self, i: int) -> list[int]:
        """Return the id of each regime of particle i; -1 where it has not been reported."""
        assert self.engine is not None
        p, label = self.engine.particles, np.asarray(self.engine.pool.label)
        own = label[np.asarray(p.slots)[i, : p.n_regimes[i]]].tolist()
        return [self.reporter.names.get(a, -1) for a in own]

    def transitions(self) -> Transitions:
        ids = [regime.id for regime in self._regimes()]
        matrix = np.zeros((len(ids), len(ids)))
        weight = np.zeros(len(ids))
        if self.engine is None or not ids:
            return Transitions(ids, matrix)
        p = self.engine.particles
        for i in range(p.alpha.shape[0]):
            own = self._ids(i)
            at = [(own.index(a), j) for j, a in enumerate(ids) if a in own]
            rows = self.engine.transitions_of(i)
            omega = math.exp(p.log_weight[i])
            for l, j in at:
                weight[j] += omega
                for k, into in at:
                    matrix[j, into] += omega * rows[l, k]
        return Transitions(ids, matrix / weight[:, None])

    # ------------------------------------------------------------------ settings and state

    def settings(self) -> dict[str, Any]:
        chosen = asdict(self.spec) | self.chosen.to_json()
        return {key: json_value(value) for key, value in chosen.items()}

    def _recipe(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        return type(self), (self.name, self.chosen, self.spec)

    def _build(self, dim: int, x: Row | None) -> RegimeFilter:
        return self._engine(Shape(dim, self.features.width(x, dim), not self.features.is_matrix))

    def _engine(self, shape: Shape, begin: bool = True) -> RegimeFilter:
        """Return a filter for observations and features of this shape, if it is affordable."""
        whole("dim", shape.dim, most=MAX_DIM)
        wide = float(shape.coefficients) ** 2
        affordable("features and particles", wide * 64 + self.chosen.particles * 100.0)
        plan, islands = self.chosen.filter_settings(), self._islands
        plan.width = shape.width
        longest = plan.schedule.longest * (1 if islands == 1 else 2)

        def emission(longest: int, scoring: Any) -> Any:
            made = self.spec.build(shape, scoring, longest)
            return made if isinstance(made, Emission) else PythonEmission(made)

        own = emission(longest, plan.scoring)
        work = sum(float(np.prod(array.shape[1:])) for array in own.work_state().values())
        candidates = islands * (2.0 * (1 if plan.shared_prior else self.chosen.particles) + 32)
        affordable("batch and islands", candidates * (work + 2.0 * shape.dim**2))
        rng = np.random.default_rng(self.chosen.seed)
        return RegimeFilter(
            own,
            plan,
            self.chosen.particles,
            islands,
            rng,
            lambda: emission(1, self.chosen.scoring()),
            begin,
        )

    def _start(self, dim: int, x: Row | None) -> None:
        """Set d and the features from the first observation."""
        before = self.features, self._open, self.chosen
        self._settle_features(x)
        try:
            self.engine = self._build(dim, x)
        except RegimekitError:  # no partial change of the state
            self.features, self._open, self.chosen = before
            raise
        self.dim, self._like = dim, x
        self._constant = None
        self.past = LagBuffer(self.features.depth, dim)

    def _check_width(self, engine: RegimeFilter, x: Row | None) -> None:
        shape = engine.emission.shape
        width = self.features.width(x, shape.dim)
        if width != shape.width:
            raise RegimekitError(f"x gives {width} features; the model has {shape.width}.")

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.engine is None:
            return {"started": False}, {}
        values, arrays = snapshots.pack(self.engine)
        first_values, first_arrays = pack_first(self._like)
        values |= {"started": True, "shape": list(self.engine.emission.shape)} | first_values
        values["report"] = self.reporter.pack()
        past_values, past_arrays = pack_lags(self.past)
        return values | past_values, arrays | first_arrays | past_arrays

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        kept, stored = Values.of(values), Arrays.of(arrays)
        if not kept.flag("started"):
            return
        self._like = read_first(kept, stored, self.features)
        dim = read_dim(kept)
        if self.dim not in (None, dim):
            raise SnapshotError(f"The snapshot's shape has {dim} coordinates of y, not {self.dim}.")
        width = self.features.width(self._like, dim)
        shape = read_shape(kept, Shape(dim, width, not self.features.is_matrix))
        self._check_claims(shape, stored)
        self.dim = dim
        self.engine = self._engine(shape, begin=False)
        snapshots.unpack(self.engine, kept, stored)
        self.reporter.unpack(kept.part("report"))
        self.past = read_lags(kept, stored, self.features, dim)

    def _check_claims(self, shape: Shape, arrays: Arrays) -> None:
        """Compare the shapes of the stored arrays with the settings before memory is allocated."""
        y, design = arrays.form("recent_y")[1], arrays.form("recent_design")[1]
        held = arrays.form("particles.alpha")[1]
        widths = (shape.width, shape.coefficients)
        if len(y) != 2 or y[1] != shape.dim or len(design) != 3 or design[2] not in widths:
            raise SnapshotError(f"Invalid snapshot: observations have shape {tuple(shape)}.")
        if held != (self.chosen.particles,):
            raise SnapshotError(
                f"Invalid snapshot: particles must have shape ({self.chosen.particles},) as in the "
                f"settings, got {held}."
            )
