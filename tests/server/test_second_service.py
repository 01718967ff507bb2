"""A second service on one database is refused at once, in one line."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from regimekit import RegimekitError
from regimekit.server.storage.database import check_unused


def test_a_database_in_use_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/streams.db"
    check_unused(url)
    holder = os.open(tmp_path / "streams.db.lock", os.O_CREAT | os.O_RDWR)
    check_unused(url)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(RegimekitError, match=r"uses the database .*streams.db. Stop it"):
        check_unused(url)
    os.close(holder)
    check_unused(url)
