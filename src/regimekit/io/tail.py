"""Read the lines of a file or pipe that is still growing.

Only complete lines are returned, each with the byte at which it ends, so that a stopped process
can continue after the last line it used.
"""

from __future__ import annotations

import csv
import json
import select
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from regimekit.core.exceptions import RegimekitError
from regimekit.io.reader import SAMPLE_ROWS, STDIN, Row, Source, open_stream, standard_input

_POLL_SECONDS = 0.1
_READ_BYTES = 1 << 16


class LineFormat(NamedTuple):
    """Notation of the lines; its fields are JSON values.

    Attributes:
        names: column names.
        separator: column separator; empty for JSON lines.
        header: lines before the first row.
        encoding: text encoding.
    """

    names: tuple[str, ...]
    separator: str
    header: int
    encoding: str = "utf-8"

    def row(self, line: bytes, used: tuple[str, ...]) -> Row | None:
        """Return the cells of the columns `used`; None for an empty line."""
        text = line.decode(self.encoding).strip("\r\n")
        if not text.strip():
            return None
        if not self.separator:
            return _json_row(text, used)
        cells = next(csv.reader([text], delimiter=self.separator))
        if len(cells) != len(self.names):
            raise RegimekitError(
                f"Line {text!r} has {len(cells)} cells, expected {len(self.names)}. Correct the "
                "line; a cell that contains the separator needs quotation marks."
            )
        return tuple(cells[self.names.index(name)] for name in used)


class Tail:
    """Complete lines of a growing file, or of standard input.

    Args:
        file: path, or "-" for standard input.
        start: byte of the file at which to start.
    """

    def __init__(self, file: str, start: int = 0) -> None:
        self.is_pipe = file == STDIN
        self.stream: BinaryIO = standard_input() if self.is_pipe else _open(file)
        self.end = 0 if self.is_pipe else start
        self.rest = b""
        self.waiting: deque[bytes] = deque()
        self.closed = False
        if not self.is_pipe:
            self.stream.seek(start)
            weakref.finalize(self, self.stream.close)

    def lines(self, stop: Callable[[float], bool]) -> Iterator[tuple[bytes, int]]:
        """Yield lines with the byte at which they end.

        Args:
            stop: called with the seconds since the last line while there is no line; returns
                whether to stop waiting.
        """
        last_line = time.monotonic()
        while True:
            while self.waiting:
                line = self.waiting.popleft()
                self.end += len(line)
                last_line = time.monotonic()
                yield line, self.end
            if self.closed:
                return
            self.waiting.extend(self._complete_lines())
            if not self.waiting and stop(time.monotonic() - last_line):
                return

    def _complete_lines(self) -> list[bytes]:
        piece = self._read()
        if piece is None:
            self.closed = True
            last, self.rest = self.rest, b""
            return [last] if last.strip() else []
        *lines, self.rest = (self.rest + piece).split(b"\n")
        return [line + b"\n" for line in lines]

    def _read(self) -> bytes | None:
        """Return new bytes: empty if there are none yet, None at the end of a pipe."""
        if self.is_pipe:
            if not select.select([self.stream], [], [], _POLL_SECONDS)[0]:
                return b""
            pipe: Any = self.stream
            return pipe.read1(_READ_BYTES) or None
        piece = self.stream.read(_READ_BYTES)
        if not piece:
            time.sleep(_POLL_SECONDS)
        return piece


def first_lines(tail: Tail, stop: Callable[[float], bool]) -> list[tuple[bytes, int]]:
    """Return the lines from which the columns are detected.

    Waits for a header and a row, or for one JSON object, then takes what is available, at most
    `SAMPLE_ROWS` lines.
    """
    found: list[tuple[bytes, int]] = []

    def enough() -> bool:
        return len(found) >= 2 or bool(found and found[0][0].lstrip().startswith(b"{"))

    for line, end in tail.lines(lambda waited: stop(waited) or enough()):
        found.append((line, end))
        if len(found) == SAMPLE_ROWS:
            break
    return found


def detect_line_format(lines: list[bytes], name: str) -> tuple[LineFormat, Source]:
    """Return the notation of the lines, and a source over them to detect the columns."""
    content = b"".join(lines)
    source = open_stream(BytesIO(content), name)
    encoding = source.csv_options.get("encoding", "utf-8")
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        raise RegimekitError(f"--follow reads text in UTF-8 or Latin-1; {name} is not.") from None
    header = max(source.first_line - 1, 0)
    return LineFormat(source.names, source.separator, header, encoding), source


def _json_row(text: str, used: tuple[str, ...]) -> Row:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RegimekitError(f"Line {text[:80]!r} is not a JSON object. Write one per line.")
    return tuple(found.get(name) for name in used)


def _open(file: str) -> BinaryIO:
    path = Path(file)
    if not path.is_file():
        raise RegimekitError(f"--follow needs a file that exists, got {path}.")
    with path.open("rb") as stream:
        packed = stream.read(2) in (b"\x1f\x8b", b"PA", b"PK")
    if packed:
        raise RegimekitError(
            f"--follow reads plain CSV and JSON lines; {path} is compressed or binary."
        )
    return path.open("rb")
