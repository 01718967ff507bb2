"""Student-t and Gaussian densities, tails and quantiles, and those of scalar mixtures.

The upper tail of a t distribution with n degrees of freedom is a sum of positive terms. With w = n
/ (n + z^2) and the density f_n,

    S_n(z) = z f_n(z) / n * (1 + w (n+1)/(n+2) + w^2 (n+1)(n+3)/((n+2)(n+4)) + ..).

The remainder after j terms is again such a tail: S_{n+2j} at z sqrt((n + 2j) / n). If n is large,
the substitution v^2 = n log(1 + z^2 / n) gives a Gaussian integral, uniformly in z,

    S_n(z) = C int_v^inf phi(u) H(u^2 / n) du,    H(y) = sqrt(y / (1 - exp(-y))),

which is integrated term by term from the power series of H. Few terms are needed for any z, there
is no cancellation, and far tails keep their relative accuracy.

Arguments of the functions:

    z          distance from the centre in scales
    dof        degrees of freedom, infinity for a Gaussian
    share, location, spread
               arrays of the components: probabilities, centres and squared scales; components
               with share 0 are skipped
    part       the same as one array, with the rows SHARE (their sum is 1), LOCATION, SCALE, DOF
               and PEAK
    n          number of components: only the first n entries are used
    sign       1 for the mixture, -1 for its reflection at 0
"""

from __future__ import annotations

import math

import cython
import numpy as np
from cython.cimports.libc.math import (
    copysign,
    erfc,
    exp,
    fabs,
    hypot,
    isinf,
    isnan,
    log,
    log1p,
    sqrt,
)

SHARE = cython.declare(cython.Py_ssize_t, 0)
LOCATION = cython.declare(cython.Py_ssize_t, 1)
SCALE = cython.declare(cython.Py_ssize_t, 2)
DOF = cython.declare(cython.Py_ssize_t, 3)
PEAK = cython.declare(cython.Py_ssize_t, 4)  # log density of a component at its centre
INF = cython.declare(cython.double, math.inf)
NAN = cython.declare(cython.double, math.nan)
# Degrees of freedom from which the Gaussian integral is used if w is above MIN_INTEGRAL_RATIO.
# Below that ratio the sum converges quickly.
MIN_INTEGRAL_DOF = cython.declare(cython.double, 30.0)
MIN_INTEGRAL_RATIO = cython.declare(cython.double, 0.4)
# Relative accuracy of a quantile or of its probability.
ACCURACY = cython.declare(cython.double, 1e-15)
# Limit on the steps of a quantile; two or three are usual.
MAX_STEPS = cython.declare(cython.int, 300)
MAX_TERMS = cython.declare(cython.int, 10_000)
# Steps after which intervals are divided by orders of magnitude, so that 64 more are enough.
PLAIN_STEPS = cython.declare(cython.int, 60)
# Length of the last step, in scales of the narrowest component, from which its end is evaluated.
MAX_LAST_STEP = cython.declare(cython.double, 1e-3)
# Relative error of the probability of a result, at most.
LAST_EXCESS = cython.declare(cython.double, 1e-9)
# Relative error of the probability up to which a step below ACCURACY ends the search.
MAX_EXCESS = cython.declare(cython.double, 1e-6)
# Relative error of the probability before the last Newton step towards the start of a quantile,
# and the limit on these steps.
START_ERROR = cython.declare(cython.double, 0.1)
MAX_START_STEPS = cython.declare(cython.int, 12)
MIN_SLOPE = cython.declare(cython.double, 1e-290)
# A Gaussian component this many standard deviations away does not change tails above
# COMMON_PROBABILITY in double precision.
COMMON_PROBABILITY = cython.declare(cython.double, 1e-3)
NEGLIGIBLE_DISTANCE = cython.declare(cython.double, 9.5)
LOG_SQRT_2PI = cython.declare(cython.double, 0.5 * math.log(2 * math.pi))
SQRT_HALF = cython.declare(cython.double, math.sqrt(0.5))
SQRT_2 = cython.declare(cython.double, math.sqrt(2.0))
MAX_FLOAT = cython.declare(cython.double, float(np.finfo(np.float64).max))
MIN_FLOAT = cython.declare(cython.double, float(np.finfo(np.float64).tiny))
MAX_RESIDUAL = cython.declare(cython.double, 1e150)  # scales; its square is finite


