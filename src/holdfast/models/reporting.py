"""From the engine's particles to what a person is told: the regime by vote, and events.

The reported regime is the id with the largest total particle weight, not the regime of the
heaviest particle, whose identity jumps. Events are appended when they become known and never
rewritten.
"""

from __future__ import annotations

from typing import Any

from holdfast.engine import step
from holdfast.engine.engine import MEMORY, Engine
from holdfast.results import NO_REGIME, OPENED, OUTLIER, PRUNED, RETURNED, SWITCHED, Event


class Reporter:
    """The reported regime, how many are known, and which ids were ever reported and still live."""

    def __init__(self) -> None:
        self.regime = NO_REGIME
        self.n_regimes = 0
        self.told: set[int] = set()

    def vote(self, engine: Engine, time: int) -> list[Event]:
        """Take the vote after a batch; events of the regime."""
        shares = engine.identity_shares(step.current_mass)
        held = engine.identity_shares(step.held_mass)
        self.n_regimes = sum(share >= MEMORY - 1e-9 for share in held.values())
        winner = max(shares, key=lambda identity: shares[identity], default=NO_REGIME)
        events = self._changes(winner, time)
        for lost in sorted(self.told - set(held)):
            events.append(Event(time, PRUNED, lost))
        self.told &= set(held)
        return events

    def _changes(self, winner: int, time: int) -> list[Event]:
        previous, self.regime = self.regime, winner
        if winner in (previous, NO_REGIME):
            return []
        kind = RETURNED if winner in self.told else OPENED
        self.told.add(winner)
        events = [Event(time, kind, winner, previous)]
        if previous != NO_REGIME:
            events.append(Event(time, SWITCHED, winner, previous))
        return events

    def outlier(self, time: int) -> Event:
        """An observation that the present regime does not believe."""
        return Event(time, OUTLIER, self.regime, self.regime)

    def pack(self) -> dict[str, Any]:
        return {"regime": self.regime, "n_regimes": self.n_regimes, "told": sorted(self.told)}

    def unpack(self, values: dict[str, Any]) -> None:
        self.regime, self.n_regimes = values["regime"], values["n_regimes"]
        self.told = set(values["told"])
