"""Calibration from transforms, and transforms from a run's limits."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import regimekit as rk
from regimekit import RegimekitError
from regimekit import metrics as evaluate


def test_a_normal_told_by_its_limits_is_itself(rng: np.random.Generator) -> None:
    n = 4000
    run = rk.br_ihmm(particles=5).run(np.zeros(40))
    centre, sd, z = rng.standard_normal(n), rng.uniform(0.5, 2.0, n), rng.standard_normal(n)
    columns = {"mean": centre, "lower": centre - 1.6448536 * sd, "upper": centre + 1.6448536 * sd}
    known = {field.name for field in dataclasses.fields(run)}
    columns |= {"median": centre} if "median" in known else {}
    run = dataclasses.replace(run, **columns, regime=np.zeros(n, dtype=int))
    y = centre + sd * z
    y[:10] = np.nan
    pit = evaluate.pit_of_run(run, y)
    found = evaluate.calibration(pit, bins=10)
    assert found.n == n - 10
    assert max(found.pit) < 0.125 and min(found.pit) > 0.075  # five standard errors
    assert found.coverage[0.5] == pytest.approx(0.5, abs=0.04)
    inside = evaluate.coverage(y, run.lower, run.upper)
    assert found.coverage[0.9] == pytest.approx(inside, abs=1e-6)


def test_calibration_block_by_block_is_calibration_at_once(rng: np.random.Generator) -> None:
    pit = rng.random(300)
    pit[[3, 120]] = np.nan
    running = evaluate.RunningCalibration(skip=50)
    for block in (pit[:20], pit[20:200], pit[200:]):
        running.add(block)
        state = json.loads(json.dumps(running.state()))
        running = evaluate.RunningCalibration.from_state(state)
    whole, found = evaluate.calibration(pit[50:]), running.table()
    assert found is not None and found.n == whole.n == 249
    np.testing.assert_allclose(found.pit, whole.pit)
    assert found.coverage == pytest.approx(whole.coverage)
    assert evaluate.RunningCalibration().table() is None


def test_a_run_with_transforms_is_the_run(stream: np.ndarray) -> None:
    run, pit = evaluate.run_with_pit(rk.br_ihmm(particles=5), stream)
    scored = evaluate.prequential(rk.br_ihmm(particles=5), stream)
    np.testing.assert_array_equal(run.mean, scored.run.mean)
    np.testing.assert_array_equal(pit, scored.pit)
    offline = rk.beam_ihmm(iterations=2, burn_in=1)
    assert np.isnan(evaluate.run_with_pit(offline, stream[:20])[1]).all()


def test_transforms_outside_the_unit_interval_are_refused() -> None:
    assert evaluate.calibration([1 + 1e-14], bins=2).pit == [0.0, 1.0]  # rounding is not outside
    with pytest.raises(RegimekitError, match="between 0 and 1"):
        evaluate.calibration([1.2])