def _series_of_h(terms):
    """Return the power series of H(y) = sqrt(y / (1 - exp(-y))) up to a number of terms."""
    below = np.array([(-1.0) ** n / math.factorial(n + 1) for n in range(terms)])
    square, root = np.zeros(terms), np.zeros(terms)
    square[0] = root[0] = 1.0
    for n in range(1, terms):
        square[n] = -np.dot(below[1 : n + 1], square[:n][::-1])
    for n in range(1, terms):
        root[n] = 0.5 * (square[n] - np.dot(root[1:n], root[1:n][::-1]))
    return root


SERIES_LENGTH = cython.declare(cython.Py_ssize_t, 20)
SERIES = cython.declare(cython.double[::1], _series_of_h(20))
# Cells of the table of the normal distribution function per unit, their number, and the terms of
# the expansion in each: the error is below 1e-15.
_CELLS = cython.declare(cython.Py_ssize_t, 32)
_N_CELLS = cython.declare(cython.Py_ssize_t, 280)


def _normal_table(cells, n, terms):
    """Return (n, terms) Taylor coefficients of the normal distribution function at i / cells."""
    x = np.arange(n) / cells
    table = np.zeros((n, terms))
    table[:, 0] = [0.5 * math.erfc(-value * math.sqrt(0.5)) for value in x.tolist()]
    density = np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    before, hermite, factorial, sign = np.zeros(n), np.ones(n), 1.0, 1.0
    for k in range(1, terms):
        factorial *= k
        table[:, k] = sign * density * hermite / factorial
        before, hermite, sign = hermite, x * hermite - (k - 1) * before, -sign
    return table


_NORMAL = cython.declare(cython.double[:, ::1], _normal_table(32, 280, 7))


def log_peak(dof):
    """Return the log density of a standard t at its centre.

    log Gamma((n + 1) / 2) - log Gamma(n / 2) is computed by Stirling's series after n was raised by
    Gamma(a + 1) = a Gamma(a). The difference of two log-gammas would lose digits.

    Args:
        dof: degrees of freedom.
    """
    if isinf(dof):
        return -LOG_SQRT_2PI
    if not dof > 0.0:
        return NAN
    above: cython.double = 1.0
    below: cython.double = 1.0
    n: cython.double = dof
    while n < MIN_INTEGRAL_DOF:
        above *= n
        below *= n + 1.0
        n += 2.0
    return log(above / below * sqrt(n / dof)) + stirling_series(n) - LOG_SQRT_2PI


def stirling_series(n):
    """Return log(Gamma((n + 1) / 2) / Gamma(n / 2) / sqrt(n / 2)) for n >= MIN_INTEGRAL_DOF."""
    r: cython.double = 1.0 / n
    r2: cython.double = r * r
    return r * (
        -1.0 / 4.0
        + r2 * (1.0 / 24.0 + r2 * (-1.0 / 20.0 + r2 * (17.0 / 112.0 - r2 * (31.0 / 36.0))))
    )


def log_growth(z, dof):
    """Return log(1 + z^2 / dof) for z >= 0, also if the square overflows."""
    ratio: cython.double = z / dof
    if ratio > 1e150 or z * ratio > 1e300:
        return 2.0 * log(z) - log(dof)
    return log1p(z * ratio)


def log_standard(z, dof):
    """Return the log density of a standard t at z >= 0 (Gaussian for infinite dof)."""
    if isinf(dof):
        return -0.5 * z * z - LOG_SQRT_2PI
    return log_peak(dof) - 0.5 * (dof + 1.0) * log_growth(z, dof)


