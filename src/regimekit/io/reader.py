"""Open a table (file, pipe, database table, SQL query) and read its rows in chunks.

duckdb reads the rows, so no table is ever stored in memory as a whole. Cells of CSV files stay
text and are parsed by `cell_parsing`: it accepts more notations than SQL casts, and an error can
name row, column and value. Other formats have typed cells.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import sqlite3
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.io.spreadsheet import write_sheet

Row = tuple[Any, ...]
STDIN = "-"
SAMPLE_ROWS = 1000  # first rows, from which columns, notation and frequency are detected
_CHUNK_ROWS = 4096
_HEAD_BYTES = 64  # first bytes, from which the file format is detected
_MEMORY_LIMIT = "1GB"  # of duckdb; a sort that needs more uses temporary files
_CSV_BUFFER = 8_000_000  # bytes of a CSV file that duckdb reads at a time
_SQL_STARTS = ("select ", "from ", "with ", "select\n", "with\n")
_ZIP = b"PK\x03\x04"  # first bytes of an xlsx workbook
_ZONED = "TIMESTAMP WITH TIME ZONE"
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}


class TableRequest(NamedTuple):
    """Table to read.

    Attributes:
        file: path, "-" for standard input, or a SQL query.
        table: table of the database `file`, or sheet of the workbook.
        query: SQL query on the database `file`.
    """

    file: str
    table: str | None = None
    query: str | None = None


class ScratchFolder:
    """Temporary folder that is deleted with the last reference to it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="regimekit-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


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
    scratch: ScratchFolder | None = None
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
        ":memory:" if database is None else str(database),
        read_only=database is not None,
        config={"threads": 1, "memory_limit": _MEMORY_LIMIT},
    )
    connection.execute("SET enable_progress_bar = false")
    return connection


def quote_name(name: str) -> str:
    """Return a column or table name in SQL notation."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: object) -> str:
    """Return a text in SQL notation."""
    return "'" + str(value).replace("'", "''") + "'"


def open_source(request: TableRequest) -> Source:
    """Open a table and detect its format.

    Args:
        request: the table.

    Returns:
        Its source.

    Raises:
        RegimekitError: if the table does not exist or its format cannot be read.
    """
    text = request.file
    if text.lower().startswith(_SQL_STARTS):
        return _describe("The query", f"({text})")
    if text == STDIN:
        return _open_stream(sys.stdin.buffer, "standard input")
    path = Path(text)
    if not path.exists():
        raise RegimekitError(f"{path} does not exist.")
    if path.is_dir():
        raise RegimekitError(f"{path} is a folder. Name a file in it.")
    try:
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
    if head.strip() and (request.table or request.query):
        raise RegimekitError(
            f"--table and --query need a database; {path.name} is not one. To query a file, pass "
            f"the SQL in its place: \"SELECT .. FROM '{path}'\"."
        )
    return _open_flat(path, head, path.name)


def open_bytes(content: bytes, name: str) -> Source:
    """Open the first lines of a stream as a table; `name` is used in messages."""
    return _open_stream(io.BytesIO(content), name)


def _open_stream(stream: BinaryIO, name: str) -> Source:
    """Copy a stream to a temporary file, because it is read more than once."""
    scratch = ScratchFolder()
    copy = scratch.path / "stream"
    with copy.open("wb") as target:
        shutil.copyfileobj(stream, target)
    with copy.open("rb") as content:
        source = _open_flat(copy, content.read(_HEAD_BYTES), name)
    source.scratch = scratch
    return source


def _open_flat(path: Path, head: bytes, name: str) -> Source:
    """Open a file that is not a database."""
    if not head.strip():
        raise RegimekitError(f"{name} is empty.")
    if head.startswith(b"PAR1"):
        found = _describe(name, f"read_parquet({quote_text(path)})", f"{name} is a Parquet file.")
        found.zones = _parquet_zones(path)
        return found
    if head.startswith((_ZIP, b"\xd0\xcf\x11\xe0")):
        raise RegimekitError(
            f"{name} is a spreadsheet or a zip archive. Save the sheet as CSV and pass that file."
        )
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _open_utf16(path, name)
    packed = head.startswith(b"\x1f\x8b")
    if head.lstrip()[:1] in (b"{", b"[") or name.endswith((".jsonl.gz", ".ndjson.gz", ".json.gz")):
        options = ", compression=$$gzip$$" if packed else ""
        relation = _json_relation(name, quote_text(path) + options)
        return _describe(name, relation, f"{name} contains JSON, one object per row.")
    return _open_csv(path, name, packed)


def _open_csv(path: Path, name: str, packed: bool) -> Source:
    import duckdb

    options: dict[str, Any] = {"compression": "gzip"} if packed else {}
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
                raise RegimekitError(f"{name} is not text that can be read as a table.") from None
    separator, header, skipped = found["Delimiter"], found["HasHeader"], found["SkipRows"]
    options |= {"delim": separator, "header": header, "skip": skipped, "all_varchar": True}
    options |= {"buffer_size": _CSV_BUFFER}
    if found["Quote"] != "(empty)":
        options |= {"quote": found["Quote"]}
    source = _describe(name, f"read_csv({quote_text(path)}{_arguments(options)})")
    _check_cell_counts(source, path, options)
    source.notes.append(_describe_csv(source, options, packed))
    if skipped:
        source.notes.append(f"{name}: skipped {skipped} lines before the header.")
    source.separator, source.csv_options = separator, options
    source.first_line = 1 + int(header) + int(skipped)
    return source


def _check_cell_counts(source: Source, path: Path, options: dict[str, Any]) -> None:
    """Raise if a row has more or fewer cells than the header.

    duckdb reads such a file as a table with a single column whose name contains the separator.
    """
    header = source.names[0]
    separator = next((sign for sign in ",;\t|" if sign in header), "")
    if len(source.names) > 1 or not separator:
        return
    text = {"mode": "rt", "newline": "", "encoding": options.get("encoding", "utf-8-sig")}
    with (gzip.open if "compression" in options else open)(path, **text) as lines:
        rows = csv.reader(lines, delimiter=separator)
        width = len(next(rows, []))
        # The separator may be part of the name of the only column.
        if width < 2 or len(next(rows, [])) != width:
            return
        line = next((rows.line_num for row in rows if row and len(row) != width), 0)
    if line:
        raise RegimekitError(
            f"{source.name} has {width} columns in its header {header!r}, but line {line} has "
            "more or fewer cells. Correct the line; a cell that contains the separator needs "
            "quotation marks."
        )


def _describe_csv(source: Source, options: dict[str, Any], packed: bool) -> str:
    kind = "a gzipped CSV file" if packed else "a CSV file"
    by = ", separated by " + _SEPARATORS.get(options["delim"], repr(options["delim"]))
    by = " with one column" if len(source.names) == 1 else by
    encoding = ", in Latin-1" if "encoding" in options else ""
    header = "" if options["header"] else ", without a header"
    return f"{source.name} is {kind}{by}{encoding}{header}."


def _sniff(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return the CSV notation that duckdb detects."""
    with connect() as connection:
        result = connection.execute(f"FROM sniff_csv({quote_text(path)}{_arguments(options)})")
        names = [column[0] for column in result.description]
        return dict(zip(names, result.fetchone(), strict=True))


