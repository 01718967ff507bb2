"""The online infinite HMM family as one model: an emission, an engine, settings.

Variants of the paper are settings, not subclasses: `ihmm` has batch 1 and no weight, `wolf_ihmm`
batch 1 and weighted updates under a plain likelihood for regimes, `br_ihmm` weights both and
gives one regime to each batch.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from holdfast import features as feature_maps
from holdfast.emissions.base import EmissionSpec, Shape
from holdfast.engine import step
from holdfast.engine.engine import MEMORY, Engine, EngineSettings, Outlook
from holdfast.engine.pool import copied
from holdfast.engine.resampling import SCHEMES
from holdfast.engine.rule import read_rule, write_rule
from holdfast.engine.schedule import read_schedule
from holdfast.errors import HoldfastError, positive, share, unknown, whole
from holdfast.features import Features, Past
from holdfast.forecast import Forecast
from holdfast.frames import Row
from holdfast.hdp import Concentration
from holdfast.models.base import Array, Model
from holdfast.models.reporting import Reporter
from holdfast.results import Regime, Step, Transitions
from holdfast.weights import Caution, weight_code


@dataclass(frozen=True)
class RegimeSettings:
    """Settings shared by the whole family; `holdfast.br_ihmm` documents them."""

    features: Any = None
    batch: Any = 6
    threshold: float = 2.0
    weight: str = "imq"
    weigh_regimes: bool = True
    particles: int = 100
    ess_threshold: float = 0.5
    max_regimes: int = 30
    prune_pool: int = 5
    rule: Any = "holdfast"
    resampling: str | None = None
    structure_sweeps: int | None = None
    sticky: float = 0.0
    alpha_prior: tuple[float, float] = (1.0, 1.0)
    gamma_prior: tuple[float, float] = (1.0, 1.0)
    outlier_weight: float = 0.2
    dim: int | None = None
    seed: int = 0

    def caution(self) -> Caution:
        rule = read_rule(self.rule)
        return Caution(
            weight_code(self.weight), positive("threshold", self.threshold),
            bool(self.weigh_regimes), rule.D1, rule.D2, rule.D3, rule.D4,
        )  # fmt: skip

    def engine(self) -> EngineSettings:
        rule = read_rule(self.rule)
        scheme = self.resampling or ("systematic" if rule == read_rule("holdfast") else None)
        scheme = scheme or ("multinomial" if rule == read_rule("paper") else "systematic")
        if scheme not in SCHEMES:
            raise unknown("resampling", scheme, SCHEMES)
        sweeps = self.structure_sweeps
        return EngineSettings(
            particles=whole("particles", self.particles),
            ess_threshold=share("ess_threshold", self.ess_threshold),
            max_regimes=whole("max_regimes", self.max_regimes, least=2),
            prune_pool=whole("prune_pool", self.prune_pool),
            resampling=SCHEMES[scheme],
            structure_sweeps=0 if sweeps is None else whole("structure_sweeps", sweeps),
            concentration=self.concentration(),
            rule=rule,
        )

    def concentration(self) -> Concentration:
        sticky = 0.0 if self.sticky == 0 else positive("sticky", self.sticky)
        if math.isinf(sticky):
            raise HoldfastError("sticky must be finite; a batch is the infinite bias.")
        pairs: list[float] = []
        for argument in ("alpha_prior", "gamma_prior"):
            pair = getattr(self, argument)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise HoldfastError(f"{argument} must be (shape, rate), got {pair!r}.")
            pairs += [positive(argument, value) for value in pair]
        if math.inf in pairs:
            raise HoldfastError("alpha_prior and gamma_prior must be finite.")
        a, b, c, d = pairs
        return Concentration(a, b, c, d, sticky)


class RegimeModel(Model):
    """An online infinite HMM: regimes discovered as needed, remembered, recognised again."""

    def __init__(self, name: str, settings: RegimeSettings, emission: EmissionSpec) -> None:
        self.name = name
        self.spec = emission
        self.features: Features = feature_maps.read(settings.features)
        self.chosen = replace(settings, features=self.features.to_json())
        emission.check()
        read_schedule(settings.batch)
        self._engine_settings = settings.engine()
        self._caution = settings.caution()
        self._outlier_weight = share("outlier_weight", settings.outlier_weight)
        whole("seed", settings.seed, least=0)
        self.dim = emission.dim_hint() if settings.dim is None else whole("dim", settings.dim)
        self.reporter = Reporter()
        self.engine: Engine | None = None
        self._like: Row | None = None  # the first covariates: later ones take their order
        self.past = Past(self.features.depth, self.dim or 1)

    # ------------------------------------------------------------------ one observation

    def _check(self, x: Any) -> Row | None:
        return self.features.check(x, like=self._like)

    def _predict(self, x: Row | None) -> Forecast:
        if self.engine is None:
            dim = self.dim or 1
            return self._mixture(self._build(dim, x), Past(self.features.depth, dim), x)
        self._check_width(self.engine, x)
        return self._mixture(self.engine, self.past, x)

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        if self.engine is None:
            self._start(y.size, x)
        engine = self.engine
        assert engine is not None
        self._check_width(engine, x)
        forecast = self._mixture(engine, self.past, x)
        time, seen = engine.time, not np.isnan(y).all()
        verdict = engine.observe(y, self._design(engine, self.past, x))
        self.past.push(y)
        log_score = float(forecast.log_density(y if y.size > 1 else y[0]))
        outlier = seen and verdict.weight < self._outlier_weight
        events = [self.reporter.outlier(time)] if outlier else []
        if verdict.committed:
            events += self.reporter.vote(engine, time)
        return forecast, Step(
            regime=self.reporter.regime,
            regime_probability=self._certainty(engine, verdict.committed),
            weight=verdict.weight,
            outlier=outlier,
            change_probability=verdict.change_probability,
            n_regimes=self.reporter.n_regimes,
            ess=verdict.ess,
            log_score=log_score,
            settled=verdict.committed,
            events=tuple(events),
        )

    def _certainty(self, engine: Engine, committed: int) -> float:
        """Probability of the reported regime: by vote after a batch, by the candidates inside."""
        regime = self.reporter.regime
        if committed:
            return min(1.0, engine.identity_shares(step.current_mass).get(regime, 0.0))
        return engine.probability_of(regime)

    # ------------------------------------------------------------------ forecasts

    def _mixture(self, engine: Engine, past: Past, x: Row | None) -> Forecast:
        return self._ahead(engine, engine.outlook(), 0, past, x)

    def _ahead(
        self, engine: Engine, outlook: Outlook, h: int, past: Past, x: Row | None
    ) -> Forecast:
        """The observation h steps after the next."""
        parts = engine.components(outlook, h, self._design(engine, past, x, h))
        return Forecast.mixture(outlook.mass[h], parts.location, parts.spread, parts.dof)

    def _design(self, engine: Engine, past: Past, x: Row | None, h: int = 0) -> Array:
        return engine.emission.design(self.features.row(x, engine.time + h, past.values))

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        engine = self.engine or self._build(self.dim or 1, rows[0])
        past = self.past.copy()
        outlook = engine.outlook(len(rows))
        outlook = outlook._replace(rows=copied(outlook.rows))
        forecasts = []
        for h, x in enumerate(rows):
            self._check_width(engine, x)
            forecasts.append(self._ahead(engine, outlook, h, past, x))
            past.push(np.atleast_1d(forecasts[-1].mean))  # lags beyond now: the forecast itself
            engine.emission.rest(outlook.rows)
        return forecasts

    # ------------------------------------------------------------------ what it knows

    def regimes(self) -> list[Regime]:
        if self.engine is None:
            return []
        engine, ledger = self.engine, self.engine.pool.ledger
        held = engine.row_mass(step.held_mass)
        known = []
        for identity, probability in engine.identity_shares(step.held_mass).items():
            if probability < MEMORY - 1e-9:
                continue
            rows = np.flatnonzero((ledger.identity == identity) & (held > 0))
            row = int(rows[np.argmax(held[rows])])  # the version most of the weight agrees on
            mean, sd = engine.emission.coefficients(engine.pool.rows, row)
            known.append(
                Regime(
                    identity, int(ledger.visits[row]), int(ledger.first_seen[row]),
                    int(ledger.last_seen[row]), mean, sd, min(1.0, probability),
                )
            )  # fmt: skip
        return known

    def transitions(self) -> Transitions:
        ids = [regime.id for regime in self.regimes()]
        matrix = np.zeros((len(ids), len(ids)))
        weight = np.zeros(len(ids))
        if self.engine is None or not ids:
            return Transitions(ids, matrix)
        p, identity = self.engine.particles, self.engine.pool.ledger.identity
        for i in range(p.alpha.size):
            own = identity[p.slots[i, : p.n_regimes[i]]].tolist()
            at = [(own.index(a), j) for j, a in enumerate(ids) if a in own]
            rows = step.transition_matrix(p, i, self._engine_settings.concentration.sticky)
            omega = math.exp(p.log_weight[i])
            for l, j in at:
                weight[j] += omega
                for k, into in at:
                    matrix[j, into] += omega * rows[l, k]
        return Transitions(ids, matrix / weight[:, None])

    # ------------------------------------------------------------------ making and keeping

    def settings(self) -> dict[str, Any]:
        chosen = asdict(self.spec) | asdict(self.chosen)
        chosen["rule"] = write_rule(self._engine_settings.rule)
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
        emission = self.spec.build(shape, self._caution)
        rng = np.random.default_rng(self.chosen.seed)
        return Engine(emission, read_schedule(self.chosen.batch), self._engine_settings, rng)

    def _start(self, dim: int, x: Row | None) -> None:
        """The first observation settles d and the number of features."""
        self.engine = self._build(dim, x)
        self.dim, self._like = dim, x
        self.past = Past(self.features.depth, dim)

    def _check_width(self, engine: Engine, x: Row | None) -> None:
        shape = engine.emission.shape
        width = self.features.width(x, shape.dim)
        if width != shape.width:
            raise HoldfastError(f"x gives {width} features; the model has {shape.width}.")

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.engine is None:
            return {"started": False}, {}
        values, arrays = self.engine.pack()
        values |= {"started": True, "shape": list(self.engine.emission.shape)}
        values["report"] = self.reporter.pack()
        if self._like is not None:
            values["columns"] = self._like.names
            arrays = arrays | {"first_x": self._like.values}
        return values, arrays | self.past.pack()

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        if not values["started"]:
            return
        shape = Shape(*values["shape"])
        self.dim = shape.dim
        self.engine = self._engine(shape)
        self.engine.unpack(values, arrays)
        if "columns" in values:
            names = values["columns"]
            self._like = Row(arrays["first_x"], None if names is None else tuple(names))
        self.reporter.unpack(values["report"])
        self.past = Past(self.features.depth, self.dim)
        self.past.unpack(arrays)


def _plain(value: Any) -> Any:
    """Settings as JSON values."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return list(value)
    return value
