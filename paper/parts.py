"""One run of one model on one stream, computed once and kept on disk.

Tables and figures ask for parts; a part that is in the cache is not run again, so an interrupted
reproduction resumes and two items share what they have in common. What is kept goes by a key of
all that it depends on: the stream's data, the settings, the source that the model reaches by
imports, and the source that scores it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import holdfast
from holdfast import evaluate
from holdfast._numba import cache_folder
from holdfast.errors import HoldfastError
from holdfast.models.registry import REGISTRY
from paper.probes import PROBES
from paper.streams import Stream, stream

Array = NDArray[np.float64]
COLUMNS = (
    "mean", "sd", "lower", "upper", "weight", "outlier", "regime", "path", "n_regimes",
    "regime_probability",
)  # fmt: skip
KEPT_SEED = 0  # figures draw this run, so only its columns are kept
RUN_THRESHOLD = 2  # minority runs shorter than this are misses, not false alarms (`run_threshold`)
RUN_THRESHOLDS = (1, 2, 5, 10, 20)
ALL_ROWS = "_all"  # ends the name of a score over all rows, those that a search saw included
_HERE = Path(__file__).parent
_JUDGES = ("holdfast.evaluate.segmentation", "holdfast.evaluate.oracle", "holdfast.evaluate.scores")


@dataclass(frozen=True)
class Part:
    """What to run.

    Attributes:
        stream: name of the stream, or of a probe.
        model: name of the model, or of the probe's question.
        settings: of the model, as JSON values.
        seed: of the model, and of a generated stream.
        rows: only the first so many rows; None for all.
        degree: power of the electricity covariates.
    """

    stream: str
    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    rows: int | None = None
    degree: int = 2

    @property
    def key(self) -> str:
        """A short name that any change of what the outcome depends on changes."""
        text = json.dumps([asdict(self), data_state(self), code_state(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def load(self) -> Stream:
        """The stream it runs on."""
        return stream(self.stream, self.seed, self.degree).head(self.rows)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a part gave: scores by name, the columns figures need, the state of the source."""

    scores: dict[str, float]
    columns: dict[str, NDArray[Any]]
    source: str = ""


def data_state(part: Part) -> str:
    """A short name of the data a part reads; nothing where they cannot be had."""
    return "" if part.stream in PROBES else _data(part.stream, part.seed, part.degree)


@lru_cache(maxsize=4096)
def _data(name: str, seed: int, degree: int) -> str:
    try:
        return stream(name, seed, degree).digest()
    except HoldfastError:
        return ""


def code_state(part: Part) -> str:
    """A short name of the source that a part's outcome depends on."""
    if part.stream in PROBES:
        return _code("holdfast", PROBES[part.stream].sources)
    module = REGISTRY[part.model].module if part.model in REGISTRY else "holdfast"
    return _code(module, (_HERE / "parts.py",))


