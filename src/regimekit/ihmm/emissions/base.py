"""The interface of an emission: the distribution of an observation given its regime.

An emission stores the sufficient statistics of regimes in *rows*. The filter decides which row
belongs to which regime and never reads the statistics. During a batch, a row has *candidates*: its
statistics after the observations of the batch so far, stored at a *place* in the work space of the
emission. The successor of a row is a function of the row and the batch alone, because particles
share rows.

For each observation the filter calls, through a C vtable,

    predict       for every candidate: write the one-step predictive distribution
    update        for every candidate: score and learn the observation
    skip          instead of update, if nothing was observed

and at the end of a batch

    time_update   for every candidate: apply the effect of time to its row, chosen or not
    finalize      for chosen candidates: write them to rows
    begin         for every row in use: start a candidate

A new emission is a subclass. Compiled against the .pxd file it runs at full speed; written in plain
Python it is wrapped in `PythonEmission`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import cython
import numpy as np

from regimekit.ihmm.weights import OUTLIER_SCALE

if not cython.compiled:
    from regimekit.ihmm.weights import Scoring

    _ = Scoring


class Shape(NamedTuple):
    """Sizes of an observation and its features.

    Attributes:
        dim: number of coordinates d of y.
        width: number of features.
        shared: if True, every coordinate has its own coefficients on the same features
            (F = I_d x phi'); otherwise the features are the (d, width) design matrix itself.
    """

    dim: int
    width: int
    shared: bool = True

    @property
    def coefficients(self) -> int:
        """Number of coefficients of a regime."""
        return self.dim * self.width if self.shared else self.width


@dataclass(frozen=True)
class EmissionSettings(ABC):
    """Settings of an emission: a frozen dataclass of JSON values."""

    @abstractmethod
    def build(self, shape: Shape, scoring: Any, longest: int) -> Any:
        """Return the emission.

        Args:
            shape: sizes of y and of the features.
            scoring: weight and score of an observation.
            longest: largest number of observations of a batch.
        """

    @abstractmethod
    def dim_hint(self) -> int | None:
        """Return the number of coordinates of y that the settings imply, or None."""

    @abstractmethod
    def check(self) -> None:
        """Raise RegimekitError if the settings are invalid for every shape."""


class Observation:
    """The present observation in the form of the kernels.

    Attributes:
        y: (d,) the observation.
        seen: (d,) the observed coordinates come first.
        n_seen: number of observed coordinates.
        design: (r, m) its features: one row for all coordinates, or one for each.
        number: changes with the design; what was computed for the same number is still valid.
        extra_noise: terms R that the score adds to its predictive variance if D4 and D8 are off.
        lower: (d, d) scratch for a Cholesky factor of the observed block.
    """

    def __init__(self, dim, rows, width):
        self.y = np.zeros(dim)
        self.seen = np.arange(dim, dtype=np.int64)
        self.n_seen = dim
        self.extra_noise = 0.0
        self.design = np.zeros((rows, width))
        self.number = 1
        self.lower = np.zeros((dim, dim))

    def set_design(self, design):
        """Copy the features, (r, m)."""
        changed: cython.bint = False
        for j in range(self.design.shape[0]):
            for a in range(self.design.shape[1]):
                if self.design[j, a] != design[j, a]:
                    self.design[j, a] = design[j, a]
                    changed = True
        if changed:
            self.number += 1

    def set_value(self, y):
        """Copy the observation (d,), NaN where missing, and list its observed coordinates."""
        n: cython.Py_ssize_t = 0
        for j in range(self.y.shape[0]):
            self.y[j] = y[j]
            if y[j] == y[j]:
                self.seen[n] = j
                n += 1
        self.n_seen = n


class Predictive:
    """One-step predictive distributions of all candidates, by place.

    The `start_` fields are those of the rows at the start of the batch (used if D4 or D7 is off).

    Attributes:
        location: (P, d) centre.
        spread: (P, d, d) squared scale matrix.
        dof: (P,) degrees of freedom, infinity for a Gaussian.
    """

    def __init__(self, places, dim):
        self.location = np.zeros((places, dim))
        self.spread = np.zeros((places, dim, dim))
        self.dof = np.full(places, np.inf)
        self.start_location = np.zeros((places, dim))
        self.start_spread = np.zeros((places, dim, dim))
        self.start_dof = np.full(places, np.inf)


class Emission:
    """Base class of emissions.

    Args:
        shape: sizes of y and of the features.
        scoring: weight and score of an observation.
        design_shape: (r, m) of the design of one observation.
        timeless: whether the predictive distribution of a row does not depend on the time.

    Attributes:
        weight: w^2 of the latest update.
        feature_limit: (k,) features are cut to it, or None.
        need_start: whether the `start_` fields of the predictive distributions are used (D4, D7).
        row_arrays: names of the arrays whose first axis is the row.
        candidate_arrays: names of the arrays whose first axis is the place of a candidate.

    Arguments of the methods:
        place: place of the candidate.
        row: its row.
        a, b: rows.
    """

    def __init__(self, shape, scoring, design_shape, timeless=True):
        self.shape = shape
        self.scoring = scoring
        self.dim = shape.dim
        self.timeless = timeless
        self.weight = 1.0
        self.need_start = True
        self.feature_limit = None
        self.row_arrays = ()
        self.candidate_arrays = ()
        self.observation = Observation(shape.dim, design_shape[0], design_shape[1])
        self.predictive = Predictive(0, shape.dim)

    # Kernels. The base class learns nothing.

    def begin(self, place, row):
        """Start a candidate from a row."""

    def predict(self, place, row):
        """Write the predictive distribution of a candidate, and that of its row."""

    def update(self, place, row, fresh):
        """Learn the observation that was predicted; set `weight` to w^2.

        Args:
            fresh: whether the row has no observations yet (D3).

        Returns:
            The score.
        """
        self.weight = 1.0
        return 0.0

    def skip(self, place):
        """Advance a candidate without an observation."""

    def time_update(self, place, row):
        """Apply the effect of time during a batch to a row, whether it is chosen or not.

        Args:
            place: place of its candidate.
            row: the row.
        """

    def finalize(self, place, row, into):
        """Write a candidate to a row.

        Args:
            row: the row that it started from.
            into: the row to write.
        """

    def draw_prior(self, prior, row, random):
        """Write `row` as a copy of the row `prior` around a mean drawn by `random` (D9)."""

    def shift_prior(self, prior, row, level):
        """Write `row` as a copy of the row `prior` around another `level`, (d,) (D16)."""

    def coefficient_distance(self, a, b):
        """Return the largest distance between coefficients of two rows, in standard deviations."""
        return 0.0

    def joint_distance(self, a, b):
        """Return the distance of two rows along the direction in which they differ most.

        An intercept and the coefficient of a lag may each be uncertain while their sum is not.
        """
        return 0.0

    # Memory and description, in Python.

    def resize_rows(self, capacity):
        """Make room for `capacity` rows; the present ones are kept."""
        for name in self.row_arrays:
            setattr(self, name, padded(np.asarray(getattr(self, name)), 0, capacity))

    def resize_candidates(self, islands, capacity):
        """Make room for `capacity` candidates of each island; the present ones are kept.

        Args:
            islands: number of islands.
            capacity: number of candidates of each.
        """
        for name in self.candidate_arrays:
            setattr(self, name, stretched(np.asarray(getattr(self, name)), islands, capacity))
        predictive = self.predictive
        for name in ("location", "spread", "start_location", "start_spread"):
            array = np.asarray(getattr(predictive, name))
            setattr(predictive, name, stretched(array, islands, capacity))
        for name in ("dof", "start_dof"):
            array = stretched(np.asarray(getattr(predictive, name)), islands, capacity)
            array[array == 0.0] = np.inf
            setattr(predictive, name, array)

    def row_state(self):
        """Return the arrays by row that the statistics of regimes consist of."""
        return {name: np.asarray(getattr(self, name)) for name in self.row_arrays}

    def share_rows(self, other):
        """Use the rows of another emission.

        Args:
            other: emission of the same kind.
        """
        for name in self.row_arrays:
            setattr(self, name, getattr(other, name))

    def work_state(self):
        """Return the arrays by place that a candidate inside a batch consists of."""
        return {name: np.asarray(getattr(self, name)) for name in self.candidate_arrays}

    def most_steps(self):
        """Return the largest integer in the arrays of `work_state`."""
        return 0

    def write_prior(self, row):
        """Write the statistics of a regime without observations.

        Args:
            row: the row to write.
        """

    def prior_level(self):
        """Return level and predictive standard deviation of a new regime, (2, d), or None.

        None means that regimes are not levels (D16), because they have other features.
        """
        return None

    def design(self, features):
        """Return the design (r, m) of one observation from its `features` (k,)."""
        return self.designs(np.asarray(features)[None])[0]

    def designs(self, features):
        """Return the designs (T, r, m) of T observations from their `features` (T, k)."""
        return features if features.ndim == 3 else features[:, None]

    def check_rows(self, live):
        """Raise SnapshotError if the rows `live` of a snapshot are impossible."""

    def noise_covariance(self):
        """Return the (d, d) noise covariance: the known one, or its prior guess."""
        raise NotImplementedError(
            f"{type(self).__name__} must define noise_covariance(): the density of outliers is "
            "measured in it."
        )

    def outlier_scale(self):
        """Return the (d, d) scale matrix of the density of outliers."""
        return np.asarray(OUTLIER_SCALE**2 * self.noise_covariance())

    def coefficients(self, row):
        """Return posterior mean and standard deviation of the coefficients, (m,) each."""
        raise NotImplementedError(
            f"{type(self).__name__} must define coefficients(row): regimes() reports them."
        )

    # The kernels for callers in Python: one candidate at place 0.

    def filter_rows(self, rows, y, designs, fresh, predict_only=False):
        """Filter observations from each of some rows at place 0; nothing is written back.

        Args:
            rows: rows to start from.
            y: (T, d) observations; NaN means missing.
            designs: (T, r, m).
            fresh: whether the rows count as new regimes (D3).
            predict_only: do not learn, so that every observation is scored by the row itself.

        Returns:
            (scores, weights, locations, spreads, dofs), with shapes (R, T), (R, T), (R, T, d),
            (R, T, d, d), (R, T): the predictive distributions before each observation.
        """
        values: cython.double[:, ::1] = np.array(y, np.float64, order="C")
        design: cython.double[:, :, ::1] = np.array(designs, np.float64, order="C")
        n: cython.Py_ssize_t = values.shape[0]
        scalars, places = np.zeros((3, len(rows), n)), np.zeros((len(rows), n, self.dim))
        spreads = np.zeros((len(rows), n, self.dim, self.dim))
        score: cython.double[:, ::1] = scalars[0]
        weight: cython.double[:, ::1] = scalars[1]
        dof: cython.double[:, ::1] = scalars[2]
        location: cython.double[:, :, ::1] = places
        spread: cython.double[:, :, :, ::1] = spreads
        start: cython.longlong[::1] = np.array(rows, np.int64)
        new: cython.bint = fresh
        learning: cython.bint = not predict_only
        with cython.nogil:
            for i in range(start.shape[0]):
                self.begin(0, start[i])
                for t in range(n):
                    self.observation.set_design(design[t])
                    self.observation.set_value(values[t])
                    self.predict(0, start[i])
                    for j in range(self.dim):
                        location[i, t, j] = self.predictive.location[0, j]
                        for k in range(self.dim):
                            spread[i, t, j, k] = self.predictive.spread[0, j, k]
                    dof[i, t] = self.predictive.dof[0]
                    if learning and self.observation.n_seen > 0:
                        score[i, t] = self.update(0, start[i], new)
                        weight[i, t] = self.weight
                    elif learning:
                        self.skip(0)
        return scalars[0], scalars[1], places, spreads, scalars[2]

    def finalize_row(self, row, into, place=0):
        """Write a candidate to a row.

        Args:
            row: the row that it started from.
            into: the row to write.
        """
        self.finalize(place, row, into)

    def time_update_row(self, row):
        """Apply the effect of time to `row`, whose candidate is at place 0."""
        self.time_update(0, row)

    def draw_prior_row(self, prior, row, random):
        """Do the same as `draw_prior`: copy the row `prior` to `row`, with a draw by `random`."""
        self.draw_prior(prior, row, random)

    def distances(self, a, b):
        """Return coefficient distance and joint distance."""
        return self.coefficient_distance(a, b), self.joint_distance(a, b)


class PythonEmission(Emission):
    """An emission written in plain Python, behind the compiled interface.

    A subclass of `Emission` in Python cannot replace the C methods that the filter calls. This
    class calls the Python methods of the same names instead.

    Args:
        inner: an instance of a subclass of `Emission`. It reads `self.observation`, writes
            `self.predictive`, returns the score from `update` and sets `self.weight`. The methods
            `begin`, `predict`, `update` and `finalize` are required.

    Raises:
        TypeError: If one of them is missing.
    """

    def __init__(self, inner):
        for name in ("begin", "predict", "update", "finalize"):
            if not hasattr(inner, name):
                raise TypeError(f"{type(inner).__name__} must have the method {name}.")
        design_shape = np.asarray(inner.observation.design).shape
        Emission.__init__(self, inner.shape, inner.scoring, design_shape, inner.timeless)
        self.inner = inner
        self.error = None
        inner.observation = self.observation
        inner.predictive = self.predictive

    def call(self, name, *arguments):
        """Call a method of the inner emission and return its result.

        The first exception is stored for the filter.

        Args:
            name: name of the method.
            *arguments: its arguments.
        """
        method = getattr(self.inner, name, None)
        if method is None:
            # C methods of the base class are not visible from Python; they do nothing.
            return None
        try:
            return method(*arguments)
        except Exception as error:
            self.error = self.error or error
            return None

    def begin(self, place, row):
        self.call("begin", place, row)

    def predict(self, place, row):
        self.call("predict", place, row)

    def update(self, place, row, fresh):
        score = self.call("update", place, row, fresh)
        self.weight = float(getattr(self.inner, "weight", 1.0))
        return 0.0 if score is None else float(score)

    def skip(self, place):
        self.call("skip", place)

    def time_update(self, place, row):
        self.call("time_update", place, row)

    def finalize(self, place, row, into):
        self.call("finalize", place, row, into)

    def draw_prior(self, prior, row, random):
        self.call("draw_prior", prior, row, random)

    def coefficient_distance(self, a, b):
        found = self.call("coefficient_distance", a, b)
        return 0.0 if found is None else float(found)

    def joint_distance(self, a, b):
        found = self.call("joint_distance", a, b)
        return 0.0 if found is None else float(found)

    def resize_rows(self, capacity):
        self.inner.resize_rows(capacity)

    def resize_candidates(self, islands, capacity):
        Emission.resize_candidates(self, islands, capacity)
        self.inner.resize_candidates(islands, capacity)

    def row_state(self):
        return self.inner.row_state()

    def share_rows(self, other):
        self.inner.share_rows(other.inner)

    def work_state(self):
        return self.inner.work_state()

    def most_steps(self):
        return self.inner.most_steps()

    def write_prior(self, row):
        self.inner.write_prior(row)

    def designs(self, features):
        return self.inner.designs(features)

    def check_rows(self, live):
        self.inner.check_rows(live)

    def noise_covariance(self):
        return self.inner.noise_covariance()

    def outlier_scale(self):
        return self.inner.outlier_scale()

    def coefficients(self, row):
        return self.inner.coefficients(row)


def padded(array, axis, length):
    """Return a copy of an array with zeros appended along one axis."""
    shape = list(array.shape)
    shape[axis] = length
    longer = np.zeros(shape, array.dtype)
    longer[tuple(slice(0, n) for n in array.shape)] = array
    return longer


def stretched(array, islands, capacity):
    """Return a copy of an array by place with room for more candidates.

    Args:
        array: (islands * old capacity, ..).
        islands: number of islands.
        capacity: number of candidates of each.
    """
    per_island = array.reshape(islands, -1, *array.shape[1:])
    return padded(per_island, 1, capacity).reshape(islands * capacity, *array.shape[1:])
