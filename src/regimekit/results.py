"""Results of the models: a Step per observation, a Run per stream, Regimes and Events."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core import display
from regimekit.core.exceptions import RegimekitError, whole

Array = NDArray[np.float64]

OPENED = "regime opened"
RETURNED = "regime returned"
PRUNED = "regime pruned"
OUTLIER = "outlier"
CHANGES = (OPENED, RETURNED)  # exactly one of them for every change of the reported regime

UNKNOWN, NORMAL, FAULT = "unknown", "normal", "fault"
STATUSES = (UNKNOWN, NORMAL, FAULT)  # of a regime

NO_REGIME = -1  # before the first batch has been seen
_WIDEST = 10  # regimes whose transitions fit a terminal


class Event(NamedTuple):
    """A change of the regime, a pruned regime or an outlier.

    Attributes:
        time: index of the observation with which it became known.
        kind: "regime opened", "regime returned", "regime pruned" or "outlier".
        regime: id of its regime.
        previous: id of the regime reported before it.
        since: index of the first observation that belongs to it.
        label: of `since` in the caller's index, where there is one.
    """

    time: int
    kind: str
    regime: int
    previous: int = NO_REGIME
    since: int = 0
    label: Any = None

    @property
    def is_change(self) -> bool:
        """Whether one regime follows another; the first regime of a stream is no change."""
        return self.kind in CHANGES and self.previous != NO_REGIME


class Regime(NamedTuple):
    """A regime in memory.

    Attributes:
        id: constant as long as the regime is in memory.
        visits: number of its observations.
        first_seen: time index of its first observation.
        last_seen: time index of its latest observation.
        mean: posterior mean of its coefficients.
        sd: posterior standard deviation of its coefficients.
        probability: share of the particles' weight that remembers it.
        typical: median of the observations assigned to it: a number, or (d,) for d > 1; NaN if
            none was observed. A change that was recognised late is dated back.
        low: their 5 % quantile.
        high: their 95 % quantile.
        share: share of all observations that are assigned to it.
        duration: median length of a visit in observations. A visit is a stretch of consecutive
            observations in the regime; the one under way counts as it is.
        n_visits: number of visits.
        name: name given by the user, or "".
        status: "unknown", or "normal" or "fault" as labelled by the user.
        summary: one sentence that states what distinguishes it from the other regimes.
    """

    id: int
    visits: int
    first_seen: int
    last_seen: int
    mean: Array
    sd: Array
    probability: float = 1.0
    typical: Any = float("nan")
    low: Any = float("nan")
    high: Any = float("nan")
    share: float = float("nan")
    duration: float = float("nan")
    n_visits: int = 0
    name: str = ""
    status: str = UNKNOWN
    summary: str = ""

    def __repr__(self) -> str:
        if self.summary:
            return display.short(f"Regime({self.id}: {self.summary})")
        seen = f"{display.count(self.visits, 'observation')}, {self.first_seen} to {self.last_seen}"
        mean, sd = display.vector(self.mean), display.vector(self.sd)
        return display.short(f"Regime({self.id}: mean {mean}, sd {sd}; {seen})")


class Transitions(NamedTuple):
    """Expected probabilities of moving between regimes from one batch to the next.

    Rows may sum to less than one: the rest belongs to regimes not opened yet.
    """

    ids: list[int]
    matrix: Array

    def __repr__(self) -> str:
        if len(self.ids) > _WIDEST:
            return f"Transitions(between {len(self.ids)} regimes; see .ids and .matrix)"
        header, rows = self._cells()
        return f"Transitions, from one batch to the next\n{display.table(header, rows)}"

    def _repr_html_(self) -> str:
        return display.html("Transitions, from one batch to the next", *self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [f"from {identity}", *(f"{p:.3f}" for p in row)]
            for identity, row in zip(self.ids, self.matrix, strict=True)
        ]
        return ["", *(f"to {identity}" for identity in self.ids)], rows


class Step(NamedTuple):
    """Result of one update.

    Attributes:
        regime: id of the regime with most of the weight (NO_REGIME before any is known).
        regime_probability: posterior probability of that regime.
        weight: weight of the observation in the update, in (0, 1].
        outlier: whether the weight is below the outlier level of the model.
        change_probability: posterior probability that the regime has just changed.
        n_regimes: number of regimes in particles with most of the weight.
        ess: effective sample size of the particles.
        log_score: log predictive density of the observation before the update.
        anomaly_score: 1 - p, p the two-sided tail probability of the observation under its
            forecast (`Forecast.anomaly_score`); NaN if it is missing. While the regime is a fault,
            p is that in the regimes that are no faults, times the probability of no fault, if that
            is smaller.
        settled: number of latest observations whose regime is final with this update: the
            whole batch at its end, 0 inside it.
        events: what became known with this observation.
    """

    regime: int = NO_REGIME
    regime_probability: float = 1.0
    weight: float = 1.0
    outlier: bool = False
    change_probability: float = 0.0
    n_regimes: int = 0
    ess: float = 1.0
    log_score: float = float("nan")
    anomaly_score: float = float("nan")
    settled: int = 1
    events: tuple[Event, ...] = ()

    def __repr__(self) -> str:
        parts = [
            f"regime {self.regime} ({self.regime_probability:.0%})",
            f"weight {self.weight:.2f}{', an outlier' if self.outlier else ''}",
            f"P(change) {self.change_probability:.2f}",
            *(f"{e.kind} {e.regime}" for e in self.events if e.kind != OUTLIER),
        ]
        return display.short(f"Step({', '.join(parts)})")


def retrospective_path(
    regime: NDArray[np.int64], events: list[Event], first: int = 0, lag: int | None = None
) -> NDArray[np.int64]:
    """Return the path of regimes with each change dated back to where it began.

    Args:
        regime: (T,) regimes as reported.
        events: events of the run.
        first: index of the first observation in the stream.
        lag: number of observations after which changes of a row are ignored; None for all.

    Returns:
        (T,) regimes. Rows before the first regime is known get the first regime.
    """
    path = regime.copy()
    for event in events:
        if event.kind in CHANGES:
            known = event.since if lag is None else max(event.since, event.time - lag)
            path[max(known - first, 0) : event.time - first] = event.regime
    return path


class Segment(NamedTuple):
    """Consecutive observations in one regime: start <= t < end."""

    regime: int
    start: int
    end: int


def segments(path: NDArray[np.int64]) -> list[Segment]:
    """Return the segments of equal regime of a path; rows without a regime are one of them.

    Args:
        path: (T,) regimes.

    Example:
        >>> segments(np.array([0, 0, 1]))
        [Segment(regime=0, start=0, end=2), Segment(regime=1, start=2, end=3)]
    """
    edges = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    return [Segment(int(path[a]), a, b) for a, b in pairwise(edges) if b > a]


@dataclass(eq=False, kw_only=True)
class StepColumns:
    """Fields of `Step` as columns, (T,) each, for consecutive observations."""

    log_score: Array
    weight: Array
    outlier: NDArray[np.bool_]
    regime: NDArray[np.int64]
    regime_probability: Array
    change_probability: Array
    n_regimes: NDArray[np.int64]
    ess: Array


@dataclass(eq=False, kw_only=True)
class Run(StepColumns):
    """One row per observation of a stream; each row uses only the data up to it, except `path`.

    `mean`, `median`, `sd`, `lower`, `upper` describe the one-step forecast made *before* the
    observation `y`, (T,) for d = 1, (T, d) otherwise; `lower` .. `upper` is its central interval
    of probability `level`. `path` is the regime of each observation in retrospect, with every
    change dated to where it began (`Event.since`). `anomaly_score` is as in `Step`.
    """

    y: Array
    mean: Array
    median: Array
    sd: Array
    lower: Array
    upper: Array
    anomaly_score: Array
    path: NDArray[np.int64]
    events: list[Event] = field(default_factory=list)
    level: float = 0.9
    first: int = 0  # how many observations the model had seen before
    index: Any = None  # the caller's index: a sequence of labels, or None
    native: Any = None  # the caller's data-frame module, for `frame()`
    name: str = ""  # of the column, where it has one, for `plot()`

    @classmethod
    def of_stored(cls, n: int, **known: Any) -> Run:
        """Return a run from the fields that are known; other columns are NaN.

        Args:
            n: number of observations.
            **known: fields by name.
        """
        absent: dict[str, Any] = {name: np.full(n, np.nan) for name in RUN_COLUMNS - known.keys()}
        return cls(**absent, **known)

    def __len__(self) -> int:
        return len(self.regime)

    @property
    def changepoints(self) -> list[int]:
        """First row of each segment of `path` except the first.

        Rows count from 0 in this run; `changepoint_labels` has the labels of the stream.
        """
        return _boundaries(self.path)

    @property
    def changepoint_labels(self) -> list[Any]:
        """Labels of the changepoints in the caller's index or column of times.

        Without labels, their indices in the whole stream, as in events.
        """
        return [self.label(row) for row in self.changepoints]

    def label(self, row: int) -> Any:
        """Return the label of a row of this run, or its index in the stream.

        Args:
            row: index in this run.
        """
        return self.first + row if self.index is None else self.index[row]

    @property
    def known_changepoints(self) -> list[int]:
        """Rows at which the changes were known: where the reported `regime` changes."""
        return _boundaries(self.regime)

    def smoothed(self, lag: int) -> NDArray[np.int64]:
        """Return the regime of each observation as it was known `lag` observations later.

        Fixed-lag smoothing of the reported regimes: a change moves a row to its regime if it was
        known at most `lag` observations after the row. Lag 0 is `regime`; a lag as long as the
        stream is `path`.

        Args:
            lag: number of observations to wait for.

        Returns:
            (T,) regime ids.

        Raises:
            RegimekitError: If `lag` is negative or not a whole number.
        """
        return retrospective_path(self.regime, self.events, self.first, whole("lag", lag, least=0))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the rows as columns by name, (T,) each (`mean_0`, `mean_1`, .. for d > 1)."""
        table: dict[str, NDArray[Any]] = {}
        for name in ("y", "mean", "median", "lower", "upper", "sd"):
            values = getattr(self, name)
            if values.ndim == 1:
                table[name] = values
            else:
                table |= {f"{name}_{j}": values[:, j] for j in range(values.shape[1])}
        for name in _SCALAR_COLUMNS:
            table[name] = getattr(self, name)
        return table

    def frame(self) -> Any:
        """Return the rows as a data frame of the caller's library (pandas for arrays).

        It has the caller's index, or the column of times first. Without labels, the index of a
        pandas frame counts the observations of the whole stream.
        """
        return labelled(self.columns(), self.native, self.index, self.first)

    def __repr__(self) -> str:
        known = display.count(len(np.unique(self.path[self.path != NO_REGIME])), "regime")
        changes = display.count(len(self.changepoints), "change")
        outliers = display.count(int(self.outlier.sum()), "outlier")
        begin = f", after {self.first} before" if self.first else ""
        head = (
            f"Run({display.count(len(self), 'observation')}{begin}: {known}, {changes}, {outliers}"
        )
        return display.short(f"{head}; {self._quality()})" if len(self) else head + ")")

    def _quality(self) -> str:
        """Mean absolute error, and coverage of the intervals."""
        seen = ~np.isnan(self.y)
        if not seen.any():
            return "nothing observed"
        off = np.abs(self.y - self.median)[seen].mean()
        covered = ((self.y >= self.lower) & (self.y <= self.upper))[seen].mean()
        return f"MAE {display.number(off)}, {self.level:.0%} intervals covered {covered:.0%}"

    def _repr_html_(self) -> str:
        """Return the latest rows, with the summary as caption."""
        shown = list(range(max(len(self) - _LATEST, 0), len(self)))
        table = {name: column for name, column in self.columns().items() if name in _HTML_COLUMNS}
        rows = [
            [str(self.label(t)), *(display.number(float(column[t])) for column in table.values())]
            for t in shown
        ]
        return display.html(repr(self), ["", *table], rows)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Plot the run: observations, forecast interval, outliers and regimes. Needs matplotlib.

        Times are those of the caller's index, if any, and the vertical axis has the name of the
        caller's column.

        Args:
            ax: axes to draw into; a new figure if not given.
            **options: as for `regimekit.plotting.plot_run`: `times`, `label`, `title`, ..

        Returns:
            The axes.

        Example:
            >>> import regimekit as rk
            >>> run = rk.br_ihmm(batch=3, particles=10).run([0.0, 0.1, -0.1, 5.0, 5.1, 4.9] * 4)
            >>> run.plot(label="level").get_ylabel()
            'level'
        """
        # By name: plotting is a higher layer, and matplotlib is loaded only if needed.
        drawn = import_module("regimekit.plotting").plot_run
        return drawn(self, ax=ax, **({"times": self.index} | options))


def labelled(table: dict[str, NDArray[Any]], native: Any, index: Any, first: int = 0) -> Any:
    """Return columns as a data frame of a library, with the labels of their rows.

    Args:
        table: the columns.
        native: the library; None for pandas.
        index: labels: a pandas index, a series of times, or None.
        first: number of the first row, where there are no labels.
    """
    import narwhals as nw

    if native is None:
        native = _pandas()
    # Libraries infer the type of a list of dates with time zones, but not of an object array.
    table = {n: c.tolist() if c.dtype == object else c for n, c in table.items()}
    times = nw.from_native(index, pass_through=True, allow_series=True)
    if isinstance(times, nw.Series):
        frame: Any = nw.from_dict(table, backend=native)
        times = times.alias(times.name or "time")
        return frame.with_columns(times).select(times.name, *table).to_native()
    frame = nw.from_dict(table, backend=native).to_native()
    if index is not None:
        frame.index = index
    elif hasattr(frame, "index") and first:
        frame.index = frame.index + first
    return frame


def _pandas() -> Any:
    try:
        return import_module("pandas")
    except ModuleNotFoundError:
        raise RegimekitError(
            "A frame of plain arrays needs pandas, which is not installed; install it, give y as a "
            "polars series, or use columns()."
        ) from None


def _boundaries(regime: NDArray[np.int64]) -> list[int]:
    """First index of each segment but the first; rows before the first regime do not count."""
    moved = (regime[1:] != regime[:-1]) & (regime[:-1] != NO_REGIME)
    return [int(t) + 1 for t in np.flatnonzero(moved)]


RUN_COLUMNS = {f.name for f in fields(Run) if f.default is f.default_factory is MISSING}
_LATEST = 10  # rows that a notebook shows
_HTML_COLUMNS = ("y", "median", "lower", "upper", "regime", "weight", "outlier")
_SCALAR_COLUMNS = (
    "regime",
    "regime_probability",
    "weight",
    "outlier",
    "change_probability",
    "log_score",
    "anomaly_score",
    "n_regimes",
    "ess",
    "path",
)
