"""Linear regressions of the regimes, updated during a batch without changing their matrices.

A row stores coefficients theta ~ N(mu, A A'). Inside a batch, each scalar y = f' theta + e with
noise variance R multiplies the root A by one factor (Potter's formula),

    A <- A (I - s u u'),   u = A' f,   gain = 1 / (u'u + R),   s = gain / (1 + sqrt(gain R))
    mu += A u gain (y - f' mu)

so a candidate is its row and a short list of (u, s, gain * residual): the *steps*. The present A' f
is the A' f of the row, passed through the steps in O(steps x m). The matrix is read once per
observation and written at the end of the batch, for chosen candidates only. A A' is positive
definite by construction, for any length of the stream and any R.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import log, sqrt

from regimekit.core.covariates import MAX_FEATURE
from regimekit.ihmm.emissions.base import stretched
from regimekit.ihmm.emissions.matrices import check_roots

if not cython.compiled:
    from regimekit.ihmm.emissions.base import Emission

# Residuals are clipped to this size: its square is finite.
MAX_RESIDUAL = cython.declare(cython.double, 1e100)
# From this many coefficients on, sums over slices in several parts are quicker than over indices.
WIDE = cython.declare(cython.Py_ssize_t, 12)
# Noise scales by which a feature may move the forecast of a new regime.
MAX_MOVE = 1e12
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

    Arguments of the methods:
        place: place of the candidate.
        j: row of the design.
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
        """Make room for candidates; the present ones are kept."""
        for name in ("u", "shrink", "gain", "taken", "raw", "ahead", "passed", "design"):
            setattr(self, name, stretched(np.asarray(getattr(self, name)), islands, capacity))

    def begin(self, place):
        """Start a candidate without steps."""
        self.taken[place] = 0
        self.design[place] = 0

    def starts(self, place, design):
        """Mark the candidate as predicted for this design; return whether it was not before."""
        if self.design[place] == design:
            return False
        self.design[place] = design
        self.passed[place] = 0
        return True

    def project(self, place, j, root, row, design):
        """Write raw = ahead = root' f for row j of the design, so that f' A A' f = raw' raw.

        Args:
            root: (R, m, m) roots of all rows.
            design: (r, m).
        """
        m: cython.Py_ssize_t = design.shape[1]
        for b in range(m):
            self.raw[place, j, b] = 0.0
        if m >= WIDE:
            add_rows(design, j, root, row, self.raw, place)
        else:
            for a in range(m):
                f: cython.double = design[j, a]
                if f == 0.0:
                    continue
                for b in range(m):
                    self.raw[place, j, b] += f * root[row, a, b]
        for b in range(m):
            self.ahead[place, j, b] = self.raw[place, j, b]

    def pass_through(self, place, first, v, moved):
        """Pass v = A' f through the steps in place; add f' (mu moved) to `moved`.

        Args:
            v: (m,).
            moved: (c,) change of the location, for each set of coefficients.
        """
        for b in range(first, self.taken[place]):
            u: cython.double[::1] = self.u[place, b]
            along: cython.double = dot(u, v)
            for s in range(moved.shape[0]):
                moved[s] += self.gain[place, b, s] * along
            add_scaled(-along * self.shrink[place, b], u, v)

    def advance(self, place, j, location):
        """Pass row j of `ahead` through the latest steps; add f' (mu moved) to the location.

        The part of set s of the coefficients is added to location[place, j + s].

        Args:
            location: (P, d).
        """
        m: cython.Py_ssize_t = self.ahead.shape[2]
        sets: cython.Py_ssize_t = self.gain.shape[2]
        if m >= WIDE:
            moved: cython.double[::1] = location[place, j : j + sets]
            self.pass_through(place, self.passed[place], self.ahead[place, j], moved)
            return
        for b in range(self.passed[place], self.taken[place]):
            along: cython.double = self.dot_ahead(place, b, j)
            for s in range(sets):
                location[place, j + s] += self.gain[place, b, s] * along
            along *= self.shrink[place, b]
            for a in range(m):
                self.ahead[place, j, a] -= along * self.u[place, b, a]

    def dot_ahead(self, place, step, j):
        """Return u' ahead[j] for a step."""
        if self.u.shape[2] >= WIDE:
            return dot(self.u[place, step], self.ahead[place, j])
        total: cython.double = 0.0
        for a in range(self.u.shape[2]):
            total += self.u[place, step, a] * self.ahead[place, j, a]
        return total

    def product(self, place, j, k):
        """Return ahead[j]' ahead[k]."""
        if self.ahead.shape[2] >= WIDE:
            return dot(self.ahead[place, j], self.ahead[place, k])
        total: cython.double = 0.0
        for a in range(self.ahead.shape[2]):
            total += self.ahead[place, j, a] * self.ahead[place, k, a]
        return total

    def add_ahead(self, place, noise):
        """Learn one scalar whose A' f is row 0 of `ahead`, and return the gain."""
        return self.add(place, self.ahead[place, 0], noise)

    def add(self, place, v, noise):
        """Learn one scalar, and return the gain.

        Args:
            v: (m,) its present A' f.
            noise: its noise variance.
        """
        gain: cython.double = 1.0 / (dot(v, v) + noise)
        b: cython.Py_ssize_t = self.taken[place]
        for a in range(v.shape[0]):
            self.u[place, b, a] = v[a]
        self.shrink[place, b] = gain / (1.0 + sqrt(gain * noise))
        self.taken[place] = b + 1
        return gain

    def move(self, place, j, amount):
        """Set gain times residual of the latest step."""
        self.gain[place, self.taken[place] - 1, j] = amount

    def apply(self, place, row, into, mean, root):
        """Write means and root of a row after the steps.

        Args:
            mean: (R, c, m) means of all rows.
            root: (R, m, m) roots of all rows.
        """
        m: cython.Py_ssize_t = root.shape[1]
        for j in range(mean.shape[1]):
            for a in range(m):
                mean[into, j, a] = mean[row, j, a]
        for a in range(m):
            line: cython.double[::1] = root[into, a]
            for b in range(m):
                line[b] = root[row, a, b]
            for s in range(self.taken[place]):
                u: cython.double[::1] = self.u[place, s]
                along: cython.double = dot(u, line)
                for j in range(mean.shape[1]):
                    mean[into, j, a] += along * self.gain[place, s, j]
                add_scaled(-along * self.shrink[place, s], u, line)


