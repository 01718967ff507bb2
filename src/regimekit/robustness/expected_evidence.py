"""Expected evidence of a level shift for a new regime against the present one.

Everything is in standard deviations of the noise, with the present regime's level at 0. A regime
is a belief N(mean, 1 / precision) about its level. An observation y = h + e, e ~ N(0, 1), leaves

    r = y - mean,   S = 1 + 1 / precision,   w^2 and score as the model has them (`score.judge`)
    mean += r w^2 / (precision + w^2),   precision += w^2

and the *expected* course of a belief takes the expectation over e at every step, by quadrature.
The mean itself wobbles with the noise already learnt (variance v); with k the average slope of
the mean's step in r, v becomes (1 - k)^2 v + k^2. The evidence of a batch is the sum of the
expected differences of scores, its variance the sum of their variances over e.

Under contamination the density of outliers is centred at the present level, where the forecast
is, and a regime not opened yet has several branches, as in the filter (D10): branch j takes the
first j observations for outliers and believes the next one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from regimekit._numba import kernel
from regimekit.ihmm.emissions.base import Array
from regimekit.ihmm.weights import (
    BROAD_SCALE,
    CONTAMINATION,
    LONGEST,
    Broad,
    Residual,
    Scoring,
    judge,
    log_broad,
    log_normal,
    no_outliers,
)
from regimekit.ihmm.within_batch import belief as believed

NO_BRANCH = -1
_NODES = 24  # of the quadrature over one observation's noise


class Terms(NamedTuple):
    """How observations are judged: the law, log eps and log (1 - eps)."""

    scoring: Scoring
    log_rate: float = -math.inf
    log_rest: float = 0.0

    @classmethod
    def of(cls, scoring: Scoring, rate: float) -> Terms:
        """With the rate of outliers eps, which only contamination has."""
        mixed = scoring.kind == CONTAMINATION
        return cls(scoring, math.log(rate), math.log1p(-rate)) if mixed else cls(scoring)


class Belief(NamedTuple):
    """Beliefs about a level, one per case: mean, precision and the variance of the mean (C,)."""

    mean: np.ndarray
    precision: np.ndarray
    wobble: np.ndarray

    def copy(self) -> Belief:
        """An independent belief."""
        return Belief(*(array.copy() for array in self))


class Takeover(NamedTuple):
    """A regime that would take over, against the one that holds.

    Attributes:
        holder: the belief of the present regime.
        rival: the belief of the other as it enters; a new one's is the prior.
        fresh: whether the rival has learnt nothing yet (D3).
        branches: how many candidates it then has (D10); 0 for the one.
        log_enter: log odds of entering the rival against staying, before any evidence.
        log_stay: (J,) log odds of staying in the rival, j batches after entering it, against
            staying in the holder.
        log_hold: (J,) log odds of staying in the rival then, against going back to the holder.
        particles: N; an entry that no particle draws is no entry.
    """

    holder: Belief
    rival: Belief
    fresh: bool
    branches: int
    log_enter: float
    log_stay: Array
    log_hold: Array
    particles: int


class Quadrature(NamedTuple):
    """Nodes and weights of an expectation over a standard normal."""

    nodes: np.ndarray
    weights: np.ndarray


class Course(NamedTuple):
    """What a signal does, case by case.

    Attributes:
        probability: (C, J) that the rival is the reported regime at the end of batch j.
        evidence: (C, T) expected evidence of each observation for a rival that enters with its
            batch.
        log_odds: (C, J) expected log odds of the best entry so far.
    """

    probability: Array
    evidence: Array
    log_odds: Array


def believe(mean: Array | float, variance: float, cases: int, wobble: float = 0.0) -> Belief:
    """Beliefs of one variance for every case."""
    level = np.broadcast_to(np.asarray(mean, np.float64), (cases,)).copy()
    return Belief(level, np.full(cases, 1.0 / variance), np.full(cases, wobble))


def quadrature() -> Quadrature:
    """Gauss-Hermite nodes for a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return Quadrature(nodes, weights / weights.sum())


def play(signal: Array, batch: int, takeover: Takeover, terms: Terms) -> Course:
    """Follow the takeover over signals (C, T) of expected levels, T a multiple of `batch`.

    An entry at batch i competes with never having entered: its log odds are those of entering,
    plus the evidence since, plus what staying costs. The reported regime is the largest, so the
    best entry counts.
    """
    rule = quadrature()
    cases, length = signal.shape
    batches = length // batch
    holder = takeover.holder.copy()
    entries: list[_Entry] = []
    evidence, log_odds = np.empty(signal.shape), np.empty((cases, batches))
    probability = np.empty((cases, batches))
    for j in range(batches):
        part = signal[:, j * batch : (j + 1) * batch]
        held = _scores(holder, part, False, NO_BRANCH, terms, rule)
        entries.append(_Entry(takeover, cases))
        for entry in entries:
            entry.compete(part, held, terms, rule)
        evidence[:, j * batch : (j + 1) * batch] = entries[-1].latest
        log_odds[:, j] = np.max([entry.mean for entry in entries], axis=0)
        probability[:, j] = _any_ahead(entries)
    return Course(probability, evidence, log_odds)


