"""Outcomes on disk, so that no run is repeated: a cache, and a ledger that is committed.

    Cache    a file per run in `.parts`, written atomically when the run is done; not committed
    Ledger   the runs of the written pages, committed beside them: for each stream a CSV file with a
             line per run (`runs/<stream>.csv`), and the columns for figures (`runs/<stream>.npz`)

Both are indexed by the key of a part. A line of the ledger records the data and the state of the
source of its run. As long as both are the same it is found again, otherwise it is stale. In a line
that a replay has carried over (`replay`), `source` is the state that it is confirmed for, and
`made` the state that computed it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paper.outcomes import ALL_ROWS, Outcome, run_part
from paper.parts import Part, code_state, data_state, key_of
from paper.probes import PROBES
from regimekit.core.exceptions import RegimekitError
from regimekit.core.warnings import RegimekitWarning

RUNS = "runs"  # folder of the ledger, inside the folder of results
PARTS = ".parts"  # folder of the cache, which is not committed
_IDENTITY = ("model", "settings", "seed", "rows", "degree", "data", "source")
_MADE = "made"  # a column that ledgers without replays do not have


@dataclass(frozen=True, eq=False)
class Kept(Outcome):
    """An outcome in the ledger, which an older state than `source` may have made.

    It is not defined in `outcomes`, whose source is part of every state.
    """

    made: str = ""  # "" if `source` made it


def made_by(outcome: Outcome) -> str:
    """Return the state of the source that computed an outcome."""
    return (outcome.made if isinstance(outcome, Kept) else "") or outcome.source


class Cache:
    """Outcomes in a folder, one file each; missing ones may be in a ledger."""

    def __init__(self, folder: Path, ledger: Ledger | None = None) -> None:
        self.folder = folder
        self.ledger = ledger
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, part: Part) -> bool:
        """Return whether the outcome of a part is stored."""
        kept = self.ledger is not None and self.ledger.has(part)
        return kept or self._path(part).exists()

    def get(self, part: Part) -> Outcome | None:
        """Return the outcome of a part if it is stored; a damaged file is deleted."""
        path = self._path(part)
        try:
            return _outcome(path) if path.exists() else self._kept(part)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            path.unlink(missing_ok=True)
            return self._kept(part)

    def put(self, part: Part, outcome: Outcome) -> None:
        """Store an outcome."""
        arrays: dict[str, Any] = {"scores": np.array(json.dumps(outcome.scores))}
        arrays |= outcome.columns | {"source": np.array(outcome.source)}
        write(self._path(part), _packed(arrays))

    def _kept(self, part: Part) -> Outcome | None:
        return None if self.ledger is None else self.ledger.get(part)

    def _path(self, part: Part) -> Path:
        return self.folder / f"{part.stream}-{part.model}-{part.key}.npz"


class Line(NamedTuple):
    """A run in the ledger: part, data and outcome."""

    part: Part
    data: str
    outcome: Outcome

    @property
    def key(self) -> str:
        """The key of the part when it was run."""
        return key_of(self.part, self.data, self.outcome.source)

    @property
    def made(self) -> str:
        """The state of the source that computed it."""
        return made_by(self.outcome)

    def carried(self, source: str) -> Line:
        """Return the line as confirmed for a state; the state that made it is kept."""
        found = self.outcome
        return self._replace(outcome=Kept(found.scores, found.columns, source, self.made))

    def stale(self) -> bool:
        """Whether source or data have changed since; data that are not available have not."""
        here = data_state(self.part)
        changed = bool(here or self.part.stream in PROBES) and here != self.data
        return changed or self.outcome.source != code_state(self.part)


class Ledger:
    """The runs of the pages, one CSV file per stream, with the columns for figures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: dict[str, dict[str, Line]] = {}  # by stream and key, after the first request

    def has(self, part: Part) -> bool:
        """Return whether the outcome of a part is stored."""
        return part.key in self._of(part.stream)

    def get(self, part: Part) -> Outcome | None:
        """Return the outcome of a part if it is stored."""
        line = self._of(part.stream).get(part.key)
        return None if line is None else line.outcome

    def lines(self) -> list[Line]:
        """Return all lines, stale or not."""
        streams = sorted(path.stem for path in self.folder.glob("*.csv"))
        return [line for stream in streams for line in self._of(stream).values()]

    def keep(self, outcomes: Iterable[tuple[Part, Outcome]], drawn: Iterable[str]) -> None:
        """Add outcomes, and remove stale ones.

        Args:
            outcomes: parts with their outcomes.
            drawn: keys of those whose columns are stored too.
        """
        shown = set(drawn)
        added: dict[str, list[Line]] = {}
        for part, outcome in outcomes:
            columns = outcome.columns if part.key in shown else {}
            kept = Kept(outcome.scores, columns, outcome.source, made_by(outcome))
            line = Line(part, data_state(part), kept)
            added.setdefault(part.stream, []).append(line)
        for stream, lines in added.items():
            self._write(stream, self._merged(stream, lines))

    def exchange(self, stream: str, lines: Mapping[str, Line]) -> None:
        """Replace lines by key; all others are kept, stale or not.

        Args:
            stream: name of the stream.
            lines: new lines by key.
        """
        self._lines.pop(stream, None)  # another process may have changed the file
        left = {key: line for key, line in self._of(stream).items() if key not in lines}
        self._write(stream, left | {line.key: line for line in lines.values()})

    def prune(self, needed: Iterable[Part]) -> None:
        """Remove lines that no page needs; further seeds of needed ones are kept.

        Args:
            needed: parts that pages need.
        """
        wanted = {variant(part) for part in needed}
        for path in self.folder.glob("*.csv"):
            lines = self._of(path.stem)
            left = {key: line for key, line in lines.items() if variant(line.part) in wanted}
            if len(left) < len(lines):
                self._write(path.stem, left)

    def _merged(self, stream: str, lines: list[Line]) -> dict[str, Line]:
        """Return these lines and those that another process has written in the meantime."""
        self._lines.pop(stream, None)
        found = {key: line for key, line in self._of(stream).items() if not line.stale()}
        for line in lines:
            before = found.get(line.key)
            if before is None or line.outcome.columns or not before.outcome.columns:
                found[line.key] = line
        return found

    def _of(self, stream: str) -> dict[str, Line]:
        if stream not in self._lines:
            self._lines[stream] = {line.key: line for line in _read(self.folder, stream)}
        return self._lines[stream]

    def _write(self, stream: str, lines: dict[str, Line]) -> None:
        self._lines[stream] = lines
        self.folder.mkdir(parents=True, exist_ok=True)
        drawn = {
            f"{key}.{name}": column
            for key, line in sorted(lines.items())
            for name, column in line.outcome.columns.items()
        }
        pictures = self.folder / f"{stream}.npz"
        if drawn:  # before the lines, so that every line has its columns
            write(pictures, _packed(drawn))
        write(self.folder / f"{stream}.csv", _sheet(lines.values()).encode())
        if not drawn:
            pictures.unlink(missing_ok=True)


