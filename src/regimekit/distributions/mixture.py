"""Mixtures of Student-t components in the compiled core.

`Mixture` is the type that models fill. The functions work on the mixtures of a whole run, stored
one after the other, without the GIL, and write to the last argument:

    offset (T + 1,)     mixture t has the components offset[t] to offset[t + 1] - 1
    share (P,)          probabilities, normalized
    location (P, d)     centres
    spread (P, d, d)    squared scale matrices
    dof (P,)            degrees of freedom; infinity for a Gaussian component
    outlier (T,)        positive if the last component of mixture t is that of outliers
    y (N, d)            values. Row i belongs to mixture i, or all to the only mixture
"""

from __future__ import annotations

import math

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1, fabs, isinf, isnan, lgamma, log, log1p, sqrt

if not cython.compiled:
    from regimekit.distributions.student_t import (
        DOF,
        LOCATION,
        SCALE,
        SHARE,
        fill_log_peaks,
        log_mixture,
        log_peak,
        log_standard,
        mixture_cdf_pdf,
        mixture_quantile,
        mixture_tail,
        student_tail,
    )

INF = cython.declare(cython.double, math.inf)
NAN = cython.declare(cython.double, math.nan)
LOG_2PI = cython.declare(cython.double, math.log(2 * math.pi))
PI = cython.declare(cython.double, math.pi)
PARTS = ("share", "location", "spread", "dof")
MAX_RESIDUAL = cython.declare(cython.double, 1e150)  # scales; its square is finite


class Mixture:
    """A mixture of Student-t components as arrays with room to grow.

    Only the first `size` entries of each array count.

    Args:
        dim: number of coordinates d.
        capacity: number of components to make room for.

    Attributes:
        size: number of components.
        dim: number of coordinates d.
        share: (capacity,) probability of each component.
        location: (capacity, d) centre of each component.
        spread: (capacity, d, d) squared scale matrix of each component.
        dof: (capacity,) degrees of freedom; infinity for a Gaussian component.
    """

    def __init__(self, dim, capacity=16):
        self.dim = dim
        self.size = 0
        self.share = np.zeros(capacity)
        self.location = np.zeros((capacity, dim))
        self.spread = np.zeros((capacity, dim, dim))
        self.dof = np.zeros(capacity)

    def reserve(self, capacity):
        """Make room for at least `capacity` components; the present ones are kept."""
        if capacity <= self.share.shape[0]:
            return
        capacity = max(capacity, 2 * self.share.shape[0])
        for name in PARTS:
            part = np.asarray(getattr(self, name))
            grown = np.zeros((capacity, *part.shape[1:]))
            grown[: self.size] = part[: self.size]
            setattr(self, name, grown)

    def put(self, at, share, location, spread, dof, k):
        """Write component `at`: its share, and entry k of location (K, d) and spread (K, d, d)."""
        self.share[at] = share
        self.dof[at] = dof
        for i in range(self.dim):
            self.location[at, i] = location[k, i]
            for j in range(self.dim):
                self.spread[at, i, j] = spread[k, i, j]

    def components(self):
        """Return copies of share, location, spread and dof, without components of no weight.

        The shares are normalized. Components with less than 1e-14 of the total are dropped.
        """
        share = np.asarray(self.share)[: self.size]
        keep = np.flatnonzero(share > 1e-14 * share.sum())
        kept = share[keep]
        rest = (np.asarray(getattr(self, name))[keep] for name in PARTS[1:])
        return kept / kept.sum(), *rest

    def arrays(self, normalize=False, centre=0.0, scale=1.0):
        """Return copies of share (K,), location (K, d), spread (K, d, d) and dof (K,).

        Args:
            normalize: divide the shares by their sum, in the order of `normalize_shares`.
            centre, scale: locations are mapped to centre + scale * location, and spreads to
                scale * spread * scale.
        """
        n: cython.Py_ssize_t = self.size
        d: cython.Py_ssize_t = self.dim
        block = np.empty(n * (2 + d + d * d))
        out: cython.double[::1] = block
        shift: cython.double = centre
        factor: cython.double = scale
        total: cython.double = 0.0
        for k in range(n):
            total += self.share[k]
        if not normalize:
            total = 1.0
        for k in range(n):
            out[k] = self.share[k] / total
            out[n + k] = self.dof[k]
        at: cython.Py_ssize_t = 2 * n
        for k in range(n):
            for i in range(d):
                out[at] = shift + factor * self.location[k, i]
                at += 1
        for k in range(n):
            for i in range(d):
                for j in range(d):
                    out[at] = self.spread[k, i, j] * factor * factor
                    at += 1
        last: cython.Py_ssize_t = (2 + d) * n
        location, spread = block[2 * n : last], block[last:]
        return block[:n], location.reshape(n, d), spread.reshape(n, d, d), block[n : 2 * n]


