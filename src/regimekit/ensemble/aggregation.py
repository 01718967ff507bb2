"""Weights of the members, learnt online from the scores of their distributions.

Bernstein online aggregation (Wintenberger 2017) on the continuous ranked probability score,
linearised at the mixture (as in CRPS learning, Berrisch and Ziel 2021): with l_m the derivative of
the mixture's score along member m, the regret r_m = sum_j w_j l_j - l_m gives

    V_m += r_m^2,  E_m = max |r_m|,  eta_m = min(1 / (2 E_m), sqrt(log M / V_m))
    R_m += r_m (1 - eta_m r_m),      w_m ~ eta_m exp(eta_m R_m) p_m^f,  f = exp(-n / 100)

which competes with the best *combination* of members, with a regret of order sqrt(V log M) and no
rate to choose. Sums are discounted over 500 observations so that the weights can follow change,
the prior p is forgotten with the number n of observations that a member has taken part in.

The score of a distribution function F at y is

    CRPS(F, y) = integral (F(x) - 1{x >= y})^2 dx

on a grid around the common forecast, so every loss is bounded by the length of the grid and an
extreme value costs all members the same: one outlier does not change the weights much.

Sleeping experts: a regime model costs the same whether it has weight or not. One whose weight
stayed below `MIN_WEIGHT` for `TRIAL` observations sleeps for `SLEEP` observations: it is neither
predicted nor updated, and its sums do not change. Then it is on trial again, with the weight that
it had. Only members that do nothing but forecast sleep; those that infer regimes are always needed.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import exp, fabs, log, log1p, sqrt

from regimekit.core.exceptions import SnapshotError

if not cython.compiled:
    from regimekit.distributions.student_t import log_standard, normal_cdf, t_cdf

MEMORY = 500  # observations
PRIOR_MEMORY = 100.0  # observations over which the prior is forgotten
MIN_WEIGHT = 0.02  # members with a smaller weight may sleep
TRIAL, SLEEP = 1000, 4000  # observations
N_NODES = cython.declare(cython.Py_ssize_t, 35)
_DISCOUNT = cython.declare(cython.double, 1.0 - 1.0 / MEMORY)
_PRIOR_MEMORY = cython.declare(cython.double, PRIOR_MEMORY)
_TINY = cython.declare(cython.double, 1e-300)
# Smallest noise scale, relative to the location: no two nodes may be the same float.
_MIN_RELATIVE_SCALE = cython.declare(cython.double, 1e-12)
_NEGATIVE_INFINITY = cython.declare(cython.double, float("-inf"))
# Nodes of the grid in noise scales, dense in the middle.
_OFFSETS = cython.declare(
    cython.double[::1], np.sinh(np.linspace(-4.2, 4.2, 35)) / np.sinh(4.2) * 16.0
)


class Aggregation:
    """Weights over members; some do not forecast, some sleep, others join late.

    Args:
        forecasting: (M,) flags of the members that take part.
        prior: (M,) prior weights, relative to each other; equal by default.

    Attributes:
        weight: (M,) the weights.
        present: (M,) flags of the active members. Inactive members get weight 0 and keep their
            sums.
        regret, square, largest: (M,) R, V and E.
        tally: (3, M) sums since a member joined: its loss, the mixture's loss, the count.

    Example:
        >>> weights = Aggregation(np.ones(2, bool))
        >>> for _ in range(50):
        ...     weights.update(np.array([0.1, 0.3]))
        >>> bool(weights.weight[0] > 0.9)
        True
    """

    FIELDS = {
        "regret": ("float64", ("n_members",), -1e18, 1e18),
        "square": ("float64", ("n_members",), 0.0, 1e18),
        "largest": ("float64", ("n_members",), 0.0, 1e18),
        "tally": ("float64", ("3", "n_members"), 0.0, 1e18),
    }

    def __init__(self, forecasting, prior=None):
        n = len(forecasting)
        self.regret = np.zeros(n)
        self.square = np.zeros(n)
        self.largest = np.zeros(n)
        self.tally = np.zeros((3, n))
        self.allocate(forecasting, np.ones(n) if prior is None else prior)

    def allocate(self, forecasting, prior):
        """Set the members; all are active."""
        n = self.n_members = len(forecasting)
        self.forecasting = np.array(forecasting, np.int64)
        self.prior = np.array(prior, np.float64)
        self.present = np.ones(n, np.int64)
        self.weight = np.zeros(n)
        self.rate = np.zeros(n)
        self.exponent = np.zeros(n)
        self.gradient = np.zeros(n)
        self.loss = np.zeros(n)
        self.total_gradient = np.zeros(n)
        self.total_loss = np.zeros(n)
        self.nodes = np.zeros(N_NODES)
        self.distribution = np.zeros((n, N_NODES))
        self.set_weights()

    def regroup(self, before, now, forecasting, prior):
        """Change the members: known names keep their sums, new ones begin without regret."""
        place = {name: i for i, name in enumerate(before)}
        kept = [(i, place[name]) for i, name in enumerate(now) if name in place]
        new, old = (np.array([pair[k] for pair in kept], np.intp) for k in (0, 1))
        for name in ("regret", "square", "largest", "tally"):
            array = np.asarray(getattr(self, name))
            grown = np.zeros(list(array.shape)[: array.ndim - 1] + [len(now)])
            grown[..., new] = array[..., old]
            setattr(self, name, grown)
        self.allocate(forecasting, prior)

    def set_present(self, present):
        """Set which members are active."""
        self.present = np.array(present, np.int64)
        self.set_weights()

    def refresh(self):
        """Recompute what follows from the stored fields."""
        self.set_weights()

    def relative_loss(self):
        """Return (M,) the mixture's mean loss over each member's since that member joined."""
        tally = np.asarray(self.tally)
        return tally[1] / np.maximum(tally[0], _TINY)

    def update(self, gradient):
        """Take one observation, given the derivative of the mixture's loss along each member."""
        self.begin()
        np.asarray(self.total_gradient)[:] = gradient
        self.finish()

    def begin(self):
        """Begin the scores of one observation."""
        m: cython.Py_ssize_t
        self.mixed_loss = 0.0
        for m in range(self.n_members):
            self.total_gradient[m] = 0.0
            self.total_loss[m] = 0.0

    def score(self, parts, j, y, centre, noise):
        """Add the scores of coordinate j: its value y, the mixture's centre and noise scale."""
        unit: cython.double = max(noise, _MIN_RELATIVE_SCALE * fabs(centre))
        g: cython.Py_ssize_t
        m: cython.Py_ssize_t
        for g in range(N_NODES):
            self.nodes[g] = centre + unit * _OFFSETS[g]
        set_distribution(parts, j, self.nodes, self.distribution)
        self.mixed_loss += self.set_losses(y) / unit
        for m in range(self.n_members):
            self.total_gradient[m] += self.gradient[m] / unit
            self.total_loss[m] += self.loss[m] / unit

    def set_losses(self, y):
        """Compute each member's CRPS and the derivative of the mixture's; return the mixture's.

        The indicator is split exactly inside its cell; F is linear between nodes.
        """
        m: cython.Py_ssize_t
        g: cython.Py_ssize_t
        total: cython.double = 0.0
        for m in range(self.n_members):
            self.loss[m] = 0.0
            self.gradient[m] = 0.0
        for g in range(N_NODES - 1):
            width: cython.double = self.nodes[g + 1] - self.nodes[g]
            above: cython.double = (self.nodes[g + 1] - y) / width
            above = min(max(above, 0.0), 1.0)
            mixed: cython.double = 0.0
            for m in range(self.n_members):
                mixed += (
                    self.weight[m] * 0.5 * (self.distribution[m, g] + self.distribution[m, g + 1])
                )
            total += width * (mixed * mixed - 2.0 * mixed * above + above)
            for m in range(self.n_members):
                own: cython.double = 0.5 * (self.distribution[m, g] + self.distribution[m, g + 1])
                self.loss[m] += width * (own * own - 2.0 * own * above + above)
                self.gradient[m] += 2.0 * width * (mixed - above) * own
        return total

    def finish(self):
        """Update regrets, tally and weights with the scores of one observation."""
        m: cython.Py_ssize_t
        mean: cython.double = 0.0
        for m in range(self.n_members):
            mean += self.weight[m] * self.total_gradient[m]
        for m in range(self.n_members):
            if self.present[m]:
                r: cython.double = mean - self.total_gradient[m]
                self.largest[m] = max(self.largest[m], fabs(r))
                self.square[m] = _DISCOUNT * self.square[m] + r * r
        self.set_rates()
        for m in range(self.n_members):
            if self.present[m]:
                r = mean - self.total_gradient[m]
                self.regret[m] = _DISCOUNT * self.regret[m] + r * (1.0 - self.rate[m] * r)
                self.tally[0, m] += self.total_loss[m]
                self.tally[1, m] += self.mixed_loss
                self.tally[2, m] += 1.0
        self.set_weights()

    def set_rates(self):
        """Compute the learning rates eta."""
        m: cython.Py_ssize_t
        active: cython.double = 0.0
        for m in range(self.n_members):
            active += self.forecasting[m]
        log_count: cython.double = log(max(active, 2.0))
        for m in range(self.n_members):
            self.rate[m] = min(
                0.5 / max(self.largest[m], _TINY), sqrt(log_count / max(self.square[m], _TINY))
            )

    def set_weights(self):
        """Compute the weights."""
        m: cython.Py_ssize_t
        self.set_rates()
        largest: cython.double = -1.0
        for m in range(self.n_members):
            if self.square[m] > 0.0:
                largest = max(largest, self.rate[m])
        if largest < 0.0:
            largest = 1.0
        top: cython.double = _NEGATIVE_INFINITY
        for m in range(self.n_members):
            if not self.square[m] > 0.0:
                self.rate[m] = largest
            self.exponent[m] = _NEGATIVE_INFINITY
            if self.forecasting[m] and self.present[m]:
                self.exponent[m] = self.rate[m] * self.regret[m] + log(self.prior[m]) * exp(
                    -self.tally[2, m] / _PRIOR_MEMORY
                )
                top = max(top, self.exponent[m])
        total: cython.double = 0.0
        for m in range(self.n_members):
            self.weight[m] = self.rate[m]
            if top > _NEGATIVE_INFINITY:
                self.weight[m] = self.rate[m] * exp(self.exponent[m] - top)
            total += self.weight[m]
        for m in range(self.n_members):
            self.weight[m] /= total


