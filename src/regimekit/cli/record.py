"""run.json: what a run was and where it stopped, so that it can be resumed, shown and forecast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import regimekit
from regimekit.cli.destination import MODELS
from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.core.registry import load
from regimekit.io import Reading

FORMAT = 1
RECORD, MODEL = "run.json", "model.regimekit"


class Kept(NamedTuple):
    """A model and, where it was made by a run, that run's record and folder."""

    model: Model
    record: dict[str, Any]
    folder: Path
    path: Path

    def reading(self) -> Reading | None:
        """Where the run's table had been read to, if it is known."""
        state = self.record.get("reading")
        return None if state is None else Reading.from_state(state)


def record(**content: Any) -> dict[str, Any]:
    """The content of run.json."""
    return {"regimekit_run": FORMAT, "version": regimekit.__version__, **content}


def read_kept(path: Path) -> Kept:
    """A snapshot, given as its file or as the folder of a run."""
    if path.is_dir():
        if not (path / MODEL).is_file():
            raise RegimekitError(_no_model(path))
        path = path / MODEL
    elif not path.exists():
        raise RegimekitError(f"{path} does not exist.")
    model = load(path)
    beside = path.parent / RECORD
    found = _read(beside) if path.name == MODEL and beside.is_file() else {}
    return Kept(model, found, path.parent, path)


def _no_model(folder: Path) -> str:
    """Why a folder cannot be used, and what can be in its place."""
    if series := sorted(folder.glob(f"{MODELS}/*.regimekit")):
        return f"{folder} holds many series; name the snapshot of one of them, such as {series[0]}."
    return f"{folder} holds no {MODEL}; is it the folder of a run?"


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RegimekitError(f"{path} cannot be read: {error}.") from None
    if content.get("regimekit_run") != FORMAT:
        raise RegimekitError(
            f"{path} is not the record of a run that regimekit {regimekit.__version__} can read."
        )
    return content