class _Entry:
    """The rival entering with one batch: its belief, its log odds as mean and variance."""

    def __init__(self, takeover: Takeover, cases: int) -> None:
        self.takeover, self.belief = takeover, takeover.rival.copy()
        self.mean, self.variance = np.full(cases, takeover.log_enter), np.zeros(cases)
        self.drawn = np.ones(cases)  # chance that some particle carries the entry
        self.latest = np.zeros((cases, 0))
        self.batches = 0

    def compete(
        self, part: Array, held: tuple[Array, Array], terms: Terms, rule: Quadrature
    ) -> None:
        """Take in one batch."""
        if self.takeover.branches and self.batches == 0:
            ours, extra = self._best_branch(part, terms, rule)
        else:
            fresh = self.takeover.fresh and self.batches == 0
            ours = _scores(self.belief, part, fresh, NO_BRANCH, terms, rule)
            extra = np.zeros(len(part))
        self.latest = ours[0] - held[0]
        gap = ours[1] - held[1]
        centred = gap - (gap @ rule.weights)[..., None]
        self.variance += (centred**2 @ rule.weights).sum(axis=1)
        gained = self.latest.sum(axis=1) + extra
        self.mean = self.mean + gained
        survived = self._stay(gained) if self.batches else self._enter()
        self.drawn = self.drawn * survived
        self.mean = self.mean - np.log(survived)  # a path that is carried at all has its 1 / N
        self.batches += 1

    def _best_branch(
        self, part: Array, terms: Terms, rule: Quadrature
    ) -> tuple[tuple[Array, Array], Array]:
        """The newborn's first batch: scores of the best branch, and what the others add."""
        beliefs, scores = [], []
        for branch in range(self.takeover.branches):
            beliefs.append(self.takeover.rival.copy())
            scores.append(_scores(beliefs[-1], part, True, branch, terms, rule))
        totals = np.array([score[0].sum(axis=1) for score in scores])
        best, cases = totals.argmax(axis=0), np.arange(totals.shape[1])
        self.belief = Belief(*(np.array(a)[best, cases] for a in zip(*beliefs, strict=True)))
        expected, at_nodes = (np.array(a)[best, cases] for a in zip(*scores, strict=True))
        return (expected, at_nodes), np.logaddexp.reduce(totals) - totals.max(axis=0)

    def _enter(self) -> Array:
        """P(at least one particle draws the rival)."""
        share = _expected_share(self.mean, self.variance)
        return np.asarray(-np.expm1(self.takeover.particles * np.log1p(-share)))

    def _stay(self, gained: Array) -> Array:
        """P(not every particle of the entry goes back); few particles may all do."""
        stay, hold = self.takeover.log_stay, self.takeover.log_hold
        j = min(self.batches, stay.size) - 1
        self.mean = self.mean + stay[j]
        each = np.clip(expit(gained + hold[j]), 1e-12, 1.0 - 1e-12)
        share = _expected_share(self.mean, self.variance)
        carried = np.maximum(self.takeover.particles * share / each, 1.0)
        return np.asarray(-np.expm1(carried * np.log1p(-each)))

    def ahead(self) -> Array:
        """P(the rival outweighs the holder), once drawn."""
        return np.asarray(ndtr(self.mean / np.sqrt(self.variance + 1e-12)))


def _any_ahead(entries: list[_Entry]) -> Array:
    """P(some entry was drawn and is ahead): draws are independent, the noise is shared."""
    ahead = np.maximum(np.array([entry.ahead() for entry in entries]), 1e-300)
    best = ahead.max(axis=0)
    drawn = np.array([entry.drawn for entry in entries])
    return np.asarray(best * -np.expm1(np.log1p(-drawn * ahead / best * (1 - 1e-15)).sum(axis=0)))


