"""Streams to run models on: generated ones with known truth, real ones by name, contamination."""

from __future__ import annotations

from regimekit.data.base import Dataset, standardise
from regimekit.data.contamination import KINDS, Contaminated, contaminate, duplicate
from regimekit.data.datasets import load, names
from regimekit.data.generators import (
    garch_regimes,
    iid_regimes,
    regime_stream,
    synthetic_regression,
    two_state_sandbox,
)
from regimekit.data.readers import bucketed

__all__ = [
    "KINDS",
    "Contaminated",
    "Dataset",
    "bucketed",
    "contaminate",
    "duplicate",
    "garch_regimes",
    "iid_regimes",
    "load",
    "names",
    "regime_stream",
    "standardise",
    "synthetic_regression",
    "two_state_sandbox",
]
