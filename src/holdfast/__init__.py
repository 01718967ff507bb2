"""holdfast: regimes and honest forecasts from a stream of measurements, unshaken by outliers."""

from __future__ import annotations

from holdfast import features
from holdfast.errors import HoldfastError, SnapshotError
from holdfast.forecast import Forecast
from holdfast.models.ihmm import br_ihmm, ihmm, wolf_ihmm
from holdfast.models.registry import from_bytes, load, make, models
from holdfast.results import Event, Regime, Run, Step, Transitions

__version__ = "0.1.0"

__all__ = [
    "Event", "Forecast", "HoldfastError", "Regime", "Run", "SnapshotError", "Step", "Transitions",
    "br_ihmm", "features", "from_bytes", "ihmm", "load", "make", "models", "wolf_ihmm",
]  # fmt: skip