def student_tail(z, dof, peak):
    """Return P(Z > z) and the density at z >= 0 of a standard t; `peak` is its `log_peak`."""
    if isinf(dof):
        near: cython.double = z if z < MAX_RESIDUAL else MAX_RESIDUAL
        return 0.5 * erfc(near * SQRT_HALF), exp(peak - 0.5 * near * near)
    growth: cython.double = log_growth(z, dof)
    density: cython.double = exp(peak - 0.5 * (dof + 1.0) * growth)
    if dof == 2.0:
        root: cython.double = hypot(SQRT_2, z)
        return 1.0 / root / (root + z), density
    w: cython.double = 1.0 / (1.0 + z * (z / dof)) if z < MAX_RESIDUAL else exp(-growth)
    return tail_sum(z * (density / dof), growth, w, dof), density


def tail_sum(first, growth, w, dof):
    """Return the tail as a sum over n, n + 2, .. until it converges or the integral applies.

    The terms share one denominator because divisions would dominate the run time.

    Args:
        growth: log(1 + z^2 / n).
        w: exp(-growth) = n / (n + z^2).
        dof: n.
    """
    n: cython.double = dof
    if n >= MIN_INTEGRAL_DOF and w >= MIN_INTEGRAL_RATIO:
        return gaussian_integral(n * growth, n)
    unit: cython.double = 1.0 / (dof if dof > MIN_INTEGRAL_DOF else MIN_INTEGRAL_DOF)
    term: cython.double = 1.0
    total: cython.double = 1.0
    below: cython.double = 1.0
    # Not a number: no comparison below would end the loop.
    if not (w >= 0.0 and dof > 0.0):
        return NAN
    for _ in range(MAX_TERMS):
        step: cython.double = (n + 2.0) * unit
        term *= w * (step - unit)
        n += 2.0
        if w >= MIN_INTEGRAL_RATIO and n >= MIN_INTEGRAL_DOF:
            return first * (total / below) + gaussian_integral(n * growth, n)
        total = total * step + term
        below *= step
        if w < MIN_INTEGRAL_RATIO and term <= 1e-17 * total:
            break
    return first * (total / below)


def gaussian_integral(v2, dof):
    """Return C int_v^inf phi(u) H(u^2 / n) du, v^2 = `v2`; Gaussian moments follow by parts."""
    v: cython.double = sqrt(v2)
    power: cython.double = v * exp(-0.5 * v2 - LOG_SQRT_2PI)
    moment: cython.double = 0.5 * erfc(v * SQRT_HALF)
    total: cython.double = 0.0
    scale: cython.double = 1.0
    inverse: cython.double = 1.0 / dof
    for n in range(SERIES_LENGTH):
        term: cython.double = SERIES[n] * scale * moment
        total += term
        if n > 3 and fabs(term) < 1e-18 * total:
            break
        moment = power + (2 * n + 1) * moment
        power *= v2
        scale *= inverse
    return total * exp(stirling_series(dof))


def standardized(x, location, scale):
    """Return (x - location) / scale, limited to finite values."""
    limit: cython.double = 0.25 * MAX_FLOAT
    gap: cython.double = 0.5 * x - 0.5 * location
    if gap < -limit:
        gap = -limit
    elif gap > limit:
        gap = limit
    if fabs(gap) > limit * (scale if scale < 1.0 else 1.0):
        return copysign(0.5 * MAX_FLOAT, gap)
    return 2.0 * (gap / scale)


def log_mixture(y, share, location, spread, dof, n, start=0):
    """Return the log density of a mixture at y, whose shares need not sum to 1; NaN if y is NaN."""
    if isnan(y):
        return NAN
    top: cython.double = -INF
    total: cython.double = 0.0
    whole: cython.double = 0.0
    for k in range(start, start + n):
        if share[k] == 0.0:
            continue
        whole += share[k]
        scale: cython.double = sqrt(spread[k])
        z: cython.double = fabs(standardized(y, location[k], scale))
        if z > MAX_RESIDUAL:
            z = MAX_RESIDUAL
        term: cython.double = log(share[k]) + log_standard(z, dof[k]) - log(scale)
        if term > top:
            total = total * exp(top - term) + 1.0
            top = term
        else:
            total += exp(term - top)
    return top + log(total / whole)


