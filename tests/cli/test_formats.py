"""Files as people have them: zones, totals, long and wide tables, spreadsheets, units."""

from __future__ import annotations

import csv
import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Regimekit, rows_of

FAST = ("--model", "last_value", "--quiet")
HOURS = pd.date_range("2024-03-29", periods=80, freq="h", tz="Europe/Berlin")
ZONED = pd.DataFrame({"time": HOURS, "y": np.arange(80.0)})


def write_csv(path: Path, header: list[str], rows: list) -> Path:
    with path.open("w", newline="") as target:
        csv.writer(target).writerows([header, *rows])
    return path


def last_forecast(out: Path) -> str:
    return rows_of(out / "forecasts.csv")[-1]["time"]


@pytest.mark.parametrize("suffix", ["parquet", "json", "csv"])
def test_zones_are_kept(suffix: str, regimekit: Regimekit, tmp_path: Path) -> None:
    file, out = tmp_path / f"zoned.{suffix}", tmp_path / "out"
    if suffix == "parquet":
        ZONED.to_parquet(file)
    elif suffix == "json":
        text = ZONED.assign(time=ZONED["time"].map(lambda t: t.isoformat()))
        text.to_json(file, orient="records", lines=True)
    else:
        ZONED.to_csv(file, index=False)
    said = regimekit("run", file, *FAST, "--horizon", "2", "--out", out)
    assert said.code == 0, said.err
    # The clock changed on 31 March, so the offset is that of summer.
    assert (
        last_forecast(out) == str(HOURS[-1] + pd.Timedelta(hours=2)) == "2024-04-01 10:00:00+02:00"
    )
    run = rows_of(out / "run.csv")
    assert len(run) == 80 and run[0]["time"] == "2024-03-29 00:00:00+01:00"


def test_resume_keeps_the_zone(regimekit: Regimekit, tmp_path: Path) -> None:
    file, out = tmp_path / "zoned.csv", tmp_path / "out"
    local = ZONED.assign(time=ZONED["time"].dt.tz_localize(None))
    local[:60].to_csv(file, index=False)
    zone = ("--timezone", "Europe/Berlin")
    assert regimekit("run", file, *FAST, *zone, "--out", out, "--horizon", "1").code == 0
    local.to_csv(file, index=False)
    assert regimekit("resume", out).code == 0
    assert rows_of(out / "run.csv")[-1]["time"] == str(HOURS[-1])
    assert last_forecast(out) == str(HOURS[-1] + pd.Timedelta(hours=1))


def test_the_repeated_hour_of_local_times(regimekit: Regimekit, tmp_path: Path) -> None:
    hours = pd.date_range("2024-10-26", periods=60, freq="h", tz="Europe/Berlin")
    rows = [(t.tz_localize(None), k) for k, t in enumerate(hours)]
    file, out = write_csv(tmp_path / "autumn.csv", ["time", "y"], rows), tmp_path / "out"
    said = regimekit("run", file, *FAST, "--timezone", "Europe/Berlin", "--out", out)
    assert said.code == 0, said.err
    assert [row["time"] for row in rows_of(out / "run.csv")] == [str(t) for t in hours]


def test_an_unknown_zone(regimekit: Regimekit, tmp_path: Path) -> None:
    said = regimekit("run", tmp_path / "any.csv", "--timezone", "Berlin")
    assert said.code == 2 and "time zone 'Berlin' is not known" in said.err


@pytest.mark.parametrize("time", [(), ("--time", "day")])
def test_a_total_at_the_end_is_named(time: tuple, regimekit: Regimekit, tmp_path: Path) -> None:
    days = [(f"2024-01-{d:02d}", d) for d in range(1, 31)]
    file = write_csv(tmp_path / "t.csv", ["day", "sales"], [*days, ("Total", 465)])
    said = regimekit("run", file, *FAST, *time, "--out", tmp_path / "out")
    assert said.code == 2
    assert "Row 31 (line 32), column 'day': 'Total' is not a time" in said.err


