"""Goals that other pages tell: each is found there, and read right."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper import elsewhere

PAGE = """
| | a | b |
|---|---|---|
| time | 3.4 ms | 5 |

| | b |
|---|---|
| time | 7e-2 s |
| size | much |
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(elsewhere, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(PAGE)
    return "page.md"


def test_a_number_is_found_by_row_column_and_table(page: str) -> None:
    assert elsewhere.look_up(page, "time", "a") == 3.4
    assert elsewhere.look_up(page, "time", "") == 5.0
    assert elsewhere.look_up(page, "time", "b", table=1) == 0.07
    assert elsewhere.look_up(page, "size", "b") is None
    assert elsewhere.look_up(page, "weight", "b") is None
    assert elsewhere.look_up("no such page.md", "time", "b") is None


def test_a_goal_is_met_on_its_own_side() -> None:
    low = elsewhere.Goal("", "", "", "", "", 2.0)
    assert low.met(2.0) and not low.met(2.1)
    assert low._replace(at_least=True).met(2.1) and not low._replace(at_least=True).met(1.9)


def test_every_goal_is_on_its_page() -> None:
    """A page whose rows were renamed must not drop out of the table of targets in silence."""
    for goal in elsewhere.GOALS:
        assert elsewhere.look_up(goal.page, goal.row, goal.column, goal.table) is not None, goal
    assert len(elsewhere._rows_of_page(elsewhere.REAL)) >= 5