class RowCovariances:
    """Posterior covariances A A' of the coefficients of rows, for distances between rows.

    They are computed on first use and discarded when the row is written. Variances are stored for
    all rows, full covariances for the N_COVARIANCES rows that were compared last.

    Args:
        width: number m of coefficients.

    Attributes:
        variance: (R, m) variances; valid where `known` is 1.
        known: (R,) flags.
        covariance: (N_COVARIANCES, m, m) upper triangles of covariances.
        owner: (N_COVARIANCES,) their rows, or -1.

    Arguments of the methods:
        row: the row.
        root: (R, m, m) roots of all rows.
    """

    def __init__(self, width):
        self.variance = np.zeros((0, width))
        self.known = np.zeros(0, np.int64)
        self.covariance = np.zeros((N_COVARIANCES, width, width))
        self.owner = np.full(N_COVARIANCES, -1, np.int64)
        self.latest = 0
        self.total, self.lines = np.zeros((2, width, width))

    def resize(self, rows):
        """Make room for rows and discard all covariances."""
        self.variance = np.zeros((rows, self.variance.shape[1]))
        self.known = np.zeros(rows, np.int64)
        np.asarray(self.owner)[:] = -1

    def forget(self, row):
        """Discard the covariance of a row that was written."""
        self.known[row] = 0
        for k in range(N_COVARIANCES):
            if self.owner[k] == row:
                self.owner[k] = -1

    def write_variance(self, root, row):
        """Compute the variances of a row, unless they are stored."""
        if self.known[row] == 1:
            return
        for j in range(self.variance.shape[1]):
            self.variance[row, j] = dot(root[row, j], root[row, j])
        self.known[row] = 1

    def place(self, root, row, taken):
        """Return where a row's covariance is stored; a new one never replaces that at `taken`."""
        for k in range(N_COVARIANCES):
            if self.owner[k] == row:
                return k
        self.latest = (self.latest + 1) % N_COVARIANCES
        if self.latest == taken:
            self.latest = (self.latest + 1) % N_COVARIANCES
        self.owner[self.latest] = row
        for i in range(self.lines.shape[0]):
            for k in range(self.lines.shape[0]):
                self.lines[k, i] = root[row, i, k]
        write_covariance(self.lines, self.covariance[self.latest])
        return self.latest

    def squared_distance(self, root, a, noise_a, b, noise_b, gap):
        """Return gap' (noise_a A A' + noise_b B B')^-1 gap of two rows.

        Args:
            noise_a: its noise variance.
            noise_b: its noise variance.
            gap: (m,) difference of the means; it is overwritten.
        """
        at: cython.Py_ssize_t = self.place(root, a, -1)
        of: cython.Py_ssize_t = self.place(root, b, at)
        for i in range(self.total.shape[0]):
            for j in range(i, self.total.shape[0]):
                self.total[i, j] = (
                    noise_a * self.covariance[at, i, j] + noise_b * self.covariance[of, i, j]
                )
        return squared_mahalanobis(self.total, gap)


