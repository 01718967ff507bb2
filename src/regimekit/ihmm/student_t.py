"""Maker of the infinite HMM whose regimes have unknown noise."""

from __future__ import annotations

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
from regimekit.ihmm.emissions.student_t import StudentTSettings
from regimekit.ihmm.makers import PRIOR_MEAN, PRIOR_VAR, build
from regimekit.ihmm.model import RegimeModel

NOISE_SHAPE = ByUnits(learnt=5.0, given=3.0)
NOISE_SCALE = ByUnits(learnt=5.0, given=0.75)


@maker
def student_t_ihmm(
    *,
    features: Terms | None = None,
    units: Units | None = None,
    prior_mean: Numbers | ByUnits = PRIOR_MEAN,
    prior_var: Numbers | ByUnits = PRIOR_VAR,
    noise_shape: float | ByUnits = NOISE_SHAPE,
    noise_scale: Numbers | ByUnits = NOISE_SCALE,
    consistent: bool = True,
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
    """The doubly robust model that needs no noise level: each regime learns its own.

    With `weight="none", batch=1` it is the plain unknown-variance model, whose heavy tails do
    not keep an outlier from opening a regime. The other defaults are those of `br_ihmm`. Under
    `imq` a threshold of 3 or 4 sees changes sooner than 2, lets shorter bursts through and is less
    sure of the noise where outliers are many.

    Args:
        prior_mean: mu0 of the coefficients: a number or a vector; 0 by default.
        prior_var: scale of the coefficients around it, in the units of y^2, as for `br_ihmm`: a
            number, or a vector or matrix over the features. By default 100 where the units are
            learnt, else 1.
        noise_shape: a0; 2 a0 is how many observations the guess of the noise is worth. Above 1
            the standard deviation of a forecast is finite. By default 5 where the units are
            learnt, else 3.
        noise_scale: b0; b0 / a0 is the guess of a regime's noise variance. A number, or a (d, d)
            matrix. By default 5 where the units are learnt, else 0.75.
        consistent: correct the learnt variance for what the weight takes away from it.
        features, units, batch, ...: everything else as for `br_ihmm`.

    Rescaling y by s, with prior_mean by s, prior_var and noise_scale by s^2, changes no regime.

    Example:
        >>> from regimekit.ihmm.student_t import student_t_ihmm
        >>> model = student_t_ihmm(batch=4, particles=20)
        >>> for y in [0.1, -0.2, 0.0, 0.3, 50.0, 0.1, -0.1, 0.2]:
        ...     step = model.update(y)
        >>> step.regime, len(model.regimes()), abs(model.predict().mean) < 0.5
        (0, 1, True)
    """
    return build("student_t_ihmm", StudentTSettings, locals())
