"""Largest sizes and settings of the infinite HMM family.

They protect from typing errors and crafted snapshots that would use hours or all memory, and from
settings whose products with features and residuals overflow.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from regimekit.core.covariates import MAX_FEATURE, Array
from regimekit.core.exceptions import RegimekitError, moderate, positive
from regimekit.ihmm.emissions.base import EmissionSettings
from regimekit.serialization.validation import affordable

LEAST_SHARE = 1e-6  # of the particles that are refreshed
# Of a variance, and of one over it: a residual of 1e100, over the noise and times the prior's
# spread, moves a coefficient by less than what a row may hold.
LARGEST_SCALE = 1e50
_SCALES = {"noise", "prior_mean", "prior_var", "noise_scale"}  # in the units of y or y^2
_LARGEST_SHAPE = 1e15
MAX_MOVE = 1e12  # noise scales that a feature may move a forecast by before anything is learnt


def usable(argument: str, value: Any, most: float) -> float:
    """Return `value` as a float from 1 / most to most."""
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


def check_room(emission: Any, shared_prior: bool, particles: int, islands: int) -> None:
    """Raise if the candidates of all islands need more memory than a model may have."""
    rows = 1 if shared_prior else particles
    arrays = list(emission.work_state().values())
    candidate = sum(float(np.prod(array.shape[1:])) for array in arrays) + 2.0 * emission.dim**2
    affordable("batch and islands", islands * (2.0 * rows + 32) * candidate)


def within_reach(emission: Any, features: Array) -> Array:
    """Return features (.., k), cut where learning one would make the covariance singular.

    A feature that the prior spread of its coefficient takes MAX_MOVE noise scales away shrinks that
    spread by as much in one step; 1e16 are more than a float can distinguish from a singular
    covariance, for good. So larger features are cut.
    """
    if emission.feature_limit is None:
        emission.feature_limit = _feature_limit(emission)
    limit = emission.feature_limit
    return np.asarray(np.minimum(np.maximum(features, -limit), limit))


def _feature_limit(emission: Any) -> Array:
    """(k,) the largest value of each feature."""
    width = emission.shape.width
    if not hasattr(emission, "prior_root"):  # a GARCH regime has no mean to regress
        return np.full(width, MAX_FEATURE)
    spread = np.sqrt((emission.prior_root**2).sum(axis=1)).reshape(-1, width)
    # Where the noise is learnt, spreads are in units of it.
    known = not hasattr(emission, "prior_factor")
    noise = np.linalg.eigvalsh(emission.noise_covariance()).min() if known else 1.0
    return np.asarray(np.minimum(MAX_MOVE * np.sqrt(noise) / spread.max(axis=0), MAX_FEATURE))
