"""The scores of `benchmarks.own_past`: uniform if the forecasts are right, high for a spike."""

from __future__ import annotations

import numpy as np
from scipy import stats

from benchmarks import own_past


def test_scores_are_uniform_if_the_forecasts_are_right():
    # False-alarm rate 1e-3 for each of the two scores.
    surprise = np.random.default_rng(0).exponential(size=20_000)
    assert stats.kstest(own_past.calibrated(surprise), "expon").pvalue > 1e-3
    # Of a hundred rows, so that the sums are nearly independent.
    sums = own_past.calibrated(own_past.summed(surprise))[::100]
    assert stats.kstest(sums, "expon").pvalue > 1e-3


def test_tails_are_those_of_the_stream_if_the_forecasts_are_wrong():
    # Surprises three times as large: a threshold of 1e-3 would have a rate of 0.1.
    surprise = 3 * np.random.default_rng(1).exponential(size=20_000)
    assert np.mean(surprise > np.log(1e3)) > 0.09
    # 20 expected; the tail is estimated from 20 values.
    assert 5 < np.sum(own_past.calibrated(surprise) > np.log(1e3)) < 50


def test_an_event_scores_high_at_once_and_afterwards_only_if_it_grows():
    surprise = np.random.default_rng(2).exponential(size=3000)
    surprise[2000:2010] = 20.0
    score = own_past.once(surprise)
    high = np.flatnonzero(score[2000:] > np.log(1e4))
    assert high[0] == 0 and high[-1] < 9
    assert np.all(np.diff(score[2000 + high]) > 0)
    assert np.sum(own_past.scales(surprise)[2000:] > np.log(1e4)) > len(high)


def test_scores_do_not_depend_on_later_rows():
    surprise = np.random.default_rng(3).exponential(size=600)
    for score in own_past.SCORES.values():
        np.testing.assert_array_equal(score(surprise)[:400], score(surprise[:400]))
