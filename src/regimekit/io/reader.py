"""Open a table (file, pipe, database table, SQL query) and read its rows in chunks.

duckdb reads the rows, so no table is ever stored in memory as a whole. Cells of CSV files stay
text and are parsed by `cell_parsing`: it accepts more notations than SQL casts, and an error can
name row, column and value. Other formats have typed cells.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import re
import select
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.io import cell_parsing as cells
from regimekit.io.spreadsheet import write_sheet
from regimekit.io.temporary import TemporaryFolder

Row = tuple[Any, ...]
STDIN = "-"
SAMPLE_ROWS = 1000  # first rows, from which columns, notation and frequency are detected
_CHUNK_ROWS = 4096
_HEADER_LINES = 200  # first lines of a CSV file, in which the header is searched
_UNIT_ROWS = 20  # first rows, from which a row of units is recognised
_HEAD_BYTES = 64  # first bytes, from which the file format is detected
_MEMORY_LIMIT = "1GB"  # of duckdb; a sort that needs more uses temporary files
_CSV_BUFFER = 8_000_000  # bytes of a CSV file that duckdb reads at a time
_ZIP = b"PK\x03\x04"  # first bytes of an xlsx workbook
_ZONED = "TIMESTAMP WITH TIME ZONE"
FIFO_WAIT = 10.0  # seconds until a process must open a named pipe for writing
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}


class TableRequest(NamedTuple):
    """Table to read.

    Attributes:
        file: path, or "-" for standard input; empty if `sql` names its files.
        table: table of the database `file`, or sheet of the workbook.
        sql: one SELECT statement, on the database `file` if there is one.
    """

    file: str
    table: str | None = None
    sql: str | None = None

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.file or "the SQL query"


@dataclass
class Source:
    """Rows of a table; every call of `rows` starts at the first row.

    Attributes:
        name: name for messages.
        relation: SQL expression of the table.
        names: column names.
        notes: sentences about the file format.
        separator: column separator of a CSV file, else empty.
        first_line: line of the file that contains row 1; 0 if rows are not lines.
        database: duckdb file that contains the table.
        csv_options: options of `read_csv`; empty for formats with typed cells.
        scratch: temporary folder that contains the rows.
        zones: time zones of columns, by name.
    """

    name: str
    relation: str
    names: tuple[str, ...]
    notes: list[str] = field(default_factory=list)
    separator: str = ""
    first_line: int = 0
    database: Path | None = None
    csv_options: dict[str, Any] = field(default_factory=dict)
    scratch: TemporaryFolder | None = None
    zones: dict[str, str] = field(default_factory=dict)

    def rows(
        self, columns: Sequence[str] | None = None, order: str = "", chunk: int = _CHUNK_ROWS
    ) -> Iterator[list[Row]]:
        """Yield the rows in chunks.

        Args:
            columns: columns to read; all by default.
            order: SQL expression to sort by.
            chunk: rows per chunk.

        Raises:
            RegimekitError: if the table cannot be read.
        """
        chosen = ", ".join(quote_name(name) for name in (columns or self.names))
        tail = f" ORDER BY {order}" if order else ""
        with _duckdb_errors(self.name), connect(self.database) as connection:
            result = connection.execute(f"SELECT {chosen} FROM {self.relation}{tail}")
            while rows := result.fetchmany(chunk):
                yield rows

    def count(self, expression: str = "count(*)") -> int:
        """Return the number of rows, or another SQL aggregate; a CSV file is read once for it."""
        with _duckdb_errors(self.name), connect(self.database) as connection:
            row = connection.execute(f"SELECT {expression} FROM {self.relation}").fetchone()
            return int(row[0])

    def sample(self) -> list[Row]:
        """Return the first `SAMPLE_ROWS` rows.

        Raises:
            RegimekitError: if there is no row.
        """
        first = next(self.rows(chunk=SAMPLE_ROWS), [])
        if not first:
            raise RegimekitError(f"{self.name} has a header but no rows.")
        return first


class _duckdb_errors:
    """Context in which errors of duckdb become one-line errors about the table `name`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        import duckdb

        if isinstance(error, duckdb.Error):
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = " ".join(line for line in lines[:3] if not line.startswith("Possible"))
            message = f"{self.name} cannot be read as a table: {reason[:300]}"
            raise RegimekitError(message) from None


def connect(database: Path | None = None) -> Any:
    """Return a duckdb connection with one thread and a memory limit; it prints nothing.

    Args:
        database: database file, opened read-only; in memory by default.
    """
    import duckdb

    connection = duckdb.connect(
        # An absolute path is never taken for an address such as "md:name".
        ":memory:" if database is None else str(database.absolute()),
        read_only=database is not None,
        config={"threads": 1, "memory_limit": _MEMORY_LIMIT, "autoinstall_known_extensions": False},
    )
    connection.execute("SET enable_progress_bar = false")
    return connection


