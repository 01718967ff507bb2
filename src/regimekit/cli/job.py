"""What the options ask for: the table opened, its columns found, the model made; all before a run.

Whatever is wrong is said here, when nothing has been computed or written yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regimekit.cli.console import Voice
from regimekit.core.exceptions import RegimekitError, unknown, whole
from regimekit.core.model import Model
from regimekit.core.registry import REGISTRY, make, models
from regimekit.io import (
    Clock,
    Layout,
    Reading,
    Request,
    Source,
    Wishes,
    find_layout,
    open_source,
)
from regimekit.io import cells as cell_forms
from regimekit.io.columns import Columns
from regimekit.io.source import Row, quoted
from regimekit.panel import default_model, with_seasons
from regimekit.preprocessing import features
from regimekit.preprocessing.frames import Table
from regimekit.preprocessing.time_index import Frequency, find_frequency, seasons_of

_ROW = "regimekit_row"  # a column of row numbers, to sort by


@dataclass(frozen=True)
class Job:
    """What is to be done, as the options say it.

    Attributes:
        request: the table.
        wishes: its columns, as far as they were named.
        model: by name; empty for the default.
        settings: of the model.
        lags: of the target, as features.
        seasons: periods, as features and, the first, for the seasonal last value.
        level: probability of the limits.
        horizon: steps to forecast after the end.
        future: table with the covariates of those steps.
        burn_in: first rows that are not scored.
        sort: whether to sort by time.
        features_set: whether the settings hold the features, and no option asks for others.
    """

    request: Request
    wishes: Wishes
    model: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    lags: tuple[int, ...] = ()
    seasons: tuple[float, ...] = ()
    level: float = 0.9
    horizon: int = 0
    future: str | None = None
    burn_in: int = 0
    sort: bool = False
    features_set: bool = False

    def check(self) -> None:
        """Refuse what can be refused without looking at the table."""
        if not 0 < self.level < 1:
            raise RegimekitError(f"--level must lie strictly between 0 and 1, got {self.level}.")
        whole("--horizon", self.horizon, 0)
        whole("--burn-in", self.burn_in, 0)
        if self.horizon and self.wishes.columns and self.future is None:
            raise RegimekitError(
                "--horizon with --columns needs --future: a table with the covariates of the "
                "steps ahead."
            )
        if self.future is not None and not (self.horizon and self.wishes.columns):
            raise RegimekitError(
                "--future holds the covariates of the steps ahead: it goes with --horizon and "
                "--columns."
            )
        self.name_of_model()

    def name_of_model(self) -> str:
        """The model by name."""
        name = default_model() if self.model in ("", "auto") else self.model
        if name not in REGISTRY:
            raise unknown("--model", name, REGISTRY)
        return name

    def model_settings(self) -> dict[str, Any]:
        """The settings with the features that were asked for, and seasons where they are told."""
        name, chosen = self.name_of_model(), dict(self.settings)
        takes = make(name).settings()
        if "seasons" in takes and self._only_seasons():
            return {"seasons": [int(period) for period in self.seasons]} | chosen
        wanted = self._features()
        if wanted is not None and takes_features(name):
            chosen["features"] = wanted
        elif wanted is not None and (self.wishes.columns or self.lags):
            raise RegimekitError(
                f"--model {name} takes no features, so --columns and --lags cannot be used with it."
            )
        if "period" in takes and self.seasons:
            chosen.setdefault("period", int(self.seasons[0]))
        return chosen

    def _only_seasons(self) -> bool:
        """Whether whole seasons are all that the options say about features."""
        others = self.features_set or self.wishes.columns or self.lags
        return bool(self.seasons) and not others and all(s == int(s) for s in self.seasons)

    def _features(self) -> Any:
        """The features that the options name, or None for the model's own."""
        if self.features_set or not (self.wishes.columns or self.lags or self.seasons):
            return None
        parts = features.intercept()
        if self.wishes.columns:
            parts = parts + features.columns(*self.wishes.columns)
        for period in self.seasons:
            parts = parts + features.season(period)
        return parts + features.lags(*self.lags) if self.lags else parts


@dataclass
class Prepared:
    """A job whose table was looked at."""

    job: Job
    source: Source
    layout: Layout
    frequency: Frequency | None
    season: int | None

    @property
    def model_name(self) -> str:
        """The model by name."""
        return self.job.name_of_model()

    def reading(self) -> Reading:
        """A reader of the table from its first row."""
        return Reading(self.layout, Clock(self.frequency), self.source.first_line)

    def chunks(self) -> Iterator[list[Row]]:
        """The rows of the columns in use, in the order in which they are learnt."""
        by = self.layout.by
        if by is None:
            return self.source.rows(self.layout.used, self._time_order() if self.job.sort else "")
        numbered = f"(SELECT *, row_number() OVER () AS {_ROW} FROM {self.source.relation})"
        within = self._time_order() if self.job.sort else _ROW
        source = replace(self.source, relation=numbered)
        return source.rows(self.layout.used, f"{quoted(by)}, {within}")

    def model(self) -> Model:
        """A fresh model."""
        chosen = self.job.model_settings()
        return make(
            self.model_name, **with_seasons(self.model_name, chosen, seasons_of(self.frequency))
        )

    def future(self) -> Table | None:
        """The covariates of the steps ahead."""
        return read_future(self.job.future, self.layout, self.job.horizon)

    def _time_order(self) -> str:
        """The time as SQL can sort by it."""
        if self.layout.time is None:
            raise RegimekitError("--sort needs a column with the times; say --time.")
        name, form = quoted(self.layout.time), self.layout.time_form
        if not self.source.options:  # typed cells
            return name
        if form == cell_forms.ISO:
            return f"CAST({name} AS TIMESTAMP)"
        if form == cell_forms.NUMBER or form.startswith("epoch"):
            return f"CAST({name} AS DOUBLE)"
        return f"strptime({name}, '{form}')"


