"""What the members are given: from the user's features and covariates to lags and columns.

Lags are the ensemble's own (it can take an outlier back); all other features are covariates, each
brought to centre 0 and spread 1 by medians.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, SnapshotError, whole
from regimekit.ensemble.ensemble import DEPTH
from regimekit.ensemble.members import PRIOR, Spec
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.scaling import Units
from regimekit.results import Regime
from regimekit.serialization.validation import Arrays, Values

Array = NDArray[np.float64]

_WIDEST = 1e4  # of a covariate, in its own spreads
LARGEST = 1e140  # beyond this a covariate is clipped
_NARROWEST = 1e-140  # of a spread: what is over it must not overflow
GENEROUS = 4.0  # the variance that covariates may explain beforehand, in variances of y
# Who reads regimes, the simplest first. Lags beside columns read those of a stream whose errors
# hang together, where columns alone would tile it; lags 1 to 3 without columns see no regimes.
READERS = ("level", "lag 1", "columns", "columns and lags", "your features", "season")
_NO_PAST = np.zeros((0, 1))
LONGEST = 1_000_000  # of a season that may be named; what the past does not reach is not used


class Wanted:
    """A feature map split into lags and the rest."""

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
        """The features that are not lags."""
        if self.rest is None:
            return np.zeros(0)
        return np.array(self.rest.row(x, time, _NO_PAST))

    def width(self, x: Row | None) -> int:
        """How many those are."""
        return 0 if self.rest is None else self.rest.width(x, 1)


class Lineup:
    """Which members there are, given what the user asked for."""

    def __init__(self, features: Any, regime_features: Any, seasons: Any = None) -> None:
        self.explicit = features is not None
        self.seasons = None if seasons is None else _periods(seasons)
        if self.explicit and self.seasons:
            raise RegimekitError(
                "seasons: features are given, and nothing is proposed beside them; name the lags "
                "of the season in features, or leave one of the two out."
            )
        self.wanted = Wanted(features) if self.explicit else None
        self.reader = None if regime_features is None else Wanted(regime_features)
        self.like: Row | None = None
        self.begun = False

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        pair = {"features": self.wanted, "regime_features": self.reader}
        told: dict[str, Any] = {"seasons": None if self.seasons is None else list(self.seasons)}
        return told | {k: None if w is None else w.features.to_json() for k, w in pair.items()}

    @property
    def _maps(self) -> list[Wanted]:
        return [w for w in (self.wanted, self.reader) if w is not None]

    def check(self, x: Any) -> Row | None:
        """`x` as a row if anything needs it; an error if it is missing or unusable."""
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
        """The first observation settles which covariates there are."""
        self.begun, self.like = True, x

    def width(self, x: Row | None) -> int:
        """Covariates of all members together."""
        return self.covariates(x, 0).size

    def _main(self, x: Row | None, time: int) -> Array:
        if self.wanted is not None:
            return self.wanted.values(x, time)
        return np.zeros(0) if x is None else np.asarray(x.values, float)

    def covariates(self, x: Row | None, time: int) -> Array:
        """Everything that is not a lag, as given: for forecasts first, then for reading regimes."""
        parts = [self._main(x, time)]
        if self.reader is not None:
            parts.append(self.reader.values(x, time))
        return np.clip(np.concatenate(parts), -LARGEST, LARGEST)

    def specs(self, n_x: int) -> list[Spec]:
        """The regression members to begin with."""
        read = 0 if self.reader is None or self.reader.rest is None else self._reading_width(n_x)
        main = (0, n_x - read)
        specs = [Spec("level"), Spec("lag 1", (1,))]
        if self.reader is not None:
            specs.append(Spec("your regime features", self.reader.steps, (n_x - read, n_x)))
        if self.wanted is not None:
            return self._marked([*specs, Spec("your features", self.wanted.steps, main, True)])
        if main[1]:
            specs.append(Spec("columns", (), main, squares=True))
        lags = "columns and lags" if main[1] else "lags 1 to 3"
        return self._marked([*specs, Spec(lags, (1, 2, 3), main, squares=True)])

    def _reading_width(self, n_x: int) -> int:
        assert self.reader is not None
        return self.reader.width(self.like)

    def season(self, periods: list[int], n_x: int) -> list[Spec]:
        """The members that know the seasons: one reads regimes, if it can, and one forecasts."""
        steps = sorted({1, 2, 3} | {k for s in periods for k in (s, s + 1)})
        read = 0 if self.reader is None else self._reading_width(n_x)
        columns = (0, n_x - read)
        lags = Spec("season lags", tuple(steps), columns, squares=True)
        known = [period for period in periods if 2 * period <= DEPTH]  # it is averaged over two
        if not known:
            return self._marked([lags])
        reader = Spec("season", (1,), columns, forecasts=False, season=_longest(known))
        return self._marked([reader, lags])

    @property
    def first_reader(self) -> int:
        """Which reader is believed at first: the one asked for, or lag 1."""
        return 0 if self.reader is not None else 1

    def _marked(self, specs: list[Spec]) -> list[Spec]:
        """The same members, with a mark for those that read regimes."""
        names = READERS if self.reader is None else ("your regime features",)
        return [spec._replace(reads=spec.name in names) for spec in specs]

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What the first covariates were."""
        if self.like is None:
            return {"columns": None, "has_x": False}, {}
        names = None if self.like.names is None else list(self.like.names)
        return {"columns": names, "has_x": True}, {"first_x": self.like.values}

    def unpack(self, values: Values, arrays: Arrays) -> None:
        """Take up what `pack` gave."""
        names = values.words("columns")
        row = None
        if values.flag("has_x"):
            row = Row(arrays.floats("first_x", (None,)), names)
            if names is not None and len(names) != row.values.size:
                raise SnapshotError(f"The snapshot's first_x has {names} for columns.")
        if (self.check(row) is None) != (row is None):
            raise SnapshotError("The snapshot has covariates that its features do not use.")
        self.begin(row)


