"""Regimes of counts: y ~ Poisson(rate), rate ~ Gamma(events, time) in every regime.

A row stores the two numbers of the Gamma distribution, `events` and `time`: the rate was learnt
from so many events in so many observations. The predictive distribution is negative binomial,

    mean = events / time,   variance = mean (1 + 1 / time)

The score of a regime is its exact log probability. The forecast of the filter is a mixture of
Student-t components, so `predict` writes the Gaussian with the same mean and variance.

The same file runs in two ways: as plain Python, behind `PythonEmission`, or compiled against the
.pxd files of regimekit (setup.py), which the filter calls directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cython
import numpy as np
from cython.cimports.libc.math import fabs, lgamma, log, log1p, sqrt

from regimekit.core.exceptions import RegimekitError, SnapshotError, positive
from regimekit.core.registry import register
from regimekit.ihmm.emissions.base import EmissionSettings, PythonEmission
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.settings import RegimeSettings

if not cython.compiled:
    # Compiled, the .pxd file imports this class at C level.
    from regimekit.ihmm.emissions.base import Emission

MAX_COUNT = cython.declare(cython.double, 1e15)  # counts beyond this are cut to it


@dataclass(frozen=True)
class PoissonSettings(EmissionSettings):
    """Settings of the emission: mean of the prior rate, and its weight in observations."""

    rate: float = 1.0
    prior_size: float = 1.0

    def build(self, shape: Any, scoring: Any, longest: int) -> Any:
        """Return the emission; in plain Python it needs a wrapper with the C interface."""
        if shape.coefficients != 1:
            raise RegimekitError(
                f"poisson_ihmm needs one coordinate of y and an intercept only, got {shape}."
            )
        made = Poisson(shape, self, scoring)
        return made if cython.compiled else PythonEmission(made)

    def dim_hint(self) -> int:
        """Return the number of coordinates of y."""
        return 1

    def check(self) -> None:
        """Raise RegimekitError if a setting is not positive."""
        positive("rate", self.rate)
        positive("prior_size", self.prior_size)


class Poisson(Emission):
    """Counts with an unknown rate in every regime.

    Args:
        shape: sizes of y and of the features.
        settings: prior of the rate.
        scoring: weight and score of an observation.
    """

    def __init__(self, shape, settings, scoring):
        Emission.__init__(self, shape, scoring, (1, 1))
        self.prior_events = float(settings.rate * settings.prior_size)
        self.prior_time = float(settings.prior_size)
        self.events, self.time = np.zeros(0), np.zeros(0)
        self.work_events, self.work_time = np.zeros(0), np.zeros(0)
        # The filter resizes these arrays and writes them to snapshots.
        self.row_arrays = ("events", "time")
        self.candidate_arrays = ("work_events", "work_time")

    # Kernels: no validation, no exceptions.

    def begin(self, place, row):
        self.work_events[place] = self.events[row]
        self.work_time[place] = self.time[row]

    def predict(self, place, row):
        mean: cython.double = self.work_events[place] / self.work_time[place]
        self.predictive.location[place, 0] = mean
        self.predictive.spread[place, 0, 0] = mean * (1.0 + 1.0 / self.work_time[place])
        # The row at the start of the batch: only the text of the paper uses it (D4, D7).
        mean = self.events[row] / self.time[row]
        self.predictive.start_location[place, 0] = mean
        self.predictive.start_spread[place, 0, 0] = mean * (1.0 + 1.0 / self.time[row])

    def update(self, place, row, fresh):
        y: cython.double = min(max(self.observation.y[0], 0.0), MAX_COUNT)
        scale: cython.double = sqrt(self.predictive.spread[place, 0, 0])
        z: cython.double = fabs(y - self.predictive.location[place, 0]) / scale
        log_mass: cython.double = log_negative_binomial(
            y, self.work_events[place], self.work_time[place]
        )
        self.judge(log_mass, z, scale, fresh)
        # A conjugate update, in which the observation counts as much as its weight.
        self.work_events[place] += self.judged_update * y
        self.work_time[place] += self.judged_update
        self.weight = self.judged_weight
        return self.judged_score

    def judge(self, log_mass, z, scale, fresh):
        """Score and weigh the observation as every other emission does."""
        log_scale: cython.double = log(scale)
        if cython.compiled:
            score, weight, learnt = self.scoring.judge(log_mass, z, z, log_scale, 1, fresh)
        else:
            score, weight, learnt = self.scoring.judge_in_python(
                log_mass, z, z, log_scale, 1, fresh
            )
        self.judged_score, self.judged_weight, self.judged_update = score, weight, learnt

    def finalize(self, place, row, into):
        self.events[into] = self.work_events[place]
        self.time[into] = self.work_time[place]

    def draw_prior(self, prior, row, random):
        # Deviation D9 switched off: the prior is not drawn here, every regime starts from it.
        self.events[row] = self.events[prior]
        self.time[row] = self.time[prior]

    def coefficient_distance(self, a, b):
        gap: cython.double = self.events[a] / self.time[a] - self.events[b] / self.time[b]
        variance: cython.double = self.events[a] / (self.time[a] * self.time[a])
        variance += self.events[b] / (self.time[b] * self.time[b])
        return fabs(gap) / sqrt(variance)

    def joint_distance(self, a, b):
        return self.coefficient_distance(a, b)

    # Description, in Python.

    def write_prior(self, row):
        """Write the statistics of a regime without observations."""
        self.events[row] = self.prior_events
        self.time[row] = self.prior_time

    def check_rows(self, live):
        """Raise SnapshotError if a stored row is no Gamma distribution."""
        rows = np.concatenate([np.asarray(self.events)[live], np.asarray(self.time)[live]])
        if not (rows > 0.0).all():
            raise SnapshotError("Invalid snapshot: events and time of a regime must be positive.")

    def noise_covariance(self):
        """Return the variance (1, 1) of a count under the prior."""
        mean = self.prior_events / self.prior_time
        return np.array([[mean * (1.0 + 1.0 / self.prior_time)]])

    def coefficients(self, row):
        """Return mean and standard deviation of the rate of a regime."""
        events, time = float(self.events[row]), float(self.time[row])
        return np.array([events / time]), np.array([events**0.5 / time])


def log_negative_binomial(y, events, time):
    """Return the log probability of the count y under rate ~ Gamma(events, time)."""
    value: cython.double = lgamma(y + events) - lgamma(events) - lgamma(y + 1.0)
    return value - events * log1p(1.0 / time) - y * log1p(time)


def poisson_ihmm(rate: float = 1.0, prior_size: float = 1.0, **settings: Any) -> RegimeModel:
    """Make an online infinite HMM of counts.

    Args:
        rate: prior mean of the rate of a regime, events per observation.
        prior_size: weight of the prior, in observations.
        **settings: settings of the family, as for `regimekit.br_ihmm`.

    Returns:
        The model.
    """
    return RegimeModel(
        "poisson_ihmm", RegimeSettings(**settings), PoissonSettings(rate, prior_size)
    )


# `regimekit.make`, `regimekit.load` and the command line then find the model by name.
register("poisson_ihmm", __name__, "online infinite HMM of counts", "example of docs/extending.md")