def _arguments(options: dict[str, Any]) -> str:
    """Return options as SQL arguments, each after a comma."""
    written = {
        name: str(value).lower() if isinstance(value, (bool, int)) else quote_text(value)
        for name, value in options.items()
    }
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
        query = f"SELECT value FROM parquet_kv_metadata({quote_text(path)}) WHERE key = 'pandas'"
        found = connection.execute(query).fetchone()
    if found is None:
        return {}
    try:
        columns = json.loads(found[0])["columns"]
        return {c["name"]: c["metadata"]["timezone"] for c in columns if c["metadata"]}
    except (KeyError, TypeError, ValueError):
        return {}


def _open_utf16(path: Path, name: str) -> Source:
    """Copy a file of Excel or Windows, which has two bytes per character, to UTF-8."""
    scratch = ScratchFolder()
    copy = scratch.path / "table.csv"
    try:
        with (
            path.open(encoding="utf-16", newline="") as source,
            copy.open("w", encoding="utf-8", newline="") as target,
        ):
            shutil.copyfileobj(source, target)
    except UnicodeError:
        raise RegimekitError(f"{name} starts like UTF-16 text but is not valid.") from None
    found = _open_csv(copy, name, packed=False)
    found.notes[0] = found.notes[0].rstrip(".") + ", in UTF-16."
    found.scratch = scratch
    return found


def _open_workbook(path: Path, request: TableRequest) -> Source:
    scratch = ScratchFolder()
    copy = scratch.path / "table.csv"
    sheet = write_sheet(path, request.table, copy)
    if not copy.stat().st_size:
        raise RegimekitError(f"The sheet {sheet!r} of {path.name} is empty.")
    source = _open_csv(copy, path.name, packed=False)
    source.notes = [f"{path.name} is a spreadsheet; its sheet {sheet!r} is read."]
    source.first_line, source.scratch = 0, scratch
    return source


def _open_duckdb(path: Path, request: TableRequest) -> Source:
    relation = f"({request.query})" if request.query else None
    if relation is None:
        with _duckdb_errors(path.name), connect(path) as connection:
            tables = [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
        relation = quote_name(_choose_table(path, request.table, tables))
    return _describe(path.name, relation, f"{path.name} is a duckdb database.", database=path)


def _open_sqlite(path: Path, request: TableRequest) -> Source:
    """Copy a SQLite table to a CSV file: duckdb would have to download its SQLite extension."""
    scratch = ScratchFolder()
    copy = scratch.path / "table.csv"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = [row[0] for row in listed]
            query = request.query
            if query is None:
                query = f"SELECT * FROM {quote_name(_choose_table(path, request.table, tables))}"
            rows = connection.execute(query)
            with copy.open("w", newline="") as target:
                writer = csv.writer(target)
                writer.writerow(column[0] for column in rows.description)
                writer.writerows(rows)
    except sqlite3.Error as error:
        raise RegimekitError(f"{path.name} cannot be read as a SQLite database: {error}.") from None
    source = _open_csv(copy, path.name, packed=False)
    source.notes, source.first_line = [f"{path.name} is a SQLite database."], 0
    source.scratch = scratch
    return source


def _choose_table(path: Path, name: str | None, tables: list[str]) -> str:
    if name is None and len(tables) == 1:
        return tables[0]
    if name is None:
        known = ", ".join(tables) or "none"
        raise RegimekitError(f"{path.name} is a database. Pass --table with one of: {known}.")
    if name not in tables:
        raise unknown("--table", name, tables)
    return name
