"""Terms of a feature map: the inputs and features of each, and the names of its features."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, positive, unknown, whole
from regimekit.core.limits import MAX_FEATURES
from regimekit.preprocessing.frames import position

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Names = tuple[str, ...] | None
MAX_FLOAT = float(np.finfo(np.float64).max)


class Moment(NamedTuple):
    """Inputs of the features: of one observation or, with a leading axis, of several."""

    values: Any  # (.., n) covariates
    t: Any  # time index from 0
    past: Array  # (.., depth, d) earlier y, latest last, missing values filled in


@dataclass(frozen=True, repr=False)
class Term(ABC):
    """Part of a feature map. Its fields are the arguments of its constructor.

    Arguments of the methods:
        names: names of the covariates, or None.
        size: number of covariates.
        columns: names of the covariates or lags that the term reads.
        dim: number of coordinates d of y.
        out: (.., k) output.
        index: positions of the inputs that the term reads; None for all.
        moment: inputs.
    """

    kind: ClassVar[str]
    needs_x: ClassVar[bool] = False

    @property
    def depth(self) -> int:
        """Largest lag; 0 without lags."""
        return 0

    def picks(self, names: Names, size: int) -> Index | None:
        """Return the positions of the covariates or lags that the term reads; None for all."""
        return None

    @abstractmethod
    def labels(self, columns: list[str], dim: int) -> list[str]:
        """Return the names of its features."""

    @abstractmethod
    def fill(self, out: Array, index: Index | None, moment: Moment) -> None:
        """Write its features to the last axis of `out`."""

    def to_json(self) -> dict[str, Any]:
        """Return the term as JSON values for `read_term`."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        lists = {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}
        return {"term": self.kind, **lists}

    def __repr__(self) -> str:
        given = [getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default]
        flat = [v for value in given for v in (value if isinstance(value, tuple) else [value])]
        return f"{self.kind}({', '.join(map(repr, flat))})"

    def _set(self, **tidied: Any) -> None:
        for name, value in tidied.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, repr=False)
class Intercept(Term):
    """The constant 1, the feature of a level."""

    kind: ClassVar[str] = "intercept"

    def labels(self, columns: list[str], dim: int) -> list[str]:
        return ["intercept"]

    def fill(self, out: Array, index: Index | None, moment: Moment) -> None:
        out[...] = 1.0


@dataclass(frozen=True, repr=False)
class Powers(Term):
    """x, x^2, .. of covariates by name or position (all by default), power by power."""

    degree: int
    names: tuple[str | int, ...] = ()
    kind: ClassVar[str] = "powers"
    needs_x: ClassVar[bool] = True

    def __post_init__(self) -> None:
        names = _distinct("names", self.names, _column)
        self._set(degree=whole("degree", self.degree, most=MAX_FEATURES), names=names)

    @property
    def limit(self) -> float:
        """Largest |x| whose powers are finite."""
        return MAX_FLOAT if self.degree == 1 else MAX_FLOAT ** (1 / self.degree) * (1 - 1e-12)

    def picks(self, names: Names, size: int) -> Index | None:
        if not self.names:
            return None
        return np.array([position(name, names, size) for name in self.names], dtype=np.intp)

    def labels(self, columns: list[str], dim: int) -> list[str]:
        powers = ["", *(f"^{power}" for power in range(2, self.degree + 1))]
        return [name + power for power in powers for name in columns]

    def fill(self, out: Array, index: Index | None, moment: Moment) -> None:
        base = moment.values if index is None else moment.values[..., index]
        n = base.shape[-1]
        out[..., :n] = power = base
        for start in range(n, n * self.degree, n):
            # Unlike pow, a product gives the same bits on every platform.
            power = power * base
            out[..., start : start + n] = power


@dataclass(frozen=True, repr=False)
class Columns(Powers):
    """Unchanged covariates."""

    degree: int = field(default=1, init=False)
    kind: ClassVar[str] = "columns"

    def to_json(self) -> dict[str, Any]:
        return {"term": self.kind, "names": list(self.names)}