class SleepingExperts:
    """Which regime members are active.

    Args:
        may_sleep: flags of the regime members that may sleep.

    Attributes:
        active: flags of the active members.
        elapsed: observations since a member's state last changed or its trial began.
        peak: largest weight since then.

    Example:
        >>> experts = SleepingExperts([False, True])
        >>> for _ in range(TRIAL):
        ...     _ = experts.watch(np.array([0.01, 0.01]))
        >>> np.asarray(experts.active).tolist()
        [1, 0]
    """

    FIELDS = {
        "active": ("int64", ("n_members",), 0, 1),
        "elapsed": ("int64", ("n_members",), 0, SLEEP),
        "peak": ("float64", ("n_members",), 0.0, 1.0),
    }

    def __init__(self, may_sleep):
        self.min_weight, self.trial, self.sleep = MIN_WEIGHT, TRIAL, SLEEP
        n = self.n_members = len(may_sleep)
        self.may_sleep = np.array(may_sleep, np.int64)
        self.active = np.ones(n, np.int64)
        self.elapsed = np.zeros(n, np.int64)
        self.peak = np.zeros(n)

    def refresh(self):
        """Refuse states that cannot be."""
        if (~np.asarray(self.active, bool) & ~np.asarray(self.may_sleep, bool)).any():
            raise SnapshotError(
                "Invalid snapshot: a member that infers regimes must be active, but it sleeps."
            )

    def watch(self, weight):
        """Take the weights of the regime members after one observation; return `update`."""
        return self.update(np.ascontiguousarray(weight, np.float64))

    def update(self, weight):
        """Take weights after one observation; return whether a member's state changed."""
        i: cython.Py_ssize_t
        moved: cython.bint = False
        for i in range(self.n_members):
            self.elapsed[i] += 1
            self.peak[i] = max(self.peak[i], weight[i])
            if self.active[i]:
                if self.elapsed[i] < self.trial:
                    continue
                if self.may_sleep[i] and self.peak[i] < self.min_weight:
                    self.active[i] = 0
                    moved = True
            elif self.elapsed[i] < self.sleep:
                continue
            else:
                self.active[i] = 1
                moved = True
            self.elapsed[i] = 0
            self.peak[i] = 0.0
        return moved