class LinearEmission(Emission):
    """Base of emissions y = F theta + e, whose rows store theta ~ N(mu, v A A').

    The coefficients are c sets of m that share the root A. v is 1 where the noise variance is
    known, else that of the noise.

    Args:
        shape, scoring: see `Emission`.
        rows: number r of rows of the design.
        prior_mean: (c, m) mean of a new regime.
        prior_var: (m, m) its covariance, in units of v.
        longest: largest number of steps of a batch.

    Attributes:
        mean: (R, c, m) mu of each row.
        root: (R, m, m) A of each row.
        steps: what candidates have learnt.
    """

    def __init__(self, shape, scoring, rows, prior_mean, prior_var, longest):
        sets, m = prior_mean.shape
        Emission.__init__(self, shape, scoring, (rows, m))
        self.prior_mean = prior_mean
        self.prior_root = np.ascontiguousarray(np.linalg.cholesky(prior_var), np.float64)
        self.mean, self.root = np.zeros((0, sets, m)), np.zeros((0, m, m))
        self.row_arrays = ("mean", "root")
        self.steps = Steps(longest, sets, rows, m)
        self.covariances, self.gap = RowCovariances(m), np.zeros(m)

    # ------------------------------------------------------------------ kernels

    def begin(self, place, row):
        self.steps.begin(place)

    def write_location(self, place, row):
        """Write the locations F mu of a candidate and its row.

        A projection that was computed for the same design is continued.

        Returns:
            Whether anything changed.
        """
        if self.steps.starts(place, self.observation.number):
            for j in range(self.observation.design.shape[0]):
                self.steps.project(place, j, self.root, row, self.observation.design)
                for s in range(self.mean.shape[1]):
                    fitted: cython.double = dot(self.observation.design[j], self.mean[row, s])
                    self.predictive.location[place, j + s] = fitted
                    self.predictive.start_location[place, j + s] = fitted
        elif self.steps.passed[place] == self.steps.taken[place]:
            return False
        for j in range(self.observation.design.shape[0]):
            self.steps.advance(place, j, self.predictive.location)
        self.steps.passed[place] = self.steps.taken[place]
        return True

    def finalize(self, place, row, into):
        self.steps.apply(place, row, into, self.mean, self.root)
        self.covariances.forget(into)

    def copy_root(self, prior, row):
        """Copy the root of the row `prior` to `row`, whose mean is written as well."""
        self.covariances.forget(row)
        for a in range(self.root.shape[1]):
            for b in range(self.root.shape[1]):
                self.root[row, a, b] = self.root[prior, a, b]

    def draw_prior(self, prior, row, random):
        # Deviation D9: the paper draws mu_k0 ~ N(mu0, I_m), whatever Sigma0.
        self.copy_root(prior, row)
        for s in range(self.mean.shape[1]):
            for a in range(self.mean.shape[2]):
                self.mean[row, s, a] = self.mean[prior, s, a] + random.normal()

    def shift_prior(self, prior, row, level):
        m: cython.Py_ssize_t = self.mean.shape[2]
        self.copy_root(prior, row)
        for s in range(self.mean.shape[1]):
            for a in range(m):
                self.mean[row, s, a] = level[s * m + a]

    def noise_variance(self, row, s):
        """Return v of set `s` of the coefficients of `row`."""
        return 1.0

    def squared_noise_gap(self, a, b, s):
        """Return the squared standardized distance between the log noise variances of two rows."""
        return 0.0

    def coefficient_distance(self, a, b):
        farthest: cython.double = 0.0
        self.covariances.write_variance(self.root, a)
        self.covariances.write_variance(self.root, b)
        for s in range(self.mean.shape[1]):
            noise_a: cython.double = self.noise_variance(a, s)
            noise_b: cython.double = self.noise_variance(b, s)
            farthest = max(farthest, self.squared_noise_gap(a, b, s))
            for j in range(self.mean.shape[2]):
                variance: cython.double = noise_a * self.covariances.variance[a, j]
                variance += noise_b * self.covariances.variance[b, j]
                gap: cython.double = self.mean[a, s, j] - self.mean[b, s, j]
                farthest = max(farthest, gap * gap / variance)
        # The expected largest of n standard normal distances is about this.
        chance: cython.double = sqrt(2.0 * log(self.mean.shape[1] * self.mean.shape[2]))
        return max(0.0, sqrt(farthest) - chance)

    def joint_distance(self, a, b):
        farthest: cython.double = 0.0
        m: cython.Py_ssize_t = self.mean.shape[2]
        for s in range(self.mean.shape[1]):
            for j in range(m):
                self.gap[j] = self.mean[a, s, j] - self.mean[b, s, j]
            squared: cython.double = self.covariances.squared_distance(
                self.root, a, self.noise_variance(a, s), b, self.noise_variance(b, s), self.gap
            )
            farthest = max(farthest, squared)
        return max(0.0, sqrt(farthest) - sqrt(self.mean.shape[1] * m - 1))

    # ------------------------------------------------------------------ memory, description

    def resize_rows(self, capacity):
        Emission.resize_rows(self, capacity)
        self.covariances.resize(capacity)

    def share_rows(self, other):
        Emission.share_rows(self, other)
        self.covariances.resize(self.root.shape[0])

    def resize_candidates(self, islands, capacity):
        Emission.resize_candidates(self, islands, capacity)
        self.steps.resize(islands, capacity)

    def work_state(self):
        return {n: np.asarray(getattr(self.steps, n)) for n in ("u", "shrink", "gain", "taken")}

    def most_steps(self):
        return self.steps.u.shape[1]

    def limit_features(self, noise):
        """Set the bound of the features, so that learning one cannot make a covariance singular.

        If the prior spread of the coefficient of a feature amounts to MAX_MOVE noise scales,
        learning the feature shrinks that spread by the same factor. At 1e16 the covariance is
        singular in doubles.

        Args:
            noise: the smallest noise variance, in units of v.
        """
        spread = np.sqrt((self.prior_root**2).sum(axis=1)).reshape(-1, self.shape.width)
        limit = MAX_MOVE * np.sqrt(noise) / spread.max(axis=0)
        self.feature_limit = np.minimum(limit, MAX_FEATURE)

    def write_prior(self, row):
        self.covariances.forget(row)
        np.asarray(self.mean)[row] = self.prior_mean
        np.asarray(self.root)[row] = self.prior_root

    def check_rows(self, live):
        check_roots(np.asarray(self.root)[live])


