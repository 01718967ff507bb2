"""Factory of the infinite HMM whose regimes are GARCH(1, 1) volatilities."""

from __future__ import annotations

from regimekit.core.exceptions import RegimekitError, whole
from regimekit.core.maker import Batch, Pair, Resampling, Rules, Terms, Units, Weight, maker
from regimekit.ihmm.emissions.garch import GarchSettings
from regimekit.ihmm.makers import build
from regimekit.ihmm.model import RegimeModel
from regimekit.preprocessing import features as feature_maps

MAX_POINTS = 100_000  # points of the cloud of a regime


@maker
def garch_ihmm(
    *,
    features: Terms | None = None,
    units: Units | None = None,
    variance_prior: Pair = (1.0, 1.5),
    persistence_prior: Pair = (0.9, 0.5),
    reaction_prior: Pair = (0.1, 0.5),
    cloud: int = 192,
    bandwidth: float = 0.7,
    batch: Batch = 6,
    threshold: float | None = 4.0,
    weight: Weight | None = "huber",
    outlier_rate: float = 0.05,
    islands: int | None = None,
    structure_share: float | None = None,
    weigh_regimes: bool = True,
    particles: int = 50,
    ess_threshold: float = 0.5,
    max_regimes: int = 30,
    prune_pool: int = 5,
    rule: Rules = "default",
    resampling: Resampling | None = None,
    structure_sweeps: int | None = None,
    sticky: float | None = 10.0,
    alpha_prior: Pair = (1.0, 1.0),
    gamma_prior: Pair | None = None,
    outlier_weight: float = 0.2,
    dim: int | None = None,
    seed: int = 0,
) -> RegimeModel:
    """Return an infinite HMM whose regimes are GARCH(1, 1) volatilities.

    y_t = sigma_t e_t, sigma_t^2 = omega + a y_{t-1}^2 + b sigma_{t-1}^2, where each regime has its
    own (omega, a, b), learnt by a cloud of weighted points. `regimes()` returns their posterior
    mean and standard deviation, `predict().sd` is the volatility. The mean of y is zero: pass
    returns, or the residuals of a regression. With `weight="none"` the plain likelihood is used.

    The defaults suit returns scaled to a variance of about 1; other scales are learnt within a few
    batches. Three defaults differ from those of `br_ihmm`. The weight is Huber's at 4 standard
    deviations, because `imq` also reduces the weight of moderate values from which volatility is
    learnt. `sticky` is 10, because a persistent GARCH process resembles a switch. 50 particles are
    enough, because the cloud of each regime already represents the uncertainty of its coefficients.

    Args:
        variance_prior: (median, spread of the log) of a regime's long-run variance
            omega / (1 - a - b), in the units of y^2.
        persistence_prior: (median, spread of the logit) of a + b.
        reaction_prior: (median, spread of the logit) of a / (a + b), the part of the persistence
            due to the latest observation.
        cloud: number of points per regime. The cost is proportional to it, the error to the
            inverse of its square root.
        bandwidth: h of the kernel that smooths redrawn points, between 0 and 1.
        batch, particles, rule, ...: as for `br_ihmm`. `features` must not be given.

    Returns:
        RegimeModel: a model that has not seen any observation.

    Raises:
        RegimekitError: If a setting is invalid, or if features or several coordinates are given.

    If y is multiplied by s and the median of variance_prior by s^2, the regimes stay the same.

    Example:
        >>> import numpy as np
        >>> from regimekit.ihmm.garch import garch_ihmm
        >>> model = garch_ihmm(particles=20)
        >>> calm, wild = np.random.default_rng(0).standard_normal((2, 120)) * [[0.3], [3.0]]
        >>> run = model.run(np.concatenate([calm, wild]))
        >>> bool(run.sd[60:120].max() < 1 < run.sd[180:].min())
        True
        >>> bool(run.path[100] != run.path[200])
        True
    """
    settings = locals()
    if dim not in (None, 1):
        raise RegimekitError(
            f"dim must be 1 for a GARCH regime, which describes one series, got {dim!r}."
        )
    if feature_maps.read(features) != feature_maps.intercept():
        raise RegimekitError(
            "features must not be given: a GARCH regime has mean zero. "
            "Pass the residuals of a regression as y."
        )
    whole("cloud", cloud, least=16, most=MAX_POINTS)
    return build("garch_ihmm", GarchSettings, settings)
