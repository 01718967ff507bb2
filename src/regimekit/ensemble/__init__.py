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
    seed: int = 0,
) -> Auto:
    """Regimes and honest forecasts of any stream, with nothing to set.

    It learns the stream's units, proposes lags and seasons, mixes regime models and simple
    forecasters by what their distributions were worth, corrects its intervals as it goes, and
    reads regimes with models of their own.

    Args:
        features: what to regress on instead of the lags it would propose. Without, the columns
            of X, if X is given, are features too.
        regime_features: what regimes are read from, instead of a choice between level, lag 1 and
            season.
        seasons: lengths of seasons that the stream may have, in observations, such as 12 for
            months or [24, 168] for hours: they are found sooner then, and used if they help. Where
            `run` is given dates, these say it. Without, seasons are looked for all the same.
        seed: of all random draws.

    Example:
        >>> import numpy as np
        >>> from regimekit.ensemble import auto
        >>> rng = np.random.default_rng(0)
        >>> model = auto()
        >>> run = model.run(30_000 + 700 * rng.standard_normal(60))
        >>> 29_000 < model.predict().mean < 31_000, 500 < model.predict().sd < 1000
        (True, True)
    """
    return Auto(features, regime_features, seasons, seed)


__all__ = ["Auto", "auto"]
