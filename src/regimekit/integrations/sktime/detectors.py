"""The detectors: where regimes change, and which regime each stretch belongs to."""

from __future__ import annotations

from typing import Any, Self

import pandas as pd
from sktime.detection.base import BaseDetector

import regimekit as rk
from regimekit.integrations.making import Packed, changepoints, fresh, labels
from regimekit.integrations.sktime.forecaster import SMALL


class _Detector(Packed, BaseDetector):
    """Follows a series. What begins after the rows learnt continues them; all else stands alone."""

    def __init__(self, model: str | None = None, settings: dict[str, Any] | None = None) -> None:
        self.model = model
        self.settings = settings
        super().__init__()

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings that sktime's own checks run with."""
        return SMALL

    def _fit(self, X: pd.DataFrame, y: Any = None) -> Self:
        self.model_ = fresh(self.model, self.settings)
        return self._update(X)

    def _update(self, X: pd.DataFrame, y: Any = None) -> Self:
        self.model_.run(X.to_numpy(float))
        self._last = X.index[-1]
        return self

    def update_predict(self, X: Any, y: Any = None) -> pd.DataFrame:
        """What `predict` finds in X, which is then learnt."""
        found = self.predict(X)
        self.update(X, y)
        return found

    def _regimes(self, X: pd.DataFrame) -> Any:
        follows = X.index[0] > self._last
        model = (
            rk.from_bytes(self.model_.to_bytes()) if follows else fresh(self.model, self.settings)
        )
        return labels(model.run(X.to_numpy(float)))


class RegimeChangePoints(_Detector):
    """Finds where a series enters another regime: the first row of each new segment.

    Example:
        >>> import pandas as pd
        >>> from regimekit.integrations.sktime import RegimeChangePoints
        >>> X = pd.DataFrame({"y": [-3.0, -3.1, -2.9] * 10 + [3.0, 3.1, 2.9] * 10})
        >>> RegimeChangePoints("student_t_ihmm", {"batch": 3}).fit_predict(X)["ilocs"].tolist()
        [30]
    """

    _tags = {
        "python_dependencies": "regimekit",
        "task": "change_point_detection",
        "learning_type": "unsupervised",
        "capability:multivariate": True,
        "capability:missing_values": True,
        "capability:update": True,
    }

    def _predict(self, X: pd.DataFrame) -> pd.Series:
        return pd.Series(changepoints(self._regimes(X)), dtype="int64")


class RegimeSegments(_Detector):
    """Cuts a series into segments labelled by regime; a regime that returns keeps its label.

    Example:
        >>> import pandas as pd
        >>> from regimekit.integrations.sktime import RegimeSegments
        >>> X = pd.DataFrame({"y": [-3.0, -3.1, -2.9] * 10 + [3.0, 3.1, 2.9] * 10})
        >>> RegimeSegments("student_t_ihmm", {"batch": 3}).fit_predict(X)["ilocs"].tolist()
        [Interval(0, 30, closed='left'), Interval(30, 60, closed='left')]
    """

    _tags = RegimeChangePoints._tags | {"task": "segmentation"}

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        regimes = self._regimes(X)
        starts = [0, *changepoints(regimes)]
        spans = pd.IntervalIndex.from_breaks([*starts, len(regimes)], closed="left")
        return pd.DataFrame({"ilocs": spans, "labels": regimes[starts]})
