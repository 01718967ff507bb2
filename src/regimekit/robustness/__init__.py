"""Posterior influence: how far can observations move what a model believes?

    PIF = KL( posterior given the clean batch || posterior given the contaminated one )

of the regimes (`state_pif`), of the regimes' coefficients (`parameter_pif`), and of both
together (`joint_pif` = states + expected parameters, the chain rule of KL). `bound` is a number
that no contamination can exceed; docs/robustness.md derives it. `sandbox_pif` and `preference`
are the two-regime toys behind the paper's appendix figures.
"""

from __future__ import annotations

from regimekit.robustness.bounds import Bound, bound
from regimekit.robustness.pif import (
    Profile,
    along,
    joint_pif,
    parameter_pif,
    profile,
    state_pif,
)
from regimekit.robustness.sandbox import preference, sandbox_pif

__all__ = [
    "Bound",
    "Profile",
    "along",
    "bound",
    "joint_pif",
    "parameter_pif",
    "preference",
    "profile",
    "sandbox_pif",
    "state_pif",
]
