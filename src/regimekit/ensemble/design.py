"""The members of `auto`: from the user's features and covariates to lags and columns.

Lags belong to the ensemble (it can take an outlier back); all other features are covariates, each
standardized by medians.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, SnapshotError, whole
from regimekit.core.limits import MAX_PERIOD
from regimekit.core.registry import make
from regimekit.ensemble.ensemble import DEPTH
from regimekit.ensemble.members import MEAN_SEASONS
from regimekit.ihmm.emissions.base import Shape
from regimekit.ihmm.regime_filter import RegimeFilter
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.scaling import MAX_COVARIATE_VALUE, CovariateScaler, Standardizer
from regimekit.results import Regime
from regimekit.serialization.validation import Arrays, Values

Array = NDArray[np.float64]

PARTICLES = 30  # of a member: 100 give no better forecasts or regimes
PRIOR_VARIANCE = 100.0  # of a level and of the coefficient of a covariate, in units
_NEAREST_LAGS = 3  # longer lags are of a season
# Members that infer regimes, the simplest first. Lags beside columns infer those of a stream with
# correlated errors, which columns alone would tile; lags 1 to 3 without columns have no regimes.
VIEWS = ("auto", "level", "dynamics", "shape")
REGIME_MODELS = ("level", "lag 1", "columns", "columns and lags", "your features", "season")
_NO_PAST = np.zeros((0, 1))

# Prior weights of members, relative to 1 for all others: most streams resemble their latest values,
# and a season that was found is usually useful. Chosen on twenty short real series (docs/auto.md),
# and forgotten over a hundred observations or so (`aggregation.PRIOR_MEMORY`).
_PRIOR_WEIGHTS = {
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
    **dict.fromkeys(MEAN_SEASONS, 6.0),
    "season ago": 3.0,
}


class RegimePrior(NamedTuple):
    """Prior of a regime model."""

    noise: float  # variance, in units
    shape: float  # half the number of observations that it counts for
    gamma: tuple[float, float]  # prior of the concentration: how readily regimes are opened
    batch: int = 6
    lag_variance: float = 1.0  # of the coefficients of lags
    lag_mean: float = 0.0  # of the coefficient of lag 1


# Columns and season lags may explain most of the differences from one value to the next: then the
# noise is far below one unit. A member for a season opens regimes readily, and begins at the latest
# value with small lags, which lowers the error of hourly loads (docs/auto.md).
_USUAL = RegimePrior(1.0, 5.0, (1.0, 10.0))
_COLUMNS = RegimePrior(0.1, 2.5, (1.0, 10.0), batch=3)
_SEASON = RegimePrior(0.1, 2.5, (1.0, 1.0), lag_variance=0.2, lag_mean=1.0)


class Spec(NamedTuple):
    """Design of a regression member: lags of y, and a range of the covariates."""

    name: str
    steps: tuple[int, ...] = ()
    columns: tuple[int, int] = (0, 0)
    squares: bool = False  # whether least squares on the same design is a member too
    forecasts: bool = True  # False: it only infers regimes
    infers: bool = False  # whether regimes may be inferred by it
    regimes: bool = True  # False: least squares only
    difference: int = 0  # the period of seasonal differences; 0 for none
    season: int = 0  # period of a season that is removed from the series first; 0 for none
    logs: bool = False  # whether it is a regression of logarithms

    @property
    def width(self) -> int:
        """Number of covariates."""
        return self.columns[1] - self.columns[0]

    @property
    def prior(self) -> RegimePrior:
        """Prior of its regime model."""
        if max(self.steps, default=0) > _NEAREST_LAGS and self.forecasts:
            return _SEASON
        return _COLUMNS if self.width else _USUAL


def prior_weights(names: list[str]) -> Array:
    """Return the prior weights of members of these names."""
    return np.array([_PRIOR_WEIGHTS.get(name, 1.0) for name in names])


def regime_settings(spec: Spec, dim: int, seed: int) -> dict[str, Any]:
    """Return the settings of a member's `student_t_ihmm`."""
    features, prior = feature_maps.intercept(), spec.prior
    variance: Any = PRIOR_VARIANCE
    mean: Any = 0.0
    lags = len(spec.steps) * dim
    if lags + spec.width:
        features = features + feature_maps.columns()
        variance = [PRIOR_VARIANCE] + [prior.lag_variance] * lags + [PRIOR_VARIANCE] * spec.width
        if prior.lag_mean and spec.steps[0] == 1 and dim == 1:
            mean = [0.0, prior.lag_mean] + [0.0] * (lags - 1 + spec.width)
    return {
        "features": features,
        "weight": "contamination",
        "noise_shape": prior.shape,
        "noise_scale": prior.shape * prior.noise,
        "prior_mean": mean,
        "prior_var": variance,
        "batch": prior.batch,
        "particles": PARTICLES,
        "sticky": 10.0,
        "gamma_prior": prior.gamma,
        "rule": {"D18": "paper"},  # the intervals of `auto` are calibrated
        "dim": dim,
        "seed": seed,
    }


