"""Settings of the filter as its kernels read them."""

from __future__ import annotations

from typing import NamedTuple

from regimekit.ihmm.batch_schedule import Schedule
from regimekit.ihmm.hdp import Concentration
from regimekit.ihmm.weights import Scoring

RATE_MEMORY = 1000.0  # observations over which the rate of outliers is remembered
MEMORY = 0.5  # a regime counts as known when particles with this much weight remember it


class Plan(NamedTuple):
    """What the kernels need to know, checked by the facade.

    Attributes:
        scoring: how observations are scored.
        schedule: how long batches are.
        concentration: priors of the transitions.
        ess_threshold: resample when the effective sample size falls to this share.
        max_regimes: a particle that has so many forgets one.
        prune_pool: it forgets the stalest of this many least visited.
        resampling: code of the scheme.
        sweeps: structure sweeps of a particle that is refreshed.
        stride: every stride-th particle is refreshed at a commit.
        width: coefficients of a coordinate: a regime with fewer observations is underdetermined.
        outlier_prior: Beta counts of the rate of outliers.
        keep_diagonal: D5. keep_start: D6. mixture: D7. one_noise: D8. shared_prior: D9.
        newborn: D10. merge: D11. agree: D12.
    """

    scoring: Scoring
    schedule: Schedule
    concentration: Concentration
    ess_threshold: float
    max_regimes: int
    prune_pool: int
    resampling: int
    sweeps: int
    stride: int
    width: int
    outlier_prior: tuple[float, float]
    keep_diagonal: bool
    keep_start: bool
    mixture: bool
    one_noise: bool
    shared_prior: bool
    newborn: bool
    merge: bool
    agree: bool
