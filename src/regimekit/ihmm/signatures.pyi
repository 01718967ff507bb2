"""Signatures of the makers for type checkers. Written by docs/signatures.py."""

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from numpy.typing import ArrayLike

from regimekit.core.maker import Pair, Rules, Terms
from regimekit.ihmm.deviations import Rule
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.settings import WeightFunction

class Shared(TypedDict, total=False):
    features: Terms | None
    units: str | None
    batch: int | Mapping[str, Any]
    threshold: float | None
    weight: str | WeightFunction | None
    weigh_regimes: bool
    outlier_rate: float
    particles: int
    islands: int | None
    ess_threshold: float
    max_regimes: int
    prune_pool: int
    rule: Rules | Rule
    resampling: str | None
    structure_sweeps: int | None
    structure_share: float | None
    sticky: float | None
    alpha_prior: Pair
    gamma_prior: Pair | None
    outlier_weight: float
    noise_column: str | int | None
    dim: int | None
    seed: int

class Gaussian(Shared, total=False):
    noise: ArrayLike
    prior_mean: ArrayLike
    prior_var: ArrayLike

class StudentT(Shared, total=False):
    prior_mean: ArrayLike
    prior_var: ArrayLike
    noise_shape: float
    noise_scale: ArrayLike
    consistent: bool

class Garch(Shared, total=False):
    variance_prior: ArrayLike
    persistence_prior: ArrayLike
    reaction_prior: ArrayLike
    cloud: int
    bandwidth: float

def br_ihmm(**settings: Unpack[Gaussian]) -> RegimeModel: ...
def wolf_ihmm(**settings: Unpack[Gaussian]) -> RegimeModel: ...
def ihmm(**settings: Unpack[Gaussian]) -> RegimeModel: ...
def student_t_ihmm(**settings: Unpack[StudentT]) -> RegimeModel: ...
def garch_ihmm(**settings: Unpack[Garch]) -> RegimeModel: ...
