"""Contamination of a stream by typical sensor faults.

`size` is in units of the noise level of the stream, so that a setting means the same on any data.
The noise level is estimated from first differences (1.4826 MAD / sqrt 2), which level changes
hardly affect; pass `scale` to set it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, numbers, positive, share, unknown, whole

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Contaminated(NamedTuple):
    """A contaminated copy of a stream.

    Attributes:
        y: contaminated observations.
        mask: (T,) whether each observation was changed.
    """

    y: Array
    mask: Mask


KINDS = {
    "isolated": "single points shifted up or down",
    "one_sided": "single points shifted up",
    "burst": "windows shifted up or down",
    "alternating": "windows shifted up, down, up, ..",
    "drift": "windows that ramp away, then jump back",
    "stuck": "windows that repeat their first value",
    "missing": "windows of NaN",
    "scaled": "windows multiplied by `factor`, as by a change of unit",
    "replaced": "windows filled with `value`",
    "adversarial": "`offset` added at `positions`",
}
_SINGLE = ("isolated", "one_sided")
_SIGNED = ("isolated", "burst", "drift")


def contaminate(
    y: Any,
    kind: str,
    seed: int | np.random.Generator = 0,
    *,
    positions: Sequence[int] | None = None,
    rate: float = 0.01,
    windows: int = 3,
    length: int = 5,
    size: float = 10.0,
    scale: float | None = None,
    offset: float | Sequence[float] | None = None,
    factor: float = 1000.0,
    value: float = 1e300,
) -> Contaminated:
    """Return a contaminated copy of `y` and the mask of the changed observations.

    Args:
        y: (T,) or (T, d) observations; all coordinates of a row are contaminated.
        kind: a key of `KINDS`, which describes each fault.
        seed: an integer, or a Generator to draw from.
        positions: the points, or the first observations of the windows; drawn if not given.
        rate: probability of a point, for `isolated` and `one_sided`.
        windows, length: number of windows drawn, and observations per window.
        size: shift in units of the noise level.
        scale: noise level in the units of y; estimated if not given.
        offset: shift in the units of y instead; one per position for `adversarial`.
        factor, value: multiplier for `scaled`, replacement for `replaced`.

    Returns:
        The contaminated copy and the (T,) mask.

    Raises:
        RegimekitError: if an argument is invalid.

    Example:
        >>> from regimekit import data
        >>> y, mask = data.contaminate([0.0] * 6, "burst", positions=[2], length=2, offset=9.0)
        >>> abs(y).tolist(), mask.nonzero()[0].tolist()
        ([0.0, 0.0, 9.0, 9.0, 0.0, 0.0], [2, 3])
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    values, table = _read(y)
    mask = np.zeros(len(table), dtype=bool)
    if kind == "adversarial":
        _shift_positions(table, mask, positions, offset)
        return Contaminated(table.reshape(values.shape), mask)
    shift = _shift(table, size, scale, offset)
    rng = np.random.default_rng(seed)
    points, starts = _where(len(table), rng, positions, rate, windows, whole("length", length))
    where = points if kind in _SINGLE else starts
    n = where.size
    signs = rng.choice([-1.0, 1.0], n) if kind in _SIGNED else np.ones(n)
    _contaminate(kind, table, mask, where, signs[:, None] * shift, length, float(value))
    if kind == "scaled":
        # After all windows are marked, so that overlaps are scaled once.
        table[mask] *= float(factor)
    return Contaminated(table.reshape(values.shape), mask)


def duplicate(y: Any, positions: Sequence[int]) -> Contaminated:
    """Return a stream in which the observations at `positions` are delivered twice.

    Args:
        y: (T,) or (T, d) observations.
        positions: observations to repeat.

    Returns:
        The longer stream, and the mask of the second deliveries: `y[~mask]` is the original.

    Example:
        >>> from regimekit.datasets.contamination import duplicate
        >>> y, mask = duplicate([1.0, 2.0, 3.0], [1])
        >>> y.tolist(), mask.tolist()
        ([1.0, 2.0, 2.0, 3.0], [False, False, True, False])
    """
    values = numbers("y", y)
    where = np.unique(_checked(positions, len(values)))
    mask = np.zeros(len(values) + where.size, dtype=bool)
    mask[where + 1 + np.arange(where.size)] = True
    return Contaminated(np.insert(values, where + 1, values[where], axis=0), mask)


