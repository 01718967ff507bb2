"""A batch of scalar observations of a linear regression, learnt without touching its matrix.

A row stores coefficients theta ~ N(mu, A A'). Inside a batch, each scalar y = f' theta + e with
noise variance R multiplies the root A by one factor (Potter's formula),

    A <- A (I - s u u'),   u = A' f,   gain = 1 / (u'u + R),   s = gain / (1 + sqrt(gain R))
    mu += A u gain (y - f' mu)

so a candidate is its row and a short list of (u, s, gain * residual): the *steps*. The present A' f
is the A' f of the row, passed through the steps in O(steps x m). The matrix itself is read once per
observation and written only for candidates that are chosen, at the end of the batch. A A' is
positive definite by construction, however long the stream and however small R.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import log, sqrt

# Residuals beyond this are cut to it: their squares still fit a float.
MAX_RESIDUAL = cython.declare(cython.double, 1e100)
# From this many coefficients on, slicing a row is cheaper than indexing its entries.
WIDE = cython.declare(cython.Py_ssize_t, 12)
N_COVARIANCES = cython.declare(cython.Py_ssize_t, 16)


class Steps:
    """Steps of every candidate of a batch, by place.

    Args:
        longest: largest number of steps.
        sets: number c of sets of coefficients that share the root.
        rows: number r of rows of the design.
        width: number m of coefficients of a set.

    Attributes:
        u: (P, S, m) direction of each step.
        shrink: (P, S) its s.
        gain: (P, S, c) gain times residual, for each set of coefficients.
        taken: (P,) steps so far.
        raw: (P, r, m) A' f of the next observation under the row at the start of the batch.
        ahead: (P, r, m) the same under the candidate.
        passed: (P,) steps that `ahead` has passed through.
        design: (P,) number of the design that `raw` and `ahead` are for, or 0.
    """

    def __init__(self, longest, sets, rows, width):
        self.u = np.zeros((0, longest, width))
        self.shrink = np.zeros((0, longest))
        self.gain = np.zeros((0, longest, sets))
        self.taken = np.zeros(0, np.int64)
        self.raw = np.zeros((0, rows, width))
        self.ahead = np.zeros((0, rows, width))
        self.passed = np.zeros(0, np.int64)
        self.design = np.zeros(0, np.int64)

    def resize(self, islands, capacity):
        """Make room for `capacity` candidates of each island; the present ones are kept."""
        for name in ("u", "shrink", "gain", "taken", "raw", "ahead", "passed", "design"):
            array = np.asarray(getattr(self, name))
            per_island = array.reshape(islands, -1, *array.shape[1:])
            longer = np.zeros((islands, capacity, *array.shape[1:]), array.dtype)
            longer[:, : per_island.shape[1]] = per_island
            setattr(self, name, longer.reshape(islands * capacity, *array.shape[1:]))

    def begin(self, place):
        """Start a candidate without steps."""
        self.taken[place] = 0
        self.design[place] = 0

    def starts(self, place, design):
        """Return whether the candidate has not predicted for this design yet; note that it will."""
        if self.design[place] == design:
            return False
        self.design[place] = design
        self.passed[place] = 0
        return True

    def project(self, place, j, root, row, design):
        """Write raw = ahead = root' f for row j of the design, so that f' A A' f = raw' raw."""
        m: cython.Py_ssize_t = design.shape[1]
        f: cython.double
        for b in range(m):
            self.raw[place, j, b] = 0.0
        if m >= WIDE:
            add_rows(design, j, root, row, self.raw, place)
        else:
            for a in range(m):
                f = design[j, a]
                if f == 0.0:
                    continue
                for b in range(m):
                    self.raw[place, j, b] += f * root[row, a, b]
        for b in range(m):
            self.ahead[place, j, b] = self.raw[place, j, b]

    def pass_through(self, place, first, v, moved):
        """Pass v = A' f through the steps from `first` on, in place; add f' (mu moved) to moved."""
        along: cython.double
        for b in range(first, self.taken[place]):
            along = self.dot_step(place, b, v)
            for j in range(moved.shape[0]):
                moved[j] += self.gain[place, b, j] * along
            along *= self.shrink[place, b]
            if v.shape[0] < WIDE:
                for a in range(v.shape[0]):
                    v[a] -= along * self.u[place, b, a]
            else:
                add_scaled(-along, self.u[place, b], v)

    def advance(self, place, j, location, at):
        """Pass row j of `ahead` through the latest steps; add f' (mu moved) to location.

        The part of set s of the coefficients is added to location[place, at + s].
        """
        m: cython.Py_ssize_t = self.ahead.shape[2]
        sets: cython.Py_ssize_t = self.gain.shape[2]
        along: cython.double
        if m >= WIDE:
            self.pass_through(
                place, self.passed[place], self.ahead[place, j], location[place, at : at + sets]
            )
            return
        for b in range(self.passed[place], self.taken[place]):
            along = self.dot_ahead(place, b, j)
            for s in range(sets):
                location[place, at + s] += self.gain[place, b, s] * along
            along *= self.shrink[place, b]
            for a in range(m):
                self.ahead[place, j, a] -= along * self.u[place, b, a]

    def add_ahead(self, place, noise):
        """Learn one scalar whose A' f is row 0 of `ahead`. Return the gain."""
        gain: cython.double = 1.0 / (self.product(place, 0, 0) + noise)
        b: cython.Py_ssize_t = self.taken[place]
        for a in range(self.ahead.shape[2]):
            self.u[place, b, a] = self.ahead[place, 0, a]
        self.shrink[place, b] = gain / (1.0 + sqrt(gain * noise))
        self.taken[place] = b + 1
        return gain

    # Short sums over indices: passing a memoryview to a function copies 200 bytes. Four running
    # sums as in `dot`, so that both give the same bits.

    def dot_ahead(self, place, step, j):
        """Return u' ahead[j] for a step."""
        n: cython.Py_ssize_t = self.u.shape[2]
        if n >= WIDE:
            return dot(self.u[place, step], self.ahead[place, j])
        whole: cython.Py_ssize_t = n - n % 4
        a: cython.double = 0.0
        b: cython.double = 0.0
        c: cython.double = 0.0
        d: cython.double = 0.0
        i: cython.Py_ssize_t
        for i in range(0, whole, 4):
            a += self.u[place, step, i] * self.ahead[place, j, i]
            b += self.u[place, step, i + 1] * self.ahead[place, j, i + 1]
            c += self.u[place, step, i + 2] * self.ahead[place, j, i + 2]
            d += self.u[place, step, i + 3] * self.ahead[place, j, i + 3]
        for i in range(whole, n):
            a += self.u[place, step, i] * self.ahead[place, j, i]
        return (a + b) + (c + d)

    def product(self, place, j, k):
        """Return ahead[j]' ahead[k]."""
        n: cython.Py_ssize_t = self.ahead.shape[2]
        if n >= WIDE:
            return dot(self.ahead[place, j], self.ahead[place, k])
        whole: cython.Py_ssize_t = n - n % 4
        a: cython.double = 0.0
        b: cython.double = 0.0
        c: cython.double = 0.0
        d: cython.double = 0.0
        i: cython.Py_ssize_t
        for i in range(0, whole, 4):
            a += self.ahead[place, j, i] * self.ahead[place, k, i]
            b += self.ahead[place, j, i + 1] * self.ahead[place, k, i + 1]
            c += self.ahead[place, j, i + 2] * self.ahead[place, k, i + 2]
            d += self.ahead[place, j, i + 3] * self.ahead[place, k, i + 3]
        for i in range(whole, n):
            a += self.ahead[place, j, i] * self.ahead[place, k, i]
        return (a + b) + (c + d)

    def dot_step(self, place, step, v):
        """Return u'v for a step."""
        if v.shape[0] >= WIDE:
            return dot(self.u[place, step], v)
        n: cython.Py_ssize_t = v.shape[0]
        whole: cython.Py_ssize_t = n - n % 4
        a: cython.double = 0.0
        b: cython.double = 0.0
        c: cython.double = 0.0
        d: cython.double = 0.0
        i: cython.Py_ssize_t
        for i in range(0, whole, 4):
            a += self.u[place, step, i] * v[i]
            b += self.u[place, step, i + 1] * v[i + 1]
            c += self.u[place, step, i + 2] * v[i + 2]
            d += self.u[place, step, i + 3] * v[i + 3]
        for i in range(whole, n):
            a += self.u[place, step, i] * v[i]
        return (a + b) + (c + d)

    def add(self, place, v, noise):
        """Learn one scalar with noise variance `noise`; v is its present A' f. Return the gain."""
        gain: cython.double = 1.0 / (dot(v, v) + noise)
        b: cython.Py_ssize_t = self.taken[place]
        for a in range(v.shape[0]):
            self.u[place, b, a] = v[a]
        self.shrink[place, b] = gain / (1.0 + sqrt(gain * noise))
        self.taken[place] = b + 1
        return gain

    def move(self, place, j, amount):
        """Set gain times residual of the latest step for set j of the coefficients."""
        self.gain[place, self.taken[place] - 1, j] = amount

    def apply(self, place, row, into, mean, root):
        """Write means (c, m) and root of row `into`: those of `row` after the steps."""
        m: cython.Py_ssize_t = root.shape[1]
        along: cython.double
        for j in range(mean.shape[1]):
            for a in range(m):
                mean[into, j, a] = mean[row, j, a]
        for a in range(m):
            for b in range(m):
                root[into, a, b] = root[row, a, b]
            for s in range(self.taken[place]):
                along = self.dot_step(place, s, root[into, a])
                for j in range(mean.shape[1]):
                    mean[into, j, a] += along * self.gain[place, s, j]
                along *= self.shrink[place, s]
                if m < WIDE:
                    for b in range(m):
                        root[into, a, b] -= along * self.u[place, s, b]
                else:
                    add_scaled(-along, self.u[place, s], root[into, a])


