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
    regimes opened in the same batch of an island share one birth, which is named when reported;
    of equally good candidates (vote, pruning) the first wins.

`paper` is the set of deviations that follow the paper's text, such as {"D1", "D5"}.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import numpy as np
from reference_lags import Doubts, Part
from reference_parts import (
    Array,
    Candidate,
    Happened,
    Island,
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
    log_student,
    log_sum,
    poisson_gamma,
    squared_length,
    weight2,
)

RATE_WORTH = 50.0  # observations that the guess of the outliers' rate is worth
FAR = 50.0  # standard deviations beyond which a level not visited lately fades (D17)


class Reference:
    """The filter, one observation at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = s = settings
        self.dim = s.noise.shape[0]
        self.rng = np.random.default_rng(s.seed)
        self.time, self.next_id = 0, 0
        self.birth, self.n_regimes, self.n_told = -1, 0, 0
        self.told: set[int] = set()  # births ever reported
        self.names: dict[int, int] = {}  # births reported and remembered, as the public sees them
        self.next_name = 0
        self.happened = Happened()
        self.outliers, self.observations = 0.0, 0
        self.rate = [RATE_WORTH * s.outlier_rate, RATE_WORTH * (1.0 - s.outlier_rate)]
        self.lags = Doubts(s.noise.shape[0])
        self.window = max(2 * s.longest(), 12)  # latest observations that D16 and D17 look at
        self.latest: list[Array] = []
        self.particles = self._first_particles()
        self.islands = self._first_islands()

    @property
    def regime(self) -> int:
        return self.names.get(self.birth, -1)

    @property
    def mixed(self) -> bool:
        """Whether outliers have a density of their own."""
        return self.settings.weight == "contamination"

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

    def _first_islands(self) -> list[Island]:
        """Equal parts, whose first batches end one after the other."""
        n, parts, found = len(self.particles), self.settings.islands, []
        size = self._next_size()
        for g in range(parts):
            first, last = g * n // parts, (g + 1) * n // parts
            island = Island(self.particles[first:last], first)
            for p in island.particles:
                p.log_weight = -math.log(last - first)
            island.size = size + g * size // parts
            self._begin(island)
            found.append(island)
        return found

    def _prior_regime(self) -> Regime:
        mean = self.settings.prior_mean
        if not self._on("D9"):
            mean = mean + self.rng.standard_normal(mean.size)
        return Regime(mean, self.settings.prior_var)

    def design(self, x: Array, past: list[Array]) -> Array:
        """F = I_d x phi', phi = (1, x, y some steps ago)."""
        lagged = [past[-k] if k <= len(past) else np.zeros(self.dim) for k in self.settings.lags]
        return np.kron(np.eye(self.dim), np.concatenate([np.ones(1), x, *lagged]))

    def observe(self, y: Array, x: Array) -> Report:
        rate = self._eps() if self.mixed else 0.05
        before = self.lags.expected(lambda past: self._parts(x, past, 0))
        self.lags.decide(y, lambda past: self._parts(x, past, 0), rate)
        design = self.design(x, self.lags.clean)
        log_broad = self._log_broad(y, design) if self.mixed and not np.isnan(y).all() else 0.0
        for island in self.islands:
            for p in island.particles:
                for regime in p.everyone():
                    self._advance(regime, y, design, log_broad)
        self.time += 1
        self.latest = [*self.latest, y][-self.window :]
        for island in self.islands:
            island.observed += not np.isnan(y).all()
            island.position += 1
            island.ended = island.size if island.position == island.size else 0
            self._weigh(island)
        change, weight = self._change_probability(), self._mean_weight()
        doubts = bool(self.settings.lags) and self._on("D13")
        self.lags.push(y, weight, before, rate, doubts)
        if not np.isnan(y).all():
            self._learn_rate(weight)
        for island in self.islands:
            if island.ended:
                self._commit(island)
                self._vote()
        self._name()
        return Report(
            self.regime,
            self._probability(),
            weight,
            change,
            self.n_regimes,
            math.fsum(island.ess for island in self.islands),
            max(island.ended for island in self.islands),
        )

    def _log_broad(self, y: Array, design: Array) -> float:
        """log q(y): a t with 2 degrees of freedom, 20 noises wide, around the forecast."""
        seen = ~np.isnan(y)
        parts = [
            (share * self._fading(regime, design), regime, candidate)
            for island in self.islands
            for share, regime, candidate in island.candidate_shares()
        ]
        born = [part for part in parts if part[1].identity is not None]
        if math.fsum(share for share, _, _ in born) <= 1e-6:
            born = parts
        total = math.fsum(share for share, _, _ in born)
        centre = sum(share / total * (design @ c.mean) for share, _, c in born)
        scale = 400.0 * self.settings.noise[np.ix_(seen, seen)]
        return log_student((y - centre)[seen], scale, 2.0)

    def _eps(self) -> float:
        return min(self.rate[0] / sum(self.rate), 0.3)

    def _learn_rate(self, weight: float) -> None:
        """Beta counts that remember 1000 observations beyond their prior, or 30 outliers (D18)."""
        rate = self.settings.outlier_rate
        prior = (RATE_WORTH * rate, RATE_WORTH * (1.0 - rate))
        high = self._on("D18") and self._eps() > 3.0 * rate
        memories = (30.0 if high else 1000.0, 1000.0)
        for j, share in enumerate((1.0 - weight, weight)):
            self.rate[j] = prior[j] + (1.0 - 1.0 / memories[j]) * (self.rate[j] - prior[j]) + share

    def _advance(self, regime: Regime, y: Array, design: Array, log_broad: float) -> None:
        """Let the candidate of a regime see one observation: score it, then learn it."""
        s, seen, c = self.settings, ~np.isnan(y), regime.candidate
        if not seen.any():
            c.weights.append(1.0)
            return
        y, design, noise = y[seen], design[seen], s.noise[np.ix_(seen, seen)]
        mean, covariance = regime.mean, regime.covariance
        if self._on("D4"):
            mean, covariance = c.mean, c.covariance
        residual = y - design @ mean
        spread = design @ covariance @ design.T + noise
        if not self._on("D4") and not self._on("D8"):
            spread = spread + len(c.weights) * noise  # Eq. (25): b R at the b-th observation
        if self.mixed:
            score, w2 = self._mixed(log_normal(residual, spread), log_broad)
        else:
            z2 = squared_length(residual, spread if self._on("D2") else noise)
            score, w2 = self._score(residual, spread, z2), weight2(s.weight, z2, s.threshold)
        c.weights.append(w2)
        c.score += score
        if regime.visits == 0 and not self._on("D3") and not self.mixed:
            w2 = 1.0
        if w2 > 1e-280:  # below nothing moves, and R / w^2 is too large to be told
            c.mean, c.covariance = kalman(c.mean, c.covariance, y, design, noise / w2)

    def _mixed(self, log_plain: float, log_broad: float) -> tuple[float, float]:
        """log ((1 - eps) f + eps q), and the probability of the first."""
        eps = self._eps()
        regular, outlier = math.log(1.0 - eps) + log_plain, math.log(eps) + log_broad
        both = float(np.logaddexp(regular, outlier))
        return both if self.settings.weigh_regimes else log_plain, math.exp(regular - both)

    def _score(self, residual: Array, spread: Array, z2: float) -> float:
        s = self.settings
        kind = "huber" if s.weight == "mahalanobis" else s.weight
        w2 = weight2(kind, z2, s.threshold) if s.weigh_regimes else 1.0
        if self._on("D1"):
            return log_normal(residual, spread / w2)
        return w2 * log_normal(residual, spread)

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

    def _weigh(self, island: Island) -> None:
        blind = island.position == island.size and island.observed == 0
        for p in island.particles:
            prior = self.log_transition(p, p.current)
            if blind and p.regimes:
                rest = log_sum(prior[:-1])
                prior = [v - rest for v in prior[:-1]] + [-math.inf]
            scores = [regime.candidate.score for regime in p.everyone()]
            p.log_nu = [v + score for v, score in zip(prior, scores, strict=True)]

    def _change_probability(self) -> float:
        moved = []
        for island in self.islands:
            for p, shares in zip(island.particles, island.shares(), strict=True):
                if p.current is not None:
                    moved += [share for k, share in enumerate(shares) if k != p.current]
        return math.fsum(moved) / len(self.islands)

    def _mean_weight(self) -> float:
        """E w^2 of the latest observation."""
        parts = [part for island in self.islands for part in island.candidate_shares()]
        return math.fsum(share * c.weights[-1] for share, _, c in parts) / len(self.islands)

    def _probability(self) -> float:
        """Of the regime reported: by vote right after a batch, by candidates inside one."""
        total = 0.0
        for island in self.islands:
            if island.position == 0:
                for p in island.particles:
                    if p.current is not None and p.regimes[p.current].identity == self.birth:
                        total += math.exp(p.log_weight)
                continue
            for share, regime, _ in island.candidate_shares():
                if (-1 if regime.identity is None else regime.identity) == self.birth:
                    total += share
        return total / len(self.islands)

    def _begin(self, island: Island) -> None:
        island.position = island.observed = 0
        self.happened.sizes.append(island.size)
        for p in island.particles:
            for regime in p.everyone():
                regime.begin()
        self._weigh(island)

    def _commit(self, island: Island) -> None:
        if island.observed or all(p.regimes for p in island.particles):
            self._settle(island)
            self._resample(island)
            chosen = [self._assign(p) for p in island.particles]
            self._learn(island, chosen)
            for p in island.particles:
                self._prune(p)
            self._structure(island)
        island.commits += 1
        island.size = self._next_size()
        self._follow(island)
        self._begin(island)

    def _follow(self, island: Island) -> None:
        """New regimes start where most of the latest values are, if the prior does not (D16)."""
        s = self.settings
        if s.lags or not (self._on("D9") and self._on("D16")):
            return
        level, reach = s.prior_mean.copy(), 5.0 * np.sqrt(np.diag(s.prior_var + s.noise))
        for j in range(self.dim if len(self.latest) == self.window else 0):
            seen = sorted(y[j] for y in self.latest if not np.isnan(y[j]))
            above = sum(value > level[j] + reach[j] for value in seen)
            below = sum(value < level[j] - reach[j] for value in seen)
            if 2 * max(above, below) > self.window:
                level[j] = seen[len(seen) // 2]
                self.happened.followed += 1
        for p in island.particles:
            p.unopened = Regime(level, s.prior_var)

    def _fading(self, regime: Regime, design: Array) -> float:
        """What a distant regime not visited lately keeps of its share in a forecast (D17)."""
        s = self.settings
        if not (self._on("D7") and self._on("D17")):
            return 1.0
        if self.time - regime.last_seen <= self.window:
            return 1.0
        best, own = self._likeliest(), regime.candidate
        gap = abs(design @ (own.mean - best.mean))
        spreads = [np.diag(design @ c.covariance @ design.T + s.noise) for c in (own, best)]
        z = float((gap / np.sqrt(np.maximum(*spreads))).max())
        self.happened.faded += z > FAR
        return min(1.0, (FAR / max(z, FAR)) ** 2)

    def _likeliest(self) -> Candidate:
        """The candidate with the largest share of its island, of all particles that hold it."""
        totals = [
            (mass, regime)
            for island in self.islands
            for regime, mass in self._totals(
                (regime, share) for share, regime, _ in island.candidate_shares()
            )
        ]
        return max(totals, key=lambda pair: pair[0])[1].candidate

    def _settle(self, island: Island) -> None:
        for p in island.particles:
            if not self._on("D15") and island.observed:  # line 6 of Algorithm 1 has no omega_t
                p.log_weight = 0.0
            p.log_weight += log_sum(p.log_nu)
        total = log_sum([p.log_weight for p in island.particles])
        for p in island.particles:
            p.log_weight -= total
        island.ess = 1.0 / math.fsum(math.exp(2.0 * p.log_weight) for p in island.particles)

    def _resample(self, island: Island) -> None:
        n = len(island.particles)
        if island.ess > self.settings.ess_threshold * n:
            return
        weights = np.exp([p.log_weight for p in island.particles])
        parents = draw_parents(weights, self.settings.resampling, self.rng)
        island.particles = [copy.deepcopy(island.particles[parent]) for parent in parents]
        self.particles = [p for part in self.islands for p in part.particles]
        for p in island.particles:
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

    def _learn(self, island: Island, chosen: list[Regime]) -> None:
        self._count_outliers(island, chosen)
        born = [regime for regime in chosen if regime.identity is None]
        for regime in born:
            regime.identity = self.next_id
        self.next_id += bool(born)
        self.happened.births += bool(born)
        for regime in chosen:
            regime.mean, regime.covariance = regime.candidate.mean, regime.candidate.covariance
            regime.visits += island.observed
            regime.batches += 1
            regime.last_seen = self.time - 1
            if regime.first_seen is None:
                regime.first_seen = self.time - island.size
        for p in island.particles:
            if p.regimes[-1] is p.unopened:
                p.unopened = self._prior_regime()
        self._reconcile()

    def _reconcile(self) -> None:
        """Present births that nobody tells apart are one if most of the weight is in them."""
        if self._on("D12"):
            self._split()
        shares = self._current_shares()
        held = [{r.identity for r in p.regimes} for p in self.particles]
        groups: list[list[int]] = []
        for birth in sorted(shares, key=lambda one: (one not in self.told, one)):
            for group in groups:
                if all(self._same(birth, other, held) for other in group):
                    group.append(birth)
                    break
            else:
                groups.append([birth])
        for group in groups:
            if math.fsum(shares[one] for one in group) <= 0.5:
                continue
            self.happened.reconciled += len(group) - 1
            if self.told & set(group):
                self.told.add(group[0])
            for regime in (r for p in self.particles for r in p.regimes):
                if regime.identity in group:
                    regime.identity = group[0]

    def _same(self, one: int, other: int, held: list[set[int | None]]) -> bool:
        """Nobody holds both, unless both are well known; and they agree (D12)."""
        a, b = self._heaviest(one), self._heaviest(other)
        known = self._on("D12") and self._established(a) and self._established(b)
        if not known and any({one, other} <= ids for ids in held):
            return False
        agreed = not self._on("D12") or (
            a.within(b, 3.0) and self._main(one).within(self._main(other), 5.0)
        )
        self.happened.disagreed += not agreed
        return agreed

    def _established(self, regime: Regime) -> bool:
        """Four batches old, with three observations for every coefficient of a coordinate."""
        return regime.batches >= 4 and regime.visits >= 3 * (regime.mean.size // self.dim)

    def _heaviest(self, identity: int) -> Regime:
        """The version of a present regime that most of the weight is in."""
        return self._largest(
            (p.regimes[p.current], math.exp(p.log_weight))
            for p in self.particles
            if p.current is not None and p.regimes[p.current].identity == identity
        )

    def _main(self, identity: int) -> Regime:
        """The heaviest of those versions, present or not, that agree and together weigh most."""
        left = self._totals(
            (regime, math.exp(p.log_weight) * regime.batches)
            for p in self.particles
            for regime in p.regimes
            if regime.identity == identity
        )
        groups = []
        while left:
            leader = max(left, key=lambda version: version[1])[0]
            near = [v for v in left if v[0] is leader or v[0].apart(leader) <= 5.0]
            groups.append((leader, sum(mass for _, mass in near)))
            left = [v for v in left if all(v[0] is not other for other, _ in near)]
        return max(groups, key=lambda group: group[1])[0]

    @staticmethod
    def _totals(versions: Iterable[tuple[Regime, float]]) -> list[tuple[Regime, float]]:
        """Each version once, with its total, in the order they come."""
        totals: list[tuple[Regime, float]] = []
        for regime, weight in versions:
            at = next((k for k, (other, _) in enumerate(totals) if regime.like(other)), len(totals))
            if at == len(totals):
                totals.append((regime, 0.0))
            totals[at] = totals[at][0], totals[at][1] + weight
        return totals

    @staticmethod
    def _largest(versions: Iterable[tuple[Regime, float]]) -> Regime:
        """The version with the largest total; of equals the one that got there first."""
        totals: list[tuple[Regime, float]] = []
        best = 0
        for regime, weight in versions:
            at = next((k for k, (other, _) in enumerate(totals) if regime.like(other)), len(totals))
            if at == len(totals):
                totals.append((regime, 0.0))
            totals[at] = totals[at][0], totals[at][1] + weight
            if totals[at][1] > totals[best][1]:
                best = at
        return totals[best][0]

    def _split(self) -> None:
        """Versions of a present regime that have grown apart from it lose its name (D12)."""
        fresh = self.next_id
        for at, birth in enumerate(list(self._current_shares())):
            head = self._main(birth)
            for regime in (r for p in self.particles for r in p.regimes):
                if regime.identity == birth and regime.apart(head) > 5.0:
                    regime.identity = self.next_id + at
                    fresh = max(fresh, self.next_id + at + 1)
                    self.happened.parted += 1
        self.next_id = fresh

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

    def _structure(self, island: Island) -> None:
        """Every so many particles in turn; by default each about once in 8 or 48 observations."""
        batch, share = self.settings.batch, self.settings.structure_share
        every = 48 if self.mixed else 8
        stride = max(1, round(every / batch)) if not isinstance(batch, dict) else every
        stride = stride if self._on("D5") else 1
        stride = stride if share is None else round(1 / share)
        sweeps = self.settings.structure_sweeps or (1 if self._on("D5") else island.size)
        for i, p in enumerate(island.particles, island.first):
            if (i + island.commits) % stride == 0:
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

    def _count_outliers(self, island: Island, chosen: list[Regime]) -> None:
        rule = self.settings.batch
        if not isinstance(rule, dict):
            return
        for p, regime in zip(island.particles, chosen, strict=True):
            weights = regime.candidate.weights
            outliers = sum(w2 < rule["outlier_weight"] for w2 in weights)
            self.outliers += math.exp(p.log_weight) * outliers
        self.observations += island.observed

    def _current_shares(self) -> dict[int, float]:
        shares: dict[int, float] = {}
        for p in self.particles:
            if p.current is not None:
                identity = p.regimes[p.current].identity
                assert identity is not None
                share = math.exp(p.log_weight) / len(self.islands)
                shares[identity] = shares.get(identity, 0.0) + share
        return shares

    def _vote(self) -> None:
        shares = self._current_shares()
        if shares:
            best = max(shares.values())
            self.birth = min(k for k, share in shares.items() if share > best - 1e-12)
            self.told.add(self.birth)
        held: dict[int | None, float] = {}
        for p in self.particles:
            for identity in {regime.identity for regime in p.regimes} & self.told:
                share = math.exp(p.log_weight) / len(self.islands)
                held[identity] = held.get(identity, 0.0) + share
        self.n_regimes = sum(share >= 0.5 - 1e-9 for share in held.values())
        self.n_told = len(held)

    def _name(self) -> None:
        """Names count up in the order of report; what nobody remembers loses its name."""
        if self.birth >= 0 and self.birth not in self.names:
            self.names[self.birth] = self.next_name
            self.next_name += 1
        held = {regime.identity for p in self.particles for regime in p.regimes}
        self.names = {birth: name for birth, name in self.names.items() if birth in held}

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance per coordinate of the next observation."""
        return self.forecast([x])[0]

    def forecast(self, rows: list[Array]) -> list[tuple[Array, Array]]:
        """The same for the next observations; lags are not carried forward."""
        moments = []
        for h, x in enumerate(rows):
            parts = self.lags.expected(lambda past, x=x, h=h: self._parts(x, past, h))
            total = math.fsum(share for share, _, _ in parts)
            centre = sum(share / total * mean for share, mean, _ in parts)
            variance = sum(
                share / total * (np.diag(spread) + (mean - centre) ** 2)
                for share, mean, spread in parts
            )
            moments.append((np.asarray(centre), np.asarray(variance)))
        return moments

    def _parts(self, x: Array, past: list[Array], h: int) -> list[Part]:
        """Shares, means and covariances of the forecast h steps on, with this past."""
        design = self.design(x, past)
        parts = self._components(h, design)
        total = math.fsum(part[0] for part in parts)  # of this past: D17 takes shares away
        return [
            (share / total, design @ mean, design @ covariance @ design.T + noise)
            for share, mean, covariance, noise in parts
        ]

    def _noise_ahead(self, island: Island, h: int) -> Array:
        noise = self.settings.noise
        if self._on("D8"):
            return noise
        since = h if self._on("D7") else island.position + h
        return (1 + since) * noise

    def _components(self, h: int, design: Array) -> list[tuple[float, Array, Array, Array]]:
        parts = []
        for island in self.islands:
            noise = self._noise_ahead(island, h)
            if self._on("D7"):
                parts += [(*part, noise) for part in self._ahead(island, h, design)]
                continue
            for p in island.particles:  # the present regime as the batch began
                now = p.unopened if p.current is None else p.regimes[p.current]
                parts.append((math.exp(p.log_weight), now.mean, now.covariance, noise))
        return parts

    def _ahead(self, island: Island, h: int, design: Array) -> list[tuple[float, Array, Array]]:
        batches = (island.position + h) // island.size if self._on("D8") else 0
        parts = []
        for p, shares in zip(island.particles, island.shares(), strict=True):
            mass = np.array(shares)
            for _ in range(batches):
                mass = mass @ self.transition_matrix(p)
            for share, regime in zip(mass, p.everyone(), strict=True):
                c = regime.candidate
                parts.append((float(share) * self._fading(regime, design), c.mean, c.covariance))
        return parts

    def transition_matrix(self, p: Particle) -> Array:
        """P(l | s); a regime not opened yet has no counts."""
        n = len(p.regimes)
        rows = [self.log_transition(p, s) for s in range(n)]
        kappa = self.settings.sticky
        beta = np.exp(p.log_beta)
        fresh = (p.alpha * beta + kappa * np.eye(n + 1)[n]) / (p.alpha + kappa)
        return np.vstack([np.exp(np.array(rows).reshape(n, n + 1)), fresh])
