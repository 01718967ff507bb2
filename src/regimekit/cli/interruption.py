"""Ctrl-C and a polite kill, heard between two blocks so that what is written stays whole."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self


class Interruption:
    """Notes the first signal; the second one interrupts at once."""

    def __init__(self) -> None:
        self.heard = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.heard:
            raise KeyboardInterrupt
        self.heard = True