def set_distribution(parts, j, nodes, out):
    """Write F_m at node g into out[m, g], the components of member m mixed by their shares."""
    k: cython.Py_ssize_t
    g: cython.Py_ssize_t
    m: cython.Py_ssize_t
    for m in range(out.shape[0]):
        for g in range(nodes.shape[0]):
            out[m, g] = 0.0
    for k in range(parts.size):
        m = parts.owner[k]
        share: cython.double = parts.share[k]
        dof: cython.double = parts.dof[k]
        location: cython.double = parts.location[k, j]
        unit: cython.double = 1.0 / parts.scale[k, j]
        # As `t_cdf`, with what is common to all nodes outside the loop.
        factor: cython.double = 0.0
        if dof <= 200.0:
            factor = (dof - 1.0) * (dof - 1.0) / (dof - 1.5)
        rate: cython.double = 1.0 / dof
        for g in range(nodes.shape[0]):
            z: cython.double = (nodes[g] - location) * unit
            if z <= -40.0:
                continue
            p: cython.double = 1.0
            if z < 40.0:
                if dof <= 2.0:
                    p = t_cdf(z, dof)
                else:
                    u: cython.double = fabs(z)
                    if dof <= 200.0:
                        u = sqrt(log1p(z * z * rate) * factor)
                    p = normal_cdf(u)
                    if z < 0.0:
                        p = 1.0 - p
            out[m, g] += share * p


def set_log_densities(parts, first, last, y, mass, term, out, top):
    """Write the log density of each member at y into `out`, of scalar components first .. last - 1.

    Shares are divided by `mass`. A member without components has log density -inf.
    """
    k: cython.Py_ssize_t
    m: cython.Py_ssize_t
    for m in range(out.shape[0]):
        top[m] = _NEGATIVE_INFINITY
        out[m] = 0.0
    for k in range(first, last):
        m = parts.owner[k]
        scale: cython.double = parts.scale[k, 0]
        z: cython.double = min(fabs(y - parts.location[k, 0]) / scale, 1e100)
        share: cython.double = parts.share[k] / max(mass, 1e-300)
        term[k] = log(max(share, 1e-300)) + log_standard(z, parts.dof[k]) - log(scale)
        top[m] = max(top[m], term[k])
    for k in range(first, last):
        m = parts.owner[k]
        out[m] += exp(term[k] - top[m])
    for m in range(out.shape[0]):
        out[m] = top[m] + log(out[m]) if out[m] > 0.0 else _NEGATIVE_INFINITY
