"""From the options of a command to a table, its columns, and a model.

Every command that reads a table builds `PipelineOptions` and calls `open_pipeline`, so all of
them check the same things before anything is computed or written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from regimekit.cli.console import Console
from regimekit.core.exceptions import RegimekitError, unknown, whole
from regimekit.core.limits import MAX_HORIZON
from regimekit.core.model import Model
from regimekit.core.registry import DEFAULT_MODEL, REGISTRY, make, models
from regimekit.io import (
    ColumnChoice,
    Layout,
    ObservationBlock,
    ObservationReader,
    Source,
    TableRequest,
    TimeColumn,
    detect_layout,
    open_source,
)
from regimekit.io import cell_parsing as cells
from regimekit.io.reader import Row, quote_name, quote_text
from regimekit.io.reshaping import check_single_series, join_date_columns, make_long
from regimekit.panel import make_for_calendar
from regimekit.preprocessing import features
from regimekit.preprocessing.frames import Table
from regimekit.preprocessing.time_column import format_time
from regimekit.preprocessing.time_index import Frequency, find_frequency, instant, seasons_of
from regimekit.tuning import TuneResult

_ROW_NUMBER = "regimekit_row"  # helper column that keeps the order of rows within a series
_MIN_ROWS = 4  # observations needed to compare or tune models


@dataclass(frozen=True)
class PipelineOptions:
    """Options of a command that reads a table.

    Attributes:
        request: the table.
        choice: columns that the user named.
        model: name of the model; empty for the default.
        settings: settings of the model.
        lags: lags of the target, as features.
        seasons: season lengths in steps; the first one is used for the seasonal last value.
        level: probability of the intervals.
        horizon: steps to forecast after the last row.
        future: table with the covariates of these steps.
        burn_in: first rows that are not scored.
        sort: whether to sort the rows by time.
        keep_features: whether the settings contain features and no option asks for others.
        wide: whether each numeric column is a series.
    """

    request: TableRequest
    choice: ColumnChoice
    model: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    lags: tuple[int, ...] = ()
    seasons: tuple[float, ...] = ()
    level: float = 0.9
    horizon: int = 0
    future: str | None = None
    burn_in: int = 0
    sort: bool = False
    keep_features: bool = False
    wide: bool = False

    @property
    def model_name(self) -> str:
        """Name of the model."""
        return self.model or DEFAULT_MODEL

    @property
    def inputs(self) -> tuple[str | None, ...]:
        """Files that are read, some of them None."""
        return self.request.file, self.future

    def check(self) -> None:
        """Raise an error for options that are wrong for any table."""
        if not 0 < self.level < 1:
            raise RegimekitError(
                f"--level must be between 0 and 1, got {self.level}. Pass 0.9 for 90 %."
            )
        whole("--horizon", self.horizon, 0, MAX_HORIZON)
        whole("--burn-in", self.burn_in, 0)
        if self.horizon and self.choice.columns and self.future is None:
            raise RegimekitError(
                "--horizon with --columns needs --future: a table with the covariates of the "
                "forecast steps."
            )
        if self.future is not None and not (self.horizon and self.choice.columns):
            raise RegimekitError(
                "--future contains covariates of the forecast steps, so it needs --horizon and "
                "--columns."
            )
        if self.model_name not in REGISTRY:
            raise unknown("--model", self.model_name, REGISTRY)

    def model_settings(self, covariates: tuple[str, ...] | None = None) -> dict[str, Any]:
        """Return the settings of the model, with features and seasons from the options.

        Args:
            covariates: names of the covariates, by default those of the options; a categorical
                column has several.
        """
        name, chosen = self.model_name, dict(self.settings)
        accepted = make(name).settings()
        others = self.keep_features or self.choice.columns or self.lags
        whole_steps = self.seasons and all(period == int(period) for period in self.seasons)
        if "seasons" in accepted and whole_steps and not others:
            return {"seasons": [int(period) for period in self.seasons]} | chosen
        wanted = self._features(self.choice.columns if covariates is None else covariates)
        if wanted is not None and takes_features(name):
            chosen["features"] = wanted
        elif wanted is not None and (self.choice.columns or self.lags):
            raise RegimekitError(
                f"--model {name} takes no features. Leave out --columns and --lags, or choose "
                "another model."
            )
        if "period" in accepted and self.seasons:
            chosen.setdefault("period", int(self.seasons[0]))
        return chosen

    def describe_features(self) -> str:
        """Return the features as text."""
        if self.keep_features:
            return "from the settings"
        if "features" not in self.model_settings():
            return "default of the model"
        parts = ["intercept", *self.choice.columns]
        parts += [f"season of {period:g}" for period in self.seasons]
        if self.lags:
            parts.append(f"lags {', '.join(map(str, self.lags))}")
        return ", ".join(parts)

    def _features(self, covariates: tuple[str, ...]) -> Any:
        """Return the features that the options name; None for those of the model."""
        if self.keep_features or not (self.choice.columns or self.lags or self.seasons):
            return None
        parts = features.intercept()
        if covariates:
            parts = parts + features.columns(*covariates)
        for period in self.seasons:
            parts = parts + features.season(period)
        return parts + features.lags(*self.lags) if self.lags else parts


@dataclass
class Pipeline:
    """Open table with detected columns.

    Attributes:
        options: options of the command.
        source: the table.
        layout: its columns.
        frequency: step between two rows, or None if there is no regular step.
        season: season length of the seasonal last value, in steps.
    """

    options: PipelineOptions
    source: Source
    layout: Layout
    frequency: Frequency | None
    season: int | None

    def reader(self) -> ObservationReader:
        """Return a reader for the rows, before the first one."""
        return ObservationReader(self.layout, TimeColumn(self.frequency), self.source.first_line)

    def model(self) -> Model:
        """Return a new model."""
        name = self.options.model_name
        chosen = self.options.model_settings(self.layout.covariates)
        return make_for_calendar(name, chosen, seasons_of(self.frequency))

    def chunks(self) -> Iterator[list[Row]]:
        """Yield the rows of the columns in use, sorted by series and, with --sort, by time."""
        order = self._time_order() if self.options.sort else ""
        if self.layout.by is None:
            return self.source.rows(self.layout.used, order)
        numbered = f"(SELECT *, row_number() OVER () AS {_ROW_NUMBER} FROM {self.source.relation})"
        order = f"{quote_name(self.layout.by)}, {order or _ROW_NUMBER}"
        return replace(self.source, relation=numbered).rows(self.layout.used, order)

    def read_all(self, console: Console) -> ObservationBlock:
        """Read the whole table, for models that run more than once."""
        reader = self.reader()
        block = reader.read_all(self.chunks())
        for line in reader.notes():
            console.info(f"note: {line}")
        rows = 0 if block is None else len(block.y)
        if block is None or rows < _MIN_ROWS:
            raise RegimekitError(
                f"{self.source.name} has {rows} rows; comparing models needs at least {_MIN_ROWS}."
            )
        return block

    def count(self) -> int | None:
        """Return the number of rows, or of series with --by; None if they cannot be counted."""
        expression = "count(*)"
        if self.layout.by is not None:
            key = quote_name(self.layout.by)
            expression = f"count(DISTINCT {key}) + max(CAST({key} IS NULL AS INTEGER))"
        try:
            return self.source.count(expression)
        except RegimekitError:
            return None

    def _time_order(self) -> str:
        """Return a SQL expression of the time, to sort by."""
        if self.layout.time is None:
            raise RegimekitError("--sort needs a time column. Name it with --time.")
        name = quote_name(self.layout.time)
        if not self.source.csv_options:
            return name
        orders = [_sql_time(name, part) for part in self.layout.time_format.split(cells.EITHER)]
        return orders[0] if len(orders) == 1 else f"coalesce({', '.join(orders)})"


def _sql_time(name: str, time_format: str) -> str:
    """Return a SQL expression of a text column in a time format, to sort by."""
    if time_format == cells.ISO:
        return f"TRY_CAST({name} AS TIMESTAMP)"
    if time_format == cells.NUMBER or time_format.startswith("epoch"):
        return f"CAST({name} AS DOUBLE)"
    if time_format == cells.QUARTER:
        return name
    return f"try_strptime({name}, {quote_text(time_format)})"


def open_pipeline(options: PipelineOptions, console: Console, show_model: bool = True) -> Pipeline:
    """Open the table, detect its columns, and print what was detected.

    Args:
        options: options of the command.
        console: output.
        show_model: whether to check and print the model; False if several models will run.

    Returns:
        The open pipeline.

    Raises:
        RegimekitError: if an option, the table or a setting cannot be used.
    """
    options.check()
    source = open_source(options.request)
    source, choice = join_date_columns(source, options.choice)
    if options.wide:
        signs = (cell for row in source.sample() for cell in row)
        decimal = cells.detect_decimal_sign(signs, source.separator)
        source, choice = make_long(source, choice, decimal)
    sample = source.sample()
    layout = detect_layout(source.names, sample, choice, source.separator)
    if layout.zone is None and layout.time in source.zones:
        layout = replace(layout, zone=source.zones[layout.time])
    check_single_series(source.names, sample, layout)
    frequency = _detect_frequency(source, sample, layout)
    season = frequency.season if frequency else None
    if options.seasons:
        season = int(options.seasons[0])
    pipeline = Pipeline(options, source, layout, frequency, season)
    if show_model:
        # A wrong setting is found before the first row is read.
        pipeline.model()
    for line in source.notes:
        console.info(line)
    for line in _notation(pipeline):
        console.info(line)
    for name, value in _detected(pipeline).items():
        console.info(f"{name + ':':<10}{value}")
    if show_model:
        name = options.model_name
        console.info(f"model:    {name}, {models()[name]}")
    return pipeline


def _notation(pipeline: Pipeline) -> Iterator[str]:
    """Yield sentences about the notation of the cells."""
    layout = pipeline.layout
    if layout.decimal == ",":
        yield "Numbers have a decimal comma."
    for name, unit in layout.units.items():
        yield f"Numbers of {name} have the unit {unit!r}, which is left out."
    for name, levels in layout.levels.items():
        others = ", ".join(levels[1:])
        yield f"{name} is categorical: one covariate each for {others}; {levels[0]} is 0 in all."


def takes_features(model: str) -> bool:
    """Return whether a model regresses on features other than an intercept."""
    try:
        make(model, features=features.intercept() + features.lags(1))
    except RegimekitError:
        return False
    return True


def read_future(
    file: str | None, layout: Layout, horizon: int, clock: TimeColumn | None = None
) -> Table | None:
    """Read the covariates of the next `horizon` steps.

    If the table has the time column, rows up to the last time of the run are skipped, and the
    first row after it must be the next step.

    Args:
        file: table with one row per step, or None.
        layout: columns of the run.
        horizon: number of steps.
        clock: times of the run.

    Returns:
        (horizon, k) covariates; None without a file or without covariates.

    Raises:
        RegimekitError: if the table lacks a column, has too few rows, or starts at another time.
    """
    if file is None or not layout.columns:
        return None
    source = open_source(TableRequest(file))
    for name in layout.columns:
        if name not in source.names:
            raise unknown("--future", name, source.names)
    names = layout.columns
    if clock is None or clock.last is None or layout.time not in source.names:
        rows = [row for chunk in source.rows(names) for row in chunk][:horizon]
        if len(rows) < horizon:
            raise RegimekitError(f"--future {file} needs {horizon} rows, got {len(rows)}.")
    else:
        rows = _rows_after(source, layout, clock, horizon)
    values = [
        [v for n, cell in zip(names, row, strict=True) for v in layout.covariate_values(n, cell)]
        for row in rows
    ]
    return Table(np.array(values), layout.covariates)


def _rows_after(source: Source, layout: Layout, clock: TimeColumn, horizon: int) -> list[Row]:
    """Return the covariates in the rows after the last time of a run."""
    assert layout.time is not None and clock.last is not None
    parse, last = layout.parse_time(), format_time(clock.last)
    found: list[tuple[Any, Row]] = []
    for chunk in source.rows((layout.time, *layout.columns)):
        for number, (cell, *row) in enumerate(chunk, start=1):
            try:
                time: Any = parse(cell)
            except (TypeError, ValueError, OverflowError):
                raise RegimekitError(
                    f"--future: row {number} has the time {cell!r}, which is not in the format of "
                    f"the run ({layout.time_format})."
                ) from None
            after: Any = instant(clock.last)
            if instant(time) > after:
                found.append((time, tuple(row)))
    if len(found) < horizon:
        raise RegimekitError(
            f"--future must have {horizon} rows after {last}, the last time of the run; it has "
            f"{len(found)}."
        )
    if clock.frequency is not None:
        expected = clock.frequency.after(clock.last, 1)
        if instant(found[0][0]) != instant(expected):
            raise RegimekitError(
                f"--future starts at {format_time(found[0][0])}, but the first step after the run "
                f"is {format_time(expected)}. Add the missing rows."
            )
    return [row for _, row in found[:horizon]]


def parse_settings(given: list[str] | None) -> dict[str, Any]:
    """Parse settings written as name=value; values are JSON, or else text."""
    chosen = {}
    for item in given or []:
        name, equals, value = item.partition("=")
        if not equals:
            raise RegimekitError(f"--set must be name=value, got {item!r}.")
        try:
            chosen[name] = json.loads(value)
        except ValueError:
            chosen[name] = value
    return chosen


def parse_names(text: str) -> tuple[str, ...]:
    """Parse comma-separated names."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def parse_numbers(option: str, text: str) -> tuple[float, ...]:
    """Parse comma-separated numbers."""
    try:
        return tuple(float(word) for word in parse_names(text))
    except ValueError:
        raise RegimekitError(f"{option} must be comma-separated numbers, got {text!r}.") from None


