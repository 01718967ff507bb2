"""Continuous ranked probability score of mixtures, in closed form or by exact integration.

Gaussian mixtures have the closed form of Grimit et al. (2006),

    CRPS = sum_k w_k A(y - m_k, s_k^2) - 1/2 sum_jk w_j w_k A(m_j - m_k, s_j^2 + s_k^2),
    A(m, v) = m (2 Phi(m / sqrt v) - 1) + 2 sqrt v phi(m / sqrt v).

With Student-t components the second sum has no closed form, and the two tails are integrated,

    CRPS = int_{-inf}^y F^2 dx + int_y^inf (1 - F)^2 dx,

which involves no subtraction and no evaluation of the distribution function. Each tail is
integrated from its far end towards y in Gauss-Legendre panels. Within a panel the density at the
nodes gives, by the integral of the interpolating polynomial, the survival function at the nodes,
and its square is summed. The length of a panel is limited by the distance to the nearest
component in the complex plane: a t density has singularities sqrt(dof) scales beside its centre.
Beyond the first panel the tails are powers, whose integral is known.

Positions are stored as offsets from the component that limits the panel, so a component keeps its
digits for any scale and any distance from y.
"""

from __future__ import annotations

import math

import cython
import numpy as np
from cython.cimports.libc.math import (
    erf,
    exp,
    expm1,
    fabs,
    hypot,
    isfinite,
    isinf,
    log,
    log1p,
    pow,
    sqrt,
)

if not cython.compiled:
    from regimekit.distributions.mixture import load_marginal, max_components
    from regimekit.distributions.student_t import DOF, LOCATION, SCALE, SHARE, log_growth, log_peak

INF = cython.declare(cython.double, math.inf)
# Pairs of components whose product of shares is smaller are left out.
NEGLIGIBLE_PRODUCT = cython.declare(cython.double, 1e-24)
# E|X - X'| of two independent standard normal variables.
NORMAL_DIFFERENCE = cython.declare(cython.double, 2 / math.sqrt(math.pi))
SQRT_2 = cython.declare(cython.double, math.sqrt(2))
SQRT_2PI = cython.declare(cython.double, math.sqrt(2 * math.pi))
MAX_RESIDUAL = cython.declare(cython.double, 1e150)  # scales; its square is finite
# Half the length of a panel as a fraction of the distance to the nearest singularity.
PANEL_FRACTION = cython.declare(cython.double, 0.29)
# Largest assumed distance from a centre to its singularity, in scales.
MAX_SMOOTH_DISTANCE = cython.declare(cython.double, 4.0)
# Minus the log density, relative to the peak, from which a component is left out.
NEGLIGIBLE_LOG = cython.declare(cython.double, 36 * math.log(10))
# Tails count as powers where the error of that is below 1e-12, but at least 40 scales out.
POWER_DIGITS = cython.declare(cython.double, 12.0)
MIN_POWER_DISTANCE = cython.declare(cython.double, 40.0)
# Smallest scale, as a fraction of the largest distance: its square is a float.
MIN_SCALE = cython.declare(cython.double, 1e-140)


def _gauss_legendre(n):
    """Return nodes and weights on (-1, 1), and the matrix of integrals from each node to 1."""
    # Row i maps values at the nodes to the integral of their polynomial from node i to 1:
    # sum_m (2m + 1) / 2 P_m(x_j) w_j int_{x_i}^1 P_m, where the integral is
    # (P_{m-1} - P_{m+1})(x_i) / (2m + 1).
    nodes, weights = np.polynomial.legendre.leggauss(n)
    values = np.polynomial.legendre.legvander(nodes, n)
    rest = np.empty((n, n))
    rest[:, 0] = 1 - nodes
    rest[:, 1:] = (values[:, : n - 1] - values[:, 2:]) / (2 * np.arange(1, n) + 1)
    upper = np.dot(rest * (np.arange(n) + 0.5), (values[:, :n] * weights[:, None]).T)
    return nodes, weights, np.ascontiguousarray(upper)


