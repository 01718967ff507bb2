"""Stress suite: the state of a model after faulty measurements.

A stream of three recurring levels is contaminated inside a known regime. The forecasts are scored
from two batches after the contamination: the model must still be in the right regime and recognize
earlier regimes that return.

    excess = (mean over seeds of RMSE after it) / (mean over seeds of RMSE without it) - 1
    opened = regimes reported as new from its first observation until two batches after its last,
             less those that the same model opens there on the clean stream; mean over seeds
    during = the excess of the rows in between

The RMSE is of one-step forecasts against clean values, over the same observations, by the same
model with the same seed, so numerator and denominator differ only by the contamination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit import robustness as influence
from regimekit.core.exceptions import RegimekitError, positive, unknown, whole
from regimekit.core.model import Model
from regimekit.datasets.contamination import Contaminated, contaminate, duplicate
from regimekit.distributions.forecast import Forecast
from regimekit.results import OPENED

Array = NDArray[np.float64]
Maker = Callable[[int], Model]

LEVELS = (-1.0, 1.0, 3.0)  # not 0, so that a window of zeros is a fault
NOISE_SD = 0.5
_PATH = ((0, 30), (1, 20), (2, 60), (0, 20), (1, 15), (2, 15))  # level, half batches
_START = 40  # batches; 15 of them in the regime that is contaminated
_SETTLING = 2  # batches
_SPARSE = 8  # every eighth interval is checked, because intervals are slow
_OFFSETS = np.geomspace(0.5, 1e12, 60)  # candidates of the adversary, in standard deviations


class Stage(NamedTuple):
    """A clean stream and where contamination begins.

    Attributes:
        y: (T,) the observations.
        start: index of the first observation that may be contaminated.
        batch: B, the unit in which lengths are measured.
        burst: observations in a short burst.
        size: height of bursts and spikes in standard deviations of the noise.
        seed: of the stream and of the contamination.
    """

    y: Array
    start: int
    batch: int
    burst: int
    size: float
    seed: int


class Cell(NamedTuple):
    """One model under one contamination, over all seeds.

    Attributes:
        model, kind: what it is a cell of.
        excess: relative rise of the RMSE after the contamination; NaN where the model failed.
        opened: regimes opened by it, per run.
        during: relative rise of the RMSE from its first observation to the end of the settling.
        rmse: mean RMSE after it.
        clean_rmse: mean RMSE of the same observations without it.
        finite: whether every mean, sd and log score and every eighth interval was finite.
        n_bytes: largest snapshot at the end of a run.
        failure: what the model raised, or nothing.
    """

    model: str
    kind: str
    excess: float
    opened: float
    during: float
    rmse: float
    clean_rmse: float
    finite: bool
    n_bytes: int
    failure: str = ""


@dataclass(frozen=True)
class Stress:
    """All cells, model by model in the order given.

    Attributes:
        rows: one `Cell` per model and kind.
    """

    rows: tuple[Cell, ...]

    def cell(self, model: str, kind: str) -> Cell:
        """Return the cell of a model and a contamination.

        Args:
            model: label of the model.
            kind: name of the contamination.
        """
        for row in self.rows:
            if (row.model, row.kind) == (model, kind):
                return row
        raise RegimekitError(f"There is no cell model={model!r}, kind={kind!r}.")


def stress(
    models: Mapping[str, Maker],
    kinds: Iterable[str] | None = None,
    seeds: Iterable[int] = range(6),
    *,
    batch: int = 6,
    burst: int = 3,
    size: float = 10.0,
) -> Stress:
    """Run every model on every contamination.

    Args:
        models: makers by label: each takes a seed and returns a new model.
        kinds: keys of `KINDS`; all of them by default.
        seeds: one stream and one model each. A multiple of the batch has every position of a
            switch within a batch equally often.
        batch: B of the models that have one; the unit of all lengths.
        burst: observations in a short burst; `regimekit.sensitivity` computes which are
            ignored.
        size: height of spikes, bursts and drift, in standard deviations of the noise.

    Example:
        >>> import regimekit as rk
        >>> from paper.stress import stress
        >>> def maker(seed):
        ...     return rk.br_ihmm(noise=0.25, prior_var=4.0, particles=10, seed=seed)
        >>> result = stress({"br_ihmm": maker}, ["isolated"], seeds=[0])
        >>> [(row.model, row.kind, row.finite) for row in result.rows]
        [('br_ihmm', 'isolated', True)]
    """
    chosen = list(KINDS if kinds is None else kinds)
    for kind in set(chosen) - set(KINDS):
        raise unknown("kinds", kind, KINDS)
    stages = [stage(seed, batch=batch, burst=burst, size=size) for seed in seeds]
    if not (stages and models and chosen):
        raise RegimekitError("models, kinds and seeds must hold at least one entry each.")
    rows: list[Cell] = []
    for label, maker in models.items():
        tried = [trials(maker, scene, chosen) for scene in stages]
        rows += [cell_of(label, kind, [trial[kind] for trial in tried]) for kind in chosen]
    return Stress(tuple(rows))


def stage(seed: int, *, batch: int = 6, burst: int = 3, size: float = 10.0) -> Stage:
    """Return the stream of one seed: levels -1, 1 and 3, noise of standard deviation 0.5.

    The third level is contaminated after 15 batches of it; then the stream continues there, returns
    to the first, to the second and to the third: 80 batches in all. Every switch is `seed` modulo
    `batch` observations later than with seed 0.

    Args:
        seed: seed of the stream.
        batch: B.
        burst: observations in a short burst.
        size: height of spikes, bursts and drift, in standard deviations of the noise.

    Example:
        >>> from paper.stress import stage
        >>> scene = stage(1)
        >>> len(scene.y), scene.start
        (481, 241)
    """
    wait = whole("seed", seed, least=0) % whole("batch", batch)
    rng = np.random.default_rng([seed, 1])
    levels = np.repeat([LEVELS[k] for k, _ in _PATH], [n * batch // 2 for _, n in _PATH])
    levels = np.concatenate([np.full(wait, LEVELS[0]), levels])
    y = levels + NOISE_SD * rng.standard_normal(levels.size)
    start, height = _START * batch + wait, positive("size", size)
    return Stage(y, start, batch, whole("burst", burst), height, seed)


@dataclass(frozen=True)
class Recipe:
    """A contamination of `regimekit.datasets`, with its place.

    Attributes:
        kind: what `contaminate` calls it.
        place: `points` (six, scattered over six batches), `bursts` (three short ones) or `block`.
        batches: length of a block.
        settings: further arguments of `contaminate`.
    """

    kind: str
    place: str
    batches: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, scene: Stage, model: Model) -> Contaminated:
        rng = np.random.default_rng([scene.seed, 2])
        length = round(self.batches * scene.batch) if self.batches else scene.burst
        return contaminate(
            scene.y,
            self.kind,
            rng,
            positions=_positions(self.place, scene, rng),
            length=length,
            offset=scene.size * NOISE_SD,
            **self.settings,
        )


def _positions(place: str, scene: Stage, rng: np.random.Generator) -> list[int]:
    step = {"points": scene.batch, "bursts": 2 * scene.batch}.get(place)
    if step is None:
        return [scene.start]
    room = max(step - (scene.burst if place == "bursts" else 1), 1)  # the windows do not touch
    count = 6 * scene.batch // step
    return [scene.start + step * k + int(rng.integers(room)) for k in range(count)]


def _duplicated(scene: Stage, model: Model) -> Contaminated:
    length = 2 * scene.batch + scene.batch // 2  # shifts later batches by half a batch
    return duplicate(scene.y, range(scene.start, scene.start + length))


def _adversarial_points(scene: Stage, model: Model) -> Contaminated:
    """Return a short burst; each value is the most influential one given those before."""
    mind, chosen = model.copy(), scene.y.copy()
    for t in range(scene.start, scene.start + scene.burst):
        values = _tried(scene.y[t])
        chosen[t] = values[np.nanargmax(_influence(mind, values, scene.y[t:]))]
        mind.update(chosen[t])
    return Contaminated(chosen, chosen != scene.y)


def _adversarial_batch(scene: Stage, model: Model) -> Contaminated:
    """Return a whole batch replaced by the single most influential value."""
    chosen, span = scene.y.copy(), slice(scene.start, scene.start + scene.batch)
    values = _tried(scene.y[scene.start])
    chosen[span] = values[np.nanargmax(_influence(model, values, scene.y[span], "all"))]
    return Contaminated(chosen, chosen != scene.y)


def _tried(around: float) -> Array:
    return around + NOISE_SD * np.concatenate([-_OFFSETS[::-1], _OFFSETS])


def _influence(model: Model, values: Array, clean: Array, position: Any = 0) -> Array:
    """Return the influence of each value on the posterior at the end of its batch.

    For models without such a posterior it is the shift of the next forecast.
    """
    engine = getattr(model, "engine", None)
    if engine is None:
        return np.array([_forecast_shift(model, value, clean[0]) for value in values])
    clock = engine.clock
    left = int((np.asarray(clock.size) - np.asarray(clock.position)).min())
    known_noise = "noise" in model.settings()
    measure = influence.joint_pif if known_noise else influence.state_pif
    return np.asarray(measure(model, values, clean=clean[:left], position=position))


def _forecast_shift(model: Model, value: float, clean: float) -> float:
    believer, sceptic = model.copy(), model.copy()
    believer.update(value)
    sceptic.update(clean)
    return abs(float(believer.predict().mean) - float(sceptic.predict().mean))


KINDS: dict[str, Callable[[Stage, Model], Contaminated]] = {
    "isolated": Recipe("isolated", "points"),
    "one_sided": Recipe("one_sided", "points"),
    "short_bursts": Recipe("burst", "bursts"),
    "long_burst": Recipe("burst", "block", 2),
    "alternating": Recipe("alternating", "block", 2),
    "drift": Recipe("drift", "block", 4),
    "stuck": Recipe("stuck", "block", 3),
    "missing": Recipe("missing", "block", 3),
    "duplicated": _duplicated,
    "unit_change": Recipe("scaled", "block", 2, {"factor": 1000.0}),
    "huge": Recipe("replaced", "block", 2, {"value": 1e300}),
    "denormal": Recipe("replaced", "block", 2, {"value": 1e-310}),
    "adversarial_points": _adversarial_points,
    "adversarial_batch": _adversarial_batch,
}


class _Record(NamedTuple):
    """Outputs of a model from the start of the contamination on."""

    mean: Array
    finite: bool
    opened: list[int]  # times at which a regime was reported as new
    n_bytes: int

    def opened_by(self, time: int) -> int:
        return sum(when < time for when in self.opened)


class Trial(NamedTuple):
    """One model on one contaminated stream, and on the clean one."""

    during: float = np.nan
    rmse: float = np.nan
    clean_during: float = np.nan
    clean_rmse: float = np.nan
    opened: int = 0
    finite: bool = False
    n_bytes: int = 0
    failure: str = ""


def trials(maker: Maker, scene: Stage, kinds: list[str]) -> dict[str, Trial]:
    """Return the trials of every kind from the same state; the clean start is run once.

    Args:
        maker: maker of the model.
        scene: the stream.
        kinds: keys of `KINDS`.
    """
    model = maker(scene.seed)
    for y in scene.y[: scene.start]:
        model.update(y)
    clean = _record(model.copy(), scene.y[scene.start :])
    return {kind: _trial(model, scene, clean, kind) for kind in kinds}


def _trial(model: Model, scene: Stage, clean: _Record, kind: str) -> Trial:
    target = scene.y[scene.start :]
    try:
        dirty = KINDS[kind](scene, model.copy())
        record = _record(model.copy(), dirty.y[scene.start :])
    except Exception as error:  # any error is reported in the cell
        return Trial(failure=f"{type(error).__name__}: {error}")
    split = int(np.flatnonzero(dirty.mask)[-1]) + 1 + _SETTLING * scene.batch - scene.start
    shift = len(record.mean) - len(target)  # second deliveries: the last rows are the same
    truth = target if shift == 0 else dirty.y[scene.start :]
    dirty_rmse, clean_rmse = _rmse(record, truth, split), _rmse(clean, target, split - shift)
    opened = record.opened_by(scene.start + split) - clean.opened_by(scene.start + split - shift)
    return Trial(*dirty_rmse, *clean_rmse, opened, record.finite, record.n_bytes)


def _record(model: Model, y: Array) -> _Record:
    forecasts: list[Forecast] = []
    log_scores, opened = [], []
    for value in y:
        forecasts.append(model.predict())
        step = model.update(value)
        log_scores.append(step.log_score)
        opened += [event.time for event in step.events if event.kind == OPENED]
    mean, sd = np.array([(forecast.mean, forecast.sd) for forecast in forecasts]).T
    ends = [np.array([f.quantile(q) for f in forecasts[::_SPARSE]]) for q in (0.05, 0.95)]
    outputs = [mean, sd, np.array(log_scores)[~np.isnan(y)], *ends]
    finite = all(bool(np.isfinite(column).all()) for column in outputs)
    return _Record(mean, finite, opened, len(model.to_bytes()))


def _rmse(record: _Record, y: Array, split: int) -> tuple[float, float]:
    """Return the RMSE of the rows before `split` and of those from it on."""
    error = np.abs(record.mean / 2 - y / 2)
    return _root_mean_square(error[:split]), _root_mean_square(error[split:])


def _root_mean_square(half: Array) -> float:
    """Return the root mean square of twice these, scaled first, because errors may be 1e300."""
    top = max(float(half.max()), np.finfo(float).tiny)
    return 2 * (top * float(np.sqrt(np.square(half / top).mean())))


def cell_of(label: str, kind: str, trials: list[Trial]) -> Cell:
    """Return the cell of the trials of one model under one contamination.

    Args:
        label: label of the model.
        kind: key of `KINDS`.
        trials: one trial per seed.
    """
    n = len(trials)
    during, rmse, calm, usual = (
        float(sum(getattr(trial, name) / n for trial in trials)) for name in Trial._fields[:4]
    )
    return Cell(
        label,
        kind,
        rmse / usual - 1.0,
        sum(trial.opened for trial in trials) / n,
        during / calm - 1.0,
        rmse,
        usual,
        all(trial.finite for trial in trials),
        max(trial.n_bytes for trial in trials),
        next((trial.failure for trial in trials if trial.failure), ""),
    )


def format_cell(cell: Cell, figure: str) -> str:
    """Return a cell as text for a table.

    Args:
        cell: the cell.
        figure: `excess` (and the opened regimes after the slash) or `during`.
    """
    if figure not in ("excess", "during"):
        raise unknown("figure", figure, ("excess", "during"))
    if cell.failure:
        return cell.failure.split(":")[0]
    value = getattr(cell, figure)
    text = f"{100.0 * value:+.1f} %" if value < 10 else f"{value + 1.0:.1e} times"
    text += f" / {cell.opened:.1f}" if figure == "excess" else ""
    return text + ("" if cell.finite else ", not finite")
