"""The infinite HMM family in plain Python, written from the equations: the engine's witness.

    y | s = k  ~  N(F theta_k, R),   theta_k ~ N(mu0, Sigma0)
    s' | s     ~  (n_sl + alpha beta_l + kappa [l = s]) / (n_s. + alpha + kappa)

Nothing is shared and nothing is fast: a particle owns its regimes with their dense means and
covariances, its counts and its concentrations, and a copy of a particle copies all of it. The
filter is the textbook covariance update, tables are drawn customer by customer. Nothing of the
engine, the prior over regimes, the emissions or the weights is imported. Two things alone are
agreed with the engine: the order in which random numbers are drawn, and these conventions where
the equations are silent:

    a batch in which nothing was observed opens no regime, and weighs no particle;
    regimes opened in the same batch share one id, ids count up from 0;
    of equally good candidates (vote, pruning) the first wins.

`paper` is the set of deviations that follow the paper's text, such as {"D1", "D5"}.
"""

from __future__ import annotations

import copy
import math

import numpy as np
from reference_parts import (
    Array,
    Happened,
    Particle,
    Regime,
    Report,
    Settings,
    draw_choice,
    draw_log_beta,
    draw_log_gamma,
    draw_parents,
    draw_tables,
    kalman,
    log_normal,
    log_stick_rest,
    log_sum,
    poisson_gamma,
    squared_length,
    weight2,
)