def quote_name(name: str) -> str:
    """Return a column or table name in SQL notation."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: object) -> str:
    """Return a text in SQL notation."""
    return "'" + str(value).replace("'", "''") + "'"


def quote_path(path: Path) -> str:
    """Return a path in SQL notation that matches this file only.

    duckdb expands *, ? and [..] in paths, and takes some relative paths for addresses.
    """
    return quote_text(re.sub(r"([*?\[])", r"[\1]", str(path.absolute())))


def open_source(request: TableRequest) -> Source:
    """Open a table and detect its format.

    Returns:
        Its source.

    Raises:
        RegimekitError: if the table does not exist or its format cannot be read.
    """
    if not request.file:
        if request.sql is None:
            raise RegimekitError("No table is given. Name a file, or pass --sql.")
        return _describe("The SQL query", _subquery(request.sql))
    if request.file == STDIN:
        return open_stream(standard_input(), "standard input")
    path = Path(request.file)
    if not path.exists():
        raise RegimekitError(f"{path} does not exist. (To pass a query, use --sql.)")
    if path.is_dir():
        raise RegimekitError(f"{path} is a folder. Name a file in it.")
    try:
        if path.is_fifo():
            with _NamedPipe(path) as pipe:
                return open_stream(pipe, path.name)
        if not path.is_file():
            raise RegimekitError(f"{path} is a device, not a file.")
        with path.open("rb") as content:
            head = content.read(_HEAD_BYTES)
    except OSError as error:
        raise RegimekitError(f"{path} cannot be read: {error.strerror}.") from None
    if head.startswith(b"SQLite format 3"):
        return _open_sqlite(path, request)
    if head[8:12] == b"DUCK":
        return _open_duckdb(path, request)
    if head.startswith(_ZIP):
        return _open_workbook(path, request)
    if head.strip() and (request.table or request.sql is not None):
        raise RegimekitError(
            f"--table and --sql need a database; {path.name} is not one. To query a file, leave "
            f"out FILE and pass --sql \"SELECT .. FROM '{path}'\"."
        )
    return _open_flat(path, head, path.name)


def standard_input() -> BinaryIO:
    """Return the bytes of standard input.

    Raises:
        RegimekitError: if it is closed.
    """
    if sys.stdin is None:
        raise RegimekitError("standard input is closed. Name a file, or pipe rows into it.")
    return sys.stdin.buffer


class _NamedPipe(io.RawIOBase):
    """A named pipe that raises an error if no process opens it for writing."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._deadline: float | None = time.monotonic() + FIFO_WAIT

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                piece = os.read(self._descriptor, len(buffer))
            except BlockingIOError:
                # There is a writer that has not written anything yet.
                select.select([self._descriptor], [], [])
                continue
            if piece:
                self._deadline = None
            # The end of the pipe, or no writer so far.
            if piece or self._deadline is None:
                buffer[: len(piece)] = piece
                return len(piece)
            if time.monotonic() > self._deadline:
                raise RegimekitError(
                    f"{self._name} is a pipe, and no process writes to it. Start the writer first."
                )
            time.sleep(0.05)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def open_stream(stream: BinaryIO | io.RawIOBase, name: str) -> Source:
    """Copy a stream to a temporary file, because it is read more than once, and open it.

    Args:
        stream: bytes of a file.
        name: name for messages.
    """
    scratch = TemporaryFolder()
    copy = scratch.path / "stream"
    with copy.open("wb") as target:
        shutil.copyfileobj(stream, target)
    with copy.open("rb") as content:
        source = _open_flat(copy, content.read(_HEAD_BYTES), name)
    # A recoded copy has a folder of its own.
    source.scratch = source.scratch or scratch
    return source


def _open_flat(path: Path, head: bytes, name: str) -> Source:
    """Open a file that is not a database."""
    if not head.strip():
        raise RegimekitError(f"{name} is empty.")
    if head.startswith(b"PAR1"):
        relation = f"read_parquet({quote_path(path)}, hive_partitioning=false)"
        found = _describe(name, relation, f"{name} is a Parquet file.")
        found.zones = _parquet_zones(path)
        return found
    if head.startswith((_ZIP, b"\xd0\xcf\x11\xe0")):
        raise RegimekitError(
            f"{name} is a spreadsheet or a zip archive. Save the sheet as CSV and pass that file."
        )
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _open_recoded(path, name, "utf-16", "UTF-16")
    packed = head.startswith(b"\x1f\x8b")
    options = {"hive_partitioning": False} | ({"compression": "gzip"} if packed else {})
    if head.lstrip()[:1] in (b"{", b"[") or name.endswith((".jsonl.gz", ".ndjson.gz", ".json.gz")):
        relation = _json_relation(name, quote_path(path) + _arguments(options))
        return _describe(name, relation, f"{name} contains JSON, one object per row.")
    return _open_csv(path, name, options)


