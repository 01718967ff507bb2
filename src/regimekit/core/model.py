"""What every model can do, and what a new one must write.

A model is `predict` (pure) and `update` (one observation). A subclass gives

    _check(x)            refuses covariates it cannot use
    _predict(x)          the forecast of the next observation
    _observe(y, x)       that forecast and the Step of learning y
    settings()           what it was made with, ready for JSON
    _pack() / _unpack()  its state as JSON values and arrays

and inherits running over a stream, saving, loading and the checks of the observation.

A model may be used from several threads: its public methods take turns. `predict` changes nothing,
but it reads what `update` is writing, so it waits for its turn too.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from regimekit.core import advice
from regimekit.core import explain as explaining
from regimekit.core.ahead import Ahead
from regimekit.core.exceptions import RegimekitError, observation, whole
from regimekit.core.recorder import Block, Recorder
from regimekit.distributions.forecast import Forecast
from regimekit.preprocessing.frames import Series, Table, read_series, read_table
from regimekit.preprocessing.time_index import Calendar
from regimekit.results import Regime, Run, Step, Transitions
from regimekit.serialization import snapshot
from regimekit.serialization.validation import Arrays, Values

Array = NDArray[np.float64]
_BLOCK = 1024  # observations summarised together
_REMEMBERED = 100  # outliers, for `explain`
Method = TypeVar("Method", bound=Callable[..., Any])


class Turn:
    """A lock that its holder may take again. A copy of a model, or a pickled one, has a new one."""

    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()


def in_turn(method: Method) -> Method:
    """A method that waits until no other thread is inside one of its model's."""

    @wraps(method)
    def taking_turns(self: Model, *args: Any, **options: Any) -> Any:
        with self._turn.lock:
            return method(self, *args, **options)

    marked: Any = taking_turns
    marked.in_turn = True  # so that an override in a subclass waits too
    return cast(Method, marked)


def _unpickled(data: bytes, beside: dict[str, Any]) -> Model:
    """Return the model of a pickle."""
    from regimekit.core.registry import from_bytes

    model = from_bytes(data)
    model.__dict__ |= beside
    return model


