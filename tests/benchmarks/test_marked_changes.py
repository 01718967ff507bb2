"""The NAB score of changes, by hand."""

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
