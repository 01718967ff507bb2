"""What a search found, and the file it is kept in."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from regimekit.core import display
from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.core.registry import make
from regimekit.serialization import snapshot
from regimekit.tuning.space import Settings, plain
from regimekit.tuning.trials import COMPLETE, FAILED, Trial

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class TuneResult:
    """The best settings and every trial on the way.

    Attributes:
        model_name: what was tuned.
        best: settings of the best trial with the fixed ones, ready for `regimekit.make`.
        value: its objective; lower is better (a log score is negated).
        trials: one dict per trial: `settings`, `value` (None if it failed), `seconds`,
            `state` ("complete" or "failed"), `reason`.
        objective: by name.
        info: how it was found: rows of the training part, seeds, backend, version.
        interrupted: whether the search was stopped before its budget was spent.
        default: the objective of the fixed settings alone, units learnt where none are told.
        last_value: the objective of the last value, the forecaster to beat.
    """

    model_name: str
    best: Settings
    value: float
    trials: list[Trial]
    objective: str
    info: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False
    default: float | None = None
    last_value: float | None = None

    def __repr__(self) -> str:
        beside = {"default": self.default, "last value": self.last_value}
        told = "".join(f", {k} {display.number(v)}" for k, v in beside.items() if v is not None)
        head = f"{self.model_name}: {self.objective} {display.number(self.value)}{told}"
        trials = display.count(len(self.trials), "trial")
        best = ", ".join(f"{name}={_shown(value)}" for name, value in self.best.items())
        return f"TuneResult({head}; {trials})\n{display.short('best: ' + best)}"

    @property
    def failures(self) -> list[Trial]:
        """The trials that failed, each with its reason."""
        return [trial for trial in self.trials if trial["state"] == FAILED]

    def model(self, **changes: Any) -> Model:
        """A fresh model with the best settings, and with `changes` to them."""
        return make(self.model_name, **(self.best | changes))

    def frame(self, backend: Any = None) -> Any:
        """One row per trial, as a data frame of `backend` ("pandas" by default, "polars", ..)."""
        import narwhals as nw

        names = self.trials[0]["settings"] if self.trials else []
        columns = {
            name: _cells([trial["settings"][name] for trial in self.trials]) for name in names
        }
        for name in ("value", "seconds", "state", "reason"):
            columns[name] = [trial[name] for trial in self.trials]
        return nw.from_dict(columns, backend=backend or "pandas").to_native()

    def save(self, path: str | Path) -> None:
        """Write all of it as JSON; `regimekit run --settings` reads it, and so does `read`."""
        content = {"regimekit_settings": _FORMAT, **asdict(self)}
        snapshot.write_file(Path(path), (json.dumps(plain(content), indent=2) + "\n").encode())

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """What `save` wrote.

        A file by hand needs only `model_name` and `best`.
        """
        try:
            content = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise RegimekitError(f"path {path} cannot be read as settings: {error}.") from None
        if not isinstance(content, dict) or not {"model_name", "best"} <= set(content):
            raise RegimekitError(f"path {path} holds no settings: it lacks model_name or best.")
        version = content.pop("regimekit_settings", _FORMAT)
        if version != _FORMAT:
            raise RegimekitError(
                f"path {path} has format {version}; this regimekit reads {_FORMAT}."
            )
        absent: dict[str, Any] = {"value": float("nan"), "trials": [], "objective": ""}
        try:
            return cls(**(absent | content))
        except TypeError as error:
            raise RegimekitError(f"path {path} holds no settings: {error}.") from None


def best_of(trials: list[Trial]) -> Trial:
    """The complete trial with the lowest value; the earlier one if two are equal."""
    complete = [trial for trial in trials if trial["state"] == COMPLETE]
    if not complete:
        raise RegimekitError(f"None of {len(trials)} trials succeeded: {trials[-1]['reason']}")
    return min(complete, key=lambda trial: trial["value"])


def _shown(value: Any) -> str:
    return display.number(value) if isinstance(value, float) else str(value)


def _cells(values: list[Any]) -> list[Any]:
    """A setting as a column can hold it: numbers, or else everything as text."""
    if all(isinstance(value, (int, float)) for value in values):
        return values
    return [value if isinstance(value, str) else json.dumps(value) for value in values]
