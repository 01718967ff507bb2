"""Files that instruments, spreadsheets and accountants write."""

from __future__ import annotations

import io
import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from cli_helpers import FAST, Regimekit, hourly, rows_of


@pytest.mark.parametrize("title", ["Station 12, River X\nexported 2024-05-01\n\n", "Report\n;;\n"])
def test_lines_above_the_header_are_skipped(
    title: str, regimekit: Regimekit, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(title + "time,flow\n" + "".join(hourly(range(9))))
    said = regimekit("run", "a.csv", *FAST)
    assert said.code == 0, said.err
    lines = title.count("\n")
    assert f"a.csv: skipped {lines} lines before the header." in said.out
    assert "target:   flow" in said.out and "hourly" in said.out
    (tmp_path / "a.csv").write_text(title + "time,flow\n" + "".join(hourly(range(9))) + "x,1\n")
    assert f"(line {lines + 11})" in regimekit("run", "a.csv", *FAST).err


def test_a_row_of_units_is_skipped(regimekit: Regimekit, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,flow\n[UTC],[m3/s]\n" + "".join(hourly(range(9))))
    said = regimekit("run", "a.csv", *FAST)
    assert said.code == 0, said.err
    assert "a.csv: skipped the row below the header, [UTC], [m3/s]." in said.out
    assert [float(row["y"]) for row in rows_of(tmp_path / "out/run.csv")] == list(range(9))


def test_a_first_row_that_is_no_unit_is_not_skipped(regimekit: Regimekit, tmp_path: Path) -> None:
    rows = "".join(hourly(range(9)))
    (tmp_path / "a.csv").write_text("time,flow\n2023-12-31 23:00:00,broken\n" + rows)
    assert "'broken' is not a number" in regimekit("run", "a.csv", *FAST).err


@pytest.mark.parametrize(
    "header, clock", [("Date,Time", "{:02}:00"), ("date,hour", "{}"), ("Date,Time", "{:02}:00:00")]
)
def test_date_and_clock_in_two_columns(
    header: str, clock: str, regimekit: Regimekit, tmp_path: Path
) -> None:
    rows = [f"{1 + h // 24}/15/2024,{clock.format(h % 24)},{h}\n" for h in range(24)]
    (tmp_path / "a.csv").write_text(f"{header},flow\n" + "".join(rows))
    said = regimekit("run", "a.csv", *FAST)
    assert said.code == 0, said.err
    assert f"The columns {header.replace(',', ', ')} form the time." in said.out
    assert "hourly" in said.out
    assert rows_of(tmp_path / "out/run.csv")[5]["time"] == "2024-01-15 05:00:00"


def test_row_numbers_are_no_target(regimekit: Regimekit, tmp_path: Path) -> None:
    rows = [f"{n},{line}" for n, line in enumerate(hourly([5, 3, 4, 5, 3, 4, 6]))]
    (tmp_path / "a.csv").write_text(",time,flow\n" + "".join(rows))
    said = regimekit("run", "a.csv", *FAST)
    assert "target:   flow" in said.out, said.err


def test_windows_1252(regimekit: Regimekit, tmp_path: Path) -> None:
    rows = "".join(f"0{day}.01.2024;{day},5 €\n" for day in range(1, 9))
    dash = "\N{EN DASH}"
    (tmp_path / "a.csv").write_text(f"Datum;Umsatz {dash} netto\n{rows}", encoding="cp1252")
    said = regimekit("run", "a.csv", *FAST)
    assert said.code == 0, said.err
    assert "in Windows-1252" in said.out
    assert f"target:   Umsatz {dash} netto" in said.out and "the unit '€'" in said.out


def test_negative_numbers_in_parentheses(regimekit: Regimekit, tmp_path: Path) -> None:
    rows = [f"2024-0{m},{cell}\n" for m, cell in enumerate(('"1,200"', "(291)", '"(1,250.5)"'), 1)]
    (tmp_path / "a.csv").write_text("month,profit\n" + "".join(rows))
    said = regimekit("run", "a.csv", *FAST)
    assert said.code == 0, said.err
    values = [float(row["y"]) for row in rows_of(tmp_path / "out/run.csv")]
    assert values == [1200, -291, -1250.5]


def test_a_code_at_the_start_is_named_though_it_is_no_outlier(
    regimekit: Regimekit, tmp_path: Path
) -> None:
    values = [*np.random.default_rng(0).normal(size=4), -9999, -9999, *range(30)]
    (tmp_path / "a.csv").write_text("time,flow\n" + "".join(hourly(values)))
    assert "pass --missing -9999" in regimekit("run", "a.csv").out
    ordinary = [float(v) for v in np.arange(9960, 10040)] + [9999.0, 9999.0]
    (tmp_path / "b.csv").write_text("time,flow\n" + "".join(hourly(ordinary)))
    assert "--missing" not in regimekit("run", "b.csv", "--out", "b").out


def test_one_row_is_counted_as_one(regimekit: Regimekit, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,y\n2024-01-01,3.5\n")
    said = regimekit("run", "a.csv")
    assert "1 row read" in said.out and "e+" not in said.out


def days(form: str, cell: str) -> str:
    first = datetime(2024, 1, 1)
    return "".join(f"{first + timedelta(days=d):{form}}{cell.format(d)}\n" for d in range(20))


READABLE = {
    "years of two digits": "date,y\n" + days("%m/%d/%y", ",{}"),
    "years of two digits, German": "date;y\n" + days("%d.%m.%y", ";{},5"),
    "named zone": "date,y\n" + days("%Y-%m-%d %H:%M:%S UTC", ",{}"),
    "weekday": "date,y\n" + days('"%a, %d %b %Y"', ",{}"),
    "spaces between thousands": "date\ty\n" + days("%d/%m/%Y", "\t{} 500.5"),
    "narrow spaces, decimal comma": "date;y\n" + days("%d/%m/%Y", ";{}\u202f500,5"),
    "apostrophes between thousands": "date;y\n" + days("%d.%m.%Y", ";{}'500.5"),
    "words for missing": "date,y\n" + days("%Y-%m-%d", ",{}") + "2024-01-21,#N/A\n2024-01-22,--\n",
    "line with the separator": "sep=;\ndate;y\n" + days("%Y-%m-%d", ";{}"),
    "title with separators": "Sales report,\n,\ndate,y\n" + days("%Y-%m-%d", ",{}"),
    "aligned columns": "date        y\n" + days("%Y-%m-%d", "  {:5.2f}"),
}


@pytest.mark.parametrize("kind", READABLE)
def test_usual_notations_are_read(kind: str, regimekit: Regimekit, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(READABLE[kind], encoding="utf-8")
    said = regimekit("run", "a.csv", *FAST)
    assert said.code == 0, said.err
    assert "target:   y" in said.out and "daily" in said.out
    rows = rows_of(tmp_path / "out/run.csv")
    assert rows[19]["time"].startswith("2024-01-20 00:00:00") and 19 <= float(rows[19]["y"]) < 2e4
    assert all(row["y"] == "" for row in rows[20:])


def test_a_sheet_with_a_title_and_a_clock(regimekit: Regimekit, tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["Sales report"])
    book.active.append(["Date", "Clock", "Amount"])
    for hour in range(30):
        moment = datetime(2024, 1, 1) + timedelta(hours=hour)
        book.active.append([moment.date(), moment.time(), 10 + hour % 3])
    book.save(tmp_path / "a.xlsx")
    said = regimekit("run", "a.xlsx", *FAST)
    assert said.code == 0, said.err
    assert "skipped 1 line before the header" in said.out
    assert "target:   Amount" in said.out and "hourly" in said.out


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.json", json.dumps({"data": [{"t": n, "v": n} for n in range(400)]})),
        (
            "a.csv",
            ",".join(f"c{n}" for n in range(300)) + "\n" + 5 * (",".join(["1"] * 300) + "\n"),
        ),
    ],
)
def test_errors_are_short(name: str, content: str, regimekit: Regimekit, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    said = regimekit("run", name, *FAST)
    assert said.code == 2 and len(said.err) < 400


def test_utf16_from_standard_input(
    regimekit: Regimekit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = ("date\ty\n" + days("%Y-%m-%d", "\t{}")).encode("utf-16")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    said = regimekit("run", "-", *FAST)
    assert said.code == 0, said.err
    assert len(rows_of(tmp_path / "out/run.csv")) == 20


@pytest.mark.parametrize(
    "content, reason",
    [
        ("date,time,y\n" + days("%Y-%m-%d,%H:%M", ",{}"), "the columns date, time"),
        ("time,sensor,y\n" + 9 * "2024-01-01,a,1\n2024-01-01,b,2\n", "several series"),
        ("time;y €\n2024-01-01;1\n2024-01-02;2\n", "in UTF-8 or Latin-1"),
    ],
)
def test_follow_refuses_what_it_would_misread(
    content: str, reason: str, regimekit: Regimekit, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(content, encoding="cp1252")
    said = regimekit("run", "a.csv", "--follow", "--idle", "0.1", *FAST)
    assert said.code == 2 and reason in said.err and not said.out
