"""Evaluation: prequential runs, forecast scores, calibration, segmentation metrics, oracles.

The public name of this package is `regimekit.evaluate`.
"""

from __future__ import annotations

from regimekit.metrics.backtest import Backtest, backtest
from regimekit.metrics.oracle import Oracle, oracle
from regimekit.metrics.prequential import (
    Prequential,
    RunningScores,
    last_value,
    prequential,
    run_with_pit,
    running_mean,
)
from regimekit.metrics.reliability import Calibration, RunningCalibration, calibration, pit_of_run
from regimekit.metrics.scores import (
    coverage,
    crps,
    crps_scores,
    cumulative_rmse,
    ess,
    log_score,
    log_scores,
    lookahead_mae,
    mae,
    pit,
    pit_distance,
    pit_values,
    rmse,
    rolling_rmse,
)
from regimekit.metrics.segmentation import (
    Matching,
    adjusted_rand,
    changepoints,
    covering,
    detection_delay,
    f1,
    match_regimes,
    n_regimes,
    switches,
)

__all__ = [
    "Backtest",
    "Calibration",
    "Matching",
    "Oracle",
    "Prequential",
    "RunningCalibration",
    "RunningScores",
    "adjusted_rand",
    "backtest",
    "calibration",
    "changepoints",
    "coverage",
    "covering",
    "crps",
    "crps_scores",
    "cumulative_rmse",
    "detection_delay",
    "ess",
    "f1",
    "last_value",
    "log_score",
    "log_scores",
    "lookahead_mae",
    "mae",
    "match_regimes",
    "n_regimes",
    "oracle",
    "pit",
    "pit_distance",
    "pit_of_run",
    "pit_values",
    "prequential",
    "rmse",
    "rolling_rmse",
    "run_with_pit",
    "running_mean",
    "switches",
]
