"""Helpers of the command line tests."""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

FAST = ("--model", "br_ihmm", "--set", "particles=5", "--set", "noise=1.0")


class Said(NamedTuple):
    code: int
    out: str
    err: str


Regimekit = Callable[..., Said]


def hourly(values: Any, start: int = 0) -> list[str]:
    first = datetime(2024, 1, 1)
    return [f"{first + timedelta(hours=start + i)},{value:.4f}\n" for i, value in enumerate(values)]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as lines:
        return list(csv.DictReader(lines))
