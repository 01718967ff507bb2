"""Trials of a search, their log, and the result.

A trial is a dict: `settings`, `value` (None if it failed), `seconds`, `state` ("complete" or
"failed") and `reason`. Its value depends only on the settings and on `Log.identity`, so a logged
trial is never run again.
"""

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
from regimekit.tuning.space import Settings, key, plain

Trial = dict[str, Any]
COMPLETE, FAILED = "complete", "failed"
_FORMAT = 1  # version of the result file


@dataclass
class Log:
    """Finished trials by their settings, also stored as JSON lines if a path is given.

    The first line identifies the search, each other line is a trial. An incomplete last line, as
    left by a crash, is dropped.
    """

    identity: dict[str, Any]
    path: Path | None = None
    known: dict[str, Trial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is None:
            return
        text = self.path.read_text() if self.path.exists() else ""
        complete = text[: text.rfind("\n") + 1]
        if not complete:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.identity) + "\n")
            return
        self._read(complete.splitlines())
        if complete != text:
            self.path.write_text(complete)

    def add(self, trial: Trial) -> Trial:
        """Store a finished trial and return it."""
        self.known[key(trial["settings"])] = trial
        if self.path is not None:
            with self.path.open("a") as lines:
                lines.write(json.dumps(trial) + "\n")
        return trial

    def _read(self, lines: list[str]) -> None:
        try:
            first, *trials = [json.loads(line) for line in lines]
            self.known = {key(trial["settings"]): trial for trial in trials}
            own = json.loads(json.dumps(self.identity))
            differ = [name for name in own if first[name] != own[name]]
        except (ValueError, KeyError, TypeError):
            raise RegimekitError(
                f"storage {self.path} is not a log of trials. Pass another file."
            ) from None
        if differ:
            raise RegimekitError(
                f"storage {self.path} belongs to another search: different {', '.join(differ)}. "
                "Pass another file, or remove this one."
            )


@dataclass(frozen=True, eq=False)
class TuneResult:
    """Best settings, and all trials.

    Attributes:
        model_name: name of the model.
        best: settings of the best trial and the fixed settings, as for `regimekit.make`.
        value: objective of the best trial; lower is better (a log score is negated).
        trials: one dict per trial: `settings`, `value` (None if it failed), `seconds`,
            `state` ("complete" or "failed"), `reason`.
        objective: name of the objective.
        info: how it was found: rows of the training part, seeds, backend, version.
        interrupted: whether the search was stopped before its budget was spent.
        default: objective of the fixed settings alone, with estimated units unless they are fixed.
        last_value: objective of the last value as forecast.
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
        references = {"default": self.default, "last value": self.last_value}
        others = [f", {k} {display.number(v)}" for k, v in references.items() if v is not None]
        head = f"{self.model_name}: {self.objective} {display.number(self.value)}{''.join(others)}"
        trials = display.count(len(self.trials), "trial")
        best = ", ".join(f"{name}={_shown(value)}" for name, value in self.best.items())
        return f"TuneResult({head}; {trials})\n{display.short('best: ' + best)}"

    @property
    def failures(self) -> list[Trial]:
        """Trials that failed, each with its reason."""
        return [trial for trial in self.trials if trial["state"] == FAILED]

    def model(self, **changes: Any) -> Model:
        """Return a new model with the best settings.

        Args:
            **changes: settings that replace them.
        """
        return make(self.model_name, **(self.best | changes))

    def frame(self, backend: Any = None) -> Any:
        """Return a data frame with one row per trial.

        Args:
            backend: data-frame library, pandas by default.
        """
        import narwhals as nw

        names = self.trials[0]["settings"] if self.trials else []
        columns = {
            name: _cells([trial["settings"][name] for trial in self.trials]) for name in names
        }
        for name in ("value", "seconds", "state", "reason"):
            columns[name] = [trial[name] for trial in self.trials]
        return nw.from_dict(columns, backend=backend or "pandas").to_native()

    def save(self, path: str | Path) -> None:
        """Write the result as JSON, for `read` and `regimekit run --settings`.

        Args:
            path: the file.
        """
        content = {"regimekit_settings": _FORMAT, **asdict(self)}
        snapshot.write_file(Path(path), (json.dumps(plain(content), indent=2) + "\n").encode())

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return a result that `save` wrote, or one by hand, with `model_name` and `best` alone.

        Args:
            path: the file.

        Raises:
            RegimekitError: if the file is not a result of this format.
        """
        try:
            content = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise RegimekitError(f"path {path} cannot be read as settings: {error}.") from None
        if not isinstance(content, dict) or not {"model_name", "best"} <= set(content):
            raise RegimekitError(
                f"path {path} is not a settings file: model_name or best is missing."
            )
        version = content.pop("regimekit_settings", _FORMAT)
        if version != _FORMAT:
            raise RegimekitError(f"path {path} has format {version}, expected {_FORMAT}.")
        absent: dict[str, Any] = {"value": float("nan"), "trials": [], "objective": ""}
        try:
            return cls(**(absent | content))
        except TypeError as error:
            raise RegimekitError(f"path {path} is not a settings file: {error}.") from None


def best_of(trials: list[Trial]) -> Trial:
    """Return the complete trial with the lowest value, the earlier one on a tie."""
    complete = [trial for trial in trials if trial["state"] == COMPLETE]
    if not complete:
        raise RegimekitError(f"None of {len(trials)} trials succeeded: {trials[-1]['reason']}")
    return min(complete, key=lambda trial: trial["value"])


def _shown(value: Any) -> str:
    return display.number(value) if isinstance(value, float) else str(value)


def _cells(values: list[Any]) -> list[Any]:
    """Values of a setting as a column: numbers, or else all as text."""
    if all(isinstance(value, (int, float)) for value in values):
        return values
    return [value if isinstance(value, str) else json.dumps(value) for value in values]
