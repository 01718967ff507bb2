"""A stream with everything that is known about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, unknown, whole

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Observations, what may explain them, and the truth as far as it is known.

    Attributes:
        y: (T,) observations, or (T, d).
        X: (T, k) covariates, or None.
        time: (T,) time stamps, or None.
        changepoints: first index of each new segment.
        info: where the data come from and what was chosen.
        columns: names of the columns of X, where they have names.
        regimes: (T,) true regime of each observation (generated data).
        clean: y before it was contaminated (generated data).
        outliers: (T,) which observations were contaminated (generated data).
        annotations: changepoints as marked by people, one list per annotator.

    Example:
        >>> from regimekit import data
        >>> stream = data.iid_regimes(0)
        >>> stream.y.shape, int(stream.outliers.sum())
        ((1180,), 15)
    """

    y: Array
    X: Array | None = None
    time: NDArray[Any] | None = None
    changepoints: tuple[int, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    regimes: NDArray[np.int64] | None = None
    clean: Array | None = None
    outliers: NDArray[np.bool_] | None = None
    annotations: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)

    def select(self, *names: str) -> Dataset:
        """The same data with only these columns of X, in this order."""
        for name in names:
            if name not in self.columns:
                raise unknown("names", name, self.columns)
        assert self.X is not None  # columns are named only where X is given
        return replace(
            self, X=self.X[:, [self.columns.index(name) for name in names]], columns=names
        )

    def frame(self, backend: Any = None) -> Any:
        """X as a data frame with named columns, of the module `backend` (pandas by default)."""
        import narwhals as nw

        if self.X is None:
            raise RegimekitError("The dataset has no covariates X to put in a frame.")
        if backend is None:
            import pandas

            backend = pandas
        names = self.columns or tuple(f"x{j}" for j in range(self.X.shape[1]))
        table = {name: self.X[:, j] for j, name in enumerate(names)}
        return nw.from_dict(table, backend=backend).to_native()


@overload
def standardise(data: Dataset, train: int | None = None) -> Dataset: ...
@overload
def standardise(data: Array, train: int | None = None) -> Array: ...
def standardise(data: Dataset | Array, train: int | None = None) -> Dataset | Array:
    """Subtract the mean and divide by the standard deviation of the first `train` rows.

    Without `train` all rows are used, and every value then knows a little of the future.
    Of a dataset, y and each column of X are scaled on their own; `clean` is scaled as y is.
    NaN is left out of the moments; a constant column is only centred.

    Example:
        >>> import numpy as np
        >>> from regimekit import data
        >>> data.standardise(np.array([1.0, 3.0, 9.0]), train=2)
        array([-1.,  1.,  7.])
    """
    if isinstance(data, Dataset):
        return _standardise_dataset(data, train)
    centre, scale = _moments(np.asarray(data, dtype=float), train)
    return np.asarray((data - centre) / scale)


def _standardise_dataset(data: Dataset, train: int | None) -> Dataset:
    centre, scale = _moments(data.y, train)
    scaled_X = None
    if data.X is not None:
        centre_X, scale_X = _moments(data.X, train)
        scaled_X = (data.X - centre_X) / scale_X
    return replace(
        data,
        y=(data.y - centre) / scale,
        X=scaled_X,
        clean=None if data.clean is None else (data.clean - centre) / scale,
        info={**data.info, "y_mean": centre, "y_sd": scale, "standardised_on": train or len(data)},
    )


def _moments(values: Array, train: int | None) -> tuple[Any, Any]:
    rows = len(values) if train is None else whole("train", train, 2)
    if rows > len(values):
        raise RegimekitError(f"train={train} is more than the {len(values)} rows there are.")
    part = values[:rows]
    centre, scale = np.nanmean(part, axis=0), np.nanstd(part, axis=0)
    return centre, np.where(scale > 0, scale, 1.0)


def segment_starts(regimes: NDArray[np.int64]) -> tuple[int, ...]:
    """First index of each segment after the first."""
    return tuple(int(t) + 1 for t in np.flatnonzero(np.diff(regimes)))