@lru_cache
def _code(module: str, files: tuple[Path, ...]) -> str:
    """The module and all that it imports from the library, the judges, and further files."""
    digest = hashlib.sha256()
    for name in (module, *_JUDGES):
        digest.update(cache_folder(name).name.encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def run_part(part: Part) -> Outcome:
    """Run a part, from nothing; a setting that its model does not know is an error."""
    if part.stream in PROBES:
        return Outcome(PROBES[part.stream].ask(part.model, part.seed), {}, code_state(part))
    source = part.load()
    settings = _own(part.model, source, part.seed) | part.settings
    model = holdfast.make(part.model, **settings)
    _warm_up(part.model, settings, source)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    run = model.run(source.data.y, source.data.X)
    spent = {"seconds": time.perf_counter() - begin}
    spent["cpu_seconds"] = time.process_time() - begin_cpu
    columns = {name: getattr(run, name) for name in COLUMNS}
    scores = all_scores(source, columns) | spent
    return Outcome(scores, columns if part.seed == KEPT_SEED else {}, code_state(part))


def _own(model: str, source: Stream, seed: int) -> dict[str, Any]:
    """The stream's features and the run's seed, for a model that has a use for them."""
    given = {"features": source.features.to_json(), "seed": seed}
    known = holdfast.make(model).settings()
    return {name: value for name, value in given.items() if name in known}


def _warm_up(name: str, settings: dict[str, Any], source: Stream) -> None:
    """Compile, or load, the kernels on a few rows, so that `seconds` is the run's own time."""
    few = source.head(8).data
    brief = settings | ({} if REGISTRY[name].online else {"iterations": 2})
    holdfast.make(name, **brief).run(few.y, few.X)


def all_scores(source: Stream, columns: dict[str, NDArray[Any]]) -> dict[str, float]:
    """Every score of the rows that no search has seen, and of all rows under `.._all`."""
    whole = _scores(source, columns)
    first = source.held_out
    kept = {name: column[first:] for name, column in columns.items()}
    late = _scores(source.rows(first), kept) if first else whole
    return late | {name + ALL_ROWS: value for name, value in whole.items()}


def _scores(source: Stream, columns: dict[str, NDArray[Any]]) -> dict[str, float]:
    y, mean = source.target, columns["mean"]
    trivial = evaluate.last_value(source.data.y)
    scores = {
        "rmse": evaluate.rmse(y, mean),
        "rmse_observed": evaluate.rmse(source.data.y, mean),
        "mae": evaluate.mae(y, mean),
        "lookahead_mae": evaluate.lookahead_mae(source.data.y, mean),
        "coverage": evaluate.coverage(source.data.y, columns["lower"], columns["upper"]),
        "regimes": float(evaluate.n_regimes(columns["path"])),
        "switches": float(evaluate.switches(columns["path"])),
        "rmse_last_value": evaluate.rmse(y, trivial),
        "rmse_observed_last_value": evaluate.rmse(source.data.y, trivial),
    }
    if source.data.changepoints:
        for label in ("path", "regime"):
            scores |= _segmentation(columns[label], source.data.changepoints, label)
    if source.data.regimes is not None:
        scores["adjusted_rand"] = evaluate.adjusted_rand(columns["path"], source.data.regimes)
        known = evaluate.adjusted_rand(columns["regime"], source.data.regimes)
        scores["adjusted_rand_online"] = known
        scores["true_switches"] = float(evaluate.switches(source.data.regimes))
        scores["true_regimes"] = float(evaluate.n_regimes(source.data.regimes))
    if source.truth is not None:
        told = evaluate.oracle(source.data, source.truth.noise, source.truth.prior_var)
        scores["rmse_oracle"] = evaluate.rmse(y, told.mean)
        scores["oracle_ratio"] = scores["rmse"] / scores["rmse_oracle"]
    return scores


def _segmentation(labels: NDArray[Any], truth: Iterable[int], label: str) -> dict[str, float]:
    """The paper's regime statistics; `path` is its protocol, `regime` what was known in time."""
    suffix = "" if label == "path" else "_online"
    truth = list(truth)
    match = {n: evaluate.match_regimes(labels, truth, n) for n in RUN_THRESHOLDS}
    scores = {
        f"ppv{suffix}": match[RUN_THRESHOLD].ppv,
        f"tpr{suffix}": match[RUN_THRESHOLD].tpr,
        f"delay{suffix}": evaluate.detection_delay(labels, truth),
    }
    scores |= {f"ppv{suffix}_{n}": one.ppv for n, one in match.items()}
    return scores | {f"tpr{suffix}_{n}": one.tpr for n, one in match.items()}


class Cache:
    """Outcomes in a folder, one file each, written all or nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, part: Part) -> bool:
        """Whether the outcome of a part is here."""
        return self._path(part).exists()

    def get(self, part: Part) -> Outcome | None:
        """The outcome of a part if it is here."""
        path = self._path(part)
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as stored:
            scores = json.loads(str(stored["scores"]))
            columns = {name: stored[name] for name in stored.files if name in COLUMNS}
            return Outcome(scores, columns, str(stored["source"]))

    def put(self, part: Part, outcome: Outcome) -> None:
        """Keep an outcome."""
        path = self._path(part)
        temporary = path.with_suffix(f".{os.getpid()}.part")
        arrays: dict[str, Any] = {"scores": np.array(json.dumps(outcome.scores))}
        arrays |= outcome.columns | {"source": np.array(outcome.source)}
        with temporary.open("wb") as target:
            np.savez_compressed(target, **arrays)
        os.replace(temporary, path)

    def _path(self, part: Part) -> Path:
        return self.folder / f"{part.stream}-{part.model}-{part.key}.npz"


def run_into(part: Part, folder: Path) -> tuple[Part, str]:
    """Run a part into the cache in `folder`; the part, and why it failed ("" if it did not)."""
    try:
        Cache(folder).put(part, run_part(part))
    except (HoldfastError, ArithmeticError, np.linalg.LinAlgError) as error:
        return part, f"{type(error).__name__}: {error}"
    return part, ""
