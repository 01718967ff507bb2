"""Compact encoding of columns: quantised, differenced, shuffled, deflated, base64.

    value = (base + k) 10^exponent,     k integer,     stored: k_t - k_{t-1}

The exponent is chosen so that the bulk of a column has four to five significant digits; the page
decodes these decimals exactly. Values too large for k (extreme spikes) are stored separately.
Bytes of equal significance are grouped, which improves compression.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
_MAX_INTEGER = 2**28  # differences of integers up to this size fit into 32 bits
_RESOLUTION = 20_000  # grid points over the bulk of a column


class Grid(NamedTuple):
    """Decimal grid that a column is rounded to: (base + k) 10^exponent."""

    base: int
    exponent: int

    def integers(self, values: Array) -> Array:
        """Return the nearest integers k, as floats."""
        scaled = values * 10.0**-self.exponent if self.exponent < 0 else values / self.unit
        return np.asarray(np.round(scaled) - self.base)

    @property
    def unit(self) -> float:
        """Distance between grid points."""
        return float(10.0**self.exponent)


def grid_for(values: Array) -> Grid:
    """Return a grid with at least about 20 000 points over the bulk of the values."""
    seen = values[np.isfinite(values)]
    if seen.size == 0:
        return Grid(0, 0)
    low, tenth, middle, ninth, high = np.quantile(seen, [0.001, 0.1, 0.5, 0.9, 0.999])
    # The second bound excludes spikes.
    spread = min(high - low, 4 * (ninth - tenth)) or high - low
    spread = max(spread, abs(middle) * 1e-9, 1e-200)
    exponent = max(math.floor(math.log10(spread / _RESOLUTION)), -200)
    return Grid(round(middle / 10.0**exponent), exponent)


class Packer:
    """Encoder of columns of `length` numbers; the page decodes `payload`.

    Example:
        >>> packer = Packer(3)
        >>> packer.add("y", [1.0, np.nan, 1e300], Grid(0, -2))
        >>> packer.columns[0]["missing"], packer.columns[0]["extreme"]
        (True, {'2': 1e+300})
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.columns: list[dict[str, Any]] = []
        self._blocks: list[bytes] = []
        self._known: dict[str, Integers] = {}

    def add(
        self, name: str, values: Any, grid: Grid | None = None, minus: str | None = None
    ) -> None:
        """Encode one column.

        Args:
            name: name of the column in the page.
            values: `length` numbers; NaN is missing.
            grid: decimal grid, by default chosen from the values.
            minus: earlier column on the same grid; the difference from it is encoded.
        """
        column = np.asarray(values, dtype=float)
        grid = grid_for(column) if grid is None else grid
        missing = ~np.isfinite(column)
        steps = grid.integers(np.where(missing, 0.0, column))
        extreme = ~missing & (np.abs(steps) > _MAX_INTEGER)
        integers = _filled(steps, missing | extreme)
        self._encode(integers if minus is None else integers - self._known[minus])
        if missing.any():
            self._encode(missing.astype(np.int64))
        self.columns.append(
            {
                "name": name,
                "base": grid.base,
                "exponent": grid.exponent,
                "minus": minus,
                "missing": bool(missing.any()),
                "extreme": {str(i): float(column[i]) for i in np.flatnonzero(extreme)},
            }
        )
        self._known[name] = integers

    def payload(self) -> dict[str, Any]:
        """Return the length, the parameters of each column, and the bytes of all columns."""
        deflated = zlib.compress(b"".join(self._blocks), 9)
        data = base64.b64encode(deflated).decode("ascii")
        return {"length": self.length, "columns": self.columns, "data": data}

    def _encode(self, integers: Integers) -> None:
        steps = np.diff(integers, prepend=0)
        # Zigzag encoding: small integers of either sign become small unsigned integers.
        folded = ((steps << 1) ^ (steps >> 63)).astype("<u4")
        self._blocks.append(folded.view(np.uint8).reshape(-1, 4).T.tobytes())


def _filled(steps: Array, absent: NDArray[np.bool_]) -> Integers:
    """Integers, with absent ones replaced by the previous one: a difference of 0."""
    latest = np.maximum.accumulate(np.where(absent, -1, np.arange(steps.size)))
    return np.where(latest < 0, 0, steps[np.maximum(latest, 0)]).astype(np.int64)
