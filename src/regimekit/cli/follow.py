"""Follow a table that is still growing: `regimekit run --follow`, one JSON line per observation.

A checkpoint contains the model, the position in the input and the length of the output. It is
written atomically. After a restart the output is truncated to that length and the input is read
from that position, so every row is processed exactly once, even if the process was killed.
"""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from regimekit.cli.console import Console, Interrupt, to_json
from regimekit.cli.output import MODEL, check_not_input
from regimekit.cli.pipeline import PipelineOptions
from regimekit.core.exceptions import RegimekitError, whole
from regimekit.core.limits import MAX_SNAPSHOT_BYTES
from regimekit.core.model import Model
from regimekit.core.registry import REGISTRY, from_bytes, make
from regimekit.io import Observation, ObservationReader, TimeColumn, detect_layout
from regimekit.io.reader import STDIN
from regimekit.io.reshaping import check_single_series, date_columns, join_date_columns
from regimekit.io.tail import LineFormat, Tail, detect_line_format, first_lines
from regimekit.serialization.snapshot import write_file

_MAX_STATE_BYTES = 2**24  # of the JSON part of a checkpoint
LINES, CHECKPOINT = "follow.jsonl", "follow.checkpoint"
_MIN_SAMPLE = 10  # rows that distinguish several series from repeated deliveries
Lines = Iterator[tuple[bytes, int]]


