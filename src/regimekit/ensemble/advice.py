"""What a newcomer should be told, once, with the cure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.warnings import say_once
from regimekit.serialization.validation import Values

Array = NDArray[np.float64]

_FADE = 0.98
_MANY = 0.5  # share of outliers among the latest values that is worth a word
_WARM = 100
_ENOUGH = 400  # values after which coverage can be judged
_FAR = 0.08  # coverage this far from 90 % is far off

OUTLIERS = (
    "auto takes most of the latest observations for outliers. If the stream has changed its units "
    "it will follow in a while; otherwise look at the values, or begin with a fresh model."
)
COVERAGE = (
    "The 90 % intervals of auto have held {:.0%} of the values so far. Several streams mixed into "
    "one, or values that are only a few codes, do this; give each stream a model of its own."
)
TIMESTAMP = (
    "The target grows by the same step every time, from {:.0f} on: it looks like a time stamp or a "
    "row number. Choose another column as y."
)


class Advice:
    """Which words have been said, and what is watched for the others."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.share = 0.0

    def watch(self, count: int, outlier: bool, held: int, told: int) -> None:
        """After every observation that was seen."""
        self.share = _FADE * self.share + (1 - _FADE) * outlier
        if count > _WARM and self.share > _MANY:
            self._say("outliers", OUTLIERS)
        if told >= _ENOUGH and abs(held / told - 0.9) > _FAR:
            self._say("coverage", COVERAGE.format(held / told))

    def first_look(self, values: Array) -> None:
        """At the first observations of a scalar stream."""
        steps = np.diff(values)
        even = bool(np.isfinite(steps).all()) and bool((steps == steps[0]).all())
        if even and steps[0] > 0 and abs(values[0]) > 1e7:
            self._say("timestamp", TIMESTAMP.format(values[0]))

    def _say(self, what: str, message: str) -> None:
        say_once(self.said, what, message)

    def pack(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"said": list(self.said), "share": self.share}

    def unpack(self, values: Values) -> None:
        """Take up what `pack` gave."""
        self.said = list(values.words("said") or [])
        self.share = values.number("share", 0.0, 1.0)
