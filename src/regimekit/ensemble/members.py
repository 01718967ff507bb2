"""The members: what each is given, and the state of those that are not regime models.

regimes          `student_t_ihmm` in units, on a level, on lags, on covariates
least squares    the same designs without regimes
smoothing        running mean, exponential smoothing, last value, local trends
season           the value one period ago; its step; the mean season (`seasonal`)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.core.model import Model
from regimekit.core.registry import from_bytes, make
from regimekit.distributions.forecast import Forecast
from regimekit.ensemble import seasonal
from regimekit.ensemble import smoothing as simple
from regimekit.ensemble.shared_lags import SharedPast
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.lag_buffer import CLEAN
from regimekit.results import Step
from regimekit.serialization import snapshot
from regimekit.serialization.validation import LATEST, Arrays

Array = NDArray[np.float64]

FAINT = 1e-3  # components with a smaller share of their member are left out
PRIOR = 100.0  # prior variance of a level and of the coefficient of a covariate, in units
_LONGEST = 1e6  # of an observation, in units, for members that have no weight of their own
_NOTHING = np.zeros(0)
_NEAR = 3  # lags beyond this one are of a season
_FARTHEST = 1e8  # of stored levels and coefficients: what is learnt is within 1e6 units
_RANGES = {"variance": (1e-12, 1e100), "cover": (-1e12, 1e12), "seen": (0.0, float(LATEST))}


class Guess(NamedTuple):
    """What a regime member believes before it has seen anything."""

    noise: float  # variance, in units
    shape: float  # half the number of observations that this is worth
    gamma: tuple[float, float]  # prior of how readily regimes are opened
    batch: int = 6
    lags: float = 1.0  # variance of their coefficients
    latest: float = 0.0  # mean of the coefficient of lag 1


# Columns and season lags may explain most of what differences from one value to the next show:
# then the noise is far below one unit. Who forecasts a season opens regimes readily, and begins at
# the latest value with small lags, which lowers the error of loads by the hour (docs/auto.md).
_USUAL = Guess(1.0, 5.0, (1.0, 10.0))
_COLUMNS = Guess(0.1, 2.5, (1.0, 10.0), batch=3)
_SEASON = Guess(0.1, 2.5, (1.0, 1.0), lags=0.2, latest=1.0)


# What a member is worth beforehand beside the others, which count 1: most streams resemble their
# latest values, and a season that was found is rather used than not. Chosen on twenty short real
# series (docs/auto.md), and forgotten over a hundred observations or so (`mixing.SWAYED`).
_WORTH = {
    "last value": 6.0,
    "smoothing .5": 3.0,
    "smoothing .2": 2.0,
    "regimes, lag 1": 3.0,
    "regimes, lags 1 to 3": 2.0,
    "regimes, season lags": 3.0,
    "least squares, season lags": 2.0,
    **dict.fromkeys(("regimes, columns", "regimes, your features"), 6.0),
    **dict.fromkeys(("regimes, columns and lags", "least squares, columns"), 3.0),
    "least squares, your features": 3.0,
    **dict.fromkeys(seasonal.MEANS, 6.0),
    "season ago": 3.0,
}


class Spec(NamedTuple):
    """What a regression member is given: lags of y, and a stretch of the covariates."""

    name: str
    steps: tuple[int, ...] = ()
    columns: tuple[int, int] = (0, 0)
    squares: bool = False  # whether least squares on the same design is a member too
    forecasts: bool = True  # False: it only reads regimes
    reads: bool = False  # whether regimes may be read off it
    season: int = 0  # the period of a season that is taken out beforehand; 0 for none

    @property
    def width(self) -> int:
        """Covariates used."""
        return self.columns[1] - self.columns[0]

    @property
    def guess(self) -> Guess:
        """What its regime model believes beforehand."""
        if max(self.steps, default=0) > _NEAR and self.forecasts:
            return _SEASON
        return _COLUMNS if self.width else _USUAL


Components = tuple[Array, Array, Array, Array]  # share, location, spread, dof


class Parts(NamedTuple):
    """Components of members: shares within the member, and which member owns them."""

    share: Array
    location: Array  # (K, d)
    spread: Array  # (K, d, d)
    dof: Array
    owner: NDArray[np.int64]

    def some(self, which: slice | NDArray[np.bool_]) -> Parts:
        """These components only, their shares as they are."""
        shape = self.location[which], self.spread[which], self.dof[which]
        return Parts(self.share[which], *shape, self.owner[which])


class RegimeMember:
    """A regime model whose lags are kept outside, where an outlier can be taken back."""

    def __init__(self, spec: Spec, dim: int, seed: int, model: Model | None = None) -> None:
        self.spec = spec
        self.steps = np.array(spec.steps, np.int64)
        self.model = regime_model(spec, dim, seed) if model is None else model

    def expect(self, past: SharedPast, version: int, covariates: Array) -> Components:
        """Components of its forecast given this version of the past."""
        season = self._season(past, version)
        forecast = self.model.predict(self._x(past, version, covariates, season))
        share, location, spread, dof = thinned(forecast, FAINT)
        return share, location if season is None else location + season[0], spread, dof

    def learn(self, z: Array, past: SharedPast, version: int, covariates: Array) -> Step:
        """Learn one observation; what cannot be freed of its season yet counts as missing."""
        season = self._season(past, version)
        if self.spec.season:
            z = np.full_like(z, np.nan) if season is None else z - season[0]
        return self.model.update(z, self._x(past, version, covariates, season))

    def _season(self, past: SharedPast, version: int) -> Array | None:
        period = self.spec.season
        return seasonal.season_of(past, version, period) if period else None

    def _x(
        self, past: SharedPast, version: int, covariates: Array, season: Array | None
    ) -> Array | None:
        """Lags, less their season where it is taken out, and covariates."""
        lags = past.design(version, self.steps, season).ravel() if self.steps.size else _NOTHING
        if not self.spec.width:
            return lags if lags.size else None
        return np.concatenate([lags, covariates[slice(*self.spec.columns)]])

    def pack(self) -> NDArray[Any]:
        """The model as an array of bytes."""
        return np.frombuffer(self.model.to_bytes(), np.int8)

    @classmethod
    def unpack(cls, spec: Spec, arrays: Arrays, name: str, dim: int) -> RegimeMember:
        """What `pack` packed: a model as this member would make it, whatever its seed."""
        data, fresh = arrays[name], cls(spec, dim, 0)
        if data.dtype != np.int8 or data.ndim != 1:
            raise SnapshotError(f"The snapshot's {name} is no model.")
        content = snapshot.read(data.tobytes())  # looked at first: models must not nest
        wanted = fresh.model.settings() | {"seed": content.settings.get("seed")}
        if content.model != fresh.model.name or content.settings != wanted:
            raise SnapshotError(f"The snapshot's {name} is another model than its place is for.")
        member = cls(spec, dim, 0, from_bytes(data.tobytes()))
        if member.model.dim != dim:
            raise SnapshotError(f"The snapshot's {name} has {member.model.dim} coordinates of y.")
        return member


def regime_model(spec: Spec, dim: int, seed: int) -> Model:
    """A regime model in units: levels of variance 100, lags of variance 1 or less."""
    features, guess = feature_maps.intercept(), spec.guess
    prior: Any = PRIOR
    mean: Any = 0.0
    lags = len(spec.steps) * dim
    if lags + spec.width:
        features = features + feature_maps.columns()
        prior = [PRIOR] + [guess.lags] * lags + [PRIOR] * spec.width
        if guess.latest and spec.steps[0] == 1 and dim == 1:
            mean = [0.0, guess.latest] + [0.0] * (lags - 1 + spec.width)
    return make(
        "student_t_ihmm",
        features=features,
        weight="contamination",
        noise_shape=guess.shape,
        noise_scale=guess.shape * guess.noise,
        prior_mean=mean,
        prior_var=prior,
        batch=guess.batch,
        sticky=10.0,
        gamma_prior=guess.gamma,
        dim=dim,
        seed=seed,
    )


class SimpleMembers:
    """All members that are not regime models, on every coordinate.

    Attributes:
        specs: the designs of least squares.
        season: the period of the seasonal members; 0 for none.
    """

    def __init__(self, specs: list[Spec], dim: int, season: int = 0) -> None:
        self.specs, self.dim, self.season = specs, dim, season
        self.smooth = [simple.smoothers() for _ in range(dim)]
        self.squares = [
            [simple.squares(1 + len(s.steps) + s.width) for _ in range(dim)] for s in specs
        ]
        self.seasonal = [seasonal.fresh() for _ in range(dim)]

    @property
    def names(self) -> list[str]:
        """In the order of their components."""
        names = [f"least squares, {spec.name}" for spec in self.specs] + list(simple.SMOOTHERS)
        return names + (list(seasonal.NAMES) if self.season else [])

    def copy(self) -> SimpleMembers:
        """An independent copy."""
        twin = SimpleMembers([], self.dim, self.season)
        twin.specs = self.specs
        twin.smooth = [_copy(s) for s in self.smooth]
        twin.squares = [[_copy(s) for s in per] for per in self.squares]
        twin.seasonal = [_copy(s) for s in self.seasonal]
        return twin

    def take(self, season: int, other: SimpleMembers) -> None:
        """Take over the last least squares of `other`, in place of its namesake, and its season."""
        if other.specs:
            kept = [i for i, own in enumerate(self.specs) if own.name != other.specs[-1].name]
            self.specs = [self.specs[i] for i in kept] + [other.specs[-1]]
            self.squares = [self.squares[i] for i in kept] + [[_copy(s) for s in other.squares[-1]]]
        self.season = season
        self.seasonal = [_copy(s) for s in other.seasonal]

    def points(self, past: SharedPast, version: int, covariates: Array) -> tuple[Array, Array]:
        """Locations and variances, (members, d) each."""
        rows = self._rows(past, version, covariates)
        columns = [self._points_of(j, rows) for j in range(self.dim)]
        location, variance = (np.column_stack(both) for both in zip(*columns, strict=True))
        if not self.season:
            return location, variance
        ahead = seasonal.points(past, version, self.season, 0)
        scale = np.column_stack([state.variance for state in self.seasonal])
        return np.concatenate([location, ahead]), np.concatenate([variance, scale])

    def _rows(self, past: SharedPast, version: int, covariates: Array) -> list[Array]:
        """The designs of least squares, (d, width) each: intercept, lags, covariates."""
        rows = []
        for spec in self.specs:
            lags = past.design(version, np.array(spec.steps, np.int64)).T if spec.steps else None
            x = np.ones((self.dim, 1 + len(spec.steps) + spec.width))
            if lags is not None:
                x[:, 1 : 1 + len(spec.steps)] = lags
            x[:, 1 + len(spec.steps) :] = covariates[slice(*spec.columns)]
            rows.append(x)
        return rows

    def _points_of(self, j: int, rows: list[Array]) -> tuple[Array, Array]:
        location, variance = [], []
        for row, per in zip(rows, self.squares, strict=True):
            x, state = row[j], per[j]
            location.append(float(state.theta @ x))
            variance.append(
                float(state.variance[0] * (1.0 + min(float(x @ state.cover @ x), 1e100)))
            )
        smooth = self.smooth[j]
        ahead = smooth.level + smooth.slope
        return np.append(location, ahead), np.append(variance, smooth.variance)

    def learn(
        self, z: Array, past: SharedPast, version: int, covariates: Array, trust: float
    ) -> None:
        """Learn one observation; with `trust` 1 it counts in full."""
        ahead = seasonal.points(past, version, self.season, 0) if self.season else None
        rows = self._rows(past, version, covariates)
        for j in range(self.dim):
            if np.isnan(z[j]):
                simple.drift(self.smooth[j])
                continue
            y = float(np.clip(z[j], -_LONGEST, _LONGEST))
            for row, per in zip(rows, self.squares, strict=True):
                simple.regress(per[j], row[j], y, trust, simple.FORGET)
            simple.learn(self.smooth[j], y, trust)
            if ahead is not None:
                state = self.seasonal[j]
                simple.learn_scales(state.variance, y - ahead[:, j], state.seen)

    def pack(self) -> dict[str, NDArray[Any]]:
        """The state as arrays."""
        return {
            f"{kind}{j}.{i}.{name}": array.copy()
            for kind, j, i, state in self._states()
            for name, array in state._asdict().items()
        }

    def unpack(self, arrays: Arrays) -> None:
        """Take up what `pack` gave."""
        for kind, j, i, state in self._states():
            for name, array in state._asdict().items():
                least, most = _RANGES.get(name, (-_FARTHEST, _FARTHEST))
                array[...] = arrays.floats(f"{kind}{j}.{i}.{name}", array.shape, least, most)
            if kind == "squares":
                _check_cover(state.cover)

    def _states(self) -> list[tuple[str, int, int, Any]]:
        states: list[tuple[str, int, int, Any]] = []
        for j in range(self.dim):
            states += [("smooth", j, 0, self.smooth[j]), ("season", j, 0, self.seasonal[j])]
            states += [("squares", j, i, per[j]) for i, per in enumerate(self.squares)]
        return states


def thinned(forecast: Forecast, faint: float) -> Components:
    """Components worth keeping; one of outliers (dof 2) is the ensemble's business."""
    keep = (forecast.share > faint) & (forecast.dof > 2)
    if not keep.any():
        keep = forecast.share == forecast.share.max()
    share = forecast.share[keep]
    return share / share.sum(), forecast.location[keep], forecast.spread[keep], forecast.dof[keep]


def worth(names: list[str]) -> Array:
    """What members of these names are worth in the mixture before anything is known."""
    return np.array([_WORTH.get(name, 1.0) for name in names])


def _check_cover(cover: Array) -> None:
    """Refuse a covariance with directions of negative variance, rounding aside."""
    values = np.linalg.eigvalsh((cover + cover.T) / 2)
    if values.min() < -1e-9 * max(values.max(), 1.0):
        raise SnapshotError("The snapshot's cover of least squares is no covariance.")


def _copy(state: Any) -> Any:
    return type(state)(*(array.copy() for array in state))


__all__ = [
    "CLEAN",
    "Parts",
    "RegimeMember",
    "SimpleMembers",
    "Spec",
    "regime_model",
    "thinned",
    "worth",
]
