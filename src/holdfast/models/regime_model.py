"""The online infinite HMM family as one model: an emission, an engine, settings.

Variants of the paper are settings, not subclasses: `ihmm` has batch 1 and no weight, `wolf_ihmm`
batch 1 and weighted updates under a plain likelihood for regimes, `br_ihmm` weights both and
gives one regime to each batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from holdfast import features as feature_maps
from holdfast.checks import Arrays, Values, affordable
from holdfast.emissions.base import EmissionSpec, Shape
from holdfast.errors import HoldfastError, SnapshotError, positive, share, unknown, whole
from holdfast.features import Features, Past
from holdfast.forecast import Forecast, Forecasts
from holdfast.frames import Row
from holdfast.models.ahead import paths_ahead, rows_ahead
from holdfast.models.base import Array, Model
from holdfast.models.covariates import (
    MOST_COORDINATES,
    new_past,
    pack_first,
    read_dim,
    read_first,
    read_past,
    read_shape,
)
from holdfast.models.limits import (
    LARGEST_SCALE,
    LEAST_SHARE,
    MOST_PARTICLES,
    MOST_SWEEPS,
    check_room,
    check_scales,
    usable,
    within_reach,
)
from holdfast.models.reporting import Reporter
from holdfast.models.tape import Block
from holdfast.regimes.engine import Engine
from holdfast.regimes.plan import MEMORY, Plan
from holdfast.regimes.prior import Concentration
from holdfast.regimes.resampling import SCHEMES
from holdfast.regimes.rule import Rule, read_rule, write_rule
from holdfast.regimes.schedule import Schedule, read_schedule
from holdfast.results import Regime, Step, Transitions
from holdfast.score import CONTAMINATION, IMQ, LARGEST_RATE, Law, weight_code

UNITS = ("auto", "given")
WITH_COLUMNS = feature_maps.intercept() + feature_maps.columns()  # where x is given and no features
STICKY = 10.0  # default kappa of the second edition (docs/models.md)
RELUCTANT = (1.0, 10.0)  # default prior of gamma there: a tenth of the paper's, learnt all the same
CHUNK = 512  # observations that go through the kernels at a time
_RATE_WORTH = 50.0  # observations that the guess of the outliers' rate is worth
# A particle's transitions are refreshed about once in so many observations: contamination, others.
_REFRESH, _REFRESH_WEIGHTED = 48, 8


@dataclass(frozen=True)
class RegimeSettings:
    """Settings shared by the whole family; `holdfast.br_ihmm` documents them."""

    features: Any = None
    units: str = "given"
    batch: Any = 6
    threshold: float | None = None
    weight: str | None = None
    weigh_regimes: bool = True
    outlier_rate: float = 0.05
    particles: int = 100
    islands: int | None = None
    ess_threshold: float = 0.5
    max_regimes: int = 30
    prune_pool: int = 5
    rule: Any = "holdfast"
    resampling: str | None = None
    structure_sweeps: int | None = None
    structure_share: float | None = None
    sticky: float | None = None
    alpha_prior: tuple[float, float] = (1.0, 1.0)
    gamma_prior: tuple[float, float] | None = None
    outlier_weight: float = 0.2
    dim: int | None = None
    seed: int = 0

    def kind(self) -> int:
        """The weight asked for; by default contamination, or IMQ where a threshold is given."""
        if self.weight is not None:
            return weight_code(self.weight)
        plain = self.threshold is None and read_rule(self.rule).D1
        return CONTAMINATION if plain else IMQ

    def law(self) -> Law:
        rule = read_rule(self.rule)
        switches = (bool(self.weigh_regimes), rule.D1, rule.D2, rule.D3, rule.D4)
        return Law(self.kind(), self._threshold(), *switches)

    def _threshold(self) -> float:
        """c, or infinity for a weight that never is below one."""
        given = 2.0 if self.threshold is None else positive("threshold", self.threshold)
        return given if math.isinf(given) else usable("threshold", given, 1e100)

    def plan(self) -> Plan:
        rule, schedule = read_rule(self.rule), read_schedule(self.batch)
        return Plan(
            law=self.law(),
            schedule=schedule,
            concentration=self.concentration(),
            ess_threshold=share("ess_threshold", self.ess_threshold),
            max_regimes=whole("max_regimes", self.max_regimes, least=2, most=1000),
            prune_pool=whole("prune_pool", self.prune_pool),
            resampling=self._scheme(rule),
            sweeps=self._sweeps(rule),
            stride=self._stride(rule, schedule),
            width=1,  # until the features are known
            outlier_prior=self._outlier_prior(),
            keep_diagonal=rule.D5,
            keep_start=rule.D6,
            mixture=rule.D7,
            one_noise=rule.D8,
            shared_prior=rule.D9,
            newborn=rule.D10 and rule.D9 and self._proper,
            merge=rule.D11 and self._proper,
            agree=rule.D12,
        )

    @property
    def _proper(self) -> bool:
        """Whether scores are densities, so that evidence means what Bayes means by it."""
        return self.kind() == CONTAMINATION

    def _scheme(self, rule: Rule) -> int:
        usual = "multinomial" if rule == read_rule("paper") else "systematic"
        scheme = self.resampling or usual
        if scheme not in SCHEMES:
            raise unknown("resampling", scheme, SCHEMES)
        return SCHEMES[scheme]

    def _sweeps(self, rule: Rule) -> int:
        if self.structure_sweeps is None:
            return 1 if rule.D5 else 0
        particles = whole("particles", self.particles, most=MOST_PARTICLES)
        most = min(10_000, MOST_SWEEPS // particles)
        return whole("structure_sweeps", self.structure_sweeps, most=most)

    def _stride(self, rule: Rule, schedule: Schedule) -> int:
        """Every stride-th particle is refreshed at a commit; all of them in the paper's text."""
        if self.structure_share is not None:
            part = share("structure_share", self.structure_share)
            if part < LEAST_SHARE:
                raise HoldfastError(f"structure_share must be at least {LEAST_SHARE}, got {part}.")
            return max(1, round(1 / part))
        every = _REFRESH if self._proper else _REFRESH_WEIGHTED
        return max(1, round(every / (schedule.fixed or 1))) if rule.D5 else 1

    def _outlier_prior(self) -> tuple[float, float]:
        rate = share("outlier_rate", self.outlier_rate)
        if not 0 < rate <= LARGEST_RATE:
            raise HoldfastError(
                f"outlier_rate must lie above 0 and up to {LARGEST_RATE}, got {rate}."
            )
        return _RATE_WORTH * rate, _RATE_WORTH * (1 - rate)

    def n_islands(self) -> int:
        """As many as asked for; by default one for each place of the grid, with 10 particles."""
        particles = whole("particles", self.particles, most=MOST_PARTICLES)
        if self.islands is not None:
            return whole("islands", self.islands, most=particles)
        if not self._proper:
            return 1
        return max(1, min(read_schedule(self.batch).fixed, particles // 10))

    def concentration(self) -> Concentration:
        usual = STICKY if self._proper else 0.0
        given = usual if self.sticky is None else self.sticky
        sticky = 0.0 if given == 0 else positive("sticky", given)
        if math.isinf(sticky):
            raise HoldfastError("sticky must be finite; for one regime per batch use batch.")
        usable("sticky", sticky or 1.0, 1e100)
        pairs: list[float] = []
        for argument in ("alpha_prior", "gamma_prior"):
            pair = getattr(self, argument)
            if pair is None and argument == "gamma_prior":
                pair = RELUCTANT if self._proper else (1.0, 1.0)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise HoldfastError(f"{argument} must be (shape, rate), got {pair!r}.")
            pairs += [usable(argument, value, LARGEST_SCALE) for value in pair]
        a, b, c, d = pairs
        return Concentration(a, b, c, d, sticky)


class RegimeModel(Model):
    """An online infinite HMM: regimes discovered as needed, remembered, recognised again."""

    state_version = 2

    def __init__(self, name: str, settings: RegimeSettings, emission: EmissionSpec) -> None:
        self.name = name
        self.spec = emission
        if settings.units not in UNITS:
            raise unknown("units", settings.units, UNITS)
        self.features: Features = feature_maps.read(settings.features)
        # Without features the first observation decides: an intercept, and the columns of x if any.
        self._open = settings.features is None
        self.chosen = replace(settings, features=None if self._open else self.features.to_json())
        emission.check()
        check_scales(emission)
        self._plan, self._islands = settings.plan(), settings.n_islands()
        self._outlier_weight = share("outlier_weight", settings.outlier_weight)
        whole("seed", settings.seed, least=0)
        self.dim = emission.dim_hint()
        if settings.dim is not None:
            self.dim = whole("dim", settings.dim, most=MOST_COORDINATES)
        self.reporter = Reporter()
        self.engine: Engine | None = None
        self._like: Row | None = None  # the first covariates: later ones take their order
        self.past = new_past(self.features, self.dim or 1)

    # ------------------------------------------------------------------ observations

    @property
    def n_observations(self) -> int:
        return 0 if self.engine is None else self.engine.time

    def _check(self, x: Any) -> Row | None:
        if self._open and x is not None:
            return WITH_COLUMNS.check(x)
        return self.features.check(x, like=self._like)

    def _settle_features(self, x: Row | None) -> None:
        if self._open and x is not None:
            self.features = WITH_COLUMNS
        self._open = False
        self.chosen = replace(self.chosen, features=self.features.to_json())

    def _predict(self, x: Row | None) -> Forecast:
        if self._open and x is not None:  # as the first observation would settle it
            twin = type(self)(self.name, replace(self.chosen, features=WITH_COLUMNS), self.spec)
            return twin._predict(x)
        if self.engine is None:
            dim = self.dim or 1
            return self._mixture(self._build(dim, x), new_past(self.features, dim), x)
        self._check_width(self.engine, x)
        return self._mixture(self.engine, self.past, x)

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        block = self._learn(y[None], [x])
        return block.forecasts[0], block.step(0)

    def _blocks(self, y: Array, rows: list[Any], progress: bool) -> Iterator[Block]:
        for start in self._ticks(len(y), CHUNK, progress):
            stop = min(start + CHUNK, len(y))
            yield self._learn(y[start:stop], rows[start:stop])

    def _learn(self, y: Array, rows: list[Row | None]) -> Block:
        """Observations y (T, d) with their covariates, through the engine."""
        if self.engine is None:
            self._start(y.shape[1], rows[0])
        engine = self.engine
        assert engine is not None
        for row in rows[:1]:
            self._check_width(engine, row)
        phi = self.features.block(rows, engine.time, self.past, y)
        phi = within_reach(engine.emission, phi)
        first = engine.time
        track, changes = engine.observe(y, engine.emission.designs(phi))
        for value in y[-max(self.features.depth, 1) :]:
            self.past.push(value)
        n, end = len(y), int(track.offset[-1])
        rate = track.share[track.offset[1:] - 1] if engine.outlier_rate else np.zeros(n)
        forecasts = Forecasts(
            track.offset, track.share[:end], track.location[:end], track.spread[:end],
            track.dof[:end], rate,
        )  # fmt: skip
        seen = ~np.isnan(y).all(axis=1)
        outlier = seen & (track.weight < self._outlier_weight)
        return self.reporter.block(first, y, forecasts, track, changes, outlier)

    # ------------------------------------------------------------------ forecasts

    def _mixture(self, engine: Engine, past: Past, x: Row | None) -> Forecast:
        phi = self.features.row(x, engine.time, past.values)
        design = engine.emission.design(within_reach(engine.emission, phi))
        return Forecast.mixture(*engine.components(design), outlier=engine.outlier_rate)

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        engine = self.engine or self._build(self.dim or 1, rows[0])
        for x in rows:
            self._check_width(engine, x)
        if self.features.depth and len(rows) > 1:
            return paths_ahead(engine, self.features, self.past, rows)
        return rows_ahead(engine, self.features, self.past, rows)

    # ------------------------------------------------------------------ what it knows

    def regimes(self) -> list[Regime]:
        if self.engine is None:
            return []
        engine, ledger = self.engine, self.engine.state.ledger
        held = engine.row_mass()
        known = []
        for identity, name in sorted(self.reporter.names.items(), key=lambda pair: pair[1]):
            rows = np.flatnonzero((ledger.identity == identity) & (held > 0))
            if held[rows].sum() < MEMORY - 1e-9:
                continue
            row = int(rows[np.argmax(held[rows])])  # the version most of the weight agrees on
            mean, sd = engine.emission.coefficients(engine.rows, row)
            visits, first, last = (
                int(column[row]) for column in (ledger.visits, ledger.first_seen, ledger.last_seen)
            )
            total = min(1.0, float(held[rows].sum()))
            known.append(Regime(name, visits, first, last, mean, sd, total))
        return known

    def transitions(self) -> Transitions:
        ids = [regime.id for regime in self.regimes()]
        matrix = np.zeros((len(ids), len(ids)))
        weight = np.zeros(len(ids))
        if self.engine is None or not ids:
            return Transitions(ids, matrix)
        p, identity = self.engine.state.particles, self.engine.state.ledger.identity
        names = self.reporter.names
        for i in range(p.alpha.size):
            own = [names.get(a, -1) for a in identity[p.slots[i, : p.n_regimes[i]]].tolist()]
            at = [(own.index(a), j) for j, a in enumerate(ids) if a in own]
            rows = self.engine.transition_matrix(i)
            omega = math.exp(p.log_weight[i])
            for l, j in at:
                weight[j] += omega
                for k, into in at:
                    matrix[j, into] += omega * rows[l, k]
        return Transitions(ids, matrix / weight[:, None])

    # ------------------------------------------------------------------ making and keeping

    def settings(self) -> dict[str, Any]:
        chosen = asdict(self.spec) | asdict(self.chosen)
        chosen["rule"] = write_rule(read_rule(self.chosen.rule))
        return {key: _plain(value) for key, value in chosen.items()}

    @classmethod
    def _make(cls, settings: dict[str, Any]) -> Self:
        raise HoldfastError("A RegimeModel is made by name; use holdfast.make.")

    def copy(self) -> Self:
        twin = type(self)(self.name, self.chosen, self.spec)
        values, arrays = self._pack()
        twin._unpack(values, arrays)
        return twin

    def _build(self, dim: int, x: Row | None) -> Engine:
        return self._engine(Shape(dim, self.features.width(x, dim), not self.features.is_matrix))

    def _engine(self, shape: Shape) -> Engine:
        wide = float(shape.coefficients) ** 2
        affordable("features and particles", wide * 64 + self.chosen.particles * 100.0)
        emission = self.spec.build(shape, self._plan.law)
        plan = self._plan._replace(law=emission.law, width=shape.width)
        check_room(emission, plan, self.chosen.particles, self._islands)
        rng = np.random.default_rng(self.chosen.seed)
        return Engine(emission, plan, self.chosen.particles, self._islands, rng)

    def _start(self, dim: int, x: Row | None) -> None:
        """The first observation settles d and the features."""
        before = self.features, self._open, self.chosen
        self._settle_features(x)
        try:
            self.engine = self._build(dim, x)
        except HoldfastError:  # all or nothing
            self.features, self._open, self.chosen = before
            raise
        self.dim, self._like = dim, x
        self.past = new_past(self.features, dim)

    def _check_width(self, engine: Engine, x: Row | None) -> None:
        shape = engine.emission.shape
        width = self.features.width(x, shape.dim)
        if width != shape.width:
            raise HoldfastError(f"x gives {width} features; the model has {shape.width}.")

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.engine is None:
            return {"started": False}, {}
        values, arrays = self.engine.pack()
        first_values, first_arrays = pack_first(self._like)
        values |= {"started": True, "shape": list(self.engine.emission.shape)} | first_values
        values["report"] = self.reporter.pack()
        return values, arrays | first_arrays | self.past.pack()

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
        self.engine = self._engine(shape)
        self.engine.unpack(kept, stored)
        self.reporter.unpack(kept.part("report"))
        self.past = read_past(stored, self.features, dim)

    def _check_claims(self, shape: Shape, arrays: Arrays) -> None:
        """Make no room for more than the snapshot holds: its arrays are looked at, not read."""
        y, design = arrays.form("recent_y")[1], arrays.form("recent_design")[1]
        held = arrays.form("particle_alpha")[1]
        widths = (shape.width, shape.coefficients)
        if len(y) != 2 or y[1] != shape.dim or len(design) != 3 or design[2] not in widths:
            raise SnapshotError(f"The snapshot claims observations of shape {tuple(shape)}.")
        if held != (self.chosen.particles,):
            raise SnapshotError(f"The snapshot holds {held} particles, which the settings do not.")


def _plain(value: Any) -> Any:
    """Settings as JSON values."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return list(value)
    return value