def make_filter(spec: Spec, dim: int, seed: int, begin: bool = True) -> RegimeFilter:
    """Return the regime model of a member.

    Args:
        spec: its design.
        dim: number of coordinates d.
        seed: of its draws.
        begin: draw its first particles; otherwise its state must be restored.
    """
    return _regime_model(spec, dim, seed)._engine(
        Shape(dim, 1 + len(spec.steps) * dim + spec.width), begin
    )


@lru_cache(maxsize=64)
def _regime_model(spec: Spec, dim: int, seed: int) -> Any:
    """Return the model that builds the filters of a member; it has no observations."""
    return make("student_t_ihmm", **regime_settings(spec, dim, seed))


class FeatureMap:
    """A feature map, split into lags and the rest."""

    def __init__(self, features: Any) -> None:
        self.features: Features = feature_maps.read(features)
        if self.features.is_matrix:
            raise RegimekitError(
                "features: auto takes no matrix(); use columns() for d = 1, or student_t_ihmm."
            )
        terms = self.features.to_json()
        steps = {int(k) for term in terms if term["term"] == "lags" for k in term["steps"]}
        self.steps = tuple(sorted(steps))
        rest = [term for term in terms if term["term"] not in ("lags", "intercept")]
        self.rest = feature_maps.from_json(rest) if rest else None

    def values(self, x: Row | None, time: int) -> Array:
        """Return the features of one observation that are not lags."""
        if self.rest is None:
            return np.zeros(0)
        return np.array(self.rest.row(x, time, _NO_PAST))

    def width(self, x: Row | None) -> int:
        """Return the number of features that are not lags."""
        return 0 if self.rest is None else self.rest.width(x, 1)


