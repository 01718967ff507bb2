"""Ids and events of a model: labels of the filter become ids 0, 1, 2, ..

An id is the position in the order in which regimes were first reported. Events are appended when
they become known and never rewritten; each has the time at which it became known (`time`) and the
first observation that belongs to it (`since`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.core.recorder import Block
from regimekit.ihmm.changepoint_dating import Change
from regimekit.ihmm.regime_filter import Outputs
from regimekit.results import NO_REGIME, OPENED, OUTLIER, PRUNED, RETURNED, Event
from regimekit.serialization.validation import Values

Array = NDArray[np.float64]


class Particle(NamedTuple):
    """One weighted hypothesis of the filter, at the end of the latest complete batch.

    Attributes:
        weight: weight; the weights of all particles sum to 1.
        current: label of the present regime (Step.regime), -1 if it has not been reported.
        regimes: label of each of its K regimes, -1 where a regime has not been reported.
        mean: (K, m) posterior mean of the coefficients, in the units of the filter.
        alpha: concentration of the transition rows.
        gamma: concentration of beta.
        beta: (K + 1,) shares of the regimes; the last one belongs to all unopened regimes.
        counts: (K, K) transitions between batches, from row to column.
    """

    weight: float
    current: int
    regimes: list[int]
    mean: Array
    alpha: float
    gamma: float
    beta: Array
    counts: NDArray[np.int64]


class Reporter:
    """Ids of the reported regimes that are stored, and the present one."""

    def __init__(self) -> None:
        self.names: dict[int, int] = {}
        self.regime = NO_REGIME
        self.next_name = 0

    def follow(self, before: Reporter) -> None:
        """Continue another reporter: the regime it reported last keeps its id."""
        kept, own = before.regime, self.regime
        if kept == NO_REGIME:
            return
        if own == NO_REGIME:  # the first regime reported gets that id
            self.regime = self.next_name = kept
            return
        swap = {own: kept, kept: own}
        names = {identity: swap.get(name, name) for identity, name in self.names.items()}
        # Ids that no event has opened are given again when their regimes are reported.
        self.names = {identity: id for identity, id in names.items() if id < before.next_name}
        self.regime, self.next_name = kept, before.next_name

    def block(self, first: int, y: Array, outputs: Outputs, outlier: NDArray[np.bool_]) -> Block:
        """Return the results of consecutive observations.

        Args:
            first: index of the first one in the stream.
            y: (T, d) observations.
            outputs: outputs of the filter.
            outlier: (T,) whether each is an outlier.
        """
        events: list[Event] = []
        regime = np.full(len(y), self.regime, np.int64)
        told = self.regime
        pending = sorted(np.flatnonzero(outlier).tolist())
        for change in outputs.changes:
            at = change.time - first
            events += [self._outlier(first + t, told) for t in pending if t <= at]
            pending = [t for t in pending if t > at]
            events += self._tell(change)
            regime[at:] = told = self.regime
        events += [self._outlier(first + t, told) for t in pending]
        return Block(
            forecasts=outputs.forecasts,
            log_score=outputs.forecasts.log_density(y),
            weight=outputs.weight,
            outlier=outlier,
            regime=regime,
            regime_probability=outputs.probability,
            change_probability=outputs.change,
            n_regimes=outputs.n_known,
            ess=outputs.ess,
            settled=outputs.settled,
            events=events,
            first=first,
        )

    def step(self, time: int, change: Change | None, outlier: bool) -> tuple[Event, ...]:
        """Return the events of one observation, and update the present regime.

        Args:
            time: its index in the stream.
            change: the change that became known with it, or None.
            outlier: whether it is an outlier.
        """
        events: list[Event] = []
        if outlier:
            events.append(self._outlier(time, self.regime))
        if change is not None:
            events += self._tell(change)
        return tuple(events)

    def _tell(self, change: Change) -> list[Event]:
        """Return the events of a change and of the regimes that were pruned."""
        events = []
        if change.regime != change.previous and change.regime >= 0:
            known = change.regime in self.names
            previous = self.regime
            self.regime = self._name(change.regime)
            if self.regime != previous:
                kind = RETURNED if known else OPENED
                events.append(Event(change.time, kind, self.regime, previous, change.since))
        for lost in change.lost:
            name = self.names.pop(lost, None)
            if name is not None:
                events.append(Event(change.time, PRUNED, name, self.regime, change.time))
        return events

    def _name(self, identity: int) -> int:
        if identity not in self.names:
            self.names[identity] = self.next_name
            self.next_name += 1
        return self.names[identity]

    @staticmethod
    def _outlier(time: int, regime: int) -> Event:
        """Return the event of an outlier."""
        return Event(time, OUTLIER, regime, regime, time)

    def pack(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        pairs = [[identity, name] for identity, name in self.names.items()]
        return {"regime": self.regime, "next_name": self.next_name, "names": pairs}

    def unpack(self, values: Any) -> None:
        """Restore the state that `pack` returned."""
        told = Values.of(values)
        pairs = [entry.wholes("names", 2) for entry in told.entries("names")]
        next_name = told.whole("next_name")
        names = {pair[0]: pair[1] for pair in pairs}
        if len(set(names.values())) < len(pairs) or any(n >= next_name for _, n in pairs):
            raise SnapshotError("Invalid snapshot: names of regimes must be unique.")
        # After a change of units the next regime to be named gets the present id (`follow`).
        regime = told.whole("regime", NO_REGIME, next_name)
        self.names, self.regime, self.next_name = names, regime, next_name