class RowCovariances:
    """Posterior covariances A A' of the coefficients of rows, for distances between rows.

    They are computed when they are first needed and forgotten when the row is written. Variances
    are stored for all rows, full covariances for the N_COVARIANCES rows that were compared last.

    Args:
        width: number m of coefficients.

    Attributes:
        variance: (R, m) variances; valid where `known` is 1.
        known: (R,) flags.
        covariance: (N_COVARIANCES, m, m) upper triangles of covariances.
        owner: (N_COVARIANCES,) their rows, or -1.
    """

    def __init__(self, width):
        self.variance = np.zeros((0, width))
        self.known = np.zeros(0, np.int64)
        self.covariance = np.zeros((N_COVARIANCES, width, width))
        self.owner = np.full(N_COVARIANCES, -1, np.int64)
        self.latest = 0
        self.total, self.lines = np.zeros((2, width, width))

    def resize(self, rows):
        """Make room for a number of rows and forget all covariances."""
        self.variance = np.zeros((rows, self.variance.shape[1]))
        self.known = np.zeros(rows, np.int64)
        np.asarray(self.owner)[:] = -1

    def forget(self, row):
        """Forget what is known of a row that was written."""
        self.known[row] = 0
        for k in range(N_COVARIANCES):
            if self.owner[k] == row:
                self.owner[k] = -1

    def write_variance(self, root, row):
        """Write the variances of a row, unless they are known."""
        if self.known[row] == 1:
            return
        for j in range(self.variance.shape[1]):
            self.variance[row, j] = dot(root[row, j], root[row, j])
        self.known[row] = 1

    def place(self, root, row, taken):
        """Return where the covariance of a row is stored; it replaces any but that at `taken`."""
        for k in range(N_COVARIANCES):
            if self.owner[k] == row:
                return k
        self.latest = (self.latest + 1) % N_COVARIANCES
        if self.latest == taken:
            self.latest = (self.latest + 1) % N_COVARIANCES
        self.owner[self.latest] = row
        transpose(root, row, self.lines)
        write_covariance(self.lines, self.covariance[self.latest])
        return self.latest

    def squared_distance(self, root, a, noise_a, b, noise_b, gap):
        """Return gap' (noise_a A A' + noise_b B B')^-1 gap of two rows; `gap` is overwritten."""
        at: cython.Py_ssize_t = self.place(root, a, -1)
        of: cython.Py_ssize_t = self.place(root, b, at)
        for i in range(self.total.shape[0]):
            for j in range(i, self.total.shape[0]):
                self.total[i, j] = (
                    noise_a * self.covariance[at, i, j] + noise_b * self.covariance[of, i, j]
                )
        return squared_mahalanobis(self.total, gap)


