"""Rows of a file or a pipe that still grows: complete lines only, each with where it ends.

A reader that was stopped goes on at the byte where the last row it used ended.
"""

from __future__ import annotations

import csv
import json
import select
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from regimekit.core.exceptions import RegimekitError
from regimekit.io.source import SAMPLE, STDIN, Row, Source, open_text

_PAUSE = 0.1  # seconds between two looks at a file


class Format(NamedTuple):
    """How the lines are written; JSON values, so that a stopped reader can be taken up."""

    names: tuple[str, ...]
    separator: str  # empty for JSON lines
    header: int  # lines before the first row
    encoding: str = "utf-8"

    def row(self, line: bytes, used: tuple[str, ...]) -> Row | None:
        """The cells of the columns `used`; None for an empty line."""
        text = line.decode(self.encoding).strip("\r\n")
        if not text.strip():
            return None
        if not self.separator:
            return self._from_json(text, used)
        cells = next(csv.reader([text], delimiter=self.separator))
        if len(cells) != len(self.names):
            raise RegimekitError(
                f"The line {text!r} has {len(cells)} cells in place of {len(self.names)}."
            )
        return tuple(cells[self.names.index(name)] for name in used)

    @staticmethod
    def _from_json(text: str, used: tuple[str, ...]) -> Row:
        try:
            found = json.loads(text)
        except ValueError:
            raise RegimekitError(f"The line {text[:80]!r} is not a JSON object.") from None
        return tuple(found.get(name) for name in used)


class Tail:
    """Complete lines of a growing file, or of standard input, from a byte on."""

    def __init__(self, file: str, start: int = 0) -> None:
        self.live = file == STDIN
        self.stream: BinaryIO = sys.stdin.buffer if self.live else _opened(file)
        self.end = start if not self.live else 0
        self.rest = b""
        self.waiting: deque[bytes] = deque()
        self.closed = False
        if not self.live:
            self.stream.seek(start)
            weakref.finalize(self, self.stream.close)

    def lines(self, stop: Callable[[float], bool]) -> Iterator[tuple[bytes, int]]:
        """Lines with their ends; `stop` is asked while there is none, with the seconds waited."""
        quiet_since = time.monotonic()
        while True:
            while self.waiting:
                line = self.waiting.popleft()
                self.end += len(line)
                quiet_since = time.monotonic()
                yield line, self.end
            if self.closed:
                return
            self.waiting.extend(self._complete())
            if not self.waiting and stop(time.monotonic() - quiet_since):
                return

    def _complete(self) -> list[bytes]:
        piece = self._read()
        if piece is None:
            self.closed = True
            last, self.rest = self.rest, b""
            return [last] if last.strip() else []
        *lines, self.rest = (self.rest + piece).split(b"\n")
        return [line + b"\n" for line in lines]

    def _read(self) -> bytes | None:
        """What is new: empty if nothing is, None at the end of a pipe."""
        if self.live:
            if not select.select([self.stream], [], [], _PAUSE)[0]:
                return b""
            pipe: Any = self.stream  # buffered, which binary streams in general need not be
            return pipe.read1(1 << 16) or None
        piece = self.stream.read(1 << 16)
        if not piece:
            time.sleep(_PAUSE)
        return piece


def first_lines(tail: Tail, stop: Callable[[float], bool]) -> list[tuple[bytes, int]]:
    """The lines by which the columns are found: those there are, at least two."""
    found: list[tuple[bytes, int]] = []
    for line, end in tail.lines(lambda waited: stop(waited) or _enough(found)):
        found.append((line, end))
        if len(found) == SAMPLE:
            break
    return found


def _enough(found: list[tuple[bytes, int]]) -> bool:
    """A header and a row, or a row that names its own columns."""
    return len(found) >= 2 or bool(found and found[0][0].lstrip().startswith(b"{"))


def find_format(lines: list[bytes], name: str) -> tuple[Format, Source]:
    """How the lines are written, and a source over them to find the columns by."""
    source = open_text(b"".join(lines), name)
    separator = source.separator
    encoding = source.options.get("encoding", "utf-8")
    return Format(source.names, separator, max(source.first_line - 1, 0), encoding), source


def _opened(file: str) -> Any:
    path = Path(file)
    if not path.is_file():
        raise RegimekitError(f"{path} is not a file that can be followed.")
    with path.open("rb") as stream:
        packed = stream.read(2) in (b"\x1f\x8b", b"PA", b"PK")
    if packed:
        raise RegimekitError(f"{path} is packed; only plain CSV and JSON lines can be followed.")
    return path.open("rb")
