"""Outcomes on disk, so that nothing is run twice: while it runs, and from one checkout to the next.

`Cache`    a file per run in `.parts`, written all or nothing as soon as the run is done; not
           committed.
`Ledger`   the runs that the written pages rest on, to be committed beside them: for each stream
           a CSV file with a line per run (`runs/<stream>.csv`), and what the figures draw
           (`runs/<stream>.npz`).

Both go by the key of a part. A line of the ledger says on which data and by which state of the
source it was run, so that it is found again as long as both are the same, and is stale otherwise.
A line that a replay has carried over (`replay`) says by `source` which state it is confirmed for,
and by `made` which state really computed it.
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
PARTS = ".parts"  # folder of what is not committed
_IDENTITY = ("model", "settings", "seed", "rows", "degree", "data", "source")
_MADE = "made"  # a column that ledgers from before there were replays do not have


@dataclass(frozen=True, eq=False)
class Kept(Outcome):
    """An outcome in the ledger, which an older state than `source` may have made.

    It stands here and not in `outcomes`, whose meaning is part of every state.
    """

    made: str = ""  # nothing where `source` made it


def made_by(outcome: Outcome) -> str:
    """The state of the source that really computed an outcome."""
    return (outcome.made if isinstance(outcome, Kept) else "") or outcome.source


class Cache:
    """Outcomes in a folder, one file each; what is not there may be in a ledger."""

    def __init__(self, folder: Path, ledger: Ledger | None = None) -> None:
        self.folder = folder
        self.ledger = ledger
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, part: Part) -> bool:
        """Whether the outcome of a part is here."""
        kept = self.ledger is not None and self.ledger.has(part)
        return kept or self._path(part).exists()

    def get(self, part: Part) -> Outcome | None:
        """The outcome of a part if it is here; a file that is damaged goes, and counts as none."""
        path = self._path(part)
        try:
            return _outcome(path) if path.exists() else self._kept(part)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            path.unlink(missing_ok=True)
            return self._kept(part)

    def put(self, part: Part, outcome: Outcome) -> None:
        """Keep an outcome."""
        arrays: dict[str, Any] = {"scores": np.array(json.dumps(outcome.scores))}
        arrays |= outcome.columns | {"source": np.array(outcome.source)}
        write(self._path(part), _packed(arrays))

    def _kept(self, part: Part) -> Outcome | None:
        return None if self.ledger is None else self.ledger.get(part)

    def _path(self, part: Part) -> Path:
        return self.folder / f"{part.stream}-{part.model}-{part.key}.npz"


class Line(NamedTuple):
    """A run in the ledger: what was run, on which data, what it gave."""

    part: Part
    data: str
    outcome: Outcome

    @property
    def key(self) -> str:
        """The key that the part had when it was run."""
        return key_of(self.part, self.data, self.outcome.source)

    @property
    def made(self) -> str:
        """The state of the source that really computed it."""
        return made_by(self.outcome)

    def carried(self, source: str) -> Line:
        """The line as confirmed for a state; the one that made it stays beside."""
        found = self.outcome
        return self._replace(outcome=Kept(found.scores, found.columns, source, self.made))

    def stale(self) -> bool:
        """Whether source or data have changed since; data that are not here have not."""
        here = data_state(self.part)
        changed = bool(here or self.part.stream in PROBES) and here != self.data
        return changed or self.outcome.source != code_state(self.part)


class Ledger:
    """The runs that the pages rest on, one CSV file per stream, with the columns that are drawn."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: dict[str, dict[str, Line]] = {}  # by stream and key, once they were asked for

    def has(self, part: Part) -> bool:
        """Whether the outcome of a part is here."""
        return part.key in self._of(part.stream)

    def get(self, part: Part) -> Outcome | None:
        """The outcome of a part if it is here."""
        line = self._of(part.stream).get(part.key)
        return None if line is None else line.outcome

    def lines(self) -> list[Line]:
        """All that is here, stale or not."""
        streams = sorted(path.stem for path in self.folder.glob("*.csv"))
        return [line for stream in streams for line in self._of(stream).values()]

    def keep(self, outcomes: Iterable[tuple[Part, Outcome]], drawn: Iterable[str]) -> None:
        """Add outcomes; of those whose keys are in `drawn` the columns too. Stale ones go."""
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
        """Put lines in the place of those with these keys; all others stay, stale or not."""
        self._lines.pop(stream, None)  # another process may have written meanwhile
        left = {key: line for key, line in self._of(stream).items() if key not in lines}
        self._write(stream, left | {line.key: line for line in lines.values()})

    def prune(self, needed: Iterable[Part]) -> None:
        """Drop what no page rests on any more; further seeds of what one rests on stay."""
        wanted = {variant(part) for part in needed}
        for path in self.folder.glob("*.csv"):
            lines = self._of(path.stem)
            left = {key: line for key, line in lines.items() if variant(line.part) in wanted}
            if len(left) < len(lines):
                self._write(path.stem, left)

    def _merged(self, stream: str, lines: list[Line]) -> dict[str, Line]:
        """What another process may have written meanwhile, and these."""
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
        if drawn:  # before the lines, so that whoever finds a line finds what is drawn of it
            write(pictures, _packed(drawn))
        write(self.folder / f"{stream}.csv", _sheet(lines.values()).encode())
        if not drawn:
            pictures.unlink(missing_ok=True)


