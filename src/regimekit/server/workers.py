"""Worker processes that run the models, and the pool that distributes requests to them.

Models run in processes because Python code around the kernels holds the interpreter lock; threads
would take turns (docs/serve.md has the measurement). A stream belongs to one worker, chosen by its
id, so its requests stay in order. A worker only reads the database. A worker that dies or hangs is
replaced, and its models are loaded from snapshots.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import multiprocessing
import os
import resource
import signal
import time
import warnings
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

import regimekit as rk
from regimekit import RegimekitError
from regimekit.core.registry import DEFAULT_MODEL
from regimekit.server import records
from regimekit.server.batching_queue import BatchingQueue
from regimekit.server.config import OFFLINE_MODELS, Config, Limits
from regimekit.server.model_cache import ModelCache
from regimekit.server.records import ObservationBatch, RequestError, StoredModel, UpdateResult
from regimekit.server.storage import database, streams

_MAX_CALLS = 16  # calls per message to a worker
_REGIME_NUMBERS = ("typical", "low", "high", "share")
_TRIAL_ROWS = 8
_VALID_SETTINGS = 100  # settings that are remembered as valid
_TRIAL_MEMORY = 4 * 2**30  # bytes of address space, most of which libraries reserve
_TIMEOUT = 300.0  # seconds without an answer after which a worker is replaced
_REPORT_ROWS = 20_000  # a worker does nothing else while it writes a report
_REPORT_HORIZON = 24  # steps ahead


class Call(NamedTuple):
    """A method of `Worker` and its arguments."""

    method: str
    arguments: tuple[Any, ...]


class Failure(NamedTuple):
    """An error of a call. `kind` is "invalid" (bad request), "missing" (no stream) or "failed"."""

    kind: str
    reason: str


class Reply(NamedTuple):
    """Answers in the order of the calls, and models evicted meanwhile."""

    answers: list[Any]
    evicted: list[StoredModel]


class WorkerLostError(RequestError):
    """The worker process ended before it answered."""

    status = 503
    retry_after = 1


def kernels_compiled() -> bool:
    """Return whether the numerical kernels are compiled; if not, models are slow."""
    spec = importlib.util.find_spec("regimekit.core.random")
    return spec is None or not str(spec.origin).endswith(".py")


class Worker:
    """The methods that can be called in a worker process."""

    def __init__(self, config: Config) -> None:
        self._limits = config.limits
        self._engine = database.connect(config.db, pool=1)
        self.cache = ModelCache(
            self._engine,
            max(1, config.memory // config.workers),
            config.snapshot_every,
            config.memory_mb * 2**20 // config.workers,
            config.limits.batch_seconds,
        )

    def answer(self, call: Call) -> Any:
        """Execute a call; every error becomes a `Failure`."""
        try:
            return getattr(self, call.method)(*call.arguments)
        except RegimekitError as error:
            return Failure("invalid", str(error))
        except LookupError as error:
            return Failure("missing", str(error))
        except Exception as error:
            return Failure("failed", f"{type(error).__name__}: {error}")

    def warm_up(self) -> None:
        """Run the default model once, so that the first request does not wait for imports."""
        model = rk.make(DEFAULT_MODEL)
        model.run(np.random.default_rng(0).standard_normal(20))
        model.forecast(2)
        model.transitions()
        rk.from_bytes(model.to_bytes())

    def check_settings(self, model: str, settings: dict[str, Any]) -> None:
        """Raise RegimekitError if a stream cannot have this model with these settings."""
        if model in OFFLINE_MODELS:
            raise RegimekitError(f"{model} needs the whole stream; choose an online model.")
        try:
            made = rk.from_bytes(rk.make(model, **settings).to_bytes())
            _try(made, settings, self._limits)
        except (TypeError, AttributeError, OverflowError, MemoryError) as error:
            raise RegimekitError(f"Invalid settings of {model}: {error}.") from None

    def update(
        self, stream: int, batches: list[ObservationBatch], generation: int, policy: int
    ) -> UpdateResult:
        """Update a model; see `ModelCache.update`."""
        return self.cache.update(stream, batches, generation, policy)

    def drop(self, stream: int) -> None:
        """Discard the model in memory."""
        self.cache.drop(stream)

    def evict_all(self) -> None:
        """Remove all models from memory; the reply has their snapshots."""
        self.cache.evict_all()

    def forecast(self, stream: int, horizon: int, level: float, x: Any) -> list[dict[str, Any]]:
        """Return the forecasts of the next `horizon` observations."""
        steps = self.cache.get(stream).model.forecast(horizon, records.covariates(x))
        return [_forecast_dict(step, i + 1, level) for i, step in enumerate(steps)]

    def regimes(self, stream: int) -> list[dict[str, Any]]:
        """Return the regimes that the model knows."""
        found = []
        for regime in self.cache.get(stream).model.regimes():
            values = {name: _plain(getattr(regime, name)) for name in _REGIME_NUMBERS}
            values |= {"mean": _plain(np.ravel(regime.mean)), "sd": _plain(np.ravel(regime.sd))}
            found.append(regime._asdict() | values)
        return found

    def transitions(self, stream: int) -> dict[str, Any]:
        """Return regime ids and the matrix of expected transition probabilities."""
        ids, matrix = self.cache.get(stream).model.transitions()[:2]
        return {"ids": [int(i) for i in ids], "matrix": np.asarray(matrix).tolist()}

    def describe(self, stream: int) -> dict[str, Any]:
        """Return the model's explanation and its member weights; None if it has none."""
        model = self.cache.get(stream).model
        explain, weights = getattr(model, "explain", None), getattr(model, "weights", None)
        weights = weights() if callable(weights) else weights
        return {
            "explanation": str(explain()) if callable(explain) else None,
            "weights": {str(name): float(weight) for name, weight in weights.items()}
            if isinstance(weights, dict)
            else None,
        }

    def report(self, stream: int, key: str) -> str:
        """Return the report of the latest observations as HTML."""
        # Imported on demand: it would slow down every start of a worker.
        from regimekit.report import render

        model = self.cache.get(stream).model
        with self._engine.connect() as connection:
            row = streams.find(connection, key)
            if row is None or row.id != stream:
                raise LookupError("The stream does not exist.")
            if row.n_rows == 0:
                raise RegimekitError("The stream has no observations; send observations first.")
            start = max(0, row.n_rows - _REPORT_ROWS)
            run, times = records.stored_run(connection, row, start)
            labels = streams.regime_labels(connection, stream)
        return render(
            run=run,
            model=model,
            y=run.y,
            times=times,
            title=key,
            horizon=_REPORT_HORIZON,
            regime_names={regime: own.name for regime, own in labels.items() if own.name},
            warnings=[f"The report shows the latest {_REPORT_ROWS} observations."] if start else [],
        )

    def snapshot(self, stream: int) -> tuple[int, bytes]:
        """Return the number of observations and the bytes of the model."""
        cached = self.cache.get(stream)
        return cached.seq, cached.model.to_bytes()


