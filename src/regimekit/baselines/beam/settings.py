"""Settings of the beam sampler, and what it makes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from regimekit.baselines.beam.regression import Prior
from regimekit.baselines.beam.sampler import Sampling
from regimekit.core.exceptions import RegimekitError, numbers, positive, unknown, whole
from regimekit.core.maker import Numbers, Pair, Terms
from regimekit.core.model import Array
from regimekit.ihmm.emissions.matrices import read_covariance, read_vector
from regimekit.serialization.validation import affordable

UNKNOWN = "unknown"
MOST_SWEEPS = 10_000_000
MOST_CHAINS = 1000
MOST_REGIMES = 5000


@dataclass(frozen=True)
class BeamSettings:
    """Settings of the model; `beam_ihmm` documents them."""

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
        iterations = whole("iterations", self.iterations, most=MOST_SWEEPS)
        half = iterations // 2
        burn_in = half if self.burn_in is None else whole("burn_in", self.burn_in, least=0)
        if burn_in >= iterations:
            raise RegimekitError(f"burn_in must be below iterations={iterations}, got {burn_in}.")
        room = whole("max_regimes", self.max_regimes, most=MOST_REGIMES)
        first = whole("initial_regimes", self.initial_regimes)
        if first > room:
            raise RegimekitError(
                f"initial_regimes must be at most max_regimes={room}, got {first}."
            )
        thin, chains = whole("thin", self.thin), whole("chains", self.chains, most=MOST_CHAINS)
        affordable("chains * iterations", 5.0 * chains * iterations)  # the trace
        return Sampling(iterations, burn_in, thin, chains, first, room)

    def known_noise(self) -> float | None:
        """The noise variance, or None where it is to be found out."""
        if isinstance(self.noise, str):
            if self.noise != UNKNOWN:
                raise unknown("noise", self.noise, [UNKNOWN])
            return None
        if np.size(self.noise) != 1:
            raise RegimekitError("noise must be one number: beam_ihmm models one coordinate of y.")
        return _finite("noise", np.reshape(self.noise, ())[()])

    def prior(self, width: int) -> Prior:
        """The prior of a regression on `width` features."""
        mean = read_vector("prior_mean", self.prior_mean, width)
        covariance = read_covariance("prior_var", self.prior_var, width)
        shape, scale = read_pair("noise_prior", self.noise_prior, "scale")
        noise = self.known_noise()
        unit = scale / shape if noise is None else noise
        precision = unit * np.linalg.inv(covariance)
        root = np.linalg.cholesky(covariance / unit)
        known = noise is not None
        return Prior(mean, precision, root, known, unit, shape, scale, self.concentration())

    def concentration(self) -> Array:
        """(2, 2): shape and rate of the priors of alpha and gamma."""
        alpha = read_pair("alpha_prior", self.alpha_prior, "rate")
        return np.array([alpha, read_pair("gamma_prior", self.gamma_prior, "rate")])


def read_pair(argument: str, value: Any, second: str) -> tuple[float, float]:
    """Two finite numbers above zero, the first a shape."""
    pair = numbers(argument, value).reshape(-1)
    if pair.size != 2:
        raise RegimekitError(f"{argument} must be (shape, {second}), got {value!r}.")
    return _finite(argument, pair[0]), _finite(argument, pair[1])


def _finite(argument: str, value: Any) -> float:
    number = positive(argument, value)
    if math.isinf(number):
        raise RegimekitError(f"{argument} must be finite, got {value!r}.")
    return number
