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
        (["2024-01-02T03:04:05Z", "2024-01-02 04:04:05+01:00"], datetime(2024, 1, 2, 3, 4, 5)),
        (["02.01.2024 10:30", "03.01.2024 10:30"], datetime(2024, 1, 2, 10, 30)),
        (["1/2/2024", "1/3/2024"], datetime(2024, 1, 2)),
        (["31/12/2023", "01/01/2024"], datetime(2023, 12, 31)),
        (["1/12/2023", "2/12/2023"], datetime(2023, 1, 12)),  # both orders fit: month first
        (["20240102", "20240103"], datetime(2024, 1, 2)),
        (["2024-01", "2024-02"], datetime(2024, 1, 1)),
        ([date(2024, 1, 2)], datetime(2024, 1, 2)),
        ([datetime(2024, 1, 2, 1, tzinfo=timezone(timedelta(hours=1)))], datetime(2024, 1, 2)),
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
