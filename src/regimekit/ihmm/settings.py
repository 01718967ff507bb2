"""Settings of the infinite HMM family: one dataclass for signatures, validation and docs.

Defaults depend on each other: the weight determines the stickiness of regimes, the number of
islands and the interval of structure sweeps. `RegimeSettings.resolved` fills in missing settings,
so `model.settings()` has the values in effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from regimekit.core.exceptions import RegimekitError, moderate, positive, share, unknown, whole
from regimekit.core.limits import MAX_ISLANDS, MAX_PARTICLES, MAX_REGIMES, MAX_SWEEPS
from regimekit.core.maker import Pair, Rules, Terms
from regimekit.ihmm.batch_schedule import BatchSchedule, read_schedule
from regimekit.ihmm.deviations import Rule, read_rule, write_rule
from regimekit.ihmm.emissions.base import EmissionSettings
from regimekit.ihmm.filter_state import FilterSettings
from regimekit.ihmm.hdp import Concentration
from regimekit.ihmm.resampling import SCHEMES
from regimekit.ihmm.weights import WEIGHTS, PythonScoring, Scoring, weight_code

LEAST_SHARE = 1e-6  # of the particles that are refreshed
# Of a variance and its inverse: a residual of 1e100, divided by the noise and multiplied by the
# prior spread, moves a coefficient by less than the limit of a row.
LARGEST_SCALE = 1e50
_SCALES = {"noise", "prior_mean", "prior_var", "noise_scale"}  # in the units of y or y^2
_LARGEST_SHAPE = 1e15
MAX_OUTLIER_RATE = 0.3  # outliers are a minority by definition
DEFAULT_STICKY = 10.0  # kappa under contamination (docs/models.md)
DEFAULT_GAMMA_PRIOR = (1.0, 10.0)  # of gamma under contamination: a tenth of the paper's mean
RATE_OBSERVATIONS = 50.0  # observations that the guess of the outlier rate counts as
# Observations between two structure sweeps of a particle, on average.
SWEEP_INTERVAL, SWEEP_INTERVAL_WEIGHTED = 48, 8
LEAST_OWN_WEIGHT = 1e-100  # of a weight function: the logarithm of its square stays finite

WeightFunction = Callable[[float], float]


def usable(argument: str, value: Any, most: float) -> float:
    """Return a number in a range in which products with features and residuals do not overflow.

    Args:
        argument: name for error messages.
        value: the number.
        most: the range is 1 / most to most.
    """
    number = positive(argument, value)
    if not 1 / most <= number <= most:
        raise RegimekitError(f"{argument} must be from {1 / most:g} to {most:g}, got {value!r}.")
    return number


def check_scales(emission: EmissionSettings) -> None:
    """Raise RegimekitError if a mean or variance of an emission is out of range."""
    given = {field.name: getattr(emission, field.name) for field in fields(emission)}
    for scale in sorted(_SCALES & given.keys()):
        moderate(scale, given[scale], most=LARGEST_SCALE)
    if "noise_shape" in given:
        usable("noise_shape", given["noise_shape"], _LARGEST_SHAPE)


def setting(default: Any, doc: str) -> Any:
    """Return a dataclass field with its documentation.

    Args:
        default: default value.
        doc: its documentation.
    """
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class RegimeSettings:
    """Settings shared by the infinite HMM family."""

    features: Terms | None = setting(
        None,
        "f(x), from `regimekit.features`. By default an intercept, and the columns of x if x is "
        "given.",
    )
    units: str | None = setting(
        "given",
        '"auto" estimates the units of y from the stream; noise and priors are then in units of '
        'the noise. "given" takes them in the units of y. By default "auto" if neither noise nor '
        "the prior of the coefficients is given.",
    )
    batch: Any = setting(
        6,
        'B, number of observations that share one regime; "adaptive" derives it from the outlier '
        "rate.",
    )
    threshold: float | None = setting(
        None,
        "c, the residual in standard deviations beyond which `imq`, `huber` and `mahalanobis` "
        "reduce the weight of an observation. Infinity means never. If it is given without a "
        "weight, the weight is `imq`; contamination has none.",
    )
    weight: str | WeightFunction | None = setting(
        None,
        '"contamination" (the default: an observation comes from its regime or, at a rate that is '
        'learnt, from one broad density), "imq", "huber", "mahalanobis" or "none"; or W, a '
        "function of u, the length of the residual over c, that returns w in [0, 1]. Models with "
        "known noise take a function; it is called from Python, and such a model cannot be saved.",
    )
    weigh_regimes: bool = setting(True, "weight the evidence for regimes, too.")
    outlier_rate: float = setting(0.05, "first guess of the share of outliers under contamination.")
    particles: int = setting(100, "number of hypotheses about the path of regimes.")
    islands: int | None = setting(
        None,
        "number of groups with shifted batches that the particles are divided into. By default "
        "one per position of the batch under contamination, else 1.",
    )
    ess_threshold: float = setting(
        0.5, "resample when the effective sample size falls to this share of the particles."
    )
    max_regimes: int = setting(30, "number of regimes at which a particle drops one.")
    prune_pool: int = setting(
        5, "number of least visited regimes, of which the least recently visited one is dropped."
    )
    rule: Rules | Rule = setting(
        "default",
        '"default", "paper", or a mapping such as {"D3": "paper"}; see docs/deviations.md.',
    )
    resampling: str | None = setting(
        None, '"systematic", "stratified" or "multinomial"; by default that of the rule.'
    )
    structure_sweeps: int | None = setting(
        None,
        "Gibbs sweeps over the prior of regimes per batch. By default 1, or one for each "
        'observation of the batch under rule="paper".',
    )
    structure_share: float | None = setting(
        None, "share of the particles that get structure sweeps at the end of a batch."
    )
    sticky: float | None = setting(
        None,
        "kappa, additional weight on staying in the regime from batch to batch; by default 10 "
        "under contamination, else 0.",
    )
    alpha_prior: Pair = setting((1.0, 1.0), "(shape, rate) of the Gamma prior of alpha.")
    gamma_prior: Pair | None = setting(
        None,
        "(shape, rate) of the Gamma prior of gamma, which controls how readily regimes are opened; "
        "by default (1, 10) under contamination, else (1, 1).",
    )
    outlier_weight: float = setting(
        0.2, "an observation with a weight below this is flagged as an outlier."
    )
    noise_column: str | int | None = setting(
        None,
        "column of x with v_t > 0, if the observation variance changes with time in a known way: "
        "R_t = v_t R. A name, or a position from 0 if x has no names. The features do not contain "
        "it.",
    )
    dim: int | None = setting(
        None, "number of coordinates of y, if the first observation should not determine it."
    )
    seed: int = setting(0, "seed of the random draws.")

    def resolved(self) -> RegimeSettings:
        """Return the settings with every default that depends on others filled in.

        Raises:
            RegimekitError: If a setting is invalid.
        """
        plan = self.filter_settings()
        names = {code: name for name, code in WEIGHTS.items()}
        schemes = {code: name for name, code in SCHEMES.items()}
        prior = plan.concentration
        kind = names[self.kind()]
        threshold = self.threshold
        weighted = callable(self.weight) or kind in ("imq", "huber", "mahalanobis")
        if threshold is None and weighted:
            threshold = 2.0
        return replace(
            self,
            weight=self.weight if callable(self.weight) else kind,
            threshold=threshold,
            islands=self.n_islands(),
            resampling=schemes[plan.resampling],
            structure_sweeps=plan.sweeps or None,
            structure_share=1.0 / plan.stride,
            sticky=prior.sticky,
            gamma_prior=(prior.gamma_shape, prior.gamma_rate),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {
            "rule": write_rule(read_rule(self.rule))
        }

    def kind(self) -> int:
        """Return the code of the weight: by default contamination, or IMQ with a threshold.

        A function has the code of IMQ: it reduces the weight of outliers, and no rate is learnt.
        """
        if callable(self.weight):
            return WEIGHTS["imq"]
        if self.weight is not None:
            return weight_code(self.weight)
        plain = self.threshold is None and read_rule(self.rule).D1
        return WEIGHTS["contamination"] if plain else WEIGHTS["imq"]

    def scoring(self) -> Scoring:
        """Return the weight and the score of an observation."""
        rule = read_rule(self.rule)
        switches = (bool(self.weigh_regimes), rule.D1, rule.D2, rule.D3, rule.D4)
        scoring = Scoring(self.kind(), self._threshold(), *switches)
        if callable(self.weight):
            return PythonScoring(scoring, log_square(self.weight))
        return scoring

    def _threshold(self) -> float:
        given = 2.0 if self.threshold is None else positive("threshold", self.threshold)
        return given if math.isinf(given) else usable("threshold", given, 1e100)

    def _schedule(self) -> BatchSchedule:
        if isinstance(self.batch, str) and self.batch != "adaptive":
            raise RegimekitError(f'batch must be a whole number or "adaptive", got {self.batch!r}.')
        return read_schedule(self.batch)

    def filter_settings(self) -> FilterSettings:
        """Return the settings in the form of the kernels; every filter needs its own."""
        rule, schedule = read_rule(self.rule), self._schedule()
        return FilterSettings(
            scoring=self.scoring(),
            schedule=schedule,
            concentration=self.concentration(),
            ess_threshold=share("ess_threshold", self.ess_threshold),
            max_regimes=whole("max_regimes", self.max_regimes, least=2, most=MAX_REGIMES),
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
            date_changes=rule.D14,
            keep_weights=rule.D15,
            follow=rule.D9 and rule.D16,
            fade=rule.D7 and rule.D17,
            renew=rule.D18,
        )

    @property
    def _is_contamination(self) -> bool:
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
        particles = whole("particles", self.particles, most=MAX_PARTICLES)
        most = min(10_000, MAX_SWEEPS // particles)
        return whole("structure_sweeps", self.structure_sweeps, most=most)

    def _stride(self, rule: Rule, schedule: BatchSchedule) -> int:
        """Return the stride of structure sweeps over particles; 1 in the text of the paper (D5)."""
        if self.structure_share is not None:
            part = share("structure_share", self.structure_share)
            if part < LEAST_SHARE:
                raise RegimekitError(f"structure_share must be at least {LEAST_SHARE}, got {part}.")
            return max(1, round(1 / part))
        every = SWEEP_INTERVAL if self._is_contamination else SWEEP_INTERVAL_WEIGHTED
        return max(1, round(every / (schedule.fixed or 1))) if rule.D5 else 1

    def _outlier_prior(self) -> tuple[float, float]:
        rate = share("outlier_rate", self.outlier_rate)
        if not 0 < rate <= MAX_OUTLIER_RATE:
            raise RegimekitError(
                f"outlier_rate must lie above 0 and up to {MAX_OUTLIER_RATE}, got {rate}."
            )
        return RATE_OBSERVATIONS * rate, RATE_OBSERVATIONS * (1 - rate)

    def n_islands(self) -> int:
        """Return the number of islands; by default one per position in the batch."""
        particles = whole("particles", self.particles, most=MAX_PARTICLES)
        if self.islands is not None:
            return whole("islands", self.islands, most=min(particles, MAX_ISLANDS))
        if not self._is_contamination:
            return 1
        return max(1, min(self._schedule().fixed, particles // 10, MAX_ISLANDS))

    def concentration(self) -> Concentration:
        """Return the priors of the transitions."""
        usual = DEFAULT_STICKY if self._is_contamination else 0.0
        given = usual if self.sticky is None else self.sticky
        sticky = 0.0 if given == 0 else positive("sticky", given)
        if math.isinf(sticky):
            raise RegimekitError(
                "sticky must be finite, got inf. Set batch for one regime per batch."
            )
        usable("sticky", sticky or 1.0, 1e100)
        pairs: list[float] = []
        for argument in ("alpha_prior", "gamma_prior"):
            pair = getattr(self, argument)
            if pair is None and argument == "gamma_prior":
                pair = DEFAULT_GAMMA_PRIOR if self._is_contamination else (1.0, 1.0)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise RegimekitError(f"{argument} must be (shape, rate), got {pair!r}.")
            pairs += [usable(argument, value, LARGEST_SCALE) for value in pair]
        a, b, c, d = pairs
        return Concentration(a, b, c, d, sticky)


def log_square(weight: WeightFunction) -> Callable[[float], float]:
    """Return log w^2 as a function of u, and check what the weight returns.

    Args:
        weight: W, a function of the length of the residual over c that returns w in [0, 1].

    Example:
        >>> log_square(lambda u: 1.0 / (1.0 + u))(1.0) == 2.0 * math.log(0.5)
        True
    """

    def log_weight2(u: float) -> float:
        w = float(weight(u))
        if not 0.0 <= w <= 1.0:
            raise RegimekitError(f"weight must return a number from 0 to 1, got {w} at {u:.3g}.")
        return 2.0 * math.log(max(w, LEAST_OWN_WEIGHT))

    return log_weight2
