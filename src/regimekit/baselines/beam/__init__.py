"""The offline infinite HMM, sampled by beams (Van Gael et al. 2008).

It reads the whole stream, then says which regimes there were: a reference for the online
models, not one of them. What it says about an observation has seen all that came after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.beam.fit import BeamFit
from regimekit.baselines.beam.regression import Data
from regimekit.baselines.beam.sampler import Sampler, Trace
from regimekit.baselines.beam.settings import BeamSettings, read_pair
from regimekit.core.advice import HINDSIGHT
from regimekit.core.covariates import (
    LARGEST,
    bounded,
    new_past,
    pack_first,
    read_first,
    read_past,
)
from regimekit.core.exceptions import RegimekitError, moderate, observation, whole
from regimekit.core.maker import Numbers, Pair, Terms, json_value, maker
from regimekit.core.model import Array, Model, in_turn
from regimekit.core.recorder import Block, Recorder
from regimekit.core.warnings import say_once
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.linear import FARTHEST
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.features import Features, Past
from regimekit.preprocessing.frames import Row, Series, Table, read_series, read_table
from regimekit.results import OPENED, RETURNED, Event, Regime, Run, Step, Transitions
from regimekit.serialization.validation import Arrays, Values

__all__ = ["BeamFit", "BeamIhmm", "BeamSettings", "beam_ihmm"]

_BLOCK = 1024  # observations whose predictive mixtures are held at a time


class BeamIhmm(Model):
    """Offline infinite HMM: learns from the whole stream at once, each time it is asked.

    `update` only remembers. `fit`, `run`, `predict`, `forecast`, `regimes` and `transitions` run
    the sampler if the data grew since they last did; its random draws depend on the seed and the
    number of observations alone, so asking changes nothing.
    """

    name = "beam_ihmm"
    dim = 1

    def __init__(self, settings: BeamSettings) -> None:
        self.features: Features = feature_maps.read(settings.features)
        self.chosen = replace(settings, features=self.features.to_json())
        self._plan = settings.plan()
        for scale in ("prior_mean", "prior_var", "noise_prior"):
            moderate(scale, getattr(settings, scale))
        moderate("noise", settings.known_noise() or 1.0)
        settings.concentration()
        read_pair("noise_prior", settings.noise_prior, "scale")
        whole("seed", settings.seed, least=0)
        self._forget()

    def _forget(self) -> None:
        self._y: list[float] = []
        self._design: list[Array] = []
        self._past = new_past(self.features, 1)
        self._like: Row | None = None  # the first covariates: later ones take their order
        self._fit: BeamFit | None = None

    @in_turn
    def fit(self, y: Any = None, X: Any = None, progress: bool = False) -> BeamFit:
        """Sample the posterior of a stream, which replaces all data given before.

        Args:
            y: observations, (T,): array, list or series; None for those given so far.
            X: covariates, one row per observation.
            progress: show a progress bar.

        Example:
            >>> from regimekit.baselines.beam import beam_ihmm
            >>> y = [0.0, 0.2, 0.1, 4.0, 4.1, 3.9, 4.2]
            >>> fit = beam_ihmm(noise=0.01, prior_var=9.0, iterations=100).fit(y)
            >>> fit.path.tolist()
            [0, 0, 0, 1, 1, 1, 1]
        """
        if y is not None:
            series = read_series(y)
            self._append(series, read_table(X, length=len(series.values)), afresh=True)
        elif X is not None:
            raise RegimekitError("X is given without y.")
        return self._fitted(progress)

    def run(self, y: Any, X: Any = None, progress: bool = False, level: float = 0.9) -> Run:
        """Append a stream and fit: in-sample, every row has seen the whole stream.

        `mean`, `sd`, `lower`, `upper` describe the smoothed predictive of each observation,
        `log_score` its log density there; `regime` and `path` are the best path's, numbered by
        first appearance; `regime_probability` is the share of draws that agree with it.

        Args:
            y: observations, (T,): array, list or series.
            X: covariates, one row per observation.
            progress: show a progress bar.
            level: probability that the interval `lower` .. `upper` should hold.
        """
        recorder = Recorder(level)
        series = read_series(y)
        return self._run(series, read_table(X, length=len(series.values)), recorder, progress)

    def _run(self, series: Series, table: Table | None, recorder: Recorder, progress: bool) -> Run:
        first = len(self._y)
        self._append(series, table)
        say_once(self._said, "hindsight", HINDSIGHT.format(name=self.name), stacklevel=6)
        # In-sample predictives are not forecasts: `recorder` must not score them.
        recorder = Recorder(recorder.level)
        fit = self._fitted(progress)
        steps = _steps(fit)
        for start in range(first, len(fit), _BLOCK):
            forecasts = list(fit.smoothed(start, min(start + _BLOCK, len(fit))))
            told = []
            for i, forecast in enumerate(forecasts, start):
                score = float(forecast.log_density(fit.data.y[i]))
                told.append(steps[i]._replace(log_score=score))
            recorder.add(Block.of(forecasts, told, start))
        run = recorder.run(series)
        self._note(run)
        return run

    def update(self, y: Any, x: Any = None) -> Step:
        """Remember one observation. The Step says nothing of regimes: nothing is learnt yet."""
        vector = observation(y)
        if vector.size > 1:
            raise _too_wide(vector.size)
        self._remember(vector, self._check(x))
        return Step(n_regimes=0, settled=0)

    @property
    def n_observations(self) -> int:
        """How many observations the model has been given."""
        return len(self._y)

    def regimes(self) -> list[Regime]:
        """Regimes of the best path, in order of first appearance."""
        return self._fitted().regimes()

    def transitions(self) -> Transitions:
        """Transition matrix of the best draw."""
        return self._fitted().transitions()

    def settings(self) -> dict[str, Any]:
        return {key: json_value(value) for key, value in asdict(self.chosen).items()}

    @classmethod
    def _make(cls, settings: dict[str, Any]) -> Self:
        return cls(BeamSettings(**settings))

    def _check(self, x: Any) -> Row | None:
        return self.features.check(x, like=self._like)

    def _predict(self, x: Row | None) -> Forecast:
        return self._forecast([x])[0]

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        forecast = self._predict(x)
        self._remember(y, x)
        return forecast, Step(settled=0, log_score=float(forecast.log_density(y[0])))

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        fit = self._fitted() if self._y else self._blank(self.features.width(rows[0], 1))
        past = self._past.copy()
        made: list[Forecast] = []

        def designs() -> Iterator[Array]:
            for h, x in enumerate(rows):
                if h:
                    past.push(np.atleast_1d(made[-1].mean))  # lags beyond now: the forecast itself
                yield self._row(x, len(self._y) + h, past)

        for forecast in fit.forecasts(designs()):
            made.append(forecast)
        return made

    def _append(self, series: Series, table: Table | None, afresh: bool = False) -> None:
        """Remember a stream, all of it or, if anything is wrong with it, nothing."""
        if series.values.shape[1] > 1:
            raise _too_wide(series.values.shape[1])
        self._check_stream(series.values, table)
        keep = self._pack()
        if afresh:
            self._forget()
        try:
            for t, value in enumerate(series.values):
                self._remember(value, self._check(None if table is None else table.row(t)))
        except RegimekitError:
            self._unpack(*keep)
            raise

    def _remember(self, y: Array, x: Row | None) -> None:
        design = self._row(x, len(self._y), self._past)
        if not self._y:
            self.chosen.prior(len(design))
            self._like = x
        self._y.append(float(y[0]))
        self._design.append(design)
        self._past.push(y)
        self._fit = None

    def _row(self, x: Row | None, t: int, past: Past) -> Array:
        design = self.features.row(x, t, past.values)
        if self._design and len(design) != len(self._design[0]):
            raise RegimekitError(f"x gives {len(design)} features, not {len(self._design[0])}.")
        return bounded(design)

    def _fitted(self, progress: bool = False) -> BeamFit:
        if not self._y:
            return self._blank(1)
        if self._fit is None:
            y = np.clip(np.array(self._y), -FARTHEST, FARTHEST)
            data = Data(y, np.stack(self._design))
            prior = self.chosen.prior(data.design.shape[1])
            found = Sampler(data, prior, self._plan).run(self.chosen.seed, progress)
            self._fit = BeamFit(data, prior, found.trace, tuple(found.draws), found.best)
        return self._fit

    def _blank(self, width: int) -> BeamFit:
        """The fit of an empty stream: the prior."""
        none = np.zeros((self._plan.chains, 0))
        trace = Trace(none, none.astype(np.int64), none, none, none.astype(np.bool_))
        data = Data(np.zeros(0), np.zeros((0, width)))
        return BeamFit(data, self.chosen.prior(width), trace, (), None)

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        design = np.stack(self._design) if self._design else np.zeros((0, 0))
        arrays = {"y": np.array(self._y), "design": design} | self._past.pack()
        columns, first = pack_first(self._like)
        return columns, arrays | first

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self._forget()
        kept, stored = Values.of(values), Arrays.of(arrays)
        y = stored.floats("y", (None,), missing=True)
        like = read_first(kept, stored, self.features) if y.size else None
        width = self.features.width(like, 1) if y.size else 0
        design = stored.floats("design", (y.size, width), -LARGEST, LARGEST)
        if y.size:
            self.chosen.prior(width)  # refuses what does not fit so many features
        self._y, self._design, self._like = y.tolist(), list(design), like
        self._past = read_past(stored, self.features, 1)


@maker
def beam_ihmm(
    *,
    features: Terms | None = None,
    noise: float | Literal["unknown"] = 0.25,
    prior_mean: Numbers = 0.0,
    prior_var: Numbers = 1.0,
    iterations: int = 1000,
    burn_in: int | None = None,
    chains: int = 1,
    thin: int = 1,
    alpha_prior: Pair = (1.0, 1.0),
    gamma_prior: Pair = (1.0, 1.0),
    initial_regimes: int = 10,
    max_regimes: int = 100,
    noise_prior: Pair = (2.0, 0.5),
    seed: int = 0,
) -> BeamIhmm:
    """The offline infinite HMM, sampled by beams; y has one coordinate.

    It needs the whole stream: `fit` returns the posterior, `run` an in-sample summary, and
    `predict` fits all data so far before it forecasts.

    Args:
        features: f(x), from `regimekit.preprocessing.features`; an intercept by default.
        noise: variance of one observation around its regime, or "unknown" for one variance per
            regime, to be found out.
        prior_mean: mu0 of the coefficients: a number or a vector.
        prior_var: Sigma0 of the coefficients: a number, a vector or a matrix. With unknown noise
            their prior is Student's t with this scale and 2 * noise_prior[0] degrees of freedom.
        iterations: sweeps of each chain.
        burn_in: how many of them are thrown away at the beginning; half by default.
        chains: independent chains, each with its own start.
        thin: keep every thin-th sweep after burn-in.
        alpha_prior: (shape, rate) of the Gamma prior of alpha.
        gamma_prior: (shape, rate) of the Gamma prior of gamma.
        initial_regimes: segments that a chain begins with, cut at random.
        max_regimes: room for regimes, those that a sweep considers but leaves unused included;
            `fit.trace.cut` says where it did not suffice.
        noise_prior: (shape, scale) of the inverse-gamma prior of an unknown noise variance.
        seed: of the random draws.

    Example:
        >>> from regimekit.baselines.beam import beam_ihmm
        >>> model = beam_ihmm(noise=0.01, prior_var=9.0, iterations=100)
        >>> fit = model.fit([1.0, 1.1, 0.9, 5.0, 5.1, 4.9, 1.0, 1.1])
        >>> fit.path.tolist()
        [0, 0, 0, 1, 1, 1, 0, 0]
        >>> [round(float(regime.mean[0]), 1) for regime in model.regimes()]
        [1.0, 5.0]
    """
    return BeamIhmm(BeamSettings(**locals()))


def _steps(fit: BeamFit) -> list[Step]:
    """What the best path says of each observation."""
    told: set[int] = set()
    steps: list[Step] = []
    previous = -1
    columns = (fit.path, fit.path_probability, fit.change_probability)
    for t, (regime, agreed, moved) in enumerate(zip(*map(np.ndarray.tolist, columns), strict=True)):
        events = _events(t, regime, previous, told)
        told.add(regime)
        previous = regime
        steps.append(
            Step(
                regime,
                agreed,
                change_probability=moved,
                n_regimes=len(told),
                ess=float(len(fit.draws)),
                events=events,
            )
        )
    return steps


def _events(t: int, regime: int, previous: int, told: set[int]) -> tuple[Event, ...]:
    if regime == previous:
        return ()
    return (Event(t, RETURNED if regime in told else OPENED, regime, previous, t),)


def _too_wide(size: int) -> RegimekitError:
    return RegimekitError(f"y must have one coordinate for beam_ihmm, got {size}.")
