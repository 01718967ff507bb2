"""What `tune` needs around the search: its files, the simple forecaster beside it, the hint."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.cli.voice import Voice, number
from holdfast.errors import HoldfastError
from holdfast.evaluate import prequential
from holdfast.models.registry import make
from holdfast.tuning import TuneResult
from holdfast.tuning.trials import OBJECTIVES


def check_output(path: Path) -> None:
    """Refuse a settings file that cannot be written, before the search."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.touch()
        part.unlink()
    except OSError as error:
        raise HoldfastError(f"--out {path} cannot be written: {error.strerror}.") from None
    if path.is_dir():
        raise HoldfastError(f"--out {path} is a folder; name the settings file.")


def read_space(file: Path | None) -> dict[str, Any] | None:
    """The space to search, from a JSON file."""
    if file is None:
        return None
    try:
        space: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise HoldfastError(f"--space {file} cannot be read as JSON: {error}.") from None
    return space


def score_of(
    model: str, settings: dict[str, Any], y: np.ndarray, X: Any, objective: str, skip: int
) -> float:
    """The objective of a model with given settings on the training rows."""
    result = prequential(make(model, **settings), y, X, skip=skip)
    return float(OBJECTIVES[objective](result))


def tell_tuned(
    result: TuneResult, default: float, simple: float, hint_of: tuple[str, str, Path], voice: Voice
) -> None:
    """Say what was found, beside the default and the last value, and how to use it.

    `hint_of` is the table, its target and the settings file, for the command that uses them.
    """
    file, target, out = hint_of
    hint = shlex.join(["holdfast", "run", file, "--target", target, "--settings", str(out)])
    voice.result(
        {
            "model": result.model_name, "objective": result.objective, "best": result.value,
            "default": default, "last_value": simple, "settings": result.best,
            "trials": len(result.trials), "failed": len(result.failures), "out": str(out),
            "hint": hint,
        }
    )  # fmt: skip
    searched = result.trials[0]["settings"]
    fixed = {name: value for name, value in result.best.items() if name not in searched}
    own = make(result.model_name, **fixed).settings()
    voice.table(
        ["setting", "default", "best"],
        [[name, _shown(own[name]), _shown(result.best[name])] for name in searched],
    )
    rows = [[f"best of {len(result.trials)} trials", number(result.value)]]
    rows += [["default settings", number(default)], ["last value", number(simple)]]
    voice.table(["", result.objective], rows)
    if result.failures:
        voice.say(f"{len(result.failures)} trials failed")
    voice.say(f"settings in {out}; use them with: {hint}")


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)
