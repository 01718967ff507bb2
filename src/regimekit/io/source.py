"""Where the rows come from: a file, a pipe, a query, a table of a database; always in chunks.

duckdb reads them. CSV cells stay text here and are read by `cells`, so that a bad one can be named
by row, column and value; other formats bring typed cells. Nothing is ever held whole.
"""

from __future__ import annotations

import csv
import gzip
import io
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

Row = tuple[Any, ...]
STDIN = "-"
CHUNK = 4096
SAMPLE = 1000  # first rows from which columns, notation and frequency are found
_QUERY = ("select ", "from ", "with ", "select\n", "with\n")
_MEMORY = "1GB"  # of duckdb; a sort that needs more uses the disk
_BUFFER = 8_000_000  # bytes of a CSV file that are read together
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}


class Request(NamedTuple):
    """What is to be read.

    Attributes:
        file: a path, "-" for standard input, or a SQL query.
        table: a table of the database `file`.
        query: SQL over the database `file`.
    """

    file: str
    table: str | None = None
    query: str | None = None


class Scratch:
    """A temporary folder that goes when nobody holds it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="regimekit-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass
class Source:
    """Rows of a table, read again from the start by every call of `rows`."""

    name: str
    relation: str
    names: tuple[str, ...]
    said: list[str] = field(default_factory=list)  # how the file is written, a sentence each
    separator: str = ""
    first_line: int = 0  # line of the file that holds row 1; 0 where rows are not lines
    database: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of the CSV, for `tail`
    spooled: Scratch | None = None  # where the rows lie meanwhile, if not in a file of their own

    def rows(
        self, columns: Sequence[str] | None = None, order: str = "", chunk: int = CHUNK
    ) -> Iterator[list[Row]]:
        """The rows in chunks, of all or some columns; `order` is a SQL expression to sort by."""
        import duckdb

        chosen = ", ".join(quoted(name) for name in (columns or self.names))
        tail = f" ORDER BY {order}" if order else ""
        try:
            with connect(self.database) as connection:
                result = connection.execute(f"SELECT {chosen} FROM {self.relation}{tail}")
                while rows := result.fetchmany(chunk):
                    yield rows
        except duckdb.Error as error:
            raise _unreadable(self.name, error) from None

    def sample(self) -> list[Row]:
        """The first rows; at least one, or an error."""
        first = next(self.rows(chunk=SAMPLE), [])
        if not first:
            raise RegimekitError(f"{self.name} has a header but no rows.")
        return first


def open_source(request: Request) -> Source:
    """Find out what `request` names and how it is written."""
    text = request.file
    if text.lower().startswith(_QUERY):
        return _described("The query", f"({text})")
    if text == STDIN:
        return _spool(sys.stdin.buffer, "standard input")
    return _open_file(Path(text), request)


def quoted(name: str) -> str:
    """A column's name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _open_file(path: Path, request: Request) -> Source:
    if not path.exists():
        raise RegimekitError(f"{path} does not exist.")
    if path.is_dir():
        raise RegimekitError(f"{path} is a folder; name one file in it.")
    try:
        with path.open("rb") as content:
            head = content.read(64)
    except OSError as error:
        raise RegimekitError(f"{path} cannot be read: {error.strerror}.") from None
    if not head.strip():
        raise RegimekitError(f"{path} is empty.")
    if head.startswith(b"SQLite format 3"):
        return _open_sqlite(path, request)
    if head[8:12] == b"DUCK":
        return _open_duckdb(path, request)
    if request.table or request.query:
        raise RegimekitError(
            f"{path.name} is no database, so --table and --query cannot be used with it. SQL over "
            f"a file is given in its place: \"SELECT .. FROM '{path}'\"."
        )
    return _open_flat(path, head, path.name)


def _open_flat(path: Path, head: bytes, name: str) -> Source:
    """A file without a database around it."""
    if head.startswith(b"PAR1"):
        return _described(name, f"read_parquet({_text(path)})", f"{name} is a Parquet file.")
    if head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise RegimekitError(
            f"{name} is a spreadsheet or a zip archive; save its sheet as CSV and give that file."
        )
    packed = head.startswith(b"\x1f\x8b")
    if head.lstrip()[:1] in (b"{", b"[") or name.endswith((".jsonl.gz", ".ndjson.gz", ".json.gz")):
        relation = f"read_json({_text(path)}{', compression=$$gzip$$' if packed else ''})"
        return _described(name, relation, f"{name} holds JSON, one object per row.")
    return _open_csv(path, name, packed)


def _open_csv(path: Path, name: str, packed: bool) -> Source:
    import duckdb

    options: dict[str, Any] = {"compression": "gzip"} if packed else {}
    try:
        found = _sniff(path, options)
    except duckdb.Error as error:
        if "utf-8" not in str(error).lower():
            raise _unreadable(name, error) from None
        options["encoding"] = "latin-1"
        try:
            found = _sniff(path, options)
        except duckdb.Error:
            raise RegimekitError(f"{name} is not text that can be read as a table.") from None
    separator, header, skipped = found["Delimiter"], found["HasHeader"], found["SkipRows"]
    options |= {"delim": separator, "header": header, "skip": skipped, "all_varchar": True}
    options |= {"buffer_size": _BUFFER}
    if found["Quote"] != "(empty)":
        options |= {"quote": found["Quote"]}
    relation = f"read_csv({_text(path)}{_arguments(options)})"
    source = _described(name, relation)
    _refuse_ragged(source, path, options)
    source.said.append(_csv_words(source, options, packed))
    if skipped:
        source.said.append(f"The first {skipped} lines of {name} are no rows and were left out.")
    source.separator, source.options = separator, options
    source.first_line = 1 + int(header) + int(skipped)
    return source


