"""What `tune` needs around the search: its files, the simple forecaster beside it, the hint."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from regimekit.cli.console import Voice, number
from regimekit.cli.job import Prepared
from regimekit.core.display import count
from regimekit.core.exceptions import RegimekitError
from regimekit.core.registry import make
from regimekit.tuning import TuneResult

IN_UNITS = ("noise", "noise_scale", "prior_mean", "prior_var")  # in the units of y, where told


def check_output(path: Path) -> None:
    """Refuse a settings file that cannot be written, before the search."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.touch()
        part.unlink()
    except OSError as error:
        raise RegimekitError(f"--out {path} cannot be written: {error.strerror}.") from None
    if path.is_dir():
        raise RegimekitError(f"--out {path} is a folder; name the settings file.")


def read_space(file: Path | None) -> dict[str, Any] | None:
    """The space to search, from a JSON file."""
    if file is None:
        return None
    try:
        space: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise RegimekitError(f"--space {file} cannot be read as JSON: {error}.") from None
    return space


def hint_of(prepared: Prepared, out: Path) -> str:
    """The command that runs the same table with the settings of a file."""
    job = prepared.job
    words = ["regimekit", "run", job.request.file, "--target", prepared.layout.target]
    told = {"--time": job.wishes.time, "--table": job.request.table, "--query": job.request.query}
    for option, value in told.items():
        words += [option, value] if value else []
    words += ["--sort"] if job.sort else []
    return shlex.join([*words, "--settings", str(out)])


def tell_tuned(result: TuneResult, hint: str, out: Path, voice: Voice) -> None:
    """Say what was found, beside the default and the last value, and how to use it."""
    voice.result(
        {
            "model": result.model_name,
            "objective": result.objective,
            "best": result.value,
            "default": result.default,
            "last_value": result.last_value,
            "settings": result.best,
            "trials": len(result.trials),
            "failed": len(result.failures),
            "out": str(out),
            "hint": hint,
        }
    )
    _tell_settings(result, voice)
    rows = [
        [label, "failed" if value is None else number(value)]
        for label, value in (
            (f"best of {count(len(result.trials), 'trial')}", result.value),
            ("default settings", result.default),
            ("last value", result.last_value),
        )
    ]
    voice.table(["", result.objective], rows)
    if result.failures:
        voice.say(f"{count(len(result.failures), 'trial')} failed")
    voice.say(f"settings in {out}; use them with: {hint}")
    if result.default is not None and result.default <= result.value:
        how = "as well" if result.default == result.value else "better"
        voice.say(f"note: the default settings forecast {how}; nothing need be set.")


def _tell_settings(result: TuneResult, voice: Voice) -> None:
    """The best settings beside the default's, which may be learnt rather than told."""
    searched = result.trials[0]["settings"]
    fixed = {name: value for name, value in result.best.items() if name not in searched}
    own = make(result.model_name, **fixed).settings()
    learns = own.get("units") == "auto"
    voice.table(
        ["setting", "default", "best"],
        [
            [
                name,
                "learnt" if learns and name in IN_UNITS else _shown(own[name]),
                _shown(result.best[name]),
            ]
            for name in searched
        ],
    )


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)
