"""Posterior influence: how far can observations move the posterior of a model?

    PIF = KL( posterior given the clean batch || posterior given the contaminated one )

of the regimes (`state_pif`), of the coefficients of the regimes (`parameter_pif`), and of both
together (`joint_pif` = states + expected parameters, the chain rule of the KL divergence). `bound`
returns a number that no contamination can exceed; docs/robustness.md derives it. `sandbox_pif` and
`preference` are the examples with two regimes of the paper's appendix.
"""

from __future__ import annotations

from regimekit.robustness.bounds import Bound, bound
from regimekit.robustness.influence import (
    Profile,
    along,
    joint_pif,
    parameter_pif,
    profile,
    state_pif,
)
from regimekit.robustness.two_regimes import preference, sandbox_pif

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
