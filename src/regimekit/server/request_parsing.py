"""Parse bodies of observations: a JSON object or array, JSON lines, or CSV.

A body is validated as a whole. The error names the first invalid row and field, and nothing of
the body is stored.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from regimekit.server.config import Limits
from regimekit.server.records import Observation, RequestError
from regimekit.server.schemas import ObservationBody

_PARTS_PER_ROW = 100  # values, arrays and objects of a JSON row, on average
_MAX_ENTRIES = 64  # of a row, and of its y and x
_SHOWN_NAMES = 200  # characters of the column names in an error
_MISSING = {"", "nan", "null", "none", "na"}
# Seconds since 1970; fewer digits may be a date such as 20260301.
_EPOCH_SECONDS = re.compile(r"\s*-?\d{9,12}(\.\d*)?\s*")

JSON_TYPES = ("application/json", "")
LINES_TYPES = ("application/x-ndjson", "application/jsonl", "application/ndjson")
CSV_TYPES = ("text/csv",)


class BodyError(RequestError):
    """A request body is invalid."""


def parse_body(content: bytes, content_type: str, limits: Limits) -> list[Observation]:
    """Parse a request body.

    Raises:
        BodyError: if the body is invalid, empty or too long.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in JSON_TYPES:
        found = list(_parse_json(content, limits))
    elif kind in LINES_TYPES:
        found = list(_parse_lines(content, limits))
    elif kind in CSV_TYPES:
        found = list(_parse_csv(content, limits))
    else:
        known = ", ".join((*JSON_TYPES[:1], *LINES_TYPES[:1], *CSV_TYPES))
        raise BodyError(f"Content-Type must be one of {known}, got {kind!r}.", status=415)
    if not found:
        raise BodyError("The body has no observations.")
    _check_rows(len(found), limits)
    return [_observation(i, body) for i, body in enumerate(found)]


def _check_rows(rows: int, limits: Limits) -> None:
    if rows > limits.rows:
        more = f"more than {limits.rows}" if rows == limits.rows + 1 else str(rows)
        raise BodyError(f"A request must have at most {limits.rows} rows, got {more}.", status=413)


def _check_parts(content: bytes, limits: Limits) -> None:
    """Raise an error for JSON with so many values that parsing it needs much memory."""
    most = _PARTS_PER_ROW * limits.rows
    if sum(content.count(sign) for sign in (b",", b"[", b"{")) > most:
        reason = f"A request must have at most {most} values. Divide it into several requests."
        raise BodyError(reason, status=413)


def _parse_json(content: bytes, limits: Limits) -> Iterator[ObservationBody]:
    _check_parts(content, limits)
    rows = _json_value(content)
    if not isinstance(rows, list):
        yield _json_row(rows)
        return
    _check_rows(len(rows), limits)
    for i, row in enumerate(rows):
        yield _json_row(row, f"Row {i}: ")


def _parse_lines(content: bytes, limits: Limits) -> Iterator[ObservationBody]:
    _check_parts(content, limits)
    lines = [line for line in content.splitlines() if line.strip()]
    _check_rows(len(lines), limits)
    for i, line in enumerate(lines):
        yield _json_row(_json_value(line, f"Row {i}: "), f"Row {i}: ")


def _json_value(text: bytes, place: str = "") -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise BodyError(
            f"{place}Invalid JSON: {error} (use null for values that were not observed)."
        ) from None


def _json_row(row: Any, place: str = "") -> ObservationBody:
    """Validate one row; the first error ends it, so that errors do not need memory."""
    if not isinstance(row, dict):
        raise BodyError(f"{place}Input should be an object.")
    for entries in (row, row.get("y"), row.get("x")):
        if isinstance(entries, list | dict) and len(entries) > _MAX_ENTRIES:
            raise BodyError(
                f"{place}A row, its y and its x have at most {_MAX_ENTRIES} entries, "
                f"got {len(entries)}."
            )
    try:
        return ObservationBody.model_validate(row)
    except ValidationError as error:
        raise BodyError(f"{place}{_first_error(error)}") from None


def _parse_csv(content: bytes, limits: Limits) -> Iterator[ObservationBody]:
    try:
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        lines = (line for line in csv.reader(text, strict=True) if line)
        table = list(islice(lines, limits.rows + 2))
    except UnicodeDecodeError:
        raise BodyError("CSV must be encoded as UTF-8.") from None
    except csv.Error as error:
        raise BodyError(f"The CSV is invalid: {error}.") from None
    header = [name.strip() for name in table[0]] if table else ["y"]
    if "y" not in header or len(set(header)) < len(header):
        shown = str(header)[:_SHOWN_NAMES]
        raise BodyError(f"The first line must have unique column names including y, got {shown}.")
    _check_rows(len(table) - 1, limits)
    for i, line in enumerate(table[1:]):
        if len(line) != len(header):
            raise BodyError(f"Row {i}: expected {len(header)} values, got {len(line)}.")
        try:
            yield _csv_row(dict(zip(header, line, strict=True)))
        except ValidationError as error:
            raise BodyError(f"Row {i}: {_first_error(error)}") from None
        except ValueError as error:
            raise BodyError(f"Row {i}: {error}.") from None


def _csv_row(line: dict[str, str]) -> ObservationBody:
    given: dict[str, Any] = {name: line.pop(name, "") or None for name in ("id", "time")}
    if _EPOCH_SECONDS.fullmatch(given["time"] or ""):
        given["time"] = float(given["time"])
    seq = line.pop("seq", "")
    given["seq"] = int(seq) if seq.strip() else None
    numbers = {name: _csv_number(name, value) for name, value in line.items()}
    return ObservationBody(y=numbers.pop("y"), x=numbers or None, **given)


def _csv_number(column: str, text: str) -> float | None:
    if text.strip().lower() in _MISSING:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(
            f"{text.strip()!r} in column {column!r} is not a finite number; leave the cell empty "
            "if the value was not observed"
        )
    return value


def _observation(i: int, body: ObservationBody) -> Observation:
    try:
        time, at = _parse_time(body.time)
    except (ValueError, OverflowError, OSError):
        raise BodyError(
            f"Row {i}: time must be ISO 8601 or seconds since 1970, got {body.time!r}."
        ) from None
    return Observation(body.y, body.x or None, body.id, body.seq, time, at)


def _parse_time(given: str | float | None) -> tuple[str | None, float | None]:
    """Return a time as text and in seconds since 1970."""
    if given is None:
        return None, None
    if isinstance(given, str):
        return given, timestamp(given)
    return datetime.fromtimestamp(given, UTC).isoformat().replace("+00:00", "Z"), float(given)


def timestamp(text: str) -> float:
    """Convert an ISO 8601 time to seconds since 1970; without a time zone it is UTC.

    Raises:
        ValueError: if the text is not ISO 8601.
    """
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _first_error(error: ValidationError) -> str:
    """Describe the first error with its field."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = f"{first['loc'][0]}: " if first["loc"] else ""
    return f"{name}{first['msg'].rstrip('.')}."
