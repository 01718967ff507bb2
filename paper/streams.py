"""The streams of the paper's experiments by name, ready to run.

A stream defines the values that forecasts are scored against and the rows that a search may use.
Generated streams take a seed; real ones ignore it. Settings that the paper leaves out are chosen
here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit import datasets as data
from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.datasets import Dataset, standardise
from regimekit.ihmm.published import electricity_design
from regimekit.preprocessing import features
from regimekit.preprocessing.features import Features

Array = NDArray[np.float64]

SIGNAL_SD = 100.0  # of the synthetic stream (`paper.protocol`)
OFI_BUCKET = 60  # ticks per bucket: 8333 sums, beside the paper's 8273


class Truth(NamedTuple):
    """Parameters of the oracle's filter besides regimes and outliers."""

    noise: float
    prior_var: float


@dataclass(frozen=True)
class Stream:
    """A dataset with the features that the paper regresses it on."""

    name: str
    data: Dataset
    features: Features
    train: int  # rows that a search may use
    generated: bool
    truth: Truth | None = None  # for the oracle, if the stream is generated

    @property
    def target(self) -> Array:
        """Values that forecasts are scored against: uncontaminated ones where they are known."""
        return self.data.y if self.data.clean is None else self.data.clean

    @property
    def held_out(self) -> int:
        """The first scored row: no search has used rows from there on.

        Generated streams are tuned on other seeds, so all their rows are scored.
        """
        return 0 if self.generated else self.train

    def head(self, n: int | None) -> Stream:
        """Return the first rows; if the training part is not shorter, it is half of them."""
        if n is None or n >= len(self.data):
            return self
        return replace(self.rows(0, n), train=self.train if self.train < n else n // 2)

    def rows(self, start: int, stop: int | None = None) -> Stream:
        """Return some rows; changepoints count from the first of them.

        Args:
            start: first row.
            stop: row after the last one.
        """
        d, stop = self.data, len(self.data) if stop is None else stop
        kept = slice(start, stop)
        cut = replace(
            d,
            y=d.y[kept],
            X=None if d.X is None else d.X[kept],
            time=None if d.time is None else d.time[kept],
            changepoints=tuple(t - start for t in d.changepoints if start < t < stop),
            regimes=None if d.regimes is None else d.regimes[kept],
            clean=None if d.clean is None else d.clean[kept],
            outliers=None if d.outliers is None else d.outliers[kept],
        )
        return replace(self, data=cut, train=max(0, self.train - start))

    def digest(self) -> str:
        """Return a hash of all that a run reads of the stream."""
        d = self.data
        identity = [self.name, self.train, self.generated, self.truth, d.changepoints]
        digest = hashlib.sha256(json.dumps([identity, self.features.to_json()]).encode())
        for array in (d.y, d.X, d.regimes, d.clean, d.outliers):
            digest.update(b"absent" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:20]


def stream(name: str, seed: int = 0, degree: int = 2) -> Stream:
    """Return a stream.

    Args:
        name: name of the stream.
        seed: seed of a generated stream.
        degree: power of the electricity covariates.

    Example:
        >>> stream("iid_gauss", seed=1).data.y.shape
        (1180,)
    """
    if name not in _MAKERS:
        raise unknown("stream", name, _MAKERS)
    if name in _GENERATED:
        return made(name, seed, 2)
    degree = degree if name == "electricity" else 2
    if reason := refusal(name, degree):
        raise RegimekitError(reason)
    return made(name, 0, degree)


@lru_cache(maxsize=32)
def made(name: str, seed: int, degree: int) -> Stream:
    """Return the output of `stream`, cached."""
    return _MAKERS[name](seed, degree)


@cache
def refusal(name: str, degree: int) -> str:
    """Return why a real stream is not available, or ""; cached, because downloads fail slowly."""
    try:
        made(name, 0, degree)
    except RegimekitError as error:
        return str(error)
    return ""


def names() -> list[str]:
    """Return the names of the streams."""
    return list(_MAKERS)


def _synthetic(name: str, signal_sd: float) -> Callable[[int, int], Stream]:
    def make(seed: int, _: int) -> Stream:
        made = data.synthetic_regression(seed, signal_sd=signal_sd)
        truth = Truth(noise=1.0, prior_var=1.0)
        return Stream(name, made, features.columns(), 700, generated=True, truth=truth)

    return make


def _iid(noise: str) -> Callable[[int, int], Stream]:
    def make(seed: int, _: int) -> Stream:
        made = data.iid_regimes(seed, noise=noise)
        truth = Truth(noise=0.25 if noise == "gauss" else 1.125, prior_var=4.0)
        design = features.intercept()
        return Stream(f"iid_{noise}", made, design, 400, generated=True, truth=truth)

    return make


def _well_log(_: int, __: int) -> Stream:
    scaled = standardise(data.load("well_log"), train=1700)
    return Stream("well_log", scaled, features.intercept(), train=1700, generated=False)


def _electricity(_: int, degree: int) -> Stream:
    """Return the paper's four weather covariates, standardised over all rows as in the paper."""
    loaded = data.load("electricity")
    chosen = loaded.select(*loaded.columns[:4])
    scaled = standardise(chosen)
    return Stream("electricity", scaled, electricity_design(degree), train=12_000, generated=False)


def _ofi(_: int, __: int) -> Stream:
    """Return order flow with y_t = rho y_{t-1} - (1 - rho) theta + e, the model of the paper.

    Under the printed settings the coefficient of the lag is fixed at rho (`published.ofi_prior`).
    """
    scaled = standardise(data.load("ofi_es", bucket=OFI_BUCKET))
    design = features.intercept() + features.lags(1)
    return Stream("ofi", scaled, design, train=2000, generated=False)


def _garch(seed: int, _: int) -> Stream:
    made = data.garch_regimes(seed)
    return Stream("garch", made, features.intercept(), train=500, generated=True)


_MAKERS: dict[str, Callable[[int, int], Stream]] = {
    "synthetic": _synthetic("synthetic", SIGNAL_SD),
    "synthetic_small_signal": _synthetic("synthetic_small_signal", 10.0),
    "electricity": _electricity,
    "ofi": _ofi,
    "well_log": _well_log,
    "iid_gauss": _iid("gauss"),
    "iid_t": _iid("t"),
    "garch": _garch,
}
_GENERATED = ("synthetic", "synthetic_small_signal", "iid_gauss", "iid_t", "garch")
