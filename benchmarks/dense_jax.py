"""The paper's algorithm as a dense array program in JAX: N particles x K slots, padded.

A careful implementation for an accelerator: float64, one `jit` of one `lax.scan` over the batches,
no Python inside. Every particle stores its regimes' means and covariances; a slot beyond those in
use is computed and masked. It is `rule="paper"` of the engine (docs/deviations.md), for y of one
coordinate:

    score   sum over the batch of w^2 log N(y; f mu, S), w^2 = 1 / (1 + r^2 / (R c^2)), statistics
            of the beginning of the batch; S of its b-th observation has b R
    weigh   by the evidence of the batch alone, as in line 6
    learn   the chosen slot alone, unless particles are resampled: then all are copied
    sweep   as many as the batch has observations, without self-transitions from the second on

Where a dense program would be slow without need, the cheapest comparable way was taken. Gamma draws
are Marsaglia and Tsang's, all of a sweep in one loop. Tables are drawn per dish, from a binomial
with the exact mean and variance of their number (`draw_tables`). `python -m benchmarks.same_law`
shows that forecasts have the engine's distribution.

Pruning moves one regime; resampling and pruning are done only if some particle needs it.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)

MOST_TABLES = 200  # of one dish beyond the first of each cell
LEAST = 1e-12


class Settings(NamedTuple):
    """Settings of the model; static for the compiler."""

    batch: int
    particles: int = 100
    slots: int = 30
    noise: float = 0.25
    prior_var: float = 1.0
    threshold: float = 2.0
    ess_threshold: float = 0.5
    prune_pool: int = 5


class State(NamedTuple):
    """State of the particles, (N, ..) each; slot n of a particle with n regimes is unopened."""

    mean: jax.Array  # (N, K, m)
    cov: jax.Array  # (N, K, m, m)
    visits: jax.Array  # (N, K)
    last_seen: jax.Array  # (N, K)
    counts: jax.Array  # (N, K + 1, K + 1)
    log_beta: jax.Array  # (N, K + 1)
    n: jax.Array  # (N,) regimes opened
    current: jax.Array  # (N,)
    alpha: jax.Array  # (N,)
    gamma: jax.Array  # (N,)
    log_weight: jax.Array  # (N,)


class Outputs(NamedTuple):
    """Outputs for every observation, (B,) per batch."""

    mean: jax.Array
    variance: jax.Array
    log_score: jax.Array
    ess: jax.Array
    most: jax.Array  # largest number of regimes of a particle


def begin(key: jax.Array, s: Settings, width: int) -> State:
    """Return the initial state: s_0 = 1, L_0 = 1, N_0 = 0, beta_0 ~ SB(gamma), own prior means."""
    k_gamma, k_stick, k_mean = jax.random.split(key, 3)
    size, slots = s.particles, s.slots
    alpha, gamma = jnp.maximum(jax.random.exponential(k_gamma, (2, size)), LEAST)
    log_rest = jnp.log(jax.random.uniform(k_stick, (size,), minval=1e-300)) / gamma
    log_beta = jnp.full((size, slots + 1), -jnp.inf)
    log_beta = log_beta.at[:, 0].set(jnp.log(-jnp.expm1(log_rest))).at[:, 1].set(log_rest)
    mean = jnp.zeros((size, slots, width))
    mean = mean.at[:, :2].set(jax.random.normal(k_mean, (size, 2, width)))
    cov = jnp.broadcast_to(s.prior_var * jnp.eye(width), (size, slots, width, width))
    zeros = jnp.zeros((size, slots), jnp.int64)
    return State(
        mean,
        cov,
        zeros,
        zeros,
        jnp.zeros((size, slots + 1, slots + 1), jnp.int64),
        log_beta,
        jnp.ones(size, jnp.int64),
        jnp.zeros(size, jnp.int64),
        alpha,
        gamma,
        jnp.full(size, -jnp.log(size)),
    )


def forecast(state: State, s: Settings, y: jax.Array, x: jax.Array) -> tuple[jax.Array, ...]:
    """Return the mixture of the regimes at the start of the batch, with b R at the b-th step."""
    rows = jnp.arange(s.particles)
    mean, cov = state.mean[rows, state.current], state.cov[rows, state.current]
    location = mean @ x.T  # (N, B)
    steps = 1.0 + jnp.arange(s.batch)
    spread = jnp.einsum("bi,nij,bj->nb", x, cov, x) + steps * s.noise
    share = jnp.exp(state.log_weight)[:, None]
    centre = (share * location).sum(0)
    variance = (share * (spread + (location - centre) ** 2)).sum(0)
    log_density = -0.5 * (jnp.log(2 * jnp.pi * spread) + (y - location) ** 2 / spread)
    log_score = jax.nn.logsumexp(state.log_weight[:, None] + log_density, axis=0)
    return centre, variance, log_score


def score(state: State, s: Settings, y: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the (N, K) score of the batch under every slot, and (N, K, B) weights w^2."""
    residual = y - jnp.einsum("nki,bi->nkb", state.mean, x)
    steps = 1.0 + jnp.arange(s.batch)
    spread = jnp.einsum("nkij,bi,bj->nkb", state.cov, x, x) + steps * s.noise
    w2 = 1.0 / (1.0 + residual**2 / (s.noise * s.threshold**2))
    plain = -0.5 * (jnp.log(2 * jnp.pi * spread) + residual**2 / spread)
    return (w2 * plain).sum(-1), w2


