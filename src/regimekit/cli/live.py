"""`regimekit run --follow`: a stream that still grows, one JSON line per observation.

A snapshot holds the model, where the input was read to and how long the output was: one file,
written all or nothing. Taken up again, the output is cut back to that length and the input goes on
from that byte, so that every row is there exactly once whenever the process was killed.
"""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from regimekit.cli.console import Voice, as_json
from regimekit.cli.interruption import Interruption
from regimekit.cli.job import Job
from regimekit.cli.record import MODEL
from regimekit.core.exceptions import RegimekitError, whole
from regimekit.core.model import Model
from regimekit.core.registry import REGISTRY, from_bytes, make
from regimekit.io import Clock, Observation, Reading, find_layout
from regimekit.io.source import STDIN
from regimekit.io.tail import Format, Tail, find_format, first_lines
from regimekit.serialization.snapshot import write_file

LINES, CHECKPOINT = "follow.jsonl", "follow.checkpoint"


@dataclass
class Live:
    """A followed stream between two rows.

    Attributes:
        read: byte of the input up to which it was read.
        lines: lines of the input up to there.
        done: observations learnt.
    """

    model: Model
    reading: Reading
    format: Format
    level: float
    read: int = 0
    lines: int = 0
    done: int = 0

    def take(self, line: bytes, end: int) -> list[str]:
        """The output of one line of input."""
        self.lines += 1
        row = None
        if self.lines > self.format.header:
            row = self.format.row(line, self.reading.layout.used)
        said = [] if row is None else [self._learn(o) for o in self.reading.take(row)]
        self.read = end
        return said

    def _learn(self, observation: Observation) -> str:
        names = self.reading.layout.columns
        x = dict(zip(names, observation.x, strict=True)) if names else None
        forecast = self.model.predict(x)
        step = self.model.update(observation.y, x)
        lower, upper = forecast.interval(self.level)
        self.done += 1
        return as_json(
            {
                "time": self.done - 1 if observation.time is None else observation.time,
                "y": observation.y,
                "mean": forecast.mean,
                "median": forecast.quantile(0.5),
                "lower": lower,
                "upper": upper,
                "sd": forecast.sd,
                "regime": step.regime,
                "regime_probability": step.regime_probability,
                "weight": step.weight,
                "outlier": bool(step.outlier),
                "change_probability": step.change_probability,
                "events": [event._asdict() for event in step.events],
            }
        )

    def save(self, path: Path, written: int) -> None:
        """Write a snapshot; `written` is the length of the output."""
        content = io.BytesIO()
        state = {
            "reading": self.reading.state(),
            "format": self.format._asdict(),
            "level": self.level,
            "read": self.read,
            "lines": self.lines,
            "done": self.done,
            "written": written,
        }
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("follow.json", as_json(state))
            archive.writestr(MODEL, self.model.to_bytes())
        write_file(path, content.getvalue())


def follow_stream(
    job: Job, out: Path | None, every: int, resume: bool, idle: float | None, voice: Voice
) -> None:
    """Follow a file or standard input until it ends, is idle for too long, or Ctrl-C."""
    whole("--snapshot-every", every)
    _check(job, out, resume)
    with Interruption() as stop:

        def over(waited: float) -> bool:
            return stop.heard or (idle is not None and waited >= idle)

        live, written, lines = _begin(job, out, resume, over, voice)
        target, snapshot = _open_output(out, written)
        if snapshot is not None:
            live.save(snapshot, written)
        try:
            _follow(live, lines, target, snapshot, every, stop)
        finally:
            if snapshot is not None:
                _settle(live, target, snapshot)
                target.close()
    if out is not None:
        live.model.save(out / MODEL)
        voice.warn(f"{live.done} observations in {out / LINES}; --resume goes on from here.")