@dataclass
class FollowedStream:
    """Stream between two rows.

    Attributes:
        model: the model.
        reader: converts rows into observations.
        line_format: notation of the lines.
        level: probability of the intervals.
        position: byte of the input after the last line.
        lines: lines read.
        observations: observations processed.
    """

    model: Model
    reader: ObservationReader
    line_format: LineFormat
    level: float
    position: int = 0
    lines: int = 0
    observations: int = 0

    def process(self, line: bytes, end: int) -> bytes:
        """Process one line of input.

        Args:
            line: the line.
            end: byte of the input after the line.

        Returns:
            The lines of output.
        """
        self.lines += 1
        row = None
        if self.lines > self.line_format.header:
            row = self.line_format.row(line, self.reader.layout.used)
        observations = [] if row is None else self.reader.read(row)
        self.position = end
        return b"".join(self._update(one).encode() + b"\n" for one in observations)

    def _update(self, observation: Observation) -> str:
        names = self.reader.layout.covariates
        x = dict(zip(names, observation.x, strict=True)) if names else None
        forecast = self.model.predict(x)
        step = self.model.update(observation.y, x)
        lower, upper = forecast.interval(self.level)
        self.observations += 1
        return to_json(
            {
                "time": self.observations - 1 if observation.time is None else observation.time,
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

    def save(self, path: Path, output_bytes: int) -> None:
        """Write a checkpoint; `output_bytes` is the length of the output."""
        content = io.BytesIO()
        state = {
            "reader": self.reader.to_json(),
            "line_format": self.line_format._asdict(),
            "level": self.level,
            "position": self.position,
            "lines": self.lines,
            "observations": self.observations,
            "output_bytes": output_bytes,
        }
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("follow.json", to_json(state))
            archive.writestr(MODEL, self.model.to_bytes())
        write_file(path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> tuple[FollowedStream, int]:
        """Read a checkpoint, which may come from anywhere.

        Returns:
            The stream and the length of the output.

        Raises:
            RegimekitError: if it is not a checkpoint.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                state = json.loads(_part(archive, "follow.json", _MAX_STATE_BYTES))
                model = from_bytes(_part(archive, MODEL, MAX_SNAPSHOT_BYTES))
            return cls._restored(state, model), whole("output_bytes", state["output_bytes"], 0)
        except Exception as error:  # zipfile and json raise many kinds
            reason = str(error).rstrip(".")
            raise RegimekitError(f"{path} is not a checkpoint of --follow: {reason}.") from None

    @classmethod
    def _restored(cls, state: dict[str, Any], model: Model) -> FollowedStream:
        """Return the stream of a checkpoint; raise any error if the state is no such stream."""
        own = state["line_format"]
        line_format = LineFormat(**{**own, "names": tuple(own["names"])})
        whole("header", own["header"], 0)
        for name in ("first_line", "rows", "carried"):
            whole(name, state["reader"][name], 0)
        reader = ObservationReader.from_json(state["reader"])
        missing = set(reader.layout.used).difference(line_format.names)
        if missing:
            raise ValueError(f"the columns {sorted(missing)} are not in the table")
        if not 0.0 < state["level"] < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {state['level']}")
        counts = (whole(name, state[name], 0) for name in ("position", "lines", "observations"))
        return cls(model, reader, line_format, state["level"], *counts)


def _part(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return a file of an archive, after its size is checked."""
    size = archive.getinfo(name).file_size
    if size > most:
        raise ValueError(f"{name} has {size} bytes, over {most}")
    return archive.read(name)


def follow_stream(
    options: PipelineOptions,
    out: Path | None,
    checkpoint_every: int,
    resume: bool,
    idle: float | None,
    console: Console,
) -> None:
    """Follow a file or standard input until it ends, is idle for too long, or Ctrl-C."""
    whole("--snapshot-every", checkpoint_every)
    _check(options, out, resume)
    with Interrupt() as interrupt:

        def stop(waited: float) -> bool:
            return interrupt.requested or (idle is not None and waited >= idle)

        stream, output_bytes, lines = _start(options, out, resume, stop, console)
        target = _open_output(out, output_bytes)
        saved_at = stream.observations

        def save() -> None:
            # The output must be on disk before the checkpoint that counts its bytes.
            target.flush()
            if out is not None:
                os.fsync(target.fileno())
                stream.save(out / CHECKPOINT, target.tell())

        save()
        try:
            for line, end in lines:
                target.write(stream.process(line, end))
                target.flush()
                if stream.observations - saved_at >= checkpoint_every:
                    save()
                    saved_at = stream.observations
                if interrupt.requested:
                    break
        finally:
            save()
            if out is not None:
                target.close()
    if out is not None:
        clock = stream.reader.time_column
        stream.model.set_calendar(clock.last, clock.frequency)
        stream.model.save(out / MODEL)
        console.warn(
            f"{stream.observations} observations in {out / LINES}; continue with --resume."
        )


def _check(options: PipelineOptions, out: Path | None, resume: bool) -> None:
    options.check()
    name, request = options.model_name, options.request
    if not REGISTRY[name].online:
        raise RegimekitError(f"--model {name} needs the whole stream, so it cannot follow one.")
    if options.choice.by or options.horizon or options.sort or request.table or request.sql:
        raise RegimekitError(
            "--follow cannot be combined with --by, --horizon, --sort, --table or --sql."
        )
    if resume and out is None:
        raise RegimekitError("--resume needs --out: the folder of the stopped stream.")
    if out is None:
        return
    if not resume and (out / CHECKPOINT).exists():
        raise RegimekitError(
            f"--out {out} contains a followed stream. Continue it with --resume, or choose another "
            "folder."
        )
    for name in (LINES, MODEL):
        check_not_input(out / name, options.inputs)
        # Without a checkpoint the file has another origin.
        if (out / name).exists() and not (out / CHECKPOINT).exists():
            raise RegimekitError(
                f"--out {out} contains {name}, which is not part of a followed stream. Choose "
                "another folder, or move it."
            )


def _start(
    options: PipelineOptions,
    out: Path | None,
    resume: bool,
    stop: Callable[[float], bool],
    console: Console,
) -> tuple[FollowedStream, int, Lines]:
    """Return the stream, the length of its output, and the lines to process."""
    file = options.request.file
    if resume and out is not None and (out / CHECKPOINT).exists():
        stream, output_bytes = FollowedStream.load(out / CHECKPOINT)
        if file != STDIN:
            return stream, output_bytes, Tail(file, stream.position).lines(stop)
        # A pipe is sent again from its start; lines that were processed are skipped.
        lines = Tail(file).lines(stop)
        new = (line for n, line in enumerate(lines, start=1) if n > stream.lines)
        return stream, output_bytes, new
    tail = Tail(file)
    first = first_lines(tail, stop)
    name = "standard input" if file == STDIN else file
    if not first:
        raise RegimekitError(f"{name} has no rows.")
    line_format, source = detect_line_format([line for line, _ in first], name)
    joined, choice = join_date_columns(source, options.choice)
    if joined is not source:
        raise RegimekitError(
            f"--follow needs the time in one column; {name} has it in the columns "
            f"{', '.join(date_columns(source.names))}. Pass --time none to use the rows in order."
        )
    sample = source.sample()
    layout = detect_layout(source.names, sample, choice, source.separator)
    if len(sample) >= _MIN_SAMPLE:
        check_single_series(source.names, sample, layout)
    for line in (*source.notes, f"target: {layout.target}; time: {layout.time or 'none'}"):
        console.warn(line)
    model = make(options.model_name, **options.model_settings(layout.covariates))
    time_column = TimeColumn(first=[] if layout.time else None)
    reader = ObservationReader(layout, time_column, source.first_line)
    stream = FollowedStream(model, reader, line_format, options.level)
    return stream, 0, chain(first, tail.lines(stop))


def _open_output(out: Path | None, output_bytes: int) -> BinaryIO:
    """Open the output, truncated to the length that the checkpoint states."""
    if out is None:
        return sys.stdout.buffer
    try:
        out.mkdir(parents=True, exist_ok=True)
        # A link could lead to any other file.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        target = os.fdopen(os.open(out / LINES, flags, 0o666), "ab")
        written = target.seek(0, os.SEEK_END)
        if written < output_bytes:
            target.close()
            raise RegimekitError(
                f"{out / LINES} has {written} bytes, but its checkpoint counts {output_bytes}. "
                "Follow the table from the start in another folder."
            )
        target.truncate(output_bytes)
        target.seek(output_bytes)
    except OSError as error:
        raise RegimekitError(f"--out {out} cannot be written: {error.strerror}.") from None
    return target
