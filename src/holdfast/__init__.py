"""holdfast: regimes and honest forecasts from a stream of measurements, unshaken by outliers.

Names are looked up when they are first used: `import holdfast` itself imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from holdfast import data, evaluate, features, influence, plot
    from holdfast.bank import auto
    from holdfast.errors import HoldfastError, SnapshotError
    from holdfast.forecast import Forecast
    from holdfast.many import run_many
    from holdfast.models.beam import beam_ihmm
    from holdfast.models.bocd import bocd
    from holdfast.models.dsm_bocd import dsm_bocd
    from holdfast.models.garch import garch_ihmm
    from holdfast.models.ihmm import br_ihmm, ihmm, wolf_ihmm
    from holdfast.models.registry import from_bytes, load, make, models
    from holdfast.models.student_t import student_t_ihmm
    from holdfast.notices import HoldfastWarning
    from holdfast.results import Event, Regime, Run, Step, Transitions
    from holdfast.robustness.sensitivity import sensitivity
    from holdfast.tuning import tune
else:
    _HOMES = {
        "holdfast": ("data", "evaluate", "features", "influence", "models", "plot"),
        "holdfast.bank": ("auto",),
        "holdfast.errors": ("HoldfastError", "SnapshotError"),
        "holdfast.forecast": ("Forecast",),
        "holdfast.many": ("run_many",),
        "holdfast.models.beam": ("beam_ihmm",),
        "holdfast.models.bocd": ("bocd",),
        "holdfast.models.dsm_bocd": ("dsm_bocd",),
        "holdfast.models.garch": ("garch_ihmm",),
        "holdfast.models.ihmm": ("br_ihmm", "ihmm", "wolf_ihmm"),
        "holdfast.models.registry": ("from_bytes", "load", "make"),
        "holdfast.models.student_t": ("student_t_ihmm",),
        "holdfast.notices": ("HoldfastWarning",),
        "holdfast.results": ("Event", "Regime", "Run", "Step", "Transitions"),
        "holdfast.robustness.sensitivity": ("sensitivity",),
        "holdfast.tuning": ("tune",),
    }
    _HOME = {name: module for module, names in _HOMES.items() for name in names}

    def __getattr__(name: str) -> object:
        """A public name or a subpackage, imported when it is first asked for."""
        import importlib

        if name not in _HOME:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        if _HOME[name] == "holdfast":
            return importlib.import_module(f"holdfast.{name}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)


__all__ = [
    "Event",
    "Forecast",
    "HoldfastError",
    "HoldfastWarning",
    "Regime",
    "Run",
    "SnapshotError",
    "Step",
    "Transitions",
    "auto",
    "beam_ihmm",
    "bocd",
    "br_ihmm",
    "data",
    "dsm_bocd",
    "evaluate",
    "features",
    "from_bytes",
    "garch_ihmm",
    "ihmm",
    "influence",
    "load",
    "make",
    "models",
    "plot",
    "run_many",
    "sensitivity",
    "student_t_ihmm",
    "tune",
    "wolf_ihmm",
]