def burst_log_odds(
    length: int, height: float, batch: int, rate: float, prior_var: float, log_enter: float
) -> float:
    """Log odds of a new regime after a batch with a burst, under contamination, without noise.

    `length` values at `height`, the others at the present level. The new regime learns the burst
    and takes the others for outliers, the present one the reverse, so with

        g(x) = log( (1 - eps) N(0; 0, 1) / (eps q(x)) )

    each value of the burst gains g(height) and each other loses g(0); and the new regime pays
    for having had to learn its level. It holds for heights that stand clear of the noise.

    Example:
        >>> few, many = (burst_log_odds(k, 10.0, 6, 0.02, 100.0, -5.0) for k in (3, 4))
        >>> few < 0 < many
        True
    """
    occam = 1.0 + length * prior_var
    paid = 0.5 * (math.log(occam) + length * height**2 / occam)
    gained = length * _per_value(height, rate) - (batch - length) * _per_value(0.0, rate)
    return log_enter - paid + gained


def _per_value(x: float, rate: float) -> float:
    """g(x): what one value is worth to the regime whose level it has."""
    log_q = float(log_broad(abs(x) / BROAD_SCALE, math.log(BROAD_SCALE), 1))
    return math.log((1.0 - rate) / rate) + float(log_normal(0.0, 0.0, 1)) - log_q


def _expected_share(mean: Array, variance: Array) -> Array:
    """E of 1 / (1 + exp(-L)), L normal: the logistic is nearly a normal cdf."""
    scaled = mean / np.sqrt(1.0 + math.pi * variance / 8.0)
    return np.asarray(np.minimum(expit(scaled), 1.0 - 1e-15))


def _scores(
    belief: Belief, part: Array, fresh: bool, branch: int, terms: Terms, rule: Quadrature
) -> tuple[Array, Array]:
    """Expected scores (C, B), and scores at the nodes of each observation's noise (C, B, Q).

    `belief` moves along.
    """
    cases, length = part.shape
    expected, at_nodes = np.empty((cases, length)), np.empty((cases, length, rule.nodes.size))
    start = belief.copy()
    for b in range(length):
        scored = belief if terms.scoring.sequential else start  # D4
        trust = believed(branch, b, length // 2)
        _observe(
            belief,
            scored,
            part[:, b].copy(),
            fresh,
            trust,
            terms,
            rule,
            expected[:, b],
            at_nodes[:, b],
        )
    return expected, at_nodes


@kernel
def _judge(
    r: float, y: float, spread: float, fresh: bool, trust: int, terms: Terms
) -> tuple[float, float]:
    """Score of a residual and the w^2 of its update, as the linear-Gaussian emission has them."""
    z = min(abs(r) / math.sqrt(spread), LONGEST)
    far = z if terms.scoring.predictive else min(abs(r), LONGEST)  # D2; the noise is the unit
    log_scale = 0.5 * math.log(spread)
    broad = no_outliers()
    if terms.scoring.kind == CONTAMINATION:
        log_q = log_broad(abs(y) / BROAD_SCALE, math.log(BROAD_SCALE), 1)
        broad = Broad(terms.log_rate, terms.log_rest, log_q)
    seen = Residual(log_normal(z, log_scale, 1), z, far, log_scale, 1)
    score, _, w2 = judge(terms.scoring, broad, seen, fresh, trust)
    return score, w2


@kernel
def _observe(
    belief: Belief,
    scored: Belief,
    height: np.ndarray,
    fresh: bool,
    trust: int,
    terms: Terms,
    rule: Quadrature,
    out_expected: np.ndarray,
    out_at_nodes: np.ndarray,
) -> None:
    """One observation of expected level `height` for every case."""
    for k in range(height.size):
        spread = 1.0 + 1.0 / scored.precision[k]
        scored_gap, gap = height[k] - scored.mean[k], height[k] - belief.mean[k]
        seen_sd = math.sqrt(1.0 + scored.wobble[k])
        shift_sd = math.sqrt(1.0 + belief.wobble[k])
        total, moved, slope, learnt = 0.0, 0.0, 0.0, 0.0
        for q in range(rule.nodes.size):
            node, weight = rule.nodes[q], rule.weights[q]
            y = height[k] + node
            out_at_nodes[k, q] = _judge(scored_gap + node, y, spread, fresh, trust, terms)[0]
            r = scored_gap + seen_sd * node
            score, w2 = _judge(r, y, spread, fresh, trust, terms)
            step = w2 / (belief.precision[k] + w2) * (gap + shift_sd * node)
            total += weight * score
            learnt += weight * w2
            moved += weight * step
            slope += weight * step * node / shift_sd  # Stein: E[f'] = E[f node] / sd
        out_expected[k] = total
        belief.mean[k] += moved
        belief.precision[k] += learnt
        belief.wobble[k] = (1.0 - slope) ** 2 * belief.wobble[k] + slope**2