def add_rows(design, j, root, row, out, place):
    """Add f_a times line a of the root of a row to out[place, j], for all a in their order.

    Four lines at a time, so that `out` is read and written a quarter as often.

    Args:
        design: (r, m).
        root: (R, m, m) roots of all rows.
        out: (P, r, m).
    """
    m: cython.Py_ssize_t = design.shape[1]
    whole: cython.Py_ssize_t = m - m % 4
    for a in range(0, whole, 4):
        f: cython.double = design[j, a]
        f1: cython.double = design[j, a + 1]
        f2: cython.double = design[j, a + 2]
        f3: cython.double = design[j, a + 3]
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
    """Add factor * x to `out`, (m,) each."""
    for i in range(x.shape[0]):
        out[i] += factor * x[i]


def dot(u, v):
    """Return u'v, (m,) each; from WIDE on in four running sums, which are added in parallel."""
    n: cython.Py_ssize_t = u.shape[0]
    whole: cython.Py_ssize_t = n - n % 4 if n >= WIDE else 0
    a: cython.double = 0.0
    b: cython.double = 0.0
    c: cython.double = 0.0
    d: cython.double = 0.0
    for i in range(0, whole, 4):
        a += u[i] * v[i]
        b += u[i + 1] * v[i + 1]
        c += u[i + 2] * v[i + 2]
        d += u[i + 3] * v[i + 3]
    for i in range(whole, n):
        a += u[i] * v[i]
    return (a + b) + (c + d)


