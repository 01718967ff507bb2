"""Small cases by enumerating every regime path.

With alpha and gamma known, the probability of a path comes out of the Chinese restaurant
franchise without any beta: each transition cell of n customers has m tables in
|s(n, m)| ways, and the tables share dishes by the partition law of a Dirichlet process:

    P(path) = prod_j G(a) / G(a + n_j.) sum_m prod_jk |s(n_jk, m_jk)| a^m_jk
              * g^L G(g) / G(g + m..) prod_k G(m_.k)

A path's batches then multiply the pseudo-evidence of each regime, which sees its own alone.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

import regimekit as rk

START = -1  # the "regime" before the first batch
NOISE, PRIOR_VAR, THRESHOLD = 0.5, 2.0, 2.0
SERIES = np.array([0.1, -0.4, 1.9, 2.2, 0.0, 1.7, -0.6, 9.0])
Signature = tuple[int, int, tuple[int, ...]]


def paths(length: int) -> Iterator[tuple[int, ...]]:
    """Every path with regimes numbered in order of appearance."""
    if length == 0:
        yield ()
        return
    for path in paths(length - 1):
        for k in range(max(path, default=-1) + 2):
            yield (*path, k)


def stirling(n: int, m: int) -> int:
    """Unsigned Stirling number of the first kind."""
    if n == 0 or m == 0:
        return int(n == m)
    return stirling(n - 1, m - 1) + (n - 1) * stirling(n - 1, m)


def cell(n: int, alpha: float, kappa: float) -> list[float]:
    """Weight of t tables that ask beta for a dish, t = 0 .. n; the bias kappa feeds the others."""
    return [
        sum(stirling(n, m) * math.comb(m, t) * kappa ** (m - t) * alpha**t for m in range(t, n + 1))
        for t in range(n + 1)
    ]


def path_probability(path: tuple[int, ...], alpha: float, gamma: float, kappa: float = 0) -> float:
    """P(path), every table seating summed over and beta integrated out."""
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for edge in itertools.pairwise(path):
        counts[edge] += 1
    rows = [sum(n for (a, _), n in counts.items() if a == j) for j in set(path)]
    total = math.prod(math.gamma(alpha + kappa) / math.gamma(alpha + kappa + n) for n in rows)
    edges = list(counts)
    cells = [cell(counts[j, k], alpha, kappa if j == k else 0.0) for j, k in edges]
    regimes = max(path) + 1
    summed = 0.0
    for tables in itertools.product(*(range(len(c)) for c in cells)):
        dishes = [0] * regimes
        dishes[0] = 1  # the start row's one customer
        for (_, k), t in zip(edges, tables, strict=True):
            dishes[k] += t
        if min(dishes) == 0:
            continue
        m = sum(dishes)
        scoring = gamma**regimes * math.gamma(gamma) / math.gamma(gamma + m)
        scoring *= math.prod(math.gamma(k) for k in dishes)
        summed += scoring * math.prod(c[t] for c, t in zip(cells, tables, strict=True))
    return total * summed


def score(values: list[float], weight: str) -> float:
    """Log pseudo-evidence of one regime's observations, in order (level model, regimekit rule)."""
    mean, variance, total = 0.0, PRIOR_VAR, 0.0
    for y in values:
        r, s = y - mean, variance + NOISE
        w2 = 1.0 if weight == "none" else 1 / (1 + r * r / s / THRESHOLD**2)
        total += float(stats.norm.logpdf(r, 0, math.sqrt(s / w2)))
        gain = variance / (variance + NOISE / w2)
        mean, variance = mean + gain * r, variance * (1 - gain)
    return total


