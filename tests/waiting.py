"""Wait for a condition: tests must pass on a machine that is busy with other work."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 300.0  # seconds until a condition that is not met fails a test


def wait(
    found: Callable[[], Any],
    what: str | Callable[[], str] = "the condition",
    *,
    errors: type[Exception] | tuple[type[Exception], ...] = (),
    seconds: float = PATIENCE,
) -> Any:
    """Return the first true result of `found`; exceptions of type `errors` count as false."""
    until = time.monotonic() + seconds
    while True:
        try:
            if result := found():
                return result
        except errors:
            pass
        assert time.monotonic() < until, f"waited in vain for {what() if callable(what) else what}"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
