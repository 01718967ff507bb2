"""The prior over the next regime against exact laws: tables, the sweep, pruning."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import regimekit as rk
from regimekit.core.random import RandomSource
from regimekit.ihmm import hdp
from regimekit.ihmm.hdp import Concentration
from regimekit.ihmm.state import Particles

START = -1  # the "regime" before the first batch


def particles(
    counts: Any, start: Any, beta: Any, current: int, alpha: float = 1.0, gamma: float = 1.0
) -> Particles:
    """One particle with L regimes and room for three more; its slots are rows 1 .. L."""
    counts = np.asarray(counts, dtype=np.int64)
    n = len(counts)
    p = Particles(1, n + 3)
    np.asarray(p.counts)[0, :n, :n] = counts.reshape(n, n)
    np.asarray(p.start)[0, :n] = start
    np.asarray(p.log_beta)[0, : n + 1] = np.log(beta)
    np.asarray(p.slots)[0, :n] = np.arange(1, n + 1)
    p.n_regimes[0], p.current[0], p.alpha[0], p.gamma[0] = n, current, alpha, gamma
    return p


def source(seed: int) -> RandomSource:
    return RandomSource(np.random.default_rng(seed))


def shares(p: Particles) -> np.ndarray:
    return np.exp(np.asarray(p.log_beta)[0, : p.n_regimes[0] + 1])


def transition_row(p: Particles, sticky: float) -> np.ndarray:
    """log P(l | s) among the regimes and a new one."""
    hdp.log_transition_row(p, 0, sticky)
    return np.asarray(p.log_row)[0, : p.n_regimes[0] + 1]


def transition_matrix(p: Particles, sticky: float) -> np.ndarray:
    matrix = np.empty((p.n_regimes[0] + 1,) * 2)
    hdp.transition_matrix(p, 0, sticky, matrix)
    return matrix


def least_used(p: Particles, pool: int, last_seen: np.ndarray) -> int:
    visits, taken = np.zeros((2, p.n_regimes[0]), np.int64)
    return hdp.least_used(p, 0, pool, last_seen, visits, taken)


@pytest.mark.parametrize("sticky", [0.0, 2.5])
def test_transition_row_is_the_predictive_of_the_dirichlet(sticky: float) -> None:
    beta = [0.4, 0.3, 0.2, 0.1]
    counts = np.array([[3, 0, 1], [2, 5, 0], [0, 0, 0]])
    for s in range(3):
        p = particles(counts, [1, 0, 0], beta, current=s, alpha=1.7)
        row = transition_row(p, sticky)
        expected = np.append(counts[s], 0) + 1.7 * np.array(beta) + sticky * (np.arange(4) == s)
        expected /= counts[s].sum() + 1.7 + sticky
        np.testing.assert_allclose(np.exp(row), expected, rtol=1e-13)
        assert np.exp(row).sum() == pytest.approx(1.0, rel=1e-13)
        np.testing.assert_allclose(transition_matrix(p, sticky)[s], expected, rtol=1e-13)
    np.testing.assert_allclose(transition_matrix(p, sticky).sum(axis=1), 1.0, rtol=1e-13)


def test_first_transition_opens_a_regime() -> None:
    p = particles(np.zeros((0, 0)), [], [1.0], current=START)
    row = transition_row(p, 3.0)
    assert row[0] == pytest.approx(0.0, abs=1e-15)


def test_a_tiny_share_is_improbable_not_impossible() -> None:
    """beta of e^-800 underflows as a number; its transition stays possible in logs."""
    p = particles([[4]], [1], [0.5, 0.5], current=0)
    np.asarray(p.log_beta)[0, :2] = [0.0, -800.0]
    row = transition_row(p, 0.0)
    assert row[1] == pytest.approx(-800.0 - math.log(5.0), rel=1e-14)


def test_a_new_regime_splits_the_last_stick() -> None:
    """v ~ Beta(1, gamma) of the rest; the other shares stay.

    The Kolmogorov-Smirnov test raises a false alarm with probability 1e-4.
    """
    random, draws = source(5), []
    for _ in range(3000):
        p = particles([[2, 1], [1, 0]], [1, 0], [0.5, 0.3, 0.2], current=1, gamma=2.5)
        hdp.count_transition(p, 0, 2, random)
        assert p.n_regimes[0] == 3 and p.current[0] == 2 and p.counts[0, 1, 2] == 1
        np.testing.assert_allclose(shares(p)[:2], [0.5, 0.3], rtol=1e-15)
        assert shares(p).sum() == pytest.approx(1.0, rel=1e-13)
        draws.append(shares(p)[2] / 0.2)
    assert stats.kstest(draws, stats.beta(1, 2.5).cdf).pvalue > 1e-4


def test_count_transition_counts_the_first_transition_in_the_start_row() -> None:
    p = particles(np.zeros((0, 0)), [], [1.0], current=START)
    hdp.count_transition(p, 0, 0, source(0))
    assert p.start[0, 0] == 1 and np.asarray(p.counts).sum() == 0 and p.current[0] == 0


@cache
def stirling(n: int) -> tuple[int, ...]:
    """Unsigned Stirling numbers of the first kind |s(n, 0 .. n)|, exactly."""
    if n == 0:
        return (1,)
    before = (*stirling(n - 1), 0)
    return tuple((n - 1) * before[m] + (before[m - 1] if m else 0) for m in range(n + 1))


def table_law(n: int, a: float) -> np.ndarray:
    """P(m tables) = |s(n, m)| a^m G(a) / G(a + n) for m = 0 .. n."""
    log_p = [
        math.log(s) + m * math.log(a) + math.lgamma(a) - math.lgamma(a + n) if s else -np.inf
        for m, s in enumerate(stirling(n))
    ]
    return np.exp(log_p)


def pooled(observed: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring cells joined until each expects at least five."""
    cells: list[tuple[float, float]] = []
    o = e = 0.0
    for o_k, e_k in zip(observed, expected, strict=True):
        o, e = o + o_k, e + e_k
        if e >= 5:
            cells.append((o, e))
            o = e = 0.0
    if cells:
        cells[-1] = (cells[-1][0] + o, cells[-1][1] + e)
    seen, wanted = zip(*cells, strict=True)
    return np.array(seen), np.array(wanted)


