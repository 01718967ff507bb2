"""Base class of all models.

A model has two operations: `predict` (pure) and `update` (one observation). A subclass implements

    _check(x)            validate covariates
    _predict(x)          forecast the next observation
    _observe(y, x)       forecast y, then update with it
    _regimes()           regimes in memory
    settings()           arguments of the constructor as JSON values
    _pack() / _unpack()  state as JSON values and arrays

and inherits the loop over a stream (`run`, with callbacks), saving, loading, copying, and the
validation of observations.

Models are thread-safe: public methods hold a lock of the model, also `predict`, because it reads
what `update` writes.
"""

from __future__ import annotations

import copy
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from regimekit.core import advice
from regimekit.core import explain as explaining
from regimekit.core.exceptions import RegimekitError, observation, whole
from regimekit.core.limits import MAX_HORIZON
from regimekit.core.recorder import Block, Recorder
from regimekit.core.regime_book import RegimeBook
from regimekit.core.warnings import warn_once
from regimekit.distributions.forecast import Forecast, Forecasts
from regimekit.preprocessing.alignment import Stream, read_stream
from regimekit.preprocessing.calendar import Calendar
from regimekit.preprocessing.frames import Series, Table, read_table
from regimekit.preprocessing.time_index import Frequency, Time
from regimekit.results import Regime, Run, Step, Transitions
from regimekit.serialization import snapshot
from regimekit.serialization.validation import Arrays, Values

Array = NDArray[np.float64]
Callback = Callable[[Block], None]
_BLOCK = 1024  # observations per block
_MAX_OUTLIERS = 100  # latest outliers, for `explain`
_ONE_STEP = (
    "predict(x) forecasts the next observation, and x are its covariates, which this model does "
    "not use. Call forecast({n}) to forecast {n} steps."
)
_ANY = SimpleNamespace(needs_x=True)  # features of a model that takes any covariates
# Methods of other libraries, and what to call instead.
_ELSEWHERE = {
    "learn_one": "update(y, x)",
    "predict_one": "predict(x)",
    "partial_fit": "update(y, x) for one observation, or fit(y, X) for several",
    "fit_predict": "run(y, X): it forecasts each observation before it updates",
    "fit_transform": "run(y, X)",
    "transform": "run(y, X): its `regime` is the regime of each observation",
    "score": "regimekit.metrics.prequential(model, y).scores()",
    "predict_proba": "predict(x): the forecast is a distribution, with .cdf and .quantile",
    "make_future_dataframe": "forecast(horizon): it continues the dates of y",
    "add_regressor": "features=regimekit.features.columns(..) when the model is made",
    "add_seasonality": "seasons=[..] when the model is made",
    "add_country_holidays": "regimekit.holidays(dates, country) as covariates X",
    "plot": "run(y).plot(), forecast(horizon).plot() or plot_regimes()",
    "n_regimes": "len(model.regimes())",
}
CALENDAR = "calendar"  # value of a snapshot: labels of the steps ahead
Method = TypeVar("Method", bound=Callable[..., Any])


def locked(method: Method) -> Method:
    """Return a method that acquires the lock of its model first."""

    @wraps(method)
    def hold_lock(self: Model, *args: Any, **options: Any) -> Any:
        with self._lock:
            return method(self, *args, **options)

    wrapped: Any = hold_lock
    wrapped.locked = True  # `__init_subclass__` wraps overriding methods too
    return cast(Method, wrapped)


def _restore(
    recipe: tuple[Callable[..., Model], tuple[Any, ...]],
    state: tuple[dict[str, Any], dict[str, NDArray[Any]]],
    unsaved: dict[str, Any],
) -> Model:
    """Return a model from its settings, its packed state and the attributes besides."""
    make, arguments = recipe
    values, arrays = state
    model = make(*arguments)
    model.restore_state(Values(values), Arrays(arrays))
    model.__dict__ |= unsaved
    return model


