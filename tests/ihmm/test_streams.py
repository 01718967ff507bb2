"""What a user of the default model is promised on plain streams: dates, events, first values.

Known noise and a wide prior, the defaults for the rest: batches of six in six islands, outliers
with a density of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import regimekit as rk
from regimekit.results import CHANGES, Event, Run

SEEDS = range(20)


def model(seed: int = 0, **more: Any) -> Any:
    return rk.br_ihmm(noise=1.0, prior_var=100.0, seed=seed, **more)


def changes(run: Run) -> list[Event]:
    return [event for event in run.events if event.kind in CHANGES]


def phases(upper: np.ndarray, batch: int) -> np.ndarray:
    """Mean of the upper limit at each place of the batch."""
    return np.array([upper[k::batch].mean() for k in range(batch)])


def test_the_forecast_has_no_saw() -> None:
    """On a settled stream no place of the batch is special, and the limit never leaps.

    One island alone must allow for a new regime at the beginning of each batch and at no other
    moment; six islands begin one after the other.
    """
    y = np.random.default_rng(0).standard_normal(600)
    ready = {"gamma_prior": (1.0, 1.0)}  # to open regimes, so that there is something to see
    settled = model(**ready).run(y).upper[300:]
    assert np.ptp(phases(settled, 6)) < 0.005
    assert np.abs(np.diff(settled)).max() < 0.05
    alone = model(islands=1, **ready).run(y).upper[300:]
    assert np.ptp(phases(settled, 6)) < np.ptp(phases(alone, 6))


def test_close_levels_are_found_with_the_prior_of_gamma_of_the_paper() -> None:
    """Ten levels N(0, 1), noise 1, a change every 100: forecasts are better than by default.

    The error was 7 to 14 % smaller in each of ten groups of six seeds.
    """
    errors = np.zeros(2)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        clean = np.repeat(rng.standard_normal(10)[rng.integers(0, 10, 15)], 100)
        y = clean + rng.standard_normal(1500)
        for k, changed in enumerate(({"gamma_prior": (1.0, 1.0)}, {})):
            run = model(seed, **changed).run(y)
            errors[k] += np.sqrt(np.mean((run.mean - clean) ** 2))
    assert errors[0] < 0.97 * errors[1]


def test_every_change_is_one_event_with_its_date() -> None:
    """Three segments eight standard deviations apart: opened, opened, returned.

    Each change is known within two batches and dated to the very observation.
    """
    for seed in SEEDS:
        noise = np.random.default_rng(seed).standard_normal(300)
        run = model(seed).run(noise + np.repeat([0.0, 8.0, 0.0], 100))
        reported = [(event.kind, event.regime, event.since) for event in changes(run)]
        assert reported == [
            ("regime opened", 0, 0),
            ("regime opened", 1, 100),
            ("regime returned", 0, 200),
        ]
        assert run.changepoints == [100, 200]
        assert all(event.time - event.since < 12 for event in changes(run))
        assert run.path.tolist() == np.repeat([0, 1, 0], 100).tolist()


def test_dates_of_closer_levels_are_near() -> None:
    """Four standard deviations apart the date is off by at most two, and by less on average."""
    off = []
    for seed in SEEDS:
        noise = np.random.default_rng(100 + seed).standard_normal(160)
        run = model(seed).run(noise + np.repeat([0.0, 4.0], 80))
        (first, second) = changes(run)
        assert first.since == 0 and first.time <= 6
        off.append(abs(second.since - 80))
    assert max(off) <= 3 and np.mean(off) <= 0.5


def test_smoothed_regimes_use_what_was_known_after_the_lag() -> None:
    """Every row is what `path` would be of the stream that ends `lag` observations later."""
    noise = np.random.default_rng(3).standard_normal(120)
    y = noise + np.repeat([0.0, 8.0, 0.0], 40)
    run = model(3).run(y)
    assert (run.smoothed(0) == run.regime).all() and (run.smoothed(119) == run.path).all()
    for lag in (1, 3, 6):
        found = run.smoothed(lag)
        for t in range(35, 120 - lag):
            assert found[t] == model(3).run(y[: t + lag + 1]).path[t], (lag, t)
    with pytest.raises(rk.RegimekitError, match="lag must be"):
        run.smoothed(-1)


def test_the_rule_of_the_paper_labels_whole_batches() -> None:
    """Without D14 labels change only where a batch begins; with it at the observation itself."""
    rng = np.random.default_rng(1)
    y = 0.5 * rng.standard_normal(200) + np.repeat([0.0, 6.0], [97, 103])
    found = {}
    for rule in ("paper", {"D14": "paper"}, "default"):
        path = rk.br_ihmm(noise=0.25, prior_var=9.0, batch=6, threshold=2.0, rule=rule).run(y).path
        found[str(rule)] = np.flatnonzero(np.diff(path)) + 1
    assert found["paper"].size and not (found["paper"] % 6).any()
    assert found[str({"D14": "paper"})].tolist() == [102]  # the batch of 96 belongs to both
    assert found["default"].tolist() == [97]


@pytest.mark.xfail(strict=True, reason="a cost of removing newborn branches: see ADR 4")
def test_a_first_observation_far_off_is_repaired() -> None:
    """Ten standard deviations off: after six ordinary values the forecast is theirs."""
    extra, error = [], []
    for seed in SEEDS:
        y = np.random.default_rng(seed).standard_normal(200)
        y[0] = 10.0
        m = model(seed)
        m.run(y[:7])
        error.append(abs(m.predict().mean - y[1:7].mean()))
        extra.append(len(set(m.run(y[7:]).path.tolist())) - 1)
    assert np.mean(extra) <= 0.1
    assert max(error) < 1.0


def test_a_newborn_is_not_what_its_first_value_was() -> None:
    """The level changes, and the new one begins with an outlier that belongs to neither."""
    missed = 0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        y = rng.standard_normal(120) + np.repeat([0.0, 10.0], 60)
        y[60] = 60.0
        m = model(seed)
        run = m.run(y)
        missed += len(changes(run)) != 2
        assert abs(m.predict().mean - 10.0) < 1.0
        known = [regime.mean[0] for regime in m.regimes()]
        assert not any(abs(level - 60.0) < 20.0 for level in known)
    assert missed <= 1


@pytest.mark.parametrize("islands", [1, 3])
def test_a_run_is_its_updates_and_its_chunks(islands: int) -> None:
    """To the bit, whatever the number of components: also beyond what is summed at once."""
    rng = np.random.default_rng(3)
    y = np.repeat([0.0, 6.0, 0.0, -6.0], 30) + rng.standard_normal(120)
    y[[7, 50, 51]] = [40.0, np.nan, np.nan]
    whole = model(islands=islands, batch=4, particles=60).run(y)
    chunked, single = (model(islands=islands, batch=4, particles=60) for _ in range(2))
    parts = [chunked.run(y[a:b]) for a, b in ((0, 1), (1, 46), (46, 47), (47, 120))]
    steps = [single.update(value) for value in y]
    for name in ("log_score", "weight", "regime", "regime_probability", "change_probability"):
        values = getattr(whole, name)
        np.testing.assert_array_equal(np.concatenate([getattr(p, name) for p in parts]), values)
        np.testing.assert_array_equal([getattr(step, name) for step in steps], values)
    for name in ("mean", "median", "lower", "upper", "sd"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined, getattr(whole, name), err_msg=name)
    assert [event for part in parts for event in part.events] == whole.events
    assert chunked.to_bytes() == single.to_bytes()


@pytest.mark.slow
def test_one_regime_of_unknown_noise_stays_one() -> None:
    """iid N(0, 1), the noise unknown, 20 streams of 500: false alarms are rare.

    A score that is a density has no reason to prefer two regimes to the true one. At most two of
    the 20 streams may be reported a change that is none: one false alarm in 5000 observations.
    """
    alarms = []
    for seed in SEEDS:
        y = np.random.default_rng(seed).standard_normal(500)
        run = rk.student_t_ihmm(prior_var=10.0, seed=seed).run(y)
        alarms.append(len(changes(run)) - 1)
    assert sum(alarm > 0 for alarm in alarms) <= 2
    assert np.mean(alarms) <= 0.2