def exact(
    series: np.ndarray, batch: int, weight: str, alpha: float, gamma: float, kappa: float
) -> tuple[dict[Signature, float], float]:
    """Posterior of each path's signature, and the evidence."""
    batches = series.reshape(-1, batch)
    joint: dict[Signature, float] = defaultdict(float)
    for path in paths(len(batches)):
        log_likelihood = 0.0
        for k in set(path):
            own = [y for b, s in zip(batches, path, strict=True) if s == k for y in b]
            log_likelihood += score(own, weight)
        probability = path_probability(path, alpha, gamma, kappa)
        joint[signature_of(path)] += probability * math.exp(log_likelihood)
    evidence = sum(joint.values())
    return {key: value / evidence for key, value in joint.items()}, evidence


def signature_of(path: tuple[int, ...]) -> Signature:
    """What a particle remembers of its path: how many regimes, which is now, all transitions."""
    n = max(path) + 1
    counts = np.zeros((n, n), int)
    for edge in itertools.pairwise(path):
        counts[edge] += 1
    return n, path[-1], tuple(counts.ravel().tolist())


def signatures(model: Any) -> dict[Signature, float]:
    """The particles' weight on each signature."""
    p = model.engine.particles
    top = int(np.asarray(p.n_regimes).max())
    counts = np.asarray(p.counts)[:, :top, :top].reshape(-1, top * top)
    rows = np.column_stack([p.n_regimes, p.current, counts])
    code = rows @ np.random.default_rng(0).integers(2**62, size=rows.shape[1])  # sorts fast
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    weights = np.bincount(which, np.exp(p.log_weight))
    found: dict[Signature, float] = defaultdict(float)
    for (n, current, *counts), weight in zip(rows[first].tolist(), weights, strict=True):
        square = np.reshape(counts, (top, top))[:n, :n]
        found[n, current, tuple(square.ravel().tolist())] += weight
    return found


@pytest.mark.parametrize("length", range(1, 7))
@pytest.mark.parametrize("kappa", [0.0, 1.3])
def test_path_probabilities_sum_to_one(length: int, kappa: float) -> None:
    total = sum(path_probability(path, 0.7, 1.9, kappa) for path in paths(length))
    assert total == pytest.approx(1.0, rel=1e-12)


def test_path_probabilities_by_hand() -> None:
    """beta_1 ~ Beta(1, g) is all that paths which never leave regime 1 depend on."""
    a, g = 0.7, 1.9
    first, second = 1 / (1 + g), 2 / ((1 + g) * (2 + g))  # E beta_1, E beta_1^2
    assert path_probability((0, 0), a, g) == pytest.approx(first, rel=1e-14)
    stayed = (first + a * second) / (1 + a)
    assert path_probability((0, 0, 0), a, g) == pytest.approx(stayed, rel=1e-14)


