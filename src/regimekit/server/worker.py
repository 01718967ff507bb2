"""A process that holds models and works on one message after the other.

Processes and not threads: a model spends its time in Python and in kernels that hold the
interpreter's lock, so threads take turns (docs/serve.md has the measurement). A worker only reads
the database; what it learns goes back to be stored.
"""

from __future__ import annotations

import os
import signal
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

import regimekit as rk
from regimekit import RegimekitError
from regimekit._numba import cache_folder
from regimekit.server import learning
from regimekit.server.config import OFFLINE, default_model
from regimekit.server.model_cache import Shelf
from regimekit.server.rows import Resting
from regimekit.server.storage import streams
from regimekit.server.storage.database import connect


class Message(NamedTuple):
    """A verb of `Worker` and its arguments."""

    verb: str
    arguments: tuple[Any, ...]


class Refused(NamedTuple):
    """An answer that says why not: a bad request (`refused`), a missing stream, or a failure."""

    kind: str
    reason: str


@dataclass
class Reply:
    """Answers in the order of the messages, and models that left memory meanwhile."""

    answers: list[Any]
    resting: list[Resting]


def compiled_before() -> bool:
    """Whether workers of exactly this code have compiled their kernels on this machine."""
    return cache_folder(__name__).exists()


def note_compiled() -> None:
    """From now on workers may begin compiled.

    To be called when what was learnt without the compiler lies in snapshots: compiled code may
    differ from uncompiled in the last bit, so a replay must be done by what did the learning.
    """
    with suppress(OSError):  # without it the next start is only slower
        cache_folder(__name__).mkdir(parents=True, exist_ok=True)


class Worker:
    """What can be asked of the models of a process."""

    def __init__(self, db: str, capacity: int, snapshot_every: int) -> None:
        self._engine = connect(db, pool=1)
        self.shelf = Shelf(self._engine, capacity, snapshot_every)

    def answer(self, message: Message) -> Any:
        """Do what a message asks; every error becomes an answer."""
        try:
            return getattr(self, message.verb)(*message.arguments)
        except RegimekitError as error:
            return Refused("refused", str(error))
        except LookupError as error:
            return Refused("missing", str(error))
        except Exception as error:
            return Refused("failed", f"{type(error).__name__}: {error}")

    def warm_up(self) -> None:
        """Compile or load the kernels of the default model."""
        model = rk.make(default_model())
        model.run(np.random.default_rng(0).standard_normal(20))
        model.forecast(2)
        model.transitions()
        rk.from_bytes(model.to_bytes())

    def check(self, model: str, settings: dict[str, Any]) -> None:
        """Refuse settings that cannot serve a stream."""
        if model in OFFLINE:
            raise RegimekitError(f"{model} reads a whole stream at once; choose an online model.")
        try:
            rk.from_bytes(rk.make(model, **settings).to_bytes())
        except (TypeError, AttributeError, OverflowError, MemoryError) as error:
            raise RegimekitError(f"The settings of {model} cannot be used: {error}.") from None

    def learn(self, stream: int, parts: list[Any], generation: int) -> Any:
        return self.shelf.learn(stream, parts, generation)

    def drop(self, stream: int) -> None:
        self.shelf.drop(stream)

    def rest_all(self) -> None:
        self.shelf.rest_all()

    def forecast(self, stream: int, horizon: int, level: float, X: Any) -> list[dict[str, Any]]:
        steps = self.shelf.get(stream).model.forecast(horizon, learning.covariates(X))
        return [_forecast(step, i + 1, level) for i, step in enumerate(steps)]

    def regimes(self, stream: int) -> list[dict[str, Any]]:
        found = self.shelf.get(stream).model.regimes()
        return [
            regime._asdict() | {"mean": _numbers(regime.mean), "sd": _numbers(regime.sd)}
            for regime in found
        ]

    def transitions(self, stream: int) -> dict[str, Any]:
        ids, matrix = self.shelf.get(stream).model.transitions()[:2]
        return {"ids": [int(i) for i in ids], "matrix": np.asarray(matrix).tolist()}

    def about(self, stream: int) -> dict[str, Any]:
        """What a model can say of itself: an explanation and the weights of its members."""
        model = self.shelf.get(stream).model
        explain = getattr(model, "explain", None)
        return {
            "explanation": str(explain()) if callable(explain) else None,
            "weights": _weights(getattr(model, "weights", None)),
        }

    def report(self, stream: int, key: str) -> str:
        """The stream as one HTML file."""
        from regimekit.server import reports  # rarely needed, and it would make every start slower

        model = self.shelf.get(stream).model
        with self._engine.connect() as connection:
            about = streams.find(connection, key)
            if about is None or about.id != stream:
                raise LookupError("The stream does not exist.")
            return reports.page(connection, about, model)

    def snapshot(self, stream: int) -> tuple[int, bytes]:
        entry = self.shelf.get(stream)
        return entry.seq, entry.model.to_bytes()


def _forecast(step: rk.Forecast, ahead: int, level: float) -> dict[str, Any]:
    lower, upper = step.interval(level)
    values = {
        "mean": step.mean,
        "median": step.quantile(0.5),
        "sd": step.sd,
        "lower": lower,
        "upper": upper,
    }
    return {"step": ahead} | {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    """A finite number, or None; a list of them for a vector."""
    if np.ndim(value):
        return [_plain(one) for one in value]
    return float(value) if np.isfinite(value) else None


def _numbers(values: Any) -> list[Any]:
    return [_plain(value) for value in np.asarray(values, dtype=float).reshape(-1)]


def _weights(found: Any) -> dict[str, float] | None:
    """Member weights by name, where a model has them in a form that can be shown."""
    found = found() if callable(found) else found
    if not isinstance(found, dict):
        return None
    return {str(name): float(weight) for name, weight in found.items()}


def main(pipe: Connection, db: str, capacity: int, snapshot_every: int) -> None:
    """Answer lists of messages until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service says when to stop
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    warnings.simplefilter("ignore", RuntimeWarning)
    os.nice(1)  # the process that answers requests comes first
    worker = Worker(db, capacity, snapshot_every)
    while True:
        try:
            messages = pipe.recv()
        except (EOFError, OSError):
            return
        answers = [worker.answer(message) for message in messages]
        reply = Reply(answers, worker.shelf.resting)
        worker.shelf.resting = []
        try:
            pipe.send(reply)
        except (BrokenPipeError, OSError):
            return
