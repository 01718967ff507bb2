"""Datasets: generated streams with known truth, real series by name, contamination.

The public name of this package is `regimekit.data`.
"""

from __future__ import annotations

from regimekit.datasets.base import Dataset, standardise
from regimekit.datasets.contamination import KINDS, Contaminated, contaminate, duplicate
from regimekit.datasets.generators import (
    garch_regimes,
    ihmm_prior,
    iid_regimes,
    regime_stream,
    synthetic_regression,
    two_state_sandbox,
)
from regimekit.datasets.loaders import bucketed, load, names

__all__ = [
    "KINDS",
    "Contaminated",
    "Dataset",
    "bucketed",
    "contaminate",
    "duplicate",
    "garch_regimes",
    "ihmm_prior",
    "iid_regimes",
    "load",
    "names",
    "regime_stream",
    "standardise",
    "synthetic_regression",
    "two_state_sandbox",
]
