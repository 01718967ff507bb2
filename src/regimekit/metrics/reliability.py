"""Calibration of forecasts: PIT histogram and coverage by level.

The probability integral transform u = F(y) of calibrated forecasts is uniform: its histogram is
flat, and the central interval of level p covers a share p of the observations,

    coverage(p) = share of |2 u - 1| <= p

A Run stores only the median and the interval limits of each forecast. `pit_of_run` approximates
the forecast by two half-normal distributions that agree with it at these three quantiles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, numbers, whole
from regimekit.distributions.normal import normal_cdf, normal_quantile
from regimekit.results import Run

Array = NDArray[np.float64]
_ROUNDING = 1e-9  # tolerance: the weights of a mixture sum to 1 up to rounding
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


class Calibration(NamedTuple):
    """PIT histogram and coverage of a set of forecasts.

    Attributes:
        pit: share of the PIT values in each of equal bins; equal if calibrated.
        coverage: share of observations inside the central interval, by level.
        n: number of observations; 0 if not known.
    """

    pit: list[float]
    coverage: dict[float, float]
    n: int = 0


def calibration(pit: Any, bins: int = 20, levels: tuple[float, ...] = LEVELS) -> Calibration:
    """Compute the PIT histogram and the coverage by level.

    Args:
        pit: probability integral transforms, as `prequential(...).pit`; NaN is skipped.
        bins: number of equal bins.
        levels: probabilities of the central intervals.

    Raises:
        RegimekitError: if a value lies outside [0, 1].

    Example:
        >>> found = calibration([0.05, 0.3, 0.5, 0.7, 0.95], bins=5, levels=(0.5,))
        >>> found.coverage
        {0.5: 0.6}
    """
    values = numbers("pit", pit).reshape(-1)
    values = values[~np.isnan(values)]
    if ((values < -_ROUNDING) | (values > 1 + _ROUNDING)).any():
        raise RegimekitError(
            f"pit must lie between 0 and 1, got {values.min():g} to {values.max():g}."
        )
    values = np.clip(values, 0.0, 1.0)
    counts = np.histogram(values, bins=whole("bins", bins), range=(0.0, 1.0))[0]
    total = max(values.size, 1)
    central = np.abs(2 * values - 1)
    shares = {float(p): float((central <= p).sum() / total) for p in levels}
    return Calibration((counts / total).tolist(), shares, int(values.size))


class RunningCalibration:
    """Calibration of a stream of any length in constant memory, updated block by block.

    Args:
        skip: number of observations at the start that are not counted, at most half the stream.
        bins: number of equal bins.

    Example:
        >>> running = RunningCalibration(bins=5)
        >>> running.add([0.05, 0.3, 0.5])
        >>> running.add([0.7, 0.95])
        >>> running.table().coverage[0.5], running.table().n
        (0.6, 5)
    """

    def __init__(self, skip: int = 0, bins: int = 20) -> None:
        self.skip, self.bins = whole("skip", skip, 0), whole("bins", bins)
        self.rows = 0
        self._head = np.zeros(0)
        # Counts per bin, per level (inside the interval), and in total.
        self._counts = np.zeros(self.bins + len(LEVELS) + 1)

    def add(self, pit: Any) -> None:
        """Count the PIT values of a block of observations.

        Args:
            pit: the values; NaN is skipped.
        """
        values = numbers("pit", pit).reshape(-1)
        self.rows += values.size
        room = max(self.skip - self._head.size, 0)
        self._head = np.concatenate([self._head, values[:room]])
        self._counts += self._counted(values[room:])

    def table(self) -> Calibration | None:
        """Return the calibration so far; None if nothing was counted."""
        counts = self._counts + self._counted(self._head[min(self.skip, self.rows // 2) :])
        n = int(counts[-1])
        if n == 0:
            return None
        shares = (counts / n).tolist()
        return Calibration(
            shares[: self.bins], dict(zip(LEVELS, shares[self.bins : -1], strict=True)), n
        )

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        head = [None if np.isnan(u) else float(u) for u in self._head]
        return {
            "skip": self.skip,
            "bins": self.bins,
            "rows": self.rows,
            "head": head,
            "counts": self._counts.tolist(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> RunningCalibration:
        """Return a calibration with the state of another one.

        Args:
            state: output of `state`.
        """
        running = cls(state["skip"], state["bins"])
        running.rows = state["rows"]
        running._head = np.array(state["head"], dtype=float)
        running._counts = np.array(state["counts"], dtype=float)
        return running

    def _counted(self, values: Array) -> Array:
        found = calibration(values, self.bins)
        shares = [*found.pit, *found.coverage.values(), 1.0]
        return np.round(np.array(shares) * found.n)


def pit_of_run(run: Run, y: Any, level: float = 0.9) -> Array:
    """Approximate the PIT of y from the median and the interval limits of a run.

    Args:
        run: output of `model.run(y)`.
        y: observations (T,) or (T, d).
        level: probability between the limits of the run.

    Returns:
        (T, d) approximate transforms.

    Example:
        >>> import regimekit as rk
        >>> y = [0.0, 0.1, -0.1, 0.2] * 5
        >>> pit_of_run(rk.br_ihmm(particles=10).run(y), y).shape
        (20, 1)
    """
    shape = (len(run), -1)
    values = numbers("y", y).reshape(shape)
    lower, upper = run.lower.reshape(shape), run.upper.reshape(shape)
    centre = np.clip(np.reshape(getattr(run, "median", run.mean), shape), lower, upper)
    reach = np.maximum(np.where(values >= centre, upper - centre, centre - lower), 1e-300)
    with np.errstate(over="ignore"):
        z = normal_quantile(0.5 + level / 2) * (values - centre) / reach
    return np.asarray(normal_cdf(z))
