"""What travels between the parts of the service: rows to learn, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One observation as it arrived. `y` is a number, None or a list of them."""

    y: Any
    x: dict[str, float | None] | None = None
    id: str | None = None
    seq: int | None = None
    time: str | None = None
    at: float | None = None


@dataclass(frozen=True)
class Part:
    """The rows of one request: they are stored together or not at all."""

    rows: list[Row]
    received: float


@dataclass(frozen=True)
class Outcome:
    """What became of a part: how many rows were new, or why it was refused.

    `again` marks a part that was not looked at because an earlier one spoilt the model in memory.
    """

    accepted: int = 0
    duplicates: int = 0
    rows: int = 0  # of the stream afterwards
    error: str | None = None
    conflict: bool = False
    again: bool = False


@dataclass
class Commit:
    """One stream's step forward, written in one transaction: from `start` to `end` rows."""

    stream: int
    start: int
    end: int
    received: float
    rows: list[tuple[Any, ...]] = field(default_factory=list)  # as tables.ROW
    events: list[tuple[Any, ...]] = field(default_factory=list)  # as tables.EVENT, no number
    segments: list[tuple[int, int, int]] = field(default_factory=list)
    snapshot: bytes | None = None
    outliers: int = 0


@dataclass
class Learnt:
    """A worker's answer: an outcome for each part and what must be stored before they hold."""

    outcomes: list[Outcome]
    commit: Commit | None
    seconds: float = 0.0
    replayed: int = 0
    differing: int = 0  # replayed rows whose outputs are not those stored


class Resting(NamedTuple):
    """A model that leaves memory, to be stored so that it comes back without a replay."""

    stream: int
    seq: int
    data: bytes
    generation: int