N_NODES = cython.declare(cython.Py_ssize_t, 12)
NODES = cython.declare(cython.double[::1], _gauss_legendre(12)[0])
WEIGHTS = cython.declare(cython.double[::1], _gauss_legendre(12)[1])
UPPER_INTEGRAL = cython.declare(cython.double[:, ::1], _gauss_legendre(12)[2])


def fill_crps(y, offset, share, location, spread, dof, out):
    """Compute the CRPS of each coordinate of (T, d) values; NaN if y is NaN.

    Args:
        y: (T, d) observations. Row t belongs to mixture t.
        offset: (T + 1,) first component of each mixture.
        share: (P,) probabilities, normalized.
        location: (P, d).
        spread: (P, d, d).
        dof: (P,).
        out: (T, d) scores.
    """
    width: cython.Py_ssize_t = max_components(offset)
    part: cython.double[:, ::1] = np.empty((4, width))
    integral: TailIntegral = TailIntegral(width)
    with cython.nogil:
        for t in range(y.shape[0]):
            n: cython.Py_ssize_t = offset[t + 1] - offset[t]
            gaussian: cython.bint = True
            for k in range(offset[t], offset[t + 1]):
                if share[k] > 0.0 and not isinf(dof[k]):
                    gaussian = False
            for j in range(y.shape[1]):
                if not isfinite(y[t, j]):
                    out[t, j] = fabs(y[t, j])
                    continue
                load_marginal(share, location, spread, dof, j, offset[t], n, part)
                if gaussian:
                    out[t, j] = gaussian_crps(y[t, j], part, n)
                else:
                    out[t, j] = integral.crps(y[t, j], part, n)


def mixture_crps(y, share, location, scale, dof):
    """Return the CRPS of one scalar mixture of K components by integration."""
    part = np.array([share, location, scale, dof], dtype=float)
    integral: TailIntegral = TailIntegral(part.shape[1])
    return integral.crps(y, part, part.shape[1])


def gaussian_crps(y, part, n):
    """Return the closed form for Gaussian components.

    Pairs of components with a negligible product of shares are left out, in a mixture over regimes
    most of them.
    """
    to_y: cython.double = 0.0
    between: cython.double = 0.0
    for j in range(n):
        if part[SHARE, j] == 0.0:
            continue
        to_y += part[SHARE, j] * mean_distance(y - part[LOCATION, j], part[SCALE, j])
        between += part[SHARE, j] * part[SHARE, j] * part[SCALE, j] * NORMAL_DIFFERENCE
        for k in range(j):
            both: cython.double = part[SHARE, j] * part[SHARE, k]
            if both >= NEGLIGIBLE_PRODUCT:
                between += (
                    2.0
                    * both
                    * mean_distance(
                        part[LOCATION, j] - part[LOCATION, k], hypot(part[SCALE, j], part[SCALE, k])
                    )
                )
    return to_y - 0.5 * between


def mean_distance(gap, scale):
    """Return E|Z| for Z ~ N(gap, scale^2)."""
    distance: cython.double = fabs(gap)
    z: cython.double = distance / scale
    if z > MAX_RESIDUAL:
        z = MAX_RESIDUAL
    density: cython.double = exp(-0.5 * z * z) / SQRT_2PI
    return distance * erf(z / SQRT_2) + 2.0 * scale * density


def difference(a, b, unit):
    """Return (a - b) / unit without overflow."""
    return 2.0 * ((0.5 * a - 0.5 * b) / unit)


def hazard(z, dof):
    """Return density / tail of a standard t far out at `z`, by two terms of its series in `dof`."""
    if isinf(dof):
        return z + 1.0 / z
    return (dof + dof / (1.0 + 2.0 / dof) / (z * z)) / (z + dof / z)


def log_shape(z, dof):
    """Return the log density of a standard t with `dof` at `z`, relative to its centre."""
    if isinf(dof):
        return -0.5 * z * z
    return -0.5 * (dof + 1.0) * log_growth(z, dof)