def log_transition(state: State) -> jax.Array:
    """Return (N, K) log P(l | s); -inf beyond the regime not opened yet."""
    rows = jnp.arange(state.n.size)
    counts = state.counts[rows, state.current, :-1]
    weight = counts + state.alpha[:, None] * jnp.exp(state.log_beta[:, :-1])
    total = counts.sum(1) + state.alpha
    used = jnp.arange(counts.shape[1]) <= state.n[:, None]
    return jnp.where(used, jnp.log(weight) - jnp.log(total)[:, None], -jnp.inf)


def learn(
    state: State, s: Settings, choice: jax.Array, w2: jax.Array, y: jax.Array, x: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return (N, m), (N, m, m): the chosen slots after the batch; a first batch is unweighted."""
    rows = jnp.arange(s.particles)
    mean, cov = state.mean[rows, choice], state.cov[rows, choice]
    fresh = state.visits[rows, choice] == 0
    weight = jnp.where(fresh[:, None], 1.0, w2[rows, choice])
    for b in range(s.batch):
        along = cov @ x[b]
        spread = along @ x[b] + s.noise / weight[:, b]
        gain = along / spread[:, None]
        mean = mean + gain * (y[b] - mean @ x[b])[:, None]
        cov = cov - gain[:, :, None] * along[:, None, :]
    return mean, cov


def open_regimes(state: State, opened: jax.Array, key: jax.Array) -> State:
    """Split the last stick of the particles that chose their unopened slot."""
    size, rows = opened.size, jnp.arange(opened.size)
    log_rest = jnp.log(jax.random.uniform(key, (size,), minval=1e-300)) / state.gamma
    log_rest = jnp.minimum(log_rest, -1e-300)
    last = state.log_beta[rows, state.n]
    kept = jnp.where(opened, last + jnp.log(-jnp.expm1(log_rest)), last)
    rest = jnp.where(opened, last + log_rest, -jnp.inf)
    log_beta = state.log_beta.at[rows, state.n].set(kept)
    at = jnp.where(opened, state.n + 1, log_beta.shape[1])  # out of bounds: dropped
    log_beta = log_beta.at[rows, at].set(rest, mode="drop")
    return state._replace(log_beta=log_beta, n=state.n + opened)


def prune(state: State, s: Settings) -> State:
    """At K regimes, remove the least recently visited of the least visited ones.

    The present regime is never removed. The last one takes the free slot, because their order has
    no meaning.
    """
    rows, slots = jnp.arange(s.particles), jnp.arange(s.slots)
    full = state.n >= s.slots
    out = state.counts[:, :-1, :-1].sum(2) + jnp.where(slots == state.current[:, None], 1 << 40, 0)
    _, pool = lax.top_k(-out, s.prune_pool)
    seen = jnp.take_along_axis(state.last_seen, pool, axis=1)
    victim = jnp.take_along_axis(pool, seen.argmin(1)[:, None], axis=1)[:, 0]
    victim = jnp.where(full, victim, s.slots - 1)
    end = s.slots - 1

    def moved(array: jax.Array) -> jax.Array:
        return array.at[rows, victim].set(array[:, end])

    def blank(array: jax.Array, value: float) -> jax.Array:
        mask = full.reshape((-1,) + (1,) * (array[:, end].ndim - 1))
        return array.at[:, end].set(jnp.where(mask, value, array[:, end]))

    counts = blank(moved(state.counts), 0)
    turned = blank(moved(jnp.swapaxes(counts, 1, 2)), 0)
    log_beta = moved(state.log_beta)
    rest = state.log_beta[:, s.slots]
    log_beta = log_beta.at[:, end].set(jnp.where(full, rest, log_beta[:, end]))
    log_beta = log_beta.at[:, s.slots].set(jnp.where(full, -jnp.inf, rest))
    log_beta = log_beta - jax.nn.logsumexp(log_beta, axis=1, keepdims=True)
    return state._replace(
        mean=moved(state.mean),
        cov=moved(state.cov),
        visits=blank(moved(state.visits), 0),
        last_seen=moved(state.last_seen),
        counts=jnp.swapaxes(turned, 1, 2),
        log_beta=log_beta,
        n=state.n - full,
        current=jnp.where(full & (state.current == end), victim, state.current),
    )


def draw_prospects(state: State, s: Settings, opened: jax.Array, key: jax.Array) -> State:
    """Draw a separate mean for every regime not opened yet."""
    width = state.mean.shape[2]
    rows = jnp.arange(s.particles)
    at = jnp.where(opened, state.n, s.slots)  # out of bounds: dropped
    mean = state.mean.at[rows, at].set(jax.random.normal(key, (s.particles, width)), mode="drop")
    cov = state.cov.at[rows, at].set(s.prior_var * jnp.eye(width), mode="drop")
    visits = state.visits.at[rows, at].set(0, mode="drop")
    return state._replace(mean=mean, cov=cov, visits=visits)


def log_gamma_draws(key: jax.Array, shape: jax.Array) -> jax.Array:
    """Return logs of Gamma(shape, 1) draws, -inf where shape is 0 (Marsaglia and Tsang)."""
    boosted = jnp.where(shape < 1.0, shape + 1.0, shape)
    d = boosted - 1.0 / 3.0
    c = 1.0 / jnp.sqrt(9.0 * d)
    key, k_boost = jax.random.split(key)

    def propose(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        key, found, done = carry
        key, k_normal, k_uniform = jax.random.split(key, 3)
        x = jax.random.normal(k_normal, shape.shape)
        log_u = jnp.log(jax.random.uniform(k_uniform, shape.shape, minval=1e-300))
        log_v = 3.0 * jnp.log(jnp.maximum(1.0 + c * x, 1e-300))
        good = (1.0 + c * x > 0) & (log_u < 0.5 * x * x + d - d * jnp.exp(log_v) + d * log_v)
        return key, jnp.where(good & ~done, jnp.log(d) + log_v, found), done | good

    start = (key, jnp.zeros_like(shape), shape <= 0.0)
    found = lax.while_loop(lambda carry: ~carry[2].all(), propose, start)[1]
    log_u = jnp.log(jax.random.uniform(k_boost, shape.shape, minval=1e-300))
    small = jnp.where(shape < 1.0, log_u / jnp.where(shape > 0, shape, 1.0), 0.0)
    return jnp.where(shape > 0, found + small, -jnp.inf)


def digamma_pair(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return psi(x) and psi'(x), within 1e-4 for x >= 1."""
    y = x + 1.5
    first = jnp.log(y) + 1.0 / (24.0 * y * y) - 1.0 / x - 1.0 / (x + 1.0)
    second = 1.0 / y - 1.0 / (12.0 * y**3) + 1.0 / x**2 + 1.0 / (x + 1.0) ** 2
    return first, second


def table_moments(counts: jax.Array, share: jax.Array) -> tuple[jax.Array, ...]:
    """Return (N, K) first tables of each column, and sums of p_j and p_j^2 of the others.

    The j-th customer of a cell after the first opens a table with probability a / (a + j).
    """
    psi, trigamma = digamma_pair(share[:, None, :] + jnp.maximum(counts, 1))
    psi_1, trigamma_1 = digamma_pair(share + 1.0)
    filled = (counts > 0).sum(1)
    expected = share * ((psi - psi_1[:, None]) * (counts > 0)).sum(1)
    squares = share**2 * ((trigamma_1[:, None] - trigamma) * (counts > 0)).sum(1)
    return filled, jnp.maximum(expected, 0.0), jnp.maximum(squares, 0.0)


def draw_tables(key: jax.Array, counts: jax.Array, share: jax.Array) -> jax.Array:
    """Return (N, K) tables per dish: one for every filled cell, and a binomial of the rest.

    A sweep needs only these sums over a column. A sum of many independent Bernoullis is nearly
    binomial with the same mean (sum p_j) and variance (sum p_j (1 - p_j)).
    """
    filled, expected, squares = table_moments(counts, share)
    p = jnp.clip(squares / jnp.maximum(expected, 1e-300), 1e-9, 1.0 - 1e-9)
    trials, odds = expected / p, p / (1.0 - p)
    u = lax.optimization_barrier(jax.random.uniform(key, share.shape))
    most = jnp.maximum(counts - 1, 0).sum(1)

    def higher(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        k, mass, below, tables = carry
        mass = mass * jnp.maximum(trials - k, 0.0) / (k + 1.0) * odds
        return k + 1.0, mass, below + mass, tables + (u > below)

    def unfinished(carry: tuple[jax.Array, ...]) -> jax.Array:
        return ((u > carry[2]) & (carry[0] < jnp.minimum(trials + 1.0, MOST_TABLES))).any()

    first = jnp.exp(trials * jnp.log1p(-p))
    start = (jnp.float64(0.0), first, first, jnp.zeros_like(share))
    return filled + jnp.minimum(lax.while_loop(unfinished, higher, start)[3], most)


def sweep(state: State, key: jax.Array, diagonal: jax.Array) -> State:
    """Return the state after one Gibbs pass over tables, alpha, gamma and beta of all particles."""
    slots = state.mean.shape[1]
    k_tables, k_pair, k_beta, k_uniform = jax.random.split(key, 4)
    counts = state.counts[:, :-1, :-1] * jnp.where(jnp.eye(slots, dtype=bool), diagonal, 1)
    share = state.alpha[:, None] * jnp.exp(state.log_beta[:, :-1])
    at_dish = draw_tables(k_tables, counts, share)
    total = at_dish.sum(1)
    customers = counts.sum(2).astype(jnp.float64)
    alpha = state.alpha[:, None]
    shapes = [jnp.where(customers > 0, alpha + 1.0, 0.0), customers, state.gamma[:, None] + 1.0]
    logs = log_gamma_draws(k_pair, jnp.concatenate([*shapes, total[:, None]], axis=1))
    x, y = logs[:, :slots], logs[:, slots : 2 * slots]
    log_u = jnp.where(customers > 0, x - jnp.logaddexp(x, y), 0.0).sum(1)
    u = jax.random.uniform(k_uniform, (len(total), slots + 1))
    v = ((customers > 0) & (u[:, :-1] * (customers + alpha) < customers)).sum(1)
    log_phi = jnp.where(total > 0, logs[:, -2] - jnp.logaddexp(logs[:, -2], logs[:, -1]), 0.0)
    rate, shape = 1.0 - log_phi, 1.0 + state.n
    odds = (shape - 1.0) / (jnp.maximum(total, 1.0) * rate)
    shape = jnp.where(total > 0, shape - (u[:, -1] * (1.0 + odds) >= odds), 1.0)
    drawn = log_gamma_draws(k_beta, jnp.stack([1.0 + total - v, shape], axis=1))
    alpha_new = jnp.maximum(jnp.exp(drawn[:, 0]) / (1.0 - log_u), LEAST)
    gamma_new = jnp.maximum(jnp.exp(drawn[:, 1]) / rate, LEAST)
    log_beta = draw_beta(jax.random.fold_in(k_beta, 1), at_dish, state.n, gamma_new)
    return state._replace(alpha=alpha_new, gamma=gamma_new, log_beta=log_beta)


def refresh(state: State, s: Settings, key: jax.Array) -> State:
    """Return the state after as many sweeps as the batch has observations."""

    def one(b: jax.Array, parts: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        now = state._replace(alpha=parts[0], gamma=parts[1], log_beta=parts[2])
        now = sweep(now, jax.random.fold_in(key, b), jnp.where(b == 0, 1, 0))
        return now.alpha, now.gamma, now.log_beta

    parts = lax.fori_loop(0, s.batch, one, (state.alpha, state.gamma, state.log_beta))
    return state._replace(alpha=parts[0], gamma=parts[1], log_beta=parts[2])


def draw_beta(key: jax.Array, at_dish: jax.Array, n: jax.Array, gamma: jax.Array) -> jax.Array:
    """Return draws of beta ~ Dir(m_.1, .., m_.L, gamma), in logs."""
    slots = at_dish.shape[1]
    places = jnp.arange(slots + 1)
    padded = jnp.pad(at_dish, ((0, 0), (0, 1)))
    shapes = jnp.where(places < n[:, None], padded, 0.0)
    shapes = jnp.where(places == n[:, None], gamma[:, None], shapes)
    logs = log_gamma_draws(key, shapes)
    return logs - jax.nn.logsumexp(logs, axis=1, keepdims=True)


def resample(state: State, log_nu: jax.Array, w2: jax.Array, key: jax.Array) -> tuple:
    """Return multinomial copies of the particles by weight."""
    size = state.n.size
    total = jnp.cumsum(jnp.exp(state.log_weight))
    points = jax.random.uniform(key, (size,)) * total[-1]
    parents = jnp.minimum(jnp.searchsorted(total, points, side="right"), size - 1)
    copied = jax.tree.map(lambda array: array[parents], state)
    copied = copied._replace(log_weight=jnp.full(size, -jnp.log(size)))
    return copied, log_nu[parents], w2[parents]


def commit(state: State, s: Settings, inputs: tuple[jax.Array, ...]) -> tuple[State, Outputs]:
    """Process one batch: forecast, score, weigh, resample, assign, learn, prune, structure."""
    y, x, key, time = inputs
    keys = jax.random.split(key, 4)
    mean, variance, log_score = forecast(state, s, y, x)
    scores, w2 = score(state, s, y, x)
    log_nu = log_transition(state) + scores
    # Line 6 of Algorithm 1 as printed: the weights before the batch do not count.
    log_weight = jax.nn.logsumexp(log_nu, axis=1)
    log_weight = log_weight - jax.nn.logsumexp(log_weight)
    state = state._replace(log_weight=log_weight)
    ess = 1.0 / jnp.exp(2.0 * log_weight).sum()
    state, log_nu, w2 = lax.cond(
        ess <= s.ess_threshold * s.particles,
        resample,
        lambda state, log_nu, w2, key: (state, log_nu, w2),
        state,
        log_nu,
        w2,
        keys[0],
    )
    state, opened = assign(state, s, log_nu, w2, (y, x, time), keys[1])
    state = lax.cond((state.n >= s.slots).any(), partial(prune, s=s), lambda state: state, state)
    state = draw_prospects(state, s, opened, keys[2])
    state = refresh(state, s, keys[3])
    size = jnp.ones(s.batch)
    return state, Outputs(mean, variance, log_score, ess * size, state.n.max() * size)


def assign(
    state: State, s: Settings, log_nu: jax.Array, w2: jax.Array, batch: tuple, key: jax.Array
) -> tuple[State, jax.Array]:
    """Draw the batch's regime, learn it, open it if it is new, count the transition once."""
    y, x, time = batch
    rows = jnp.arange(s.particles)
    k_choice, k_open = jax.random.split(key)
    choice = jax.random.categorical(k_choice, log_nu, axis=1)
    opened = choice == state.n
    mean, cov = learn(state, s, choice, w2, y, x)
    state = open_regimes(state, opened, k_open)
    state = state._replace(
        mean=state.mean.at[rows, choice].set(mean),
        cov=state.cov.at[rows, choice].set(cov),
        visits=state.visits.at[rows, choice].add(s.batch),
        last_seen=state.last_seen.at[rows, choice].set(time),
        counts=state.counts.at[rows, state.current, choice].add(1),
        current=choice,
    )
    return state, opened


@partial(jax.jit, static_argnames="s")
def _run(y: jax.Array, x: jax.Array, seed: jax.Array, s: Settings) -> Outputs:
    """Run over y (T / B, B) and x (T / B, B, m)."""
    first, rest = jax.random.split(jax.random.key(seed))
    keys = jax.random.split(rest, y.shape[0])
    times = jnp.arange(y.shape[0])
    state = begin(first, s, x.shape[2])
    _, outputs = lax.scan(partial(_step, s), state, (y, x, keys, times))
    return jax.tree.map(lambda array: array.reshape(-1), outputs)


def _step(s: Settings, state: State, inputs: tuple) -> tuple[State, Outputs]:
    return commit(state, s, inputs)


def run(y: np.ndarray, X: np.ndarray, settings: Settings, seed: int = 0) -> Outputs:
    """Run over a stream and return the outputs as arrays.

    Args:
        y: (T,) observations, T a multiple of the batch.
        X: (T, m) features.
        settings: settings of the model.
        seed: seed of the draws.
    """
    batches = len(y) // settings.batch
    used = batches * settings.batch
    shaped = y[:used].reshape(batches, -1), X[:used].reshape(batches, settings.batch, -1)
    outputs = _run(*map(jnp.asarray, shaped), jnp.asarray(seed), settings)
    return Outputs(*map(np.asarray, jax.block_until_ready(outputs)))
