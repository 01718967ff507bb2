"""Everything the page says, gathered from a run and its model by the public API alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit import metrics as evaluate
from regimekit.core.explain import coefficient_names
from regimekit.core.exceptions import RegimekitError, whole
from regimekit.metrics.reliability import Calibration
from regimekit.plotting.palette import look
from regimekit.preprocessing.frames import read_series
from regimekit.preprocessing.time_index import DATES, TimeIndex, read_times
from regimekit.report import library, tables
from regimekit.report.packing import Grid, Packer, grid_for
from regimekit.report.words import count, percent, rounded
from regimekit.results import NO_REGIME, Run

Array = NDArray[np.float64]
_HUNDREDTHS = Grid(0, -2)
_WHOLE = Grid(0, 0)
_MANY_OUTLIERS = 0.1
_LEAVING = 0.5  # a regime less likely than this is about to change, or has


@dataclass(frozen=True, eq=False)
class Content:
    """A run, the model after it, and what its user knows about the series.

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
    trouble: list[str] = field(default_factory=list)  # found while gathering

    @cached_property
    def values(self) -> Array:
        """(T, d) the stream."""
        values = read_series(self.y).values
        if len(values) != len(self.run):
            raise RegimekitError(f"y has {len(values)} rows but the run has {len(self.run)}.")
        if not len(values):
            raise RegimekitError("run is empty; a report needs at least one observation.")
        return values

    @cached_property
    def band(self) -> float:
        """Probability between the run's limits."""
        given = getattr(self.run, "level", 0.9) if self.level is None else self.level
        if not 0 < given < 1:
            raise RegimekitError(f"level must lie strictly between 0 and 1, got {given!r}.")
        return float(given)

    @cached_property
    def timeline(self) -> TimeIndex:
        """When each observation was made."""
        return read_times(self.times, len(self.values))

    @cached_property
    def words(self) -> list[str]:
        """The times, written out."""
        return self.timeline.labels()

    @cached_property
    def known(self) -> library.Known:
        """What the library of regimes is made from."""
        regimes = {regime.id: regime for regime in self.model.regimes()}
        return library.Known(
            self.values[:, 0],
            self.run.outlier,
            self.timeline,
            self.words,
            library.stays(self.run.path),
            regimes,
            self.model.transitions(),
            self.names or coefficient_names(self.model),
        )

    @cached_property
    def reliability(self) -> tuple[Calibration, bool]:
        """PIT and coverage, and whether they come from the forecasts themselves."""
        if self.calibration is not None:
            return _read_calibration(self.calibration), True
        pit = evaluate.pit_of_run(self.run, self.values, self.band)
        return evaluate.calibration(pit[min(50, len(pit) // 5) :]), False

    @cached_property
    def scored(self) -> tuple[Mapping[str, Any], int]:
        """The scores, and how many first observations are known to be left out of them."""
        if self.scores is not None:
            return self.scores, 0
        return tables.plain_scores(self.run, self.values)

    @cached_property
    def inside(self) -> float:
        """Share of the observations between the run's limits; the first ones are not counted."""
        skip = min(50, len(self.values) // 5)
        limits = (np.reshape(a, self.values.shape)[skip:] for a in (self.run.lower, self.run.upper))
        y = self.values[skip:]
        return float("nan") if np.isnan(y).all() else evaluate.coverage(y, *limits)

    @cached_property
    def ahead(self) -> list[dict[str, Any]]:
        """The next steps, one table per coordinate; empty where there is no forecast."""
        if whole("horizon", self.horizon, least=0) == 0:
            return []
        try:
            forecasts = list(self.model.forecast(self.horizon, self.X))
        except RegimekitError as error:
            self.trouble.append(f"There is no forecast of the next {self.horizon} steps: {error}")
            return []
        dim = self.values.shape[1]
        return [tables.steps_ahead(forecasts, self.timeline, self.band, j) for j in range(dim)]

    def context(self) -> dict[str, Any]:
        """What the template fills in."""
        scores, skip = self.scored
        entries = library.entries(self.known)
        calibration, exact = self.reliability
        data = self._data(entries)  # first: it may find trouble
        return {
            "title": self.title or f"{self.model.name} on {count(len(self.values))} observations",
            "model": self.model.name,
            "explanation": _explanation(self.model),
            "tiles": self._tiles(),
            "band": percent(self.band),
            "times": self.timeline.kind,
            "span": (self.words[0], self.words[-1]),
            "entries": entries,
            "map": library.transition_map(self.known),
            "changes": tables.changes(self.run, self.words),
            "ahead": self.ahead[0] if self.ahead else None,
            "horizon": self.horizon,
            "calibration": calibration,
            "exact": exact,
            "scores": tables.score_table(scores, self.model.name),
            "skip": skip,
            "warnings": [*self.warnings, *self.trouble, *self._doubts()],
            "settings": tables.settings_table(
                self.model.settings() if self.settings is None else self.settings
            ),
            "versions": tables.versions(),
            "dim": self.values.shape[1],
            "regime_names": self.regime_names,
            "data": data,
        }

    def _tiles(self) -> list[tuple[str, str, str]]:
        """Headline, number, remark."""
        run, n = self.run, len(self.values)
        missing = int(np.isnan(self.values).all(axis=1).sum())
        tiles = [("observations", count(n), f"{count(missing)} missing" if missing else "")]
        regimes = len({stay.regime for stay in self.known.stays})
        if regimes:
            certainty = f"probability {percent(float(run.regime_probability[-1]))}"
            if run.regime_probability[-1] < _LEAVING:
                certainty += "; it seems to be ending"
            tiles.append(("regimes", str(regimes), f"{len(self.known.stays) - 1} changes"))
            now = int(run.regime[-1])
            name = self.regime_names.get(now, str(now))
            tiles.append(("now in regime", name, certainty))
        outliers = int(run.outlier.sum())
        tiles.append(("outliers", count(outliers), percent(outliers / n)))
        tiles.append((f"inside the {percent(self.band)} band", percent(self.inside), ""))
        if self.ahead:
            step = self.ahead[0]
            low, high = step["lower"][0], step["upper"][0]
            limits = f"{rounded(low, high - low)} to {rounded(high, high - low)}"
            tiles.append(("next value", rounded(step["median"][0], high - low), limits))
        return tiles

    def _doubts(self) -> list[str]:
        """What a careful reader would point out."""
        found = []
        outliers = float(self.run.outlier.mean())
        if outliers > _MANY_OUTLIERS:
            found.append(
                f"{percent(outliers)} of the observations were taken for outliers. "
                "That many are rarely accidents; the model's noise may be set too small."
            )
        noise = (self.band * (1 - self.band) / len(self.values)) ** 0.5
        if abs(self.inside - self.band) > max(0.05, 3 * noise):
            side = "too narrow" if self.inside < self.band else "too wide"
            found.append(
                f"The {percent(self.band)} band held {percent(self.inside)} of the observations: "
                f"the forecasts are {side}."
            )
        beaten = tables.beaten_by(self.scored[0], self.model.name)
        return [*found, beaten] if beaten else found

    def _data(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        """What the page's charts are drawn from."""
        ids = sorted({stay.regime for stay in self.known.stays} | set(self.known.regimes))
        calibration, _ = self.reliability
        return {
            "columns": self._packed().payload(),
            "times": {
                "kind": self.timeline.kind,
                "start": self.timeline.values[0],
                "step": self.timeline.step,
            },
            "dim": self.values.shape[1],
            "band": self.band,
            "looks": {
                str(i): look(i)._asdict() | {"name": self.regime_names.get(i, str(i))} for i in ids
            },
            "samples": {str(e["id"]): e["sample"] for e in entries if e["sample"]},
            "ahead": self.ahead,
            "pit": calibration.pit,
            "coverage": sorted(calibration.coverage.items()),
            "counted": calibration.n,
            "none": NO_REGIME,
        }

    def _packed(self) -> Packer:
        run, packer = self.run, Packer(len(self.values))
        gaps = np.diff(self.timeline.values, prepend=self.timeline.values[0])
        if not np.allclose(gaps[1:], self.timeline.step, rtol=1e-9, atol=0.0):
            fine = Grid(0, -3) if self.timeline.kind == DATES else grid_for(gaps)
            packer.add("gap", gaps, Grid(0, fine.exponent))
        for j in range(self.values.shape[1]):
            grid = grid_for(self.values[:, j])
            packer.add(f"y{j}", self.values[:, j], grid)
            for name in ("mean", "lower", "upper"):
                column = np.reshape(getattr(run, name), self.values.shape)[:, j]
                near = None if name == "mean" else f"mean{j}"
                packer.add(f"{name}{j}", column, grid, minus=near)
        packer.add("weight", run.weight, _HUNDREDTHS)
        packer.add("change", run.change_probability, _HUNDREDTHS)
        packer.add("outlier", run.outlier, _WHOLE)
        packer.add("regime", run.path, _WHOLE)
        return packer


def _explanation(model: Any) -> str:
    explain = getattr(model, "explain", None)
    return str(explain()) if callable(explain) else ""


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