def _open_csv(path: Path, name: str, options: dict[str, Any]) -> Source:
    import duckdb

    with _duckdb_errors(name):
        try:
            found = _sniff(path, options)
        except duckdb.Error as error:
            if "utf-8" not in str(error).lower():
                raise
            options["encoding"] = "latin-1"
            try:
                found = _sniff(path, options)
            except duckdb.Error:
                if "compression" in options:
                    raise RegimekitError(f"{name} is not text. Unpack it first.") from None
                return _open_recoded(path, name, "cp1252", "Windows-1252")
        if len(found["Columns"]) == 1:
            _check_cell_counts(path, name, found["Columns"][0]["name"], options)
        separators = found["Delimiter"] if len(found["Columns"]) > 1 else ",;\t|"
        if place := _find_header(path, options, separators):
            found = _sniff(path, options | place)
    if len(found["Columns"]) == 1 and (aligned := _open_aligned(path, name, options)):
        return aligned
    separator, header, skipped = found["Delimiter"], found["HasHeader"], found["SkipRows"]
    options |= {"delim": separator, "header": header, "skip": skipped, "all_varchar": True}
    options |= {"buffer_size": _CSV_BUFFER}
    if found["Quote"] != "(empty)":
        options |= {"quote": found["Quote"]}
    source = _describe(name, f"read_csv({quote_path(path)}{_arguments(options)})")
    source.notes.append(_describe_csv(source, options))
    if skipped:
        lines = "1 line" if skipped == 1 else f"{skipped} lines"
        source.notes.append(f"{name}: skipped {lines} before the header.")
    source.separator, source.csv_options = separator, options
    source.first_line = 1 + int(header) + int(skipped)
    return _without_units(source, path) if header else source


def _text_lines(path: Path, options: dict[str, Any]) -> Any:
    """Open a CSV file as text."""
    text = {"mode": "rt", "newline": "", "encoding": options.get("encoding", "utf-8-sig")}
    return (gzip.open if "compression" in options else open)(path, **text)


def _find_header(path: Path, options: dict[str, Any], separators: str) -> dict[str, Any]:
    """Return separator and position of a table that begins below other lines; {} if none does.

    Instruments write such lines with their name and settings, spreadsheets with a title. The table
    is the end of the first lines in which each has the same number of cells; its first line has
    more than one name, and no number.
    """
    with _text_lines(path, options) as lines:
        first = [line.rstrip("\r\n") for line in itertools.islice(lines, _HEADER_LINES)]
    best, place = len(first) // 2, {}
    for separator in separators:
        rows = list(csv.reader(first, delimiter=separator))
        above = max((n for n, row in enumerate(rows, 1) if len(row) != len(rows[-1])), default=0)
        while above < len(rows) and sum(cell.strip() != "" for cell in rows[above]) < 2:
            above += 1
        # A cell with a line end would make rows and lines differ.
        found = len(rows) == len(first) and best < len(first) - above
        if found and not any(cell.strip() and cells.is_number(cell) for cell in rows[above]):
            best, place = len(first) - above, {"delim": separator, "skip": above}
    return place if place.get("skip") else {}


def _open_aligned(path: Path, name: str, options: dict[str, Any]) -> Source | None:
    """Copy a table whose columns are separated by any number of spaces; None if it has one."""
    with _text_lines(path, options) as lines:
        first = [line.split() for line in itertools.islice(lines, _HEADER_LINES) if line.strip()]
        if len({len(row) for row in first}) != 1 or len(first[0]) < 2:
            return None
        lines.seek(0)
        scratch = TemporaryFolder()
        copy = scratch.path / "table.csv"
        with copy.open("w", encoding="utf-8", newline="") as target:
            csv.writer(target).writerows(line.split() for line in lines)
    found = _open_csv(copy, name, {})
    found.notes[0], found.scratch = f"{name} has columns separated by spaces.", scratch
    return found


