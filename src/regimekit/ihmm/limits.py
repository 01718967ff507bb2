"""How much the infinite HMM family may be asked for, and how large its settings may be.

A slip of the keyboard, or a crafted snapshot, must not ask for hours or for all memory; and no
setting may be so large or so small that its products with features and residuals leave the floats.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from regimekit.core.covariates import LARGEST, Array
from regimekit.core.exceptions import RegimekitError, moderate, positive
from regimekit.ihmm.emissions.base import Emission, EmissionSpec
from regimekit.ihmm.plan import Plan
from regimekit.serialization.validation import affordable

MOST_PARTICLES = 100_000
MOST_SWEEPS = 10_000_000  # of all particles together at the end of a batch
LEAST_SHARE = 1e-6  # of the particles that are refreshed
# Of a variance, and of one over it: a residual of 1e100, over the noise and times the prior's
# spread, moves a coefficient by less than what a row may hold.
LARGEST_SCALE = 1e50
_SCALES = {"noise", "prior_mean", "prior_var", "noise_scale"}  # in the units of y or y^2
_LARGEST_SHAPE = 1e15
FARTHEST = 1e12  # noise scales that a feature may move a forecast by, before anything is learnt
_REACH: WeakKeyDictionary[Emission, Array] = WeakKeyDictionary()


def usable(argument: str, value: Any, most: float) -> float:
    """`value` as a number above zero, from 1 / most to most."""
    number = positive(argument, value)
    if not 1 / most <= number <= most:
        raise RegimekitError(f"{argument} must be from {1 / most:g} to {most:g}, got {value!r}.")
    return number


def check_scales(emission: EmissionSpec) -> None:
    """Refuse means and variances of an emission that are beyond all use."""
    given = {field.name: getattr(emission, field.name) for field in fields(emission)}
    for scale in sorted(_SCALES & given.keys()):
        moderate(scale, given[scale], most=LARGEST_SCALE)
    if "noise_shape" in given:
        usable("noise_shape", given["noise_shape"], _LARGEST_SHAPE)


def check_room(emission: Emission, plan: Plan, particles: int, islands: int) -> None:
    """Refuse batches and islands whose candidates need more memory than a model may have."""
    longest = plan.schedule.longest * (1 if islands == 1 else 2)
    held = 1 if plan.shared_prior else particles
    one, two = (float(_numbers_in(emission.work(1, 1, length))) for length in (1, 2))
    candidate = one + (two - one) * longest + 2.0 * emission.shape.dim**2
    affordable("batch and islands", islands * (2.0 * held + longest) * candidate)


def within_reach(emission: Emission, features: Array) -> Array:
    """Features (.., k), none of them so large that learning it once would leave nothing to learn.

    A feature that its coefficient's prior spread takes FARTHEST noise scales away shrinks that
    spread by as much in one step; 1e16 are more than a float can tell from a singular covariance,
    for good. So features beyond are taken for that much.
    """
    if emission not in _REACH:
        _REACH[emission] = _reach(emission)
    reach = _REACH[emission]
    return np.asarray(np.minimum(np.maximum(features, -reach), reach))


def _reach(emission: Emission) -> Array:
    """(k,) the largest of each feature."""
    blank = emission.blank(1)
    emission.write_prior(blank, 0)
    prior: dict[str, Array] = blank._asdict()
    if "root" not in prior:  # a GARCH regime has no mean to regress
        return np.full(emission.shape.width, LARGEST)
    spread = np.sqrt((prior["root"][0] ** 2).sum(axis=1)).reshape(-1, emission.shape.width)
    # Where the noise is learnt, spreads are in units of it.
    noise = 1.0 if "factor" in prior else np.linalg.eigvalsh(emission.noise_covariance()).min()
    return np.asarray(np.minimum(FARTHEST * np.sqrt(noise) / spread.max(axis=0), LARGEST))


def _numbers_in(arrays: Any) -> int:
    """How many numbers a nested NamedTuple of arrays holds."""
    return sum(a.size if isinstance(a, np.ndarray) else _numbers_in(a) for a in arrays)