@dataclass(frozen=True, repr=False)
class Season(Term):
    """cos and sin of 2 pi h t / period for h = 1 .. harmonics."""

    period: float
    harmonics: int = 1
    kind: ClassVar[str] = "season"

    def __post_init__(self) -> None:
        period = positive("period", self.period)
        if math.isinf(period):
            raise RegimekitError("period must be finite, got inf.")
        period = int(period) if period.is_integer() else period
        self._set(period=period, harmonics=whole("harmonics", self.harmonics, most=MAX_FEATURES))

    def labels(self, columns: list[str], dim: int) -> list[str]:
        parts = ["", *(f"/{h}" for h in range(2, self.harmonics + 1))]
        return [f"{wave} {self.period}{part}" for part in parts for wave in ("cos", "sin")]

    def fill(self, out: Array, index: Index | None, moment: Moment) -> None:
        if not isinstance(moment.t, np.ndarray):
            out[...] = self._waves(moment.t)
        elif moment.t.size:
            # NumPy's cosine of an array may differ from that of a number in the last bit, so
            # numbers are used here too, once for each phase.
            phases, where = np.unique(np.fmod(moment.t, self.period), return_inverse=True)
            out[...] = np.array([self._waves(phase) for phase in phases.tolist()])[where]

    def _waves(self, t: float) -> list[float]:
        # fmod is exact, so the phase does not lose accuracy in long streams.
        angle = 2 * math.pi * (math.fmod(t, self.period) / self.period)
        angles = [h * angle for h in range(1, self.harmonics + 1)]
        return [wave(a) for a in angles for wave in (math.cos, math.sin)]


@dataclass(frozen=True, repr=False)
class Lags(Term):
    """Earlier observations, all coordinates."""

    steps: tuple[int, ...]
    kind: ClassVar[str] = "lags"

    def __post_init__(self) -> None:
        self._set(steps=_distinct("steps", self.steps, whole))
        if not self.steps:
            raise RegimekitError("steps must not be empty. Pass the lags, as in lags(1, 24).")

    @property
    def depth(self) -> int:
        return max(self.steps)

    def picks(self, names: Names, size: int) -> Index | None:
        return -np.array(self.steps, dtype=np.intp)

    def labels(self, columns: list[str], dim: int) -> list[str]:
        ends = [""] if dim == 1 else [f" of y{j}" for j in range(dim)]
        return [f"lag {step}{end}" for step in self.steps for end in ends]

    def fill(self, out: Array, index: Index | None, moment: Moment) -> None:
        out[...] = moment.past[..., index, :].reshape(out.shape)


@dataclass(frozen=True, repr=False)
class Matrix(Term):
    """x is the design matrix: (d, width), or (width,) for d = 1."""

    width: int
    kind: ClassVar[str] = "matrix"
    needs_x: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._set(width=whole("width", self.width, most=MAX_FEATURES))

    def labels(self, columns: list[str], dim: int) -> list[str]:
        return columns

    def fill(self, out: Array, index: Index | None, moment: Moment) -> None:
        out[...] = moment.values


class TermLayout(NamedTuple):
    """Positions of the terms for covariates of one shape.

    Attributes:
        shape: of the features of one observation.
        labels: names of the features.
        parts: each term with the features that it writes and the inputs that it reads.
    """

    shape: tuple[int, ...]
    labels: list[str]
    parts: list[tuple[Term, slice, Index | None]]

    def fill(self, out: Array, moment: Moment) -> Array:
        """Write the features of every term and return `out`.

        Args:
            out: (.., k) output.
            moment: inputs.
        """
        for term, where, index in self.parts:
            term.fill(out[..., where], index, moment)
        return out


_TERMS: dict[str, type[Term]] = {
    term.kind: term for term in (Intercept, Columns, Powers, Season, Lags, Matrix)
}


def read_term(entry: Any) -> Term:
    """Return the term of a JSON description.

    Args:
        entry: its name as "term", and its arguments.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("term"), str):
        raise RegimekitError(f'features: a term must be {{"term": "lags", ..}}, got {entry!r}.')
    if entry["term"] not in _TERMS:
        raise unknown("features", entry["term"], _TERMS)
    try:
        return _TERMS[entry["term"]](**{k: v for k, v in entry.items() if k != "term"})
    except TypeError:
        raise RegimekitError(f"features: {dict(entry)!r} has the wrong arguments.") from None


def _distinct(argument: str, given: Any, tidy: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    if not isinstance(given, (list, tuple)):
        raise RegimekitError(f"{argument} must be a list, got {given!r}.")
    if len(given) > MAX_FEATURES:
        raise RegimekitError(
            f"{argument} must have at most {MAX_FEATURES} entries, got {len(given)}."
        )
    tidied = tuple(tidy(argument, value) for value in given)
    if len(set(tidied)) < len(tidied):
        raise RegimekitError(f"{argument} must be distinct, got {tidied}.")
    return tidied


def _column(argument: str, name: Any) -> str | int:
    if isinstance(name, str):
        return str(name)
    if isinstance(name, (int, np.integer)):
        return whole(argument, name, 0)
    raise RegimekitError(f"{argument} must be column names or positions, got {name!r}.")
