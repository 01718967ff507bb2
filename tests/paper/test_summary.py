"""The first lines of the index: what reproduces, judged on both sides of the printed number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paper import settings
from paper.summary import _BASELINE, _OURS, _PRINTED, _verdict, summary

PAGES = Path(__file__).parents[2] / "docs/reproduction"


def cell(mean: float) -> dict[str, Any]:
    return {"mean": mean, "sd": 0.01, "runs": 5}


def write(folder: Path, name: str, columns: list[str], *rows: list[Any]) -> None:
    content = {"tables": [{"columns": columns, "rows": rows}]}
    (folder / f"{name}.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("value", "lower", "words"),
    [
        (0.47, True, "reproduced"),
        (0.43, True, "reproduced"),
        (0.30, True, "better than printed"),
        (0.30, False, "worse than printed"),
        (0.74, True, "worse than printed"),
        (None, True, "not run"),
    ],
)
def test_better_than_printed_is_not_reproduced(
    value: float | None, lower: bool, words: str
) -> None:
    assert _verdict(value, 0.47, lower) == words


def test_the_columns_are_those_of_the_tables() -> None:
    titles = settings.TITLES | {"second": settings.COLUMNS["second"]}
    assert {_PRINTED, _OURS, _BASELINE} <= set(titles.values())


def test_a_claim_names_the_variance_of_the_baselines(tmp_path: Path) -> None:
    assert summary(tmp_path, lambda name: False) == ""
    columns = ["stream", "model", "measure", "paper prints", _PRINTED, _OURS]
    row = ["electricity", "br_ihmm", "RMSE", "0.47 ± 0.04", cell(0.74), cell(0.17)]
    write(tmp_path, "forecast_real", columns, row)
    line = summary(tmp_path, lambda name: False)
    assert "0.74 ± 0.01 (n 5), worse than printed" in line and "baselines" not in line
    write(
        tmp_path,
        "attempt",
        ["stream", "measure", "paper prints", _BASELINE],
        ["electricity", "RMSE", 0.47, cell(0.46)],
    )
    line = summary(tmp_path, lambda name: name == "attempt")
    assert "R from the baselines 0.46 ± 0.01 (n 5), reproduced" in line
    assert line.endswith("*Older source.*")


def test_the_first_page_has_about_ten_lines() -> None:
    lines = summary(PAGES, lambda name: False).splitlines()
    assert 8 <= len(lines) <= 10
