"""regimekit: regimes and honest forecasts from a stream of measurements, unshaken by outliers.

Names are looked up when they are first used: `import regimekit` itself imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from regimekit import data, evaluate, features, influence, plot
    from regimekit.bank import auto
    from regimekit.errors import RegimekitError, SnapshotError
    from regimekit.forecast import Forecast
    from regimekit.many import run_many
    from regimekit.models.beam import beam_ihmm
    from regimekit.models.bocd import bocd
    from regimekit.models.dsm_bocd import dsm_bocd
    from regimekit.models.garch import garch_ihmm
    from regimekit.models.ihmm import br_ihmm, ihmm, wolf_ihmm
    from regimekit.models.registry import from_bytes, load, make, models
    from regimekit.models.student_t import student_t_ihmm
    from regimekit.notices import RegimekitWarning
    from regimekit.results import Event, Regime, Run, Step, Transitions
    from regimekit.robustness.sensitivity import sensitivity
    from regimekit.tuning import tune
else:
    _HOMES = {
        "regimekit": ("data", "evaluate", "features", "influence", "models", "plot"),
        "regimekit.bank": ("auto",),
        "regimekit.errors": ("RegimekitError", "SnapshotError"),
        "regimekit.forecast": ("Forecast",),
        "regimekit.many": ("run_many",),
        "regimekit.models.beam": ("beam_ihmm",),
        "regimekit.models.bocd": ("bocd",),
        "regimekit.models.dsm_bocd": ("dsm_bocd",),
        "regimekit.models.garch": ("garch_ihmm",),
        "regimekit.models.ihmm": ("br_ihmm", "ihmm", "wolf_ihmm"),
        "regimekit.models.registry": ("from_bytes", "load", "make"),
        "regimekit.models.student_t": ("student_t_ihmm",),
        "regimekit.notices": ("RegimekitWarning",),
        "regimekit.results": ("Event", "Regime", "Run", "Step", "Transitions"),
        "regimekit.robustness.sensitivity": ("sensitivity",),
        "regimekit.tuning": ("tune",),
    }
    _HOME = {name: module for module, names in _HOMES.items() for name in names}

    def __getattr__(name: str) -> object:
        """A public name or a subpackage, imported when it is first asked for."""
        import importlib

        if name not in _HOME:
            raise AttributeError(f"module 'regimekit' has no attribute {name!r}")
        if _HOME[name] == "regimekit":
            return importlib.import_module(f"regimekit.{name}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)


__all__ = [
    "Event",
    "Forecast",
    "RegimekitError",
    "RegimekitWarning",
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
