"""`python -m benchmarks.untuned [--seeds 20] [--only NAME ..]`: the rule's targets, nothing tuned.

Every row is one question to a model with given units (or, if the row states it, given noise): means
over seeds 0 .. n - 1, the goal, and whether it was reached. With `--out FILE` the table is written
as Markdown, with versions.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import stats

import regimekit as rk
from regimekit.preprocessing.scaling import measure

BY_HAND = "<!-- by hand -->"  # the text after it in a page is not generated

Array = NDArray[np.float64]
UNITS = {"prior_var": 100.0, "noise_shape": 5.0, "noise_scale": 5.0}  # noise about 1, unknown
RUN_THRESHOLD = 2  # as in the paper's tables


class Goal(NamedTuple):
    """A measure, and a goal for its mean."""

    measure: str
    value: float
    at_least: bool = False

    def met(self, mean: float) -> bool:
        return mean >= self.value if self.at_least else mean <= self.value

    def words(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.value:g}"


class Question(NamedTuple):
    """A stream, the measures of one run on it, and the goals."""

    stream: str
    ask: Callable[[int], dict[str, float]]
    goals: tuple[Goal, ...]
    runs: int | None = None  # number of runs if not as requested, for real series


def in_units(y: Array) -> tuple[Array, float, float]:
    """Return the stream in units from differences of its first 100 rows, centre and scale."""
    centre, scale, _ = measure(y[:100, None])
    return (y - centre[0]) / scale[0], float(centre[0]), float(scale[0])


def alarms(y: Array, model: rk.models.RegimeModel) -> dict[str, float]:
    """Return the alarms of a stream without any change."""
    run = model.run(y)
    known = run.path[run.path >= 0]
    return {
        "runs with more than one regime": float(len(np.unique(known)) > 1),
        "switches per 1000 rows": 1000 * rk.evaluate.switches(run.regime[run.regime >= 0]) / len(y),
        "coverage of 90 %": rk.evaluate.coverage(y, run.lower, run.upper),
    }


def gauss_noise(seed: int) -> dict[str, float]:
    y = np.random.default_rng(seed).normal(size=1000)
    return alarms(y, rk.student_t_ihmm(**UNITS, seed=seed))


def heavy_noise(seed: int) -> dict[str, float]:
    y = np.random.default_rng(seed).standard_t(3, 1000)
    return alarms(y, rk.student_t_ihmm(**UNITS, seed=seed))


def autoregression(seed: int) -> dict[str, float]:
    shocks = np.random.default_rng(seed).normal(size=1000)
    y = np.empty(1000)
    for t, shock in enumerate(shocks):
        y[t] = (0.5 * y[t - 1] if t else 0.0) + shock
    features = rk.features.intercept() + rk.features.lags(1)
    return alarms(y, rk.student_t_ihmm(**UNITS, features=features, seed=seed))


def iid(noise: str) -> Callable[[int], dict[str, float]]:
    def ask(seed: int) -> dict[str, float]:
        stream = rk.data.iid_regimes(seed, noise=noise)
        y, centre, scale = in_units(stream.y)
        run = rk.student_t_ihmm(**UNITS, seed=seed).run(y)
        reference = rk.evaluate.oracle(stream, 0.25 if noise == "gauss" else 1.125, 4.0)
        error = rk.evaluate.rmse(stream.clean, centre + scale * run.mean)
        return {
            "regimes (3 true)": float(rk.evaluate.n_regimes(run.path)),
            "adjusted Rand": rk.evaluate.adjusted_rand(run.path, stream.regimes),
            "RMSE over the oracle's": error / rk.evaluate.rmse(stream.clean, reference.mean),
            "the same of a filter with all parameters known except the path": rk.evaluate.rmse(
                stream.clean, filter_with_known_parameters(stream, noise)
            )
            / rk.evaluate.rmse(stream.clean, reference.mean),
            "coverage of 90 %": rk.evaluate.coverage(y, run.lower, run.upper),
        }

    return ask


def filter_with_known_parameters(stream: rk.data.Dataset, noise: str) -> Array:
    """Return one-step means of a filter with known levels, noise, outlier rate and durations.

    It is a bound for online methods; the times of the changes are given to the oracle only.
    """
    levels = np.asarray(stream.info["means"])
    law = stats.norm(0.0, 0.5) if noise == "gauss" else stats.t(3, scale=np.sqrt(3 / 8))
    rate, stay = float(np.mean(stream.outliers)), 0.995  # as generated
    moves = np.full((levels.size, levels.size), (1 - stay) / (levels.size - 1))
    np.fill_diagonal(moves, stay)
    mass, means = np.full(levels.size, 1 / levels.size), np.empty(len(stream.y))
    for t, y in enumerate(stream.y):
        mass = mass @ moves
        means[t] = mass @ levels
        outlier = stats.t.pdf(y, 2, means[t], 20 * 0.5)
        mass = mass * ((1 - rate) * law.pdf(y - levels) + rate * outlier)
        mass /= mass.sum()
    return means


def synthetic(seed: int) -> dict[str, float]:
    stream = rk.data.synthetic_regression(seed, signal_sd=10.0)
    model = rk.br_ihmm(noise=1.0, prior_var=1.0, batch=2, features=rk.features.columns(), seed=seed)
    run = model.run(stream.y, stream.X)
    reference = rk.evaluate.oracle(stream, 1.0, 1.0)
    clean = stream.clean if stream.clean is not None else stream.y
    match = rk.evaluate.match_regimes(run.path, stream.changepoints, RUN_THRESHOLD)
    return {
        "RMSE over the oracle's": rk.evaluate.rmse(clean, run.mean)
        / rk.evaluate.rmse(clean, reference.mean),
        "adjusted Rand": rk.evaluate.adjusted_rand(run.path, stream.regimes),
        "PPV": match.ppv,
        "TPR": match.tpr,
        "delay, as known": rk.evaluate.detection_delay(run.regime, stream.changepoints),
    }


def well_log(seed: int) -> dict[str, float]:
    stream = rk.data.load("well_log")
    y, _, _ = in_units(stream.y)
    run = rk.br_ihmm(noise=1.0, prior_var=100.0, batch=5, seed=seed).run(y)
    match = rk.evaluate.match_regimes(run.regime, stream.changepoints, RUN_THRESHOLD)
    return {
        "PPV, as known": match.ppv,
        "TPR, as known": match.tpr,
        "delay, as known": rk.evaluate.detection_delay(run.regime, stream.changepoints),
        "regimes": float(rk.evaluate.n_regimes(run.path)),
    }


def well_specified(seed: int) -> dict[str, float]:
    """Return scores on levels N(0, 10) that change at any time, with known noise N(0, 1)."""
    rng = np.random.default_rng(seed)
    levels = rng.normal(0.0, np.sqrt(10.0), 3)
    state = np.cumsum(rng.random(1500) < 0.02) % 3
    y = levels[state] + rng.normal(size=1500)
    model = rk.br_ihmm(noise=1.0, prior_var=10.0, seed=seed)
    found = {}
    for level in (0.5, 0.8, 0.95):
        run = model.copy().run(y, level=level)
        covered = rk.evaluate.coverage(y, run.lower, run.upper)
        found[f"|coverage of {level:.0%} - {level}|"] = covered - level
    return found


def first_far_off(seed: int) -> dict[str, float]:
    y = np.random.default_rng(seed).normal(size=200)
    y[0] = 10.0
    run = rk.student_t_ihmm(**UNITS, seed=seed).run(y)
    return {
        "extra regimes": float(len(np.unique(run.path[run.path >= 0])) - 1),
        "distance of the 8th forecast from 0": abs(float(run.mean[7])),
    }


NO_ALARM = (Goal("runs with more than one regime", 0.05), Goal("switches per 1000 rows", 0.5))
LEVELS = (Goal("regimes (3 true)", 3.2), Goal("adjusted Rand", 0.96, at_least=True))
QUESTIONS = {
    "gauss_noise": Question("iid N(0, 1), noise unknown", gauss_noise, NO_ALARM),
    "heavy_noise": Question("iid t(3), noise unknown", heavy_noise, NO_ALARM),
    "autoregression": Question("AR(1) 0.5 with lag 1, noise unknown", autoregression, NO_ALARM),
    "iid_gauss": Question(
        "paper's iid levels, Gauss, noise unknown",
        iid("gauss"),
        (*LEVELS, Goal("RMSE over the oracle's", 1.13)),
    ),
    "iid_t": Question(
        "paper's iid levels, t, noise unknown",
        iid("t"),
        (*LEVELS, Goal("RMSE over the oracle's", 1.045)),
    ),
    "synthetic": Question(
        "paper's regression m = 100, known noise, B 2",
        synthetic,
        (
            Goal("RMSE over the oracle's", 1.08),
            Goal("adjusted Rand", 0.97, at_least=True),
            Goal("PPV", 0.97, at_least=True),
            Goal("TPR", 0.99, at_least=True),
            Goal("delay, as known", 3.4),
        ),
    ),
    "well_log": Question(
        "well-log, no label used, B 5",
        well_log,
        (
            Goal("PPV, as known", 0.70, at_least=True),
            Goal("TPR, as known", 0.90, at_least=True),
            Goal("delay, as known", 13.0),
            Goal("regimes", 15.0),
        ),
        runs=3,
    ),
    "well_specified": Question(
        "well-specified levels, changes at any moment",
        well_specified,
        tuple(Goal(f"|coverage of {p:.0%} - {p}|", 0.015) for p in (0.5, 0.8, 0.95)),
    ),
    "first_far_off": Question(
        "N(0, 1), the first observation 10 sd off",
        first_far_off,
        (Goal("extra regimes", 0.1), Goal("distance of the 8th forecast from 0", 1.0)),
    ),
}


def answer(question: Question, seeds: int) -> Iterator[str]:
    """Yield one row of the table per measure."""
    runs = question.runs or seeds
    found = Parallel(n_jobs=2)(delayed(question.ask)(seed) for seed in range(runs))
    goals = {goal.measure: goal for goal in question.goals}
    for name in found[0]:
        mean = float(np.mean([one[name] for one in found]))
        goal = goals.get(name)
        if name.startswith("|"):  # the bias of the mean, not the mean of biases
            mean = abs(mean)
        wanted, met = (goal.words(), "yes" if goal.met(mean) else "no") if goal else ("", "")
        yield f"| {question.stream} | {name} | {wanted} | {mean:.4g} | {runs} | {met} |"


def ask_all(questions: dict[str, Question], module: str, title: str, seeds: int) -> None:
    """Run the command line of a table of questions.

    Args:
        questions: questions by name.
        module: module for the page.
        title: title of the page.
        seeds: default number of seeds.
    """
    options = argparse.ArgumentParser(prog=f"python -m {module}", description=title)
    options.add_argument("--seeds", type=int, default=seeds)
    options.add_argument("--only", nargs="*", choices=list(questions), default=list(questions))
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    lines = ["| stream | measure | wanted | mean | runs | met |", "|---|---|---|---|---|---|"]
    print("\n".join(lines))
    for name in given.only:
        for line in answer(questions[name], given.seeds):
            lines.append(line)
            print(line, flush=True)
    if given.out:
        made = f"regimekit {rk.__version__}, Python {platform.python_version()}, "
        made += f"NumPy {np.__version__}, seeds 0 .. n - 1"
        reference = f"Made by `python -m {module} --out FILE` with {made}.\n\n"
        write_page(given.out, f"# {title}\n\n{reference}" + "\n".join(lines) + "\n")


def write_page(path: Path, made: str) -> None:
    """Write a page; the text after the line `BY_HAND` in the present one is kept."""
    before = path.read_text("utf-8") if path.exists() else ""
    _, mark, kept = before.partition(BY_HAND)
    path.write_text(f"{made}\n{mark}{kept}" if mark else made, "utf-8")


if __name__ == "__main__":
    ask_all(QUESTIONS, "benchmarks.untuned", "The rule on streams without tuning", 20)
