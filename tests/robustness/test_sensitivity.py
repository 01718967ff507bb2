"""Detection delays and ignored bursts: the theory, and the theory against the whole model."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import regimekit as rk
from regimekit.core.random import RandomSource
from regimekit.ihmm.settings import RegimeSettings
from regimekit.robustness.evidence import (
    Belief,
    Judge,
    Takeover,
    burst_log_odds,
    expected_course,
    prior_odds,
)
from regimekit.robustness.posterior import BatchPosterior
from regimekit.robustness.sensitivity import CLEAR_HEIGHT, Sensitivity, choice_table, sensitivity

VISITS = 20
LEVEL = {"noise": 1.0, "prior_var": 4.0, "particles": 100, "outlier_rate": 0.02}


@cache
def warm(batch: int, threshold: float | None, seed: int, prior_var: float = 4.0) -> bytes:
    """A model that has been in one regime for VISITS batches; no threshold is contamination."""
    rng = np.random.default_rng(seed)
    chosen = LEVEL | {"prior_var": prior_var}
    model = rk.br_ihmm(batch=batch, threshold=threshold, seed=seed, **chosen)
    for y in rng.standard_normal(VISITS * batch):
        model.update(y)
    return model.to_bytes()


def opened(
    batch: int, threshold: float | None, signal: np.ndarray, seed: int, prior_var: float = 4.0
) -> np.ndarray:
    """Whether another regime has been reported by each observation of signal + noise."""
    model: Any = rk.from_bytes(warm(batch, threshold, seed % 4, prior_var))
    model.engine.random = RandomSource(np.random.default_rng([seed, 1]))
    noise = np.random.default_rng([seed, 2]).standard_normal(signal.size)
    present = model.reporter.names[model.engine.clock.reported]
    regimes = [model.update(y).regime for y in signal + noise]
    return np.logical_or.accumulate(np.array(regimes) != present)


# ---------------------------------------------------------------- theory beside the model


def compare_with_simulation(
    batch: int, threshold: float | None, shift: float, runs: int, half: int = 1
) -> None:
    """Observations until a quarter, half and three quarters of the runs have opened the regime.

    The theory's median is within `half` observations of the simulated one, its quartiles within
    2: about the sampling error of 72 runs, where the quarters are 1 to 5 observations apart.
    """
    answer = sensitivity(
        {"batch": batch, "threshold": threshold, **LEVEL}, shift=[shift], visits=VISITS, longest=1
    )
    n = 7 * batch
    found = np.zeros((runs, n), bool)
    for k in range(runs):
        phase = k % batch
        signal = np.where(np.arange(n + phase) >= phase, shift, 0.0)
        found[k] = opened(batch, threshold, signal, k)[phase:]
    simulated, expected = found.mean(axis=0), answer.opened[0]
    for share, allowed in ((0.25, 2), (0.5, half), (0.75, 2)):
        reached, foreseen = (
            int(np.argmax(course >= share)) + 1 for course in (simulated, expected)
        )
        assert simulated.max() >= share and expected.max() >= share
        assert abs(reached - foreseen) <= allowed, (share, reached, foreseen)


@pytest.mark.slow
def test_delay_agrees_with_the_model():
    compare_with_simulation(batch=4, threshold=None, shift=3.0, runs=72)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [2.0, 3.0, 5.0, 10.0])
def test_delay_agrees_with_the_model_widely(shift):
    compare_with_simulation(batch=6, threshold=None, shift=shift, runs=72)


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "shift"), [(4, 4.0), (6, 3.0)])
def test_delay_agrees_with_the_model_under_imq(batch, shift):
    compare_with_simulation(batch, threshold=2.0, shift=shift, runs=72, half=2)


def burst_openings(
    batch: int,
    threshold: float | None,
    length: int,
    height: float,
    runs: int,
    prior_var: float = 4.0,
) -> int:
    """How many of `runs` bursts, at every phase in turn, opened a regime that was reported."""
    count = 0
    for k in range(runs):
        phase = k % batch
        time = np.arange(phase + length + 2 * batch)  # and what follows
        signal = np.where((time >= phase) & (time < phase + length), height, 0.0)
        count += bool(opened(batch, threshold, signal, k, prior_var)[-1])
    return count


def check_bursts(
    batch: int, threshold: float | None, heights: list[float], runs: int, prior_var: float = 4.0
) -> None:
    """No more openings than the risk allows: a false alarm in 1 of 10 000 seeds per height."""
    chosen = {"batch": batch, "threshold": threshold, **LEVEL, "prior_var": prior_var}
    answer = sensitivity(chosen, visits=VISITS)
    allowed = stats.binom.ppf(1 - 1e-4, runs, answer.risk)
    assert 1 <= answer.longest_burst <= answer.longest_burst_from(CLEAR_HEIGHT) < 2 * batch
    for height in heights:
        length = (
            answer.longest_burst_from(CLEAR_HEIGHT)
            if height >= CLEAR_HEIGHT
            else answer.longest_burst
        )
        count = burst_openings(batch, threshold, length, height, runs, prior_var)
        assert count <= allowed, (height, length, count)
    # and the bound is not idle: two batches of a shift that is easily seen do open a regime
    assert burst_openings(batch, threshold, 2 * batch, 5.0, runs, prior_var) > 0.8 * runs


@pytest.mark.slow
@pytest.mark.parametrize("prior_var", [4.0, 100.0])
def test_short_bursts_are_ignored_under_contamination(prior_var):
    """Half a batch where the burst stands clear of the noise."""
    check_bursts(6, None, [3.0, 4.0, 6.0, 20.0, 1e6], runs=36, prior_var=prior_var)
    answer = sensitivity({"batch": 6, **LEVEL, "prior_var": prior_var}, visits=VISITS)
    assert answer.longest_burst_from(CLEAR_HEIGHT) == 3


def test_the_formula_of_a_burst_agrees_with_the_filter():
    """Log odds of a new regime after k of 6 values at a height, without noise.

    The formula is an upper bound wherever the burst falls: a new regime that learns other values
    first, or does not reach the height, gets less. The other way of opening a regime is to learn
    the ordinary values, at the price of the prior odds and of their level. If the burst begins the
    batch, the formula is exact to 1.5 nats near the decision.
    """
    for prior_var in (4.0, 100.0):
        model: Any = rk.br_ihmm(batch=6, islands=1, noise=1.0, prior_var=prior_var, particles=30)
        for y in 0.9 * np.random.default_rng(0).standard_normal(60):
            model.update(y)
        posterior = BatchPosterior(model)
        unborn, rate = posterior.is_new, model.engine.rate()
        prior = np.exp(posterior.log_prior)
        enter = math.log(prior[unborn].sum() / prior[~unborn].sum())
        for k, height in ((2, 6.0), (3, 6.0), (3, 20.0), (3, 1e6), (4, 6.0), (4, 10.0)):
            burst = burst_log_odds(k, height, 6, rate, prior_var, enter)
            other = enter - 0.5 * math.log(1 + (6 - k) * prior_var)
            for positions in (range(k), range(6 - k, 6), [0, 2, 4, 1][:k]):
                y = np.zeros((6, 1))
                y[list(positions)] = height
                score = posterior.follow(posterior.start, y, [None] * 6).score
                log_p = posterior.log_posterior(score)
                odds = np.logaddexp.reduce(log_p[unborn]) - np.logaddexp.reduce(log_p[~unborn])
                assert odds <= np.logaddexp(burst, other) + 1.5
                assert k > 3 or odds < -3.0
                if positions == range(k):
                    assert (odds > 0) == (burst > 0)
                    if burst > 0:
                        assert odds == pytest.approx(burst, abs=1.5)


@pytest.mark.slow
def test_short_bursts_are_ignored_by_the_model():
    check_bursts(batch=4, threshold=2.0, heights=[5.0], runs=60)


@pytest.mark.slow
def test_short_bursts_are_ignored_by_the_model_at_any_height():
    check_bursts(batch=6, threshold=2.0, heights=[2.0, 4.0, 8.0, 50.0, 1e6], runs=60)


# ---------------------------------------------------------------- the theory itself


def test_evidence_of_a_known_level_has_a_closed_form():
    """Two regimes that know their levels exactly, no weight: z^2 / 2 per observation."""
    judge = Judge(RegimeSettings(threshold=math.inf).scoring())
    sure = 1e-9
    z = np.array([0.5, 1.0, 3.0])
    takeover = Takeover(
        Belief(0.0, sure, 3), Belief(z, sure, 3), False, -5.0, np.zeros(1), np.zeros(1), 100
    )
    course = expected_course(np.repeat(z[:, None], 4, axis=1), 4, takeover, judge)
    expected = np.repeat(z[:, None] ** 2 / 2, 4, axis=1)
    np.testing.assert_allclose(course.evidence, expected, rtol=1e-6)


def test_evidence_agrees_with_drawn_noise():
    """The expected evidence of a batch against 20 000 exact draws: 4 standard errors."""
    c, v, batch, z = 2.0, 4.0, 5, 3.0
    judge = Judge(RegimeSettings(threshold=c).scoring())
    takeover = Takeover(
        Belief(0.0, 1e-9, 1), Belief(0.0, v, 1), True, -5.0, np.zeros(1), np.zeros(1), 100
    )
    expected = expected_course(np.full((1, batch), z), batch, takeover, judge).evidence[0]

    def score(r: np.ndarray, spread: np.ndarray) -> np.ndarray:
        wide = spread + r**2 / c**2
        return -0.5 * (np.log(2 * np.pi * wide) + r**2 / wide)

    rng = np.random.default_rng(0)
    mean, variance = np.zeros(20_000), np.full(20_000, v)
    for b in range(batch):
        y = z + rng.standard_normal(mean.size)
        r, spread = y - mean, variance + 1.0
        gap = score(r, spread) - score(y, np.ones_like(y))
        error = gap.std() / math.sqrt(gap.size)
        # 0.02: a course that follows expectations, against the expectation of courses
        assert abs(gap.mean() - expected[b]) < 4 * error + 0.02
        w2 = 1.0 / (1.0 + r**2 / spread / c**2)
        gain = variance / (variance + 1.0 / w2)
        mean, variance = mean + gain * r, (1 - gain) * variance


def test_quadrature_is_exact_for_polynomials():
    judge = Judge(RegimeSettings(threshold=2.0).scoring())
    nodes, weights = np.asarray(judge.nodes), np.asarray(judge.node_weights)
    for power, moment in ((0, 1), (2, 1), (4, 3), (6, 15)):
        assert float(weights @ nodes**power) == pytest.approx(moment, rel=1e-10)


@pytest.mark.slow
def test_prior_odds_shrink_with_visits():
    plain = (1.0, 1.0), (1.0, 1.0)
    few, many = prior_odds(5, *plain, 0.0), prior_odds(200, *plain, 0.0)
    assert many.enter < few.enter < 0 and many.back < few.back < 0
    assert (np.diff(few.stay) > -0.1).all() and few.stay[-1] > few.stay[0]
    sticky = prior_odds(5, *plain, 50.0)
    assert sticky.enter < few.enter


# ---------------------------------------------------------------- the result


@pytest.mark.slow
def test_larger_batches_and_smaller_thresholds_are_more_careful():
    def ask(batch: int, threshold: float) -> Sensitivity:
        return sensitivity({"batch": batch, "threshold": threshold, **LEVEL}, shift=[3.0, 6.0])

    careful, default, eager = ask(8, 2.0), ask(4, 2.0), ask(4, 4.0)
    assert careful.longest_burst >= default.longest_burst >= eager.longest_burst
    assert (eager.delay <= default.delay).all()
    assert (careful.delay_known >= default.delay_known).all()


@pytest.mark.slow
def test_a_shift_beyond_the_prior_is_seen_later():
    near, far = sensitivity({"batch": 6, "threshold": 2.0, **LEVEL}, shift=[6.0, 40.0]).delay
    assert near < far
    wide = {**LEVEL, "prior_var": 1e4}
    assert sensitivity({"batch": 6, "threshold": 2.0, **wide}, shift=[40.0]).delay[0] < far


@pytest.mark.slow
def test_more_openness_is_more_sensitive():
    settings = {"batch": 4, "threshold": 2.0, **LEVEL}
    shy = sensitivity(settings, openness=1e-4)
    bold = sensitivity(settings, openness=1.0)
    assert (bold.delay <= shy.delay).all() and bold.longest_burst <= shy.longest_burst


@pytest.mark.slow
def test_a_fitted_model_answers_for_its_present_regime():
    model = rk.from_bytes(warm(4, 2.0, 0))
    before = model.to_bytes()
    answer = sensitivity(model, shift=[4.0])
    assert model.to_bytes() == before
    assert answer.visits == pytest.approx(VISITS, abs=2)
    given = sensitivity(model, shift=[4.0], visits=VISITS)
    assert abs(answer.delay[0] - given.delay[0]) <= 4


@pytest.mark.slow
def test_the_answer_reads_as_a_table_and_draws_a_figure():
    answer = sensitivity({"batch": 4, "outlier_rate": 0.02}, shift=[0.1, 3.0], longest=5)
    text = str(answer)
    assert "outlier rate 0.02" in text and "c =" not in text
    assert "c = 2;" in str(sensitivity({"batch": 4, "threshold": 2.0}, shift=[3.0], longest=1))
    assert "opened after" in text and f"up to {answer.longest_burst} observations" in text
    assert math.isinf(answer.delay[0]) and " - " in text
    assert answer.smallest_shift == 3.0
    assert answer.ignored_height(answer.longest_burst) == math.inf
    assert answer.ignored_height(5) <= answer.ignored_height(1)
    assert answer.evidence.shape == (2, 4) and answer.burst_opens.shape == (5, 34)
    assert len(answer.figure().axes) == 3


def test_errors_name_the_argument():
    cases = [
        (rk.br_ihmm(features=rk.features.columns("a")), {}, "level"),
        (rk.br_ihmm(batch="adaptive"), {}, "batch"),
        ({"batch": 0}, {}, "batch"),
        ("br_ihmm", {}, "model must be"),
        ({}, {"openness": 0}, "openness"),
        ({}, {"visits": -1}, "visits"),
        ({}, {"risk": 2.0}, "risk"),
        ({}, {"longest": 0}, "longest"),
        ({}, {"shift": "large"}, "shift"),
        ({"weight": "much"}, {}, "weight"),
    ]
    for model, given, message in cases:
        with pytest.raises(rk.RegimekitError, match=message):
            sensitivity(model, **given)


@pytest.mark.slow
def test_the_table_of_the_docs_is_that_of_the_code():
    """Some of its rows; the page documents the call that makes all."""
    page = (Path(__file__).parents[2] / "docs" / "robustness.md").read_text().splitlines()
    for line in choice_table((4, 6), (None, 2.0)).splitlines():
        assert line in page
