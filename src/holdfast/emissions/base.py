"""What an emission is to the engine: arrays of rows, and a few functions over them.

A *row* holds the sufficient statistics of one regime. The engine owns the rows (which regime,
who shares it, when it is freed) and never looks inside; the emission owns their meaning. A new
emission is one file: its kernels and a subclass of `Emission`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.weights import Caution

Array = NDArray[np.float64]
Rows = Any  # the emission's own NamedTuple of arrays whose first axis is the row


class Components(NamedTuple):
    """One-step predictive of K rows: location (K, d), spread (K, d, d), dof (K,)."""

    location: Array
    spread: Array
    dof: Array


class Batch(NamedTuple):
    """The candidates of the batch under way: what each live row would become.

    Attributes:
        live: (K,) pool rows that somebody owns, in order.
        fresh: (K,) whether the row has learnt nothing yet.
        score: (K,) log pseudo-evidence of the batch so far; written by `advance`.
        weight: (K,) w^2 of the latest observation under each; written by `advance`.
    """

    live: NDArray[np.int64]
    fresh: NDArray[np.bool_]
    score: Array
    weight: Array


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


@dataclass(frozen=True)
class EmissionSpec(ABC):
    """An emission's settings: a frozen dataclass of JSON values that can build it."""

    @abstractmethod
    def build(self, shape: Shape, caution: Caution) -> Emission:
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

    @abstractmethod
    def blank(self, capacity: int) -> Rows:
        """Room for `capacity` rows."""

    @abstractmethod
    def write_prior(self, rows: Rows, row: int) -> None:
        """Make `row` a regime that has seen nothing."""

    @abstractmethod
    def draw_prior(self, rows: Rows, row: int, rng: np.random.Generator) -> None:
        """Make `row` a regime that has seen nothing, around a mean drawn at random (D9)."""

    @abstractmethod
    def design(self, features: Array) -> Array:
        """The features of one observation in the shape the kernels want."""

    @abstractmethod
    def advance(self, running: Rows, pool: Rows, batch: Batch, y: Array, design: Array) -> None:
        """Let each candidate see one observation.

        `running[k]` is candidate k inside the batch, `pool[batch.live[k]]` the row as the batch
        began. Adds to `batch.score`, writes `batch.weight`, moves `running` in place.
        """

    def rest(self, rows: Rows) -> None:
        """What a moment without an observation does to rows, in place; nothing by default."""
        return None

    def carry(self, running: Rows, pool: Rows, live: NDArray[np.int64]) -> None:
        """What time does to every row at the end of a batch, chosen or not; nothing by default."""
        return None

    @abstractmethod
    def predictive(self, rows: Rows, which: NDArray[np.int64], design: Array) -> Components:
        """One-step predictive of the rows `which`."""

    @abstractmethod
    def noise_covariance(self) -> Array:
        """(d, d) noise of one observation, for D8's paper variant."""

    @abstractmethod
    def coefficients(self, rows: Rows, row: int) -> tuple[Array, Array]:
        """Posterior mean and standard deviation of a regime's coefficients."""
