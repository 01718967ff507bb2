"""regimekit in sktime: a forecaster that updates without refitting, and two detectors."""

from __future__ import annotations

from regimekit.integrations.making import need

need("sktime", "sktime", "skpro")

# After the hint for those who lack the package.
from regimekit.integrations.sktime.detectors import RegimeChangePoints, RegimeSegments
from regimekit.integrations.sktime.forecaster import RegimeForecaster

__all__ = ["RegimeChangePoints", "RegimeForecaster", "RegimeSegments"]
