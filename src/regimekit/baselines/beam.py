"""The offline infinite HMM with beam sampling (Van Gael et al. 2008).

It fits the whole stream at once and is a reference for the online models: its results for an
observation depend on all later observations, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.beam_fit import BeamFit, Data, Prior, Sampler, Sampling, Trace
from regimekit.core.advice import HINDSIGHT
from regimekit.core.covariates import MAX_FEATURE, bounded, pack_first, read_first, read_past
from regimekit.core.exceptions import (
    RegimekitError,
    moderate,
    numbers,
    observation,
    positive,
    unknown,
    whole,
)
from regimekit.core.limits import MAX_CHAINS, MAX_ITERATIONS, MAX_REGIMES
from regimekit.core.maker import Numbers, Pair, Terms, json_value, maker
from regimekit.core.model import Array, Callback, Model, locked
from regimekit.core.recorder import Block, Recorder
from regimekit.core.regime_description import describe
from regimekit.core.regime_statistics import RegimeStatistics
from regimekit.core.warnings import warn_once
from regimekit.distributions.forecast import Forecast, Forecasts
from regimekit.ihmm.emissions.matrices import read_covariance, read_vector
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.alignment import read_stream
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row, Series, Table, read_series, read_table
from regimekit.preprocessing.lag_buffer import LagBuffer
from regimekit.results import OPENED, RETURNED, Event, Regime, Run, Step, Transitions
from regimekit.serialization.validation import Arrays, Values, affordable

__all__ = ["BeamFit", "BeamIhmm", "BeamSettings", "beam_ihmm"]

UNKNOWN = "unknown"
MAX_VALUE = 1e100  # observations are clipped to this: their squares are finite
BLOCK = 1024  # observations whose predictive mixtures are stored at a time


@dataclass(frozen=True)
class BeamSettings:
    """Settings of the model, documented in `beam_ihmm`."""

    features: Terms | None = None
    noise: Numbers = 0.25
    prior_mean: Numbers = 0.0
    prior_var: Numbers = 1.0
    iterations: int = 1000
    burn_in: int | None = None
    chains: int = 1
    thin: int = 1
    alpha_prior: Pair = (1.0, 1.0)
    gamma_prior: Pair = (1.0, 1.0)
    initial_regimes: int = 10
    max_regimes: int = 100
    noise_prior: Pair = (2.0, 0.5)
    seed: int = 0

    def plan(self) -> Sampling:
        """Return the validated sizes of a run of the sampler."""
        iterations = whole("iterations", self.iterations, most=MAX_ITERATIONS)
        half = iterations // 2
        burn_in = half if self.burn_in is None else whole("burn_in", self.burn_in, least=0)
        if burn_in >= iterations:
            raise RegimekitError(f"burn_in must be below iterations={iterations}, got {burn_in}.")
        room = whole("max_regimes", self.max_regimes, most=MAX_REGIMES)
        first = whole("initial_regimes", self.initial_regimes)
        if first > room:
            raise RegimekitError(
                f"initial_regimes must be at most max_regimes={room}, got {first}."
            )
        thin, chains = whole("thin", self.thin), whole("chains", self.chains, most=MAX_CHAINS)
        affordable("chains * iterations", 5.0 * chains * iterations)  # the trace
        return Sampling(iterations, burn_in, thin, chains, first, room)

    def known_noise(self) -> float | None:
        """Return the noise variance, or None if it is estimated."""
        if isinstance(self.noise, str):
            if self.noise != UNKNOWN:
                raise unknown("noise", self.noise, [UNKNOWN])
            return None
        if np.size(self.noise) != 1:
            raise RegimekitError("noise must be one number: beam_ihmm models one coordinate of y.")
        return _finite("noise", np.reshape(self.noise, ())[()])

    def prior(self, width: int) -> Prior:
        """Return the prior of a regression."""
        mean = read_vector("prior_mean", self.prior_mean, width)
        covariance = read_covariance("prior_var", self.prior_var, width)
        shape, scale = read_pair("noise_prior", self.noise_prior, "scale")
        noise = self.known_noise()
        unit = scale / shape if noise is None else noise
        precision = np.asarray(unit * np.linalg.inv(covariance), np.float64)
        root = np.asarray(np.linalg.cholesky(covariance / unit), np.float64)
        known = noise is not None
        return Prior(mean, precision, root, known, unit, shape, scale, self.concentration())

    def concentration(self) -> Array:
        """Return shape and rate of the priors of alpha and gamma, (2, 2)."""
        alpha = read_pair("alpha_prior", self.alpha_prior, "rate")
        return np.array([alpha, read_pair("gamma_prior", self.gamma_prior, "rate")])


class BeamIhmm(Model):
    """Offline infinite HMM, created by `beam_ihmm`.

    `update` only stores the observation. `sample_posterior`, `run`, `predict`, `forecast`,
    `regimes` and `transitions` run the sampler if there are new data. The random draws depend only
    on the seed and the number of observations, so these calls do not change the model.
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
        self._reset()

    def _reset(self) -> None:
        self._y: list[float] = []
        self._design: list[Array] = []
        self._past = LagBuffer(self.features.depth, 1)
        self._like: Row | None = None  # first covariates: they set the order of the columns
        self._fit: BeamFit | None = None

    @locked
    def sample_posterior(self, y: Any = None, X: Any = None, progress: bool = False) -> BeamFit:
        """Sample the posterior of a stream, which replaces all earlier data.

        Args:
            y: observations, (T,): array, list or series. If it is None, the stored ones are used.
            X: covariates, one row per observation.
            progress: whether to show a progress bar.

        Returns:
            The posterior: paths, regimes, fitted values and forecasts.

        Raises:
            RegimekitError: If the data are invalid, or X is given without y.

        Example:
            >>> from regimekit.baselines.beam import beam_ihmm
            >>> y = [0.0, 0.2, 0.1, 4.0, 4.1, 3.9, 4.2]
            >>> fit = beam_ihmm(noise=0.01, prior_var=9.0, iterations=100).sample_posterior(y)
            >>> fit.path.tolist()
            [0, 0, 0, 1, 1, 1, 1]
        """
        if y is not None:
            series = read_series(y)
            self._append(series, read_table(X, length=len(series.values)), replace_data=True)
        elif X is not None:
            raise RegimekitError("X is given without y. Pass both, or neither.")
        return self._fitted(progress)

    def run(
        self,
        y: Any,
        X: Any = None,
        progress: bool = False,
        level: float = 0.9,
        callbacks: Sequence[Callback] = (),
    ) -> Run:
        """Append a stream, fit, and return the in-sample results.

        `mean`, `sd`, `lower` and `upper` describe the smoothed predictive distribution of each
        observation, `log_score` is its log density. `regime` and `path` are those of the best
        draw, numbered by first appearance; `regime_probability` is the fraction of draws that
        agree.

        Args:
            y: observations, (T,): array, list or series.
            X: covariates, one row per observation.
            progress: whether to show a progress bar.
            level: probability of the interval `lower` .. `upper`.
            callbacks: not called, because in-sample predictives are not forecasts.

        Returns:
            A Run with one row per appended observation.

        Raises:
            RegimekitError: If the data are invalid or level is not strictly between 0 and 1.
        """
        return self._stream(read_stream(y, X, self._warned), progress, level, callbacks)

    def _run(
        self,
        series: Series,
        table: Table | None,
        recorder: Recorder,
        progress: bool,
        callbacks: Sequence[Callback],
    ) -> Run:
        first = len(self._y)
        self._append(series, table)
        warn_once(self._warned, "hindsight", HINDSIGHT.format(name=self.name), stacklevel=7)
        fit = self._fitted(progress)
        steps = _steps(fit)
        for start in range(first, len(fit), BLOCK):
            stop = min(start + BLOCK, len(fit))
            forecasts = Forecasts.stack(fit.smoothed(start, stop))
            scores = forecasts.log_density(fit.data.y[start:stop, None]).tolist()
            scored = [
                step._replace(log_score=score)
                for step, score in zip(steps[start:stop], scores, strict=True)
            ]
            block = Block.of(forecasts, scored, start)
            recorder.add(block.scored(fit.data.y[start:stop, None]))
        run = recorder.run(series)
        self._remember(run)
        return run

    def update(self, y: Any, x: Any = None) -> Step:
        """Store one observation. The returned Step has no regime, because the sampler does not run.

        Args:
            y: a number; NaN or None means not observed.
            x: covariates of this observation, if the features need any.
        """
        vector = observation(y)
        if vector.size > 1:
            raise _too_wide(vector.size)
        self._store(vector, self._check(x))
        return Step(n_regimes=0, settled=0)

    @property
    def n_observations(self) -> int:
        """Number of observations so far."""
        return len(self._y)

    def regimes(self) -> list[Regime]:
        """Return the regimes of the best path, in order of first appearance."""
        fit, statistics = self._fitted(), RegimeStatistics(1)
        statistics.extend(fit.data.y[:, None], fit.path)
        return describe(fit.regimes(), statistics, self._book.labels, self._time_of)

    def _regimes(self) -> list[Regime]:
        return self._fitted().regimes()

    def transitions(self) -> Transitions:
        """Return the transition matrix of the best draw."""
        return self._fitted().transitions()

    def settings(self) -> dict[str, Any]:
        chosen = asdict(self.chosen) | {"burn_in": self.chosen.plan().burn_in}
        return {key: json_value(value) for key, value in chosen.items()}

    @classmethod
    def _make(cls, settings: dict[str, Any]) -> Self:
        return cls(BeamSettings(**settings))

    def _check(self, x: Any) -> Row | None:
        return self.features.check(x, like=self._like)

    def _predict(self, x: Row | None) -> Forecast:
        return self._forecast([x])[0]

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        forecast = self._predict(x)
        self._store(y, x)
        return forecast, Step(settled=0, log_score=float(forecast.log_density(y[0])))

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        fit = self._fitted() if self._y else self._blank(self.features.width(rows[0], 1))
        past = self._past.copy()
        made: list[Forecast] = []

        def designs() -> Iterator[Array]:
            for h, x in enumerate(rows):
                if h:
                    past.push(np.atleast_1d(made[-1].mean))  # future lags are forecasts
                yield self._row(x, len(self._y) + h, past)

        for forecast in fit.forecasts(designs()):
            made.append(forecast)
        return made

    def _append(self, series: Series, table: Table | None, replace_data: bool = False) -> None:
        """Store a stream; if any of it is invalid, nothing is stored."""
        if series.values.shape[1] > 1:
            raise _too_wide(series.values.shape[1])
        self._check_stream(series.values, table)
        keep = self._pack()
        if replace_data:
            self._reset()
        try:
            for t, value in enumerate(series.values):
                self._store(value, self._check(None if table is None else table.row(t)))
        except RegimekitError:
            self._unpack(*keep)
            raise

    def _store(self, y: Array, x: Row | None) -> None:
        design = self._row(x, len(self._y), self._past)
        if not self._y:
            self.chosen.prior(len(design))
            self._like = x
        self._y.append(float(y[0]))
        self._design.append(design)
        self._past.push(y)
        self._fit = None

    def _row(self, x: Row | None, t: int, past: LagBuffer) -> Array:
        design = self.features.row(x, t, past.clean)
        if self._design and len(design) != len(self._design[0]):
            raise RegimekitError(f"x gives {len(design)} features, not {len(self._design[0])}.")
        return bounded(design)

    def _fitted(self, progress: bool = False) -> BeamFit:
        if not self._y:
            return self._blank(1)
        if self._fit is None:
            y = np.clip(np.array(self._y), -MAX_VALUE, MAX_VALUE)
            data = Data(y, np.stack(self._design))
            prior = self.chosen.prior(data.design.shape[1])
            found = Sampler(data, prior, self._plan).run(self.chosen.seed, progress)
            self._fit = BeamFit(data, prior, found.trace, tuple(found.draws), found.best)
        return self._fit

    def _blank(self, width: int) -> BeamFit:
        """Return the fit of an empty stream: the prior."""
        none = np.zeros((self._plan.chains, 0))
        trace = Trace(none, none.astype(np.int64), none, none, none.astype(np.bool_))
        data = Data(np.zeros(0), np.zeros((0, width)))
        return BeamFit(data, self.chosen.prior(width), trace, (), None)

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        design = np.stack(self._design) if self._design else np.zeros((0, 0))
        arrays = {"y": np.array(self._y), "design": design, "past": self._past.clean.copy()}
        columns, first = pack_first(self._like)
        return columns, arrays | first

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self._reset()
        kept, stored = Values.of(values), Arrays.of(arrays)
        y = stored.floats("y", (None,), missing=True)
        like = read_first(kept, stored, self.features) if y.size else None
        width = self.features.width(like, 1) if y.size else 0
        design = stored.floats("design", (y.size, width), -MAX_FEATURE, MAX_FEATURE)
        if y.size:
            self.chosen.prior(width)  # raises if the prior has another number of features
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
    """Create the offline infinite HMM with beam sampling, for one series (d = 1).

    It needs the whole stream: `sample_posterior` returns the posterior, `run` an in-sample summary,
    and `predict` samples the posterior of all data so far before it forecasts.

    Args:
        features: f(x), from `regimekit.preprocessing.features`; an intercept by default.
        noise: variance of one observation around its regime, or "unknown" to estimate one variance
            per regime.
        prior_mean: mu0 of the coefficients: a number or a vector.
        prior_var: Sigma0 of the coefficients: a number, a vector or a matrix. With unknown noise
            their prior is Student's t with this scale and 2 * noise_prior[0] degrees of freedom.
        iterations: number of sweeps of each chain.
        burn_in: number of sweeps discarded at the start; half of them by default.
        chains: number of independent chains, each with its own start.
        thin: every thin-th sweep after burn-in is stored.
        alpha_prior: (shape, rate) of the Gamma prior of alpha.
        gamma_prior: (shape, rate) of the Gamma prior of gamma.
        initial_regimes: number of random segments that a chain starts with.
        max_regimes: capacity for regimes, including those that a sweep leaves unused.
            `fit.trace.cut` is True for the sweeps for which it was too small.
        noise_prior: (shape, scale) of the inverse-gamma prior of an unknown noise variance.
        seed: seed of the random draws.

    Returns:
        The model.

    Raises:
        RegimekitError: If a setting is invalid; the message names it.

    Example:
        >>> from regimekit.baselines.beam import beam_ihmm
        >>> model = beam_ihmm(noise=0.01, prior_var=9.0, iterations=100)
        >>> fit = model.sample_posterior([1.0, 1.1, 0.9, 5.0, 5.1, 4.9, 1.0, 1.1])
        >>> fit.path.tolist()
        [0, 0, 0, 1, 1, 1, 0, 0]
        >>> [round(float(regime.mean[0]), 1) for regime in model.regimes()]
        [1.0, 5.0]
    """
    return BeamIhmm(BeamSettings(**locals()))


