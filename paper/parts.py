"""One run of one model on one stream, or one answer to a probe: what to run, and its key.

Tables and figures ask for parts. The outcome of a part goes by a key of all that it depends on:
the settings, the stream's data, the source that decides what the model does (`state`), and the
source that scores it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from paper.probes import PROBES
from paper.state import state
from paper.streams import Stream, stream
from regimekit.core.exceptions import RegimekitError
from regimekit.core.registry import REGISTRY

_HERE = Path(__file__).parent
JUDGES = ("regimekit.metrics.segmentation", "regimekit.metrics.oracle", "regimekit.metrics.scores")
_SCORED_BY = (_HERE / "outcomes.py", _HERE / "streams.py")


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
        pending: the search for its settings is still to be done, so it waits.
    """

    stream: str
    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    rows: int | None = None
    degree: int = 2
    pending: bool = False

    @property
    def key(self) -> str:
        """A short name that any change of what the outcome depends on changes."""
        return key_of(self, data_state(self), code_state(self))

    def load(self) -> Stream:
        """The stream it runs on."""
        return stream(self.stream, self.seed, self.degree).head(self.rows)


def key_of(part: Part, data: str, code: str) -> str:
    """The key of a part that was run on these data by this code."""
    text = json.dumps([asdict(part), data, code], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def data_state(part: Part) -> str:
    """A short name of the data a part reads; nothing where they cannot be had."""
    return "" if part.stream in PROBES else _data(part.stream, part.seed, part.degree)


@lru_cache(maxsize=4096)
def _data(name: str, seed: int, degree: int) -> str:
    try:
        return stream(name, seed, degree).digest()
    except RegimekitError:
        return ""


def code_state(part: Part) -> str:
    """A short name of the source that a part's outcome depends on."""
    if part.stream in PROBES:
        asked = PROBES[part.stream]
        modules = tuple(REGISTRY[name].module for name in asked.models)
        return _code(modules, (asked.source,), (_HERE / "probes.py",))
    module = REGISTRY[part.model].module if part.model in REGISTRY else "regimekit"
    return _code((module, *JUDGES), (), _SCORED_BY)


@lru_cache
def _code(modules: tuple[str, ...], files: tuple[Path, ...], beside: tuple[Path, ...]) -> str:
    return state(modules, files, beside)