def add_rows(design, j, root, row, out, place):
    """Add f_a times line a of the root of a row to out[place, j], for all a in their order.

    Four lines at a time: `out` is read and written a quarter as often.
    """
    m: cython.Py_ssize_t = design.shape[1]
    whole: cython.Py_ssize_t = m - m % 4
    a: cython.Py_ssize_t
    b: cython.Py_ssize_t
    f: cython.double
    f1: cython.double
    f2: cython.double
    f3: cython.double
    for a in range(0, whole, 4):
        f = design[j, a]
        f1 = design[j, a + 1]
        f2 = design[j, a + 2]
        f3 = design[j, a + 3]
        for b in range(m):
            out[place, j, b] = (
                ((out[place, j, b] + f * root[row, a, b]) + f1 * root[row, a + 1, b])
                + f2 * root[row, a + 2, b]
            ) + f3 * root[row, a + 3, b]
    for a in range(whole, m):
        f = design[j, a]
        for b in range(m):
            out[place, j, b] += f * root[row, a, b]


def add_scaled(factor, x, out):
    """Add factor * x to `out`."""
    for i in range(x.shape[0]):
        out[i] += factor * x[i]


def dot(u, v):
    """Return u'v in four running sums, which the processor adds up side by side."""
    n: cython.Py_ssize_t = u.shape[0]
    whole: cython.Py_ssize_t = n - n % 4
    a: cython.double = 0.0
    b: cython.double = 0.0
    c: cython.double = 0.0
    d: cython.double = 0.0
    i: cython.Py_ssize_t
    for i in range(0, whole, 4):
        a += u[i] * v[i]
        b += u[i + 1] * v[i + 1]
        c += u[i + 2] * v[i + 2]
        d += u[i + 3] * v[i + 3]
    for i in range(whole, n):
        a += u[i] * v[i]
    return (a + b) + (c + d)


