"""A stream that begins far from where it stays: the default rule recovers (D16, D17, D18)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import regimekit as rk
from benchmarks.faults import KINDS, recovers

MODELS: list[tuple[str, dict[str, Any]]] = [
    ("br_ihmm", {}),
    ("br_ihmm", {"weight": "imq"}),
    ("br_ihmm", {"noise": 0.09, "prior_var": 1.0}),
    ("br_ihmm", {"noise": 0.09, "prior_var": 1.0, "weight": "imq"}),
    ("wolf_ihmm", {}),
    ("ihmm", {}),
    ("student_t_ihmm", {}),
]
WIDTH = 2 * 1.645 * 0.3


def staircase(levels: int, length: int, step: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    start = np.repeat(step * np.arange(1, levels + 1), length)
    return np.append(start, np.full(200, 2.0)) + 0.3 * rng.standard_normal(start.size + 200)


@pytest.mark.parametrize("shape", [(10, 5, 1000.0), (20, 6, 50.0)], ids=["10x5", "20x6"])
@pytest.mark.parametrize(("name", "settings"), MODELS)
def test_recovery_from_a_staircase(
    name: str, settings: dict[str, Any], shape: tuple[int, int, float]
) -> None:
    y = staircase(*shape)
    run = rk.make(name, **settings).run(y)
    late = slice(len(y) - 100, None)
    assert np.mean((run.lower[late] <= y[late]) & (y[late] <= run.upper[late])) >= 0.8
    assert np.median((run.upper - run.lower)[late]) <= 5 * WIDTH
    assert np.median(np.abs(run.mean[late] - 2.0)) < 0.6  # stored levels hardly pull the mean


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["br_ihmm", "wolf_ihmm", "ihmm", "student_t_ihmm"])
def test_intervals_recover_from_random_starts(name: str, kind: str) -> None:
    """200 ordinary observations later: coverage of 80 %, five times the ideal width at most."""
    assert all(recovers(name, kind, seed)[0] for seed in range(6))


def test_the_paper_rule_does_not_follow() -> None:
    y = staircase(10, 5, 1000.0)
    rule = {"D16": "paper", "D17": "paper", "D18": "paper"}
    run = rk.br_ihmm(rule=rule).run(y)
    assert np.abs(run.median[-50:] - 2.0).min() > 100.0


@pytest.mark.parametrize("name", ["br_ihmm", "ihmm", "student_t_ihmm"])
def test_a_shifted_prior_is_stored(name: str) -> None:
    """In the middle of the recovery a loaded model continues to the bit."""
    y = staircase(10, 5, 1000.0)
    model = rk.make(name)
    model.run(y[:73])
    again = rk.from_bytes(model.to_bytes())
    np.testing.assert_array_equal(model.run(y[73:]).mean, again.run(y[73:]).mean)
    assert model.to_bytes() == again.to_bytes()


def test_a_burst_does_not_shift_the_prior() -> None:
    """Up to half a window of outliers, however far, leaves the prior where it was."""
    rng = np.random.default_rng(3)
    y = rng.standard_normal(150)
    y[60:72] = 1000.0  # of a window of 24
    model, plain = (
        rk.br_ihmm(noise=1.0, prior_var=100.0, rule=rule) for rule in ({}, {"D16": "paper"})
    )
    np.testing.assert_array_equal(model.run(y).mean, plain.run(y).mean)
