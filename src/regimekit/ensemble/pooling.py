"""Linear pools of point forecasts, and the distribution of their errors."""

from __future__ import annotations

import cython
from cython.cimports.libc.math import exp, fabs, isnan, log

if not cython.compiled:
    from regimekit.preprocessing.lag_buffer import sort_order

_LOGISTIC = cython.declare(cython.double, 0.5875)  # quantiles: Gaussian over logistic


def pool(error, importance, prior, strength, rounds, weight, residual):
    """Find weights of a linear pool: the smallest mean absolute error, shrunk to a prior.

    Minimizes sum_o importance_o |sum_m w_m error_mo| / scale + strength KL(w || prior) by
    exponentiated gradient steps.

    Args:
        error: (M, O) errors of the members at the origins.
        importance: (O,) weights of the origins, which sum to 1.
        prior: (M,) weights that the pool is shrunk to, which sum to 1.
        weight: (M,) the weights, written.
        residual: (O,) the errors of the pool, written.
    """
    m: cython.Py_ssize_t
    o: cython.Py_ssize_t
    i: cython.Py_ssize_t
    n_members: cython.Py_ssize_t = error.shape[0]
    n: cython.Py_ssize_t = error.shape[1]
    scale: cython.double = 0.0
    for m in range(n_members):
        weight[m] = prior[m]
    for i in range(rounds + 1):
        for o in range(n):
            residual[o] = 0.0
        for m in range(n_members):
            for o in range(n):
                residual[o] += weight[m] * error[m, o]
        if i == rounds:
            return
        if i == 0:
            for o in range(n):
                scale += importance[o] * fabs(residual[o])
            scale = max(scale, 1e-300)
        rate: cython.double = 1.5 / (1.0 + 0.3 * i)
        # A step of mirror descent; its proximal part pulls the weights to the prior.
        kept: cython.double = 1.0 / (1.0 + rate * strength)
        total: cython.double = 0.0
        for m in range(n_members):
            gradient: cython.double = 0.0
            for o in range(n):
                if residual[o] > 0.0:
                    gradient += importance[o] * error[m, o]
                else:
                    gradient -= importance[o] * error[m, o]
            gradient = min(max(gradient / scale, -5.0), 5.0)
            moved: cython.double = log(max(weight[m], 1e-300)) - rate * gradient
            weight[m] = exp(kept * moved + (1.0 - kept) * log(max(prior[m], 1e-300)))
            total += weight[m]
        for m in range(n_members):
            weight[m] /= total


def distribute(
    error, importance, log_ratio, penalty, inflation, dof, work, order, share, mean, variance
):
    """Summarize the errors of every horizon in bands of equal probability.

    The errors of an origin are multiplied by exp(k log_ratio), with the exponent k = 0, .35, .7 or
    1 under which Laplace errors are most likely, less a penalty of larger exponents.

    Args:
        error: (H, O) errors; those that are not known yet are NaN.
        importance: (O,) weights of the origins.
        log_ratio: (O,) log of the present noise scale over that of the origin.
        penalty: (H,) gain of the mean log density that an exponent of 1 must bring.
        inflation: (H,) factor of the errors.
        dof: (H,) degrees of freedom of a t that each error is stretched to, from a Gaussian of the
            same rank: with few independent errors, their scale is uncertain.
        work: (3, O) scratch.
        order: (O,) scratch, integers.
        share: (H, bands) written: probability of each band; 0 for an empty one.
        mean: (H, bands) written: mean of its errors.
        variance: (H, bands) written: their variance plus that of a kernel.
    """
    h: cython.Py_ssize_t
    o: cython.Py_ssize_t
    i: cython.Py_ssize_t
    n: cython.Py_ssize_t
    b: cython.Py_ssize_t
    bands: cython.Py_ssize_t = share.shape[1]
    value: cython.double[::1] = work[0]
    weight: cython.double[::1] = work[1]
    ratio: cython.double[::1] = work[2]
    for h in range(error.shape[0]):
        n = 0
        total: cython.double = 0.0
        for o in range(error.shape[1]):
            if not isnan(error[h, o]):
                value[n] = error[h, o]
                weight[n] = importance[o]
                ratio[n] = log_ratio[o]
                total += importance[o]
                n += 1
        for b in range(bands):
            share[h, b] = mean[h, b] = variance[h, b] = 0.0
        if n == 0:
            continue
        k: cython.double = _exponent(value, weight, ratio, n, total, penalty[h])
        for o in range(n):
            value[o] *= inflation[h] * exp(k * ratio[o])
            weight[o] /= total
        sort_order(value, 0, n, order)
        low: cython.double = value[order[0]]
        high: cython.double = value[order[n - 1]]
        below: cython.double = 0.0
        for i in range(n):
            o = order[i]
            rank: cython.double = below + 0.5 * weight[o]
            below += weight[o]
            if rank < 0.1:
                low = value[o]
            if rank <= 0.9:
                high = value[o]
            rank = min(max(rank, 1e-6), 1.0 - 1e-6)
            b = min(cython.cast(cython.Py_ssize_t, rank * bands), bands - 1)
            share[h, b] += weight[o]
            # Cornish and Fisher's expansion, with the logistic quantile for the Gaussian one.
            z: cython.double = _LOGISTIC * log(rank / (1.0 - rank))
            value[o] *= 1.0 + (z * z + 1.0) / (4.0 * dof[h])
            mean[h, b] += weight[o] * value[o]
            variance[h, b] += weight[o] * value[o] * value[o]
        kernel: cython.double = 0.6 * (high - low) / 2.56 * exp(-0.2 * log(n + 1.0))
        for b in range(bands):
            if share[h, b] > 0.0:
                mean[h, b] /= share[h, b]
                variance[h, b] = variance[h, b] / share[h, b] - mean[h, b] * mean[h, b]
                variance[h, b] = max(variance[h, b], 0.0) + kernel * kernel


def _exponent(value, weight, ratio, n, total, penalty):
    """Return the exponent of the noise ratio under which Laplace errors are most likely."""
    best: cython.double = 1e300
    found: cython.double = 0.0
    i: cython.Py_ssize_t
    o: cython.Py_ssize_t
    for i in range(4):
        k: cython.double = 0.35 * i if i < 3 else 1.0
        size: cython.double = 0.0
        mean: cython.double = 0.0
        for o in range(n):
            size += weight[o] * fabs(value[o]) * exp(k * ratio[o])
            mean += weight[o] * ratio[o]
        loss: cython.double = log(max(size / total, 1e-300)) - k * mean / total + penalty * k
        if loss < best:
            best = loss
            found = k
    return found