def mixture_tail(y, share, location, spread, dof, n, start=0):
    """Return the two-sided tail probability of y, 2 min(P(X <= y), P(X >= y)); NaN if y is NaN.

    Small values are accurate relative to themselves.
    """
    if isnan(y):
        return NAN
    below: cython.double = 0.0
    above: cython.double = 0.0
    peak: cython.double = 0.0
    for k in range(start, start + n):
        # Neighbouring components often have the same degrees of freedom.
        if k == start or dof[k] != dof[k - 1]:
            peak = log_peak(dof[k])
        if share[k] == 0.0:
            continue
        z: cython.double = standardized(y, location[k], sqrt(spread[k]))
        tail, _ = student_tail(fabs(z), dof[k], peak)
        below += share[k] * (tail if z < 0.0 else 1.0 - tail)
        above += share[k] * (1.0 - tail if z < 0.0 else tail)
    return min(2.0 * min(below, above) / (below + above), 1.0)


def mixture_cdf_pdf(x, part, n):
    """Return P(X <= x) and the density at x of a mixture; NaN if x is NaN."""
    below: cython.double = 0.0
    density: cython.double = 0.0
    if isnan(x):
        return NAN, NAN
    for k in range(n):
        if part[SHARE, k] == 0.0:
            continue
        z: cython.double = standardized(x, part[LOCATION, k], part[SCALE, k])
        tail, height = student_tail(fabs(z), part[DOF, k], log_peak(part[DOF, k]))
        density += part[SHARE, k] * (height / part[SCALE, k])
        below += part[SHARE, k] * (tail if z < 0.0 else 1.0 - tail)
    return below, density


def fill_log_peaks(part, n):
    """Write `log_peak` of each component to the row PEAK."""
    for k in range(n):
        # Neighbouring components often have the same degrees of freedom.
        if k > 0 and part[DOF, k] == part[DOF, k - 1]:
            part[PEAK, k] = part[PEAK, k - 1]
        else:
            part[PEAK, k] = log_peak(part[DOF, k])


def mixture_quantile(q, part, n):
    """Return the x with P(X <= x) = q, accurate relative to the smaller of q and 1 - q.

    Args:
        q: probability, strictly between 0 and 1.
        part: the mixture, after `fill_log_peaks`.
        n: number of components.
    """
    if q < 0.5:
        return -upper_quantile(q, -1.0, part, n)
    return upper_quantile(1.0 - q, 1.0, part, n)


def upper_tail(x, sign, part, n, far):
    """Return P(X > x), accurate relative to its value, the density at x and its slope.

    X is `sign` times the mixture. Gaussian components more than `far` standard deviations away
    count as entirely on their side of x.
    """
    above: cython.double = 0.0
    density: cython.double = 0.0
    slope: cython.double = 0.0
    for k in range(n):
        probability: cython.double = part[SHARE, k]
        if probability == 0.0:
            continue
        dof: cython.double = part[DOF, k]
        scale: cython.double = part[SCALE, k]
        z: cython.double = standardized(x, sign * part[LOCATION, k], scale)
        tail: cython.double = 0.0
        height: cython.double = 0.0
        if fabs(z) < far or not isinf(dof):
            tail, height = student_tail(fabs(z), dof, part[PEAK, k])
        height = probability * (height / scale)
        density += height
        if fabs(z) < MAX_RESIDUAL:
            fall: cython.double = z
            if not isinf(dof):
                fall = (dof + 1.0) * (z / (dof + z * z))
            slope -= height * (fall / scale)
        above += probability * (1.0 - tail if z < 0.0 else tail)
    return above, density, slope