def _read(y: Any) -> tuple[Array, Array]:
    """Observations as given, and as a (T, d) view."""
    values = numbers("y", y)
    if values.ndim not in (1, 2):
        raise RegimekitError(f"y must have one or two dimensions, got shape {values.shape}.")
    return values, values[:, None] if values.ndim == 1 else values


def _where(
    n: int,
    rng: np.random.Generator,
    positions: Sequence[int] | None,
    rate: float,
    windows: int,
    length: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Points, and first observations of the windows."""
    if positions is not None:
        points = starts = _checked(positions, n)
    else:
        points = np.flatnonzero(rng.random(n) < share("rate", rate))
        room = max(n - length + 1, 1)
        drawn = rng.choice(room, size=min(whole("windows", windows, 0), room, n), replace=False)
        starts = np.sort(drawn)
    return points, starts


def _checked(positions: Sequence[int], n: int) -> NDArray[np.int64]:
    where = np.asarray(positions, dtype=np.int64).reshape(-1)
    if where.size and not (where.min() >= 0 and where.max() < n):
        raise RegimekitError(f"positions must be between 0 and {n - 1}, got {list(positions)}.")
    return where


def _shift(
    table: Array, size: float, scale: float | None, offset: float | Sequence[float] | None
) -> Array:
    if offset is not None:
        return np.broadcast_to(numbers("offset", offset), table.shape[1:])
    level = _noise_level(table) if scale is None else positive("scale", scale)
    return np.broadcast_to(np.asarray(size * level), table.shape[1:])


def _noise_level(table: Array) -> Array:
    """Robust standard deviation of the noise of each column; 1 for a constant column."""
    steps = np.diff(table, axis=0)
    if not np.isfinite(steps).any(axis=0).all():
        return np.ones(table.shape[1])
    centred = np.abs(steps - np.nanmedian(steps, axis=0))
    level = 1.4826 * np.nanmedian(centred, axis=0) / np.sqrt(2)
    return np.where(level > 0, level, 1.0)


def _contaminate(
    kind: str,
    table: Array,
    mask: Mask,
    where: NDArray[np.int64],
    shifts: Array,
    length: int,
    value: float,
) -> None:
    """Change points or windows of the table in place and mark them."""
    if kind in _SINGLE:
        table[where] += shifts
        mask[where] = True
        return
    for start, shift in zip(where.tolist(), shifts, strict=True):
        stop = min(start + length, len(table))
        window, step = slice(start, stop), np.arange(stop - start)[:, None]
        # The first value of a stuck sensor is correct.
        mask[start + (kind == "stuck") : stop] = True
        if kind == "burst":
            table[window] += shift
        elif kind == "alternating":
            table[window] += (1.0 - 2.0 * (step % 2)) * shift
        elif kind == "drift":
            table[window] += (step + 1) / length * shift
        elif kind == "stuck":
            table[window] = table[start]
        elif kind == "missing":
            table[window] = np.nan
        elif kind == "replaced":
            table[window] = value


def _shift_positions(
    table: Array,
    mask: Mask,
    positions: Sequence[int] | None,
    offset: float | Sequence[float] | None,
) -> None:
    if positions is None or offset is None:
        raise RegimekitError("kind='adversarial' needs positions and offset.")
    where = _checked(positions, len(table))
    shift = numbers("offset", offset).reshape(-1)
    if shift.size not in (1, where.size):
        raise RegimekitError(f"offset must have 1 or {where.size} values, got {shift.size}.")
    table[where] += np.broadcast_to(shift, where.shape)[:, None]
    mask[where] = True
