"""Streams to run models on: generated ones with known truth, real ones by name, contamination."""

from __future__ import annotations

from holdfast.data.base import Dataset, standardise
from holdfast.data.contamination import KINDS, Contaminated, contaminate, duplicate
from holdfast.data.datasets import load, names
from holdfast.data.generators import (
    garch_regimes,
    iid_regimes,
    regime_stream,
    synthetic_regression,
    two_state_sandbox,
)
from holdfast.data.readers import bucketed

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
