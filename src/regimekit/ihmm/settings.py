"""What the online infinite HMMs may be told, and what the engine makes of it.

One record for the whole family: defaults depend on each other (a weight decides how sticky
regimes are, how many islands there are, how often transitions are refreshed), and all that is
written here. `regimekit.br_ihmm` documents each setting for its users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from regimekit.core.exceptions import RegimekitError, positive, share, unknown, whole
from regimekit.core.maker import Pair, Rules, Terms
from regimekit.ihmm.algorithm import FilterSettings
from regimekit.ihmm.batch_schedule import BatchSchedule, read_schedule
from regimekit.ihmm.deviations import Rule, read_rule
from regimekit.ihmm.hdp import Concentration
from regimekit.ihmm.limits import (
    LARGEST_SCALE,
    LEAST_SHARE,
    MOST_PARTICLES,
    MOST_SWEEPS,
    usable,
)
from regimekit.ihmm.resampling import SCHEMES
from regimekit.ihmm.weights import WEIGHTS, Scoring, weight_code

MAX_OUTLIER_RATE = 0.3  # outliers are a minority by definition
STICKY = 10.0  # default kappa of the second edition (docs/models.md)
RELUCTANT = (1.0, 10.0)  # default prior of gamma there: a tenth of the paper's, learnt all the same
_RATE_WORTH = 50.0  # observations that the guess of the outliers' rate is worth
# A particle's transitions are refreshed about once in so many observations: contamination, others.
_REFRESH, _REFRESH_WEIGHTED = 48, 8


@dataclass(frozen=True)
class RegimeSettings:
    """Settings shared by the whole family; `regimekit.br_ihmm` documents them."""

    features: Terms | None = None
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
    rule: Rules | Rule = "default"
    resampling: str | None = None
    structure_sweeps: int | None = None
    structure_share: float | None = None
    sticky: float | None = None
    alpha_prior: Pair = (1.0, 1.0)
    gamma_prior: Pair | None = None
    outlier_weight: float = 0.2
    dim: int | None = None
    seed: int = 0

    def kind(self) -> int:
        """The weight asked for; by default contamination, or IMQ where a threshold is given."""
        if self.weight is not None:
            return weight_code(self.weight)
        plain = self.threshold is None and read_rule(self.rule).D1
        return WEIGHTS["contamination"] if plain else WEIGHTS["imq"]

    def scoring(self) -> Scoring:
        rule = read_rule(self.rule)
        switches = (bool(self.weigh_regimes), rule.D1, rule.D2, rule.D3, rule.D4)
        return Scoring(self.kind(), self._threshold(), *switches)

    def _threshold(self) -> float:
        """c, or infinity for a weight that never is below one."""
        given = 2.0 if self.threshold is None else positive("threshold", self.threshold)
        return given if math.isinf(given) else usable("threshold", given, 1e100)

    def _schedule(self) -> BatchSchedule:
        if isinstance(self.batch, str) and self.batch != "adaptive":
            raise RegimekitError(f'batch must be a whole number or "adaptive", got {self.batch!r}.')
        return read_schedule(self.batch)

    def plan(self) -> FilterSettings:
        rule, schedule = read_rule(self.rule), self._schedule()
        return FilterSettings(
            scoring=self.scoring(),
            schedule=schedule,
            concentration=self.concentration(),
            ess_threshold=share("ess_threshold", self.ess_threshold),
            max_regimes=whole("max_regimes", self.max_regimes, least=2, most=1000),
            prune_pool=whole("prune_pool", self.prune_pool),
            resampling=self._scheme(rule),
            sweeps=self._sweeps(rule),
            stride=self._stride(rule, schedule),
            width=1,  # until the features are known
            outlier_prior=np.array(self._outlier_prior()),
            keep_diagonal=rule.D5,
            keep_start=rule.D6,
            mixture=rule.D7,
            one_noise=rule.D8,
            shared_prior=rule.D9,
            agree=rule.D12,
        )

    @property
    def _proper(self) -> bool:
        """Whether scores are densities, so that evidence means what Bayes means by it."""
        return self.kind() == WEIGHTS["contamination"]

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

    def _stride(self, rule: Rule, schedule: BatchSchedule) -> int:
        """Every stride-th particle is refreshed at a commit; all of them in the paper's text."""
        if self.structure_share is not None:
            part = share("structure_share", self.structure_share)
            if part < LEAST_SHARE:
                raise RegimekitError(f"structure_share must be at least {LEAST_SHARE}, got {part}.")
            return max(1, round(1 / part))
        every = _REFRESH if self._proper else _REFRESH_WEIGHTED
        return max(1, round(every / (schedule.fixed or 1))) if rule.D5 else 1

    def _outlier_prior(self) -> tuple[float, float]:
        rate = share("outlier_rate", self.outlier_rate)
        if not 0 < rate <= MAX_OUTLIER_RATE:
            raise RegimekitError(
                f"outlier_rate must lie above 0 and up to {MAX_OUTLIER_RATE}, got {rate}."
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
            raise RegimekitError("sticky must be finite; for one regime per batch use batch.")
        usable("sticky", sticky or 1.0, 1e100)
        pairs: list[float] = []
        for argument in ("alpha_prior", "gamma_prior"):
            pair = getattr(self, argument)
            if pair is None and argument == "gamma_prior":
                pair = RELUCTANT if self._proper else (1.0, 1.0)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise RegimekitError(f"{argument} must be (shape, rate), got {pair!r}.")
            pairs += [usable(argument, value, LARGEST_SCALE) for value in pair]
        a, b, c, d = pairs
        return Concentration(a, b, c, d, sticky)
