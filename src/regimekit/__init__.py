"""Regimes and calibrated forecasts of a stream of measurements, robust to outliers.

Public names are imported on first use, so `import regimekit` itself is cheap.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if os.environ.get("REGIMEKIT_UNCOMPILED"):
    from regimekit.core.uncompiled import prefer_source

    prefer_source()

__version__ = "0.3.0.dev0"

if TYPE_CHECKING:
    from regimekit import datasets, metrics, plotting, robustness
    from regimekit import datasets as data
    from regimekit import metrics as evaluate
    from regimekit import plotting as plot
    from regimekit import robustness as influence
    from regimekit.baselines.beam import beam_ihmm
    from regimekit.baselines.bocd import bocd
    from regimekit.baselines.dsm_bocd import dsm_bocd
    from regimekit.core.exceptions import RegimekitError, SnapshotError
    from regimekit.core.model import Model
    from regimekit.core.model_checks import check_model
    from regimekit.core.registry import from_bytes, load, make, models, register
    from regimekit.core.warnings import RegimekitWarning
    from regimekit.distributions.forecast import Forecast, Forecasts
    from regimekit.ensemble import auto
    from regimekit.ihmm.published import paper
    from regimekit.ihmm.signatures import br_ihmm, garch_ihmm, ihmm, student_t_ihmm, wolf_ihmm
    from regimekit.panel import PanelRun, run_many
    from regimekit.preprocessing import features
    from regimekit.preprocessing.holidays import holidays
    from regimekit.results import Event, Regime, Run, Step, Transitions
    from regimekit.robustness.sensitivity import sensitivity
    from regimekit.tuning import tune
else:
    # Subpackages, some of them under a second name.
    _MODULES = {
        "data": "datasets",
        "datasets": "datasets",
        "evaluate": "metrics",
        "metrics": "metrics",
        "features": "preprocessing.features",
        "influence": "robustness",
        "robustness": "robustness",
        "plot": "plotting",
        "plotting": "plotting",
        "ihmm": "ihmm",  # the subpackage is callable: it makes the model of that name
    }
    _NAMES = {
        "baselines.beam": ("beam_ihmm",),
        "baselines.bocd": ("bocd",),
        "baselines.dsm_bocd": ("dsm_bocd",),
        "core.exceptions": ("RegimekitError", "SnapshotError"),
        "core.model": ("Model",),
        "core.model_checks": ("check_model",),
        "core.registry": ("from_bytes", "load", "make", "models", "register"),
        "core.warnings": ("RegimekitWarning",),
        "distributions.forecast": ("Forecast", "Forecasts"),
        "ensemble": ("auto",),
        "ihmm.makers": ("br_ihmm", "garch_ihmm", "student_t_ihmm", "wolf_ihmm"),
        "ihmm.published": ("paper",),
        "panel": ("PanelRun", "run_many"),
        "preprocessing.holidays": ("holidays",),
        "results": ("Event", "Regime", "Run", "Step", "Transitions"),
        "robustness.sensitivity": ("sensitivity",),
        "tuning": ("tune",),
    }
    _MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name: str) -> object:
        """Import a public name or subpackage on first use."""
        import importlib

        if name in _MODULES:
            value = importlib.import_module(f"regimekit.{_MODULES[name]}")
        elif name in _MODULE_OF:
            value = getattr(importlib.import_module(f"regimekit.{_MODULE_OF[name]}"), name)
        else:
            import difflib

            near = difflib.get_close_matches(name, __all__, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"module 'regimekit' has no attribute {name!r}.{hint}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)


__all__ = [
    "Event",
    "Forecast",
    "Forecasts",
    "Model",
    "PanelRun",
    "Regime",
    "RegimekitError",
    "RegimekitWarning",
    "Run",
    "SnapshotError",
    "Step",
    "Transitions",
    "auto",
    "beam_ihmm",
    "bocd",
    "br_ihmm",
    "check_model",
    "data",
    "datasets",
    "dsm_bocd",
    "evaluate",
    "features",
    "from_bytes",
    "garch_ihmm",
    "holidays",
    "ihmm",
    "influence",
    "load",
    "make",
    "metrics",
    "models",
    "paper",
    "plot",
    "plotting",
    "register",
    "robustness",
    "run_many",
    "sensitivity",
    "student_t_ihmm",
    "tune",
    "wolf_ihmm",
]
