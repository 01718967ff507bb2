"""Scores of a stream of any length in constant memory, beside the trivial forecasters.

The last value and the value one season ago are scored on the same observations as the model, from
the second observation on; the first rows of a stream, where everybody knows nothing, can be left
out.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import whole

Array = NDArray[np.float64]
_FORECASTERS = ("model", "last_value", "seasonal_last_value")


class RunningScores:
    """Sums of errors, fed block by block.

    Args:
        period: length of a season, for the seasonal last value; None leaves it out.
        skip: observations at the start that are not scored (at most half of the stream).

    Example:
        >>> import numpy as np
        >>> scores = RunningScores()
        >>> y, mean = np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.5, 3.0])
        >>> scores.add(y, mean, mean - 1, mean + 1, np.zeros(3))
        >>> scores.table()["mae"], scores.table()["mae_last_value"]
        (0.75, 1.5)
    """

    def __init__(self, period: int | None = None, skip: int = 0) -> None:
        self.period = None if period is None else whole("period", period)
        self.skip = whole("skip", skip, 0)
        self.rows = 0
        self._past: deque[float] = deque(maxlen=self.period or 1)
        self._head = np.zeros((0, 9))
        self._sums = np.zeros(9)

    def add(
        self,
        y: Array,
        mean: Array,
        lower: Array,
        upper: Array,
        log_score: Array,
        target: Array | None = None,
    ) -> None:
        """Score the forecasts of a block of observations (NaN is not scored).

        `target` is what errors are measured against, where that is not y itself.
        """
        last, seasonal = self._trivial(y)
        truth = y if target is None else target
        errors = [np.abs(forecast - truth) for forecast in (mean, last, seasonal)]
        inside = ((truth >= lower) & (truth <= upper)).astype(float)
        parts = [e**2 for e in errors] + errors + [inside, log_score, np.ones(len(y))]
        table = np.column_stack(parts)
        table[np.isnan(y) | np.isnan(last)] = 0.0
        self.rows += len(y)
        room = max(self.skip - len(self._head), 0)
        self._head = np.concatenate([self._head, table[:room]])
        self._sums += table[room:].sum(axis=0)

    def table(self) -> dict[str, float]:
        """Scores by name; empty where fewer than two observations can be scored."""
        skipped = min(self.skip, self.rows // 2)
        sums = self._sums + self._head[skipped:].sum(axis=0)
        n = int(sums[-1])
        if n < 2:
            return {}
        found: dict[str, float] = {"n_scored": n, "n_skipped": skipped}
        for j, name in enumerate(_FORECASTERS[: 2 if self.period is None else 3]):
            label = "" if name == "model" else f"_{name}"
            found[f"rmse{label}"] = float(np.sqrt(sums[j] / n))
            found[f"mae{label}"] = float(sums[3 + j] / n)
        return found | {"coverage": float(sums[6] / n), "log_score": float(sums[7] / n)}

    def state(self) -> dict[str, Any]:
        """What it has summed so far, as JSON values."""
        return {
            "period": self.period,
            "skip": self.skip,
            "rows": self.rows,
            "past": list(self._past),
            "head": self._head.tolist(),
            "sums": self._sums.tolist(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> RunningScores:
        """The scores that `state` described."""
        scores = cls(state["period"], state["skip"])
        scores.rows = state["rows"]
        scores._past.extend(state["past"])
        scores._head = np.array(state["head"], dtype=float).reshape(-1, 9)
        scores._sums = np.array(state["sums"], dtype=float)
        return scores

    def _trivial(self, y: Array) -> tuple[Array, Array]:
        """The last value and the seasonal one before each observation, missing ones filled in."""
        last, seasonal = np.full(len(y), np.nan), np.full(len(y), np.nan)
        for t, value in enumerate(y):
            if self._past:
                last[t] = self._past[-1]
                whole_season = len(self._past) == self._past.maxlen
                seasonal[t] = self._past[0] if whole_season else last[t]
            if not np.isnan(value):
                self._past.append(float(value))
            elif self._past:
                self._past.append(float(seasonal[t] if self.period else last[t]))
        return last, seasonal
