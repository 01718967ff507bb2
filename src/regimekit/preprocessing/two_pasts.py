"""The past, twice: as it was observed and as it was believed, until the next value decides.

A large error is either additive (a spike: the next value does not know of it) or real (a jump: the
next value starts from it). Which one is seen one observation later. Until then both pasts are kept
and forecasts mix them; afterwards the one that explained the next value better is the past.
With e the error in noise scales, r the rate of outliers and rho the share of large errors that
turned out real so far,

    P(real) ~ rho (1 - r) f(e),      P(additive) ~ (1 - rho) r q(e),      q = t_2, 20 scales wide

    f(e) = (t_3(e) + n t_10(e / s) / s) / (1 + n)

with n the number of real ones so far and s their usual size. Where none was seen yet, the larger
the error, the surer it counts as a spike until the next value says otherwise: with r = .02 P(real)
is a half at e = 10 and P(real) e is below 1.5 beyond 30. A stream whose jumps are real is believed
at once, up to the size that its jumps have had; a value of 1e300 never gets into a lag alone.

If the next value is in doubt as well, the stream may have jumped one observation before: that the
first error was real is not forgotten, and both are if the second one is.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.distributions.student_t_mixture import log_standard
from regimekit.serialization.validation import Arrays, Values, affordable

Array = NDArray[np.float64]

CLEAN, RAW = 0, 1
BROAD = 20.0  # scale of the density of outliers, in noise scales
DOUBT = 0.5  # an observation less likely regular than this is looked at twice
_HEAVY, _USUAL = 3.0, 10.0  # degrees of freedom: of any real error, of those as seen before
_SIZES = (1.0, 100.0)  # of real errors, in noise scales, as they are remembered
_FADE = 0.99  # of what is known about large errors, per large error
_LARGEST = 1e300  # of a value that is stored
_FARTHEST = 1e150  # a jump whose square is still finite
_FOLLOWS = 0.25  # of the way to a doubtful value: a component that far along believes it


class TwoPasts:
    """The latest values of a stream, latest last, in two versions that differ while in doubt.

    A value that was not seen repeats the one before it, or 0.

    Attributes:
        values: (2, depth, d) the cleaned and the raw past; equal unless `pending`.
        real: (2,) how often a large error turned out additive, real (with a prior of one each).
        size: the sum of the logarithms of the sizes of those that turned out real.
        p_raw: probability that the pending one is real; 0 when nothing is pending.
        error: its size in noise scales.
        largest: no value beyond this is kept.

    Example:
        >>> past = TwoPasts(depth=2, dim=1)
        >>> past.doubt(np.array([5.0]), np.array([900.0]), error=895.0, rate=0.05)
        >>> past.decide(log_clean=-1.0, log_raw=-400.0) == CLEAN, past.values[RAW].tolist()
        (True, [[0.0], [5.0]])
    """

    largest = _LARGEST

    def __init__(self, depth: int, dim: int) -> None:
        affordable("features", 2.0 * depth * dim)
        self.values = np.zeros((2, depth, dim))
        self.real = np.ones(2)
        self.size = 0.0
        self.p_raw = 0.0
        self.error = 0.0
        self.pending = False
        self._dropped: tuple[Array, float] | None = None  # the raw past, and how likely it was

    @property
    def depth(self) -> int:
        """How many values are remembered."""
        return int(self.values.shape[1])

    def push(self, clean: Array, raw: Array) -> None:
        """One more value, in its two versions."""
        self._dropped = None
        if self.depth:
            self.values[:, :-1] = self.values[:, 1:]
            for version, value in ((CLEAN, clean), (RAW, raw)):
                bounded = np.clip(value, -self.largest, self.largest)
                np.copyto(self.values[version, -1], bounded, where=~np.isnan(value))

    def doubt(self, clean: Array, raw: Array, error: float, rate: float) -> None:
        """One more value, with this error in noise scales: keep both versions for now."""
        rho = self.real[RAW] / self.real.sum()
        log_real = math.log(rho * (1 - rate)) + self._log_jump(min(abs(error), 1e100))
        log_spike = math.log((1 - rho) * rate) + log_broad(error)
        by_itself = 1.0 / (1.0 + math.exp(min(log_spike - log_real, 700.0)))
        before, as_before = self._dropped or (self.values[RAW], 0.0)
        self.push(clean, raw)
        if as_before > by_itself:
            self.values[RAW, :-1] = before[1:]
        self.p_raw = by_itself + as_before - by_itself * as_before  # keeps what is tiny
        self.pending, self.error = True, min(abs(error), _SIZES[1])

    def _log_jump(self, error: float) -> float:
        """Log density of a real error of this size: f above."""
        n = float(self.real[RAW]) - 1.0
        size = math.exp(self.size / float(self.real[RAW]))
        usual = log_standard(error / size, _USUAL) - math.log(size)
        mixed = np.logaddexp(log_standard(error, _HEAVY), math.log(max(n, 1e-300)) + usual)
        return float(mixed) - math.log1p(n)

    @property
    def masses(self) -> tuple[float, float]:
        """How likely the clean and the raw version are the past."""
        p_raw = self.p_raw if self.pending else 0.0
        return 1.0 - p_raw, p_raw

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
        self.size = _FADE * self.size + share * math.log(max(self.error, _SIZES[0]))
        raw = self.values[RAW].copy()
        self.settle(version)
        self._dropped = (raw, share) if version == CLEAN else None
        return version

    def settle(self, version: int) -> None:
        """This version is the past."""
        self.values[1 - version] = self.values[version]
        self.pending, self.p_raw, self.error = False, 0.0, 0.0

    def copy(self) -> Self:
        """An independent memory of the same values and doubts."""
        twin = type(self).__new__(type(self))
        twin.__dict__ |= self.__dict__
        twin.values, twin.real = self.values.copy(), self.real.copy()
        return twin

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State for a snapshot; the raw past only where it differs."""
        doubts = np.array([self.p_raw, self.error, *self.real, self.size])
        arrays = {"past": self.values[CLEAN].copy(), "doubts": doubts}
        if self.pending:
            arrays["past_raw"] = self.values[RAW].copy()
        return {"in_doubt": self.pending}, arrays

    def unpack(self, values: Values, arrays: Arrays) -> None:
        """Take up what `pack` gave."""
        self.pending = values.flag("in_doubt")
        doubts = arrays.floats("doubts", (5,), 0.0, 1e3)
        self.p_raw, self.error, self.size = doubts[[0, 1, 4]].tolist()
        self.real = doubts[2:4]
        most_likely = 1.0 if self.pending else 0.0
        if self.p_raw > most_likely or self.error > _SIZES[1] or self.real.min() < 1.0:
            raise SnapshotError(f"The snapshot's doubts {doubts.tolist()} are none that can be.")
        shape, most = self.values.shape[1:], self.largest
        self.values[:] = arrays.floats("past", shape, -most, most)
        if self.pending:
            self.values[RAW] = arrays.floats("past_raw", shape, -most, most)


