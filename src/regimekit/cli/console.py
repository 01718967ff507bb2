"""What a command says: words on a terminal, one JSON object, or nothing."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Voice(NamedTuple):
    """Speaks in words unless asked for JSON or for silence."""

    json: bool = False
    quiet: bool = False

    @property
    def words(self) -> bool:
        """Whether it speaks in words."""
        return not (self.json or self.quiet)

    def say(self, line: str = "") -> None:
        """A line for people."""
        if self.words:
            print(line, flush=True)

    def warn(self, line: str) -> None:
        """A line that matters even to those who read JSON."""
        if not self.quiet:
            print(f"regimekit: {line}", file=sys.stderr, flush=True)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows under a header, in columns as wide as they need to be."""
        if not self.words:
            return
        lines = [list(header), *map(list, rows)]
        widths = [max(len(line[j]) for line in lines) for j in range(len(header))]
        for line in lines:
            cells = [cell.ljust(w) for cell, w in zip(line, widths, strict=True)]
            self.say("  " + "  ".join(cells).rstrip())

    def result(self, content: dict[str, Any]) -> None:
        """The one JSON object, if it was asked for."""
        if self.json:
            print(as_json(content), flush=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int], None]]:
        """A function that is told how many are done; it shows them on a terminal only."""
        if not self.words or not sys.stderr.isatty():
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what)
            yield lambda done: bar.update(task, description=f"{done} {what}")


def as_json(content: Any) -> str:
    """One line of JSON: times as text, and null for what is not a finite number."""
    return json.dumps(plain(content), ensure_ascii=False)


def plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def number(value: float) -> str:
    """A number as a table shows it."""
    return f"{value:.4g}" if abs(value) < 1e4 or abs(value) >= 1e6 else f"{value:.0f}"