CASES = {
    "batch 1, no weight": (SERIES[:6], 1, "none", 0.0),
    "batch 2, no weight": (SERIES[:8], 2, "none", 0.0),
    "batch 1, imq": (SERIES[2:8], 1, "imq", 0.0),
    "batch 2, imq": (SERIES[:8], 2, "imq", 0.0),
    "batch 1, sticky": (SERIES[:5], 1, "none", 1.3),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
def test_particles_approach_the_exact_posterior(case: str) -> None:
    """16 runs of 20 000 particles; Gamma(1e8, 1e8 / value) priors fix alpha, gamma to 1e-4.

    Each signature with a probability above 0.005, and the evidence (whose estimate is
    unbiased), must lie within 6.1 standard errors of the runs' mean: Student's t with 15
    degrees of freedom leaves 2e-5 outside, and some 30 comparisons in each of 5 cases a false
    alarm in 3 of 1000 suites. The standard error is near 0.001, so a path probability that is
    wrong by 0.006 would be seen.
    """
    series, batch, weight, kappa = CASES[case]
    alpha, gamma = 0.9, 1.4
    truth, evidence = exact(series, batch, weight, alpha, gamma, kappa)
    runs, scores = [], []
    for seed in range(16):
        model = rk.br_ihmm(
            noise=NOISE,
            prior_var=PRIOR_VAR,
            threshold=THRESHOLD,
            weight=weight,
            batch=batch,
            particles=20_000,
            seed=seed,
            sticky=kappa,
            max_regimes=20,
            structure_share=1.0,
            alpha_prior=(1e8, 1e8 / alpha),
            gamma_prior=(1e8, 1e8 / gamma),
        )
        scores.append(math.exp(sum(model.update(y).log_score for y in series)))
        runs.append(signatures(model))
        assert set(runs[-1]) <= set(truth)
    for key, probability in truth.items():
        if probability > 0.005:
            assert_mean([run.get(key, 0.0) for run in runs], probability)
    if weight == "none":  # with a weight the forecast density is not the pseudo-evidence
        assert_mean(scores, evidence)


def assert_mean(values: list[float], expected: float) -> None:
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    assert abs(np.mean(values) - expected) < 6.1 * error


class Pairs(NamedTuple):
    """A particle's next regimes one by one: joint weight, forecast mean, variance."""

    joint: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


class Seen(NamedTuple):
    """One observation, with what the model said of outliers before it: eps and log q(y)."""

    y: float
    eps: float
    log_q: float


def seen_by(forecast: rk.Forecast, y: float) -> Seen:
    """Its last component is that of outliers, where there is one."""
    if forecast.outlier == 0:
        return Seen(float(y), 0.0, -math.inf)
    scale = math.sqrt(forecast.spread[-1, 0, 0])
    assert scale == pytest.approx(20 * math.sqrt(NOISE)) and forecast.dof[-1] == 2
    log_q = stats.t.logpdf(y, 2, forecast.location[-1, 0], scale)
    return Seen(float(y), float(forecast.share[-1]), float(log_q))


def judged(one: Seen, mean: float, variance: float, weight: str) -> tuple[float, float]:
    """Log score and w^2 of one observation."""
    r, total = one.y - mean, variance + NOISE
    if weight == "contamination":
        regular = math.log1p(-one.eps) + float(stats.norm.logpdf(r, 0, math.sqrt(total)))
        outlier = math.log(one.eps) + one.log_q
        both = float(np.logaddexp(regular, outlier))
        return both, math.exp(regular - both)
    w2 = {
        "none": 1.0,
        "imq": 1 / (1 + r * r / total / THRESHOLD**2),
        "huber": min(1.0, THRESHOLD**2 * total / (r * r)),
    }[weight]
    return float(stats.norm.logpdf(r, 0, math.sqrt(total / w2))), w2


def filtered(
    mean: float, variance: float, seen: list[Seen], weight: str
) -> tuple[float, float, float]:
    """Log score, mean and variance of a row after the batch's observations so far."""
    log_score = 0.0
    for one in seen:
        score, w2 = judged(one, mean, variance, weight)
        log_score += score
        if w2 > 1e-280:
            gain = variance / (variance + NOISE / w2)
            mean, variance = mean + gain * (one.y - mean), variance * (1 - gain)
    return log_score, mean, variance


def transition(p: Any, i: int, source: int) -> np.ndarray:
    """P(. | source) of particle i among its regimes and a new one; the new one's row is beta."""
    n, alpha = p.n_regimes[i], p.alpha[i]
    counts = np.zeros(n + 1)
    if source == START:
        counts[:n] = np.asarray(p.start)[i, :n]
    elif source < n:
        counts[:n] = np.asarray(p.counts)[i, source, :n]
    beta = np.exp(np.asarray(p.log_beta)[i, : n + 1])
    return (counts + alpha * beta) / (counts.sum() + alpha)


def brute_force(model: Any, seen: list[Seen], weight: str) -> list[Pairs]:
    """Every (particle, next regime) from the rows as the batch began."""
    p, emission = model.engine.particles, model.engine.emission
    found = []
    for i, n in enumerate(np.asarray(p.n_regimes)):
        moves, parts = transition(p, i, p.current[i]), []
        for l, row in enumerate(np.asarray(p.slots)[i, : n + 1]):
            start = emission.mean[row, 0, 0], emission.root[row, 0, 0] ** 2
            log_score, mean, variance = filtered(*start, seen, weight)
            parts.append((math.exp(p.log_weight[i] + log_score) * moves[l], mean, variance))
        joint, mean, variance = np.transpose(parts)
        found.append(Pairs(joint, mean, variance + NOISE))
    return found


def assert_mixture(forecast: rk.Forecast, joint: Any, mean: Any, variance: Any, one: Seen) -> None:
    joint, mean, variance = (np.concatenate(part) for part in (joint, mean, variance))
    share = joint / joint.sum()
    assert forecast.mean == pytest.approx(share @ mean, rel=1e-10, abs=1e-12)
    second = share @ (variance + mean**2) - (share @ mean) ** 2
    assert forecast.variance == pytest.approx(second, rel=1e-9)
    density = (1 - one.eps) * (share @ stats.norm.pdf(one.y, mean, np.sqrt(variance)))
    density += one.eps * math.exp(one.log_q)
    assert forecast.log_density(one.y) == pytest.approx(math.log(density), rel=1e-9)


def made(weight: str, batch: int, **more: Any) -> Any:
    return rk.br_ihmm(
        noise=NOISE,
        prior_var=PRIOR_VAR,
        threshold=THRESHOLD,
        weight=weight,
        batch=batch,
        ess_threshold=0.0,
        sticky=0.0,
        islands=1,
        **{"particles": 12} | more,
    )


@pytest.mark.parametrize("weight", ["none", "imq", "huber", "contamination"])
@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_forecast_and_evidence_by_brute_force(weight: str, batch: int) -> None:
    """At every observation: the mixture over (particle, next regime), and each batch's evidence."""
    rng = np.random.default_rng(3)
    model, seen = made(weight, batch), []
    series = np.repeat([0.0, 3.0, 0.0], 7) + rng.standard_normal(21)
    series[[4, 11]] += 0.0 if weight == "none" else 30.0
    for y in series:
        forecast = model.predict()
        now = seen_by(forecast, y)
        if model.engine is not None:
            joint, mean, variance = zip(*brute_force(model, seen, weight), strict=True)
            assert_mixture(forecast, joint, mean, variance, now)
            seen.append(now)
            sums = np.array([pairs.joint.sum() for pairs in brute_force(model, seen, weight)])
        else:
            seen.append(now)
        assert model.update(y).log_score == pytest.approx(forecast.log_density(y), rel=1e-13)
        if len(seen) == batch:
            if model.engine.clock.time > batch:
                weights = np.exp(model.engine.particles.log_weight)
                np.testing.assert_allclose(weights, sums / sums.sum(), rtol=1e-9)
            seen = []
    assert np.asarray(model.engine.particles.n_regimes).max() > 1


@pytest.mark.parametrize("weight", ["imq", "contamination"])
def test_forecast_ahead_by_brute_force(weight: str) -> None:
    """Regimes move by the transition matrix from batch to batch; one R however far ahead."""
    rng = np.random.default_rng(4)
    series = np.repeat([0.0, 4.0, 0.0], 9) + rng.standard_normal(27)
    model = made(weight, 2)
    model.run(series[:-1])
    last = seen_by(model.predict(), series[-1])
    model.update(series[-1])  # the 28th observation will complete a batch
    forecasts = model.forecast(5)
    pairs = brute_force(model, [last], weight)
    p = model.engine.particles
    for h, batches in enumerate((0, 1, 1, 2, 2)):
        ahead = []
        for i, (joint, _, _) in enumerate(pairs):
            matrix = np.array([transition(p, i, s) for s in range(p.n_regimes[i] + 1)])
            ahead.append(joint @ np.linalg.matrix_power(matrix, batches))
        _, mean, variance = zip(*pairs, strict=True)
        assert_mixture(forecasts[h], ahead, mean, variance, seen_by(forecasts[h], 1.3))