class Model(ABC):
    """An online forecaster that may also know regimes."""

    name: str
    dim: int | None = None  # coordinates of y, known at the latest after the first update
    state_version: ClassVar[int] = 1  # of what `_pack` gives; one more when it changes its meaning
    advised: bool = True  # whether `run` says when forecasts look wrong
    _turn: Turn
    _said: list[str]  # what it has been warned of
    _calendar: Calendar | None = None  # labels of the stream, for those of the steps ahead
    outliers: list[int]  # the latest observations not believed, since it was made or loaded

    def __new__(cls, *_: Any, **__: Any) -> Self:
        model = super().__new__(cls)
        model._turn, model._said, model.outliers = Turn(), [], []
        return model

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, own in list(vars(cls).items()):
            if hasattr(
                getattr(Model, name, None), "in_turn"
            ):  # an override waits like the original
                setattr(cls, name, in_turn(own))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a model of the registry as its snapshot; the state of kernels has no pickle."""
        from regimekit.core.registry import REGISTRY

        if getattr(self, "name", None) not in REGISTRY:
            return super().__reduce_ex__(protocol)
        return _unpickled, (self.to_bytes(), self._beside_snapshot())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__ |= self.__dict__
        return twin

    def _beside_snapshot(self) -> dict[str, Any]:
        """Attributes that a copy keeps and a snapshot does not store."""
        return {name: getattr(self, name) for name in ("advised", "_said", "outliers", "_calendar")}

    @in_turn
    def predict(self, x: Any = None) -> Forecast:
        """Forecast the next observation; changes nothing, draws nothing.

        Args:
            x: covariates of the next observation, if the features need any.
        """
        return self._predict(self._check(x))

    @in_turn
    def update(self, y: Any, x: Any = None) -> Step:
        """Learn one observation.

        Args:
            y: a number, or a vector for d > 1. NaN (or None) means not observed.
            x: covariates of this observation, if the features need any.
        """
        step = self._update(observation(y, self.dim), self._check(x))
        if step.outlier:
            self._doubted([self.n_observations - 1])
        return step

    @in_turn
    def run(self, y: Any, X: Any = None, progress: bool = False, level: float = 0.9) -> Run:
        """Predict and update along a stream.

        Args:
            y: observations, (T,) or (T, d): array, list, series or frame.
            X: covariates, one row per observation.
            progress: show a progress bar.
            level: probability that the interval `lower` .. `upper` should hold.
        """
        series = read_series(y)
        table = read_table(X, length=len(series.values))
        recorder = Recorder(level)
        labels = advice.labels_of(series, table, self._said)
        run = self._run(series._replace(index=labels), table, recorder, progress)
        if self.advised:
            advice.warn_about_run(run, self.name, self.settings(), self._said)
        return run

    @in_turn
    def _run(self, series: Series, table: Table | None, recorder: Recorder, progress: bool) -> Run:
        """Run over a stream that has been read, and pass each block to `recorder`.

        Everything that runs a model over a stream calls this method; a recorder that scores
        forecasts gets them here. A model that makes no forecasts passes none to `recorder`.
        """
        rows = self._check_stream(series.values, table)
        for block in self._blocks(series.values, rows, progress):
            recorder.add(block)
        run = recorder.run(series)
        self._note(run)
        return run

    def _blocks(self, y: Array, rows: list[Any], progress: bool) -> Iterator[Block]:
        """What the model says of a checked stream, some observations at a time."""
        first = begun = self.n_observations
        forecasts: list[Forecast] = []
        steps: list[Step] = []
        for t in self._ticks(len(y), 1, progress):
            forecast, step = self._observe(observation(y[t], self.dim), rows[t])
            forecasts.append(forecast)
            steps.append(step)
            if len(steps) == _BLOCK or t == len(y) - 1:
                yield Block.of(forecasts, steps, first)
                first, forecasts, steps = begun + t + 1, [], []

    @property
    def n_observations(self) -> int:
        """How many observations the model has been given."""
        return int(getattr(self, "time", 0))

    @staticmethod
    def _ticks(n: int, step: int, progress: bool) -> Any:
        """0, step, 2 step, .. below n, with a progress bar if asked for."""
        places = range(0, n, step)
        if not progress:
            return places
        from rich.progress import track

        return track(places, description="observations")

    @in_turn
    def forecast(self, horizon: int, X: Any = None) -> Ahead:
        """Forecast the next `horizon` observations; changes nothing.

        What comes back is a list of forecasts that can show itself as a table: `.frame()`.

        Args:
            horizon: how many steps ahead.
            X: covariates of those steps, one row each, if the features need any.
        """
        table = read_table(X, length=whole("horizon", horizon))
        rows = [None if table is None else table.row(h) for h in range(horizon)]
        made = self._forecast([self._check(row) for row in rows])
        if self._calendar is None:
            return Ahead(made)
        return Ahead(made, self._calendar.ahead(self.n_observations, horizon))

    def _note(self, run: Run) -> None:
        """Remember the labels of a stream, or that it has none, and its outliers."""
        self._calendar = None if run.index is None else Calendar(run.index, self.n_observations)
        self._doubted((run.first + np.flatnonzero(run.outlier)).tolist())

    def _told_alike(self, twin: Self) -> Self:
        """A copy that knows what was said, and the labels; a snapshot holds neither."""
        twin.advised, twin._said = self.advised, list(self._said)
        twin._calendar, twin.outliers = self._calendar, list(self.outliers)
        return twin

    def _doubted(self, times: list[int]) -> None:
        self.outliers = [*self.outliers, *times][-_REMEMBERED:]

    @in_turn
    def regimes(self) -> list[Regime]:
        """The regimes remembered now, oldest first."""
        return []

    @in_turn
    def transitions(self) -> Transitions:
        """Expected transition probabilities between the regimes of `regimes()`."""
        return Transitions([], np.zeros((0, 0)))

    def explain(self) -> str:
        """What it knows, in plain words: units, features, regimes by the names of coefficients."""
        return explaining.explain(self)

    def __repr__(self) -> str:
        return explaining.summary(self)

    def _repr_html_(self) -> str:
        return explaining.as_html(self)

    def plot_regimes(self, ax: Any = None, **options: Any) -> Any:
        """Draw the coefficients of each regime remembered now, by name. Needs matplotlib.

        Args:
            ax: axes to draw into; a new figure if not given.
            **options: as for `regimekit.plotting.plot_regimes`.
        """
        # By name: pictures stand above models, and matplotlib is not loaded without need.
        return import_module("regimekit.plotting").plot_regimes(self, ax, **options)

    @in_turn
    def to_bytes(self) -> bytes:
        """The whole model as bytes: settings, state, random state. No pickle."""
        values, arrays = self._pack()
        return snapshot.write(self.name, self.settings(), values, arrays, self.state_version)

    def save(self, path: str | Path) -> None:
        """Write the model to one file, to be read by `regimekit.load`."""
        snapshot.write_file(Path(path), self.to_bytes())

    @in_turn
    def copy(self) -> Self:
        """An independent model with the same state."""
        values, arrays = self._pack()
        twin = self._make(self.settings())
        twin._unpack(Values(values), Arrays({name: array.copy() for name, array in arrays.items()}))
        return self._told_alike(twin)

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What it was made with, as JSON values: `make(name, **settings)` makes its like."""

    @classmethod
    @abstractmethod
    def _make(cls, settings: dict[str, Any]) -> Self:
        """A fresh model from what `settings` gave."""

    @abstractmethod
    def _check(self, x: Any) -> Any:
        """`x` as this model wants it, or a RegimekitError."""

    @abstractmethod
    def _predict(self, x: Any) -> Forecast: ...

    def _update(self, y: Array, x: Any) -> Step:
        """Learn y when nobody asks for its forecast."""
        return self._observe(y, x)[1]

    @abstractmethod
    def _observe(self, y: Array, x: Any) -> tuple[Forecast, Step]: ...

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        raise RegimekitError(f"{self.name} forecasts one step ahead only; use predict().")

    @abstractmethod
    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]: ...

    @abstractmethod
    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None: ...

    def _check_stream(self, y: Array, table: Table | None) -> list[Any]:
        """Refuse a stream before its first observation changes anything; its checked rows of x."""
        if np.isinf(y).any():
            where = int(np.flatnonzero(np.isinf(y).any(axis=1))[0])
            raise RegimekitError(
                f"y is infinite at row {where}; pass NaN for a value that was not observed."
            )
        seen = y[~np.isnan(y).all(axis=1)]
        if len(seen):
            observation(seen[0], self.dim)
        return self._check_rows(table, len(y))

    def _check_rows(self, table: Table | None, n: int) -> list[Any]:
        rows = []
        for t in range(n):
            try:
                rows.append(self._check(None if table is None else table.row(t)))
            except RegimekitError as error:
                raise RegimekitError(f"Row {t} of X: {error}") from None
        return rows