class Scaler:
    """Centre and spread of covariates, learnt whenever the units are.

    Members believe beforehand that a coefficient has variance `PRIOR`, however many there are. So
    each of k covariates is brought to such a spread that all together are believed to move y by
    sqrt(GENEROUS) times its own spread: without that, a regime not opened yet would be expected to
    lie sqrt(k) times too far away, and would never be opened.
    """

    def __init__(self, width: int) -> None:
        self.centre, self.scale = np.zeros(width), np.ones(width)

    def learn(self, rows: Array, spread_of_y: float) -> None:
        """From the covariates seen so far, (n, k), and the spread of y in units."""
        if not self.centre.size:
            return
        self.centre = np.median(rows, axis=0)
        away = np.abs(rows - self.centre)
        mean = (away / len(away)).sum(axis=0)  # the sum of all could overflow
        spread = np.maximum(1.4826 * np.median(away, axis=0), 1.2533 * mean)
        usual = np.where(spread > _NARROWEST, spread, np.maximum(np.abs(self.centre), 1.0))
        reach = spread_of_y * math.sqrt(GENEROUS / (PRIOR * self.centre.size))
        self.scale = usual / reach

    def scaled(self, raw: Array) -> Array:
        """Covariates ready for members."""
        if not raw.size:
            return raw
        return np.clip((raw - self.centre) / self.scale, -_WIDEST, _WIDEST)

    def pack(self) -> dict[str, NDArray[Any]]:
        """State for a snapshot."""
        return {"x_centre": self.centre.copy(), "x_scale": self.scale.copy()}

    def unpack(self, arrays: Arrays) -> None:
        """Take up what `pack` gave."""
        shape = self.centre.shape
        self.centre = arrays.floats("x_centre", shape, -LARGEST, LARGEST)
        self.scale = arrays.floats("x_scale", shape, _NARROWEST, 10 * LARGEST)


def _periods(given: Any) -> tuple[int, ...]:
    """Periods in observations, shortest first."""
    each = [given] if np.ndim(given) == 0 else list(given)
    return tuple(sorted({whole("seasons", period, 2, LONGEST) for period in each}))


def _longest(periods: list[int]) -> int:
    """The season that holds the others too, as a week holds days; failing that the strongest."""
    longest = max(periods)
    return longest if all(longest % period == 0 for period in periods) else periods[0]


def names(spec: Spec, dim: int) -> list[str]:
    """What the coefficients of a regime are; for d > 1 one after another for each coordinate."""
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
    regime: Regime | None, spec: Spec, units: Units, scaler: Scaler
) -> tuple[Array, Array]:
    """A regime's coefficients in the user's units; the level where covariates are usual."""
    d = units.dim
    if regime is None:
        return units.centre.copy(), units.scale.copy()
    mean, sd = np.array(regime.mean), np.array(regime.sd)
    if d > 1:
        return mean, sd
    if spec.steps:
        mean[0] = units.centre[0] * (1.0 - mean[1]) + units.scale[0] * mean[0]
    else:
        mean[0] = units.centre[0] + units.scale[0] * mean[0]
    sd[0] *= units.scale[0]
    factor = units.scale[0] / scaler.scale[slice(*spec.columns)]
    mean[1 + len(spec.steps) :] *= factor
    sd[1 + len(spec.steps) :] *= factor
    return mean, sd
