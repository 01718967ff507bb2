"""holdfast in sktime: a forecaster that updates without refitting, and two detectors."""

from __future__ import annotations

from holdfast.adapters.making import need

need("sktime", "sktime", "skpro")

# E402: the hint for those who lack the package must come before what needs it.
from holdfast.adapters.sktime.detectors import RegimeChangePoints, RegimeSegments  # noqa: E402
from holdfast.adapters.sktime.forecaster import RegimeForecaster  # noqa: E402

__all__ = ["RegimeChangePoints", "RegimeForecaster", "RegimeSegments"]
