"""Every probabilistic model on clean data with its true hyper-parameters, 100 seeds each.

The requirement is a PIT that looks uniform and 90 % intervals that cover 88 to 92 %. With 100
streams of 60 points a calibrated model leaves that band by chance with probability below 1e-6;
the Kolmogorov-Smirnov test has level 1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from test_calibration import NOISE, PRIOR_VAR, from_the_prior, transforms

import regimekit as rk

SEEDS, LENGTH = 100, 60
Generator = np.random.Generator


def segments(hazard: float) -> Callable[[Generator], np.ndarray]:
    """Levels from the prior that last until a change of constant hazard."""

    def draw(rng: Generator) -> np.ndarray:
        level, y = rng.normal(0, math.sqrt(PRIOR_VAR)), np.empty(LENGTH)
        for t in range(LENGTH):
            if rng.random() < hazard:
                level = rng.normal(0, math.sqrt(PRIOR_VAR))
            y[t] = rng.normal(level, math.sqrt(NOISE))
        return y

    return draw


def unknown_noise(rng: Generator) -> np.ndarray:
    """One regime of student_t_ihmm's prior: variance IG(2, 0.5), level N(0, variance V0)."""
    variance = 0.5 / rng.gamma(2.0)
    level = rng.normal(0, math.sqrt(PRIOR_VAR * variance * 2.0 / 0.5))
    return rng.normal(level, math.sqrt(variance), LENGTH)


def volatility(rng: Generator) -> np.ndarray:
    """One regime of garch_ihmm's prior: medians and log, logit spreads as its settings say."""
    long_run = math.exp(1.5 * rng.standard_normal())
    persistence = 1 / (1 + math.exp(-(math.log(0.9 / 0.1) + 0.5 * rng.standard_normal())))
    reaction = 1 / (1 + math.exp(-(math.log(0.1 / 0.9) + 0.5 * rng.standard_normal())))
    omega, a = long_run * (1 - persistence), persistence * reaction
    b, variance, y = persistence - a, long_run, np.empty(LENGTH)
    for t in range(LENGTH):
        y[t] = math.sqrt(variance) * rng.standard_normal()
        variance = omega + a * y[t] ** 2 + b * variance
    return y


ONE_REGIME = {"alpha_prior": (1.0, 1e15), "particles": 2}
LEVEL = {"noise": NOISE, "prior_var": PRIOR_VAR}
CASES: dict[str, tuple[dict[str, Any], Callable[[Generator], np.ndarray]]] = {
    "ihmm": (LEVEL | {"max_regimes": 40}, lambda rng: from_the_prior(LENGTH, 1, rng)),
    "br_ihmm": (
        LEVEL | {"batch": 3, "weight": "none", "max_regimes": 40},
        lambda rng: from_the_prior(LENGTH // 3, 3, rng),
    ),
    "student_t_ihmm": (ONE_REGIME | {"weight": "none", "prior_var": PRIOR_VAR}, unknown_noise),
    "garch_ihmm": (ONE_REGIME | {"weight": "none", "sticky": 0.0}, volatility),
    "bocd": (LEVEL | {"hazard": 0.02}, segments(0.02)),
    # Full weight (a far threshold and scale) and omega = R / 2 make it BOCD's own posterior.
    "dsm_bocd": (
        LEVEL
        | {
            "hazard": 0.02,
            "variance": "known",
            "training": 0,
            "omega": NOISE / 2,
            "scale": 1e6,
            "threshold": math.inf,
        },
        segments(0.02),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_calibrated_over_100_seeds(name: str) -> None:
    settings, draw = CASES[name]
    rng, u = np.random.default_rng(31), []
    for seed in range(SEEDS):
        own = settings | ({"seed": seed} if "seed" in rk.make(name).settings() else {})
        u += transforms(rk.make(name, **own), draw(rng))
    covered = np.mean([0.05 <= v <= 0.95 for v in u])
    assert 0.88 <= covered <= 0.92
    assert stats.kstest(u, "uniform").pvalue > 1e-5


@pytest.mark.slow
def test_beam_ihmm_forecasts_hold_their_share() -> None:
    """100 streams of 40 from one regime; the 41st is forecast from a fit on the others.

    100 intervals of 90 % hold 90 +- 4.4 * 3 of their points but for one suite in 100 000.
    """
    rng, hits = np.random.default_rng(32), 0
    for seed in range(SEEDS):
        y = rng.normal(rng.normal(0, math.sqrt(PRIOR_VAR)), math.sqrt(NOISE), 41)
        model = rk.beam_ihmm(**LEVEL, iterations=100, seed=seed)
        model.run(y[:40])
        low, high = model.predict().interval(0.9)
        hits += low <= y[40] <= high
    assert abs(hits - 90) <= 13
