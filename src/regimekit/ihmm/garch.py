"""Maker of the infinite HMM whose regimes are GARCH(1, 1) volatilities."""

from __future__ import annotations

from regimekit.core.exceptions import RegimekitError, whole
from regimekit.core.maker import Batch, Pair, Resampling, Rules, Terms, Units, Weight, maker
from regimekit.ihmm.emissions.garch import GarchSettings
from regimekit.ihmm.makers import build
from regimekit.ihmm.model import RegimeModel
from regimekit.preprocessing import features as feature_maps

MOST_POINTS = 100_000  # of a regime's cloud


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
    """Regimes of volatility: y = sigma e, sigma^2 = omega + a y_before^2 + b sigma_before^2.

    Each regime has its own (omega, a, b), learnt by a cloud of weighted points; `regimes()` gives
    their posterior mean and standard deviation, `predict().sd` is the volatility. The mean of y
    is zero: pass returns, or the residuals of a regression. With `weight="none"` the likelihood
    is the plain one.

    The defaults suit returns scaled to a variance of about 1; other scales are found too, a few
    batches later. They differ from the family's where
    volatility asks for it. The weight is Huber's at 4 standard deviations: up to there it leaves
    a Gaussian GARCH alone, whereas `imq` also holds back the middling values that volatility is
    learnt from. `sticky` is 10, because a persistent GARCH can imitate a switch by itself; the
    prior has to say that regimes last. 50 particles are enough, since each regime's cloud already
    carries what is not known about it.

    Args:
        variance_prior: (median, spread of the log) of a regime's long-run variance
            omega / (1 - a - b), in the units of y^2.
        persistence_prior: (median, spread of the logit) of a + b.
        reaction_prior: (median, spread of the logit) of a / (a + b), the part of the persistence
            that answers to the last observation.
        cloud: points per regime. Cost grows with it, errors fall with its square root.
        bandwidth: h of the kernel that smooths redrawn points, between 0 and 1.
        batch, particles, rule, ...: everything else as for `br_ihmm`, `features` excepted.

    Rescaling y by s, with the median of variance_prior by s^2, changes no regime.

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
        raise RegimekitError(f"dim={dim!r}: a GARCH regime describes one series.")
    if feature_maps.read(features) != feature_maps.intercept():
        raise RegimekitError(
            "features have no use here: a GARCH regime has no mean to regress. "
            "Pass the residuals of a regression as y."
        )
    whole("cloud", cloud, least=16, most=MOST_POINTS)
    return build("garch_ihmm", GarchSettings, settings)
