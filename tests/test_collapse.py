"""A posterior after contaminated observations is a mixture; how well one Gaussian stands for it.

Given which observations were outliers the posterior of a level is Gaussian, so after n of them it
is a mixture of 2^n Gaussians. Two ways to keep one Gaussian, observation by observation:

    tempered   learn y with noise R / r, r the probability that y is no outlier
    matched    mean and variance of the two-component mixture

Here both are held against the exact mixture on streams drawn from the model itself.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
NOISE, WIDE = 1.0, 20.0


class Gaussian(NamedTuple):
    mean: float
    variance: float


class Mixture(NamedTuple):
    """The exact posterior: log weights, means and variances of its components."""

    log_weight: Array
    mean: Array
    variance: Array


def log_both(y: float, mean: Array, variance: Array, eps: float) -> tuple[Array, float]:
    """log (1 - eps) f(y) of each component, and log eps q(y)."""
    regular = math.log1p(-eps) + stats.norm.logpdf(y, mean, np.sqrt(variance + NOISE))
    return np.asarray(regular), math.log(eps) + float(stats.t.logpdf(y / WIDE, 2)) - math.log(WIDE)


def exactly(m: Mixture, y: float, eps: float) -> Mixture:
    """Every component splits in two."""
    regular, outlier = log_both(y, m.mean, m.variance, eps)
    gain = m.variance / (m.variance + NOISE)
    return Mixture(
        np.concatenate([m.log_weight + regular, m.log_weight + outlier]),
        np.concatenate([m.mean + gain * (y - m.mean), m.mean]),
        np.concatenate([m.variance * (1 - gain), m.variance]),
    )


def believed(g: Gaussian, y: float, eps: float) -> float:
    regular, outlier = log_both(y, np.array(g.mean), np.array(g.variance), eps)
    return float(np.exp(regular - np.logaddexp(regular, outlier)))


def tempered(g: Gaussian, y: float, eps: float) -> Gaussian:
    r = believed(g, y, eps)
    gain = r * g.variance / (r * g.variance + NOISE)
    return Gaussian(g.mean + gain * (y - g.mean), g.variance * (1 - gain))


def matched(g: Gaussian, y: float, eps: float) -> Gaussian:
    r = believed(g, y, eps)
    gain = g.variance / (g.variance + NOISE)
    shift = gain * (y - g.mean)
    variance = g.variance * (1 - r * gain) + r * (1 - r) * shift**2
    return Gaussian(g.mean + r * shift, variance)


def divergence(m: Mixture, g: Gaussian) -> float:
    """KL of the exact posterior from the Gaussian, on a grid."""
    share = np.exp(m.log_weight - m.log_weight.max())
    share /= share.sum()
    heavy = share > 1e-10
    mean, sd = m.mean[heavy], np.sqrt(m.variance[heavy])
    low, high = (mean - 8 * sd).min(), (mean + 8 * sd).max()
    grid = np.linspace(low, high, 1001)
    density = share[heavy] @ stats.norm.pdf(grid, mean[:, None], sd[:, None])
    ratio = np.log(np.maximum(density, 1e-300)) - stats.norm.logpdf(
        grid, g.mean, math.sqrt(g.variance)
    )
    return float((density * ratio).sum() * (grid[1] - grid[0]))


def stream(rng: np.random.Generator, n: int, spread: float, eps: float) -> Array:
    """From the model: a level, its noise, and outliers around zero, the first value regular."""
    y = rng.normal(rng.normal(0, math.sqrt(spread)), math.sqrt(NOISE), n)
    bad = rng.random(n) < eps
    bad[0] = False
    return np.where(bad, WIDE * rng.standard_t(2, n), y)


def losses(spread: float, eps: float, runs: int, n: int = 6, sure: bool = True) -> Array:
    """(runs, 2) divergence of tempered and of matched after n observations.

    `sure`: the first observation is believed, as a newborn's branch does (D10).
    """
    rng = np.random.default_rng(5)
    found = np.empty((runs, 2))
    for run in range(runs):
        y = stream(rng, n, spread, eps)
        start = Gaussian(0.0, spread)
        if sure:
            gain = spread / (spread + NOISE)
            start = Gaussian(gain * y[0], spread * (1 - gain))
        exact = Mixture(np.zeros(1), np.array([start.mean]), np.array([start.variance]))
        one, two = start, start
        for value in y[1:] if sure else y:
            exact = exactly(exact, value, eps)
            one, two = tempered(one, value, eps), matched(two, value, eps)
        found[run] = divergence(exact, one), divergence(exact, two)
    return found


CASES = [(4.0, 0.02), (4.0, 0.1), (100.0, 0.02), (100.0, 0.1)]


if __name__ == "__main__":
    for sure in (True, False):
        for spread, eps in CASES:
            for n in (2, 6):
                both = losses(spread, eps, 300, n, sure)
                print(f"sure={sure} P0/R={spread:5.0f} eps={eps:.2f} n={n}  tempered {both[:,0].mean():.5f} (99% {np.quantile(both[:,0],.99):.3f})"
                      f"  matched {both[:,1].mean():.5f} (99% {np.quantile(both[:,1],.99):.3f})  matched closer in {np.mean(both[:,1]<both[:,0]):.2f}", flush=True)
