"""Resampling of particles: unbiased, near its share, and the effective sample size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regimekit.core.random import RandomSource
from regimekit.ihmm.resampling import SCHEMES, Resampler, effective_sample_size


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_resampling_is_unbiased(scheme: str) -> None:
    """E(copies of i) = N omega_i. 4.9 standard errors for 12 particles: 1e-5 per scheme."""
    rng = np.random.default_rng(3)
    resampler, random = Resampler(SCHEMES[scheme], 12), RandomSource(rng)
    weights = rng.dirichlet(np.full(12, 0.5))
    rounds = 4000
    copies = np.array(
        [
            np.bincount(resampler.draw_parents(np.log(weights), random), minlength=12)
            for _ in range(rounds)
        ]
    )
    error = np.abs(copies.mean(axis=0) - 12 * weights)
    # Where the count never varied (or hardly ever) the multinomial bound is the safe one.
    sd = np.sqrt(12 * weights * (1 - weights))
    assert (error < 4.9 * sd / math.sqrt(rounds) + 5 / rounds).all()


@pytest.mark.parametrize("scheme", ["systematic", "stratified"])
def test_low_variance_schemes_stay_near_their_share(scheme: str) -> None:
    """Systematic: within one of N omega; stratified: within two."""
    rng = np.random.default_rng(4)
    resampler, random = Resampler(SCHEMES[scheme], 9), RandomSource(rng)
    slack = 1 if scheme == "systematic" else 2
    for _ in range(300):
        weights = rng.dirichlet(np.full(9, 0.4))
        parents = resampler.draw_parents(np.log(weights), random)
        copies = np.bincount(parents, minlength=9)
        assert copies.sum() == 9 and (np.diff(parents) >= 0).all()
        assert (np.abs(copies - 9 * weights) < slack + 1e-9).all()


def test_effective_sample_size() -> None:
    assert effective_sample_size(np.log(np.full(8, 1 / 8)), 0, 8) == pytest.approx(8.0)
    one = np.array([0.0, -np.inf, -np.inf])
    assert effective_sample_size(one, 0, 3) == pytest.approx(1.0)
    three = np.log([0.1, 0.5, 0.25, 0.25])  # the first belongs to another island
    assert effective_sample_size(three, 1, 3) == pytest.approx(1 / 0.375)
