"""What the tests of the paper's runs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper import runner
from paper.parts import Part
from paper.store import run_into


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """The parts that were really run."""
    ran: list[Part] = []

    def run(part: Part, folder: Path) -> tuple[Part, str]:
        ran.append(part)
        return run_into(part, folder)

    monkeypatch.setattr(runner, "run_into", run)
    return ran
