"""A posterior after contaminated observations is a mixture; how well one Gaussian stands for it.

Given which observations were outliers the posterior of a level is Gaussian, so after n of them it
is a mixture of 2^n Gaussians. Two ways to keep one Gaussian, observation by observation:

    tempered   learn y with noise R / r, r the probability that y is no outlier
    matched    mean and variance of the two-component mixture

Here both are compared with the exact mixture on streams drawn from the model itself, and the
emission with the first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from rows import LONGEST, Follower, scoring
from scipy import stats

from regimekit.ihmm.emissions.base import Shape
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings, LinearGaussian

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


def responsibility(g: Gaussian, y: float, eps: float) -> float:
    regular, outlier = log_both(y, np.array(g.mean), np.array(g.variance), eps)
    return float(np.exp(regular - np.logaddexp(regular, outlier)))


def tempered(g: Gaussian, y: float, eps: float) -> Gaussian:
    r = responsibility(g, y, eps)
    gain = r * g.variance / (r * g.variance + NOISE)
    return Gaussian(g.mean + gain * (y - g.mean), g.variance * (1 - gain))


def matched(g: Gaussian, y: float, eps: float) -> Gaussian:
    r = responsibility(g, y, eps)
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


def losses(spread: float, eps: float, runs: int, n: int = 6, known: bool = True) -> Array:
    """(runs, 2) divergence of tempered and of matched after n observations.

    `known`: the first observation is known to be regular.
    """
    rng = np.random.default_rng(5)
    found = np.empty((runs, 2))
    for run in range(runs):
        y = stream(rng, n, spread, eps)
        start = Gaussian(0.0, spread)
        if known:
            gain = spread / (spread + NOISE)
            start = Gaussian(gain * y[0], spread * (1 - gain))
        exact = Mixture(np.zeros(1), np.array([start.mean]), np.array([start.variance]))
        one, two = start, start
        for value in y[1:] if known else y:
            exact = exactly(exact, value, eps)
            one, two = tempered(one, value, eps), matched(two, value, eps)
        found[run] = divergence(exact, one), divergence(exact, two)
    return found


@pytest.mark.parametrize(("spread", "eps"), [(4.0, 0.02), (4.0, 0.1), (100.0, 0.1)])
def test_matching_moments_is_closer_once_a_regime_is_known(spread: float, eps: float) -> None:
    """With one observation that is known to be regular.

    Mean divergence after 6 observations, 300 streams each (tempered, matched):
    P0 / R = 4, eps = 0.02: 0.0027, 0.0014;  4, 0.1: 0.0085, 0.0014;  100, 0.1: 0.0114, 0.0024.
    """
    tempered_loss, matched_loss = losses(spread, eps, 60).mean(axis=0)
    assert matched_loss < tempered_loss < 0.05  # the filter's own collapse is close as well


def test_matched_is_the_best_gaussian_for_one_observation() -> None:
    """It has the mixture's mean and variance, which makes the divergence least."""
    both = losses(4.0, 0.1, 60, n=2)
    assert (both[:, 1] <= both[:, 0] + 1e-4).all()


def test_neither_is_close_while_nothing_is_known() -> None:
    """If the first observation may be an outlier, it leaves two posteriors far apart."""
    known_first = losses(4.0, 0.1, 60, n=2)
    collapsed_first = losses(4.0, 0.1, 60, n=2, known=False)
    assert (collapsed_first.mean(axis=0) > 2 * known_first.mean(axis=0)).all()


@pytest.mark.parametrize("eps", [0.02, 0.1])
def test_the_emission_collapses_by_tempering(eps: float) -> None:
    """The filter learns y with noise R / r: `tempered` to rounding, observation by observation."""
    rule = scoring("contamination")
    rule.log_rate, rule.log_regular = math.log(eps), math.log1p(-eps)
    settings = GaussianSettings(noise=NOISE, prior_var=4.0)
    row = Follower(LinearGaussian(Shape(1, 1), settings, rule, LONGEST))
    expected = Gaussian(0.0, 4.0)
    for y in (0.3, -1.2, 9.0, 60.0, 4.0, 0.1):
        rule.log_density = float(stats.t.logpdf(y / WIDE, 2)) - math.log(WIDE)
        row.learn(y, 1.0)
        expected = tempered(expected, y, eps)
        assert row.weight == pytest.approx(
            responsibility(Gaussian(*before(row)), y, eps), rel=1e-10
        )
        row.end_batch()
        mean, root = row.closed().values()
        assert mean[0, 0] == pytest.approx(expected.mean, rel=1e-10)
        assert root[0, 0] ** 2 == pytest.approx(expected.variance, rel=1e-10)


def before(row: Follower) -> tuple[float, float]:
    """Mean and variance of the level at the start of the batch."""
    return row.emission.mean[0, 0, 0], row.emission.root[0, 0, 0] ** 2
