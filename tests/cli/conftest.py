"""Fixtures: run a command in this process and capture exit code and output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import Regimekit, Said, hourly

from regimekit import cli


@pytest.fixture
def regimekit(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Regimekit:
    """Return a function that runs a command in a temporary folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: Any) -> Said:
        monkeypatch.setattr(sys, "argv", ["regimekit", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capfd.readouterr()
        return Said(int(stop.value.code or 0), said.out, said.err)

    return call


@pytest.fixture
def levels() -> np.ndarray:
    rng = np.random.default_rng(0)
    return 1000 + 20 * (np.arange(150) // 50) + rng.standard_normal(150)


@pytest.fixture
def table(tmp_path: Path, levels: np.ndarray) -> Path:
    """150 hours of one numeric column."""
    path = tmp_path / "load.csv"
    path.write_text("when,load\n" + "".join(hourly(levels)))
    return path