def approximate_tail(x, sign, part, n):
    """Return P(X > x) to about 1e-3, and the derivative of 1 minus it."""
    above: cython.double = 0.0
    density: cython.double = 0.0
    for k in range(n):
        probability: cython.double = part[SHARE, k]
        if probability == 0.0:
            continue
        dof: cython.double = part[DOF, k]
        scale: cython.double = part[SCALE, k]
        z: cython.double = (x - sign * part[LOCATION, k]) / scale
        u: cython.double = min(fabs(z), MAX_RESIDUAL)
        height: cython.double = 1.0
        tail: cython.double = 0.0
        if dof <= 2.0:
            height = sqrt(2.0 + u * u)
            tail = 0.5 - 0.5 * u / height
            height = 1.0 / (height * height * height)
        elif u < 40.0:
            if dof <= 200.0 and u > 0.0:
                # As in `t_cdf`.
                g: cython.double = (dof - 1.5) / ((dof - 1.0) * (dof - 1.0))
                height = u / ((dof + z * z) * g)
                u = sqrt(log1p(z * z / dof) / g)
                height /= u
            tail = 1.0 - normal_cdf(u)
            height *= normal_density(u)
        else:
            height = 0.0
        density += probability * (height / scale)
        above += probability * (1.0 - tail if z < 0.0 else tail)
    return above, density


def approximate_quantile(p, sign, part, n, low, start, high):
    """Return an x with P(X > x) near p, from a cheap approximation of the tail."""
    x: cython.double = start
    for _ in range(MAX_START_STEPS):
        above, density = approximate_tail(x, sign, part, n)
        if above > p:
            low = x
        else:
            high = x
        newton: cython.double = NAN
        if above > 0.0 and density > 0.0:
            newton = x + above * log(above / p) / density
        if low < newton and newton < high:
            x = newton
            if fabs(above - p) < START_ERROR * p:
                return x
        else:
            x = 0.5 * low + 0.5 * high
    return x


def upper_quantile(p, sign, part, n):
    """Return the x with P(X > x) = p <= 1/2 by Halley steps on log P(X > x) within a bracket.

    The search begins at a quantile of a cheap approximation, if p is not too small for that. The
    error of a step is the cube of the error before, so two evaluations are usual. A step that
    leaves the bracket is replaced by bisection.
    """
    far: cython.double = NEGLIGIBLE_DISTANCE if p > COMMON_PROBABILITY else INF
    narrowest: cython.double = INF
    for i in range(n):
        if part[SHARE, i] > 0.0 and part[SCALE, i] < narrowest:
            narrowest = part[SCALE, i]
    low, x, high = bracket(p, sign, part, n)
    if p > COMMON_PROBABILITY:
        x = approximate_quantile(p, sign, part, n, low, x, high)
    for i in range(MAX_STEPS):
        above, density, slope = upper_tail(x, sign, part, n, far)
        excess: cython.double = (above - p) / p
        if excess > 0.0:
            low = x
        else:
            high = x
        # Without density (between distant components or beyond all of them) there is no slope.
        better: cython.double = NAN
        if above > 0.0 and density > 0.0:
            ratio: cython.double = log1p(excess) if excess > -0.5 else log(above / p)
            bend: cython.double = 0.5 * ratio * (1.0 + (slope / density) * (above / density))
            step: cython.double = above * ratio / density
            error: cython.double = ratio * ratio
            # A slope below the smallest float is lost; a Newton step needs none.
            if fabs(bend) < 0.5 and fabs(slope) > MIN_SLOPE:
                step /= 1.0 + bend
                error = fabs(ratio) * max(bend * bend, ratio * ratio)
            better = x + step
            # A small step may also mean that x lies in a narrow component beside the quantile.
            near: cython.bint = fabs(step) < ACCURACY * fabs(x) and fabs(excess) < MAX_EXCESS
            if error < ACCURACY or near:
                better = low if better < low else (high if better > high else better)
                # Where the density is small the step may be long, and end in another component.
                if fabs(better - x) > MAX_LAST_STEP * narrowest:
                    reached, _, _ = upper_tail(better, sign, part, n, far)
                    if not fabs(reached - p) <= fabs(above - p):
                        # The error of x itself is not known to be small.
                        better = NAN
                if not isnan(better):
                    return better
                if fabs(excess) < LAST_EXCESS:
                    return x
        elif fabs(excess) < ACCURACY:
            return high
        if low < better and better < high and i < 2 * PLAIN_STEPS:
            x = better
        else:
            x = 0.5 * low + 0.5 * high if i < PLAIN_STEPS else midpoint(low, high)
        if not (low < x and x < high):
            return high
    return x


