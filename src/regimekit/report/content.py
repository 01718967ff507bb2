"""Content of the report, collected from a run and its model by the public API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit import metrics as evaluate
from regimekit.core.exceptions import RegimekitError, whole
from regimekit.metrics.reliability import Calibration
from regimekit.preprocessing.frames import read_series
from regimekit.preprocessing.time_index import DATES, ROWS, TimeIndex, find_frequency, read_times
from regimekit.report import regimes, summary, tables
from regimekit.report.packing import Grid, Packer, grid_for
from regimekit.report.tables import count, percent
from regimekit.results import NO_REGIME, Run, segments

Array = NDArray[np.float64]
_HUNDREDTHS = Grid(0, -2)
_INTEGERS = Grid(0, 0)
_MAX_OUTLIER_SHARE = 0.1  # above this share a warning is shown
_MAX_LISTED = 10  # regimes in the table at the top
_MIN_LISTED_SHARE = 0.01  # share of the observations that such a regime has
_SAMPLE_DATES = 1000  # dates from which the step is detected
_EPOCH = datetime(1970, 1, 1)
_WARM_UP = 50  # observations at the start that are not scored, at most a fifth


@dataclass(frozen=True, eq=False)
class Content:
    """Content of a report.

    Attributes are the keywords of `regimekit.report.render`.
    """

    run: Run
    model: Any
    y: Any
    times: Any = None
    title: str = ""
    horizon: int = 24
    scores: Mapping[str, Any] | None = None
    warnings: Iterable[str] = ()
    settings: Mapping[str, Any] | None = None
    calibration: Any = None
    level: float | None = None
    X: Any = None
    names: list[str] | None = None
    regime_names: Mapping[int, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # found while collecting

    @cached_property
    def values(self) -> Array:
        """(T, d) observations."""
        values = read_series(self.y).values
        if len(values) != len(self.run):
            raise RegimekitError(
                f"y must have the {len(self.run)} rows of the run, got {len(values)}."
            )
        if not len(values):
            raise RegimekitError("run must have at least one observation, got none.")
        return values

    @cached_property
    def band(self) -> float:
        """Probability between the limits of the run."""
        given = self.run.level if self.level is None else self.level
        if not 0 < given < 1:
            raise RegimekitError(f"level must lie strictly between 0 and 1, got {given!r}.")
        return float(given)

    @cached_property
    def index(self) -> TimeIndex:
        """Time index of the observations."""
        return read_times(self.times, len(self.values))

    @cached_property
    def labels(self) -> list[str]:
        """Time labels of the observations."""
        return self.index.labels()

    @cached_property
    def places(self) -> list[str]:
        """Time labels as they are written in a sentence."""
        return self._in_words(self.labels)

    def _in_words(self, labels: list[str]) -> list[str]:
        return [f"row {label}" for label in labels] if self.index.kind == ROWS else labels

    @cached_property
    def regime_data(self) -> regimes.RegimeData:
        """Data of the regime cards."""
        return regimes.RegimeData(
            self.values[:, 0],
            self.run.outlier,
            self.index,
            self.labels,
            [segment for segment in segments(self.run.path) if segment.regime != NO_REGIME],
            self.model,
            {regime.id: regime for regime in self.model.regimes()},
            self.model.transitions(),
            self.names,
        )

    @cached_property
    def reliability(self) -> tuple[Calibration, bool]:
        """PIT and coverage, and whether they are exact."""
        if self.calibration is not None:
            return _read_calibration(self.calibration), True
        pit = evaluate.pit_of_run(self.run, self.values, self.band)
        return evaluate.calibration(pit[self.skip :]), False

    @cached_property
    def scored(self) -> tuple[Mapping[str, Any], int]:
        """Scores, and the number of observations at the start that are known to be left out."""
        if self.scores is not None:
            return self.scores, 0
        return tables.plain_scores(self.run, self.values)

    @cached_property
    def prior_rows(self) -> int:
        """Number of forecasts that were made before any observation."""
        seen = np.flatnonzero(~np.isnan(self.values).all(axis=1))
        if self.run.first or self.model.n_observations > len(self.values):
            return 0
        return int(seen[0]) + 1 if seen.size else 0

    @property
    def skip(self) -> int:
        """Number of observations at the start that are not scored."""
        return min(_WARM_UP, len(self.values) // 5)

    @cached_property
    def inside(self) -> float:
        """Coverage of the scores, or of the run's limits without the first observations."""
        given = tables.score_grid(self.scored[0], self.model.name).get(self.model.name, {})
        if "coverage" in given:
            return given["coverage"]
        shape, skip = self.values.shape, self.skip
        limits = (np.reshape(a, shape)[skip:] for a in (self.run.lower, self.run.upper))
        y = self.values[skip:]
        return float("nan") if np.isnan(y).all() else evaluate.coverage(y, *limits)

    @cached_property
    def ahead(self) -> list[dict[str, Any]]:
        """Forecasts of the next steps, one table per coordinate; empty if there are none."""
        if whole("horizon", self.horizon, least=0) == 0:
            return []
        try:
            forecasts = list(self.model.forecast(self.horizon, self.X))
        except RegimekitError as error:
            self.problems.append(f"The next {self.horizon} steps are not forecast: {error}")
            return []
        dim = self.values.shape[1]
        return [tables.steps_ahead(forecasts, self.index, self.band, j) for j in range(dim)]

    def context(self) -> dict[str, Any]:
        """Return the variables of the template."""
        scores, skip = self.scored
        cards = regimes.cards(self.regime_data)
        calibration, exact = self.reliability
        data = self._data(cards)  # before the warnings: it may add problems
        n = len(self.values)
        # The table at the top has the regimes with most observations.
        often = sum(card["observations"] >= _MIN_LISTED_SHARE * n for card in cards)
        listed = min(max(often, 1), _MAX_LISTED)
        unlisted = [card["observations"] for card in cards[listed:] if card["observations"]]
        return {
            "title": self.title or f"{self.model.name} on {count(n)} observations",
            "model": self.model.name,
            "explanation": self.model.explain(),
            "summary": self._summary(cards),
            "next_step": self._next_step(),
            "outliers": tables.largest_outliers(self.run, self.labels),
            "band": percent(self.band),
            "times": self.index.kind,
            "span": (self.labels[0], self.labels[-1]),
            "entries": cards,
            "listed": listed,
            "unlisted": len(unlisted),
            "unlisted_share": percent(sum(unlisted) / n),
            "transitions": regimes.transition_table(self.regime_data),
            "changes": tables.changes(self.run, self.labels),
            "ahead": self.ahead[0] if self.ahead else None,
            "horizon": self.horizon,
            "calibration": calibration,
            "exact": exact,
            "scores": tables.score_table(scores, self.model.name),
            "skip": skip,
            "warnings": [*self.warnings, *self.problems, *self._found_warnings()],
            "settings": tables.settings_table(
                self.model.settings() if self.settings is None else self.settings
            ),
            "versions": tables.versions(),
            "dim": self.values.shape[1],
            "regime_names": self.regime_names,
            "data": data,
        }

    def _next_step(self) -> str:
        """Return the sentence about the next observation."""
        if not self.ahead:
            return ""
        (place,) = self._in_words(self.ahead[0]["labels"][:1])
        return summary.next_step(self.ahead[0], place, self.band)

    def _summary(self, cards: list[dict[str, Any]]) -> list[str]:
        """Return the sentences at the top of the report."""
        frequency = None
        if self.index.kind == DATES:
            seconds = self.index.values[:_SAMPLE_DATES].tolist()
            frequency = find_frequency([_EPOCH + timedelta(seconds=s) for s in seconds])
        scores = self.scored[0]
        by_forecaster = any(isinstance(value, Mapping) for value in scores.values())
        return summary.sentences(
            self.run,
            self.places,
            str(frequency) if frequency else "",
            cards,
            self.regime_names,
            {} if by_forecaster else scores,
            self.inside,
            self.band,
        )

    def _found_warnings(self) -> list[str]:
        """Warnings about outliers, coverage and reference forecasters."""
        found = []
        outliers = float(self.run.outlier.mean())
        if outliers > _MAX_OUTLIER_SHARE:
            found.append(
                f"{percent(outliers)} of the observations were flagged as outliers. "
                "The noise variance of the model may be too small."
            )
        noise = (self.band * (1 - self.band) / len(self.values)) ** 0.5
        if abs(self.inside - self.band) > max(0.05, 3 * noise):
            side = "too narrow" if self.inside < self.band else "too wide"
            found.append(
                f"The {percent(self.band)} band covered {percent(self.inside)} of the "
                f"observations: the forecasts are {side}."
            )
        better = tables.better_reference(self.scored[0], self.model.name)
        return [*found, better] if better else found

    def _data(self, cards: list[dict[str, Any]]) -> dict[str, Any]:
        """Data of the charts."""
        calibration, _ = self.reliability
        return {
            "columns": self._packed().payload(),
            "times": {
                "kind": self.index.kind,
                "start": self.index.values[0],
                "step": self.index.step,
            },
            "names": {c["id"]: self.regime_names.get(c["id"], str(c["id"])) for c in cards},
            "samples": {c["id"]: c["sample"] for c in cards if c["sample"]},
            "ahead": self.ahead,
            "pit": calibration.pit,
            "coverage": sorted(calibration.coverage.items()),
            "counted": calibration.n,
            "none": NO_REGIME,
        }

    def _packed(self) -> Packer:
        run, packer = self.run, Packer(len(self.values))
        gaps = np.diff(self.index.values, prepend=self.index.values[0])
        if not np.allclose(gaps[1:], self.index.step, rtol=1e-9, atol=0.0):
            # Dates are encoded in milliseconds.
            exponent = -3 if self.index.kind == DATES else grid_for(gaps).exponent
            packer.add("gap", gaps, Grid(0, exponent))
        for j in range(self.values.shape[1]):
            grid = grid_for(self.values[:, j])
            packer.add(f"y{j}", self.values[:, j], grid)
            for name in ("mean", "lower", "upper"):
                column = np.reshape(getattr(run, name), self.values.shape)[:, j].copy()
                # Before the first observation a forecast is the prior.
                column[: self.prior_rows] = np.nan
                near = None if name == "mean" else f"mean{j}"
                packer.add(f"{name}{j}", column, grid, minus=near)
        packer.add("weight", run.weight, _HUNDREDTHS)
        packer.add("change", run.change_probability, _HUNDREDTHS)
        packer.add("outlier", run.outlier, _INTEGERS)
        packer.add("regime", run.path, _INTEGERS)
        return packer


def _read_calibration(given: Any) -> Calibration:
    if isinstance(given, Calibration):
        return given
    try:
        coverage = {float(level): float(share) for level, share in given["coverage"].items()}
        return Calibration([float(v) for v in given["pit"]], coverage, int(given.get("n", 0)))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RegimekitError(
            'calibration must be {"pit": [share of each bin], "coverage": {level: share}}, '
            f"got {given!r}."
        ) from None
