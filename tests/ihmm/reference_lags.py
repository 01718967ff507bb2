"""The past in doubt (D13) in plain Python: what the witness looks back on.

Two lists of values, as observed and as believed, that differ after a large error until the next
value that is seen decides between them. Densities are SciPy's; nothing of the library is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from reference_parts import Array
from scipy import stats

Part = tuple[float, Array, Array]  # share, mean, covariance of a Gaussian
Parts = Callable[[list[Array]], list[Part]]  # the forecast, given a past


class Middle(NamedTuple):
    """Where the forecast is, and its scale: per coordinate."""

    centre: Array
    noise: Array


class Doubts:
    """The values so far, and what large errors have turned out to be."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.clean: list[Array] = []
        self.raw: list[Array] = []
        self.p_raw: float | None = None  # None: nothing is in doubt
        self.error, self.decided = 0.0, 0
        self.additive, self.real, self.log_sizes = 1.0, 1.0, 0.0
        self.dropped: tuple[list[Array], float] = ([], 0.0)  # the raw past, how likely it was

    def expected(self, parts: Parts) -> list[Part]:
        """The forecast: from both pasts while they differ."""
        if self.p_raw is None:
            return parts(self.clean)
        clean = [(share * (1 - self.p_raw), *rest) for share, *rest in self._additive(parts)]
        raw = [(share * self.p_raw, *rest) for share, *rest in parts(self.raw)]
        return [*clean, *raw]

    def _additive(self, parts: Parts) -> list[Part]:
        """The forecast if the latest value was a spike: by those that did not believe it."""
        law = parts(self.clean)
        jump = self.raw[-1] - self.clean[-1]
        length = max(float(jump @ jump), 1e-300)  # what is believed may be what was observed
        along = sorted((part[1] @ jump / length, part[0]) for part in law)
        half = 0.5 * sum(share for _, share in along)
        below = np.cumsum([share for _, share in along])
        median = along[int(np.argmax(below >= half))][0]
        kept = [part for part in law if part[1] @ jump / length - median <= 0.25]
        factor = sum(part[0] for part in law) / sum(part[0] for part in kept)
        return [(factor * share, *rest) for share, *rest in kept]

    def decide(self, y: Array, parts: Parts, rate: float) -> None:
        """Before y is learnt: which past does it go on from?"""
        if self.p_raw is None or np.isnan(y).all():
            return
        middle = centre_and_noise(self.expected(parts))
        seen = ~np.isnan(y)
        broad = math.log(rate) + seen.sum() * log_q(largest_error(y, middle))
        broad -= np.log(middle.noise[seen]).sum()
        clean, raw = (
            np.logaddexp(math.log(1 - rate) + log_density(y, law), broad)
            for law in (self._additive(parts), parts(self.raw))
        )
        odds = math.log(self.p_raw) - math.log(1 - self.p_raw) + raw - clean
        self.decided += 1
        was_real = 1 / (1 + math.exp(-odds))
        if odds > 0:
            self.clean = list(self.raw)
        else:
            self.dropped = list(self.raw), was_real
        self.raw = list(self.clean)
        self.additive = 1 + 0.99 * (self.additive - 1) + 1 - was_real
        self.real = 1 + 0.99 * (self.real - 1) + was_real
        self.log_sizes = 0.99 * self.log_sizes + was_real * math.log(max(self.error, 1.0))
        self.p_raw = None

    def push(self, y: Array, weight: float, before: list[Part], rate: float, on: bool) -> None:
        """After y was learnt with this weight; `before` is what had been expected."""
        believed = y
        if on and self.p_raw is None and not np.isnan(y).all() and weight < 0.5:
            middle = centre_and_noise(before)
            step = np.clip(weight * (y - middle.centre), -middle.noise, middle.noise)
            believed = middle.centre + step
            before = self.clean[-1] if self.clean else np.zeros(self.dim)
            most = np.abs(y - before)
            believed = before + np.clip(believed - before, -most, most)
            error = largest_error(y, middle)
            real = self.real / (self.real + self.additive) * (1 - rate) * self._density(error)
            spike = self.additive / (self.real + self.additive) * rate * math.exp(log_q(error))
            by_itself, (dropped, as_before) = real / (real + spike), self.dropped
            if as_before > by_itself:
                self.raw = dropped
            self.p_raw = by_itself + as_before - by_itself * as_before
            self.error = min(error, 100.0)
        self.dropped = ([], 0.0)
        for past, value in ((self.clean, believed), (self.raw, y)):
            last = past[-1] if past else np.zeros(self.dim)
            past.append(np.where(np.isnan(value), last, value))

    def _density(self, error: float) -> float:
        """Of a real error: any, or one of the size that real ones have had."""
        n, size = self.real - 1, math.exp(self.log_sizes / self.real)
        return float((stats.t.pdf(error, 3) + n * stats.t.pdf(error / size, 10) / size) / (1 + n))


def log_q(error: float) -> float:
    """A spike, in noise scales: t with 2 degrees of freedom, 20 wide."""
    return float(stats.t.logpdf(error / 20, 2) - math.log(20))


def largest_error(y: Array, middle: Middle) -> float:
    return float(np.nanmax(np.abs(y - middle.centre) / middle.noise))


def centre_and_noise(parts: list[Part]) -> Middle:
    total = math.fsum(share for share, _, _ in parts)
    centre = sum(share / total * mean for share, mean, _ in parts)
    noise = sum(share / total * 0.5 * np.log(np.diag(spread)) for share, _, spread in parts)
    return Middle(np.asarray(centre), np.exp(noise))


def log_density(y: Array, parts: list[Part]) -> float:
    """Of the coordinates that were seen, under a mixture of Gaussians."""
    seen = ~np.isnan(y)
    total = math.fsum(share for share, _, _ in parts)
    logs = [
        math.log(share / total)
        + stats.multivariate_normal.logpdf(y[seen], mean[seen], spread[np.ix_(seen, seen)])
        for share, mean, spread in parts
        if share > 0
    ]
    return float(np.logaddexp.reduce(logs))
