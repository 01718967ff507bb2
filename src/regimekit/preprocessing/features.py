"""Regressors of an observation: phi_t = f(x_t, t, y_{t-1}, y_{t-2}, ...), k numbers.

    f = f_1 + f_2 + ...        concatenated: intercept() + powers(2) + lags(1, 24)

x_t is known before y_t, and only earlier y are used, so features do not use future values. The same
code computes one row and a whole frame, so both give the same bits.

Example:
    >>> from regimekit import features
    >>> f = features.intercept() + features.lags(1)
    >>> f.frame(None, [10.0, 20.0, 30.0]).tolist()
    [[1.0, 0.0], [1.0, 10.0], [1.0, 20.0]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from regimekit.core.exceptions import RegimekitError, whole
from regimekit.core.limits import MAX_FEATURES
from regimekit.preprocessing.feature_terms import (
    MAX_FLOAT,
    Array,
    Columns,
    Intercept,
    Lags,
    Matrix,
    Moment,
    Names,
    Powers,
    Season,
    Term,
    TermLayout,
    read_term,
)
from regimekit.preprocessing.frames import Row, Table, aligned, read_row, read_series, read_table

_MAX_LAYOUTS = 8  # shapes of x whose layout is stored


@dataclass(frozen=True, repr=False)
class Features:
    """An immutable feature map; `+` concatenates two."""

    terms: tuple[Term, ...]
    _layouts: dict[Any, TermLayout] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        if not self.terms:
            raise RegimekitError(
                "features must not be empty. Use intercept() for a constant level."
            )
        if len(self.terms) > MAX_FEATURES:
            raise RegimekitError(
                f"features must have at most {MAX_FEATURES} terms, got {len(self.terms)}."
            )
        if len(self.terms) > 1 and any(isinstance(term, Matrix) for term in self.terms):
            raise RegimekitError(
                f"features: matrix cannot be combined with other terms ({self!r})."
            )

    def __add__(self, other: Features) -> Features:
        if not isinstance(other, Features):
            raise RegimekitError(f"features: {other!r} cannot be added to {self!r}.")
        return Features(self.terms + other.terms)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.terms))

    @cached_property
    def depth(self) -> int:
        """Largest lag; 0 without lags."""
        return max(term.depth for term in self.terms)

    @cached_property
    def needs_x(self) -> bool:
        """Whether any feature uses covariates."""
        return any(term.needs_x for term in self.terms)

    @cached_property
    def is_constant(self) -> bool:
        """Whether the features are the same for every observation."""
        return self._constant is not None

    @cached_property
    def is_matrix(self) -> bool:
        """Whether x is the design matrix."""
        return isinstance(self.terms[0], Matrix)

    def check(self, x: Any, like: Row | None = None) -> Row | None:
        """Validate the covariates of one observation.

        Args:
            x: number, vector, mapping of names to numbers, Row, or a row of a data frame.
            like: an earlier row; x must have the same covariates and is put into their order.

        Returns:
            The argument of `row`; None if no feature uses covariates.

        Raises:
            RegimekitError: if covariates are missing or invalid.
        """
        if not self.needs_x:
            return None
        if x is None:
            raise RegimekitError(f"x is missing; {self!r} needs covariates.")
        row = read_row(x)
        row = row if like is None else aligned(row, like)
        if self.is_matrix and row.values.ndim == 2 and len(row.values) == 1:
            row = Row(row.values[0], row.names)
        self._layout(row.names, row.values.shape, len(row.values) if row.values.ndim == 2 else 1)
        if not np.maximum.reduce(np.abs(row.values), axis=None) <= self._limit:
            row = Row(self._used_only(row.values, row.names), row.names)
            self._refuse(row)
        return row

    def check_all(self, table: Table | None, n: int, like: Row | None) -> list[Row | None] | None:
        """Return the outputs of `check` for n rows; None if each row must be checked by itself.

        Args:
            table: covariates, or None.
            n: number of rows.
            like: as for `check`.
        """
        if not self.needs_x:
            return [None] * n
        if table is None or n == 0 or self.is_matrix:
            return None
        if not np.maximum.reduce(np.abs(table.values), axis=None) <= self._limit:
            return None
        try:
            first = self.check(table.row(0), like)
        except RegimekitError:  # the check of single rows reports the row
            return None
        if first is None or first.names != table.names:
            return None
        return [Row(values, first.names) for values in table.values.copy()]

    def row(self, x: Row | None, t: int, past: Array) -> Array:
        """Return the features of one observation: (k,), or the (d, width) design of a matrix.

        Args:
            x: output of `check`.
            t: time index, counted from 0, missing observations included.
            past: (depth, d) earlier observations, latest last, as `LagBuffer.clean`.
        """
        if self._constant is not None:
            return self._constant
        values, names = (None, None) if x is None else x
        return self._fill((), names, Moment(values, t, past))

    def block(self, rows: Sequence[Row | None], t: int, past: Array, y: Array) -> Array:
        """Return the features of consecutive observations, (T, k).

        Args:
            rows: outputs of `check`, one per observation.
            t: time index of the first observation.
            past: (depth, d) observations before it, latest last.
            y: (T, d) the observations; the features of each use only earlier ones.
        """
        n = len(y)
        if self._constant is not None:
            return np.broadcast_to(self._constant, (n, self._constant.size))
        values, names = None, None
        if rows[0] is not None:
            values, names = np.stack([row.values for row in rows if row is not None]), rows[0].names
        return self._fill((n,), names, Moment(values, t + np.arange(n), self._windows(y, past)))

    def many(self, x: Row | None, t: int, pasts: Array) -> Array:
        """Return the features of one time for several pasts, (P, k).

        Args:
            x, t: as for `row`.
            pasts: (P, depth, d).
        """
        values, names = (None, None) if x is None else x
        n = len(pasts)
        if values is not None:
            values = np.broadcast_to(values, (n, *values.shape))
        return self._fill((n,), names, Moment(values, np.full(n, t), pasts))

    def frame(self, X: Any, y: Any = None, dim: int = 1) -> Array:
        """Return the features of a whole stream, (T, k); row t equals `row` at time t.

        Args:
            X: covariates, one row per observation; None if no feature uses any.
            y: observations, needed for lags.
            dim: number of coordinates of y, if y is not given.
        """
        if y is None and self.depth:
            raise RegimekitError(f"y is missing; {self!r} needs past observations.")
        series = None if y is None else read_series(y).values
        table = self._table(X, series)
        n = len(table.values) if series is None else len(series)
        past = self._windows(np.full((n, whole("dim", dim)), np.nan) if series is None else series)
        values = table.values if self.needs_x else None
        return self._fill((n,), table.names, Moment(values, np.arange(n), past))

    def width(self, x: Row | None, dim: int) -> int:
        """Return the number of features k.

        Args:
            x: output of `check`.
            dim: number of coordinates d of y.
        """
        return len(self.names(x, dim))

    def names(self, x: Row | None, dim: int) -> list[str]:
        """Return the names of the features.

        Args:
            x, dim: as for `width`.
        """
        values, names = (None, None) if x is None else x
        return list(self._layout(names, () if values is None else values.shape, dim).labels)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the map as JSON values for `from_json`."""
        return [term.to_json() for term in self.terms]

    @cached_property
    def _constant(self) -> Array | None:
        """The features if they are constant; read-only, because all callers share them."""
        if not all(isinstance(term, Intercept) for term in self.terms):
            return None
        ones = np.ones(len(self.terms))
        ones.flags.writeable = False
        return ones

    @cached_property
    def _limit(self) -> float:
        """Covariates up to this absolute value need no further check."""
        return min((t.limit for t in self.terms if isinstance(t, Powers)), default=MAX_FLOAT)

    def _fill(self, lead: tuple[int, ...], names: Names, moment: Moment) -> Array:
        """Return the features of observations whose inputs have the leading axes `lead`."""
        shape = () if moment.values is None else moment.values.shape[len(lead) :]
        layout = self._layout(names, shape, moment.past.shape[-1])
        return layout.fill(np.empty((*lead, *layout.shape)), moment)

    def _layout(self, names: Names, shape: tuple[int, ...], dim: int) -> TermLayout:
        key = (names, shape, dim)
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._make_layout(names, shape, dim)
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = layout
        return layout

    def _make_layout(self, names: Names, shape: tuple[int, ...], dim: int) -> TermLayout:
        if self.needs_x:
            self._check_shape(shape, dim)
        size = shape[-1] if shape else 0
        known = names or (None,) * size
        columns = [name if isinstance(name, str) else f"x{i}" for i, name in enumerate(known)]
        labels: list[str] = []
        parts = []
        for term in self.terms:
            index = term.picks(names, size)
            if index is None or not term.needs_x:
                own = term.labels(columns, dim)
            else:
                own = term.labels([columns[i] for i in index], dim)
            parts.append((term, slice(len(labels), len(labels) + len(own)), index))
            labels += own
        lead = (dim,) if self.is_matrix and dim > 1 else ()
        return TermLayout((*lead, len(labels)), labels, parts)

    def _check_shape(self, shape: tuple[int, ...], dim: int) -> None:
        first = self.terms[0]
        if not shape:
            raise RegimekitError(f"x is missing; {self!r} needs covariates.")
        if isinstance(first, Matrix):
            wanted = (first.width,) if dim == 1 else (dim, first.width)
            if shape != wanted:
                raise RegimekitError(f"x must have shape {wanted} for {self!r}, got {shape}.")
        elif len(shape) != 1:
            raise RegimekitError(f"x must be a vector, got shape {shape}.")
        elif not shape[0]:
            raise RegimekitError(f"x is empty; {self!r} needs covariates.")

    def _used_only(self, values: Array, names: Names) -> Array:
        """Set columns that no feature uses to 0; they may have any content."""
        used = np.zeros(values.shape[-1], bool)
        for term in self.terms:
            if term.needs_x:
                index = term.picks(names, values.shape[-1])
                used[slice(None) if index is None else index] = True
        return values if used.all() else np.where(used, values, 0.0)

    def _refuse(self, row: Row, place: str = "") -> None:
        """Raise if covariates are missing, infinite or too large for a power."""
        bad = np.argwhere(~np.isfinite(row.values))
        if len(bad):
            missing = np.isnan(row.values[tuple(bad[0])])
            what = "NaN, or not a number," if missing else "infinite"
            at = int(bad[0][-1])
            column = at if row.names is None else row.names[at]
            raise RegimekitError(
                f"x is {what} in column {column!r}{place}. Fill it in, encode text as numbers, or "
                "select the columns to use."
            )
        for term in self.terms:
            if isinstance(term, Powers):
                index = term.picks(row.names, row.values.size)
                largest = np.abs(row.values if index is None else row.values[index]).max()
                if largest > term.limit:
                    raise RegimekitError(
                        f"x = {largest:g}{place} overflows in {term!r}. Rescale x."
                    )

    def _table(self, X: Any, series: Array | None) -> Table:
        """Return the validated covariates of a whole stream."""
        if series is not None and not self.needs_x:
            return Table(np.empty((len(series), 0)))
        table = read_table(X, length=None if series is None else len(series))
        if table is None:
            need = (
                f"{self!r} needs covariates" if self.needs_x else "X or y sets the number of rows"
            )
            raise RegimekitError(f"X is missing; {need}.")
        if self.is_matrix and table.values.ndim == 3 and table.values.shape[1] == 1:
            table = Table(table.values[:, 0], table.names)
        if self.needs_x:
            table = table._replace(values=self._used_only(table.values, table.names))
            within_row = tuple(range(1, table.values.ndim))
            size = np.abs(table.values).max(axis=within_row, initial=0.0)
            for t in np.flatnonzero(~(size <= self._limit)).tolist():
                self._refuse(table.row(t), f" at row {t} of X")
        return table

    def _windows(self, series: Array, past: Array | None = None) -> Array:
        """Return the past before each observation as a view, (T, depth, d)."""
        n, dim = series.shape
        if np.isinf(series).any():
            where = int(np.flatnonzero(np.isinf(series).any(axis=1))[0])
            raise RegimekitError(f"y is infinite at row {where}. Pass NaN for a missing value.")
        if not self.depth:
            return np.empty((n, 0, dim))
        seen = np.where(np.isnan(series), -1, np.arange(n)[:, None])
        latest = np.maximum.accumulate(seen, axis=0)
        filled = np.take_along_axis(series, np.maximum(latest, 0), axis=0)
        before = np.zeros((self.depth, dim)) if past is None else past
        padded = np.concatenate([before, np.where(latest < 0, before[-1], filled)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.depth, axis=0)
        return np.moveaxis(windows[:n], -1, 1)


def intercept() -> Features:
    """Return the constant 1, the feature of a level.

    Example:
        >>> intercept().frame(None, [5.0, 6.0]).tolist()
        [[1.0], [1.0]]
    """
    return Features((Intercept(),))


def columns(*names: str | int) -> Features:
    """Return covariates unchanged.

    Args:
        *names: names or positions; by default all covariates, in order.

    Example:
        >>> columns("wind").names(columns("wind").check({"rain": 0.0, "wind": 3.0}), dim=1)
        ['wind']
    """
    return Features((Columns(names),))


def powers(degree: int, *names: str | int) -> Features:
    """Return the powers 1 .. degree of covariates: first all of them, then their squares, ..

    Args:
        degree: largest power.
        *names: as for `columns`.

    Example:
        >>> powers(2).frame([[2.0, 3.0]]).tolist()
        [[2.0, 3.0, 4.0, 9.0]]
    """
    return Features((Powers(degree, names),))


def season(period: float, harmonics: int = 1) -> Features:
    """Return cos and sin of 2 pi h t / period for h = 1 .. harmonics; t counts from 0.

    Args:
        period: length of a season in observations.
        harmonics: number of frequencies.

    Example:
        >>> season(4).frame(None, [0.0, 0.0, 0.0]).round(12).tolist()
        [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
    """
    return Features((Season(period, harmonics),))


def lags(*steps: int) -> Features:
    """Return earlier observations; a missing one repeats the one before it, or 0.

    In the infinite HMMs with a robust weight and in `auto`, an outlier is used as a lag only if the
    next observation continues from it (`regimekit.preprocessing.lag_buffer`).

    Args:
        *steps: how many observations ago, from 1.

    Example:
        >>> lags(1, 2).frame(None, [5.0, None, 7.0]).tolist()
        [[0.0, 0.0], [5.0, 0.0], [5.0, 5.0]]
    """
    return Features((Lags(steps),))


def matrix(width: int) -> Features:
    """Return x as the design matrix, (d, width), or (width,) for d = 1. It is the only term.

    Example:
        >>> matrix(3).frame([[1.0, 2.0, 3.0]]).tolist()
        [[1.0, 2.0, 3.0]]
    """
    return Features((Matrix(width),))


def from_json(spec: Any) -> Features:
    """Return the map of a description.

    Args:
        spec: output of `Features.to_json`.

    Example:
        >>> from_json([{"term": "intercept"}, {"term": "lags", "steps": [1, 24]}])
        intercept() + lags(1, 24)
    """
    if not isinstance(spec, (list, tuple)):
        raise RegimekitError(f"features must be Features or a list of terms, got {spec!r}.")
    return Features(tuple(read_term(entry) for entry in spec))


def read(spec: Any) -> Features:
    """Return a feature map from any of its forms.

    Args:
        spec: Features, their JSON, or None for `intercept()`.

    Example:
        >>> read(None)
        intercept()
    """
    if spec is None:
        return intercept()
    return spec if isinstance(spec, Features) else from_json(spec)
