"""Regimes are another question than forecasts: read by models of their own, chosen by evidence.

A model that forecasts well with three lags sees no regimes, and regimes of the level alone tile a
drifting series. So a few readers (level; lag 1; season lags) stand in order, the simplest first,
and a later one is believed when its lead over the earlier one,

    lead <- 0.995 lead + clip(log score of the later - log score of the earlier, -1/2, 1/2)

is large. The clip is the point: a level that jumps costs the level's reader many nats at once and
says nothing against it; a drift costs it a little all the time. Every change of a reader's vote
costs it `CHANGE` nats: of two readings that fit alike the one with fewer changes is believed. What
is reported:

    a regime of the reader counts when it has been the reader's vote for `HOLD` observations; it
    is dated as the reader dates it
    ids are 0, 1, 2, .. in the order first reported, and belong to this module: when the reader
    changes, its regimes are given the ids they overlap with in the recent past, or those that
    they had when it was believed before
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.results import CHANGES, NO_REGIME, OPENED, RETURNED, Event, Step
from regimekit.serialization.validation import LATEST, Arrays, Values

Array = NDArray[np.float64]

AHEAD, STAY = 6.0, 3.0  # lead with which a later reader is believed, and no longer believed
WARM = 60  # observations before the first choice
EARLY, EARLY_HOLD = 100, 20  # so long a change must last longer: a season may not be known yet
CLIP = 0.5  # nats per observation
CHANGE = 2.0  # nats that a change of a reader's vote costs it
HOLD = 6  # observations a new regime must last before it is reported
TRACE = 300  # observations over which regimes of two readers are compared
_FADE = 0.995
_LARGEST_LEAD = (CLIP + CHANGE) / (1.0 - _FADE) + AHEAD + STAY + 1.0


class Entry(NamedTuple):
    """What is known of a reported regime."""

    visits: int
    first: int
    last: int


class Reading:
    """Which reader is believed, and what has been reported.

    Args:
        readers: how many there are; `start` is believed at first.
    """

    def __init__(self, readers: int, start: int = 0) -> None:
        self.chosen = start
        self.heard = 0
        self.lead = np.zeros((readers, readers))  # [i, j] of j over i
        self.regime = NO_REGIME
        self.book: list[Entry] = []
        self.moves = np.zeros((0, 0))
        self.candidate, self.since = NO_REGIME, 0
        self.began = 0  # since when the present regime holds
        self.public: list[int] = []
        self.traces: list[list[int]] = [[] for _ in range(readers)]
        self.memory: list[dict[int, int]] = [{} for _ in range(readers)]  # each one's ids -> ours
        self.ages = [0] * readers  # observations that belong to each reader's present vote

    @property
    def names(self) -> dict[int, int]:
        """Of the chosen reader's regimes: its id -> ours."""
        return self.memory[self.chosen]

    def hear(self, time: int, steps: list[Step], log_scores: Array) -> list[Event]:
        """One observation, as all readers saw it; events that are known now."""
        self.watch(steps)
        ahead = np.clip(log_scores[None, :] - log_scores[:, None], -CLIP, CLIP)
        moved = np.array([len(t) > 1 and t[-1] != t[-2] != NO_REGIME for t in self.traces], float)
        ahead += CHANGE * (moved[:, None] - moved[None, :])
        self.lead = _FADE * self.lead + ahead
        self.heard += 1
        self._choose()
        events = self._report(time, steps[self.chosen].regime)
        previous = self.public[-1] if self.public else self.regime
        self.moves[previous, self.regime] += 1.0
        entry = self.book[self.regime]
        self.book[self.regime] = Entry(entry.visits + 1, entry.first, time)
        self.public.append(self.regime)
        del self.public[:-TRACE]
        return events

    def watch(self, steps: list[Step]) -> None:
        """Note what the readers say, without reporting."""
        for i, step in enumerate(steps):
            trace = self.traces[i]
            same = bool(trace) and trace[-1] == step.regime
            trace.append(step.regime)
            del trace[:-TRACE]
            self.ages[i] = _age(step, self.ages[i] if same else 0)

    def restart(self, readers: int) -> None:
        """The readers are new and will be shown the recent past by `watch`, then `rejoin`."""
        self.traces, self.ages = [[] for _ in range(readers)], [0] * readers
        self.memory = [{} for _ in range(readers)]
        kept = np.zeros((readers, readers))
        n = min(readers, len(self.lead))
        kept[:n, :n] = self.lead[:n, :n]
        self.lead = kept

    def enlarge(self, replaced: int | None, believed: bool) -> None:
        """One more reader, or another in the place of one; it may be believed at once."""
        if replaced is None:
            self.lead = np.pad(self.lead, (0, 1))
            self.traces.append([])
            self.memory.append({})
            self.ages.append(0)
        new = len(self.traces) - 1 if replaced is None else replaced
        ahead = AHEAD + STAY if believed else 0.0
        self.lead[:, new], self.lead[new] = ahead, -ahead
        self.lead[new, new] = 0.0
        self.traces[new], self.memory[new], self.ages[new] = [], {}, 0
        if self.chosen == new:
            self.rejoin()

    def rejoin(self) -> None:
        """Give the chosen reader's regimes the ids they overlap with, or had before."""
        recent = self._overlaps(self.traces[self.chosen])
        taken = set(recent.values())
        before = {theirs: own for theirs, own in self.names.items() if own not in taken}
        self.memory[self.chosen] = before | recent
        self.candidate = NO_REGIME

    def _choose(self) -> None:
        if self.heard < WARM:
            return
        best = 0
        for later in range(1, len(self.lead)):
            if self.lead[best, later] > (STAY if later == self.chosen else AHEAD):
                best = later
        if best != self.chosen:
            self.chosen = best
            self.rejoin()

    def _overlaps(self, trace: list[int]) -> dict[int, int]:
        """Reader's id -> our id, by the majority of the observations both saw; one to one."""
        n = min(len(trace), len(self.public))
        if n == 0:
            return {}
        theirs, ours = np.array(trace[-n:]), np.array(self.public[-n:])
        names: dict[int, int] = {}
        now = int(theirs[-1])
        known, counts = np.unique(theirs[theirs != NO_REGIME], return_counts=True)
        order = known[np.argsort(-counts, kind="stable")].tolist()
        rival = max((int((ours[theirs == own] == ours[-1]).sum()) for own in order), default=0)
        if now != NO_REGIME and int((ours[theirs == now] == ours[-1]).sum()) == rival:
            names[now] = int(ours[-1])  # nobody has a better claim to the present id
        for own in order:
            values, overlap = np.unique(ours[theirs == own], return_counts=True)
            best = int(values[np.argmax(overlap)])
            if own not in names and best not in names.values():
                names[own] = best
        return names

    def _report(self, time: int, vote: int) -> list[Event]:
        if self.regime == NO_REGIME:
            return [self._open(time, time)]
        if vote == NO_REGIME:
            return []
        if self.regime not in self.names.values() and not self.names:
            self.names[vote] = self.regime
        if self.names.get(vote, NO_REGIME) == self.regime:
            self.candidate = NO_REGIME
            return []
        if vote != self.candidate:
            self.candidate, self.since = vote, time
        if time - self.since + 1 < (HOLD if self.heard > EARLY else EARLY_HOLD):
            return []
        self.candidate = NO_REGIME
        begun = max(time - self.ages[self.chosen] + 1, self.began + 1)
        if vote in self.names:
            previous, self.regime = self.regime, self.names[vote]
            self.began = begun
            return [Event(time, RETURNED, self.regime, previous, begun)]
        opened = self._open(time, begun)
        self.names[vote] = self.regime
        return [opened]

    def _open(self, time: int, since: int) -> Event:
        previous, self.regime = self.regime, len(self.book)
        self.began = since
        self.book.append(Entry(0, since, since))
        grown = np.zeros((len(self.book), len(self.book)))
        grown[:-1, :-1] = self.moves
        self.moves = grown
        return Event(time, OPENED, self.regime, previous, since)

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State for a snapshot."""
        values = {
            "heard": self.heard,
            "chosen": self.chosen,
            "regime": self.regime,
            "candidate": self.candidate,
            "since": self.since,
            "began": self.began,
            "names": [[i, *pair] for i, own in enumerate(self.memory) for pair in own.items()],
            "book": [list(entry) for entry in self.book],
            "public": list(self.public),
            "traces": [list(trace) for trace in self.traces],
            "ages": list(self.ages),
        }
        return values, {"lead": self.lead.copy(), "moves": self.moves.copy()}

    def unpack(self, values: Values, arrays: Arrays) -> None:
        """Take up what `pack` packed; as many readers as there are now."""
        readers = len(self.traces)
        book = [entry.wholes("book", 3) for entry in values.entries("book")]
        last = len(book) - 1
        self.book = [Entry(*entry) for entry in book]
        self.moves = arrays.floats("moves", (len(book), len(book)), 0.0, float(LATEST))
        self.lead = arrays.floats("lead", (readers, readers), -_LARGEST_LEAD, _LARGEST_LEAD)
        self.heard = values.whole("heard")
        self.chosen = values.whole("chosen", 0, readers - 1)
        self.regime = values.whole("regime", NO_REGIME if last < 0 else 0, last)
        self.candidate = values.whole("candidate", NO_REGIME)
        self.since, self.began = values.whole("since"), values.whole("began")
        self.memory = [{} for _ in range(readers)]
        for entry in values.entries("names"):
            reader, theirs, ours = entry.wholes("names", 3, NO_REGIME)
            if not (0 <= reader < readers and 0 <= ours <= last):
                raise SnapshotError("The snapshot's names of regimes are not in its book.")
            self.memory[reader][theirs] = ours
        self.public = values.wholes("public", None, 0, max(last, 0))[-TRACE:]
        if self.public and not book:
            raise SnapshotError("The snapshot's public regimes are not in its book.")
        traces = values.entries("traces", readers)
        if len(traces) != readers:
            raise SnapshotError(f"The snapshot's traces are of {len(traces)} readers.")
        self.traces = [entry.wholes("traces", None, NO_REGIME)[-TRACE:] for entry in traces]
        self.ages = values.wholes("ages", readers)


def _age(step: Step, before: int) -> int:
    """Observations that belong to a reader's vote, those before it was known included."""
    told = [event for event in step.events if event.kind in CHANGES]
    return told[-1].time - told[-1].since + 1 if told else before + 1
