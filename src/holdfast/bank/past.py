"""The past, twice: as it was observed and as it was believed, until the next value decides.

A large error is either additive (a spike: the next value does not know of it) or real (a jump: the
next value starts from it). Which one is seen one observation later. Until then both pasts are kept
and forecasts mix them; afterwards the one that explained the next value better is the past.
With e the error in noise scales, r the rate of outliers and rho the share of large errors that
turned out real so far,

    P(real) ~ rho (1 - r) t_3(e),      P(additive) ~ (1 - rho) r q(e),    q = t_2, 20 scales wide

so that the larger the error, the surer it counts as a spike until the next value says otherwise:
P(real) is a half at e = 10, P(real) e is below 1.5 beyond 30, and a value of 1e300 never gets into
a lag alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.checks import Arrays, Values, affordable
from holdfast.mixture import log_standard

Array = NDArray[np.float64]

CLEAN, RAW = 0, 1
BROAD = 20.0  # scale of the density of outliers, in noise scales
LARGEST = 1e6  # of a lag, in units
REACH = 0.25  # of the width of the past, beyond which nothing is expected
_HEAVY = 3.0
_FADE = 0.99  # of what is known about large errors, per large error


class TwoPasts:
    """The latest values of a stream, latest last, in two versions that differ while in doubt.

    Attributes:
        values: (2, depth, d) the cleaned and the raw past; equal unless `pending`.
        real: (2,) how often a large error turned out additive, real (with a prior of one each).
        p_raw: probability that the pending one is real; 0 when nothing is pending.
    """

    def __init__(self, depth: int, dim: int) -> None:
        affordable("features", 2.0 * depth * dim)
        self.values = np.zeros((2, depth, dim))
        self.count = 0  # of them that were pushed; those before are zero
        self.real = np.ones(2)
        self.p_raw = 0.0
        self.pending = False

    def push(self, clean: Array, raw: Array) -> None:
        """One more value, in its two versions."""
        self.count = min(self.count + 1, self.values.shape[1])
        self.values[:, :-1] = self.values[:, 1:]
        self.values[CLEAN, -1] = np.clip(clean, -LARGEST, LARGEST)
        self.values[RAW, -1] = np.clip(raw, -LARGEST, LARGEST)

    def doubt(self, error: float, rate: float) -> None:
        """The latest value had this error, in noise scales: keep both versions for now."""
        rho = self.real[RAW] / self.real.sum()
        log_real = math.log(rho * (1 - rate)) + log_standard(min(abs(error), 1e100), _HEAVY)
        log_spike = math.log((1 - rho) * rate) + log_broad(error)
        self.pending = True
        self.p_raw = 1.0 / (1.0 + math.exp(min(log_spike - log_real, 700.0)))

    @property
    def jump(self) -> Array:
        """(d,) from what was believed of the latest value to what was observed."""
        return np.asarray(self.values[RAW, -1] - self.values[CLEAN, -1])

    def decide(self, log_clean: float, log_raw: float) -> int:
        """The version under which the next value had the larger evidence; the other is dropped."""
        odds = math.log(max(self.p_raw, 1e-300)) - math.log1p(-min(self.p_raw, 1 - 1e-15))
        odds += log_raw - log_clean
        version = RAW if odds > 0 else CLEAN
        share = 1.0 / (1.0 + math.exp(-max(min(odds, 700.0), -700.0)))
        self.real = 1.0 + _FADE * (self.real - 1.0) + np.array([1.0 - share, share])
        self.settle(version)
        return version

    def settle(self, version: int) -> None:
        """This version is the past."""
        self.values[1 - version] = self.values[version]
        self.pending, self.p_raw = False, 0.0

    def design(self, version: int, steps: NDArray[np.int64], season: Array | None = None) -> Array:
        """The lag of the first step, then the differences of the others to it: (k, d).

        Less the season, (period, d) from the phase of the next value on, if one is given. A lag
        from before the first value differs by nothing: what is learnt then does not hang on it.
        """
        values = self.values[version, -steps]
        if season is not None:
            values -= season[-steps % len(season)]
        values[1:] -= values[0]
        values[1:][steps[1:] > self.count] = 0.0
        return np.asarray(values)

    def within_reach(self, version: int, location: Array) -> Array:
        """Expectations (k, d), none of them far beyond all that the past holds.

        A regime that has just been born among large lags may expect anything.
        """
        values = self.values[version]
        low, high = values.min(axis=0), values.max(axis=0)
        margin = REACH * (high - low) + BROAD
        return np.clip(location, low - margin, high + margin)

    def seasons(self, version: int, period: int, most: int) -> Array:
        """The latest whole periods, at most so many: (k period, d)."""
        whole = min(self.count // period, most) * period
        return self.values[version, self.values.shape[1] - whole :]

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State for a snapshot."""
        values = {"p_raw": self.p_raw, "pending": self.pending, "count": self.count}
        return values, {"past": self.values.copy(), "real": self.real.copy()}

    def unpack(self, values: Values, arrays: Arrays) -> None:
        """Take up what `pack` gave."""
        self.pending = values.flag("pending")
        self.count = values.whole("count", 0, self.values.shape[1])
        self.p_raw = values.number("p_raw", 0.0, 1.0 if self.pending else 0.0)
        self.values = arrays.floats("past", self.values.shape, -LARGEST, LARGEST)
        self.real = arrays.floats("real", (2,), 0.5, 1e3)


def log_broad(error: float) -> float:
    """Log density of an outlier at this many noise scales."""
    return float(log_standard(min(abs(error), 1e100) / BROAD, 2.0)) - math.log(BROAD)