class Reference:
    """The filter, one observation at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = s = settings
        self.dim = s.noise.shape[0]
        self.rng = np.random.default_rng(s.seed)
        self.time, self.next_id, self.ess = 0, 0, float(s.particles)
        self.regime, self.n_regimes = -1, 0
        self.happened = Happened()
        self.outliers, self.observations = 0.0, 0
        self.past: list[Array] = []
        self.particles = self._first_particles()
        self._open_batch()

    def _on(self, deviation: str) -> bool:
        return deviation not in self.settings.paper

    def _first_particles(self) -> list[Particle]:
        s, rng = self.settings, self.rng
        alpha = rng.gamma(s.alpha_prior[0], 1.0 / s.alpha_prior[1], s.particles)
        gamma = rng.gamma(s.gamma_prior[0], 1.0 / s.gamma_prior[1], s.particles)
        particles = [Particle(s.particles, a, g) for a, g in zip(alpha, gamma, strict=True)]
        if not self._on("D6"):  # s_0 = 1, L_0 = 1, N_0 = 0, beta_0 ~ SB(gamma)
            for p in particles:
                log_rest = log_stick_rest(p.gamma, rng)
                p.log_beta = [math.log(-math.expm1(log_rest)), log_rest]
                p.current, p.counts, p.start = 0, [[0]], [0]
            for p in particles:
                p.regimes = [self._prior_regime()]
                p.regimes[0].identity = 0
            self.next_id = 1
        for p in particles:
            p.unopened = self._prior_regime()
        return particles

    def _prior_regime(self) -> Regime:
        mean = self.settings.prior_mean
        if not self._on("D9"):
            mean = mean + self.rng.standard_normal(mean.size)
        return Regime(mean, self.settings.prior_var)

    def design(self, x: Array) -> Array:
        """F = I_d x phi', phi = (1, x, y some steps ago)."""
        lagged = [
            self.past[-k] if k <= len(self.past) else np.zeros(self.dim) for k in self.settings.lags
        ]
        return np.kron(np.eye(self.dim), np.concatenate([np.ones(1), x, *lagged]))

    def observe(self, y: Array, x: Array) -> Report:
        design = self.design(x)
        for p in self.particles:
            for regime in p.candidates():
                self._advance(regime, y, design)
        self._remember(y)
        self.observed += not np.isnan(y).all()
        self.position += 1
        self.time += 1
        self._weigh()
        change, weight = self._change_probability(), self._mean_weight()
        committed = self.size if self.position == self.size else 0
        if committed:
            self._commit()
            self._vote()
            probability = self._current_shares().get(self.regime, 0.0)
        else:
            probability = self._candidate_share(self.regime)
        return Report(self.regime, probability, weight, change, self.n_regimes, self.ess, committed)

    def _advance(self, regime: Regime, y: Array, design: Array) -> None:
        """Let a candidate see one observation: score it, then learn it."""
        s, seen = self.settings, ~np.isnan(y)
        if not seen.any():
            regime.weights.append(1.0)
            return
        y, design, noise = y[seen], design[seen], s.noise[np.ix_(seen, seen)]
        mean, covariance = regime.mean, regime.covariance
        if self._on("D4"):
            mean, covariance = regime.next_mean, regime.next_covariance
        residual = y - design @ mean
        spread = design @ covariance @ design.T + noise
        z2 = squared_length(residual, spread if self._on("D2") else noise)
        w2 = weight2(s.weight, z2, s.threshold)
        regime.weights.append(w2)
        regime.score += self._score(residual, spread, z2)
        if regime.visits == 0 and not self._on("D3"):
            w2 = 1.0
        if w2 > 0.0:
            regime.next_mean, regime.next_covariance = kalman(
                regime.next_mean, regime.next_covariance, y, design, noise / w2
            )

    def _score(self, residual: Array, spread: Array, z2: float) -> float:
        s = self.settings
        kind = "huber" if s.weight == "mahalanobis" else s.weight
        w2 = weight2(kind, z2, s.threshold) if s.weigh_regimes else 1.0
        if self._on("D1"):
            return log_normal(residual, spread / w2)
        return w2 * log_normal(residual, spread)

    def _remember(self, y: Array) -> None:
        """For lags; a missing value repeats the one before it."""
        before = self.past[-1] if self.past else np.zeros(self.dim)
        self.past.append(np.where(np.isnan(y), before, y))

    def log_transition(self, p: Particle, source: int | None) -> list[float]:
        """log P(l | source) for l = 1 .. L + 1."""
        row = p.start if source is None else p.counts[source]
        kappa = 0.0 if source is None else self.settings.sticky
        norm = math.log(sum(row) + p.alpha + kappa)
        out = []
        for k, log_beta in enumerate(p.log_beta):
            count = row[k] if k < len(row) else 0
            count += kappa if k == source else 0.0
            log_count = math.log(count) if count > 0 else -math.inf
            out.append(float(np.logaddexp(log_count, math.log(p.alpha) + log_beta)) - norm)
        return out

    def _weigh(self) -> None:
        blind = self.position == self.size and self.observed == 0
        for p in self.particles:
            prior = self.log_transition(p, p.current)
            if blind and p.regimes:
                rest = log_sum(prior[:-1])
                prior = [v - rest for v in prior[:-1]] + [-math.inf]
            p.log_nu = [v + r.score for v, r in zip(prior, p.candidates(), strict=True)]

    def _shares(self) -> list[list[float]]:
        """Posterior probability of each particle's each candidate given the batch so far."""
        total = log_sum([p.log_weight + v for p in self.particles for v in p.log_nu])
        return [[math.exp(p.log_weight + v - total) for v in p.log_nu] for p in self.particles]

    def _change_probability(self) -> float:
        moved = []
        for p, shares in zip(self.particles, self._shares(), strict=True):
            if p.current is not None:
                moved += [share for k, share in enumerate(shares) if k != p.current]
        return math.fsum(moved)

    def _mean_weight(self) -> float:
        """E w^2 of the latest observation."""
        return math.fsum(
            share * regime.weights[-1]
            for p, shares in zip(self.particles, self._shares(), strict=True)
            for share, regime in zip(shares, p.candidates(), strict=True)
        )

    def _candidate_share(self, identity: int) -> float:
        return math.fsum(
            share
            for p, shares in zip(self.particles, self._shares(), strict=True)
            for share, regime in zip(shares, p.candidates(), strict=True)
            if (regime.identity if regime.identity is not None else -1) == identity
        )

    def _open_batch(self) -> None:
        self.position = self.observed = 0
        self.size = self._next_size()
        self.happened.sizes.append(self.size)
        for p in self.particles:
            for regime in p.candidates():
                regime.begin()
        self._weigh()

    def _commit(self) -> None:
        if self.observed or self.particles[0].regimes:
            self._settle()
            self._resample()
            chosen = [self._assign(p) for p in self.particles]
            self._learn(chosen)
            for p in self.particles:
                self._prune(p)
            for p in self.particles:
                self._structure(p)
        self._open_batch()

    def _settle(self) -> None:
        for p in self.particles:
            p.log_weight += log_sum(p.log_nu)
        total = log_sum([p.log_weight for p in self.particles])
        for p in self.particles:
            p.log_weight -= total
        self.ess = 1.0 / math.fsum(math.exp(2.0 * p.log_weight) for p in self.particles)

    def _resample(self) -> None:
        n = len(self.particles)
        if self.ess > self.settings.ess_threshold * n:
            return
        weights = np.exp([p.log_weight for p in self.particles])
        parents = draw_parents(weights, self.settings.resampling, self.rng)
        self.particles = [copy.deepcopy(self.particles[parent]) for parent in parents]
        for p in self.particles:
            p.log_weight = -math.log(n)
        self.happened.resamplings += 1

    def _assign(self, p: Particle) -> Regime:
        """Draw the batch's regime, open it if it is new, count the transition once."""
        choice = draw_choice(p.log_nu, self.rng)
        if choice == len(p.regimes):
            log_rest = log_stick_rest(p.gamma, self.rng)
            last = p.log_beta.pop()
            p.log_beta += [last + math.log(-math.expm1(log_rest)), last + log_rest]
            p.regimes.append(p.unopened)
            for row in p.counts:
                row.append(0)
            p.counts.append([0] * len(p.regimes))
            p.start.append(0)
        if p.current is None:
            p.start[choice] += 1
        else:
            p.counts[p.current][choice] += 1
        p.current = choice
        return p.regimes[choice]

    def _learn(self, chosen: list[Regime]) -> None:
        self._count_outliers(chosen)
        born = [regime for regime in chosen if regime.identity is None]
        for regime in born:
            regime.identity = self.next_id
        self.next_id += bool(born)
        self.happened.births += bool(born)
        for regime in chosen:
            regime.mean, regime.covariance = regime.next_mean, regime.next_covariance
            regime.visits += self.observed
            regime.last_seen = self.time - 1
            if regime.first_seen is None:
                regime.first_seen = self.time - self.size
        self._reconcile({regime.identity for regime in chosen})
        for p in self.particles:
            if p.regimes[-1] is p.unopened:
                p.unopened = self._prior_regime()

    def _reconcile(self, present: set[int | None]) -> None:
        """Present births that no particle holds side by side are one if most of the weight is."""
        held = [{r.identity for r in p.regimes} for p in self.particles]
        groups: list[list[int | None]] = []
        for identity in sorted(present, key=lambda i: -1 if i is None else i):
            for group in groups:
                if not any(identity in ids and ids & set(group) for ids in held):
                    group.append(identity)
                    break
            else:
                groups.append([identity])
        shares = self._current_shares()
        for group in groups:
            if math.fsum(shares[one] for one in group if one is not None) <= 0.5:
                continue
            self.happened.reconciled += len(group) - 1
            for regime in (r for p in self.particles for r in p.regimes):
                if regime.identity in group:
                    regime.identity = group[0]

    def _prune(self, p: Particle) -> None:
        """At MAX_STATES: of the least visited, never the present one, the least recently seen."""
        n = len(p.regimes)
        if n < self.settings.max_regimes:
            return
        others = [k for k in range(n) if k != p.current]
        others.sort(key=lambda k: sum(p.counts[k]))
        pool = others[: self.settings.prune_pool]
        victim = min(pool, key=lambda k: p.regimes[k].last_seen)
        assert p.current is not None  # a batch has been assigned
        current = p.regimes[p.current]
        for listed in (p.regimes, p.counts, p.start, p.log_beta, *p.counts):
            del listed[victim]
        p.current = next(k for k, regime in enumerate(p.regimes) if regime is current)
        total = log_sum(p.log_beta)
        p.log_beta = [v - total for v in p.log_beta]
        if self._on("D6"):  # every opened regime keeps an entry, and so a table
            for k in range(n - 1):
                if p.start[k] + sum(row[k] for l, row in enumerate(p.counts) if l != k) == 0:
                    p.start[k] = 1
        self.happened.prunings += 1

    def _structure(self, p: Particle) -> None:
        sweeps = self.settings.structure_sweeps or (1 if self._on("D5") else self.size)
        for b in range(sweeps):
            self._sweep(p, diagonal=self._on("D5") or b == 0)

    def _sweep(self, p: Particle, diagonal: bool) -> None:
        s, rng, n = self.settings, self.rng, len(p.regimes)
        tables = [0] * n
        sum_log_u, sum_v = 0.0, 0
        for source in [None, *range(n)]:
            row = list(p.start if source is None else p.counts[source])
            if source is not None and not diagonal:
                row[source] = 0
            for k in range(n):
                tables[k] += self._cell_tables(p, row[k], k, k == source)
            if sum(row) == 0:
                continue
            if s.sticky == 0.0:
                sum_log_u += math.log(rng.beta(p.alpha + 1.0, sum(row)))
                sum_v += rng.random() * (sum(row) + p.alpha) < sum(row)
            else:
                kappa = 0.0 if source is None else s.sticky
                sum_log_u += draw_log_beta(p.alpha + kappa, sum(row), rng)
        shape, rate = s.alpha_prior
        p.alpha = rng.gamma(shape + sum(tables) - sum_v, 1.0 / (rate - sum_log_u))
        p.gamma = self._draw_gamma(p.gamma, n, sum(tables))
        logs = [draw_log_gamma(float(m), rng) for m in tables] + [draw_log_gamma(p.gamma, rng)]
        total = log_sum(logs)
        p.log_beta = [v - total for v in logs]

    def _cell_tables(self, p: Particle, count: int, k: int, own: bool) -> int:
        """Tables of one cell; of a sticky self-transition only those that beta explains."""
        share = p.alpha * math.exp(p.log_beta[k])
        kappa = self.settings.sticky if own else 0.0
        return draw_tables(count, share, kappa, self.rng)

    def _draw_gamma(self, gamma: float, n: int, tables: int) -> float:
        shape, rate = self.settings.gamma_prior
        if tables == 0:  # nobody was seated: nothing to learn from
            return float(self.rng.gamma(shape, 1.0 / rate))
        rate -= math.log(self.rng.beta(gamma + 1.0, tables))
        odds = (shape + n - 1.0) / (tables * rate)
        more = self.rng.random() * (1.0 + odds) < odds
        return float(self.rng.gamma(shape + n - (0 if more else 1), 1.0 / rate))

    def _next_size(self) -> int:
        """The smallest batch whose chance of being half outliers is tolerable."""
        rule = self.settings.batch
        if not isinstance(rule, dict):
            return int(rule)
        a, b = rule["shape"] + self.outliers, rule["rate"] + self.observations
        for size in range(rule["smallest"], rule["largest"] + 1):
            few = range(math.ceil(size / 2))
            if 1.0 - math.fsum(poisson_gamma(k, a, b, size) for k in few) < rule["tolerance"]:
                return size
        return int(rule["largest"])

    def _count_outliers(self, chosen: list[Regime]) -> None:
        rule = self.settings.batch
        if not isinstance(rule, dict):
            return
        for p, regime in zip(self.particles, chosen, strict=True):
            outliers = sum(w2 < rule["outlier_weight"] for w2 in regime.weights)
            self.outliers += math.exp(p.log_weight) * outliers
        self.observations += self.observed

    def _current_shares(self) -> dict[int, float]:
        shares: dict[int, float] = {}
        for p in self.particles:
            if p.current is not None:
                identity = p.regimes[p.current].identity
                assert identity is not None
                shares[identity] = shares.get(identity, 0.0) + math.exp(p.log_weight)
        return shares

    def _vote(self) -> None:
        shares = self._current_shares()
        if shares:
            best = max(shares.values())
            self.regime = min(k for k, share in shares.items() if share > best - 1e-12)
        held: dict[int | None, float] = {}
        for p in self.particles:
            for identity in {regime.identity for regime in p.regimes}:
                held[identity] = held.get(identity, 0.0) + math.exp(p.log_weight)
        self.n_regimes = sum(share >= 0.5 - 1e-9 for share in held.values())

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance per coordinate of the next observation."""
        return self.forecast([x])[0]

    def forecast(self, rows: list[Array]) -> list[tuple[Array, Array]]:
        """The same for the next observations; lags are not carried forward."""
        moments = []
        for h, x in enumerate(rows):
            design = self.design(x)
            parts = [
                (share, design @ mean, design @ covariance @ design.T + self._noise_ahead(h))
                for share, mean, covariance in self._components(h)
            ]
            total = math.fsum(share for share, _, _ in parts)
            centre = sum(share / total * mean for share, mean, _ in parts)
            variance = sum(
                share / total * (np.diag(spread) + (mean - centre) ** 2)
                for share, mean, spread in parts
            )
            moments.append((np.asarray(centre), np.asarray(variance)))
        return moments

    def _noise_ahead(self, h: int) -> Array:
        noise = self.settings.noise
        if self._on("D8"):
            return noise
        since = h if self._on("D7") else self.position + h
        return (1 + since) * noise

    def _components(self, h: int) -> list[tuple[float, Array, Array]]:
        if not self._on("D7"):  # the present regime as the batch began
            now = [
                p.unopened if p.current is None else p.regimes[p.current] for p in self.particles
            ]
            omega = [math.exp(p.log_weight) for p in self.particles]
            return [(o, r.mean, r.covariance) for o, r in zip(omega, now, strict=True)]
        batches = (self.position + h) // self.size if self._on("D8") else 0
        parts = []
        for p, shares in zip(self.particles, self._shares(), strict=True):
            mass = np.array(shares)
            for _ in range(batches):
                mass = mass @ self.transition_matrix(p)
            for share, regime in zip(mass, p.candidates(), strict=True):
                parts.append((float(share), regime.next_mean, regime.next_covariance))
        return parts

    def transition_matrix(self, p: Particle) -> Array:
        """P(l | s); a regime not opened yet has no counts."""
        n = len(p.regimes)
        rows = [self.log_transition(p, s) for s in range(n)]
        kappa = self.settings.sticky
        beta = np.exp(p.log_beta)
        fresh = (p.alpha * beta + kappa * np.eye(n + 1)[n]) / (p.alpha + kappa)
        return np.vstack([np.exp(np.array(rows).reshape(n, n + 1)), fresh])