def _without_units(source: Source, path: Path) -> Source:
    """Leave out the first row if it contains the units of the columns."""
    first, *rest = next(source.rows(chunk=_UNIT_ROWS), [()])
    if len(rest) < 2:
        return source
    decimal = cells.detect_decimal_sign((cell for row in rest for cell in row), source.separator)
    for cell, column in zip(first, zip(*rest, strict=True), strict=True):
        numeric = all(cells.is_number(other, decimal) for other in column)
        is_time = not numeric and cells.detect_time_format(column) is not None
        fits = cells.is_number(cell, decimal) if numeric else cells.detect_time_format([cell])
        if fits or not (numeric or is_time):
            return source
    options = source.csv_options | {"header": False, "names": source.names}
    options["skip"] = source.first_line
    units = ", ".join(str(cell) for cell in first)
    return replace(
        source,
        relation=f"read_csv({quote_path(path)}{_arguments(options)})",
        notes=[*source.notes, f"{source.name}: skipped the row below the header, {units}."],
        first_line=source.first_line + 1,
        csv_options=options,
    )


def _check_cell_counts(path: Path, name: str, header: str, options: dict[str, Any]) -> None:
    """Raise if a row has more or fewer cells than the header.

    duckdb reads such a file as a table with a single column whose name contains the separator.
    """
    separator = next((sign for sign in ",;\t|" if sign in header), "")
    if not separator:
        return
    with _text_lines(path, options) as lines:
        rows = csv.reader(lines, delimiter=separator)
        width = len(next(rows, []))
        # The separator may be part of the name of the only column.
        if width < 2 or len(next(rows, [])) != width:
            return
        line = next((rows.line_num for row in rows if row and len(row) != width), 0)
    if line:
        raise RegimekitError(
            f"{name} has {width} columns in its header {header!r}, but line {line} has "
            "more or fewer cells. Correct or remove the line; a cell that contains the separator "
            "needs quotation marks."
        )


def _describe_csv(source: Source, options: dict[str, Any]) -> str:
    kind = "a gzipped CSV file" if "compression" in options else "a CSV file"
    by = ", separated by " + _SEPARATORS.get(options["delim"], repr(options["delim"]))
    by = " with one column" if len(source.names) == 1 else by
    encoding = ", in Latin-1" if "encoding" in options else ""
    header = "" if options["header"] else ", without a header"
    return f"{source.name} is {kind}{by}{encoding}{header}."


