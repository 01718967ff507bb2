"""Expected evidence of a level shift for one regime against another, and their prior odds.

All levels are in standard deviations of the noise, relative to the level of the present regime. A
regime is a posterior N(mean, 1 / precision) of its level. An observation y = h + e, e ~ N(0, 1),
gives

    r = y - mean,   S = 1 + 1 / precision,   w^2 and score as in the filter (`ihmm.weights`)
    mean += r w^2 / (precision + w^2),   precision += w^2

and the *expected* course of a posterior takes the expectation over e at every step, by quadrature.
The mean also varies with the noise already learnt (variance v, `wobble`): with k the average slope
of the step of the mean in r, v becomes (1 - k)^2 v + k^2. The evidence of a batch is the sum of the
expected score differences, its variance the sum of their variances over e. Under contamination the
density of outliers is centred at the present level, where the forecast is.

Arguments of the functions:
    prior: priors of the transitions.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import cython
import numpy as np
from cython.cimports.libc.math import fabs, log, sqrt

from regimekit.distributions.normal import normal_cdf
from regimekit.ihmm.weights import OUTLIER_SCALE

if not cython.compiled:
    from regimekit.core.random import RandomSource
    from regimekit.ihmm.hdp import Concentration, log_transition_row
    from regimekit.ihmm.state import Particles
    from regimekit.ihmm.weights import CONTAMINATION, MAX_LENGTH, log_normal, log_outlier_density

QUADRATURE_NODES = 24  # over the noise of one observation
PRIOR_PARTICLES = 400  # over which prior odds are averaged
PRIOR_SWEEPS = 30  # Gibbs passes of burn-in
ODDS_BATCHES = 8  # batches after an entry for which the odds of staying are computed


class Belief:
    """Posteriors of a level, one for each of C cases.

    Args:
        mean: (C,) or a number.
        variance: variance of the level, a number.
        cases: C.
        wobble: variance of the mean itself, a number.

    Attributes:
        mean: (C,). precision: (C,). wobble: (C,).
    """

    def __init__(self, mean, variance, cases, wobble=0.0):
        self.mean = np.broadcast_to(np.asarray(mean, np.float64), (cases,)).copy()
        self.precision = np.full(cases, 1.0 / variance)
        self.wobble = np.full(cases, float(wobble))

    def copy(self):
        """Return an independent copy."""
        twin = Belief(self.mean, 1.0, len(self.mean))
        twin.precision, twin.wobble = np.array(self.precision), np.array(self.wobble)
        return twin


class Judge:
    """Expected scores and updates of levels.

    Arguments of the methods:
        belief: posteriors of C levels; they are updated.
        levels: (C, B) expected levels of a batch.
        densities: (C, B, Q) as from `outlier_densities`.
        fresh: whether the posteriors have no observations yet (D3).
        b: position in the batch.

    Args:
        scoring: weight and score of the model.
        rate: outlier rate eps; only contamination uses it.

    Attributes:
        nodes: (Q,) nodes of an expectation over a standard normal.
        node_weights: (Q,) their weights.
    """

    def __init__(self, scoring, rate=0.0):
        self.scoring = scoring.with_kind(scoring.kind)
        if scoring.kind == CONTAMINATION:
            self.scoring.log_rate, self.scoring.log_regular = math.log(rate), math.log1p(-rate)
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        self.nodes, self.node_weights = nodes, weights / weights.sum()

    def outlier_densities(self, levels):
        """Return log q of a batch at the nodes, (C, B, Q); (0, 0, 0) without contamination."""
        if self.scoring.kind != CONTAMINATION:
            return np.zeros((0, 0, 0))
        lengths = np.abs(levels[..., None] + np.asarray(self.nodes)) / OUTLIER_SCALE
        out = np.empty(lengths.shape)
        write_densities(lengths.ravel(), math.log(OUTLIER_SCALE), out.ravel())
        return out

    def score_batch(self, belief, levels, densities, fresh):
        """Learn a batch of expected levels.

        Returns:
            Expected scores (C, B), and scores (C, B, Q) at the nodes of the noise of each
            observation.
        """
        values: cython.double[:, ::1] = np.ascontiguousarray(levels, np.float64)
        expected = np.empty((values.shape[0], values.shape[1]))
        at_nodes = np.empty((values.shape[0], values.shape[1], self.nodes.shape[0]))
        # Deviation D4: the paper's Algorithm 1 scores with the row at the start of the batch.
        scored = belief if self.scoring.sequential else belief.copy()
        for b in range(values.shape[1]):
            self.observe(belief, scored, values, densities, b, fresh, expected, at_nodes)
        return expected, at_nodes

    def score(self, residual, spread, log_scale, fresh):
        """Return score and w^2 of a residual, as the linear-Gaussian emission computes them.

        Args:
            residual: residual in noise standard deviations.
            spread: variance of the predictive distribution, in noise variances.
            log_scale: half its logarithm.
            fresh: whether the posterior has no observations yet (D3).
        """
        z: cython.double = min(fabs(residual) / sqrt(spread), MAX_LENGTH)
        length: cython.double = z
        if not self.scoring.predictive:
            # Deviation D2: measured under the noise, whose variance is 1.
            length = min(fabs(residual), MAX_LENGTH)
        score, _, w2 = self.scoring.judge(
            log_normal(z, log_scale, 1), z, length, log_scale, 1, fresh
        )
        return score, w2

    def observe(self, belief, scored, level, density, b, fresh, out_expected, out_at_nodes):
        """Learn observation `b` of every case.

        Args:
            belief: posteriors of C levels; they are updated.
            scored: posteriors that score the observation (D4).
            level: (C, B) expected levels.
            density: (C, B, Q) as from `outlier_densities`.
            b: position in the batch.
            fresh: whether the posteriors have no observations yet (D3).
            out_expected: (C, B) output, expected scores.
            out_at_nodes: (C, B, Q) output, scores at the nodes.
        """
        spread: cython.double
        scored_gap: cython.double
        gap: cython.double
        scored_sd: cython.double
        sd: cython.double
        log_scale: cython.double
        step: cython.double
        total: cython.double
        learnt: cython.double
        moved: cython.double
        slope: cython.double
        for k in range(level.shape[0]):
            spread = 1.0 + 1.0 / scored.precision[k]
            log_scale = 0.5 * log(spread)
            scored_gap = level[k, b] - scored.mean[k]
            gap = level[k, b] - belief.mean[k]
            scored_sd = sqrt(1.0 + scored.wobble[k])
            sd = sqrt(1.0 + belief.wobble[k])
            total = learnt = moved = slope = 0.0
            for q in range(self.nodes.shape[0]):
                if self.scoring.kind == CONTAMINATION:
                    self.scoring.log_density = density[k, b, q]
                at_node, _ = self.score(scored_gap + self.nodes[q], spread, log_scale, fresh)
                out_at_nodes[k, b, q] = at_node
                score, w2 = self.score(
                    scored_gap + scored_sd * self.nodes[q], spread, log_scale, fresh
                )
                step = w2 / (belief.precision[k] + w2) * (gap + sd * self.nodes[q])
                total += self.node_weights[q] * score
                learnt += self.node_weights[q] * w2
                moved += self.node_weights[q] * step
                # Stein: E[f'] = E[f node] / sd
                slope += self.node_weights[q] * step * self.nodes[q] / sd
            out_expected[k, b] = total
            belief.mean[k] += moved
            belief.precision[k] += learnt
            belief.wobble[k] = (1.0 - slope) * (1.0 - slope) * belief.wobble[k] + slope * slope


def write_densities(lengths, log_scale, out):
    """Write log q at some residuals to `out`, of the same shape."""
    for k in range(lengths.shape[0]):
        out[k] = log_outlier_density(lengths[k], log_scale, 1)


class Takeover(NamedTuple):
    """A regime that may replace the present one.

    Attributes:
        present: posterior of the present regime.
        rival: posterior of the other regime at its entry; for a new regime the prior.
        fresh: whether the rival has not learnt anything yet (D3).
        log_enter: log odds of entering the rival against staying, before any evidence.
        log_stay: (J,) log odds of staying in the rival, j batches after entering it, against
            staying in the present regime.
        log_hold: (J,) log odds of staying in the rival then, against returning.
        particles: N; an entry that no particle draws does not happen.
    """

    present: Belief
    rival: Belief
    fresh: bool
    log_enter: float
    log_stay: np.ndarray
    log_hold: np.ndarray
    particles: int


class Course(NamedTuple):
    """Expected response to a signal, case by case.

    Attributes:
        probability: (C, J) that the rival is the reported regime at the end of batch j.
        evidence: (C, T) expected evidence of each observation for a rival that enters with its
            batch.
        log_odds: (C, J) expected log odds of the best entry so far.
    """

    probability: np.ndarray
    evidence: np.ndarray
    log_odds: np.ndarray


def expected_course(signal, batch, takeover, judge):
    """Return the expected response to signals.

    An entry with batch i competes with never having entered: its log odds are those of entering,
    plus the evidence since, plus the odds of staying. The reported regime is the most probable one,
    so the best entry counts.

    Args:
        signal: (C, T) expected levels, T a multiple of `batch`.
        batch: B.
        takeover: the regimes and their prior odds.
    """
    cases, length = signal.shape
    batches = length // batch
    present = takeover.present.copy()
    entries = []
    evidence, log_odds = np.empty(signal.shape), np.empty((cases, batches))
    probability = np.empty((cases, batches))
    for j in range(batches):
        part = signal[:, j * batch : (j + 1) * batch]
        densities = judge.outlier_densities(part)
        held = judge.score_batch(present, part, densities, False)
        latest = Entry(takeover, cases)
        entries.append(latest)
        for entry in entries:
            entry.learn(part, densities, held, judge)
        evidence[:, j * batch : (j + 1) * batch] = latest.gained
        log_odds[:, j] = np.max([entry.mean for entry in entries], axis=0)
        probability[:, j] = probability_of_any(entries)
    return Course(probability, evidence, log_odds)


class Entry:
    """The rival that entered with one batch: posterior, mean and variance of its log odds."""

    def __init__(self, takeover, cases):
        self.takeover, self.belief = takeover, takeover.rival.copy()
        self.mean, self.variance = np.full(cases, takeover.log_enter), np.zeros(cases)
        self.drawn = np.ones(cases)  # probability that some particle stores the entry
        self.gained = np.zeros((cases, 0))
        self.batches = 0

    def learn(self, part, densities, held, judge):
        """Update with one batch.

        Args:
            part: (C, B) expected levels.
            densities: (C, B, Q) as from `outlier_densities`.
        """
        fresh = self.takeover.fresh and self.batches == 0
        expected, at_nodes = judge.score_batch(self.belief, part, densities, fresh)
        self.gained = expected - held[0]
        gap = at_nodes - held[1]
        weights = np.asarray(judge.node_weights)
        centred = gap - (gap @ weights)[..., None]
        self.variance += (centred**2 @ weights).sum(axis=1)
        gained = self.gained.sum(axis=1)
        self.mean = self.mean + gained
        survived = self.survive(gained) if self.batches else self.enter()
        self.drawn = self.drawn * survived
        # A path that is stored at all has at least the weight 1 / N.
        self.mean = self.mean - np.log(survived)
        self.batches += 1

    def enter(self):
        """Return the probability that at least one particle draws the rival."""
        share = expected_share(self.mean, self.variance)
        return -np.expm1(self.takeover.particles * np.log1p(-share))

    def survive(self, gained):
        """Return the probability that not every particle of the entry returns.

        Args:
            gained: (C,) evidence of the batch.
        """
        stay, hold = self.takeover.log_stay, self.takeover.log_hold
        j = min(self.batches, stay.size) - 1
        self.mean = self.mean + stay[j]
        each = np.clip(logistic(gained + hold[j]), 1e-12, 1.0 - 1e-12)
        share = expected_share(self.mean, self.variance)
        carried = np.maximum(self.takeover.particles * share / each, 1.0)
        return -np.expm1(carried * np.log1p(-each))

    def ahead(self):
        """Return the probability that the rival outweighs the present regime, once drawn."""
        return normal_cdf(self.mean / np.sqrt(self.variance + 1e-12))


def probability_of_any(entries):
    """Return P(some entry was drawn and is ahead): draws are independent, the noise is shared."""
    ahead = np.maximum(np.array([entry.ahead() for entry in entries]), 1e-300)
    best = ahead.max(axis=0)
    drawn = np.array([entry.drawn for entry in entries])
    return best * -np.expm1(np.log1p(-drawn * ahead / best * (1 - 1e-15)).sum(axis=0))


def logistic(x):
    """Return 1 / (1 + exp(-x))."""
    return np.exp(-np.logaddexp(0.0, -x))


def expected_share(mean, variance):
    """Return E[1 / (1 + exp(-L))] for normal L: the logistic function is nearly a normal cdf.

    Args:
        variance: variance of L.
    """
    scaled = mean / np.sqrt(1.0 + math.pi * variance / 8.0)
    return np.minimum(logistic(scaled), 1.0 - 1e-15)


def burst_log_odds(length, height, batch, rate, prior_var, log_enter):
    """Return the log odds of a new regime after a batch with a burst, under contamination.

    There is no noise: `length` values have the level `height`, the others the present level. The
    new regime learns the burst and classifies the others as outliers, the present one the reverse.
    With

        g(x) = log( (1 - eps) N(0; 0, 1) / (eps q(x)) )

    each value of the burst adds g(height), each other one subtracts g(0), and learning its level
    reduces the evidence of the new regime. Valid for heights clear of the noise.

    Args:
        length: values in the burst.
        height: their level in noise standard deviations.
        batch: B.
        rate: outlier rate eps.
        prior_var: prior variance of a level, in noise variances.
        log_enter: log odds of entering a new regime before any evidence.

    Example:
        >>> few, many = (burst_log_odds(k, 10.0, 6, 0.02, 100.0, -5.0) for k in (3, 4))
        >>> few < 0 < many
        True
    """
    occam = 1.0 + length * prior_var
    paid = 0.5 * (math.log(occam) + length * height**2 / occam)
    gain = [
        math.log((1.0 - rate) / rate)
        + log_normal(0.0, 0.0, 1)
        - log_outlier_density(x / OUTLIER_SCALE, math.log(OUTLIER_SCALE), 1)
        for x in (abs(height), 0.0)
    ]
    return log_enter - paid + length * gain[0] - (batch - length) * gain[1]


class PriorOdds(NamedTuple):
    """Prior log odds between regimes from batch to batch.

    Attributes:
        enter: of a new regime against staying.
        back: of a known regime that was left once, against staying.
        stay: (J,) of staying in a regime j = 1 .. J batches after entering it, against staying in
            the present one.
        hold: (J,) the same against returning from it.
    """

    enter: float
    back: float
    stay: np.ndarray
    hold: np.ndarray


@cache
def prior_odds(visits, alpha_prior, gamma_prior, sticky):
    """Return the `PriorOdds` after `visits` batches in the present regime.

    alpha, gamma and beta are averaged by the Gibbs sweep of the model.

    Args:
        alpha_prior: (shape, rate) of the Gamma prior of alpha.
        gamma_prior: (shape, rate) of the Gamma prior of gamma.
    """
    prior = Concentration(*alpha_prior, *gamma_prior, sticky)
    random = RandomSource(np.random.default_rng(0))
    counts = np.array([[max(round(visits) - 1, 1), 1], [1, 0]])
    alone = swept_particles(counts[:1, :1], prior, random)
    pair = swept_particles(counts, prior, random)
    stay, hold = np.empty(ODDS_BATCHES), np.empty(ODDS_BATCHES)
    for j in range(ODDS_BATCHES):
        entered = swept_particles(np.array([counts[0], [0, j]]), prior, random)
        staying = log_probability(entered, 1, 1, prior)
        stay[j] = staying - log_probability(entered, 0, 0, prior)
        hold[j] = staying - log_probability(entered, 1, 0, prior)
    enter = log_probability(alone, 0, 1, prior) - log_probability(alone, 0, 0, prior)
    back = log_probability(pair, 0, 1, prior) - log_probability(pair, 0, 0, prior)
    return PriorOdds(enter, back, stay, hold)


def swept_particles(counts, prior, random):
    """Return particles with given transition counts after Gibbs sweeps of their structure.

    Args:
        counts: (K, K) transition counts.
    """
    n, regimes = PRIOR_PARTICLES, len(counts)
    p = Particles(n)
    p.alpha = random.generator.gamma(prior.alpha_shape, 1.0 / prior.alpha_rate, n)
    p.gamma = random.generator.gamma(prior.gamma_shape, 1.0 / prior.gamma_rate, n)
    np.asarray(p.n_regimes)[:] = regimes
    np.asarray(p.current)[:] = 0
    np.asarray(p.start)[:, 0] = 1
    np.asarray(p.counts)[:, :regimes, :regimes] = counts
    np.asarray(p.log_beta)[:, : regimes + 1] = -math.log(regimes + 1)
    prior.reserve(p.log_beta.shape[1])
    sweep_all(p, prior, PRIOR_SWEEPS, random)
    return p


def sweep_all(p, prior, passes, random):
    """Sweep the structure of every particle several times."""
    for i in range(p.alpha.shape[0]):
        for _ in range(passes):
            prior.sweep(p, i, True, random)


def log_probability(p, source, target, prior):
    """Return the log of the average of P(target | source) over the particles."""
    np.asarray(p.current)[:] = source
    for i in range(p.alpha.shape[0]):
        log_transition_row(p, i, prior.sticky)
    return math.log(np.exp(np.asarray(p.log_row)[:, target]).mean())