def bounded(residual):
    """Return the residual, clipped to a size whose square is finite.

    Clipping its length instead would act sooner in regimes with a smaller variance, so an extreme
    outlier would carry information about the regime.
    """
    return min(max(residual, -MAX_RESIDUAL), MAX_RESIDUAL)


def write_covariance(lines, out):
    """Write the upper triangle of A A' to `out`.

    Four lines at a time, so that `out` is read and written a quarter as often.

    Args:
        lines: (m, m) A'.
        out: (m, m).
    """
    m: cython.Py_ssize_t = out.shape[0]
    whole: cython.Py_ssize_t = m - m % 4
    for i in range(m):
        for j in range(i, m):
            out[i, j] = 0.0
        for k in range(0, whole, 4):
            f: cython.double = lines[k, i]
            f1: cython.double = lines[k + 1, i]
            f2: cython.double = lines[k + 2, i]
            f3: cython.double = lines[k + 3, i]
            for j in range(i, m):
                out[i, j] += (f * lines[k, j] + f1 * lines[k + 1, j]) + (
                    f2 * lines[k + 2, j] + f3 * lines[k + 3, j]
                )
        for k in range(whole, m):
            f = lines[k, i]
            for j in range(i, m):
                out[i, j] += f * lines[k, j]


def squared_mahalanobis(covariance, gap):
    """Return gap' covariance^-1 gap by a Cholesky factor; directions without variance are left out.

    Args:
        covariance: (m, m); its upper triangle is read. It is overwritten, with the variances in
            the first column.
        gap: (m,); it is overwritten.
    """
    m: cython.Py_ssize_t = gap.shape[0]
    total: cython.double = 0.0
    for i in range(1, m):
        covariance[i, 0] = covariance[i, i]
    for k in range(m):
        pivot: cython.double = covariance[k, k]
        if k > 0 and not pivot > 1e-12 * covariance[k, 0]:
            continue
        pivot = 1.0 / sqrt(pivot)
        factor: cython.double = gap[k] * pivot
        total += factor * factor
        for j in range(k + 1, m):
            covariance[k, j] *= pivot
            gap[j] -= factor * covariance[k, j]
        for i in range(k + 1, m):
            factor = covariance[k, i]
            for j in range(i, m):
                covariance[i, j] -= factor * covariance[k, j]
    return total