def _sniff(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return the CSV notation that duckdb detects."""
    with connect() as connection:
        result = connection.execute(f"FROM sniff_csv({quote_path(path)}{_arguments(options)})")
        names = [column[0] for column in result.description]
        return dict(zip(names, result.fetchone(), strict=True))


def _arguments(options: dict[str, Any]) -> str:
    """Return options as SQL arguments, each after a comma."""
    written = {
        name: str(value).lower() if isinstance(value, (bool, int)) else quote_text(value)
        for name, value in options.items()
        if not isinstance(value, tuple)
    }
    lists = {name: value for name, value in options.items() if isinstance(value, tuple)}
    written |= {name: f"[{', '.join(map(quote_text, value))}]" for name, value in lists.items()}
    return "".join(f", {name}={value}" for name, value in written.items())


def _describe(name: str, relation: str, *notes: str, database: Path | None = None) -> Source:
    """Return the source of a SQL expression with its column names."""
    columns = _column_types(name, relation, database)
    zoned = [column for column, kind in columns.items() if kind == _ZONED]
    if zoned:
        # duckdb would need pytz for such cells; as text in UTC they keep their instant.
        texts = ", ".join(
            f"strftime(make_timestamp(epoch_us({quote_name(c)})), '%Y-%m-%d %H:%M:%S.%f+00:00') "
            f"AS {quote_name(c)}"
            for c in zoned
        )
        relation = f"(SELECT * REPLACE ({texts}) FROM {relation})"
    return Source(name, relation, tuple(columns), list(notes), database=database)


def _column_types(name: str, relation: str, database: Path | None = None) -> dict[str, str]:
    """Return the types of the columns of a SQL expression, by name."""
    with _duckdb_errors(name), connect(database) as connection:
        columns = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {column[0]: column[1] for column in columns}


def _json_relation(name: str, arguments: str) -> str:
    """Return the SQL expression of a JSON file; times with an offset stay text."""
    columns = _column_types(name, f"read_json({arguments})")
    if _ZONED not in columns.values():
        return f"read_json({arguments})"
    kinds = ", ".join(
        f"{quote_name(column)}: {quote_text('VARCHAR' if kind == _ZONED else kind)}"
        for column, kind in columns.items()
    )
    return f"read_json({arguments}, columns={{{kinds}}})"


def _parquet_zones(path: Path) -> dict[str, str]:
    """Return the time zones of columns that pandas has written into a Parquet file."""
    with _duckdb_errors(path.name), connect() as connection:
        query = f"SELECT value FROM parquet_kv_metadata({quote_path(path)}) WHERE key = 'pandas'"
        found = connection.execute(query).fetchone()
    if found is None:
        return {}
    try:
        columns = json.loads(found[0])["columns"]
        return {c["name"]: c["metadata"]["timezone"] for c in columns if c["metadata"]}
    except (KeyError, TypeError, ValueError):
        return {}


def _open_recoded(path: Path, name: str, encoding: str, title: str) -> Source:
    """Copy a file of Excel or Windows, in an encoding that duckdb does not read, to UTF-8."""
    scratch = TemporaryFolder()
    copy = scratch.path / "table.csv"
    try:
        with (
            path.open(encoding=encoding, newline="") as source,
            copy.open("w", encoding="utf-8", newline="") as target,
        ):
            shutil.copyfileobj(source, target)
    except UnicodeError:
        raise RegimekitError(f"{name} is not text in UTF-8 or {title}. Save it as UTF-8.") from None
    found = _open_csv(copy, name, {})
    found.notes[0] = found.notes[0].rstrip(".") + f", in {title}."
    found.scratch = scratch
    return found


def _open_workbook(path: Path, request: TableRequest) -> Source:
    if request.sql is not None:
        raise RegimekitError(f"--sql needs a database; {path.name} is a spreadsheet.")
    scratch = TemporaryFolder()
    copy = scratch.path / "table.csv"
    sheet = write_sheet(path, request.table, copy)
    if not copy.stat().st_size:
        raise RegimekitError(f"The sheet {sheet!r} of {path.name} is empty.")
    source = _open_csv(copy, path.name, {})
    source.notes[0] = f"{path.name} is a spreadsheet; its sheet {sheet!r} is read."
    source.first_line, source.scratch = 0, scratch
    return source


def _open_duckdb(path: Path, request: TableRequest) -> Source:
    relation = None if request.sql is None else _subquery(request.sql)
    if relation is None:
        with _duckdb_errors(path.name), connect(path) as connection:
            tables = [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
        relation = quote_name(_choose_table(path, request.table, tables))
    return _describe(path.name, relation, f"{path.name} is a duckdb database.", database=path)


def _open_sqlite(path: Path, request: TableRequest) -> Source:
    """Copy a SQLite table to a CSV file: duckdb would have to download its SQLite extension."""
    scratch = TemporaryFolder()
    copy = scratch.path / "table.csv"
    try:
        # A URI quotes the characters #, ? and % of the name.
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = [row[0] for row in listed]
            query = request.sql
            if query is None:
                query = f"SELECT * FROM {quote_name(_choose_table(path, request.table, tables))}"
            connection.set_authorizer(_permit_reading)
            rows = connection.execute(query)
            if rows.description is None:
                raise sqlite3.Error("no SELECT statement")
            with copy.open("w", newline="") as target:
                writer = csv.writer(target)
                writer.writerow(column[0] for column in rows.description)
                writer.writerows(rows)
    except (sqlite3.Error, sqlite3.Warning) as error:
        if request.sql is not None:
            raise RegimekitError(
                f"--sql must be one SELECT statement on {path.name}: {error}."
            ) from None
        raise RegimekitError(f"{path.name} cannot be read as a SQLite database: {error}.") from None
    source = _open_csv(copy, path.name, {})
    source.notes, source.first_line = [f"{path.name} is a SQLite database."], 0
    source.scratch = scratch
    return source


def _permit_reading(action: int, *_: object) -> int:
    """Permit what a SELECT statement does, for `sqlite3.Connection.set_authorizer`."""
    reading = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    computing = (sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in reading + computing else sqlite3.SQLITE_DENY


def _subquery(sql: str) -> str:
    """Return a query as a SQL expression of a table.

    Raises:
        RegimekitError: unless it is one SELECT statement.
    """
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise RegimekitError(f"--sql is not valid SQL: {reason}") from None
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        found = ", ".join(kind.name for kind in kinds) or "nothing"
        raise RegimekitError(f"--sql must be one SELECT statement, got {found}.")
    # The query may end with a comment, so the parenthesis is on a line of its own.
    return f"({sql.strip().rstrip(';')}\n)"


def _choose_table(path: Path, name: str | None, tables: list[str]) -> str:
    if name is None and len(tables) == 1:
        return tables[0]
    if name is None:
        known = ", ".join(tables) or "none"
        raise RegimekitError(f"{path.name} is a database. Pass --table with one of: {known}.")
    if name not in tables:
        raise unknown("--table", name, tables)
    return name
