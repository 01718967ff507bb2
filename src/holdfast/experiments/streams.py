"""The streams of the paper's experiments, by name, ready to run.

A stream knows what its forecasts are scored against and which rows were given to tuning. Generated
ones take a seed; real ones ignore it. Settings that the paper leaves out are chosen here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from holdfast import data, features
from holdfast.data import Dataset, standardise
from holdfast.errors import unknown
from holdfast.features import Features

Array = NDArray[np.float64]

OFI_BUCKET = 60  # ticks per bucket: 8333 sums, beside the paper's 8273
SEMI_ANNUAL = 24 * 182


@dataclass(frozen=True)
class Stream:
    """A data set with the features the paper regresses it on."""

    name: str
    data: Dataset
    features: Features
    train: int  # rows given to tuning
    generated: bool

    @property
    def target(self) -> Array:
        """What forecasts are scored against: the uncontaminated values where they are known."""
        return self.data.y if self.data.clean is None else self.data.clean

    def head(self, n: int | None) -> Stream:
        """The first n rows only."""
        if n is None or n >= len(self.data):
            return self
        d = self.data
        cut = replace(
            d,
            y=d.y[:n],
            X=None if d.X is None else d.X[:n],
            time=None if d.time is None else d.time[:n],
            changepoints=tuple(t for t in d.changepoints if t < n),
            regimes=None if d.regimes is None else d.regimes[:n],
            clean=None if d.clean is None else d.clean[:n],
            outliers=None if d.outliers is None else d.outliers[:n],
        )
        return replace(self, data=cut, train=min(self.train, n))


def stream(name: str, seed: int = 0, degree: int = 2) -> Stream:
    """A stream by name; `degree` is the power of the electricity covariates."""
    if name not in _MAKERS:
        raise unknown("stream", name, _MAKERS)
    return _MAKERS[name](seed, degree)


def names() -> list[str]:
    """The streams by name."""
    return list(_MAKERS)


def _synthetic(seed: int, _: int) -> Stream:
    made = data.synthetic_regression(seed)
    return Stream("synthetic", made, features.columns(), train=700, generated=True)


def _iid(noise: str) -> Callable[[int, int], Stream]:
    def make(seed: int, _: int) -> Stream:
        made = data.iid_regimes(seed, noise=noise)
        return Stream(f"iid_{noise}", made, features.intercept(), train=400, generated=True)

    return make


def _well_log(_: int, __: int) -> Stream:
    scaled = standardise(data.load("well_log"), train=1700)
    return Stream("well_log", scaled, features.intercept(), train=1700, generated=False)


def _electricity(_: int, degree: int) -> Stream:
    """The paper's covariates (temperature, pressure, humidity, wind), standardised over all rows."""
    loaded = data.load("electricity")
    chosen = loaded.select(*loaded.columns[:4])
    scaled = standardise(chosen)
    design = features.intercept() + features.powers(degree)
    design = design + features.season(24) + features.season(SEMI_ANNUAL)
    return Stream("electricity", scaled, design, train=12_000, generated=False)


def _ofi(_: int, __: int) -> Stream:
    """y_t = rho y_{t-1} - (1 - rho) theta + e, the paper's model of order flow.

    The coefficient of the lag is held at rho by its prior (`settings.ofi_prior`).
    """
    scaled = standardise(data.load("ofi_es", bucket=OFI_BUCKET))
    design = features.intercept() + features.lags(1)
    return Stream("ofi", scaled, design, train=2000, generated=False)


_MAKERS: dict[str, Callable[[int, int], Stream]] = {
    "synthetic": _synthetic,
    "electricity": _electricity,
    "ofi": _ofi,
    "well_log": _well_log,
    "iid_gauss": _iid("gauss"),
    "iid_t": _iid("t"),
}