def midpoint(low, high):
    """Return a point between low and high that halves the number of floats between them, nearly."""
    if low < 0.0 and high > 0.0:
        return 0.0
    near: cython.double = min(fabs(low), fabs(high))
    far: cython.double = max(fabs(low), fabs(high))
    if far <= 2.0 * near:
        return 0.5 * low + 0.5 * high
    size: cython.double = sqrt(max(near, MIN_FLOAT)) * sqrt(far)
    return size if high > 0.0 else -size


def bracket(p, sign, part, n):
    """Return a lower bound, a start value and an upper bound of the upper `p`-quantile."""
    normal: cython.double = approximate_normal_quantile(p)
    # Exact for dof = 2, an upper bound for more degrees of freedom.
    student: cython.double = (1.0 - 2.0 * p) / sqrt(2.0 * p * (1.0 - p))
    if student < normal:
        student = normal
    low: cython.double = INF
    high: cython.double = -INF
    start: cython.double = 0.0
    step: cython.double = 0.0
    bounded: cython.bint = True
    for k in range(n):
        if part[SHARE, k] > 0.0:
            scale: cython.double = part[SCALE, k]
            centre: cython.double = sign * part[LOCATION, k]
            if centre < low:
                low = centre
            if scale > step:
                step = scale
            end: cython.double = centre + scale * (normal if isinf(part[DOF, k]) else student)
            if end > MAX_FLOAT:
                end = MAX_FLOAT
            if end > high:
                high = end
            first: cython.double = centre + scale * normal
            start += part[SHARE, k] * (first if first < MAX_FLOAT else MAX_FLOAT)
            if part[DOF, k] < 2.0:
                bounded = False
    # With fewer than two degrees of freedom the bound above does not hold: search upwards.
    while not bounded and high < MAX_FLOAT:
        if upper_tail(high, sign, part, n, INF)[0] <= p:
            break
        low = start = high
        high = min(high + step, MAX_FLOAT)
        step = min(2.0 * step, MAX_FLOAT)
    if start < low:
        start = low
    return low, (start if start < high else high), high


def approximate_normal_quantile(p):
    """Return the upper p-quantile of a normal for p <= 1/2, at most 1.5e-3 too large.

    Hastings' rational approximation has an absolute error of 4.5e-4.
    """
    t: cython.double = sqrt(-2.0 * log(p))
    above: cython.double = 2.515517 + t * (0.802853 + t * 0.010328)
    return t - above / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))) + 1e-3


def normal_cdf(u):
    """Return the normal distribution function at u >= 0, to 1e-15."""
    # Also if u is not a number, which has no cell.
    if not u * _CELLS + 0.5 < _N_CELLS:
        return 1.0
    cell: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, u * _CELLS + 0.5)
    d: cython.double = u - cell * (1.0 / 32.0)
    total: cython.double = _NORMAL[cell, 6]
    for k in range(6):
        total = total * d + _NORMAL[cell, 5 - k]
    return total


def normal_density(u):
    """Return the density of a standard normal at u >= 0, to 1e-12."""
    if not u * _CELLS + 0.5 < _N_CELLS:
        return 0.0
    cell: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, u * _CELLS + 0.5)
    d: cython.double = u - cell * (1.0 / 32.0)
    total: cython.double = 6.0 * _NORMAL[cell, 6]
    for k in range(5):
        total = total * d + (5.0 - k) * _NORMAL[cell, 5 - k]
    return total


def t_cdf(x, dof):
    """Return the distribution function of a standard t at x, to 1e-3 (exact for 2 and inf)."""
    if dof <= 2.0:
        return 0.5 + 0.5 * x / sqrt(2.0 + x * x)
    u: cython.double = fabs(x)
    if dof <= 200.0:
        g: cython.double = (dof - 1.5) / ((dof - 1.0) * (dof - 1.0))
        u = sqrt(log1p(x * x / dof) / g)
    p: cython.double = normal_cdf(min(u, 100.0))
    return p if x > 0.0 else 1.0 - p
