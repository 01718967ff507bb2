"""A machine where no kernel is compiled yet: the service works at once and changes over later."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve_helpers import SMALL

import regimekit as rk
from regimekit import datasets as data
from regimekit._numba import cache_folder, cache_root

Y = data.regime_stream(seed=4, n=80).y.tolist()
MARK = cache_folder("regimekit.server.worker").name


def rows(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": str(i), "y": Y[i]} for i in range(first, last)]


@pytest.mark.slow
def test_the_demonstration_moves_while_the_kernels_are_compiled(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    began = time.monotonic()
    server = start("--demo", wait=False, cache=tmp_path / "empty")
    server.wait(compiled=False)
    seen = 0
    while seen < 20:
        answer = server.client.get("/streams/demo").json()
        if answer.get("rows", 0) > seen:
            seen = answer["rows"]
            print(f"{seen} observations after {time.monotonic() - began:.1f} s")
        assert time.monotonic() - began < 120
        time.sleep(0.1)
    assert server.client.get("/readyz").json()["compiled"] is False
    assert all(row["sd"] > 0 for row in server.rows("demo")), "with forecasts from the first one"
    assert server.stop() == 0, "compiling does not hold up the end"


def test_compiled_workers_take_over(start: Callable[..., Any], tmp_path: Path) -> None:
    """Compiled kernels are at hand here, so it takes seconds; the service does not know yet."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for entry in cache_root().iterdir():
        if entry.name != MARK:
            (cache / entry.name).symlink_to(entry)
    assert not (cache / MARK).exists()
    server = start(wait=False, cache=cache)
    server.wait(compiled=False)
    server.make("a")
    server.send("a", rows(0, 20))
    server.wait()
    until = time.monotonic() + 30
    while not (cache / MARK).exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    server.send("a", rows(15, 50))
    assert server.metric("regimekit_replayed_rows_total") == 0, "models came over in snapshots"
    server.kill()
    server.start(wait=False)
    server.wait(compiled=False)
    assert server.client.get("/readyz").json()["compiled"] is True, "from now on at once"
    server.send("a", rows(45, 80))
    assert server.metric("regimekit_replay_differences_total") == 0
    settings = dict(SMALL)
    run = rk.make(str(settings.pop("model")), **settings).run(Y)
    found = [row["mean"] for row in server.rows("a")]
    assert np.allclose(found, run.mean, rtol=1e-9), "but for the last digits of the first rows"
