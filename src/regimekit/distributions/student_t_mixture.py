"""Kernels of one scalar mixture: Student-t and Gaussian components, tails, density, quantile.

The upper tail of a t with n degrees of freedom is a sum of positive terms, with w = n / (n + z^2),

    S_n(z) = z f_n(z) / n * (1 + w (n+1)/(n+2) + w^2 (n+1)(n+3)/((n+2)(n+4)) + ..),

where what is left after j terms is again such a tail: S_{n+2j} at z sqrt((n + 2j) / n). With many
degrees of freedom v^2 = n log(1 + z^2 / n) makes a Gaussian integral of it, uniformly in z,

    S_n(z) = C int_v^inf phi(u) H(u^2 / n) du,    H(y) = sqrt(y / (1 - exp(-y))),

which is taken term by term from the power series of H. So few terms are summed wherever z lies,
nothing is subtracted, and far tails keep their digits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel

Array = NDArray[np.float64]

_MANY = 30.0  # degrees of freedom from which the Gaussian integral is used ..
_NEAR = 0.4  # .. where w is above this; below it the sum itself ends soon
_CLOSE = 1e-15  # of the probability or of the quantile
_STEPS = 300  # a ceiling: five to ten is usual
_SQUARED = 1e-9  # of the probability: a Newton step from nearer than this ends within _CLOSE
_COMMON, _FAR = 1e-3, 9.5  # of a tail this large a Gaussian so many deviations off is no digit
_LOG_ROOT = 0.5 * math.log(2 * math.pi)
_LARGEST = float(np.finfo(np.float64).max)
_LONGEST = 1e150  # its square is still finite


def _smooth_series(terms: int) -> Array:
    """Coefficients of H(y) = sqrt(y / (1 - exp(-y))): of the reciprocal, then of the root."""
    below = np.array([(-1.0) ** n / math.factorial(n + 1) for n in range(terms)])
    square, root = np.zeros(terms), np.zeros(terms)
    square[0] = root[0] = 1.0
    for n in range(1, terms):
        square[n] = -(below[1 : n + 1] @ square[n - 1 :: -1][:n])
    for n in range(1, terms):
        root[n] = 0.5 * (square[n] - root[1:n] @ root[n - 1 : 0 : -1])
    return root


_SMOOTH = _smooth_series(20)


@kernel
def log_peak(dof: float) -> float:
    """Log density of a standard t at its centre.

    log Gamma((n + 1) / 2) - log Gamma(n / 2) by Stirling's series, where n was made large by
    Gamma(a + 1) = a Gamma(a): the difference of two log-gammas would lose digits.
    """
    if math.isinf(dof):
        return -_LOG_ROOT
    above, below, n = 1.0, 1.0, dof
    while n < _MANY:
        above *= n
        below *= n + 1.0
        n += 2.0
    r = 1.0 / n
    r2 = r * r
    series = r * (-1 / 4 + r2 * (1 / 24 + r2 * (-1 / 20 + r2 * (17 / 112 - r2 * (31 / 36)))))
    return math.log(above / below * math.sqrt(n / dof)) + series - _LOG_ROOT


@kernel
def log_growth(z: float, dof: float) -> float:
    """log(1 + z^2 / n), also where the square is too large for a float."""
    ratio = z / dof
    if ratio > 1e150 or z * ratio > 1e300:
        return 2.0 * math.log(z) - math.log(dof)
    return math.log1p(z * ratio)


@kernel
def log_standard(z: float, dof: float) -> float:
    """Log density of a standard t at z >= 0 (Gaussian for dof = inf)."""
    if math.isinf(dof):
        return -0.5 * z * z - _LOG_ROOT
    return log_peak(dof) - 0.5 * (dof + 1.0) * log_growth(z, dof)


@kernel
def student_tail(z: float, dof: float, peak: float) -> tuple[float, float]:
    """P(Z > z) for z >= 0 and the density at z, of a standard t with `log_peak` given."""
    if math.isinf(dof):
        z = min(z, _LONGEST)
        return 0.5 * math.erfc(z * math.sqrt(0.5)), math.exp(peak - 0.5 * z * z)
    growth = log_growth(z, dof)
    density = math.exp(peak - 0.5 * (dof + 1.0) * growth)
    if dof == 2.0:
        root = math.hypot(math.sqrt(2.0), z)
        return 1.0 / root / (root + z), density
    return _tail_sum(z * (density / dof), growth, dof), density


@kernel
def _tail_sum(first: float, growth: float, dof: float) -> float:
    """The sum over n, n + 2, .. up to its end or to where the Gaussian integral takes over.

    Terms share a denominator: divisions would be most of the time.
    """
    n, w = dof, math.exp(-growth)
    if n >= _MANY and w >= _NEAR:
        return _gaussian_integral(n * growth, n)
    unit = 1.0 / max(dof, _MANY)
    term, total, below = 1.0, 1.0, 1.0
    while True:
        step = (n + 2.0) * unit
        term *= w * (step - unit)
        n += 2.0
        if w >= _NEAR and n >= _MANY:
            return first * (total / below) + _gaussian_integral(n * growth, n)
        total = total * step + term
        below *= step
        if w < _NEAR and term <= 1e-17 * total:
            return first * (total / below)


@kernel
def _gaussian_integral(v2: float, dof: float) -> float:
    """C int_v^inf phi(u) H(u^2 / n) du, with moment after moment of the Gaussian by parts."""
    v = math.sqrt(v2)
    power = v * math.exp(-0.5 * v2 - _LOG_ROOT)
    moment, total, scale, inverse = 0.5 * math.erfc(v * math.sqrt(0.5)), 0.0, 1.0, 1.0 / dof
    for n in range(_SMOOTH.size):
        term = _SMOOTH[n] * scale * moment
        total += term
        if n > 3 and abs(term) < 1e-18 * total:
            break
        moment = power + (2 * n + 1) * moment
        power *= v2
        scale *= inverse
    return total * math.exp(log_peak(dof) + _LOG_ROOT)


class Mixture(NamedTuple):
    """One mixture of K components: (K,) arrays, with what a tail needs of each once."""

    share: np.ndarray
    location: np.ndarray
    scale: np.ndarray
    dof: np.ndarray
    peak: np.ndarray  # log density of the standard component at its centre


@kernel
def _mixture(
    share: np.ndarray, location: np.ndarray, scale: np.ndarray, dof: np.ndarray
) -> Mixture:
    peak = np.empty(dof.size)
    for k in range(dof.size):
        peak[k] = log_peak(dof[k])
    return Mixture(share, location, scale, dof, peak)


@kernel
def mixture_tails(x: float, mixture: Mixture, far: float) -> tuple[float, float, float]:
    """P(X <= x), P(X > x) and the density at x; each probability to its own last digits.

    Gaussian components that are more than `far` standard deviations away are on their side.
    """
    below, above, density = 0.0, 0.0, 0.0
    for k in range(mixture.share.size):
        share, scale = mixture.share[k], mixture.scale[k]
        if share == 0.0:
            continue
        z = _standard(x, mixture.location[k], scale)
        tail, height = 0.0, 0.0
        if abs(z) < far or not math.isinf(mixture.dof[k]):
            tail, height = student_tail(abs(z), mixture.dof[k], mixture.peak[k])
        density += share * (height / scale)
        below += share * (tail if z < 0.0 else 1.0 - tail)
        above += share * (1.0 - tail if z < 0.0 else tail)
    return below, above, density


@kernel
def _standard(x: float, location: float, scale: float) -> float:
    """(x - location) / scale, kept finite."""
    gap = min(max(0.5 * x - 0.5 * location, -_LARGEST / 4), _LARGEST / 4)
    if abs(gap) > 0.25 * _LARGEST * min(scale, 1.0):
        return math.copysign(0.5 * _LARGEST, gap)
    return 2.0 * (gap / scale)


@kernel
def log_mixture(
    y: float, share: np.ndarray, location: np.ndarray, spread: np.ndarray, dof: np.ndarray
) -> float:
    """Log density of one mixture at y, shares normalised; spreads are variances."""
    if math.isnan(y):
        return math.nan
    top, total, whole = -math.inf, 0.0, 0.0
    for k in range(share.size):
        if share[k] == 0.0:
            continue
        whole += share[k]
        scale = math.sqrt(spread[k])
        z = min(abs(_standard(y, location[k], scale)), _LONGEST)
        term = math.log(share[k]) + log_standard(z, dof[k]) - math.log(scale)
        if term > top:
            total = total * math.exp(top - term) + 1.0
            top = term
        else:
            total += math.exp(term - top)
    return top + math.log(total / whole)


@kernel
def log_mixtures(
    y: np.ndarray,
    offset: np.ndarray,
    share: np.ndarray,
    location: np.ndarray,
    spread: np.ndarray,
    dof: np.ndarray,
    out: np.ndarray,
) -> None:
    """`log_mixture` of each y[t], whose components are those from offset[t] to offset[t + 1]."""
    for t in range(y.size):
        a, b = offset[t], offset[t + 1]
        out[t] = log_mixture(y[t], share[a:b], location[a:b], spread[a:b], dof[a:b])


@kernel
def mixture_cdf_pdf(
    x: float, share: np.ndarray, location: np.ndarray, scale: np.ndarray, dof: np.ndarray
) -> tuple[float, float]:
    """P(X <= x) and the density at x of a mixture of (K,) components."""
    below, _, density = mixture_tails(x, _mixture(share, location, scale, dof), math.inf)
    return below, density


@kernel
def mixture_quantile(
    q: float, share: np.ndarray, location: np.ndarray, scale: np.ndarray, dof: np.ndarray
) -> float:
    """The x with P(X <= x) = q, to the last digits of the smaller of q and 1 - q."""
    if q < 0.5:
        return -_upper_quantile(q, _mixture(share, -location, scale, dof))
    return _upper_quantile(1.0 - q, _mixture(share, location, scale, dof))


@kernel
def mixture_quantiles(
    q: float, share: np.ndarray, location: np.ndarray, scale: np.ndarray, dof: np.ndarray
) -> np.ndarray:
    """The q-quantile of each of T mixtures of (T, K) components."""
    found = np.empty(share.shape[0])
    for t in range(found.size):
        found[t] = mixture_quantile(q, share[t], location[t], scale[t], dof[t])
    return found


@kernel
def _upper_quantile(p: float, mixture: Mixture) -> float:
    """The x with P(X > x) = p <= 1/2: Newton steps on log P(X > x) inside a bracket.

    The logarithm of a Gaussian tail is concave and that of a power nearly straight over the
    steps taken, so half a dozen are usual; a step that would leave the bracket halves it.
    """
    far = _FAR if p > _COMMON else math.inf
    low, x, high = _bracket(p, mixture)
    for _ in range(_STEPS):
        _, above, density = mixture_tails(x, mixture, far)
        excess = (above - p) / p
        if excess > 0.0:
            low = x
        else:
            high = x
        newton = math.nan  # between components far apart, or beyond all, nothing says how far
        if above > 0.0 and density > 0.0:
            ratio = math.log1p(excess) if excess > -0.5 else math.log(above / p)
            newton = x + above * ratio / density
            if abs(excess) < _SQUARED or abs(newton - x) < _CLOSE * abs(x):
                return min(max(newton, low), high)
        elif abs(excess) < _CLOSE:
            return high
        x = newton if low < newton < high else low + 0.5 * (high - low)
        if not low < x < high:
            return high
    return x


@kernel
def _bracket(p: float, mixture: Mixture) -> tuple[float, float, float]:
    """Two points around the upper p-quantile and one between them to start from."""
    normal = _rough_normal(p)
    student = max(normal, (1.0 - 2.0 * p) / math.sqrt(2.0 * p * (1.0 - p)))  # exact for dof = 2
    low, start, high, step, sure = math.inf, 0.0, -math.inf, 0.0, True
    for k in range(mixture.share.size):
        share, location, scale = mixture.share[k], mixture.location[k], mixture.scale[k]
        if share > 0.0:
            low, step = min(low, location), max(step, scale)
            reach = normal if math.isinf(mixture.dof[k]) else student
            high = max(high, min(location + scale * reach, _LARGEST / 4))
            start += share * (location + scale * normal)
            sure = sure and mixture.dof[k] >= 2.0
    while not sure and high < _LARGEST / 8 and mixture_tails(high, mixture, math.inf)[1] > p:
        low = start = high
        high, step = high + step, 2.0 * step
    return low, min(max(start, low), high), high


@kernel
def _rough_normal(p: float) -> float:
    """Upper p-quantile of a normal, p <= 1/2, a little too large (Hastings: 4.5e-4 off)."""
    t = math.sqrt(-2.0 * math.log(p))
    above = 2.515517 + t * (0.802853 + t * 0.010328)
    return t - above / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))) + 1e-3
