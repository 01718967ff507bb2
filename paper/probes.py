"""Questions other than runs of a model along a stream: one answer per seed, stored.

untuned   the rule on streams that nothing was tuned for (`benchmarks.untuned`)
auto      `auto` beside the best simple forecaster in hindsight (`benchmarks.auto`)
bursts    whether a burst of half a batch opens a regime (`benchmarks.bursts`)
protocol  interpretations of the paper's text on its synthetic stream (`readings`)
objective objectives of a search (`objectives`)
stress    state of a model after faulty measurements (`stress`)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import regimekit as rk
from paper import stress
from regimekit.ihmm import published

Answer = dict[str, float]
_ROOT = Path(__file__).parents[1]
AUTO_ROWS = 700
BURST_HEIGHTS = (6.0, 20.0, 1e6)  # nearer bursts of that length may open a regime
BURST_PRIORS = (4.0, 100.0)


# The noise of the stream is given to the models, the contamination is not.
BATCH = 6
_KNOWN = {"noise": stress.NOISE_SD**2, "prior_var": 4.0}
_GUESSED = {"prior_var": 4.0, "noise_shape": 5.0, "noise_scale": 5.0 * stress.NOISE_SD**2}
_FIFTY = {"particles": 50}
_CAREFUL = {"batch": BATCH, "weight": "imq", "threshold": 2.0}
STRESSED: dict[str, tuple[str, dict[str, Any]]] = {
    "br_ihmm": ("br_ihmm", _KNOWN | _FIFTY | {"batch": BATCH}),
    "br_ihmm, first edition": ("br_ihmm", _KNOWN | _FIFTY | _CAREFUL),
    "student_t_ihmm": ("student_t_ihmm", _GUESSED | _FIFTY | {"batch": BATCH}),
    "student_t_ihmm, first edition": ("student_t_ihmm", _GUESSED | _FIFTY | _CAREFUL),
    "student_t_ihmm, plain": ("student_t_ihmm", _GUESSED | _FIFTY | {"batch": 1, "weight": "none"}),
    "wolf_ihmm": ("wolf_ihmm", _KNOWN | _FIFTY),
    "ihmm": ("ihmm", _KNOWN | _FIFTY),
    "bocd": ("bocd", _KNOWN),
    "last_value": ("last_value", {}),
}


def _seeded(name: str) -> stress.Maker:
    model, settings = STRESSED[name]
    seeded = "seed" in rk.make(model).settings()
    return lambda seed: rk.make(model, **settings, **({"seed": seed} if seeded else {}))


class Probe(NamedTuple):
    """A function that answers a question, and the source that its answers depend on."""

    ask: Callable[[str, int], Answer]
    source: Path  # its imports from the library are followed
    models: tuple[str, ...] = ()  # models that it makes by name


def _untuned(name: str, seed: int) -> Answer:
    from benchmarks.untuned import QUESTIONS

    return dict(QUESTIONS[name].ask(seed))


def _auto(name: str, seed: int) -> Answer:
    from benchmarks import auto

    y, first = auto.generated(AUTO_ROWS, 77 + seed)[name]
    crps, coverage, _ = auto.scored(rk.auto(seed=seed), y, first)
    best = auto.best_simple(y, first)[0]
    covered = {f"coverage {p:.0%}": c for p, c in zip(auto.LEVELS, coverage, strict=True)}
    return {"log_ratio": float(np.log(crps / best)), "ratio": crps / best, **covered}


def _bursts(name: str, seed: int) -> Answer:
    from benchmarks.bursts import opens

    batch = int(name)
    tries = [
        opens(batch, batch // 2, height, seed, prior_var=prior)
        for height in BURST_HEIGHTS
        for prior in BURST_PRIORS
    ]
    return {"opened": float(np.mean(tries))}


def _stress(name: str, seed: int) -> Answer:
    scene = stress.stage(seed, batch=BATCH, burst=BATCH // 2)
    trials = stress.trials(_seeded(name), scene, list(stress.KINDS))
    return {
        f"{kind}.{field}": float(value)
        for kind, trial in trials.items()
        for field, value in trial._asdict().items()
        if field != "failure"
    }


def _protocol(name: str, seed: int) -> Answer:
    from paper import readings

    return readings.ask(name, seed)


def _objective(name: str, seed: int) -> Answer:
    from paper import objectives

    return objectives.ask(name, seed)


PROBES = {
    "untuned": Probe(_untuned, _ROOT / "benchmarks/untuned.py"),
    "auto": Probe(_auto, _ROOT / "benchmarks/auto.py"),
    "bursts": Probe(_bursts, _ROOT / "benchmarks/bursts.py"),
    "stress": Probe(_stress, _ROOT / "paper/stress.py", tuple(m for m, _ in STRESSED.values())),
    "objective": Probe(_objective, _ROOT / "paper/objectives.py", ("br_ihmm",)),
    "protocol": Probe(
        _protocol, _ROOT / "paper/readings.py", (*published.MODELS, "bocd", "beam_ihmm")
    ),
}
