"""What one unit of a stream is, and how it is learnt from the stream itself.

    z = (y - centre) / scale,   scale = 1.4826 median |y_t - y_{t-1}| / sqrt 2,   centre = median y

Levels, trends and regimes drop out of a median of differences; what is left is the noise, or, with
strong autocorrelation, the size of the innovations. In these units noise is about 1 and a model can
be told "noise 1, levels of variance 100" for any stream.

The scale is good for something from the second observation on and is refined at a few moments
(`MOMENTS`) while the observations are still in the buffer; whoever uses it rebuilds on them. Then
it is frozen. A second look comes later, every `LOOK` observations: when most of the latest window
lies many units away from what the scale says (a unit changed by 1000, a constant start that came
alive), the units are learnt anew from that window alone.

    units = Units()
    if units.learn(y):            # must the caller rebuild?
        model = fresh()
        for old in units.buffer: model.update(units.to_units(old))
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.distributions.forecast import Forecast
from regimekit.serialization.validation import Arrays, Values

Array = NDArray[np.float64]

MOMENTS = (1, 2, 3, 5, 10, 20, 40, 80)
LOOK = 20  # observations between two later looks
SURE = 5  # observations after which a stream that has not moved is taken to stand still
RECENT = 40  # observations of the window that a later look is at
ENOUGH = 0.25  # a new scale this far (in logs) from the old one is worth a rebuild
ADRIFT = math.log(30.0)  # the window's scale this far from the present one means: other units
_SMALLEST = 1e-130  # no scale is below: its square must not vanish
LARGEST = 1e130  # beyond this y is clipped: squares of such values are still finite


class Units:
    """Centre and scale of each coordinate, with the window of observations they are learnt from.

    Attributes:
        centre: (d,) what 0 means.
        scale: (d,) what 1 means.
        buffer: the latest observations in the user's units, at most `window` of them.

    Example:
        >>> units = Units(dim=1)
        >>> for y in (30_000.0, 30_700.0, 30_200.0, 29_800.0, 30_100.0):
        ...     rebuild = units.learn(np.array([y]))
        >>> float(units.centre[0]), 200 < float(units.scale[0]) < 1000
        (30100.0, True)
    """

    def __init__(self, dim: int = 1, window: int = 200) -> None:
        self.dim = dim
        self.window = max(window, MOMENTS[-1])
        self.buffer: list[Array] = []
        self.count = 0  # observations with at least one value seen
        self.rows = 0  # observations since the units were last begun, missing ones included
        self.centre = np.zeros(dim)
        self.scale = np.ones(dim)
        self.alive = np.zeros(dim, bool)  # whether a coordinate was ever seen to move

    def learn(self, y: Array) -> bool:
        """Take one observation; whether centre and scale changed so that models must be rebuilt.

        After True, the observations to rebuild on are `buffer`, the newest included.
        """
        self.buffer.append(np.clip(y, -LARGEST, LARGEST))
        del self.buffer[: -self.window]
        self.rows += 1
        if np.isnan(y).all():
            return False
        self.count += 1
        if self.count in MOMENTS:
            return self._refine()
        if not self.alive.all() and self._wakes():
            return True
        if self.count > MOMENTS[-1] and self.count % LOOK == 0:
            return self._look_again()
        return False

    def to_units(self, y: Array) -> Array:
        """An observation in units."""
        bounded = np.clip(y, -LARGEST, LARGEST)
        return np.asarray((bounded - self.centre) / self.scale)

    def from_units(self, z: Array) -> Array:
        """A value in units as the user knows it."""
        return np.asarray(self.centre + self.scale * z)

    def spread(self) -> float:
        """How far the observations in the buffer lie from their centre, in units; at least 1."""
        away = np.abs(self.to_units(np.array(self.buffer)))
        seen = away[~np.isnan(away)]
        return max(1.0, 1.4826 * float(np.median(seen))) if seen.size else 1.0

    def forecast(self, inside: Forecast) -> Forecast:
        """A forecast made in units, in the user's own."""
        return inside.rescaled(self.centre, self.told_scale)

    @property
    def told_scale(self) -> Array:
        """The scale of what is told: before anything has moved a unit may be as large as y."""
        if self.alive.all() or self.count >= SURE:
            return self.scale
        size = np.abs(self.centre)
        wide = np.maximum(self.scale, np.where(size > 0, size / 10, 1.0))
        return np.where(self.alive, self.scale, wide)

    def _refine(self) -> bool:
        return self._adopt(*measure(np.array(self.buffer)), far=ENOUGH)

    def _wakes(self) -> bool:
        """A coordinate that stood still has moved often enough to be measured."""
        recent = np.array(self.buffer[-RECENT:])
        asleep = recent[:, ~self.alive]
        moves = (np.abs(np.diff(asleep, axis=0)) > 0).sum(axis=0)
        if not (moves >= 3).any():
            return False
        start = max(0, first_move(recent[:, ~self.alive]) - 1)
        self.buffer = self.buffer[-RECENT:][start:]
        self.count = len(self.buffer)
        return self._adopt(*measure(np.array(self.buffer)), far=0.0)

    def _look_again(self) -> bool:
        """Learn anew from the recent window if the present units no longer describe it."""
        recent = np.array(self.buffer[-RECENT:])
        centre, scale, alive = measure(recent)
        adrift = np.abs(np.log(scale / self.scale)) > ADRIFT
        if not (adrift & alive).any():
            return False
        centre, scale = np.where(adrift, centre, self.centre), np.where(adrift, scale, self.scale)
        self.buffer = self.buffer[-RECENT // 2 :]  # at least half of the window is of the new kind
        self.count = len(self.buffer)
        return self._adopt(centre, scale, alive | self.alive, far=0.0)

    def _adopt(self, centre: Array, scale: Array, alive: NDArray[np.bool_], far: float) -> bool:
        moved = np.abs(centre - self.centre) / scale
        changed = (np.abs(np.log(scale / self.scale)) > far) | (moved > 2.0)
        if not changed.any():
            self.alive |= alive
            return False
        self.centre, self.scale, self.alive = centre, scale, alive | self.alive
        self.rows = len(self.buffer)
        return True

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The state for a snapshot: JSON values and arrays."""
        values = {"count": self.count, "rows": self.rows, "window": self.window, "dim": self.dim}
        buffer = np.array(self.buffer).reshape(len(self.buffer), self.dim)
        arrays = {
            "centre": self.centre.copy(),
            "scale": self.scale.copy(),
            "alive": self.alive.copy(),
        }
        return values, arrays | {"buffer": buffer}

    def unpack(self, values: Values, arrays: Arrays) -> None:
        """Take up what `pack` packed; the dimension and the window are those it was made with."""
        values.whole("dim", self.dim, self.dim)
        values.whole("window", self.window, self.window)
        self.count, self.rows = values.whole("count"), values.whole("rows")
        each = (self.dim,)
        self.centre = arrays.floats("centre", each, -LARGEST, LARGEST)
        self.scale = arrays.floats("scale", each, _SMALLEST, 10 * LARGEST)
        self.alive = arrays.flags("alive", each)
        buffer = arrays.floats("buffer", (None, self.dim), -LARGEST, LARGEST, missing=True)
        if not 0 < len(buffer) <= self.window:
            raise SnapshotError(f"The snapshot's buffer holds {len(buffer)} observations.")
        self.buffer = list(buffer)


def first_move(values: Array) -> int:
    """Index of the first observation that differs from the one before it; 0 if none does."""
    moved = np.flatnonzero((np.abs(np.diff(values, axis=0)) > 0).any(axis=1))
    return int(moved[0]) + 1 if moved.size else 0


def measure(values: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Centre, scale and "does it move" of each column; NaN are left out."""
    columns = [_measure_one(column[~np.isnan(column)]) for column in values.T]
    centre, scale, alive = zip(*columns, strict=True)
    return np.array(centre), np.array(scale), np.array(alive)


def _measure_one(values: Array) -> tuple[float, float, bool]:
    if values.size == 0:
        return 0.0, 1.0, False
    centre = float(np.median(values))
    steps = np.abs(np.diff(values))
    moves = steps[steps > 0]
    if moves.size == 0:
        return centre, standing_still(centre), False
    return centre, max(_from_steps(steps, moves), 1e-13 * abs(centre), _SMALLEST), True


def _from_steps(steps: Array, moves: Array) -> float:
    """Noise from differences, also where most of them are zero (rounded or rarely moving data)."""
    plain = max(1.4826 * float(np.median(steps)) / math.sqrt(2), _rounding(steps, moves))
    if 2 * moves.size > steps.size and plain > 0:
        return plain
    kept = np.sort(steps)[: max(1, math.ceil(0.9 * steps.size))]
    return max(plain, float(kept.mean()), 0.1 * float(np.median(moves)))


def _rounding(steps: Array, moves: Array) -> float:
    """Half the step of a lattice that the values keep to, if they move on it often; else 0."""
    grain = float(moves.min())
    often = moves.size > max(5.0, 0.1 * steps.size)
    if not often or grain < _SMALLEST or np.unique(moves).size > moves.size / 2:
        return 0.0
    whole = moves / grain
    return 0.5 * grain if bool((np.abs(whole - np.round(whole)) < 1e-6).all()) else 0.0


def standing_still(level: float) -> float:
    """The unit of a stream that never moved: small against its level."""
    return max(1e-6 * abs(level), _SMALLEST) if level else 1.0