def max_components(offset):
    """Return the largest number of components of one mixture, at least 1, given `offset`."""
    width: cython.Py_ssize_t = 1
    for t in range(offset.shape[0] - 1):
        if offset[t + 1] - offset[t] > width:
            width = offset[t + 1] - offset[t]
    return width


def normalize_shares(offset, share):
    """Divide the `share` of each mixture, see `offset`, by its sum, in place."""
    with cython.nogil:
        for t in range(offset.shape[0] - 1):
            total: cython.double = 0.0
            for k in range(offset[t], offset[t + 1]):
                total += share[k]
            for k in range(offset[t], offset[t + 1]):
                share[k] = share[k] / total


def fill_moments(offset, share, location, spread, dof, outlier, mean, sd):
    """Compute mean and standard deviation, (T, d) each, of the mixtures.

    The component of outliers is left out. The standard deviation is infinite if a component has two
    degrees of freedom or fewer.

    Args:
        mean, sd: (T, d) outputs.
    """
    with cython.nogil:
        for t in range(offset.shape[0] - 1):
            stop: cython.Py_ssize_t = offset[t + 1] - (1 if outlier[t] > 0.0 else 0)
            whole: cython.double = 0.0
            for k in range(offset[t], stop):
                whole += share[k]
            for j in range(location.shape[1]):
                total: cython.double = 0.0
                for k in range(offset[t], stop):
                    total += share[k] * location[k, j]
                mean[t, j] = total / whole
                total = 0.0
                for k in range(offset[t], stop):
                    if share[k] == 0.0:
                        continue
                    own: cython.double = spread[k, j, j]
                    if dof[k] <= 2.0:
                        own = INF
                    elif not isinf(dof[k]):
                        own *= dof[k] / (dof[k] - 2.0)
                    gap: cython.double = location[k, j] - mean[t, j]
                    total += share[k] * (own + gap * gap)
                sd[t, j] = sqrt(total / whole)


def fill_quantiles(level, offset, share, location, spread, dof, out):
    """Compute quantiles of each coordinate of each mixture.

    Args:
        level: (L,) probabilities, strictly between 0 and 1.
        out: (L, T, d) quantiles.
    """
    part: cython.double[:, ::1] = np.empty((5, max_components(offset)))
    with cython.nogil:
        for t in range(offset.shape[0] - 1):
            n: cython.Py_ssize_t = offset[t + 1] - offset[t]
            for j in range(location.shape[1]):
                load_marginal(share, location, spread, dof, j, offset[t], n, part)
                fill_log_peaks(part, n)
                for i in range(level.shape[0]):
                    out[i, t, j] = mixture_quantile(level[i], part, n)


def fill_cdf(y, offset, share, location, spread, dof, out):
    """Compute P(Y <= y), (N, d), coordinate by coordinate; NaN if y is NaN."""
    part: cython.double[:, ::1] = np.empty((4, max_components(offset)))
    with cython.nogil:
        for j in range(location.shape[1]):
            for i in range(y.shape[0]):
                t: cython.Py_ssize_t = i if offset.shape[0] > 2 else 0
                n: cython.Py_ssize_t = offset[t + 1] - offset[t]
                if i == 0 or offset.shape[0] > 2:
                    load_marginal(share, location, spread, dof, j, offset[t], n, part)
                out[i, j] = mixture_cdf_pdf(y[i, j], part, n)[0]


