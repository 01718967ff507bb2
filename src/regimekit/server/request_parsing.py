"""Bodies of observations: a JSON object or array, JSON lines, or CSV, read into rows.

A body is read whole and checked whole: the first thing wrong with it names the row and the field,
and nothing of it is stored.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from regimekit.server.config import Limits
from regimekit.server.rows import Row
from regimekit.server.schemas import Observation

_ONE: TypeAdapter[Observation] = TypeAdapter(Observation)
_MANY: TypeAdapter[list[Observation]] = TypeAdapter(list[Observation])
_MISSING = {"", "nan", "null", "none", "na"}
_WORDS = ("id", "time")
_SECONDS = re.compile(r"\s*-?\d{9,12}(\.\d*)?\s*")  # since 1970; fewer digits may be a date

JSON = ("application/json", "")
LINES = ("application/x-ndjson", "application/jsonl", "application/ndjson")
CSV = ("text/csv",)


class BadBody(ValueError):
    """A body that cannot be used, and why."""

    def __init__(self, reason: str, status: int = 422) -> None:
        super().__init__(reason)
        self.status = status


def read(content: bytes, content_type: str, limits: Limits) -> list[Row]:
    """The rows of a body."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in JSON:
        found = _json(content)
    elif kind in LINES:
        found = list(_lines(content, limits))
    elif kind in CSV:
        found = list(_csv(content, limits))
    else:
        known = ", ".join(sorted({*JSON[:1], *LINES[:1], *CSV}))
        raise BadBody(f"Content-Type {kind!r} is not known; send {known}.", 415)
    if not found:
        raise BadBody("There is no observation in the body.")
    if len(found) > limits.rows:
        raise BadBody(f"A request may hold {limits.rows} rows, got {len(found)}.", 413)
    return [_row(i, one) for i, one in enumerate(found)]


def _json(content: bytes) -> list[Observation]:
    start = content.lstrip()[:1]
    try:
        if start == b"[":
            return _MANY.validate_json(content)
        return [_ONE.validate_json(content)]
    except ValidationError as error:
        raise BadBody(explain(error, "Row" if start == b"[" else "")) from None


def _lines(content: bytes, limits: Limits) -> Iterator[Observation]:
    lines = [line for line in content.splitlines() if line.strip()]
    if len(lines) > limits.rows:
        raise BadBody(f"A request may hold {limits.rows} rows, got {len(lines)}.", 413)
    for i, line in enumerate(lines):
        try:
            yield _ONE.validate_json(line)
        except ValidationError as error:
            raise BadBody(f"Row {i}: {explain(error)}") from None


def _csv(content: bytes, limits: Limits) -> Iterator[Observation]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadBody("The CSV is not UTF-8.") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        table = [line for line in reader if line]
    except csv.Error as error:
        raise BadBody(f"The CSV cannot be read: {error}.") from None
    if not table:
        raise BadBody("There is no observation in the body.")
    header = [name.strip() for name in table[0]]
    if "y" not in header or len(set(header)) < len(header):
        raise BadBody("The first line must name the columns, each once, and one of them y.")
    if len(table) > limits.rows + 1:
        raise BadBody(f"A request may hold {limits.rows} rows, got {len(table) - 1}.", 413)
    for i, line in enumerate(table[1:]):
        if len(line) != len(header):
            raise BadBody(f"Row {i}: {len(line)} values for {len(header)} columns.")
        yield _csv_row(i, dict(zip(header, line, strict=True)))


def _csv_row(i: int, line: dict[str, str]) -> Observation:
    given: dict[str, Any] = {name: line.pop(name) or None for name in _WORDS if name in line}
    if _SECONDS.fullmatch(given.get("time") or ""):
        given["time"] = float(given["time"])
    seq = line.pop("seq", "")
    try:
        given["seq"] = int(seq) if seq.strip() else None
        numbers = {name: _cell(name, value) for name, value in line.items()}
    except ValueError as error:
        raise BadBody(f"Row {i}: {error}.") from None
    given["y"] = numbers.pop("y")
    given["x"] = numbers or None
    try:
        return Observation(**given)
    except ValidationError as error:
        raise BadBody(f"Row {i}: {explain(error)}") from None


def _cell(column: str, text: str) -> float | None:
    if text.strip().lower() in _MISSING:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(
            f"{text.strip()!r} in column {column!r} is not a finite number; leave the cell empty "
            "if nothing was observed"
        )
    return value


def _row(i: int, one: Observation) -> Row:
    y: Any = one.y
    time, at = _time(i, one.time)
    return Row(y, one.x or None, one.id, one.seq, time, at)


def _time(i: int, given: str | float | None) -> tuple[str | None, float | None]:
    """A time as text and in seconds; numbers are seconds since 1970, a missing zone is UTC."""
    if given is None:
        return None, None
    try:
        if isinstance(given, str):
            return given, seconds(given)
        return datetime.fromtimestamp(given, UTC).isoformat().replace("+00:00", "Z"), float(given)
    except (ValueError, OverflowError, OSError):
        raise BadBody(
            f"Row {i}: time {given!r} is neither ISO 8601 nor seconds since 1970."
        ) from None


def seconds(text: str) -> float:
    """An ISO 8601 time in seconds since 1970."""
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def explain(error: ValidationError, row: str = "") -> str:
    """The first thing wrong, in a sentence."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = [str(part) for part in first["loc"]]
    place = ""
    if row and where:
        place, where = f"{row} {where[0]}: ", where[1:]
    named = f"{where[0]}: " if where else ""
    message = first["msg"].rstrip(".")
    if "Invalid JSON" in message:
        message += " (numbers that are not observed are null)"
    return f"{place}{named}{message}."