def _refuse_ragged(source: Source, path: Path, options: dict[str, Any]) -> None:
    """A table that begins with several columns and has a row with more or fewer of them."""
    header = source.names[0]
    between = next((sign for sign in ",;\t|" if sign in header), "")
    if len(source.names) > 1 or not between:
        return
    text = {"mode": "rt", "newline": "", "encoding": options.get("encoding", "utf-8-sig")}
    with (gzip.open if "compression" in options else open)(path, **text) as lines:
        rows = csv.reader(lines, delimiter=between)
        width = len(next(rows, []))
        if width < 2 or len(next(rows, [])) != width:
            return  # the separator is part of the only column's name
        line = next((rows.line_num for row in rows if row and len(row) != width), 0)
    if line:
        raise RegimekitError(
            f"{source.name} has {width} columns by its header, {header!r}, but line {line} has "
            "more or fewer cells. Mend it; a cell that holds the separator needs quotation marks."
        )


def _csv_words(source: Source, options: dict[str, Any], packed: bool) -> str:
    kind = "a gzipped CSV file" if packed else "a CSV file"
    by = ", separated by " + _SEPARATORS.get(options["delim"], repr(options["delim"]))
    by = " of one column" if len(source.names) == 1 else by
    encoding = ", in Latin-1" if "encoding" in options else ""
    header = "" if options["header"] else ", without a header"
    return f"{source.name} is {kind}{by}{encoding}{header}."


def _sniff(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    with connect() as connection:
        result = connection.execute(f"FROM sniff_csv({_text(path)}{_arguments(options)})")
        names = [column[0] for column in result.description]
        return dict(zip(names, result.fetchone(), strict=True))


def _described(name: str, relation: str, *said: str, database: Path | None = None) -> Source:
    """A source whose columns duckdb tells."""
    import duckdb

    try:
        with connect(database) as connection:
            columns = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    except duckdb.Error as error:
        raise _unreadable(name, error) from None
    return Source(name, relation, tuple(c[0] for c in columns), list(said), database=database)


def _open_duckdb(path: Path, request: Request) -> Source:
    relation = f"({request.query})" if request.query else None
    if relation is None:
        with connect(path) as connection:
            tables = [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
        relation = quoted(_table(path, request.table, tables))
    said = f"{path.name} is a duckdb database."
    return _described(path.name, relation, said, database=path)


def _open_sqlite(path: Path, request: Request) -> Source:
    """duckdb would have to download its SQLite reader, so the rows pass through a CSV file."""
    folder = Scratch()
    copy = folder.path / "table.csv"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = [row[0] for row in listed]
            query = request.query or f"SELECT * FROM {quoted(_table(path, request.table, tables))}"
            rows = connection.execute(query)
            with copy.open("w", newline="") as target:
                writer = csv.writer(target)
                writer.writerow(column[0] for column in rows.description)
                writer.writerows(rows)
    except sqlite3.Error as error:
        raise RegimekitError(f"{path.name} cannot be read as a SQLite database: {error}.") from None
    source = _open_csv(copy, path.name, packed=False)
    source.said, source.first_line = [f"{path.name} is a SQLite database."], 0
    source.spooled = folder
    return source


def _table(path: Path, asked: str | None, tables: list[str]) -> str:
    if asked is None and len(tables) == 1:
        return tables[0]
    if asked in tables:
        return str(asked)
    if asked is not None:
        raise unknown("--table", asked, tables)
    known = ", ".join(tables) or "none"
    raise RegimekitError(
        f"{path.name} is a database: say --table with one of its tables ({known})."
    )


def open_text(content: bytes, name: str) -> Source:
    """A source over the first lines of a stream."""
    return _spool(io.BytesIO(content), name)


def _spool(stream: BinaryIO, name: str) -> Source:
    """A stream, put into a temporary file so that it can be looked at first."""
    folder = Scratch()
    copy = folder.path / "stream"
    with copy.open("wb") as target:
        shutil.copyfileobj(stream, target)
    with copy.open("rb") as content:
        head = content.read(64)
    if not head.strip():
        raise RegimekitError(f"{name.capitalize()} is empty.")
    source = _open_flat(copy, head, name)
    source.spooled = folder
    return source


def connect(database: Path | None = None) -> Any:
    """A duckdb connection that is small and silent (its progress bar would go to the output)."""
    import duckdb

    connection = duckdb.connect(
        ":memory:" if database is None else str(database),
        read_only=database is not None,
        config={"threads": 1, "memory_limit": _MEMORY},
    )
    connection.execute("SET enable_progress_bar = false")
    return connection


def _text(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _arguments(options: dict[str, Any]) -> str:
    """Options as SQL writes them, each after a comma."""
    written = {
        name: str(value).lower() if isinstance(value, (bool, int)) else _text(value)
        for name, value in options.items()
    }
    return "".join(f", {name}={value}" for name, value in written.items())


def _unreadable(name: str, error: Exception) -> RegimekitError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = " ".join(line for line in lines[:3] if not line.startswith("Possible"))
    return RegimekitError(f"{name} cannot be read as a table: {reason[:300]}")