def bounded(residual):
    """Return the residual, cut to what still has a finite square.

    The length of the residual must not be cut instead: it would be cut sooner in regimes with a
    smaller variance, so an extreme outlier would carry information about the regime.
    """
    return min(max(residual, -MAX_RESIDUAL), MAX_RESIDUAL)


def beyond_chance(squared, n):
    """Return how far the largest of n standardized distances exceeds what chance explains."""
    return max(0.0, sqrt(squared) - sqrt(2.0 * log(n)))


def beyond_chance_jointly(squared, n):
    """Return the same for the distance along the worst direction in n dimensions."""
    return max(0.0, sqrt(squared) - sqrt(n - 1))


def transpose(root, row, out):
    """Write the transposed root of a row to `out`."""
    for i in range(out.shape[0]):
        for k in range(out.shape[0]):
            out[k, i] = root[row, i, k]


def write_covariance(lines, out):
    """Write the upper triangle of A A' to `out`, given `lines` = A'.

    Four lines at a time: `out` is read and written a quarter as often.
    """
    m: cython.Py_ssize_t = out.shape[0]
    whole: cython.Py_ssize_t = m - m % 4
    i: cython.Py_ssize_t
    j: cython.Py_ssize_t
    k: cython.Py_ssize_t
    f: cython.double
    f1: cython.double
    f2: cython.double
    f3: cython.double
    for i in range(m):
        for j in range(i, m):
            out[i, j] = 0.0
        for k in range(0, whole, 4):
            f = lines[k, i]
            f1 = lines[k + 1, i]
            f2 = lines[k + 2, i]
            f3 = lines[k + 3, i]
            for j in range(i, m):
                out[i, j] += (f * lines[k, j] + f1 * lines[k + 1, j]) + (
                    f2 * lines[k + 2, j] + f3 * lines[k + 3, j]
                )
        for k in range(whole, m):
            f = lines[k, i]
            for j in range(i, m):
                out[i, j] += f * lines[k, j]


def squared_mahalanobis(covariance, gap):
    """Return gap' covariance^-1 gap by a Cholesky factor; both arguments are overwritten.

    Only the upper triangle of the covariance is read; the first column below it is scratch for
    the variances. Directions whose variance was lost to rounding are left out.
    """
    m: cython.Py_ssize_t = gap.shape[0]
    i: cython.Py_ssize_t
    j: cython.Py_ssize_t
    k: cython.Py_ssize_t
    total: cython.double = 0.0
    pivot: cython.double
    factor: cython.double
    for i in range(1, m):
        covariance[i, 0] = covariance[i, i]
    for k in range(m):
        pivot = covariance[k, k]
        if k > 0 and not pivot > 1e-12 * covariance[k, 0]:
            continue
        pivot = 1.0 / sqrt(pivot)
        factor = gap[k] * pivot
        total += factor * factor
        for j in range(k + 1, m):
            covariance[k, j] *= pivot
            gap[j] -= factor * covariance[k, j]
        for i in range(k + 1, m):
            factor = covariance[k, i]
            for j in range(i, m):
                covariance[i, j] -= factor * covariance[k, j]
    return total