def write(path: Path, content: bytes) -> None:
    """Write a file all or nothing, whatever happens to the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with temporary.open("wb") as target:
        target.write(content)
        target.flush()
        os.fsync(target.fileno())
    os.replace(temporary, path)


def run_into(part: Part, folder: Path) -> tuple[Part, str]:
    """Run a part into the cache in `folder`; the part, and why it failed ("" if it did not)."""
    try:
        with warnings.catch_warnings():  # words for the owner of a stream, thousands of times
            warnings.simplefilter("ignore", RegimekitWarning)
            Cache(folder).put(part, run_part(part))
    except (RegimekitError, ArithmeticError, np.linalg.LinAlgError) as error:
        return part, f"{type(error).__name__}: {error}"
    return part, ""


def side_by_side(jobs: int, work: Callable[..., Any], asked: list[tuple[Any, ...]]) -> Any:
    """What `work` gives for each of the arguments, as it comes, from so many processes."""
    try:
        import joblib
    except ImportError:
        raise RegimekitError("jobs above 1 needs joblib: pip install 'regimekit[bench]'.") from None
    # One thread of linear algebra per process: more would fight over the same cores.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        run = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        yield from run(joblib.delayed(work)(*one) for one in asked)


def _outcome(path: Path) -> Outcome:
    """What a file of the cache holds."""
    with path.open("rb") as source, np.load(source, allow_pickle=False) as stored:
        columns = {name: stored[name] for name in stored.files if name not in ("scores", "source")}
        return Outcome(json.loads(str(stored["scores"])), columns, str(stored["source"]))


def _packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A compressed archive without times, so that the same arrays give the same bytes."""
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
    """Lines as CSV, the runs of a variant together; a score that is the same over all rows once."""
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
    """What a run is of: the same for runs that differ in the seed alone."""
    chosen = json.dumps(part.settings, sort_keys=True)
    return part.stream, part.model, chosen, part.rows or 0, part.degree


def _order(part: Part) -> tuple[Any, ...]:
    """What a run is of, and its seed."""
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
    """Whether scores over all rows are those of the rows that count."""
    return all(
        repr(value) == repr(scores.get(name.removesuffix(ALL_ROWS)))
        for name, value in scores.items()
        if name.endswith(ALL_ROWS)
    )


def _read(folder: Path, stream: str) -> list[Line]:
    """The lines of a stream with their columns; none where there is no file."""
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
    """Columns by key and name."""
    found: dict[str, dict[str, Any]] = {}
    if path.exists():
        with np.load(path, allow_pickle=False) as stored:
            for name in stored.files:
                key, _, column = name.partition(".")
                found.setdefault(key, {})[column] = stored[name]
    return found
