"""Maker of the infinite HMM with unknown noise."""

from __future__ import annotations

from typing import Any

from holdfast.emissions.normal_inverse_gamma import StudentSpec
from holdfast.models.ihmm import build
from holdfast.models.regime_model import RegimeModel


def student_t_ihmm(**settings: Any) -> RegimeModel:
    """x"""
    return build("student_t_ihmm", StudentSpec, {}, settings)