@pytest.mark.parametrize("a", [0.05, 0.7, 3.0, 40.0])
@pytest.mark.parametrize("n", [1, 2, 5, 16, 17, 23, 40])
def test_table_counts_follow_the_law_with_stirling_numbers(n: int, a: float) -> None:
    """Chi-square at 1e-5 for each of 28 cases: a false alarm in 3 of 10 000 suites.

    Up to 16 customers sit one by one, the later ones by jumps: both are in.
    """
    law = table_law(n, a)
    assert law.sum() == pytest.approx(1.0, rel=1e-10)
    random = source(1000 * n + int(10 * a))
    draws = 4000
    tables = np.bincount([hdp.antoniak(n, a, 0.0, random) for _ in range(draws)], minlength=n + 1)
    assert tables[law == 0].sum() == 0
    seen, wanted = pooled(tables, draws * law)
    if len(seen) > 1:
        assert stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > 1e-5


@pytest.mark.parametrize("a", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("n", [1_000, 1_000_000])
def test_mean_of_many_customers(n: int, a: float) -> None:
    """E m = a (psi(a + n) - psi(a)), Var m = E m + a^2 (psi'(a + n) - psi'(a)).

    4.9 standard errors: a false alarm in one of a million per case.
    """
    random = source(n + int(10 * a))
    tables = [hdp.antoniak(n, a, 0.0, random) for _ in range(3000)]
    mean = a * (special.digamma(a + n) - special.digamma(a))
    variance = mean + a**2 * (special.polygamma(1, a + n) - special.polygamma(1, a))
    assert abs(np.mean(tables) - mean) < 4.9 * math.sqrt(variance / 3000)


@pytest.mark.parametrize("bias", [0.01, 2.0, 80.0])
@pytest.mark.parametrize("n", [1, 3, 16, 30, 200])
def test_tables_of_a_sticky_transition_are_those_the_bias_did_not_open(n: int, bias: float) -> None:
    """The law of independent openings a / (a + bias + j), multiplied out.

    Chi-square at 1e-5 for each of 15 cases: a false alarm in 15 of 100 000 suites.
    """
    a, draws = 1.7, 4000
    law = np.array([1.0])
    for j in range(n):
        law = np.convolve(law, [(bias + j) / (a + bias + j), a / (a + bias + j)])
    random = source(7 * n + int(100 * bias))
    tables = np.bincount([hdp.antoniak(n, a, bias, random) for _ in range(draws)], minlength=n + 1)
    seen, wanted = pooled(tables, draws * law)
    if len(seen) > 1:
        assert stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > 1e-5


def test_nobody_sits_at_no_table() -> None:
    random = source(0)
    assert hdp.antoniak(0, 1.0, 0.0, random) == 0
    assert hdp.antoniak(10**6, 0.0, 0.0, random) == 1
    assert hdp.antoniak(10**6, 0.0, 2.0, random) == 0


def uniforms_drawn(generator: np.random.Generator, seed: int, most: int) -> int:
    """How many uniforms a generator made from `seed` has drawn, counted on a twin; `most` + 1
    if they are more."""
    twin = np.random.default_rng(seed)
    drawn = 0
    while drawn <= most and twin.bit_generator.state != generator.bit_generator.state:
        twin.random()
        drawn += 1
    return drawn


def test_draws_do_not_grow_with_the_customers() -> None:
    """At most 15 uniforms for the first customers, one per later table and one to stop."""
    for n in (10**2, 10**5, 10**9, 10**12):
        for seed in range(20):
            generator = np.random.default_rng(seed)
            tables = hdp.antoniak(n, 0.8, 0.0, RandomSource(generator))
            most = 15 + tables + 1
            assert uniforms_drawn(generator, seed, most) <= most


class Path:
    """A path of the hierarchical model, drawn customer by customer; sticks are broken as needed.

    Draws exactly from the joint law of (path, beta) given alpha, gamma, or, given a particle,
    from the law of a new path given its alpha, gamma and beta.
    """

    def __init__(
        self, alpha: float, gamma: float, beta: np.ndarray, sticky: float, rng: np.random.Generator
    ) -> None:
        self.alpha, self.gamma, self.sticky, self.rng = alpha, gamma, sticky, rng
        self.beta = list(beta)

    def draw(self, length: int) -> Particles:
        path: list[int] = []
        counts: dict[tuple[int, int], int] = {}
        for _ in range(length):
            source = path[-1] if path else START
            path.append(self._next(source, counts))
            edge = (source, path[-1])
            counts[edge] = counts.get(edge, 0) + 1
        return self._particle(path, counts)

    def _next(self, source: int, counts: dict[tuple[int, int], int]) -> int:
        mass = [counts.get((source, k), 0) + self.alpha * b for k, b in enumerate(self.beta)]
        if source != START:
            mass[source] += self.sticky
        choice, left = 0, self.rng.random() * sum(mass)
        while choice < len(mass) - 1 and left >= mass[choice]:
            left -= mass[choice]
            choice += 1
        if choice == len(mass) - 1:
            v = self.rng.beta(1.0, self.gamma)
            self.beta[-1:] = [v * self.beta[-1], (1 - v) * self.beta[-1]]
        return choice

    def _particle(self, path: list[int], counts: dict[tuple[int, int], int]) -> Particles:
        """Only visited regimes are opened; the share of all others is the last entry."""
        order = list(dict.fromkeys(path))
        matrix = [[counts.get((a, b), 0) for b in order] for a in order]
        start = [counts.get((START, b), 0) for b in order]
        beta = np.maximum([self.beta[k] for k in order], 1e-300)
        rest = max(1.0 - beta.sum(), 1e-300)
        return particles(
            matrix, start, [*beta, rest], order.index(path[-1]), self.alpha, self.gamma
        )


def features_of(p: Particles) -> list[float]:
    """What the joint test compares: alpha, gamma, beta_1, the unopened share, L, self-moves."""
    beta, n = shares(p), p.n_regimes[0]
    stays = np.trace(np.asarray(p.counts)[0, :n, :n])
    return [p.alpha[0], p.gamma[0], beta[0], beta[-1], beta[:-1].max(), float(n), float(stays)]


def draw_joint(prior: Concentration, length: int, rng: np.random.Generator) -> Particles:
    alpha = rng.gamma(prior.alpha_shape, 1 / prior.alpha_rate)
    gamma = rng.gamma(prior.gamma_shape, 1 / prior.gamma_rate)
    return Path(alpha, gamma, np.ones(1), prior.sticky, rng).draw(length)


GEWEKE = {
    "plain": Concentration(),
    "general": Concentration(3.0, 2.0, 2.0, 0.8),
    "sticky": Concentration(2.0, 1.0, 2.0, 1.0, sticky=1.5),
}


@pytest.mark.parametrize("case", list(GEWEKE))
def test_sweep_leaves_the_joint_law_alone(case: str) -> None:
    """Geweke's joint test, on independent chains so that every p-value is exact.

    Each chain starts from an exact draw of (alpha, gamma, beta, path) and goes four times
    around sweep -> path given the rest. A correct sweep leaves the joint law as it was; any
    error grows with every round. Seven two-sample Kolmogorov-Smirnov tests at 1e-5 in each of
    three cases: a false alarm in 2 of 10 000 suites (ties make them conservative).
    """
    prior, length, chains = GEWEKE[case], 10, 2500
    rng = np.random.default_rng(99)
    random = RandomSource(rng)
    exact = [features_of(draw_joint(prior, length, rng)) for _ in range(chains)]
    travelled = []
    for _ in range(chains):
        p = draw_joint(prior, length, rng)
        for again in range(4):
            prior.sweep_all(p, random, 1)
            if again < 3:
                path = Path(p.alpha[0], p.gamma[0], shares(p), prior.sticky, rng)
                p = path.draw(length)
        travelled.append(features_of(p))
    for a, b in zip(np.transpose(exact), np.transpose(travelled), strict=True):
        assert stats.ks_2samp(a, b).pvalue > 1e-5


@pytest.mark.parametrize("sticky", [1e-3, 0.1, 3.0])
def test_a_small_alpha_does_not_underflow_under_a_bias(sticky: float) -> None:
    """u ~ Beta(alpha + kappa, n) is below every float for a small alpha; its log is not."""
    random = source(1)
    prior = Concentration(alpha_rate=1e3, sticky=sticky)
    p = particles([[50, 1], [1, 30]], [1, 0], [0.3, 0.3, 0.4], current=1, alpha=1e-5)
    for _ in range(2000):
        prior.sweep_all(p, random, 1)
        assert p.alpha[0] > 0 and np.isfinite(np.asarray(p.log_beta)[0, :3]).all()


def test_sweep_keeps_shares_a_distribution() -> None:
    random, prior = source(2), Concentration()
    p = particles([[50, 2], [1, 400]], [1, 0], [0.3, 0.3, 0.4], current=1)
    for _ in range(200):
        prior.sweep_all(p, random, 1)
        assert shares(p).sum() == pytest.approx(1.0, rel=1e-12)
        assert (
            p.alpha[0] > 0 and p.gamma[0] > 0 and np.isfinite(np.asarray(p.log_beta)[0, :3]).all()
        )


def self_loops(diagonal: bool, visits: int = 5000) -> tuple[float, Particles]:
    """Least alpha over sweeps along a stream that never leaves its regime."""
    random, prior = source(8), Concentration()
    p = particles([[0]], [0], [0.5, 0.5], current=0)
    least = np.inf
    for _ in range(visits):
        hdp.count_transition(p, 0, 0, random)
        prior.sweep_all(p, random, 1, diagonal)
        least = min(least, p.alpha[0])
    return float(least), p


def test_paper_diagonal_does_not_kill_alpha() -> None:
    """D5's guard: a zeroed diagonal leaves u and v out too, so alpha follows its prior.

    Gamma(1, 1) falls below 1e-9 within 5000 draws with probability 5e-6. Without the guard the
    row would have v = 1 and no table: the shape 1 + m.. - v reaches 0 and alpha stays at 0.
    """
    least, _ = self_loops(diagonal=False)
    assert least > 1e-9


def test_paper_diagonal_without_the_guard_has_shape_zero() -> None:
    """The text's formula on the same stream: alpha ~ Gamma(1 + m.. - sum v, 1 - sum log u)."""
    rng, alpha, shapes = np.random.default_rng(8), 1.0, []
    for n in range(1, 50):
        v = rng.random() * (n + alpha) < n
        tables = 0  # the only cell with customers is on the zeroed diagonal
        shapes.append(1 + tables - v)
        if shapes[-1]:
            alpha = rng.gamma(shapes[-1], 1 / (1 - math.log(rng.beta(alpha + 1, n))))
    assert min(shapes) == 0


def test_full_diagonal_keeps_alpha_alive() -> None:
    """With every self-transition kept each row with a customer has a table: the shape is >= 1.

    Its rate is 1 - log u with E(-log u) about log n, so alpha sinks only like 1 / log n.
    """
    least, p = self_loops(diagonal=True)
    assert least > 1e-9 and p.alpha[0] > 1e-4


def test_least_used_is_the_least_recent_of_the_least_visited() -> None:
    """Visits are row sums 6, 1, 3, 2, 9. Worked by hand for pools of 1 .. 5."""
    counts = np.diag([6, 1, 3, 2, 9])
    last_seen = np.array([0, 10, 40, 20, 30, 5])  # of rows 0 .. 5; regime k is row k + 1
    p = particles(counts, [1, 0, 0, 0, 0], [0.2, 0.2, 0.2, 0.2, 0.1, 0.1], current=4)
    # by visits: regime 1 (seen 40), 3 (30), 2 (20), 0 (10); regime 4 is the current one
    for pool, victim in ((1, 1), (2, 3), (3, 2), (4, 0), (5, 0), (50, 0)):
        assert least_used(p, pool, last_seen) == victim


def test_the_current_regime_is_never_removed() -> None:
    last_seen = np.array([0, 1, 2, 3])
    for current in range(3):
        p = particles(np.diag([1, 2, 3]), [1, 0, 0], [0.3, 0.3, 0.3, 0.1], current)
        for pool in (1, 2, 3):
            assert least_used(p, pool, last_seen) != current


def test_remove_regime_removes_row_column_share_and_slot() -> None:
    counts = np.array([[5, 1, 2], [1, 7, 0], [2, 0, 9]])
    p = particles(counts, [1, 0, 0], [0.4, 0.3, 0.2, 0.1], current=2)
    np.asarray(p.slots)[0, :4] = [11, 12, 13, 0]
    hdp.remove_regime(p, 0, 1, True)
    assert p.n_regimes[0] == 2 and p.current[0] == 1
    np.testing.assert_array_equal(np.asarray(p.counts)[0, :2, :2], [[5, 2], [2, 9]])
    np.testing.assert_array_equal(np.asarray(p.start)[0, :2], [1, 0])
    np.testing.assert_array_equal(np.asarray(p.slots)[0, :3], [11, 13, 0])
    np.testing.assert_allclose(shares(p), np.array([0.4, 0.2, 0.1]) / 0.7, rtol=1e-14)


@pytest.mark.parametrize("keep_start", [True, False])
def test_a_regime_cut_off_by_a_removal_keeps_an_entry(keep_start: bool) -> None:
    """D6: regime 2 was entered from regime 1 alone; without that one nothing leads to it."""
    counts = np.array([[5, 1, 0], [0, 2, 1], [1, 0, 0]])
    p = particles(counts, [1, 0, 0], [0.4, 0.3, 0.2, 0.1], current=0)
    hdp.remove_regime(p, 0, 1, keep_start)
    np.testing.assert_array_equal(np.asarray(p.start)[0, :2], [1, 1 if keep_start else 0])


def test_a_regime_left_with_self_transitions_alone_keeps_a_share() -> None:
    """Under a bias, or with the diagonal zeroed, staying need not leave a table: D6 must."""
    counts = np.array([[5, 1, 0], [0, 2, 1], [1, 0, 4]])
    random = source(0)
    for prior, diagonal in ((Concentration(sticky=5.0), True), (Concentration(), False)):
        p = particles(counts, [1, 0, 0], [0.4, 0.3, 0.2, 0.1], current=0)
        hdp.remove_regime(p, 0, 1, True)
        for _ in range(200):
            prior.sweep_all(p, random, 1, diagonal)
            assert np.isfinite(np.asarray(p.log_beta)[0, :3]).all()


@pytest.mark.parametrize("limit", [3, 5])
def test_prune_acts_at_the_limit_only(limit: int) -> None:
    """Every batch on a level of its own: particles stay one regime below the limit."""
    y = np.repeat(20.0 * np.arange(12), 3) + 0.1 * np.random.default_rng(0).standard_normal(36)
    model = rk.br_ihmm(
        noise=0.01, prior_var=1e4, particles=8, batch=3, islands=1, max_regimes=limit
    )
    most = []
    for value in y:
        model.update(value)
        p = model.engine.particles
        n = np.asarray(p.n_regimes)
        most.append(int(n.max()))
        used = np.arange(np.asarray(p.log_beta).shape[1]) <= n[:, None]
        total = np.where(used, np.exp(np.asarray(p.log_beta)), 0.0).sum(axis=1)
        np.testing.assert_allclose(total, 1.0, rtol=1e-13)
    assert max(most) == limit - 1 and most[-20:] == [limit - 1] * 20