def parse_steps(option: str, text: str) -> tuple[int, ...]:
    """Parse comma-separated whole numbers of steps."""
    given = parse_numbers(option, text)
    for number in given:
        if number != int(number) or number < 1:
            raise RegimekitError(f"{option} must be whole numbers from 1 on, got {number:g}.")
    return tuple(int(number) for number in given)


def read_tuned_settings(file: Path | None) -> TuneResult | None:
    """Read the settings file that `tune` wrote; None without a file."""
    if file is None:
        return None
    if not file.is_file():
        raise RegimekitError(f"--settings {file} is not a file.")
    return TuneResult.read(file)


def _detect_frequency(source: Source, sample: list[Row], layout: Layout) -> Frequency | None:
    """Return the frequency of the first rows, of the first series if there are several."""
    if layout.time is None:
        return None
    position = source.names.index(layout.time)
    if layout.by is not None:
        key = source.names.index(layout.by)
        sample = [row for row in sample if row[key] == sample[0][key]]
    times: list[Any] = layout.times([row[position] for row in sample])
    return find_frequency(sorted(times, key=instant))


def _detected(pipeline: Pipeline) -> dict[str, str]:
    """Return what was detected, by name."""
    layout, found = pipeline.layout, {"target": f"{pipeline.layout.target}, in its own units"}
    if layout.time is None:
        found["time"] = "none; rows are used in their order"
    else:
        step = str(pipeline.frequency or "no regular step")
        zone = f", {layout.zone}" if layout.zone else ""
        found["time"] = f"{layout.time} ({layout.time_format}{zone}), {step}"
    if layout.by is not None:
        found["series"] = f"by {layout.by}, one model each"
    if pipeline.season:
        found["season"] = f"{pipeline.season} steps, for the seasonal last value"
    return found | {"features": pipeline.options.describe_features()}
