"""Numbers and times in the notations of data files."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from regimekit.io import cell_parsing as cells


@pytest.mark.parametrize(
    ("cell", "decimal", "value"),
    [
        ("1.5", ".", 1.5),
        ("1,5", ",", 1.5),
        ("1.234,5", ",", 1234.5),
        ("1,234.5", ".", 1234.5),
        (" -3 ", ".", -3.0),
        ("\u22123", ".", -3.0),
        ("1e3", ".", 1000.0),
        (True, ".", 1.0),
        (Decimal("2.5"), ".", 2.5),
        (7, ".", 7.0),
    ],
)
def test_numbers(cell: Any, decimal: str, value: float) -> None:
    assert cells.parse_number(cell, decimal) == value


@pytest.mark.parametrize("cell", ["", "NA", "nan", "NULL", " n/a ", None, float("nan"), "?"])
def test_missing(cell: Any) -> None:
    assert cells.is_missing(cell) and math.isnan(cells.parse_number(cell))


@pytest.mark.parametrize("cell", ["abc", "1_000", "1,2,3", "12:30", date(2024, 1, 1), "1,5"])
def test_cells_that_are_not_numbers(cell: Any) -> None:
    assert not cells.is_number(cell)


@pytest.mark.parametrize(
    ("column", "separator", "sign"),
    [
        (["1,5", "2"], ";", ","),
        (["1.5", "2"], ";", "."),
        (["1,234", "2,345"], ",", "."),
        (["1,234", "2,5"], ",", ","),
        (["red, blue", "x"], ";", "."),
    ],
)
def test_decimal_sign_is_detected(column: list[str], separator: str, sign: str) -> None:
    assert cells.detect_decimal_sign(column, separator) == sign


@pytest.mark.parametrize(
    ("column", "first"),
    [
        (["2024-01-02", "2024-01-03"], datetime(2024, 1, 2)),
        (
            ["2024-01-02T03:04:05Z", "2024-01-02 04:04:05+01:00"],
            datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
        ),
        (["02.01.2024 10:30", "03.01.2024 10:30"], datetime(2024, 1, 2, 10, 30)),
        (["1/2/2024", "1/3/2024"], datetime(2024, 1, 2)),
        (["31/12/2023", "01/01/2024"], datetime(2023, 12, 31)),
        (["1/12/2023", "2/12/2023"], datetime(2023, 1, 12)),  # both orders fit: month first
        (["20240102", "20240103"], datetime(2024, 1, 2)),
        (["2024-01", "2024-02"], datetime(2024, 1, 1)),
        ([date(2024, 1, 2)], datetime(2024, 1, 2)),
        (
            [datetime(2024, 1, 2, 1, tzinfo=timezone(timedelta(hours=1)))],
            datetime(2024, 1, 2, tzinfo=UTC),
        ),
        (["Jan 1 2000", "Feb 1 2000"], datetime(2000, 1, 1)),
        (["January 1, 2000", "February 1, 2000"], datetime(2000, 1, 1)),
        (["1990Q1", "1990Q2"], datetime(1990, 1, 1)),
        (["Q4 1990", "Q1 1991"], datetime(1990, 10, 1)),
        (["13/01/2000", "2000-02-13", "13/03/2000"], datetime(2000, 1, 13)),
        (
            ["2024-01-02", *(f"2024-01-{d:02d}" for d in range(3, 20)), "Total"],
            datetime(2024, 1, 2),
        ),
    ],
)
def test_time_formats_are_detected(column: list[Any], first: datetime) -> None:
    time_format = cells.detect_time_format(column)
    assert time_format is not None and cells.time_parser(time_format)(column[0]) == first


@pytest.mark.parametrize("column", [["1", "2"], ["red"], [None, ""], [1.5], []])
def test_columns_that_are_not_times(column: list[Any]) -> None:
    assert cells.detect_time_format(column) is None


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ([1_700_000_000, 1_700_003_600], "epoch seconds"),
        ([1_700_000_000_000], "epoch milliseconds"),
        ([0, 1, 2], cells.NUMBER),
    ],
)
def test_epoch_units(values: list[int], form: str) -> None:
    assert cells.detect_epoch_unit(values) == form
    if form == "epoch seconds":
        found = cells.time_parser(form)(values[0])
        assert found == datetime.fromtimestamp(values[0], UTC).replace(tzinfo=None)


def test_a_zone_applies_to_local_times_and_to_offsets() -> None:
    parse = cells.time_parser(cells.ISO, "Europe/Berlin")
    assert parse("2024-07-01 12:00").isoformat() == "2024-07-01T12:00:00+02:00"
    assert parse("2024-07-01 12:00Z").isoformat() == "2024-07-01T14:00:00+02:00"
    parse = cells.time_parser("epoch seconds", "Europe/Berlin")
    assert parse("1704067200").isoformat() == "2024-01-01T01:00:00+01:00"


@pytest.mark.parametrize(
    ("cell", "unit", "value"),
    [("$1,200.50", "$", 1200.5), ("-40%", "%", -40.0), ("12.5 kWh", "kWh", 12.5), ("7", "%", 7.0)],
)
def test_units_are_left_out(cell: str, unit: str, value: float) -> None:
    assert cells.parse_number(cell, ".", unit) == value


def test_another_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        cells.parse_number("5 s", ".", "ms")


def test_units_are_detected_only_if_all_agree() -> None:
    assert cells.detect_unit(["5 ms", "7 ms", None, "8"]) == "ms"
    assert cells.detect_unit(["5 ms", "7 s"]) == "" == cells.detect_unit(["1", "2"])


def test_other_missing_cells() -> None:
    missing = cells.parse_missing("-9999, n.d.")
    for cell in ("-9999", "-9999.0", -9999, "N.D."):
        assert math.isnan(cells.parse_number(cell, missing=missing))
    assert cells.parse_number("-999", missing=missing) == -999.0
