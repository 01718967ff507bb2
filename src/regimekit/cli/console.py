"""Console output of the commands: text, one JSON object, or nothing; and Ctrl-C."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NamedTuple, Self

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


class Console(NamedTuple):
    """Output of a command, and a group of its options."""

    json: Json = False
    quiet: Quiet = False

    @property
    def prints_text(self) -> bool:
        """Whether text is printed."""
        return not (self.json or self.quiet)

    def info(self, line: str = "") -> None:
        """Print a line of text to standard output."""
        if self.prints_text:
            print(line, flush=True)

    def warn(self, line: str) -> None:
        """Print a line to standard error, also if the result is printed as JSON."""
        if not self.quiet:
            print(f"regimekit: {line}", file=sys.stderr, flush=True)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under a header, in left-aligned columns."""
        lines = [list(header), *map(list, rows)]
        widths = [max(len(line[j]) for line in lines) for j in range(len(header))]
        for line in lines:
            cells = [cell.ljust(w) for cell, w in zip(line, widths, strict=True)]
            self.info("  " + "  ".join(cells).rstrip())

    def result(self, content: dict[str, Any]) -> None:
        """Print the result as one JSON object, if JSON was requested."""
        if self.json:
            print(to_json(content), flush=True)

    @contextmanager
    def progress(
        self, unit: str, count: Callable[[], int | None]
    ) -> Iterator[Callable[[int], None]]:
        """Show a progress bar on a terminal: done / total, and the time left.

        Args:
            unit: name of what is counted, in the plural.
            count: returns the total, or None if it is unknown; called only if a bar is shown.

        Yields:
            A function that takes the number done so far.
        """
        if not self.prints_text or not sys.stderr.isatty():
            yield lambda done: None
            return
        from rich import progress
        from rich.console import Console as Terminal

        columns = (
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.description},"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            progress.TextColumn("left"),
        )
        terminal = Terminal(stderr=True)
        with progress.Progress(*columns, console=terminal, transient=True) as bar:
            task = bar.add_task(unit, total=count())
            yield lambda done: bar.update(task, completed=done)


class Interrupt:
    """Context that notes Ctrl-C and SIGTERM, so that a block of rows is completed first.

    A second signal raises KeyboardInterrupt at once.

    Attributes:
        requested: whether a signal has arrived.
    """

    def __init__(self) -> None:
        self.requested = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def read_json_file(option: str, file: Path | None) -> Any:
    """Return the content of the JSON file that an option names; None without a file."""
    from regimekit.core.exceptions import RegimekitError

    try:
        return None if file is None else json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise RegimekitError(f"{option} {file} cannot be read as JSON: {error}.") from None


def to_json(content: Any) -> str:
    """Return one line of JSON: times as text, null for numbers that are not finite."""
    return json.dumps(_json_value(content), ensure_ascii=False)


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _json_value(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(entry) for entry in value]
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return _json_value(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def format_number(value: float | str | None) -> str:
    """Return a number as tables show it, with four digits; nothing for None, text as it is.

    Example:
        >>> format_number(3.14159), format_number(12345.6), format_number(None)
        ('3.142', '12346', '')
    """
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.4g}" if abs(value) < 1e4 or abs(value) >= 1e6 else f"{value:.0f}"


def format_speed(rows: int, seconds: float) -> str:
    """Return a progress line.

    Example:
        >>> format_speed(8000, 3.1)
        '8 000 rows read, 3.1 s, 2 600 rows/s'
    """
    per_second = float(f"{rows / max(seconds, 1e-9):.2g}")
    noun = "row" if rows == 1 else "rows"
    return f"{_grouped(rows)} {noun} read, {seconds:.1f} s, {_grouped(per_second)} rows/s"


def _grouped(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")
