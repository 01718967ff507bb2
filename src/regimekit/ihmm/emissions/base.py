"""What an emission is to the engine: arrays of rows, and a few kernels over them.

A *row* holds the sufficient statistics of one regime. The engine owns the rows (which regime,
who shares it, when it is freed) and never looks inside; the emission owns their meaning. A
*candidate* is what a row becomes inside a batch. It lives in the emission's work space, at place
(g, k): candidate k of island g. A new emission is one file: its rows, its work space, a subclass
of `Emission`, and these kernels, each registered for the type of its rows (`rest` and `carry` do
nothing unless they are):

    begin    a candidate starts from a row
    look     the candidate's forecast of the next observation
    learn    it sees the observation: its score, its weight, its posterior
    rest     it sees nothing for a moment
    carry    what time does to the candidate's row at the end of a batch, chosen or not
    close    the candidate becomes a row
    apart    how far two rows are from being the same regime, coefficient by coefficient
    apart_anyhow   the same along any direction
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import generic
from regimekit.ihmm.weights import BROAD_SCALE, Broad, Scoring

Array = NDArray[np.float64]
Rows = Any  # the emission's own NamedTuple of arrays whose first axis is the row
Work = Any  # the emission's own NamedTuple of arrays whose first axes are (island, candidate)
Facts = Any  # the emission's own NamedTuple of constants


class View(NamedTuple):
    """One-step predictives of all candidates, (G, K, ..); `look` writes them.

    The `start_` fields are those of the rows as the batch began (D4, D7 of the paper's text).
    """

    location: np.ndarray
    spread: np.ndarray
    dof: np.ndarray
    start_location: np.ndarray
    start_spread: np.ndarray
    start_dof: np.ndarray


class Sample(NamedTuple):
    """One observation as the kernels see it.

    Attributes:
        y: (d,) the observation.
        seen: (s,) the coordinates that were observed.
        design: (r, m) its features: one row for all coordinates, or one for each.
        lower: (d, d) scratch: a factor of the noise of the seen coordinates.
    """

    y: np.ndarray
    seen: np.ndarray
    design: np.ndarray
    lower: np.ndarray


class Shape(NamedTuple):
    """Sizes of an observation and its features.

    Attributes:
        dim: coordinates d of y.
        width: features per observation.
        shared: every coordinate has its own coefficients on the same features (F = I_d x phi');
            otherwise the features are the (d, width) design matrix itself.
    """

    dim: int
    width: int
    shared: bool = True

    @property
    def coefficients(self) -> int:
        return self.dim * self.width if self.shared else self.width


@generic
def begin(rows: Rows, work: Work, g: int, k: int, row: int) -> None:
    """Candidate (g, k) starts a batch from `row`."""


@generic
def look(
    rows: Rows, work: Work, facts: Facts, g: int, k: int, row: int, sample: Sample, out: View
) -> None:
    """Forecast of candidate (g, k), and of `row` as the batch began."""


@generic
def learn(
    rows: Rows,
    work: Work,
    facts: Facts,
    g: int,
    k: int,
    row: int,
    sample: Sample,
    view: View,
    scoring: Scoring,
    broad: Broad,
    fresh: bool,
    belief: int,
) -> tuple[float, float]:
    """Candidate (g, k) sees the observation it has looked at; its score and its weight."""
    raise NotImplementedError  # every emission registers its own


@generic
def rest(rows: Rows, work: Work, g: int, k: int) -> None:
    """A moment without an observation."""


@generic
def carry(rows: Rows, work: Work, facts: Facts, g: int, k: int, row: int) -> None:
    """What time does to `row` at the end of a batch, whether its candidate is chosen or not."""


@generic
def close(rows: Rows, work: Work, facts: Facts, g: int, k: int, row: int, into: int) -> None:
    """Write the row that candidate (g, k) of `row` has become."""


@generic
def draw_prior(rows: Rows, facts: Facts, prior: int, row: int, rng: np.random.Generator) -> None:
    """Make `row` a copy of `prior` around a mean of its own (D9)."""


@generic
def apart(rows: Rows, a: int, b: int) -> float:
    """Largest distance between coefficients of two rows, in posterior standard deviations."""
    raise NotImplementedError  # every emission registers its own


@generic
def apart_anyhow(rows: Rows, a: int, b: int) -> float:
    """The same along the direction in which they differ most; dear where there are many.

    A level and the coefficient of a lag may each be in doubt while what they say together is not.
    """
    return 0.0  # where there is one coefficient `apart` has said it


@dataclass(frozen=True)
class EmissionSpec(ABC):
    """An emission's settings: a frozen dataclass of JSON values that can build it."""

    @abstractmethod
    def build(self, shape: Shape, scoring: Scoring) -> Emission:
        """The emission for observations and features of this shape."""

    @abstractmethod
    def dim_hint(self) -> int | None:
        """The number of coordinates that the settings imply, if they do."""

    @abstractmethod
    def check(self) -> None:
        """Refuse settings that no shape could make right."""


class Emission(ABC):
    """The distribution of one observation given a regime, with its posterior per row."""

    shape: Shape
    scoring: Scoring
    facts: Facts
    timeless = True  # a row says the same of an observation whenever it is asked

    @abstractmethod
    def blank(self, capacity: int) -> Rows:
        """Room for `capacity` rows."""

    @abstractmethod
    def work(self, islands: int, candidates: int, longest: int) -> Work:
        """Work space for batches of up to `longest` observations."""

    @abstractmethod
    def write_prior(self, rows: Rows, row: int) -> None:
        """Make `row` a regime that has seen nothing."""

    @abstractmethod
    def design(self, features: Array) -> Array:
        """The features of one observation, (r, m), in the shape the kernels want."""

    def designs(self, features: Array) -> Array:
        """The same for many observations: (T, r, m)."""
        return np.stack([self.design(row) for row in features])

    def design_shape(self) -> tuple[int, int]:
        """(r, m) of `design`."""
        return (1, self.shape.width)

    def most_steps(self, longest: int) -> int:
        """Largest whole number in the work space of a batch of `longest` observations."""
        return longest

    @abstractmethod
    def check_rows(self, rows: Rows, live: NDArray[np.int64]) -> None:
        """Refuse rows, read from a snapshot, that no filter could have written."""

    @abstractmethod
    def noise_covariance(self) -> Array:
        """(d, d) noise of one observation: known, or the prior's guess."""

    def outlier_scale(self) -> Array:
        """(d, d) scale matrix of the outliers' density q."""
        return np.asarray(BROAD_SCALE**2 * self.noise_covariance())

    @abstractmethod
    def coefficients(self, rows: Rows, row: int) -> tuple[Array, Array]:
        """Posterior mean and standard deviation of a regime's coefficients."""
