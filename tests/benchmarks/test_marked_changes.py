"""The NAB score of changes, by hand; regimes without forecasts."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import segmentation as benchmark

ONE = benchmark.Labelled("one", np.zeros((900, 2)), {}, [500, 530], np.arange(900.0))


@pytest.mark.parametrize(
    ("alarms", "wanted"),
    [
        ([], 0.0),
        ([500, 560], 100.0),
        # Windows are 500 to 560 and 560 to 590; the first alarm of each counts, half way at its
        # middle; there is no third window, and the first 400 rows are for training.
        ([100, 530, 540, 575], 100.0 * (2 * 0.445 + 2.0) / 4.0),
        ([450, 600], 100.0 * (-2.0 - 0.22 + 2.0) / 4.0),
    ],
)
def test_nab(alarms: list[int], wanted: float) -> None:
    assert benchmark.nab([ONE], [alarms], -0.11) == pytest.approx(wanted)


@pytest.mark.parametrize("kind", ["teeth and waves", "levels", "two coordinates"])
def test_views_alone_infer_the_regimes_of_auto(kind: str) -> None:
    rng, t = np.random.default_rng(0), np.arange(900)
    y = 6.0 * (t // 300 % 2) + rng.standard_normal(900)
    if kind == "teeth and waves":
        y = np.where(t < 500, t / 20 % 1, np.sin(np.pi * t / 10)) + 0.1 * rng.standard_normal(900)
    if kind == "two coordinates":
        y = np.stack([y, rng.standard_normal(900)], axis=1)
    views, auto = (benchmark.PEERS[peer](y) for peer in ("views", "auto"))
    assert views == auto and views.changes