def load_marginal(share, location, spread, dof, j, start, n, out):
    """Write share, location, scale and dof of coordinate `j` to the rows of `out`."""
    for k in range(n):
        out[SHARE, k] = share[start + k]
        out[LOCATION, k] = location[start + k, j]
        out[SCALE, k] = sqrt(spread[start + k, j, j])
        out[DOF, k] = dof[start + k]


def fill_log_densities(y, offset, share, location, spread, dof, out):
    """Compute the joint log density (N,) of the observed coordinates; NaN if there are none."""
    d: cython.Py_ssize_t = location.shape[1]
    root: cython.double[:, ::1] = np.empty((d, d))
    white: cython.double[::1] = np.empty(d)
    centre = location[:, 0]
    variance = spread[:, 0, 0]
    with cython.nogil:
        for i in range(y.shape[0]):
            t: cython.Py_ssize_t = i if offset.shape[0] > 2 else 0
            n: cython.Py_ssize_t = offset[t + 1] - offset[t]
            if d == 1:
                out[i] = log_mixture(y[i, 0], share, centre, variance, dof, n, offset[t])
            else:
                out[i] = joint_log_density(
                    y, i, share, location, spread, dof, offset[t], n, root, white
                )


def fill_tails(y, offset, share, location, spread, dof, outlier, out):
    """Compute the two-sided tail probabilities (N,) without outliers; NaN for a row of NaN."""
    d: cython.Py_ssize_t = location.shape[1]
    scratch: cython.double[:, :, ::1] = np.empty((4 if d > 1 else 0, max_components(offset), d))
    root: cython.double[:, ::1] = np.empty((d, d))
    centre = location[:, 0]
    variance = spread[:, 0, 0]
    with cython.nogil:
        for i in range(y.shape[0]):
            t: cython.Py_ssize_t = i if offset.shape[0] > 2 else 0
            n: cython.Py_ssize_t = offset[t + 1] - offset[t]
            if outlier[t] > 0.0:
                n -= 1
            if d == 1:
                out[i] = mixture_tail(y[i, 0], share, centre, variance, dof, n, offset[t])
            else:
                out[i] = joint_tail(y, i, share, location, spread, dof, offset[t], n, root, scratch)


def joint_tail(y, row, share, location, spread, dof, start, n, root, scratch):
    """Return the two-sided tail probability of the observed coordinates of y[row].

    Given the coordinates before it, a coordinate is a mixture of Student-t components as well. Its
    conditional tail probabilities are independent and uniform if the forecast is right (Rosenblatt
    1952). The smallest of q of them, p, has the probability 1 - (1 - p)^q.

    Args:
        scratch: (4, n, d) scratch: log weight of a component before a coordinate, its lower and
            its upper tail, and whitened residuals.
    """
    observed: cython.Py_ssize_t = 0
    smallest: cython.double = 1.0
    for k in range(n):
        observed = whiten(y, row, location, spread, start + k, root, scratch[3, k])
        if observed == 0:
            return NAN
        conditional_tails(y[row], share[start + k], dof[start + k], root, scratch[:, k])
    for a in range(location.shape[1]):
        if isnan(y[row, a]):
            continue
        top: cython.double = -INF
        below: cython.double = 0.0
        above: cython.double = 0.0
        for k in range(n):
            if scratch[0, k, a] > top:
                top = scratch[0, k, a]
        for k in range(n):
            weight: cython.double = exp(scratch[0, k, a] - top)
            below += weight * scratch[1, k, a]
            above += weight * scratch[2, k, a]
        smallest = min(smallest, 2.0 * min(below, above) / (below + above))
    return -expm1(observed * log1p(-smallest)) if smallest < 1.0 else 1.0


