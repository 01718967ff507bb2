"""Weights for longer horizons: who would have been right h steps ahead?

One step ahead a last value is nearly as good as an AR(1) with coefficient .95; thirty steps ahead
it is far too wide. So the weights of members whose forecasts continue the past are corrected by
what they would have said, with today's coefficients, at the recent origins: with m_h the mean
squared error (bounded at its upper tenth) over n origins h steps ahead,

    w_h ~ w m_h^(-n / 2 h)

the likelihood of Gaussian errors, of which n / h are about independent. The group of these members
keeps its total weight; regimes of a level, which know other things, keep theirs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regimekit.ensemble.ensemble import Ensemble
from regimekit.ensemble.smoothing import SMOOTHERS
from regimekit.preprocessing.lag_buffer import CLEAN

Array = NDArray[np.float64]

_LEAST = 30  # origins below which nothing is corrected
_RATES = np.array(list(SMOOTHERS.values()))


class LinearMember:
    """A member as an affine map of lags: y = base + sum_k slope_k design_k, on one coordinate."""

    def __init__(self, at: int, steps: tuple[int, ...], base: float, slopes: Array) -> None:
        self.at, self.steps, self.base, self.slopes = at, np.array(steps, np.int64), base, slopes

    def errors(self, y: Array, origins: NDArray[np.int64], horizon: int) -> Array:
        """(horizon, origins): errors of the plug-in forecasts made after y[origin]."""
        deepest = int(self.steps.max())
        held = np.stack([y[origins - k] for k in range(deepest - 1, -1, -1)], axis=1)
        out = np.empty((horizon, origins.size))
        for h in range(horizon):
            design = held[:, -self.steps]
            design[:, 1:] -= design[:, :1]
            ahead = self.base + design @ self.slopes
            out[h] = y[origins + h + 1] - ahead
            held = np.concatenate([held[:, 1:], ahead[:, None]], axis=1)
        return out


def horizon_weights(ensemble: Ensemble, linear: list[LinearMember], horizon: int) -> Array:
    """(horizon, members): weights h + 1 steps ahead; the first row is the mixture's own."""
    weight = np.tile(ensemble.mixer.weight, (horizon, 1))
    y = ensemble.past.values[CLEAN, :, 0]
    y = y[-min(ensemble.time, y.size) :]
    deepest = max((int(member.steps.max()) for member in linear), default=1)
    origins = np.arange(deepest + 5, y.size - horizon)
    if origins.size < _LEAST or ensemble.dim > 1:
        return weight
    mean_square = _smoothing_errors(ensemble, y, origins, horizon)
    for member in linear:
        mean_square[member.at] = _bounded(member.errors(y, origins, horizon))
    group = np.array(list(mean_square))
    log_error = np.log(
        np.stack([mean_square[m] for m in group], axis=1) + 1e-12
    )  # (horizon, group)
    independent = origins.size / (2.0 * np.arange(1, horizon + 1))
    factor = np.exp(-independent[:, None] * (log_error - log_error.min(axis=1, keepdims=True)))
    factor[0] = 1.0
    new = weight[:, group] * factor
    total = np.maximum(new.sum(axis=1, keepdims=True), 1e-300)
    weight[:, group] = new / total * weight[:, group].sum(axis=1, keepdims=True)
    return weight


def _bounded(errors: Array) -> Array:
    square = errors**2
    return np.asarray(np.minimum(square, np.quantile(square, 0.9, axis=1)[:, None]).mean(axis=1))


def _smoothing_errors(
    ensemble: Ensemble, y: Array, origins: NDArray[np.int64], horizon: int
) -> dict[int, Array]:
    """Of the smoothing members, run again over the past in full trust."""
    level, slope = np.zeros((y.size, len(_RATES))), np.zeros((y.size, len(_RATES)))
    now, drift = np.full(len(_RATES), y[0]), np.zeros(len(_RATES))
    for t, value in enumerate(y):
        error = value - now - drift
        a = np.maximum(_RATES[:, 0], 1.0 / (t + 1.0))
        now, drift = now + drift + a * error, drift + _RATES[:, 1] * error
        level[t], slope[t] = now, drift
    first = len(ensemble.regimes) + len(ensemble.simple.specs)
    out = {}
    for j in range(len(_RATES)):
        steps = np.arange(1, horizon + 1)[:, None]
        ahead = level[origins, j] + steps * slope[origins, j]
        out[first + j] = _bounded(y[origins + steps] - ahead)
    return out
