"""Maker of the infinite HMM whose regimes have unknown noise."""

from __future__ import annotations

from typing import Any

from holdfast.emissions.normal_inverse_gamma import StudentSpec
from holdfast.models.ihmm import build
from holdfast.models.regime_model import RegimeModel


def student_t_ihmm(**settings: Any) -> RegimeModel:
    """The doubly robust model that needs no noise level: each regime learns its own.

    With `weight="none", batch=1` it is the plain unknown-variance model, whose heavy tails do
    not keep an outlier from opening a regime. The defaults (batch 6, threshold 2, a guess of 0.25
    for the noise variance) are those of `br_ihmm`; a threshold of 3 or 4 sees changes sooner, lets
    shorter bursts through and is less sure of the noise where outliers are many.

    Args:
        prior_mean: mu0 of the coefficients: a number or a vector.
        prior_var: scale of the coefficients around it, in the units of y^2, as for `br_ihmm`: a
            number, or a vector or matrix over the features.
        noise_shape: a0; 2 a0 is how many observations the guess of the noise is worth. Above 1
            the standard deviation of a forecast is finite.
        noise_scale: b0; b0 / a0 is the guess of a regime's noise variance. A number, or a (d, d)
            matrix.
        consistent: correct the learnt variance for what the weight takes away from it.
        **settings: everything else as for `br_ihmm`.

    Rescaling y by s, with prior_mean by s, prior_var and noise_scale by s^2, changes no regime.

    Example:
        >>> from holdfast.models.student_t import student_t_ihmm
        >>> model = student_t_ihmm(batch=4, particles=20)
        >>> for y in [0.1, -0.2, 0.0, 0.3, 50.0, 0.1, -0.1, 0.2]:
        ...     step = model.update(y)
        >>> step.regime, len(model.regimes()), abs(model.predict().mean) < 0.5
        (0, 1, True)
    """
    return build("student_t_ihmm", StudentSpec, {}, settings)