def write(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with temporary.open("wb") as target:
        target.write(content)
        target.flush()
        os.fsync(target.fileno())
    os.replace(temporary, path)


def run_into(part: Part, folder: Path) -> tuple[Part, str]:
    """Run a part into a cache.

    Returns:
        The part, and why it failed ("" if it did not).
    """
    try:
        with warnings.catch_warnings():  # warnings for users, repeated thousands of times
            warnings.simplefilter("ignore", RegimekitWarning)
            Cache(folder).put(part, run_part(part))
    except (RegimekitError, ArithmeticError, np.linalg.LinAlgError) as error:
        return part, f"{type(error).__name__}: {error}"
    return part, ""


def side_by_side(jobs: int, work: Callable[..., Any], asked: list[tuple[Any, ...]]) -> Any:
    """Yield the results of a function for each tuple of arguments, in order of completion."""
    try:
        import joblib
    except ImportError:
        raise RegimekitError("jobs above 1 needs joblib: pip install 'regimekit[bench]'.") from None
    # One thread of linear algebra per process, because the processes use all cores.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        run = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        yield from run(joblib.delayed(work)(*one) for one in asked)


def _outcome(path: Path) -> Outcome:
    """Return the outcome in a file of the cache."""
    with path.open("rb") as source, np.load(source, allow_pickle=False) as stored:
        columns = {name: stored[name] for name in stored.files if name not in ("scores", "source")}
        return Outcome(json.loads(str(stored["scores"])), columns, str(stored["source"]))


def _packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a compressed archive without times, so that equal arrays give equal bytes."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asarray(array), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content.getvalue())
    return memory.getvalue()


def _sheet(lines: Iterable[Line]) -> str:
    """Return lines as CSV, sorted by variant; equal scores over all rows are written once."""
    ordered = sorted(lines, key=lambda line: _order(line.part))
    names = sorted({name for line in ordered for name in line.outcome.scores})
    if all(_all_seen(line.outcome.scores) for line in ordered):
        names = [name for name in names if not name.endswith(ALL_ROWS)]
    text = io.StringIO()
    sheet = csv.writer(text, lineterminator="\n")
    sheet.writerow([*_IDENTITY, _MADE, *names])
    for line in ordered:
        scores = line.outcome.scores
        values = [_digits(scores[name]) if name in scores else "" for name in names]
        sheet.writerow([*_identity(line), *values])
    return text.getvalue()


def variant(part: Part) -> tuple[Any, ...]:
    """Return the fields of a part except its seed."""
    chosen = json.dumps(part.settings, sort_keys=True)
    return part.stream, part.model, chosen, part.rows or 0, part.degree


def _order(part: Part) -> tuple[Any, ...]:
    """Return the fields of a part with its seed last."""
    return *variant(part), part.seed


def _identity(line: Line) -> list[Any]:
    part = line.part
    settings = json.dumps(part.settings, sort_keys=True)
    rows = "" if part.rows is None else part.rows
    return [
        part.model,
        settings,
        part.seed,
        rows,
        part.degree,
        line.data,
        line.outcome.source,
        "" if line.made == line.outcome.source else line.made,
    ]


def _digits(value: float) -> str:
    return repr(value).removesuffix(".0")


def _all_seen(scores: Mapping[str, float]) -> bool:
    """Return whether scores over all rows are those of the scored rows."""
    return all(
        repr(value) == repr(scores.get(name.removesuffix(ALL_ROWS)))
        for name, value in scores.items()
        if name.endswith(ALL_ROWS)
    )


def _read(folder: Path, stream: str) -> list[Line]:
    """Return the lines of a stream with their columns; [] without a file."""
    path = folder / f"{stream}.csv"
    if not path.exists():
        return []
    drawn = _columns(folder / f"{stream}.npz")
    with path.open(newline="") as source:
        rows = list(csv.DictReader(source))
    return [_line(stream, row, drawn) for row in rows]


def _line(stream: str, row: dict[str, str], drawn: Mapping[str, dict[str, Any]]) -> Line:
    identity = {name: row.pop(name) for name in _IDENTITY}
    made = row.pop(_MADE, "")
    rows = int(identity["rows"]) if identity["rows"] else None
    part = Part(
        stream,
        identity["model"],
        json.loads(identity["settings"]),
        int(identity["seed"]),
        rows,
        int(identity["degree"]),
    )
    scores = {name: float(value) for name, value in row.items() if value}
    if stream not in PROBES and not any(name.endswith(ALL_ROWS) for name in row):
        scores |= {name + ALL_ROWS: value for name, value in scores.items()}
    line = Line(part, identity["data"], Outcome(scores, {}, identity["source"]))
    return line._replace(outcome=Kept(scores, drawn.get(line.key, {}), identity["source"], made))


def _columns(path: Path) -> dict[str, dict[str, Any]]:
    """Return columns by key and name."""
    found: dict[str, dict[str, Any]] = {}
    if path.exists():
        with np.load(path, allow_pickle=False) as stored:
            for name in stored.files:
                key, _, column = name.partition(".")
                found.setdefault(key, {})[column] = stored[name]
    return found
