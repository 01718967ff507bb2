"""The next steps of a stream: forecasts in their order, with their times where these are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core import display
from regimekit.distributions.forecast import Forecast
from regimekit.results import labelled

_SHOWN = 10  # steps that a terminal or a notebook shows


class Ahead(list[Forecast]):
    """Forecasts of the next observations, in order."""

    def __init__(self, forecasts: Iterable[Forecast], times: NDArray[Any] | None = None) -> None:
        super().__init__(forecasts)
        self.times = times

    def frame(self, level: float = 0.9, time: Any = None) -> Any:
        """A table with one row per step: step, time, mean, median, lower, upper, sd.

        For d > 1 the columns are `mean_0`, `mean_1`, ..; the time is there where it is known.

        Args:
            level: probability that lower .. upper should hold.
            time: labels of the steps, where the model does not know them.
        """
        return labelled(self.columns(level, time), None, None)

    def columns(self, level: float = 0.9, time: Any = None) -> dict[str, NDArray[Any]]:
        """The same as plain columns, for those without pandas."""
        table: dict[str, NDArray[Any]] = {"step": np.arange(1, len(self) + 1)}
        labels = self.times if time is None else np.array(list(time))
        if labels is not None:
            table["time"] = labels
        ends = [forecast.interval(level) for forecast in self]
        columns: dict[str, list[Any]] = {
            "mean": [f.mean for f in self],
            "median": [f.median for f in self],
            "lower": [lower for lower, _ in ends],
            "upper": [upper for _, upper in ends],
            "sd": [f.sd for f in self],
        }
        for name, column in columns.items():
            values = np.array(column)
            if values.ndim == 1:
                table[name] = values
            else:
                table |= {f"{name}_{j}": values[:, j] for j in range(values.shape[1])}
        return table

    def __repr__(self) -> str:
        header, rows = self._cells()
        more = [] if len(self) <= _SHOWN else [f".. and {len(self) - _SHOWN} more"]
        head = f"{display.count(len(self), 'step')} ahead"
        return "\n".join([head, display.table(header, rows), *more])

    def _repr_html_(self) -> str:
        return display.html(f"{display.count(len(self), 'step')} ahead", *self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = []
        for h, forecast in enumerate(self[:_SHOWN]):
            lower, upper = (display.vector(end) for end in forecast.interval(0.9))
            label = str(h + 1) if self.times is None else _words(self.times[h])
            rows.append([label, display.vector(forecast.median), f"{lower} .. {upper}"])
        return ["step" if self.times is None else "time", "median", "90 % within"], rows


def _words(time: Any) -> str:
    """A time for a person to read."""
    if isinstance(time, np.datetime64):
        return str(time.astype("datetime64[s]")).replace("T", " ")
    return f"{time:.10g}"