def log_broad(error: float) -> float:
    """Log density of an outlier at this many noise scales."""
    return float(log_standard(min(abs(error), 1e100) / BROAD, 2.0)) - math.log(BROAD)


def unmoved(
    share: Array, location: Array, owner: NDArray[np.int64], jump: Array
) -> NDArray[np.bool_]:
    """Which components do not follow the latest value, where that is taken for a spike.

    A model has a regime that believed it, with little weight but far away; whether the value was
    real is asked by the version of the past in which it was.

    Args:
        share: (K,) of each component within its owner.
        location: (K, d) what it expects next.
        owner: (K,) whose it is.
        jump: (d,) from what was believed of the latest value to what was observed.
    """
    away = np.clip(jump, -_FARTHEST, _FARTHEST)
    along = location @ away / max(float(away @ away), 1e-300)
    for one in np.unique(owner):
        own = owner == one
        along[own] -= weighted_median(along[own, None], share[own])
    return np.asarray(along <= _FOLLOWS)


def weighted_median(location: Array, weight: Array) -> Array:
    """(d,) the median of locations (k, d) that have weights."""
    order = np.argsort(location, axis=0)
    half = np.cumsum(weight[order], axis=0) >= 0.5 * weight.sum()
    middle = np.take_along_axis(order, np.argmax(half, axis=0)[None], axis=0)
    return np.asarray(np.take_along_axis(location, middle, axis=0)[0])