class Lineup:
    """The members, given what the user asked for."""

    def __init__(
        self, features: Any, regime_features: Any, seasons: Any = None, regimes: str = "auto"
    ) -> None:
        if regimes not in VIEWS:
            raise RegimekitError(
                f"regimes must be one of {', '.join(VIEWS)}, got {regimes!r:.40}. Leave it out to "
                "let the model decide."
            )
        if regime_features is not None and regimes not in ("auto", "dynamics"):
            raise RegimekitError(
                f"regimes: regime_features are given, and {regimes!r} does not use them. Leave one "
                "of the two out."
            )
        self.regimes = regimes
        self.explicit = features is not None
        self.seasons = None if seasons is None else _periods(seasons)
        if self.explicit and self.seasons:
            raise RegimekitError(
                "seasons: features are given, and nothing is proposed beside them; name the lags "
                "of the season in features, or leave one of the two out."
            )
        self.wanted = FeatureMap(features) if self.explicit else None
        self.regime_features = None if regime_features is None else FeatureMap(regime_features)
        self.like: Row | None = None
        self.begun = False

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        pair = {"features": self.wanted, "regime_features": self.regime_features}
        chosen: dict[str, Any] = {"seasons": None if self.seasons is None else list(self.seasons)}
        chosen["regimes"] = self.regimes
        return chosen | {k: None if w is None else w.features.to_json() for k, w in pair.items()}

    @property
    def _maps(self) -> list[FeatureMap]:
        return [w for w in (self.wanted, self.regime_features) if w is not None]

    def check(self, x: Any) -> Row | None:
        """Return `x` as a row if any feature needs it.

        Raises:
            RegimekitError: if it is missing or cannot be used.
        """
        needed = any(w.features.needs_x for w in self._maps)
        if self.explicit and not needed:
            return None
        if x is None:
            if needed:
                need = next(w.features for w in self._maps if w.features.needs_x)
                raise RegimekitError(f"x is missing; {need!r} needs covariates.")
            if self.like is not None:
                raise RegimekitError("x is missing; earlier observations came with covariates.")
            return None
        if self.begun and self.like is None:
            raise RegimekitError("x is given, but the observations before came without covariates.")
        checking = [w.features for w in self._maps if w.features.needs_x]
        if not self.explicit:
            checking.append(feature_maps.columns())
        for features in checking:
            row = features.check(x, like=self.like)
        return row

    def begin(self, x: Row | None) -> None:
        """Fix the covariates with the first observation."""
        self.begun, self.like = True, x

    def width(self, x: Row | None) -> int:
        """Return the number of covariates of all members together."""
        return self.covariates(x, 0).size

    def _main(self, x: Row | None, time: int) -> Array:
        if self.wanted is not None:
            return self.wanted.values(x, time)
        return np.zeros(0) if x is None else np.asarray(x.values, float)

    def covariates(self, x: Row | None, time: int) -> Array:
        """Return all features that are not lags: for forecasts first, then for regimes."""
        parts = [self._main(x, time)]
        if self.regime_features is not None:
            parts.append(self.regime_features.values(x, time))
        return np.clip(np.concatenate(parts), -MAX_COVARIATE_VALUE, MAX_COVARIATE_VALUE)

    def covariate_rows(self, rows: list[Row | None], time: int) -> Array:
        """Return (T, n_x) covariates of observations from `time` on."""
        if not self._maps:
            if rows[0] is None:
                return np.zeros((len(rows), 0))
            raw = np.array([x.values for x in rows if x is not None], np.float64)
            return np.clip(raw, -MAX_COVARIATE_VALUE, MAX_COVARIATE_VALUE)
        return np.array([self.covariates(x, time + t) for t, x in enumerate(rows)])

    @property
    def prior_variance(self) -> float:
        """Prior variance of the coefficient of a covariate."""
        return PRIOR_VARIANCE

    def prior_weights(self, names: list[str]) -> Array:
        """Return the prior weights of members of these names."""
        return prior_weights(names)

    def make_filter(self, spec: Spec, dim: int, seed: int, begin: bool = True) -> RegimeFilter:
        """Return the regime model of a member; without `begin` its state must be restored."""
        return make_filter(spec, dim, seed, begin)

    def specs(self, n_x: int) -> list[Spec]:
        """Return the regression members to begin with."""
        regime_width = self.regime_width
        main = (0, n_x - regime_width)
        specs = [Spec("level"), Spec("lag 1", (1,))]
        if self.regime_features is not None:
            specs.append(
                Spec("your regime features", self.regime_features.steps, (n_x - regime_width, n_x))
            )
        if self.wanted is not None:
            return self._marked([*specs, Spec("your features", self.wanted.steps, main, True)])
        if main[1]:
            specs.append(Spec("columns", (), main, squares=True))
        if main[1]:
            return self._marked([*specs, Spec("columns and lags", (1, 2, 3), main, squares=True)])
        lags = Spec("lags 1 to 3", (1, 2, 3), squares=True)
        return self._marked([*specs, lags, _of_logs(lags)])

    @property
    def regime_width(self) -> int:
        """Number of covariates that only infer regimes."""
        return 0 if self.regime_features is None else self.regime_features.width(self.like)

    def season(self, periods: list[int], n_x: int) -> list[Spec]:
        """Return the members with seasons: one infers regimes, if it can; the others forecast."""
        steps = sorted({1, 2, 3} | {k for s in periods for k in (s, s + 1)})
        columns = (0, n_x - self.regime_width)
        lags = Spec("season lags", tuple(steps), columns, squares=True)
        specs = [lags]
        if not n_x:
            s = periods[0]
            name = "season differences"
            differences = Spec(name, (1, 2, s), squares=True, regimes=False, difference=s)
            specs += [differences, _of_logs(lags), _of_logs(differences)]
        # A season is averaged over at least two periods.
        known = [period for period in periods if 2 * period <= DEPTH]
        if not known:
            return self._marked(specs)
        regimes = Spec("season", (1,), columns, forecasts=False, season=_longest(known))
        return self._marked([regimes, *specs])

    def views(self, dim: int, n_x: int) -> tuple[str, ...]:
        """Return what regimes are inferred from; "shape" replaces the level of periodic streams.

        Covariates and features define the relation whose regimes are asked for.
        """
        if self.regimes != "auto":
            return (self.regimes,)
        if n_x or self._maps:
            return ("dynamics",)
        return ("level", "shape") if dim == 1 else ("level",)

    @property
    def first_model(self) -> int:
        """Index of the regime model that is selected at first: the one asked for, or lag 1."""
        return 0 if self.regime_features is not None else 1

    def _marked(self, specs: list[Spec]) -> list[Spec]:
        """Return the members with a flag for those that infer regimes."""
        names = REGIME_MODELS if self.regime_features is None else ("your regime features",)
        return [spec._replace(infers=spec.name in names) for spec in specs]

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the first covariates for a snapshot."""
        if self.like is None:
            return {"columns": None, "has_x": False}, {}
        names = None if self.like.names is None else list(self.like.names)
        return {"columns": names, "has_x": True}, {"first_x": self.like.values}

    def unpack(self, values: Values, arrays: Arrays) -> None:
        """Restore what `pack` returned."""
        names = values.words("columns")
        row = None
        if values.flag("has_x"):
            row = Row(arrays.floats("first_x", (None,)), names)
            if names is not None and len(names) != row.values.size:
                raise SnapshotError(f"Invalid snapshot: first_x has the columns {names}.")
        if (self.check(row) is None) != (row is None):
            raise SnapshotError("Invalid snapshot: it has covariates that its features do not use.")
        self.begin(row)


def _periods(given: Any) -> tuple[int, ...]:
    """Return periods in observations, shortest first."""
    each = [given] if np.ndim(given) == 0 else list(given)
    return tuple(sorted({whole("seasons", period, 2, MAX_PERIOD) for period in each}))


def _of_logs(spec: Spec) -> Spec:
    """Return least squares on the same lags of logarithms."""
    return spec._replace(name=f"logs, {spec.name}", regimes=False, logs=True)


def _longest(periods: list[int]) -> int:
    """Return the period that contains the others, as a week contains days, or the strongest."""
    longest = max(periods)
    return longest if all(longest % period == 0 for period in periods) else periods[0]


def coefficient_names(spec: Spec, dim: int) -> list[str]:
    """Return the names of a regime's coefficients; for d > 1 coordinate after coordinate."""
    lags = [
        f"lag {k}" if i == 0 else f"lag {k} less lag {spec.steps[0]}"
        for i, k in enumerate(spec.steps)
    ]
    if dim > 1:
        lags = [f"{lag} of y{j}" for lag in lags for j in range(dim)]
    columns = [f"column {i}" for i in range(*spec.columns)]
    each = ["level" if not spec.steps else "intercept", *lags, *columns]
    return each if dim == 1 else [f"{name} for y{j}" for j in range(dim) for name in each]


def coefficients(
    regime: Regime | None, spec: Spec, units: Standardizer, scaler: CovariateScaler
) -> tuple[Array, Array]:
    """Return mean and sd of a regime's coefficients in the user's units.

    The level is that at usual covariates.
    """
    d = units.dim
    if regime is None:
        return np.array(units.centre), np.array(units.scale)
    mean, sd = np.array(regime.mean), np.array(regime.sd)
    if d > 1:
        return mean, sd
    if spec.steps:
        mean[0] = units.centre[0] * (1.0 - mean[1]) + units.scale[0] * mean[0]
    else:
        mean[0] = units.centre[0] + units.scale[0] * mean[0]
    sd[0] *= units.scale[0]
    factor = units.scale[0] / np.asarray(scaler.scale)[slice(*spec.columns)]
    mean[1 + len(spec.steps) :] *= factor
    sd[1 + len(spec.steps) :] *= factor
    return mean, sd
