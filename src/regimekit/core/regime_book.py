"""Statistics and labels of the regimes of a model, and results that depend on them.

A model has one book. It assigns every observation to its regime, also in retrospect, computes the
fields of `Regime` that describe observations, and corrects the anomaly scores in a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, SnapshotError, unknown
from regimekit.core.limits import MAX_COORDINATES
from regimekit.core.recorder import Block
from regimekit.core.regime_description import Label, TimeOf, describe
from regimekit.core.regime_statistics import RegimeStatistics
from regimekit.results import CHANGES, FAULT, STATUSES, Regime, Step
from regimekit.serialization import schema
from regimekit.serialization.validation import Arrays, Values

Array = NDArray[np.float64]
_STATISTICS = "statistics."  # prefix of the statistics of the regimes in a snapshot
_LABELS = "labels"  # value of a snapshot: names and statuses of regimes
_MAX_NAME = 200  # characters


class RegimeBook:
    """Statistics and labels of the regimes of one model.

    Attributes:
        statistics: of the observations of each regime; None before the first observation.
        labels: names and statuses by id of a regime.
        faults: ids of the regimes with the status "fault".
    """

    def __init__(self) -> None:
        self.statistics: RegimeStatistics | None = None
        self._relabel({})

    def _relabel(self, labels: dict[int, Label]) -> None:
        self.labels = labels
        self.faults = {own for own, label in labels.items() if label.status == FAULT}

    def described(self, regimes: Sequence[Regime], time_of: TimeOf) -> list[Regime]:
        """Return regimes with their statistics and labels."""
        return describe(regimes, self.statistics, self.labels, time_of)

    def status(self, id: int) -> str:
        """Return the status of a regime."""
        return self.labels.get(id, Label()).status

    def label(self, known: Sequence[int], id: int, name: str | None, status: str | None) -> None:
        """Set the name or the status of a regime; see `Model.label_regime`.

        Args:
            known: ids of the regimes in memory.
            id: id of the regime.
            name: its name, or None.
            status: its status, or None.
        """
        if id not in known:
            raise RegimekitError(f"id must be that of a regime in memory {known}, got {id!r}.")
        if status is not None and status not in STATUSES:
            raise unknown("status", status, STATUSES)
        if name is not None and (not isinstance(name, str) or len(name) > _MAX_NAME):
            raise RegimekitError(f"name must be text of at most {_MAX_NAME} characters: {name!r}.")
        # Labels of regimes that are no longer in memory are removed.
        labels = {own: label for own, label in self.labels.items() if own in known}
        before = labels.pop(id, Label())
        changed = Label(
            before.name if name is None else name, before.status if status is None else status
        )
        self._relabel(labels | ({} if changed == Label() else {int(id): changed}))

    def set_labels(self, labels: Mapping[int, tuple[str, str]]) -> None:
        """Replace the labels of all regimes; see `Model.set_regime_labels`.

        Args:
            labels: (name, status) by id.
        """
        for _, status in labels.values():
            if status not in STATUSES:
                raise unknown("status", status, STATUSES)
        self._relabel({id: Label(*label) for id, label in labels.items()})

    def assign(self, y: Array, block: Block) -> None:
        """Add observations to the statistics of their regimes.

        Args:
            y: (T, d) observations.
            block: outputs of the model for them.
        """
        statistics = self.statistics
        if statistics is None:
            statistics = self.statistics = RegimeStatistics(y.shape[1], block.first)
        changes = sorted((e for e in block.events if e.kind in CHANGES), key=lambda e: e.time)
        start = 0
        # Each change is applied right after its row, as in `update`.
        for event in changes:
            stop = min(event.time - block.first + 1, len(y))
            self._extend(statistics, y, block, start, stop)
            statistics.reassign(event.since, event.time + 1, event.regime)
            start = stop
        self._extend(statistics, y, block, start, len(y))

    def _extend(
        self, statistics: RegimeStatistics, y: Array, block: Block, start: int, stop: int
    ) -> None:
        """Add the rows `start` to `stop` - 1 of a block, and correct their scores in a fault."""
        if not self.faults:
            statistics.extend(y[start:stop], block.regime[start:stop])
            return
        for t in range(start, stop):
            score = self._score_in_fault(
                y[t], block.regime[t], block.regime_probability[t], block.anomaly_score[t]
            )
            block.anomaly_score[t] = score
            statistics.push(y[t], block.regime[t])

    def assign_step(self, y: Array, step: Step, time: int) -> Step:
        """Add one observation to the statistics of its regime and return its step.

        Args:
            y: (d,) observation.
            step: its step without statistics.
            time: its index in the stream.
        """
        statistics = self.statistics
        if statistics is None:
            statistics = self.statistics = RegimeStatistics(y.size, time)
        if self.faults:
            score = self._score_in_fault(
                y, step.regime, step.regime_probability, step.anomaly_score
            )
            step = step._replace(anomaly_score=score)
        statistics.push(y, step.regime)
        for event in step.events:
            if event.kind in CHANGES:
                statistics.reassign(event.since, event.time + 1, event.regime)
        return step

    def _score_in_fault(self, y: Array, regime: int, probability: float, score: float) -> float:
        """Return the anomaly score; in a fault, that in the regimes that are no faults."""
        if regime not in self.faults or self.statistics is None or np.isnan(score):
            return float(score)
        tail = min(1.0 - score, self.statistics.normal_tail(y, self.faults))
        return float(1.0 - tail * (1.0 - min(probability, 1.0)))

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state as JSON values and arrays."""
        values: dict[str, Any] = {}
        if self.labels:
            values[_LABELS] = [[own, *label] for own, label in self.labels.items()]
        if self.statistics is None:
            return values, {}
        more, arrays = schema.pack_state(self.statistics, _STATISTICS)
        return values | {f"{_STATISTICS}dim": self.statistics.dim} | more, arrays

    def unpack(self, values: Values, arrays: Arrays, n_rows: int | None, dim: int | None) -> None:
        """Restore the state that `pack` returned.

        Args:
            values: as `pack` returned them.
            arrays: as `pack` returned them.
            n_rows: number of observations of the model; None if it does not count them.
            dim: number of coordinates; None if it is not known yet.

        Raises:
            SnapshotError: if it is invalid.
        """
        # A snapshot of an earlier release has no statistics: they begin with the next observation.
        if f"{_STATISTICS}dim" in values:
            size = values.whole(f"{_STATISTICS}dim", 1, MAX_COORDINATES)
            arrays.floats(f"{_STATISTICS}previous", (size,), missing=True)
            self.statistics = RegimeStatistics(size)
            schema.unpack_state(self.statistics, values, arrays, _STATISTICS)
            rows = self.statistics.n_rows
            if n_rows not in (None, rows) or size != (dim or size):
                raise SnapshotError(
                    f"Invalid snapshot: the statistics of the regimes have {rows} rows of {size} "
                    f"values, expected {n_rows} rows of {dim}."
                )
        if _LABELS in values:
            labels = {}
            for own, name, status in values[_LABELS]:
                if type(own) is not int or not isinstance(name, str) or status not in STATUSES:
                    raise SnapshotError(
                        "Invalid snapshot: a label must be a regime id, a name and one of "
                        f"{', '.join(STATUSES)}, got {str([own, name, status])[:60]}."
                    )
                labels[own] = Label(name, status)
            self._relabel(labels)
