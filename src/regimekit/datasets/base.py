"""The Dataset class, and standardisation."""

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
    """Observations, covariates, and the truth where it is known.

    Attributes:
        y: (T,) or (T, d) observations.
        X: (T, k) covariates, or None.
        time: (T,) time stamps, or None.
        changepoints: first index of each new segment.
        info: origin of the data and the values chosen to generate them.
        columns: names of the columns of X, if known.
        regimes: (T,) true regime of each observation (generated data).
        clean: y before contamination (generated data).
        outliers: (T,) whether each observation is contaminated (generated data).
        annotations: changepoints marked by annotators, one list each.

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
        """Return the dataset with some columns of X.

        Args:
            *names: names of the columns, in the order of the result.
        """
        for name in names:
            if name not in self.columns:
                raise unknown("names", name, self.columns)
        assert self.X is not None  # columns are named only where X is given
        return replace(
            self, X=self.X[:, [self.columns.index(name) for name in names]], columns=names
        )

    def frame(self, backend: Any = None) -> Any:
        """Return X as a data frame.

        Args:
            backend: module of the data-frame library, pandas by default.
        """
        import narwhals as nw

        if self.X is None:
            raise RegimekitError("The dataset has no covariates X to convert to a data frame.")
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

    Args:
        data: an array, or a dataset, of which y and each column of X are scaled separately and
            `clean` is scaled like y. NaN is skipped; a constant column is only centred.
        train: number of rows. By default all rows are used, which includes future values.

    Returns:
        The scaled array or dataset; `info` has "y_mean", "y_sd" and "standardised_on".

    Raises:
        RegimekitError: if `train` exceeds the number of rows.

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
        raise RegimekitError(
            f"train must be at most the number of rows {len(values)}, got {train}."
        )
    part = values[:rows]
    centre, scale = np.nanmean(part, axis=0), np.nanstd(part, axis=0)
    return centre, np.where(scale > 0, scale, 1.0)


def segment_starts(regimes: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the first index of each segment after the first.

    Args:
        regimes: (T,) labels.
    """
    return tuple(int(t) + 1 for t in np.flatnonzero(np.diff(regimes)))
