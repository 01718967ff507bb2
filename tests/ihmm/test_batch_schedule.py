"""Adaptive batches (the paper's Gamma-Poisson sketch) and the sticky bias as settings."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import regimekit as rk
from regimekit.ihmm.batch_schedule import ADAPTIVE_SETTINGS, BatchSchedule, read_schedule


def chance_of_half(size: int, rule: BatchSchedule, outliers: float, seen: float) -> float:
    """P(at least half of `size` observations are outliers), by summing Poissons over the rate."""
    rate = stats.gamma(rule.shape + outliers, scale=1 / (rule.rate + seen))
    most = np.ceil(size / 2) - 1
    return float(rate.expect(lambda lam: stats.poisson.sf(most, lam * size)))


@pytest.mark.parametrize(("outliers", "seen"), [(0, 0), (3, 500), (40, 400), (10, 20)])
def test_next_size_is_the_smallest_batch_that_is_safe(outliers: float, seen: float) -> None:
    rule = BatchSchedule(tolerance=0.01)
    size = rule.next_size_after(outliers, seen)
    safe = [chance_of_half(b, rule, outliers, seen) < rule.tolerance for b in range(1, 33)]
    assert size == (1 + safe.index(True) if any(safe) else rule.largest)


def test_a_dirtier_stream_gets_longer_batches() -> None:
    sizes = []
    for share in (0.0, 0.02, 0.1):
        rng = np.random.default_rng(3)
        y = 0.5 * rng.standard_normal(800)
        y[rng.random(800) < share] += 15.0
        model = rk.br_ihmm(batch="adaptive", particles=20)
        model.run(y)
        assert model.engine is not None
        sizes.append(int(model.engine.clock.size[0]))
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1], sizes


def test_adaptive_settings_are_read_and_refused() -> None:
    found, expected = read_schedule({"largest": 9}), BatchSchedule(largest=9)
    for name in ("fixed", *ADAPTIVE_SETTINGS):
        assert getattr(found, name) == getattr(expected, name)
    assert read_schedule(4).next_size_after(3.0, 4.0) == 4
    assert (read_schedule(4).longest, read_schedule("adaptive").longest) == (4, 32)
    for bad, word in (("adaptiv", "adaptive"), ({"larges": 3}, "largest"), ({"rate": 0}, "rate")):
        with pytest.raises(rk.RegimekitError, match=word):
            read_schedule(bad)


def test_adaptive_batches_ignore_bursts_and_see_changes() -> None:
    stream = rk.data.iid_regimes(4)
    run = rk.br_ihmm(batch="adaptive", prior_var=4.0, particles=50).run(stream.y)
    assert rk.evaluate.adjusted_rand(run.path, stream.regimes) > 0.8


def expected_stay(kappa: float) -> float:
    """Mean probability of staying, from batch to batch, after a stream of two levels."""
    y = np.repeat([0.0, 4.0, 0.0, 4.0], 30) + 0.3 * np.random.default_rng(0).standard_normal(120)
    model = rk.br_ihmm(batch=3, sticky=kappa, prior_var=9.0, noise=0.09, particles=30)
    model.run(y)
    return float(np.diag(model.transitions().matrix).mean())


def test_kappa_raises_the_probability_of_staying() -> None:
    stays = [expected_stay(kappa) for kappa in (0.0, 5.0, 50.0)]
    assert stays[0] < stays[1] < stays[2]
