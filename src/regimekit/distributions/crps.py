"""The continuous ranked probability score of mixtures, many forecasts at once.

Gaussian components have the closed form of Grimit et al. (2006),

    CRPS = sum_k w_k A(y - m_k, s_k^2) - 1/2 sum_jk w_j w_k A(m_j - m_k, s_j^2 + s_k^2),
    A(m, v) = m (2 Phi(m / sqrt v) - 1) + 2 sqrt v phi(m / sqrt v).

Student-t components have none (the second sum), so with them the two tails are integrated,

    CRPS = int_{-inf}^y F^2 dx + int_y^inf (1 - F)^2 dx,

two sums without a subtraction. No distribution function is needed for it. Each tail is walked
from far out towards y in Gauss-Legendre panels; inside a panel the mixture's density at the nodes
gives, by the integral of the polynomial through them, the survival function at the nodes, and its
square is summed. A panel is as long as the nearest component allows, measured in the complex
plane: a t stops being smooth at sqrt(dof) scales beside its centre. Farther out than the first
panel tails are powers, and their integral is known.

Positions are kept as an offset from the component that limits the panel. So a component keeps
its digits whatever its scale and however far from y it lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from regimekit._numba import kernel
from regimekit.distributions.forecast import Forecast, side_by_side
from regimekit.distributions.student_t_mixture import log_growth, log_peak

Array = NDArray[np.float64]

_CHUNK = 256
_NEGLIGIBLE = 1e-24  # product of two shares
_TWICE_ROOT = 2 / math.sqrt(math.pi)  # E|X - X'| of a standard normal

_LONGEST = 0.29  # half a panel, as a part of the distance to the nearest component ..
_SMOOTH = 4.0  # .. which is never seen nearer than this many scales
_GONE = 36 * math.log(10)  # the square root of exp(-this) is a probability to leave out
_POWER_DIGITS = 12.0  # where tails count as powers, the error is below this many digits
_POWER_FROM = 40.0  # scales
_FLAT = 1e-140  # of the largest distance: no component need be narrower, and squares are floats


def _rule(n: int) -> tuple[Array, Array, Array]:
    """Gauss-Legendre nodes and weights on (-1, 1), and the integrals from each node to 1.

    Row i of the matrix takes values at the nodes to the integral of their polynomial from
    node i up: sum_m (2m + 1) / 2 P_m(x_j) w_j int_{x_i}^1 P_m, with the integral
    (P_{m-1} - P_{m+1})(x_i) / (2m + 1).
    """
    nodes, weights = np.polynomial.legendre.leggauss(n)
    values = np.polynomial.legendre.legvander(nodes, n)
    rest = np.empty((n, n))
    rest[:, 0] = 1 - nodes
    rest[:, 1:] = (values[:, :-2] - values[:, 2:]) / (2 * np.arange(1, n) + 1)
    onward = (rest * (np.arange(n) + 0.5)) @ (values[:, :n] * weights[:, None]).T
    return nodes, weights, onward


_NODES, _WEIGHTS, _ONWARD = _rule(12)


class _Parts(NamedTuple):
    """What the walk knows of each component: (K,) arrays."""

    gap: np.ndarray  # from y to its centre
    apart: np.ndarray  # (K, K) from one centre to another; gaps may be too rounded to tell
    scale: np.ndarray
    dof: np.ndarray
    log_height: np.ndarray  # of its share of the density, at its centre
    smooth: np.ndarray  # distance beside its centre to which it is smooth
    reach: np.ndarray  # distance beyond which nothing is left of it


def ranked_scores(forecasts: Sequence[Forecast], y: Array) -> Array:
    """CRPS of each coordinate of (T, d) observations; NaN where y is NaN."""
    parts = [np.zeros((0, y.shape[1]))]
    for start in range(0, len(forecasts), _CHUNK):
        stop = start + _CHUNK
        parts.append(_chunk(forecasts[start:stop], y[start:stop]))
    return np.concatenate(parts)


def _chunk(forecasts: Sequence[Forecast], y: Array) -> Array:
    share, location, scale, dof = side_by_side(forecasts)
    score = _gaussian if np.isinf(dof).all() else _student
    columns = [
        score(y[:, j], share, location[:, :, j], scale[:, :, j], dof[:, :, 0])
        for j in range(y.shape[1])
    ]
    return np.stack(columns, axis=1)


def _gaussian(y: Array, share: Array, location: Array, scale: Array, dof: Array) -> Array:
    to_y = np.einsum("tk,tk->t", share, _mean_distance(y[:, None] - location, scale))
    return np.asarray(to_y - 0.5 * _between(share, location, scale))


@kernel
def _between(share: np.ndarray, location: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """E|X - X'| of two independent draws of each mixture.

    Most components of a mixture over regimes have next to no share: their pairs are left out.
    """
    rows, n = share.shape
    total = np.zeros(rows)
    for t in range(rows):
        for j in range(n):
            if share[t, j] == 0.0:
                continue
            total[t] += share[t, j] ** 2 * scale[t, j] * _TWICE_ROOT
            for k in range(j):
                both = share[t, j] * share[t, k]
                if both < _NEGLIGIBLE:
                    continue
                width = math.hypot(scale[t, j], scale[t, k])
                gap = abs(location[t, j] - location[t, k])
                z = min(gap / width, 1e150)
                density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
                total[t] += 2 * both * (gap * math.erf(z / math.sqrt(2)) + 2 * width * density)
    return total


def _mean_distance(gap: Array, scale: Array) -> Array:
    """E|Z| for Z ~ N(gap, scale^2)."""
    z = np.minimum(np.abs(gap) / scale, 1e150)
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return np.asarray(np.abs(gap) * special.erf(z / math.sqrt(2)) + 2 * scale * density)


@kernel
def _student(
    y: np.ndarray, share: np.ndarray, location: np.ndarray, scale: np.ndarray, dof: np.ndarray
) -> np.ndarray:
    """CRPS of each row: (T,) observations, (T, K) components."""
    scores = np.empty(y.size)
    for t in range(y.size):
        if math.isfinite(y[t]):
            scores[t] = _one(y[t], share[t], location[t], scale[t], dof[t])
        else:
            scores[t] = abs(y[t])
    return scores


@kernel
def _one(
    y: float, share: np.ndarray, location: np.ndarray, scale: np.ndarray, dof: np.ndarray
) -> float:
    """CRPS of one mixture, computed in units of its longest distance."""
    unit, heaviest = 0.0, math.inf
    for k in range(share.size):
        if share[k] > 0.0:
            unit = max(unit, scale[k], abs(0.5 * location[k] - 0.5 * y))
            heaviest = min(heaviest, dof[k])
    if heaviest <= 0.5:
        return math.inf
    if unit == 0.0:  # a point, and y is there
        return 0.0
    parts = _parts(y, share, location, scale, dof, unit)
    above = _upper_tail(parts)
    for j in range(parts.gap.size):
        parts.gap[j] = -parts.gap[j]
        for k in range(parts.gap.size):
            parts.apart[j, k] = -parts.apart[j, k]
    return unit * (above + _upper_tail(parts))


@kernel
def _parts(
    y: float,
    share: np.ndarray,
    location: np.ndarray,
    scale: np.ndarray,
    dof: np.ndarray,
    unit: float,
) -> _Parts:
    """Components with a share, in the given unit."""
    n, rows = 0, np.empty((6, share.size))
    apart = np.empty((share.size, share.size))
    centre = np.empty(share.size)
    for k in range(share.size):
        if share[k] > 0.0:
            centre[n] = location[k]
            for j in range(n + 1):
                apart[n, j] = _apart(centre[n], centre[j], unit)
                apart[j, n] = -apart[n, j]
            rows[0, n] = _apart(centre[n], y, unit)
            _describe(share[k], max(scale[k] / unit, _FLAT), dof[k], rows[:, n])
            n += 1
    rows = rows[:, :n]
    return _Parts(rows[0], apart, rows[1], rows[2], rows[3], rows[4], rows[5])


@kernel
def _apart(a: float, b: float, unit: float) -> float:
    """a - b in the given unit, without an overflow."""
    return 2.0 * ((0.5 * a - 0.5 * b) / unit)


@kernel
def _describe(share: float, scale: float, dof: float, out: np.ndarray) -> None:
    """What the walk knows of one component beside its place."""
    out[1], out[2] = scale, dof
    out[3] = log_peak(dof) + math.log(share / scale)
    out[4] = scale * min(math.sqrt(dof), _SMOOTH)
    out[5] = scale * math.sqrt(_GONE if dof > 1e6 else dof * math.expm1(_GONE / dof))


@kernel
def _upper_tail(parts: _Parts) -> float:
    """Integral of P(X > x)^2 over x > 0."""
    near, offset = _outset(parts)
    survival, total = _beyond(parts, near, offset)
    density = np.empty(_NODES.size)
    while parts.gap[near] + offset > 0.0:
        nearest, end = _panel(parts, near, offset)
        if nearest < 0:  # nothing is left on the way
            rest: float = parts.gap[near] + offset
            return total + survival * survival * rest
        offset += parts.apart[near, nearest]
        near, end = nearest, max(end, -parts.gap[nearest])
        half = max(0.5 * (offset - end), 0.0)
        _density(parts, near, end + half, half, density)
        survival, part = _walk(density, half, survival)
        total += part
        offset = end
    return total


@kernel
def _outset(parts: _Parts) -> tuple[int, float]:
    """Where to begin: the component and the offset from it beyond which tails are powers."""
    near, offset, farthest = 0, -parts.gap[0], 0.0
    for k in range(parts.gap.size):
        power = max(10.0 ** (_POWER_DIGITS / (2.0 * parts.dof[k] + 1.0)), _POWER_FROM)
        reach = min(parts.reach[k], power * parts.scale[k])
        if parts.gap[k] + reach > farthest:
            near, offset, farthest = k, reach, parts.gap[k] + reach
    return near, offset


@kernel
def _beyond(parts: _Parts, near: int, offset: float) -> tuple[float, float]:
    """P(X > x) at the outset and the integral of its square from there on.

    Of two tails x^-a and x^-b the product x^-(a+b) has the integral (product) x / (a + b - 1);
    x is measured from where both together seem to come from, as their hazards tell.
    """
    n = parts.gap.size
    tail, hazard, survival = np.zeros(n), np.ones(n), 0.0
    for k in range(n):
        distance = offset + parts.apart[near, k]
        if distance < parts.reach[k] and distance > 0.0:
            z = distance / parts.scale[k]
            hazard[k] = _hazard(z, parts.dof[k]) / parts.scale[k]
            tail[k] = math.exp(parts.log_height[k] + _log_shape(z, parts.dof[k])) / hazard[k]
            survival += tail[k]
    total = 0.0
    for j in range(n):
        for k in range(j + 1):
            both = tail[j] * tail[k] * (1.0 if j == k else 2.0)
            if both > 0.0:
                power = 1.0 / (1.0 - 1.0 / (parts.dof[j] + parts.dof[k]))
                total += both * power / (hazard[j] + hazard[k])
    return survival, total


@kernel
def _hazard(z: float, dof: float) -> float:
    """Density over tail of a standard t far out, from two terms of its expansion."""
    if math.isinf(dof):
        return z + 1.0 / z
    return (dof + dof / (1.0 + 2.0 / dof) / (z * z)) / (z + dof / z)


@kernel
def _log_shape(z: float, dof: float) -> float:
    """Log density of a standard t at z, less that at its centre."""
    if math.isinf(dof):
        return -0.5 * z * z
    return -0.5 * (dof + 1.0) * log_growth(z, dof)


@kernel
def _panel(parts: _Parts, near: int, offset: float) -> tuple[int, float]:
    """The component that limits the next panel and the panel's end beside it; -1 without any.

    Ends are compared beside one of the two components they belong to: two narrow components may
    be closer to each other than floats are where the panel begins.
    """
    limit, end = -1, 0.0
    for k in range(parts.gap.size):
        distance = offset + parts.apart[near, k]
        if distance > -parts.reach[k]:
            smooth = 2.0 * _LONGEST * math.hypot(parts.smooth[k], distance)
            free = distance - parts.reach[k] > smooth
            stop = parts.reach[k] if free else distance - smooth
            if limit < 0 or stop + parts.apart[k, limit] > end:
                limit, end = k, stop
    return limit, end


@kernel
def _density(parts: _Parts, near: int, middle: float, half: float, out: np.ndarray) -> None:
    """The mixture's density at the nodes of a panel."""
    for i in range(out.size):
        out[i] = 0.0
    for k in range(parts.gap.size):
        inverse, n = 1.0 / parts.scale[k], parts.dof[k]
        centre = middle + parts.apart[near, k]
        if abs(centre) - half > parts.reach[k]:
            continue
        height = parts.log_height[k]
        if math.isinf(n):
            for i in range(out.size):
                z = (centre + half * _NODES[i]) * inverse
                out[i] += math.exp(height - 0.5 * z * z)
        else:
            exponent, inverse = 0.5 * (n + 1.0), inverse / math.sqrt(n)
            for i in range(out.size):
                z = (centre + half * _NODES[i]) * inverse
                out[i] += math.exp(height - exponent * math.log1p(z * z))


@kernel
def _walk(density: np.ndarray, half: float, survival: float) -> tuple[float, float]:
    """P(X > x) at the lower end of a panel and the integral of its square over it."""
    square, mass = 0.0, 0.0
    for i in range(density.size):
        here = 0.0
        for j in range(density.size):
            here += _ONWARD[i, j] * density[j]
        square += _WEIGHTS[i] * (survival + half * here) ** 2
        mass += _WEIGHTS[i] * density[i]
    return survival + half * mass, half * square
