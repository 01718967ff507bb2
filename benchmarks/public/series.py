"""A series with its known properties, in the form in which every peer gets it.

Scores are taken on the scaled series: centred at the median of its first tenth (at least 20 rows)
and divided by that part's standard deviation, computed from the mean absolute deviation. No later
value is used. Forecasters of other libraries, for which zero may have a meaning (multiplicative
seasons, for example), get the series in its own units, and their forecasts are scaled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

_SD_OF_GAUSSIAN = np.sqrt(np.pi / 2)  # for a mean absolute deviation of 1
LONGEST = 3000  # rows; refitted peers would take days on longer series


@dataclass(frozen=True)
class Series:
    """One series with its known properties."""

    name: str
    y: np.ndarray
    period: int = 1
    annotations: Mapping[str, Sequence[int]] = field(default_factory=dict)
    anomalies: tuple[tuple[int, int], ...] = ()  # first and last row of each
    centre: float = 0.0  # of the series in its own units, where y is scaled
    scale: float = 1.0

    def first(self, n: int) -> Series:
        """Return the first n rows, with their known properties."""
        marks = {who: [t for t in times if t < n] for who, times in self.annotations.items()}
        spans = tuple(span for span in self.anomalies if span[1] < n)
        return replace(self, y=self.y[:n], annotations=marks, anomalies=spans)

    def digest(self) -> str:
        """Return a hash of all numbers and known properties of the series."""
        known = (self.y.shape, self.period, _plain(self.annotations), self.anomalies)
        named = hashlib.sha256(repr((*known, self.centre, self.scale)).encode())
        named.update(np.ascontiguousarray(self.y, dtype=float).tobytes())
        return named.hexdigest()[:12]


def scaled(series: Series) -> Series:
    """Return the series in the form for peers, no longer than LONGEST."""
    y = series.y[:LONGEST] if not (series.annotations or series.anomalies) else series.y
    early = y[: max(20, len(y) // 10)]
    centre = np.nanmedian(early, axis=0)
    spread = _SD_OF_GAUSSIAN * np.nanmean(np.abs(early - centre), axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    own = {"centre": float(centre), "scale": float(spread)} if y.ndim == 1 else {}
    return replace(series, y=(y - centre) / spread, **own)


def _plain(annotations: Mapping[str, Sequence[int]]) -> list[tuple[str, list[int]]]:
    return sorted((who, [int(t) for t in times]) for who, times in annotations.items())