def test_a_time_column_that_cannot_be_read_is_refused(regimekit: Regimekit, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", ["date", "y"], [(f"day {d}!", d) for d in range(20)])
    said = regimekit("run", file, *FAST, "--out", tmp_path / "out")
    assert said.code == 2 and "no time format fits 'day 0!' in row 1" in said.err
    out = tmp_path / "order"
    assert regimekit("run", file, *FAST, "--time", "none", "--out", out).code == 0
    parsed = ("--time", "date", "--time-format", "day %d!")
    said = regimekit("run", file, *FAST, *parsed, "--out", tmp_path / "out")
    assert said.code == 2 and "'day 0!' is not a time in the format" in said.err


def test_year_and_month_in_two_columns(regimekit: Regimekit, tmp_path: Path) -> None:
    months = pd.date_range("1949-01-01", periods=144, freq="MS")
    rows = [(m.year, f"{m:%b}", k) for k, m in enumerate(months)]
    file = write_csv(tmp_path / "flights.csv", ["year", "month", "passengers"], rows)
    out = tmp_path / "out"
    said = regimekit("run", file, *FAST, "--horizon", "1", "--out", out)
    assert said.code == 0, said.err
    assert len(rows_of(out / "run.csv")) == 144
    assert last_forecast(out) == "1961-01-01 00:00:00"


@pytest.mark.parametrize("by_time", [True, False])
def test_several_series_need_by(by_time: bool, regimekit: Regimekit, tmp_path: Path) -> None:
    start = datetime(2024, 1, 1)
    rows = [(start + timedelta(hours=h), s, h) for s in ("a", "b") for h in range(40)]
    rows = sorted(rows) if by_time else rows
    file = write_csv(tmp_path / "sensors.csv", ["time", "sensor", "y"], rows)
    said = regimekit("run", file, *FAST, "--out", tmp_path / "out")
    assert said.code == 2 and "Pass --by sensor" in said.err
    assert regimekit("run", file, *FAST, "--by", "sensor", "--out", tmp_path / "out").code == 0


def test_many_repeated_times_are_refused(regimekit: Regimekit, tmp_path: Path) -> None:
    rows = [(datetime(2024, 1, 1) + timedelta(seconds=k // 2), k) for k in range(100)]
    file = write_csv(tmp_path / "trades.csv", ["time", "price"], rows)
    said = regimekit("run", file, *FAST, "--out", tmp_path / "out")
    assert said.code == 2 and "50 of the first 100 rows repeat the time" in said.err
    out = tmp_path / "out"
    assert (
        regimekit("run", file, *FAST, "--time", "none", "--target", "price", "--out", out).code == 0
    )
    assert len(rows_of(out / "run.csv")) == 100


def test_utf16(regimekit: Regimekit, tmp_path: Path) -> None:
    file = tmp_path / "excel.txt"
    file.write_text(
        "time\tH\u00f6he\n" + "".join(f"2024-01-{d:02d}\t{d}\n" for d in range(1, 31)), "utf-16"
    )
    said = regimekit("run", file, "--model", "last_value", "--out", tmp_path / "out")
    assert said.code == 0 and "in UTF-16" in said.out and "target:   H\u00f6he" in said.out


def test_sheets_of_a_workbook(regimekit: Regimekit, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "notes"
    sheet = book.create_sheet("data")
    sheet.append(["day", "sales"])
    for d in range(1, 31):
        sheet.append([datetime(2024, 1, d), 10.5 * d])
    file, out = tmp_path / "book.xlsx", tmp_path / "out"
    book.save(file)
    said = regimekit("run", file, *FAST, "--out", out)
    assert said.code == 2 and "Pass --sheet with one of notes, data" in said.err
    assert (
        regimekit("run", file, *FAST, "--sheet", "data", "--horizon", "1", "--out", out).code == 0
    )
    assert rows_of(out / "run.csv")[1]["y"] == "21.0"
    assert last_forecast(out) == "2024-01-31 00:00:00"


def test_units_and_other_missing_values(regimekit: Regimekit, tmp_path: Path) -> None:
    rows = [(f"2024-01-{d:02d}", "-9999" if d == 5 else f"{d}.5 kWh") for d in range(1, 31)]
    file, out = write_csv(tmp_path / "t.csv", ["day", "energy"], rows), tmp_path / "out"
    said = regimekit("run", file, "--model", "last_value", "--missing=-9999", "--out", out)
    assert said.code == 0 and "energy have the unit 'kWh'" in said.out, said.err
    written = rows_of(out / "run.csv")
    assert written[4]["y"] == "" and written[5]["y"] == "6.5"


def test_a_code_for_missing_values_is_named(regimekit: Regimekit, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).standard_normal(90)
    values = [-9999.0 if i % 10 == 3 else 20 + noise[i] for i in range(90)]
    file = write_csv(tmp_path / "codes.csv", ["y"], [[value] for value in values])
    said = regimekit("run", file, "--out", tmp_path / "out")
    assert "9 observations are equal to -9999," in said.out and "pass --missing -9999." in said.out
    said = regimekit("run", file, "--missing", "-9999", "--out", tmp_path / "again")
    assert "are equal to" not in said.out


def test_categorical_covariates(regimekit: Regimekit, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = rng.choice(["sun", "rain", "snow"], 120, p=[0.6, 0.3, 0.1])
    effect = {"sun": 0.0, "rain": 5.0, "snow": -5.0}
    rows = [(k, kind, effect[kind] + 0.1 * rng.normal()) for k, kind in enumerate(kinds)]
    file, out = write_csv(tmp_path / "t.csv", ["step", "weather", "y"], rows), tmp_path / "out"
    model = ("--model", "least_squares", "--columns", "weather", "--burn-in", "40")
    future = write_csv(tmp_path / "f.csv", ["weather"], [("rain",), ("snow",), ("sun",)])
    said = regimekit("run", file, *model, "--horizon", "3", "--future", future, "--out", out)
    assert said.code == 0 and "weather is categorical" in said.out, said.err
    mean = [float(row["mean"]) for row in rows_of(out / "forecasts.csv")]
    assert mean == pytest.approx([5.0, -5.0, 0.0], abs=0.5)


def test_a_wide_table(regimekit: Regimekit, tmp_path: Path) -> None:
    rows = [(f"2024-01-{d:02d}", d, 100 - d, "x") for d in range(1, 31)]
    file = write_csv(tmp_path / "wide.csv", ["day", "north", "south", "remark"], rows)
    out = tmp_path / "out"
    said = regimekit("run", file, *FAST, "--wide", "--horizon", "1", "--out", out)
    assert said.code == 0, said.err
    ahead = {row["series"]: float(row["mean"]) for row in rows_of(out / "forecasts.csv")}
    assert ahead == {"north": 30.0, "south": 70.0}


def test_future_rows_must_be_after_the_run(regimekit: Regimekit, tmp_path: Path) -> None:
    days = [(f"2024-01-{d:02d}", d, 2 * d) for d in range(1, 21)]
    file = write_csv(tmp_path / "t.csv", ["day", "x", "y"], days)
    options = ("--target", "y", "--columns", "x", "--horizon", "2", "--out", tmp_path / "out")
    model = ("--model", "least_squares")

    def run(rows: list) -> str:
        future = write_csv(tmp_path / "f.csv", ["day", "x"], rows)
        said = regimekit("run", file, *model, *options, "--future", future)
        return said.err + said.out

    assert "must have 2 rows after 2024-01-20" in run([("2024-01-05", 5), ("2024-01-06", 6)])
    assert "first step after the run is 2024-01-21" in run([("2024-01-22", 1), ("2024-01-23", 1)])
    late = [(f"2024-01-{d:02d}", d) for d in range(15, 25)]
    assert "forecasts.csv" in run(late)
    mean = [float(row["mean"]) for row in rows_of(tmp_path / "out" / "forecasts.csv")]
    assert mean == pytest.approx([42.0, 44.0], abs=1.0)


def test_backtest_writes_one_row_per_origin_and_step(regimekit: Regimekit, tmp_path: Path) -> None:
    rows = [(datetime(2024, 1, 1) + timedelta(hours=h), h % 24) for h in range(240)]
    file, out = write_csv(tmp_path / "t.csv", ["time", "y"], rows), tmp_path / "out"
    options = ("--model", "seasonal_last_value", "--horizon", "24", "--start", "120", "--out", out)
    said = regimekit("backtest", file, *options, "--season", "24", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["origins"] == 5 and found["scores"]["mae"] == 0.0
    assert found["scores"]["mae_last_value"] > 1
    written = rows_of(out / "backtest.csv")
    assert len(written) == 120 and written[0]["time"] == "2024-01-06 00:00:00"


def test_a_season_without_use_is_mentioned(regimekit: Regimekit, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [(datetime(2024, 1, 1) + timedelta(days=d), rng.normal()) for d in range(150)]
    file = write_csv(tmp_path / "t.csv", ["day", "y"], rows)
    said = regimekit("run", file, "--season", "365", "--out", tmp_path / "out")
    assert said.code == 0 and said.out.count("season of 365 observations") == 1