class TailIntegral:
    """Integral of the squared tails of a mixture, with scratch for a number of components.

    Distances are in units of the largest one. `mirror` reflects the mixture at y, so the lower tail
    is integrated as an upper tail.

    Arguments of the methods:
        y: observation.
        part: share, location, scale and dof of the components in its rows.
        n: number of components.
        near: component that limits the panel.
        offset: start of the panel, relative to the centre of `near`.
        middle: middle of the panel, relative to the centre of `near`.
        half: half its length.
        survival: P(X > x) at its upper end.

    Args:
        capacity: largest number of components.

    Attributes:
        size: number of components with a positive share, K.
        gap: (K,) distance from y to the centre.
        apart: (K, K) distance from one centre to another. Differences of gaps would be rounded.
        scale: (K,) scale.
        dof: (K,) degrees of freedom.
        log_height: (K,) log of share times density at the centre.
        smooth: (K,) distance from the centre to the singularity.
        reach: (K,) distance beyond which the density is negligible.
        tail, rate: (K,) scratch: tail probability and hazard at the start.
        density: scratch, one value per node.
    """

    def __init__(self, capacity):
        self.size = 0
        self.gap, self.scale, self.dof = (np.empty(capacity) for _ in range(3))
        self.log_height, self.smooth, self.reach = (np.empty(capacity) for _ in range(3))
        self.tail, self.rate = np.empty(capacity), np.empty(capacity)
        self.apart = np.empty((capacity, capacity))
        self.density = np.empty(N_NODES)

    def crps(self, y, part, n):
        """Return the CRPS for finite y."""
        unit: cython.double = 0.0
        heaviest: cython.double = INF
        for k in range(n):
            if part[SHARE, k] > 0.0:
                distance: cython.double = fabs(0.5 * part[LOCATION, k] - 0.5 * y)
                if part[SCALE, k] > unit:
                    unit = part[SCALE, k]
                if distance > unit:
                    unit = distance
                if part[DOF, k] < heaviest:
                    heaviest = part[DOF, k]
        # E|X| of the difference is infinite for dof <= 1/2.
        if heaviest <= 0.5:
            return INF
        # All components are points at y.
        if unit == 0.0:
            return 0.0
        self.load(y, part, n, unit)
        above: cython.double = self.upper()
        self.mirror()
        return unit * (above + self.upper())

    def load(self, y, part, n, unit):
        """Store the components with a positive share, with distances in units of `unit`."""
        m: cython.Py_ssize_t = 0
        for k in range(n):
            if part[SHARE, k] <= 0.0:
                continue
            # Until all components are loaded, `tail` stores the centres.
            self.tail[m] = part[LOCATION, k]
            for j in range(m + 1):
                self.apart[m, j] = difference(self.tail[m], self.tail[j], unit)
                self.apart[j, m] = -self.apart[m, j]
            self.gap[m] = difference(self.tail[m], y, unit)
            scale: cython.double = part[SCALE, k] / unit
            if scale < MIN_SCALE:
                scale = MIN_SCALE
            dof: cython.double = part[DOF, k]
            root: cython.double = sqrt(dof)
            self.scale[m] = scale
            self.dof[m] = dof
            self.log_height[m] = log_peak(dof) + log(part[SHARE, k] / scale)
            self.smooth[m] = scale * (root if root < MAX_SMOOTH_DISTANCE else MAX_SMOOTH_DISTANCE)
            squared: cython.double = (
                NEGLIGIBLE_LOG if dof > 1e6 else dof * expm1(NEGLIGIBLE_LOG / dof)
            )
            self.reach[m] = scale * sqrt(squared)
            m += 1
        self.size = m

    def mirror(self):
        """Reflect the mixture at y."""
        for j in range(self.size):
            self.gap[j] = -self.gap[j]
            for k in range(self.size):
                self.apart[j, k] = -self.apart[j, k]

    def upper(self):
        """Return the integral of P(X > x)^2 over x > 0."""
        near, offset = self.outset()
        survival, total = self.beyond(near, offset)
        while self.gap[near] + offset > 0.0:
            nearest, end = self.panel(near, offset)
            # No component is left between here and y.
            if nearest < 0:
                return total + survival * survival * (self.gap[near] + offset)
            offset += self.apart[near, nearest]
            near = nearest
            if end < -self.gap[near]:
                end = -self.gap[near]
            half: cython.double = 0.5 * (offset - end)
            if half < 0.0:
                half = 0.0
            self.fill_density(near, end + half, half)
            survival, part = self.integrate(half, survival)
            total += part
            offset = end
        return total

    def outset(self):
        """Return a component and the offset from it beyond which all tails are powers."""
        near: cython.Py_ssize_t = 0
        offset: cython.double = -self.gap[0]
        farthest: cython.double = 0.0
        for k in range(self.size):
            power: cython.double = pow(10.0, POWER_DIGITS / (2.0 * self.dof[k] + 1.0))
            if power < MIN_POWER_DISTANCE:
                power = MIN_POWER_DISTANCE
            reach: cython.double = power * self.scale[k]
            if self.reach[k] < reach:
                reach = self.reach[k]
            if self.gap[k] + reach > farthest:
                near = k
                offset = reach
                farthest = self.gap[k] + reach
        return near, offset

    def beyond(self, near, offset):
        """Return P(X > x) at the start and the integral of its square beyond.

        The product of two tails x^-a and x^-b has the integral (product) x / (a + b - 1). x is
        measured from the origin that the two hazards imply.
        """
        survival: cython.double = 0.0
        total: cython.double = 0.0
        for k in range(self.size):
            self.tail[k] = 0.0
            self.rate[k] = 1.0
            distance: cython.double = offset + self.apart[near, k]
            if distance < self.reach[k] and distance > 0.0:
                z: cython.double = distance / self.scale[k]
                self.rate[k] = hazard(z, self.dof[k]) / self.scale[k]
                height: cython.double = exp(self.log_height[k] + log_shape(z, self.dof[k]))
                self.tail[k] = height / self.rate[k]
                survival += self.tail[k]
        for j in range(self.size):
            for k in range(j + 1):
                both: cython.double = self.tail[j] * self.tail[k] * (1.0 if j == k else 2.0)
                if both > 0.0:
                    power: cython.double = 1.0 / (1.0 - 1.0 / (self.dof[j] + self.dof[k]))
                    total += both * power / (self.rate[j] + self.rate[k])
        return survival, total

    def panel(self, near, offset):
        """Return the component that limits the next panel and the panel's end; -1 if there is none.

        The end is an offset from that component. Ends are compared relative to one of the two
        components, because narrow components may be closer to each other than floats are at the
        start of the panel.
        """
        limit: cython.Py_ssize_t = -1
        end: cython.double = 0.0
        for k in range(self.size):
            distance: cython.double = offset + self.apart[near, k]
            if distance > -self.reach[k]:
                length: cython.double = 2.0 * PANEL_FRACTION * hypot(self.smooth[k], distance)
                free: cython.bint = distance - self.reach[k] > length
                stop: cython.double = self.reach[k] if free else distance - length
                if limit < 0 or stop + self.apart[k, limit] > end:
                    limit = k
                    end = stop
        return limit, end

    def fill_density(self, near, middle, half):
        """Compute the mixture density at the nodes of a panel."""
        for i in range(N_NODES):
            self.density[i] = 0.0
        for k in range(self.size):
            centre: cython.double = middle + self.apart[near, k]
            if fabs(centre) - half > self.reach[k]:
                continue
            inverse: cython.double = 1.0 / self.scale[k]
            dof: cython.double = self.dof[k]
            height: cython.double = self.log_height[k]
            if isinf(dof):
                for i in range(N_NODES):
                    z: cython.double = (centre + half * NODES[i]) * inverse
                    self.density[i] += exp(height - 0.5 * z * z)
            else:
                exponent: cython.double = 0.5 * (dof + 1.0)
                inverse = inverse / sqrt(dof)
                for i in range(N_NODES):
                    z = (centre + half * NODES[i]) * inverse
                    self.density[i] += exp(height - exponent * log1p(z * z))

    def integrate(self, half, survival):
        """Return P(X > x) at the lower end of a panel and the integral of its square over it."""
        square: cython.double = 0.0
        mass: cython.double = 0.0
        for i in range(N_NODES):
            here: cython.double = 0.0
            for j in range(N_NODES):
                here += UPPER_INTEGRAL[i, j] * self.density[j]
            value: cython.double = survival + half * here
            square += WEIGHTS[i] * (value * value)
            mass += WEIGHTS[i] * self.density[i]
        return survival + half * mass, half * square