def _steps(fit: BeamFit) -> list[Step]:
    """Return the results of the best path for each observation."""
    known: set[int] = set()
    steps: list[Step] = []
    previous = -1
    columns = (fit.path, fit.path_probability, fit.change_probability)
    for t, (regime, agreed, moved) in enumerate(zip(*map(np.ndarray.tolist, columns), strict=True)):
        events = _events(t, regime, previous, known)
        known.add(regime)
        previous = regime
        steps.append(
            Step(
                regime,
                agreed,
                change_probability=moved,
                n_regimes=len(known),
                ess=float(len(fit.draws)),
                events=events,
            )
        )
    return steps


def _events(t: int, regime: int, previous: int, known: set[int]) -> tuple[Event, ...]:
    if regime == previous:
        return ()
    return (Event(t, RETURNED if regime in known else OPENED, regime, previous, t),)


def _too_wide(size: int) -> RegimekitError:
    return RegimekitError(f"y must have one coordinate for beam_ihmm, got {size}.")


def read_pair(argument: str, value: Any, second: str) -> tuple[float, float]:
    """Return a pair of finite positive numbers, the first a shape.

    Args:
        argument: name for error messages.
        value: the pair.
        second: name of the second number.
    """
    pair = numbers(argument, value).reshape(-1)
    if pair.size != 2:
        raise RegimekitError(f"{argument} must be (shape, {second}), got {value!r}.")
    return _finite(argument, pair[0]), _finite(argument, pair[1])


def _finite(argument: str, value: Any) -> float:
    number = positive(argument, value)
    if math.isinf(number):
        raise RegimekitError(f"{argument} must be finite, got {value!r}.")
    return number