def _try(model: Any, settings: dict[str, Any], limits: Limits) -> None:
    """Update a new model with noise; raise RegimekitError if it is too large or too slow."""
    terms = [term for term in settings.get("features") or [] if isinstance(term, dict)]
    x = {name: 0.5 for term in terms for name in term.get("names", ())} or None
    noise = np.random.default_rng(0).standard_normal((_TRIAL_ROWS, settings.get("dim") or 1))
    started = time.process_time()
    try:
        for y in noise:
            model.update(y if y.size > 1 else y[0], x)
    except RegimekitError as error:
        # Features may need covariates that are not known here.
        if not (terms and str(error).startswith("x ")):
            raise
    seconds = (time.process_time() - started) / _TRIAL_ROWS
    if seconds > limits.step_seconds:
        raise RegimekitError(
            f"The model needs {seconds:.2g} s per observation; the service allows "
            f"{limits.step_seconds:g} s. Choose smaller settings."
        )
    size = model.state_bytes()
    if size > limits.model_bytes:
        raise RegimekitError(
            f"The model has {size / 2**20:.0f} MB; the service allows "
            f"{limits.model_bytes / 2**20:.0f} MB. Choose smaller settings."
        )


def _forecast_dict(step: rk.Forecast, ahead: int, level: float) -> dict[str, Any]:
    lower, upper = step.interval(level)
    values = {"mean": step.mean, "median": step.quantile(0.5), "sd": step.sd}
    values |= {"lower": lower, "upper": upper}
    return {"step": ahead} | {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    """Convert to a float, or a list of floats for a vector; not finite becomes None."""
    if np.ndim(value):
        return [_plain(entry) for entry in value]
    return float(value) if np.isfinite(value) else None


def run_worker(pipe: Connection, config: Config, memory_bytes: int) -> None:
    """Answer lists of calls until the pipe is closed (the main function of a worker process).

    Args:
        pipe: connection to the service.
        config: settings of the service.
        memory_bytes: largest memory of the process, or 0 for no limit.
    """
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # The service decides when workers end, also on Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    warnings.simplefilter("ignore", RuntimeWarning)
    # Lower priority than the process that answers requests.
    os.nice(1)
    worker = Worker(config)
    try:
        # The time limits of calls begin when the process has started.
        pipe.send(None)
        while True:
            answers = [worker.answer(call) for call in pipe.recv()]
            pipe.send(Reply(answers, worker.cache.evicted))
            worker.cache.evicted = []
    except (EOFError, OSError):
        return


class WorkerProcess:
    """A worker process and the thread that exchanges messages with it.

    Args:
        config: settings of the service.
        on_evicted: called with each model that leaves memory.
        timeout: seconds without an answer after which the process is replaced.
        memory_bytes: largest memory of the process, or 0 for no limit.
    """

    def __init__(
        self,
        config: Config,
        on_evicted: Callable[[StoredModel], None],
        timeout: float = _TIMEOUT,
        memory_bytes: int = 0,
    ) -> None:
        self._config, self._timeout, self._memory_bytes = config, timeout, memory_bytes
        self._on_evicted = on_evicted
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._start()
        # If a limited process ends, only the call that ended it may fail.
        calls = 1 if memory_bytes else _MAX_CALLS
        self._calls = BatchingQueue(self._exchange, calls, "worker")

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._started = False
        arguments = (theirs, self._config, self._memory_bytes)
        self._process = context.Process(target=run_worker, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    async def call(self, method: str, *arguments: Any) -> Any:
        """Return the answer of the worker, which may be a `Failure`.

        Raises:
            WorkerLostError: if the process ends or hangs.
        """
        return await self._calls.put(Call(method, arguments))

    async def close(self, kill: bool) -> None:
        """End the process, after the queued calls or at once."""
        self._closing = True
        if kill:
            self._process.kill()
        await asyncio.to_thread(self._calls.close)
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._pipe.close()
        self._process.join(10)

    def _exchange(self, calls: list[Call]) -> list[Any]:
        try:
            if not self._started:
                self._receive(_TIMEOUT)
                self._started = True
            self._pipe.send(calls)
            reply: Reply = self._receive(self._timeout)
        except (EOFError, OSError):
            self._process.kill()
            self._end()
            if not self._closing:
                self._start()
            text = "The worker process of this stream ended. Send it again."
            return [WorkerLostError(text) for _ in calls]
        for evicted in reply.evicted:
            self._loop.call_soon_threadsafe(self._on_evicted, evicted)
        return reply.answers

    def _receive(self, timeout: float) -> Any:
        if not self._pipe.poll(timeout):
            raise EOFError
        return self._pipe.recv()


class WorkerPool:
    """All worker processes; streams are assigned by id."""

    def __init__(self, config: Config, store: Callable[[StoredModel], Awaitable[None]]) -> None:
        """Start the processes.

        Args:
            config: settings of the service.
            store: stores an evicted model.
        """
        self._store = store
        self._storing: dict[int, asyncio.Future[None]] = {}  # latest task per stream
        self._unfinished: set[asyncio.Future[None]] = set()
        self._valid: set[str] = set()
        self._workers = [WorkerProcess(config, self._evicted) for _ in range(config.workers)]
        # Settings of new streams are tried in a process of their own, so that they cannot delay
        # the streams that exist.
        seconds = config.limits.trial_seconds
        self._trial = WorkerProcess(config, self._evicted, seconds, _TRIAL_MEMORY)

    async def call(self, stream: int, method: str, *arguments: Any) -> Any:
        """Call a method of the worker that has the stream.

        If the model of the stream has just been evicted, wait until its snapshot is stored:
        otherwise it would be loaded from an older snapshot with a longer replay.

        Raises:
            WorkerLostError: if the process ends or hangs.
        """
        if stream in self._storing:
            await asyncio.wait([self._storing[stream]])
        worker = self._workers[stream % len(self._workers)]
        return await worker.call(method, stream, *arguments)

    def _evicted(self, model: StoredModel) -> None:
        task = self._storing[model.stream] = asyncio.ensure_future(self._store(model))
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        task.add_done_callback(lambda done: self._forget(model.stream, done))

    def _forget(self, stream: int, task: asyncio.Future[None]) -> None:
        if self._storing.get(stream) is task:
            del self._storing[stream]

    async def check_settings(self, model: str, settings: dict[str, Any]) -> Failure | None:
        """Check settings in the trial process; return None if they are valid."""
        given = json.dumps([model, settings], sort_keys=True)
        if given in self._valid:
            return None
        try:
            answer: Failure | None = await self._trial.call("check_settings", model, settings)
        except WorkerLostError:
            reason = "The model needs too much time or memory. Choose smaller settings."
            return Failure("invalid", reason)
        if answer is None:
            # Many streams have the same settings.
            if len(self._valid) >= _VALID_SETTINGS:
                self._valid.clear()
            self._valid.add(given)
        return answer

    async def call_all(self, method: str) -> None:
        """Call a method without arguments in every worker."""
        await asyncio.gather(*(worker.call(method) for worker in self._workers))

    async def close(self, kill: bool = False) -> None:
        """End the processes, after the queued calls or at once; then store what they evicted."""
        await asyncio.gather(*(worker.close(kill) for worker in (*self._workers, self._trial)))
        await asyncio.gather(*self._unfinished)