def whiten(y, row, location, spread, k, root, white):
    """Write the residuals of y[row] under component k, whitened by its scale matrix.

    Args:
        root: (d, d) output: Cholesky factor of the observed block.
        white: (d,) output: whitened residuals of the observed coordinates.

    Returns:
        The number of observed coordinates.
    """
    observed: cython.Py_ssize_t = 0
    for a in range(location.shape[1]):
        if isnan(y[row, a]):
            continue
        observed += 1
        value: cython.double = y[row, a] - location[k, a]
        value = min(max(value, -MAX_RESIDUAL), MAX_RESIDUAL)
        pivot: cython.double = spread[k, a, a]
        for b in range(a):
            if isnan(y[row, b]):
                continue
            entry: cython.double = spread[k, a, b]
            for c in range(b):
                if not isnan(y[row, c]):
                    entry -= root[a, c] * root[b, c]
            entry /= root[b, b]
            root[a, b] = entry
            pivot -= entry * entry
            value -= entry * white[b]
        root[a, a] = sqrt(pivot)
        value /= root[a, a]
        white[a] = min(max(value, -MAX_RESIDUAL), MAX_RESIDUAL)
    return observed


def conditional_tails(y, share, dof, root, out):
    """Write the tails of each observed coordinate of one component, given those before it.

    Args:
        y: (d,) values.
        root: (d, d) from `whiten`.
        out: (4, d) log weight before the coordinate, lower tail, upper tail, whitened residual;
            the last is an input.
    """
    weight: cython.double = log(share) if share > 0.0 else -INF
    z2: cython.double = 0.0
    degrees: cython.double = dof
    for a in range(y.shape[0]):
        if isnan(y[a]):
            continue
        # Given other coordinates, a Student-t has another scale and more degrees of freedom.
        factor: cython.double = 1.0
        if not isinf(dof):
            factor = sqrt((dof + z2) / degrees)
        z: cython.double = out[3, a] / factor
        tail, _ = student_tail(fabs(z), degrees, log_peak(degrees))
        out[0, a] = weight
        out[1, a] = tail if z < 0.0 else 1.0 - tail
        out[2, a] = 1.0 - tail if z < 0.0 else tail
        weight += log_standard(fabs(z), degrees) - log(root[a, a] * factor)
        z2 = min(z2 + out[3, a] * out[3, a], MAX_RESIDUAL)
        degrees += 1.0


def joint_log_density(y, row, share, location, spread, dof, start, n, root, white):
    """Return the log density of the observed coordinates of a row; NaN if there are none.

    A Cholesky factor of the observed block is computed for each component.

    Args:
        y: (N, d) values.
        root: (d, d) scratch.
        white: (d,) scratch.
    """
    top: cython.double = -INF
    total: cython.double = 0.0
    whole: cython.double = 0.0
    for k in range(start, start + n):
        if share[k] == 0.0:
            continue
        whole += share[k]
        observed: cython.Py_ssize_t = whiten(y, row, location, spread, k, root, white)
        if observed == 0:
            return NAN
        z2: cython.double = 0.0
        log_scale: cython.double = 0.0
        for a in range(location.shape[1]):
            if not isnan(y[row, a]):
                z2 += white[a] * white[a]
                log_scale += log(root[a, a])
        term: cython.double = log(share[k]) + log_student(z2, log_scale, dof[k], observed)
        if term > top:
            total = total * exp(top - term) + 1.0
            top = term
        else:
            total += exp(term - top)
    return top + log(total / whole)


def log_student(z2, log_scale, dof, d):
    """Return the log density of a `d`-variate t.

    Args:
        z2: squared Mahalanobis distance.
        log_scale: half the log determinant of the scale matrix.
        dof: degrees of freedom.
    """
    if isinf(dof):
        return -0.5 * (d * LOG_2PI + z2) - log_scale
    peak: cython.double = lgamma(0.5 * (dof + d)) - lgamma(0.5 * dof)
    return peak - 0.5 * (d * log(dof * PI) + (dof + d) * log1p(z2 / dof)) - log_scale
