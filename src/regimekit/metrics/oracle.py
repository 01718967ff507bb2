"""The forecasts of someone who is told the truth: the unit in which excess error is honest.

The oracle knows which regime each observation belongs to and which observations are outliers. It
still has to learn each regime's coefficients, by the same linear-Gaussian filter:

    theta_k ~ N(prior_mean, prior_var I),   y_t = x_t theta_{s_t} + e_t,   e_t ~ N(0, noise)

one posterior per true regime, updated with its own observations, outliers and NaN skipped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, positive
from regimekit.datasets.base import Dataset
from regimekit.distributions.forecast import Forecast
from regimekit.metrics.scores import as_rows

Array = NDArray[np.float64]


class Oracle(NamedTuple):
    """One-step forecasts N(mean_t, sd_t^2), shape (T,), or (T, d) for d > 1."""

    mean: Array
    sd: Array

    def forecasts(self) -> list[Forecast]:
        """The same as Forecast objects, for the scores of distributions."""
        rows = zip(self.mean, self.sd, strict=True)
        return [Forecast.gaussian(m, np.diag(np.atleast_1d(s) ** 2)) for m, s in rows]


def oracle(
    dataset: Dataset, noise: float, prior_var: float = 1.0, prior_mean: float = 0.0
) -> Oracle:
    """One-step forecasts of the filter that is told the true regimes and outliers.

    The features are the rows of `dataset.X`, without an intercept; an intercept alone if
    there is no X. Score the forecasts against `dataset.clean`.

    Args:
        dataset: a generated dataset, with `regimes` (and `outliers`, if it has any).
        noise: variance of the observation noise the filter assumes.
        prior_var: prior variance of each coefficient.
        prior_mean: prior mean of each coefficient.

    Example:
        >>> from regimekit import data, evaluate
        >>> stream = data.iid_regimes(seed=0)
        >>> told = evaluate.oracle(stream, noise=0.25, prior_var=4.0)
        >>> 0.45 < evaluate.rmse(stream.clean, told.mean) < 0.65
        True
    """
    if dataset.regimes is None:
        raise RegimekitError("dataset has no true regimes; an oracle needs generated data.")
    variance, spread = positive("noise", noise), positive("prior_var", prior_var)
    table = as_rows(dataset.y)
    features = np.ones((len(dataset), 1)) if dataset.X is None else dataset.X
    learn = np.asarray(~np.isnan(table).any(axis=1))
    if dataset.outliers is not None:
        learn &= ~dataset.outliers
    mean, square = np.empty(table.shape), np.empty(len(table))
    for regime in np.unique(dataset.regimes):
        rows = np.flatnonzero(dataset.regimes == regime)
        start = np.full((features.shape[1], table.shape[1]), float(prior_mean))
        mean[rows], square[rows] = _filter(
            features[rows], table[rows], learn[rows], start, spread, variance
        )
    sd = np.sqrt(np.broadcast_to(square[:, None], table.shape))
    return Oracle(mean.reshape(dataset.y.shape), sd.reshape(dataset.y.shape))


def _filter(
    features: Array, y: Array, learn: NDArray[np.bool_], mean: Array, spread: float, noise: float
) -> tuple[Array, Array]:
    """Recursive least squares: forecasts and their variances, made before each row is learnt."""
    covariance = spread * np.eye(features.shape[1])
    forecasts, variances = np.empty(y.shape), np.empty(len(y))
    for t, x in enumerate(features):
        gain = covariance @ x
        variances[t] = x @ gain + noise
        forecasts[t] = x @ mean
        if learn[t]:
            mean = mean + np.outer(gain, y[t] - forecasts[t]) / variances[t]
            covariance = covariance - np.outer(gain, gain) / variances[t]
    return forecasts, variances
