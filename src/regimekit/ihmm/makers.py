"""Makers of the infinite HMM family with linear-Gaussian emissions."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields
from typing import Any, TypeVar

from regimekit.core.exceptions import RegimekitError
from regimekit.core.maker import (
    Batch,
    ByUnits,
    Numbers,
    Pair,
    Resampling,
    Rules,
    Terms,
    Units,
    Weight,
    maker,
)
from regimekit.ihmm.emissions.base import EmissionSettings
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.settings import RegimeSettings
from regimekit.ihmm.standardized import InUnits

Spec = TypeVar("Spec", bound=EmissionSettings)
# Who tells any of these tells it in the units of y; who tells none has the units learnt.
SCALES = {"noise", "prior_mean", "prior_var", "noise_shape", "noise_scale"}
NOISE = ByUnits(learnt=1.0, given=0.25)
PRIOR_MEAN = ByUnits(learnt=0.0, given=0.0)
PRIOR_VAR = ByUnits(learnt=100.0, given=1.0)


@maker
def br_ihmm(
    *,
    features: Terms | None = None,
    units: Units | None = None,
    noise: Numbers | ByUnits = NOISE,
    prior_mean: Numbers | ByUnits = PRIOR_MEAN,
    prior_var: Numbers | ByUnits = PRIOR_VAR,
    batch: Batch = 6,
    threshold: float | None = None,
    weight: Weight | None = None,
    outlier_rate: float = 0.05,
    islands: int | None = None,
    structure_share: float | None = None,
    weigh_regimes: bool = True,
    particles: int = 100,
    ess_threshold: float = 0.5,
    max_regimes: int = 30,
    prune_pool: int = 5,
    rule: Rules = "default",
    resampling: Resampling | None = None,
    structure_sweeps: int | None = None,
    sticky: float | None = None,
    alpha_prior: Pair = (1.0, 1.0),
    gamma_prior: Pair | None = None,
    outlier_weight: float = 0.2,
    dim: int | None = None,
    seed: int = 0,
) -> RegimeModel:
    """The doubly robust model: weighted parameters, weighted regimes, one regime per batch.

    Args:
        features: f(x), from `regimekit.preprocessing.features`; by default an intercept, and the columns of x
            where x is given.
        units: "auto" learns the units of y from the stream, so that nothing need be known about
            it: noise and prior_var are then told in units of the noise.
            "given" takes them in the units of y. "auto" is the default where neither noise nor
            the prior of the coefficients is told.
        noise: R, the variance of one observation around its regime: a number or a (d, d) matrix;
            by default 1 where the units are learnt, else 0.25.
        prior_mean: mu0 of the coefficients: a number or a vector; 0 by default.
        prior_var: Sigma0 of the coefficients: a number, a vector or a matrix; by default 100
            where the units are learnt, else 1.
        batch: B, observations that share one regime; "adaptive" lets the outlier rate choose.
        threshold: c, the length in standard deviations where an observation starts to lose
            its say under `imq`, `huber` and `mahalanobis`. Infinity means never. Given without
            a weight it means `imq`; contamination needs none.
        weight: "contamination" (the default: an observation comes from the regime or, at a
            rate that is learnt, from one broad density for all), "imq", "huber", "mahalanobis"
            or "none".
        outlier_rate: first guess of the share of outliers under contamination.
        islands: into how many groups with shifted batches the particles are divided; by default
            one for every place in the batch under contamination, else 1.
        structure_share: share of the particles whose transitions are refreshed per batch.
        weigh_regimes: weight the evidence for regimes too.
        particles: how many hypotheses of the path are kept.
        ess_threshold: resample when the effective sample size falls to this share of them.
        max_regimes: forget a regime when this many are open.
        prune_pool: forget the least recently seen of this many least visited ones.
        rule: "default", "paper", or a mapping such as {"D3": "paper"}; see docs/deviations.md.
        resampling: "systematic", "stratified" or "multinomial"; by default the rule's.
        structure_sweeps: Gibbs passes over the regime prior per batch; by default the rule's.
        sticky: kappa, an extra weight on staying in the regime from batch to batch; by default
            10 under contamination, else 0.
        alpha_prior: (shape, rate) of the Gamma prior of alpha.
        gamma_prior: (shape, rate) of the Gamma prior of gamma, which says how readily regimes are
            opened; by default (1, 10) under contamination, else (1, 1).
        outlier_weight: an observation with a weight below this is flagged as an outlier.
        dim: number of coordinates of y, where the first observation should not settle it.
        seed: of the random draws.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(noise=0.25, batch=4, particles=20)
        >>> for y in [0.1, -0.2, 0.0, 0.3, 50.0, 0.1, -0.1, 0.2]:
        ...     step = model.update(y)
        >>> step.regime, len(model.regimes()), abs(model.predict().mean) < 0.5
        (0, 1, True)
    """
    return build("br_ihmm", GaussianSettings, locals())


@maker
def wolf_ihmm(
    *,
    features: Terms | None = None,
    units: Units | None = None,
    noise: Numbers | ByUnits = NOISE,
    prior_mean: Numbers | ByUnits = PRIOR_MEAN,
    prior_var: Numbers | ByUnits = PRIOR_VAR,
    batch: Batch = 1,
    threshold: float | None = 2.0,
    weight: Weight | None = "imq",
    outlier_rate: float = 0.05,
    islands: int | None = None,
    structure_share: float | None = None,
    weigh_regimes: bool = False,
    particles: int = 100,
    ess_threshold: float = 0.5,
    max_regimes: int = 30,
    prune_pool: int = 5,
    rule: Rules = "default",
    resampling: Resampling | None = None,
    structure_sweeps: int | None = None,
    sticky: float | None = None,
    alpha_prior: Pair = (1.0, 1.0),
    gamma_prior: Pair | None = None,
    outlier_weight: float = 0.2,
    dim: int | None = None,
    seed: int = 0,
) -> RegimeModel:
    """Weighted parameters, plain likelihood for regimes, batch 1. Settings as `br_ihmm`.

    Its parameters are robust, its regimes are not: one outlier can open a regime.
    """
    return build("wolf_ihmm", GaussianSettings, locals())


@maker
def ihmm(
    *,
    features: Terms | None = None,
    units: Units | None = None,
    noise: Numbers | ByUnits = NOISE,
    prior_mean: Numbers | ByUnits = PRIOR_MEAN,
    prior_var: Numbers | ByUnits = PRIOR_VAR,
    batch: Batch = 1,
    threshold: float | None = None,
    weight: Weight | None = "none",
    outlier_rate: float = 0.05,
    islands: int | None = None,
    structure_share: float | None = None,
    weigh_regimes: bool = True,
    particles: int = 100,
    ess_threshold: float = 0.5,
    max_regimes: int = 30,
    prune_pool: int = 5,
    rule: Rules = "default",
    resampling: Resampling | None = None,
    structure_sweeps: int | None = None,
    sticky: float | None = None,
    alpha_prior: Pair = (1.0, 1.0),
    gamma_prior: Pair | None = None,
    outlier_weight: float = 0.2,
    dim: int | None = None,
    seed: int = 0,
) -> RegimeModel:
    """The plain online infinite HMM: batch 1, no weight. Settings as `br_ihmm`."""
    return build("ihmm", GaussianSettings, locals())


def build(name: str, spec: type[Spec], settings: dict[str, Any]) -> RegimeModel:
    """A model of the family from its emission's settings type and all settings of its maker."""
    chosen = deepcopy(settings)  # the caller may go on to change a list or an array
    scales = SCALES & set(chosen)
    untold = {key for key in scales if isinstance(chosen[key], ByUnits)}
    if chosen["units"] is None:
        chosen["units"] = "auto" if scales and untold == scales else "given"
    if chosen["units"] == "auto" and not scales:
        raise RegimekitError(f"units must be 'given' for {name}, got 'auto'.")
    for key in untold:
        default = chosen[key]
        chosen[key] = default.learnt if chosen["units"] == "auto" else default.given
    return from_settings(name, spec, chosen)


def from_settings(name: str, spec: type[Spec], chosen: dict[str, Any]) -> RegimeModel:
    """A model from settings of its emission and of the family."""
    of_emission = {f.name for f in fields(spec)}
    emission = spec(**{k: v for k, v in chosen.items() if k in of_emission})
    shared = RegimeSettings(**{k: v for k, v in chosen.items() if k not in of_emission})
    made = InUnits if shared.units == "auto" else RegimeModel
    return made(name, shared, emission)
