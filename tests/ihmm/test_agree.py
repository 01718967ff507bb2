"""Whether two regimes may be one is asked along every direction, not coefficient by coefficient."""

from __future__ import annotations

import numpy as np
import pytest

import regimekit as rk
from regimekit.ihmm.emissions.base import apart, apart_anyhow
from regimekit.ihmm.emissions.linear_gaussian import GaussianRows
from regimekit.ihmm.label_matching import AGREE, within


def rows(gap: np.ndarray, covers: list[np.ndarray]) -> GaussianRows:
    """Two rows whose coefficients differ by `gap`."""
    roots = np.stack([np.linalg.cholesky(cover) for cover in covers])
    means = np.stack([np.zeros(gap.size), gap])[:, None, :]
    return GaussianRows(means, roots)


def lag_posterior(level: float, n: int) -> np.ndarray:
    """Of intercept and lag, after n values around a level with noise 1."""
    lags = level + np.random.default_rng(0).standard_normal(n)
    design = np.column_stack([np.ones(n), lags])
    return np.linalg.inv(design.T @ design + 0.01 * np.eye(2))


def test_a_shifted_level_is_no_return_though_level_and_lag_are_both_in_doubt() -> None:
    """y = 5.5 + .26 lag around 7.5, and y = -.4 + .7 lag: 2.6 apart there, known to .2."""
    pair = rows(np.array([-5.9, 0.44]), [lag_posterior(7.5, 24), lag_posterior(0.0, 500)])
    one_by_one = apart(pair, 0, 1)
    assert apart_anyhow(pair, 0, 1) > one_by_one
    assert not within(pair, 0, 1, AGREE)


def test_it_is_the_mahalanobis_distance_beyond_chance() -> None:
    rng = np.random.default_rng(1)
    for m in (1, 2, 5):
        covers = [a @ a.T + 0.1 * np.eye(m) for a in rng.standard_normal((2, m, m))]
        gap = 3.0 * rng.standard_normal(m)
        length = np.sqrt(gap @ np.linalg.solve(covers[0] + covers[1], gap))
        expected = max(0.0, length - np.sqrt(m - 1))
        assert apart_anyhow(rows(gap, covers), 0, 1) == pytest.approx(expected, rel=1e-9)


def test_chance_alone_seldom_parts_two() -> None:
    """Of 2000 pairs that differ by chance alone at most 1 in 100 disagree (expected: 1 in 3000)."""
    rng, cover = np.random.default_rng(2), lag_posterior(3.0, 30)
    root = np.linalg.cholesky(2 * cover)
    gaps = (root @ rng.standard_normal((2, 2000))).T
    parted = sum(apart_anyhow(rows(gap, [cover, cover]), 0, 1) > AGREE for gap in gaps)
    assert parted <= 20


def test_a_shift_under_a_lag_keeps_its_own_name() -> None:
    """A level that shifts by 9 under correlated noise: opened once and never taken for the old.

    Of ten runs, two on each of five such streams, nine had this when it was written; seven had
    not where coefficients were compared one by one.
    """
    f = rk.features.intercept() + rk.features.lags(1)
    settings = {"noise_shape": 5.0, "noise_scale": 5.0, "prior_var": [100.0, 1.0]}
    good = 0
    for seed in range(4, 9):
        rng, e, y = np.random.default_rng(seed), 0.0, np.empty(500)
        for t in range(500):
            e = 0.6 * e + rng.standard_normal()
            y[t] = e + (9.0 if t >= 300 else 0.0)
        run = rk.student_t_ihmm(features=f, seed=seed, **settings).run(y)
        good += int((np.diff(run.regime[50:]) != 0).sum()) == 1
    assert good >= 4
