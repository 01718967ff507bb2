"""How good a distribution was for what came: kernels over the components of all members at once.

The ranked probability score of a distribution function F at y is

    CRPS(F, y) = integral (F(x) - 1{x >= y})^2 dx

taken on a grid around the common forecast, so every loss is bounded by the grid's length and an
extreme value costs all members the same: nobody is elected by an outlier.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel
from regimekit.distributions.student_t_mixture import log_standard

Array = NDArray[np.float64]

_OFFSETS = np.sinh(np.linspace(-4.2, 4.2, 35)) / np.sinh(4.2) * 16.0  # in common scales


@kernel
def t_cdf(x: float, dof: float) -> float:
    """Distribution function of a standard t, to about 1e-3 (exact for 2 and infinity)."""
    if dof > 200.0:
        u = x
    elif dof <= 2.0:
        return 0.5 + 0.5 * x / math.sqrt(2.0 + x * x)
    else:
        g = (dof - 1.5) / (dof - 1.0) ** 2
        u = math.copysign(math.sqrt(math.log1p(x * x / dof) / g), x)
    return 0.5 * math.erfc(-u * 0.7071067811865476)


@kernel
def distribution_functions(
    nodes: Array,
    share: Array,
    location: Array,
    scale: Array,
    dof: Array,
    owner: NDArray[np.int64],
    out: Array,
) -> None:
    """out[m, g]: F_m at node g, the components of member m mixed by their shares."""
    out[:] = 0.0
    for k in range(share.size):
        m = owner[k]
        for g in range(nodes.size):
            z = (nodes[g] - location[k]) / scale[k]
            if z > 40.0:
                out[m, g] += share[k]
            elif z > -40.0:
                out[m, g] += share[k] * t_cdf(z, dof[k])


@kernel
def log_densities(
    y: float,
    share: Array,
    location: Array,
    scale: Array,
    dof: Array,
    owner: NDArray[np.int64],
    out: Array,
) -> None:
    """out[m]: log density of member m at y, finite for every finite y if it has components."""
    top = np.full(out.size, -np.inf)
    term = np.empty(share.size)
    for k in range(share.size):
        z = min(abs(y - location[k]) / scale[k], 1e100)
        term[k] = math.log(max(share[k], 1e-300)) + log_standard(z, dof[k]) - math.log(scale[k])
        top[owner[k]] = max(top[owner[k]], term[k])
    out[:] = 0.0
    for k in range(share.size):
        out[owner[k]] += math.exp(term[k] - top[owner[k]])
    for m in range(out.size):
        out[m] = top[m] + math.log(out[m]) if out[m] > 0.0 else -np.inf


@kernel
def below_points(
    points: Array, share: Array, location: Array, scale: Array, dof: Array, out: Array
) -> None:
    """Distribution function of one mixture at some points."""
    out[:] = 0.0
    for k in range(share.size):
        for g in range(points.size):
            z = min(max((points[g] - location[k]) / scale[k], -1e100), 1e100)
            out[g] += share[k] * t_cdf(z, dof[k])


@kernel
def ranked_losses(
    nodes: Array, f: Array, y: float, weight: Array, out_loss: Array, out_gradient: Array
) -> float:
    """CRPS of each member, of the mixture, and its derivative along each member's weight.

    The indicator is split exactly inside its cell; F is linear between nodes.
    """
    members, size = f.shape
    out_loss[:] = 0.0
    out_gradient[:] = 0.0
    total = 0.0
    for g in range(size - 1):
        width = nodes[g + 1] - nodes[g]
        above = (nodes[g + 1] - y) / width
        above = min(max(above, 0.0), 1.0)
        mixed = 0.0
        for m in range(members):
            mixed += weight[m] * 0.5 * (f[m, g] + f[m, g + 1])
        total += width * (mixed * mixed - 2.0 * mixed * above + above)
        for m in range(members):
            own = 0.5 * (f[m, g] + f[m, g + 1])
            out_loss[m] += width * (own * own - 2.0 * own * above + above)
            out_gradient[m] += 2.0 * width * (mixed - above) * own
    return total


def grid(centre: float, scale: float) -> Array:
    """Nodes around the common forecast, dense in the middle; no two of them the same float."""
    return np.asarray(centre + scale * _OFFSETS)
