"""Oracle forecasts with known regimes and outliers: the reference for excess error.

The regime of each observation and the set of outliers are given to the oracle. It estimates
the coefficients of each regime by the same linear-Gaussian filter as the models:

    theta_k ~ N(prior_mean, prior_var I),   y_t = x_t theta_{s_t} + e_t,   e_t ~ N(0, noise)

There is one posterior per true regime, updated with its own observations; outliers and missing
values are skipped.
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
        """Return the forecasts as Forecast objects, for scores of distributions."""
        rows = zip(self.mean, self.sd, strict=True)
        return [Forecast.gaussian(m, np.diag(np.atleast_1d(s) ** 2)) for m, s in rows]


def oracle(
    dataset: Dataset, noise: float, prior_var: float = 1.0, prior_mean: float = 0.0
) -> Oracle:
    """Compute one-step forecasts with known regimes and outliers.

    The features are the rows of `dataset.X`, without an intercept; if there is no X, an intercept.
    Score the forecasts against `dataset.clean`.

    Args:
        dataset: a generated dataset with `regimes` and, if contaminated, `outliers`.
        noise: variance of the observation noise that the filter assumes.
        prior_var: prior variance of each coefficient.
        prior_mean: prior mean of each coefficient.

    Returns:
        Mean and standard deviation of each forecast, with the shape of `dataset.y`.

    Raises:
        RegimekitError: if the dataset has no true regimes.

    Example:
        >>> from regimekit import data, evaluate
        >>> stream = data.iid_regimes(seed=0)
        >>> reference = evaluate.oracle(stream, noise=0.25, prior_var=4.0)
        >>> 0.45 < evaluate.rmse(stream.clean, reference.mean) < 0.65
        True
    """
    if dataset.regimes is None:
        raise RegimekitError("dataset must have true regimes, got none. Use a generated dataset.")
    variance, spread = positive("noise", noise), positive("prior_var", prior_var)
    table = as_rows(dataset.y)
    features = np.ones((len(dataset), 1)) if dataset.X is None else dataset.X
    usable = np.asarray(~np.isnan(table).any(axis=1))
    if dataset.outliers is not None:
        usable &= ~dataset.outliers
    mean, square = np.empty(table.shape), np.empty(len(table))
    for regime in np.unique(dataset.regimes):
        rows = np.flatnonzero(dataset.regimes == regime)
        start = np.full((features.shape[1], table.shape[1]), float(prior_mean))
        mean[rows], square[rows] = _filter(
            features[rows], table[rows], usable[rows], start, spread, variance
        )
    sd = np.sqrt(np.broadcast_to(square[:, None], table.shape))
    return Oracle(mean.reshape(dataset.y.shape), sd.reshape(dataset.y.shape))


def _filter(
    features: Array, y: Array, usable: NDArray[np.bool_], mean: Array, spread: float, noise: float
) -> tuple[Array, Array]:
    """Recursive least squares: forecast and variance of each row, before it is used."""
    covariance = spread * np.eye(features.shape[1])
    forecasts, variances = np.empty(y.shape), np.empty(len(y))
    for t, x in enumerate(features):
        gain = covariance @ x
        variances[t] = x @ gain + noise
        forecasts[t] = x @ mean
        if usable[t]:
            mean = mean + np.outer(gain, y[t] - forecasts[t]) / variances[t]
            covariance = covariance - np.outer(gain, gain) / variances[t]
    return forecasts, variances
