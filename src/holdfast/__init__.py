"""holdfast: regimes and honest forecasts from a stream of measurements, unshaken by outliers."""

from __future__ import annotations

__version__ = "0.1.0"

from holdfast import data, evaluate, features, influence
from holdfast.errors import HoldfastError, SnapshotError
from holdfast.forecast import Forecast
from holdfast.models.beam import beam_ihmm
from holdfast.models.bocd import bocd
from holdfast.models.dsm_bocd import dsm_bocd
from holdfast.models.garch import garch_ihmm
from holdfast.models.ihmm import br_ihmm, ihmm, wolf_ihmm
from holdfast.models.registry import from_bytes, load, make, models
from holdfast.models.student_t import student_t_ihmm
from holdfast.results import Event, Regime, Run, Step, Transitions
from holdfast.sensitivity import sensitivity
from holdfast.tune import tune

__all__ = [
    "Event", "Forecast", "HoldfastError", "Regime", "Run", "SnapshotError", "Step", "Transitions",
    "beam_ihmm", "bocd", "br_ihmm", "data", "dsm_bocd", "evaluate", "features", "from_bytes",
    "garch_ihmm", "ihmm", "influence", "load", "make", "models", "sensitivity", "student_t_ihmm",
    "tune", "wolf_ihmm",
]  # fmt: skip
