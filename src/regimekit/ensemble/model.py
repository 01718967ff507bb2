"""`auto` as a model like the others; what it does is in `regimekit.ensemble.stream`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.core.covariates import MOST_COORDINATES, try_out
from regimekit.core.exceptions import whole
from regimekit.core.model import Array, Model
from regimekit.core.recorder import Recorder
from regimekit.distributions.forecast import Forecast
from regimekit.ensemble.design import Lineup
from regimekit.ensemble.explain import explain
from regimekit.ensemble.stream import Stream, copied
from regimekit.preprocessing.frames import Row, Series, Table
from regimekit.preprocessing.time_index import seasons_of_labels
from regimekit.results import Regime, Run, Step, Transitions
from regimekit.serialization.validation import Arrays, Values


class Auto(Model):
    """Regimes and honest forecasts of any stream, in its own units, with nothing to set."""

    name = "auto"
    state_version = 7
    advised = False  # it speaks for itself, as the stream goes on

    def __init__(
        self,
        features: Any = None,
        regime_features: Any = None,
        seasons: Any = None,
        seed: int = 0,
    ) -> None:
        self.plan = Lineup(features, regime_features, seasons)
        self.seed = whole("seed", seed, least=0)
        self.dim: int | None = None
        self.time = 0
        self.stream: Stream | None = None

    def settings(self) -> dict[str, Any]:
        return self.plan.to_json() | {"seed": self.seed}

    @classmethod
    def _make(cls, settings: dict[str, Any]) -> Self:
        return cls(**settings)

    def _run(self, series: Series, table: Table | None, recorder: Recorder, progress: bool) -> Run:
        # The dates of a stream determine which seasons to expect.
        if self.plan.seasons is None and not self.plan.explicit:
            self.plan.seasons = seasons_of_labels(series.index) or None
        return super()._run(series, table, recorder, progress)

    def _check(self, x: Any) -> Row | None:
        return self.plan.check(x)

    def _predict(self, x: Row | None) -> Forecast:
        stream = self.stream or Stream(self.plan, self.dim or 1, x, self.seed)
        return copied(stream.expect(x, self.time).forecast)

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        if self.stream is None:
            self.plan.begin(x)
            self.stream = Stream(self.plan, y.size, x, self.seed)
            self.dim = y.size
        answer = self.stream.observe(y, x, self.time)
        self.time += 1
        return answer

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        stream = self.stream or Stream(self.plan, self.dim or 1, rows[0], self.seed)
        return stream.ahead(rows, self.time)

    def regimes(self) -> list[Regime]:
        return [] if self.stream is None else self.stream.regimes()

    def transitions(self) -> Transitions:
        if self.stream is None or not self.stream.reading.book:
            return Transitions([], np.zeros((0, 0)))
        moves = self.stream.reading.moves
        return Transitions(
            list(range(len(moves))), moves / (moves.sum(axis=1, keepdims=True) + 1.0)
        )

    @property
    def weights(self) -> dict[str, float]:
        """How much each member counts in the forecast now, largest first."""
        return {} if self.stream is None else self.stream.weights()

    @property
    def regret(self) -> dict[str, float]:
        """The mixture's mean loss over that of each member since it joined; the worst first.

        Losses are ranked probability scores in noise scales, bounded; 1 is even, above 1 the
        member would have been better.
        """
        return {} if self.stream is None else self.stream.regret()

    def coefficient_names(self) -> list[str]:
        """Names of a regime's coefficients, as the model that reads regimes has them now."""
        return [] if self.stream is None else self.stream.coefficient_names()

    def explain(self) -> str:
        """What it knows, in plain words: units, features, members, regimes, outliers."""
        return explain(self.stream, self.time)

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.stream is None:
            return {"started": False}, {}
        values, arrays = self.stream.pack()
        more, first = self.plan.pack()
        return values | more | {"started": True, "now": self.time, "dim": self.dim}, arrays | first

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        kept, stored = Values.of(values), Arrays.of(arrays)
        if not kept.flag("started"):
            return
        self.time, self.dim = kept.whole("now"), kept.whole("dim", 1, MOST_COORDINATES)
        self.plan.unpack(kept, stored)
        self.stream = Stream.unpack(self.plan, kept, stored, self.dim, self.seed)
        try_out(lambda: self._predict(self.plan.like))
