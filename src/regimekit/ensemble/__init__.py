"""`auto`: an ensemble of members on one stream, aggregated online, with default settings."""

from __future__ import annotations

from collections.abc import Sequence

from regimekit.core.maker import Terms, maker
from regimekit.ensemble.model import Auto


@maker
def auto(
    features: Terms | None = None,
    regime_features: Terms | None = None,
    seasons: int | Sequence[int] | None = None,
    regimes: str = "auto",
    seed: int = 0,
) -> Auto:
    """Create an ensemble that infers regimes and gives calibrated forecasts with default settings.

    It estimates the units of the stream, proposes lags and seasons, weights regime models and
    simple forecasters by the scores of their past forecasts, calibrates its intervals online, and
    infers regimes by separate regime models.

    Args:
        features: features to regress on, instead of the proposed lags. By default the columns of
            X, if X is given, are features too.
        regime_features: features of the regime model. By default the level, lag 1 and a season are
            compared.
        seasons: lengths of possible seasons in observations, such as 12 for months or [24, 168]
            for hours: they are detected sooner, and used if they help. If `run` is given dates,
            they are derived from these. By default seasons are detected from the values.
        regimes: what regimes are inferred from: "level" for level and spread of the observations,
            "shape" for the mean and the spectrum of the latest periods of a periodic stream,
            "dynamics" for the relation to lags, seasons, covariates or `regime_features`. By
            default the dynamics if there are covariates or features, else the level, and, for
            d = 1, the shape of a periodic stream that changes more often than its level, or less.
        seed: seed of all random draws.

    Returns:
        The model, before its first observation.

    Raises:
        RegimekitError: If a setting is invalid; the message names it.

    Example:
        >>> import numpy as np
        >>> from regimekit.ensemble import auto
        >>> rng = np.random.default_rng(0)
        >>> model = auto()
        >>> run = model.run(30_000 + 700 * rng.standard_normal(60))
        >>> 29_000 < model.predict().mean < 31_000, 500 < model.predict().sd < 1000
        (True, True)
    """
    return Auto(features, regime_features, seasons, regimes, seed)


__all__ = ["Auto", "auto"]