class Model(ABC):
    """An online forecaster that may also infer regimes.

    Attributes:
        name: name in the registry.
        dim: number of coordinates of y; None before it is known.
        state_version: version of the packed state; increase it if its meaning changes.
        advised: whether `run` warns if the forecasts look wrong.
        outliers: indices of the latest outliers since the model was made or loaded.
    """

    name: str
    dim: int | None = None
    state_version: ClassVar[int] = 1
    advised: bool = True
    outliers: list[int]
    _lock: threading.RLock
    _warned: list[str]  # keys of the warnings emitted so far
    _calendar: Calendar | None = None  # labels of the stream, for those of future steps
    _book: RegimeBook  # statistics and labels of the regimes

    def __new__(cls, *_: Any, **__: Any) -> Self:
        model = super().__new__(cls)
        model._lock, model._book = threading.RLock(), RegimeBook()
        model._warned, model.outliers = [], []
        return model

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, own in list(vars(cls).items()):
            if hasattr(getattr(Model, name, None), "locked"):
                setattr(cls, name, locked(own))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle settings and packed state, because compiled state has no pickle."""
        return _restore, (self._recipe(), self._full_state(), self._unsaved())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__ |= self.__dict__
        twin._book = copy.copy(self._book)
        return twin

    def _recipe(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        """Return a function and its arguments that make a new model with the same settings."""
        return type(self)._make, (self.settings(),)

    def _unsaved(self) -> dict[str, Any]:
        """Return copies of the attributes that a copy has and a snapshot does not store."""
        return {
            "advised": self.advised,
            "outliers": list(self.outliers),
            "_warned": list(self._warned),
            "_calendar": self._calendar,
        }

    @locked
    def predict(self, x: Any = None) -> Forecast:
        """Forecast the next observation. The model does not change.

        Args:
            x: covariates of the next observation, if the features need any.

        Returns:
            The predictive distribution, in the units of y.

        Raises:
            RegimekitError: if covariates are missing or invalid.
        """
        try:
            checked = self._check(x)
        except RegimekitError:
            if type(x) is int:
                raise RegimekitError(_ONE_STEP.format(n=x)) from None
            raise
        uses_x = checked is not None and getattr(self, "features", _ANY).needs_x
        if type(x) is int and not uses_x:
            raise RegimekitError(_ONE_STEP.format(n=x))
        return self._predict(checked)

    @locked
    def update(self, y: Any, x: Any = None) -> Step:
        """Update the model with one observation.

        Args:
            y: a number, or a vector (d,). NaN or None means not observed.
            x: covariates of this observation, if the features need any.

        Returns:
            Regime, weight and events of this observation.

        Raises:
            RegimekitError: if y or x is invalid; the model is unchanged.
        """
        values = observation(y, self.dim)
        step = self._book.assign_step(
            values, self._update(values, self._check(x)), self.n_observations - 1
        )
        if step.outlier:
            self._add_outliers([self.n_observations - 1])
        return step

    @locked
    def run(
        self,
        y: Any,
        X: Any = None,
        progress: bool = False,
        level: float = 0.9,
        callbacks: Sequence[Callback] = (),
    ) -> Run:
        """Predict and update along a stream.

        Args:
            y: observations, (T,) or (T, d): array, list, series or frame. If its index has dates
                at a regular step, gaps are filled with missing observations, repeated dates are
                dropped (with a warning), and dates that decrease are an error.
            X: covariates, one row per observation.
            progress: show a progress bar.
            level: probability of the interval `lower` .. `upper`.
            callbacks: functions that are called with each `Block` of consecutive observations,
                in order. An offline model makes no forecasts and calls none.

        Returns:
            One row per observation, also for those inserted into gaps.

        Raises:
            RegimekitError: if the stream is invalid; the model is unchanged.

        Example:
            >>> import regimekit as rk
            >>> rows = []
            >>> run = rk.make("last_value").run(
            ...     [1.0, 2.0, 4.0], callbacks=[lambda block: rows.extend(block.log_score)]
            ... )
            >>> len(rows), rows == run.log_score.tolist()
            (3, True)
        """
        run = self._stream(read_stream(y, X, self._warned), progress, level, callbacks)
        if self.advised:
            for key, message in advice.remarks(run, self.name, self.settings()).items():
                warn_once(self._warned, key, message, stacklevel=4)
        return run

    @locked
    def _stream(
        self, stream: Stream, progress: bool, level: float, callbacks: Sequence[Callback]
    ) -> Run:
        """Run over a stream that has been read, without advice about the forecasts."""
        return self._run(stream.series, stream.table, Recorder(level), progress, callbacks)

    def fit(self, y: Any, X: Any = None) -> Self:
        """Update the model with a stream; for those used to scikit-learn.

        A model continues where it was: `fit` on new observations is a further update. Make a
        new model to start again.

        Args:
            y: observations, as for `run`.
            X: covariates, one row per observation.

        Returns:
            The model itself, so that `fit(y).forecast(12)` works.

        Example:
            >>> import regimekit as rk
            >>> rk.make("last_value").fit([1.0, 2.0, 3.0]).forecast(2).mean
            array([3., 3.])
        """
        self.run(y, X)
        return self

    def _run(
        self,
        series: Series,
        table: Table | None,
        recorder: Recorder,
        progress: bool,
        callbacks: Sequence[Callback],
    ) -> Run:
        """Process a stream block by block: the only loop over a stream of the library."""
        rows = self._check_stream(series.values, table)
        begin, at = time.perf_counter(), 0
        for block in self._blocks(series.values, rows, progress):
            part = series.values[at : at + len(block.weight)]
            at += len(part)
            self._book.assign(part, block.scored(part))
            block.seconds = time.perf_counter() - begin
            for callback in callbacks:
                callback(block)
            recorder.add(block)
            begin = time.perf_counter()
        run = recorder.run(series)
        self._remember(run)
        return run

    def _blocks(self, y: Array, rows: list[Any], progress: bool) -> Iterator[Block]:
        """Yield the outputs for a validated stream, (T, d) observations and T covariates."""
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
        """Number of observations so far."""
        return int(getattr(self, "time", 0))

    @staticmethod
    def _ticks(n: int, step: int, progress: bool) -> Any:
        """Return 0, step, 2 step, .. below n, with a progress bar if requested."""
        places = range(0, n, step)
        if not progress:
            return places
        from rich.progress import track

        return track(places, description="observations")

    @locked
    def forecast(self, horizon: int, X: Any = None) -> Forecasts:
        """Forecast the next `horizon` observations. The model does not change.

        Args:
            horizon: number of steps.
            X: covariates of those steps, one row each, if the features need any.

        Returns:
            A sequence of `horizon` forecasts, with `.mean`, `.quantile(q)`, `.interval(level)`,
            `.frame()` and `.plot()`; `forecasts[0]` is the `Forecast` of the next observation.

        Raises:
            RegimekitError: if `horizon` or X cannot be used.
        """
        table = read_table(X, length=whole("horizon", horizon, most=MAX_HORIZON))
        rows = [None if table is None else table.row(h) for h in range(horizon)]
        made = self._forecast([self._check(row) for row in rows])
        stack = Forecasts.stack(made, normalized=True)
        if self._calendar is not None:
            stack.times = self._calendar.ahead(self.n_observations, horizon)
            stack.native = self._calendar.native
        return stack

    def _remember(self, run: Run) -> None:
        """Store the labels of a stream, if it has any, and its outliers."""
        self._calendar = None
        if run.index is not None:
            self._calendar = Calendar.of_labels(run.index, self.n_observations, run.native)
        self._add_outliers((run.first + np.flatnonzero(run.outlier)).tolist())

    def set_calendar(self, last: Time | None, frequency: Frequency | None) -> None:
        """Set the time of the latest observation, from which forecasts continue.

        Args:
            last: time of the latest observation; None if it has none.
            frequency: step between two observations; None if there is no regular step.
        """
        self._calendar = Calendar(self.n_observations, last, frequency)

    def _add_outliers(self, times: list[int]) -> None:
        self.outliers = [*self.outliers, *times][-_MAX_OUTLIERS:]

    @locked
    def regimes(self) -> list[Regime]:
        """Return the regimes in memory, oldest first, with their statistics and labels."""
        return self._book.described(self._regimes(), self._time_of)

    def _time_of(self, row: int) -> Time | None:
        return None if self._calendar is None else self._calendar.time_of(row)

    def _regimes(self) -> list[Regime]:
        """Return the regimes in memory without statistics and labels."""
        return []

    @locked
    def label_regime(self, id: int, name: str | None = None, status: str | None = None) -> None:
        """Give a regime a name or a status; both are stored in snapshots.

        A new regime is "unknown". While the reported regime is a fault, `Step.anomaly_score`
        compares with the other regimes.

        Args:
            id: id of a regime in memory.
            name: its name; "" for none. If it is None, the name does not change.
            status: "normal", "fault" or "unknown". If it is None, the status does not change.

        Raises:
            RegimekitError: if the regime is not in memory, or a value is not valid.

        Example:
            >>> import regimekit as rk
            >>> model = rk.br_ihmm()
            >>> run = model.run([0.0, 0.1, -0.1, 0.2] * 5 + [8.0, 8.1, 7.9, 8.2] * 5)
            >>> model.label_regime(1, name="valve open", status="normal")
            >>> [(regime.id, regime.name, regime.status) for regime in model.regimes()]
            [(0, '', 'unknown'), (1, 'valve open', 'normal')]
        """
        self._book.label([regime.id for regime in self._regimes()], id, name, status)

    @locked
    def set_regime_labels(self, labels: Mapping[int, tuple[str, str]]) -> None:
        """Replace the labels of all regimes, also of those that are not in memory.

        Args:
            labels: (name, status) by id of a regime.

        Raises:
            RegimekitError: if a status is not valid.
        """
        self._book.set_labels(labels)

    def regime_status(self, id: int) -> str:
        """Return the status of a regime: "normal", "fault" or "unknown".

        Args:
            id: id of the regime.
        """
        return self._book.status(id)

    @locked
    def transitions(self) -> Transitions:
        """Return the expected transition probabilities between the regimes of `regimes()`."""
        return Transitions([], np.zeros((0, 0)))

    def explain(self) -> str:
        """Return a description in words: settings, units, features, regimes, outliers."""
        return explaining.explain(self)

    def __getattr__(self, name: str) -> Any:
        hint = f" Use {_ELSEWHERE[name]}." if name in _ELSEWHERE else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}.{hint}")

    def __repr__(self) -> str:
        return explaining.summary(self)

    def _repr_html_(self) -> str:
        return explaining.as_html(self)

    def plot_regimes(self, ax: Any = None, **options: Any) -> Any:
        """Plot the coefficients of each regime. Needs matplotlib.

        Args:
            ax: axes to draw into; a new figure if not given.
            **options: as for `regimekit.plotting.plot_regimes`.

        Returns:
            The axes.
        """
        # By name: plotting is a higher layer, and matplotlib is loaded only if needed.
        return import_module("regimekit.plotting").plot_regimes(self, ax, **options)

    @locked
    def to_bytes(self) -> bytes:
        """Return settings, state and random state as bytes for `from_bytes`; not a pickle."""
        values, arrays = self._full_state()
        calendar = None if self._calendar is None else self._calendar.to_json()
        if calendar is not None:
            values = {**values, CALENDAR: calendar}
        return snapshot.write(self.name, self.settings(), values, arrays, self.state_version)

    @locked
    def state_bytes(self) -> int:
        """Return the number of bytes of the arrays in its state."""
        return sum(array.nbytes for array in self._full_state()[1].values())

    def save(self, path: str | Path) -> None:
        """Write the model to a file for `regimekit.load`.

        Args:
            path: the file.
        """
        snapshot.write_file(Path(path), self.to_bytes())

    @locked
    def copy(self) -> Self:
        """Return an independent model with the same state."""
        values, arrays = self._full_state()
        copies = {name: array.copy() for name, array in arrays.items()}
        return cast(Self, _restore(self._recipe(), (values, copies), self._unsaved()))

    def _full_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state with the statistics and labels of the regimes."""
        values, arrays = self._pack()
        more, own = self._book.pack()
        return values | more, arrays | own

    def restore_state(self, values: Values, arrays: Arrays) -> None:
        """Restore the state that `_full_state` returned.

        Args:
            values: its values.
            arrays: its arrays.

        Raises:
            SnapshotError: if it is invalid.
        """
        self._unpack(values, arrays)
        self._book.unpack(values, arrays, getattr(self, "time", None), self.dim)

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON values; `make(name, **settings)` makes an equal model."""

    @classmethod
    def _make(cls, settings: dict[str, Any]) -> Self:
        """Return a new model from the output of `settings`."""
        return cls(**settings)

    @abstractmethod
    def _check(self, x: Any) -> Any:
        """Return validated covariates in the form that the model uses."""

    @abstractmethod
    def _predict(self, x: Any) -> Forecast: ...

    def _update(self, y: Array, x: Any) -> Step:
        """Update with y; faster than `_observe` if a model needs no forecast for it."""
        forecast, step = self._observe(y, x)
        # In a stack as in a run, so that both have the same bits.
        return step._replace(
            anomaly_score=float(Forecasts.stack([forecast]).anomaly_score(y[None])[0])
        )

    @abstractmethod
    def _observe(self, y: Array, x: Any) -> tuple[Forecast, Step]: ...

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        raise RegimekitError(f"{self.name} forecasts one step ahead only. Use predict().")

    @abstractmethod
    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]: ...

    @abstractmethod
    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None: ...

    def _check_stream(self, y: Array, table: Table | None) -> list[Any]:
        """Validate a stream before the model changes; return the validated covariates."""
        if np.isinf(y).any():
            row = int(np.flatnonzero(np.isinf(y).any(axis=1))[0])
            raise RegimekitError(f"y is infinite at row {row}. Pass NaN for a missing value.")
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
