"""Forecasts on data that the model itself could have made: the PIT is uniform, intervals hold.

If y_t is drawn from its own forecast given the past, u_t = F_t(y_t) are independent and uniform,
whatever the forecasts look like. So a Kolmogorov-Smirnov test of the pooled u_t has its stated
level, and n intervals of 90 % hold 0.9 n +- 4.4 sqrt(0.09 n) of their points in all but one
suite in 100 000.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import regimekit as rk

NOISE, PRIOR_VAR = 0.5, 4.0
UNWEIGHTED: dict[str, dict[str, Any]] = {
    "no weight": {"weight": "none"},
    "infinite threshold": {"weight": "imq", "threshold": math.inf},
}


def transforms(model: Any, y: np.ndarray, x: np.ndarray | None = None) -> list[float]:
    """u_t = F_t(y_t) of each forecast before its observation is learnt."""
    found = []
    for t, y_t in enumerate(y):
        x_t = None if x is None else x[t]
        found.append(model.predict(x_t).cdf(y_t))
        model.update(y_t, x_t)
    return found


def assert_calibrated(u: np.ndarray) -> None:
    """Kolmogorov-Smirnov at 1e-5; coverage and spread (Var u = 1/12) within 4.4 sd."""
    n = u.size
    assert stats.kstest(u, "uniform").pvalue > 1e-5
    covered = ((u >= 0.05) & (u <= 0.95)).mean()
    assert abs(covered - 0.9) < 4.4 * math.sqrt(0.09 / n)
    spread = np.mean((u - 0.5) ** 2)
    assert abs(spread - 1 / 12) < 4.4 * math.sqrt((1 / 80 - 1 / 144) / n)


@pytest.mark.parametrize("setting", list(UNWEIGHTED))
def test_one_regime_with_covariates(setting: str) -> None:
    """30 streams of 60: coefficients from the prior, one regime (alpha next to 0)."""
    rng, u = np.random.default_rng(21), []
    for seed in range(30):
        theta = rng.normal(0, math.sqrt(PRIOR_VAR), 2)
        x = rng.standard_normal((60, 2))
        y = x @ theta + rng.normal(0, math.sqrt(NOISE), 60)
        model = rk.br_ihmm(
            features=rk.features.columns(),
            noise=NOISE,
            prior_var=PRIOR_VAR,
            batch=3,
            particles=2,
            alpha_prior=(1.0, 1e15),
            seed=seed,
            **UNWEIGHTED[setting],
        )
        u += transforms(model, y, x)
    assert_calibrated(np.array(u))


def from_the_prior(batches: int, batch: int, rng: np.random.Generator) -> np.ndarray:
    """A stream of the whole hierarchical model: alpha, gamma, beta, path, levels, noise."""
    alpha, gamma = rng.gamma(1.0, 1.0, 2)
    beta, levels, y = [1.0], [], []
    counts: dict[tuple[int, int], int] = {}
    regime = -1
    for _ in range(batches):
        mass = np.array([counts.get((regime, k), 0) + alpha * b for k, b in enumerate(beta)])
        chosen = int(rng.choice(mass.size, p=mass / mass.sum()))
        if chosen == len(levels):
            v = rng.beta(1.0, gamma)
            beta[-1:] = [v * beta[-1], (1 - v) * beta[-1]]
            levels.append(rng.normal(0, math.sqrt(PRIOR_VAR)))
        counts[regime, chosen] = counts.get((regime, chosen), 0) + 1
        regime = chosen
        y += list(rng.normal(levels[regime], math.sqrt(NOISE), batch))
    return np.array(y)


@pytest.mark.slow
@pytest.mark.parametrize("setting", list(UNWEIGHTED))
@pytest.mark.parametrize("batch", [1, 3])
def test_streams_drawn_from_the_whole_prior(setting: str, batch: int) -> None:
    """60 streams of 60 with all that the model believes; 200 particles stand for the posterior.

    The level holds for the exact posterior. With N particles a forecast is off by a share of
    order 1 / N of its own variance, far below what 3600 points can show.
    """
    rng, u = np.random.default_rng(22), []
    for seed in range(60):
        y = from_the_prior(60 // batch, batch, rng)
        model = rk.br_ihmm(
            noise=NOISE,
            prior_var=PRIOR_VAR,
            batch=batch,
            particles=200,
            seed=seed,
            max_regimes=40,
            **UNWEIGHTED[setting],
        )
        u += transforms(model, y)
    assert_calibrated(np.array(u))


@pytest.mark.slow
def test_three_regimes_with_known_noise() -> None:
    """A hidden Markov model with three levels from the prior and a fixed transition matrix.

    Not the model's own prior, but inside it: after 400 observations the transitions are
    learnt. 10 streams of 1000.
    """
    rng, u = np.random.default_rng(23), []
    for seed in range(10):
        levels = rng.normal(0, math.sqrt(PRIOR_VAR), 3)
        path, regime = [], 0
        for _ in range(250):
            regime = regime if rng.random() < 0.9 else int(rng.integers(3))
            path += [regime] * 4
        y = levels[path] + rng.normal(0, math.sqrt(NOISE), 1000)
        model = rk.br_ihmm(
            noise=NOISE, prior_var=PRIOR_VAR, batch=4, particles=100, seed=seed, weight="none"
        )
        u += transforms(model, y)[400:]
    assert_calibrated(np.array(u))


def test_a_weight_leaves_intervals_as_wide_as_they_should_be() -> None:
    """With the default weight and clean data from one regime: 0.9 are covered, up to chance.

    A weight leaves Sigma a little larger than the posterior's, by less than 1200 points show.
    """
    rng, u = np.random.default_rng(24), []
    for seed in range(20):
        y = rng.normal(rng.normal(0, math.sqrt(PRIOR_VAR)), math.sqrt(NOISE), 60)
        model = rk.br_ihmm(
            noise=NOISE, prior_var=PRIOR_VAR, particles=2, alpha_prior=(1.0, 1e15), seed=seed
        )
        u += transforms(model, y)
    covered = np.mean([0.05 <= v <= 0.95 for v in u])
    assert abs(covered - 0.9) < 4.4 * math.sqrt(0.09 / len(u))
