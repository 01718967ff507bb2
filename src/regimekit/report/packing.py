"""Long columns in little room: quantised, differenced, shuffled, deflated, in base64.

    value = (base + k) 10^exponent,     k whole,     stored: k_t - k_{t-1}

The exponent is chosen so that the bulk of a column keeps four to five digits; the page reads the
decimals back exactly. What lies too far out for k (a wild spike) is kept apart as it is. Bytes of
one rank stand together, which is what makes them small.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
_FAR = 2**28  # differences of numbers up to here fit 32 bits
_STEPS = 20_000  # how finely the bulk of a column is told apart


class Grid(NamedTuple):
    """The decimals that a column is rounded to."""

    base: int
    exponent: int

    def whole(self, values: Array) -> Array:
        """The nearest whole numbers k, as floats."""
        scaled = values * 10.0**-self.exponent if self.exponent < 0 else values / self.unit
        return np.asarray(np.round(scaled) - self.base)

    @property
    def unit(self) -> float:
        """Distance of neighbouring decimals."""
        return float(10.0**self.exponent)


def grid_for(values: Array) -> Grid:
    """A grid on which the bulk of these values has about 20 000 places or more."""
    seen = values[np.isfinite(values)]
    if seen.size == 0:
        return Grid(0, 0)
    low, tenth, middle, ninth, high = np.quantile(seen, [0.001, 0.1, 0.5, 0.9, 0.999])
    spread = min(high - low, 4 * (ninth - tenth)) or high - low  # a spike is not the bulk
    spread = max(spread, abs(middle) * 1e-9, 1e-200)
    exponent = max(math.floor(math.log10(spread / _STEPS)), -200)
    return Grid(round(middle / 10.0**exponent), exponent)


class Packer:
    """Collects columns; `payload` is what the page unpacks.

    Example:
        >>> packer = Packer(3)
        >>> packer.add("y", [1.0, np.nan, 1e300], Grid(0, -2))
        >>> packer.columns[0]["holes"], packer.columns[0]["far"]
        (True, {'2': 1e+300})
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.columns: list[dict[str, Any]] = []
        self._blocks: list[bytes] = []
        self._known: dict[str, Whole] = {}

    def add(
        self, name: str, values: Any, grid: Grid | None = None, minus: str | None = None
    ) -> None:
        """Pack one column of `length` numbers; NaN is a hole.

        Args:
            name: what the page calls it.
            values: the numbers.
            grid: decimals to round to; found from the values if not given.
            minus: an earlier column on the same grid whose steps this one follows.
        """
        column = np.asarray(values, dtype=float)
        grid = grid_for(column) if grid is None else grid
        holes = ~np.isfinite(column)
        steps = grid.whole(np.where(holes, 0.0, column))
        far = ~holes & (np.abs(steps) > _FAR)
        whole = _carried(steps, holes | far)
        self._keep(whole if minus is None else whole - self._known[minus])
        if holes.any():
            self._keep(holes.astype(np.int64))
        apart = {str(i): float(column[i]) for i in np.flatnonzero(far)}
        self.columns.append(
            {
                "name": name,
                "base": grid.base,
                "exponent": grid.exponent,
                "minus": minus,
                "holes": bool(holes.any()),
                "far": apart,
            }
        )
        self._known[name] = whole

    def payload(self) -> dict[str, Any]:
        """Length, how each column is to be read, and the bytes of all of them."""
        deflated = zlib.compress(b"".join(self._blocks), 9)
        data = base64.b64encode(deflated).decode("ascii")
        return {"length": self.length, "columns": self.columns, "data": data}

    def _keep(self, whole: Whole) -> None:
        steps = np.diff(whole, prepend=0)
        folded = ((steps << 1) ^ (steps >> 63)).astype("<u4")  # small numbers of either sign
        self._blocks.append(folded.view(np.uint8).reshape(-1, 4).T.tobytes())


def _carried(steps: Array, absent: NDArray[np.bool_]) -> Whole:
    """Whole numbers, where absent the one before: a difference of 0."""
    latest = np.maximum.accumulate(np.where(absent, -1, np.arange(steps.size)))
    return np.where(latest < 0, 0, steps[np.maximum(latest, 0)]).astype(np.int64)
