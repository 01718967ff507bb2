"""Detection of columns, conversion of rows, and memory use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regimekit.core.exceptions import RegimekitError
from regimekit.io import (
    ColumnChoice,
    Layout,
    ObservationReader,
    TableRequest,
    TimeColumn,
    detect_layout,
    open_source,
)

DAYS = [f"2024-01-0{k}" for k in range(1, 5)]


def layout_of(table: dict[str, list[Any]], **choice: Any) -> Layout:
    rows = list(zip(*table.values(), strict=True))
    return detect_layout(list(table), rows, ColumnChoice(**choice))


@pytest.mark.parametrize(
    ("columns", "target", "time"),
    [
        ({"v": ["1", "2", "3", "4"]}, "v", None),
        ({"when": DAYS, "v": ["1", "2", "NA", "4"]}, "v", "when"),
        ({"year": ["1871", "1872", "1873", "1874"], "flow": ["5", "4", "6", "5"]}, "flow", "year"),
        ({"a": ["1", "2", "3", "4"], "y": ["5", "4", "6", "5"]}, "y", None),
        ({"note": ["x", "y", "z", ""], "v": ["1", "x", "3", "4"]}, "v", None),
    ],
)
def test_obvious_columns_are_found(
    columns: dict[str, list[Any]], target: str, time: str | None
) -> None:
    found = layout_of(columns)
    assert (found.target, found.time) == (target, time)


def test_named_columns_are_used_and_checked() -> None:
    columns = {"day": DAYS, "v": ["1", "2", "3", "4"], "w": ["4", "3", "2", "1"]}
    assert layout_of(columns, target="w", columns=("v",)).used == ("w", "day", "v")
    assert layout_of(columns, columns=("v",)).target == "w"
    for choice, word in [
        ({}, "v, w"),
        ({"target": "day"}, "contains times"),
        ({"target": "W"}, "--target"),
        ({"target": "v", "time": "v"}, "also the time"),
        ({"by": "x"}, "--by"),
    ]:
        with pytest.raises(RegimekitError, match=word):
            layout_of(columns, **choice)


def test_covariates_are_carried_forward_also_through_gaps() -> None:
    layout = Layout("y", "t", "numbers", ("x",))
    reader = ObservationReader(layout, TimeColumn(first=[]))
    rows = [(1.0, float(t), None if t == 3 else 10.0 * t) for t in (*range(12), 14)]
    (block,) = reader.blocks([rows])
    assert block.X is not None and block.X.values[:, 0].tolist()[3] == 20.0
    assert block.X.values[-3:, 0].tolist() == [110.0, 110.0, 140.0] and reader.carried == 1
    assert block.has_row.tolist() == [True] * 12 + [False, False, True]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    code = (
        "import re, sys\n"
        "from regimekit.io import *\n"
        "source = open_source(TableRequest(sys.argv[1]))\n"
        "sample = source.sample()\n"
        "layout = detect_layout(source.names, sample, ColumnChoice(), source.separator)\n"
        "reader = ObservationReader(layout, TimeColumn())\n"
        "print(sum(len(block.y) for block in reader.blocks(source.rows(layout.used))))\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    peaks = []
    for rows in (800_000, 4_000_000):  # buffers differ by some 40 MB from run to run
        path = tmp_path / f"{rows}.csv"
        path.write_text("y,words\n" + f"1.25,{'many words, ' * 8}\n".replace(", ", " ") * rows)
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
        )
        count, peak = map(int, done.stdout.split())
        assert count == rows
        peaks.append(peak)
    more = path.stat().st_size * 0.8 / 1024  # what more there was to read, in KiB
    assert peaks[1] - peaks[0] < 0.25 * more


def test_rows_start_again_at_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("y\n1\n2\n")
    source = open_source(TableRequest(str(tmp_path / "x.csv")))
    assert [list(source.rows()), list(source.rows())] == [[[("1",), ("2",)]]] * 2