def prepare(job: Job, voice: Voice, several: bool = False) -> Prepared:
    """Open the table, find its columns and say what was found, a line each.

    With `several` models to come, none is named.
    """
    job.check()
    source = open_source(job.request)
    sample = source.sample()
    layout = find_layout(source.names, sample, job.wishes, source.separator)
    frequency = _frequency(source, sample, layout)
    season = int(job.seasons[0]) if job.seasons else None
    if season is None and frequency is not None:
        season = frequency.season
    prepared = Prepared(job, source, layout, frequency, season)
    prepared.model()  # a bad setting is found before the first row is read
    for line in _found(prepared):
        voice.say(line)
    if not several:
        name = prepared.model_name
        voice.say(f"model:    {name}, {models()[name]}")
    return prepared


def takes_features(name: str) -> bool:
    """Whether a model regresses on features: some have none, and some none but an intercept."""
    try:
        make(name, features=features.intercept() + features.lags(1))
    except RegimekitError:
        return False
    return True


def read_future(file: str | None, layout: Layout, horizon: int) -> Table | None:
    """The covariates of the next `horizon` steps from a table of their own."""
    if file is None or not layout.columns:
        return None
    import numpy as np

    source = open_source(Request(file))
    for name in layout.columns:
        if name not in source.names:
            raise unknown("--future", name, source.names)
    rows = [row for chunk in source.rows(layout.columns) for row in chunk][:horizon]
    if len(rows) < horizon:
        raise RegimekitError(f"--future {file} has {len(rows)} rows, fewer than {horizon} steps.")
    values = [[cell_forms.number(cell, layout.decimal) for cell in row] for row in rows]
    return Table(np.array(values), layout.columns)


def read_settings(given: list[str]) -> dict[str, Any]:
    """Settings given as name=value."""
    chosen = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals:
            raise RegimekitError(f"--set takes name=value, got {item!r}.")
        try:
            chosen[name] = json.loads(value)
        except ValueError:
            chosen[name] = value
    return chosen


def words(text: str) -> tuple[str, ...]:
    """Words between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Numbers between commas."""
    try:
        return tuple(float(word) for word in words(text))
    except ValueError:
        raise RegimekitError(f"{option} takes numbers between commas, got {text!r}.") from None


def steps(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers of steps between commas."""
    given = numbers(option, text)
    for number in given:
        if number != int(number) or number < 1:
            raise RegimekitError(f"{option} takes whole numbers from 1 on, got {number:g}.")
    return tuple(int(number) for number in given)


def read_tuned(file: Path | None) -> Any:
    """What `tune` wrote to a file, or None."""
    if file is None:
        return None
    from regimekit.tuning import TuneResult

    if not file.is_file():
        raise RegimekitError(f"--settings {file} is no file.")
    return TuneResult.read(file)


def _frequency(source: Source, sample: list[Row], layout: Layout) -> Frequency | None:
    """The step of the clock, by the first rows (those of the first series)."""
    if layout.time is None:
        return None
    place = source.names.index(layout.time)
    if layout.by is not None:
        key = source.names.index(layout.by)
        sample = [row for row in sample if row[key] == sample[0][key]]
    times = layout.times([row[place] for row in sample])
    try:
        return find_frequency(sorted(times))
    except TypeError:
        return None


def _found(prepared: Prepared) -> list[str]:
    """What was found out, a line each."""
    layout, job = prepared.layout, prepared.job
    lines = list(prepared.source.said)
    if layout.decimal == ",":
        lines.append("Numbers are written with a decimal comma.")
    lines.append(f"target:   {layout.target}, in its own units")
    if layout.time is None:
        lines.append("time:     none; rows are taken in their order")
    else:
        how_often = str(prepared.frequency) if prepared.frequency else "no regular step"
        lines.append(f"time:     {layout.time} ({layout.time_form}), {how_often}")
    if layout.by is not None:
        lines.append(f"series:   by {layout.by}, each with a model of its own")
    if prepared.season:
        lines.append(f"season:   {prepared.season} steps, for the seasonal last value")
    lines.append(f"features: {_features_in_words(job)}")
    return lines


def _features_in_words(job: Job) -> str:
    if job.features_set:
        return "as the settings say"
    if "features" not in job.model_settings():
        return "the model's own"
    parts = ["intercept", *job.wishes.columns]
    parts += [f"season of {period:g}" for period in job.seasons]
    if job.lags:
        parts.append(f"lags {', '.join(map(str, job.lags))}")
    return ", ".join(parts)


def table_of(records: list[dict[str, Any]]) -> Columns:
    """Records as columns."""
    names = list(dict.fromkeys(name for record in records for name in record))
    return {name: [record.get(name) for record in records] for name in names}