def _follow(
    live: Live,
    lines: Iterator[tuple[bytes, int]],
    target: BinaryIO,
    snapshot: Path | None,
    every: int,
    stop: Interruption,
) -> None:
    kept = live.done
    for line, end in lines:
        for said in live.take(line, end):
            target.write(said.encode() + b"\n")
        target.flush()
        if snapshot is not None and live.done - kept >= every:
            _settle(live, target, snapshot)
            kept = live.done
        if stop.heard:
            return


def _settle(live: Live, target: BinaryIO, snapshot: Path) -> None:
    """Snapshot the stream, after its output has reached the disk."""
    target.flush()
    os.fsync(target.fileno())
    live.save(snapshot, target.tell())


def _check(job: Job, out: Path | None, resume: bool) -> None:
    job.check()
    name = job.name_of_model()
    if not REGISTRY[name].online:
        raise RegimekitError(f"--model {name} reads the whole stream first and cannot follow one.")
    if job.wishes.by or job.horizon or job.sort or job.request.table or job.request.query:
        raise RegimekitError(
            "--follow reads one plain stream: no --by, --horizon, --sort, --table."
        )
    if resume and out is None:
        raise RegimekitError("--resume needs --out: the folder of the stream that was stopped.")
    if out is not None and not resume and (out / CHECKPOINT).exists():
        raise RegimekitError(
            f"--out {out} holds a followed stream; go on with --resume, or choose another folder."
        )


def _begin(
    job: Job, out: Path | None, resume: bool, over: Any, voice: Voice
) -> tuple[Live, int, Iterator[tuple[bytes, int]]]:
    """The stream as it was stopped or from its start, and the lines that come next."""
    if resume and out is not None and (out / CHECKPOINT).exists():
        live, written = _taken_up(out / CHECKPOINT)
        return live, written, _next_lines(job.request.file, live, over)
    tail = Tail(job.request.file)
    first = first_lines(tail, over)
    name = "standard input" if job.request.file == STDIN else job.request.file
    if not first:
        raise RegimekitError(f"{name} brought no rows.")
    form, source = find_format([line for line, _ in first], name)
    layout = find_layout(source.names, source.sample(), job.wishes, source.separator)
    for line in (*source.said, f"target: {layout.target}; time: {layout.time or 'none'}"):
        voice.warn(line)
    model = make(job.name_of_model(), **job.model_settings())
    reading = Reading(layout, Clock(first=[] if layout.time else None), source.first_line)
    return Live(model, reading, form, job.level), 0, chain(first, tail.lines(over))


def _taken_up(path: Path) -> tuple[Live, int]:
    """What `Live.save` wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            state = json.loads(archive.read("follow.json"))
            model = from_bytes(archive.read(MODEL))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise RegimekitError(f"{path} is not a snapshot of a followed stream: {error}.") from None
    names = tuple(state["format"]["names"])
    form = Format(**{**state["format"], "names": names})
    reading = Reading.from_state(state["reading"])
    counts = (state["read"], state["lines"], state["done"])
    return Live(model, reading, form, state["level"], *counts), state["written"]


def _next_lines(file: str, live: Live, over: Any) -> Iterator[tuple[bytes, int]]:
    """Lines after those that were read; a pipe is sent again from its start."""
    if file != STDIN:
        yield from Tail(file, live.read).lines(over)
        return
    for number, line in enumerate(Tail(file).lines(over), start=1):
        if number > live.lines:
            yield line


def _open_output(out: Path | None, written: int) -> tuple[BinaryIO, Path | None]:
    """Where lines go, cut back to what the snapshot knows of; and where snapshots go."""
    if out is None:
        return sys.stdout.buffer, None
    try:
        out.mkdir(parents=True, exist_ok=True)
        target = (out / LINES).open("ab")
        target.truncate(written)
        target.seek(written)
    except OSError as error:
        raise RegimekitError(f"--out {out} cannot be written to: {error.strerror}.") from None
    return target, out / CHECKPOINT
