"""One run of one model on one stream, or one answer of a probe, and its key.

Tables and figures request parts. The key of an outcome is a hash of all that it depends on: the
settings, the data of the stream, the source that determines the model (`state`), and the source
that scores it.
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
    """One run of a model, or one answer of a probe.

    Attributes:
        stream: name of the stream, or of a probe.
        model: name of the model, or of the probe's question.
        settings: of the model, as JSON values.
        seed: of the model, and of a generated stream.
        rows: number of first rows; None for all.
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
        """Hash of all that the outcome depends on."""
        return key_of(self, data_state(self), code_state(self))

    def load(self) -> Stream:
        """Return its stream."""
        return stream(self.stream, self.seed, self.degree).head(self.rows)


def key_of(part: Part, data: str, code: str) -> str:
    """Return the key of a part.

    Args:
        part: the part.
        data: state of its data.
        code: state of its source.
    """
    text = json.dumps([asdict(part), data, code], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def data_state(part: Part) -> str:
    """Return a hash of the data of a part; "" if they are not available."""
    return "" if part.stream in PROBES else _data(part.stream, part.seed, part.degree)


@lru_cache(maxsize=4096)
def _data(name: str, seed: int, degree: int) -> str:
    try:
        return stream(name, seed, degree).digest()
    except RegimekitError:
        return ""


def code_state(part: Part) -> str:
    """Return a hash of the source that the outcome of a part depends on."""
    if part.stream in PROBES:
        asked = PROBES[part.stream]
        modules = tuple(REGISTRY[name].module for name in asked.models)
        return _code(modules, (asked.source,), (_HERE / "probes.py",))
    module = REGISTRY[part.model].module if part.model in REGISTRY else "regimekit"
    return _code((module, *JUDGES), (), _SCORED_BY)


@lru_cache
def _code(modules: tuple[str, ...], files: tuple[Path, ...], beside: tuple[Path, ...]) -> str:
    return state(modules, files, beside)
