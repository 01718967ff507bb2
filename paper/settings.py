"""Every setting of every experiment: printed by the paper, found by a search, or given.

A model is compared in up to five variants, the columns of the tables:

    printed   the paper's rule with the printed values, R guessed where it is not stated
    paper     the paper's rule, tuned
    first     the first edition of our rule (weight IMQ, D1 to D9), tuned
    second    the second edition (contamination, islands, D12, D13), tuned; also models that have
              no rule
    untuned   the default settings of the model

All of them are tuned by the same search (`tuning`); `tuned/<stream>-<model>-<variant>.json` has its
result. Before this file exists, a run of the variant waits; a quick run takes the starting values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paper.parts import Part
from regimekit.core.exceptions import unknown
from regimekit.ihmm.published import BASELINE_NOISE, FITTED, MAX_REGIMES, PARTICLES, printed
from regimekit.ihmm.published import MODELS as ONLINE

Settings = dict[str, Any]

PRINTED, PAPER, FIRST, SECOND, UNTUNED = "printed", "paper", "first", "second", "untuned"
PLAIN, PAPER_R, HINDSIGHT = "plain", "paper_r", "hindsight"
BASELINE_R = "baseline_r"  # R from the baselines whose text is unambiguous
COLUMNS = {
    PRINTED: "paper's rule, printed settings",
    PAPER: "paper's rule, tuned",
    FIRST: "first edition, tuned",
    SECOND: "second edition or no rule, tuned",
    UNTUNED: "default settings",
}
TITLES = COLUMNS | {
    SECOND: "second edition, tuned",
    PLAIN: "batch 1 and no weight, tuned",
    PAPER_R: "paper's rule, printed settings, R searched",
    BASELINE_R: "paper's rule, printed settings, R from the baselines",
    HINDSIGHT: "paper's rule, chosen in hindsight for the printed numbers",
}

WITH_PARTICLES = (*ONLINE, "student_t_ihmm", "garch_ihmm")
BEAM_ITERATIONS = 1000
TUNED = Path(__file__).parent / "tuned"
_CACHED_FILES: dict[Path, dict[str, Any]] | None = (
    None  # files of `TUNED` read inside `cached_files`
)
_EDITION_ONE = {"D12": "paper"}  # the others as in the default rule
LAGGED = ("ofi",)  # streams with lags as features, on which D13 acts

# Settings that define a variant. The defaults of resampling, islands and kappa follow from them.
_RULES: dict[str, Settings] = {
    PAPER: {"rule": "paper"},
    PAPER_R: {"rule": "paper"},
    HINDSIGHT: {"rule": "paper"},
    FIRST: {"rule": _EDITION_ONE, "weight": "imq"},
    SECOND: {"rule": "default"},
    PLAIN: {"rule": "default", "weight": "none", "batch": 1},
}
VARIANTS: dict[str, tuple[str, ...]] = {
    "br_ihmm": (PRINTED, PAPER, FIRST, SECOND, UNTUNED),
    "wolf_ihmm": (PRINTED, PAPER, SECOND, UNTUNED),
    "ihmm": (PRINTED, PAPER, SECOND, UNTUNED),
    "student_t_ihmm": (FIRST, SECOND, UNTUNED),
    "bocd": (SECOND, UNTUNED),
    "dsm_bocd": (SECOND, UNTUNED),
    "least_squares": (SECOND, UNTUNED),
    "beam_ihmm": (SECOND,),
    "garch_ihmm": (UNTUNED,),
    "auto": (UNTUNED,),
    "last_value": (UNTUNED,),
}


@dataclass(frozen=True)
class Start:
    """Start of a search on a stream, for every model; other settings are defaults."""

    noise: float = 1.0
    prior_var: float = 1.0
    hazard: float = 0.01


STARTS: dict[str, Start] = {
    "synthetic": Start(hazard=0.005),
    "iid_gauss": Start(noise=0.25, prior_var=4.0, hazard=0.005),
    "iid_t": Start(noise=0.25, prior_var=4.0, hazard=0.005),
    "well_log": Start(noise=0.03),
    "electricity": Start(noise=0.02, prior_var=10.0),
    "ofi": Start(),
}


def start(stream: str, model: str, variant: str) -> Settings:
    """Return the settings of a variant before it is tuned.

    Example:
        >>> start("iid_t", "br_ihmm", "second")["rule"]
        'default'
    """
    if variant == UNTUNED:  # a GARCH particle also stores a cloud of coefficients
        return {"particles": 50} if model == "garch_ihmm" else {}
    if variant == PAPER_R:
        return printed(stream, model)
    begin = STARTS[stream]
    settings: Settings = {"noise": begin.noise, "prior_var": begin.prior_var}
    if model in ("bocd", "dsm_bocd"):
        return settings | {"hazard": begin.hazard}
    if model == "beam_ihmm":
        return settings | {"iterations": BEAM_ITERATIONS}
    if model == "least_squares":
        return {}
    if model == "student_t_ihmm":
        del settings["noise"]
        settings |= {"noise_shape": 5.0, "noise_scale": 5.0 * begin.noise}  # the same guess of R
    settings |= _family(model) | _RULES[variant]
    if variant == FIRST and stream in LAGGED:
        settings["rule"] = _EDITION_ONE | {"D13": "paper"}
    return settings


def of(stream: str, model: str, variant: str) -> Settings:
    """Return the settings of a variant: printed, found by the search, or the defaults."""
    if variant not in TITLES:
        raise unknown("variant", variant, TITLES)
    if variant == PRINTED:
        return printed(stream, model)
    if variant == BASELINE_R:
        given = printed(stream, model)
        return given | {"noise": BASELINE_NOISE.get(stream, given["noise"])}
    found: Settings = tuned(stream, model, variant).get("best", {})
    if model == "beam_ihmm":  # it has no online forecasts and uses the settings found for ihmm
        searched = of(stream, "ihmm", SECOND)
        found = {name: searched[name] for name in ("noise", "prior_var")}
    return start(stream, model, variant) | found


def degree(stream: str, model: str, variant: str) -> int:
    """Return the power p of the electricity covariates; not used on other streams."""
    if stream != "electricity":
        return 2
    if variant in (PRINTED, PAPER_R, BASELINE_R):
        return FITTED[stream][model].degree or 1
    return int(tuned(stream, model, variant).get("degree", 1))


def part(stream: str, model: str, variant: str, changes: Settings | None = None) -> Part:
    """Return one run of a variant.

    Args:
        stream, model, variant: names.
        changes: settings to change.

    Example:
        >>> part("iid_t", "br_ihmm", "printed", {"batch": 9}).settings["batch"]
        9
    """
    chosen = of(stream, model, variant) | (changes or {})
    return Part(
        stream,
        model,
        chosen,
        degree=degree(stream, model, variant),
        pending=unsearched(stream, model, variant),
    )


def title(model: str, variant: str) -> str:
    """Return a variant in words; some models have no rule.

    Example:
        >>> title("br_ihmm", "second"), title("bocd", "second")
        ('second edition, tuned', 'tuned')
    """
    ruled = model in WITH_PARTICLES or variant != SECOND
    return TITLES[variant] if ruled else "tuned"


def tuned_path(stream: str, model: str, variant: str) -> Path:
    """Return the file with the result of a search."""
    return TUNED / f"{stream}-{model}-{variant}.json"


def tuned(stream: str, model: str, variant: str) -> dict[str, Any]:
    """Return the result of a search as `tuning` wrote it; {} if there is none."""
    path = tuned_path(stream, model, variant)
    if _CACHED_FILES is None:
        return _found(path)
    if path not in _CACHED_FILES:
        _CACHED_FILES[path] = _found(path)
    return _CACHED_FILES[path]


@contextmanager
def cached_files() -> Iterator[None]:
    """Read settings files once while an item is made, although a search may replace them."""
    global _CACHED_FILES
    _CACHED_FILES = {}
    try:
        yield
    finally:
        _CACHED_FILES = None


def unsearched(stream: str, model: str, variant: str) -> bool:
    """Return whether the search for the settings of a variant has not been done."""
    if model == "beam_ihmm":  # it uses the settings found for ihmm
        model, variant = "ihmm", SECOND
    return variant not in (PRINTED, BASELINE_R, UNTUNED) and not tuned(stream, model, variant)


def _found(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return content


def _family(model: str) -> Settings:
    """Return the settings that all models with particles share in the experiments."""
    shared = {"particles": PARTICLES, "max_regimes": MAX_REGIMES}
    return shared if model in WITH_PARTICLES else {}
