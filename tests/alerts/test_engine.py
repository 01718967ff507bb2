"""The rule engine: when alerts open, when they resolve, and that a restart changes nothing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import regimekit as rk
from regimekit import RegimekitError
from regimekit.alerts import Alert, AlertEngine, Rule, Sample

NAN = float("nan")


def rows(
    scores: list[float] | None = None,
    regimes: list[int] | None = None,
    statuses: dict[int, str] | None = None,
) -> list[Sample]:
    n = len(scores or regimes or [])
    scores, regimes = scores or [0.5] * n, regimes or [0] * n
    known = statuses or {}
    return [
        Sample(i, 1000.0 + i, 1.0, scores[i], regimes[i], known.get(regimes[i], "unknown"))
        for i in range(n)
    ]


def run(engine: AlertEngine, samples: list[Sample]) -> list[Alert]:
    return [alert for sample in samples for alert in engine.update(sample)]


def engine(*rules: Rule, stream: str = "plant.press", state: Any = None) -> AlertEngine:
    return AlertEngine(stream, rules, state)


ANOMALY = Rule("odd", "anomaly", count=3, window=5, quiet=10, warmup=20, threshold=0.999)


def test_n_of_m_anomalous_rows_open_one_alert_that_resolves_when_quiet() -> None:
    scores = [0.5] * 30 + [1.0, 0.5, 1.0, 0.5, 1.0, 1.0, 1.0] + [0.5] * 20
    opened, resolved = run(engine(ANOMALY), rows(scores))
    assert (opened.start, opened.opened, opened.start_time) == (30, 34, 1030.0)
    assert opened.is_open
    assert resolved.id == opened.id
    assert resolved.resolved == 36 + 10


def test_single_spikes_do_not_open_an_alert() -> None:
    scores = ([1.0] + [0.5] * 4) * 40
    assert run(engine(ANOMALY), rows(scores)) == []


def test_after_an_alert_the_next_one_needs_more_evidence_for_a_while() -> None:
    burst = [0.9995] * 3 + [0.5] * 47
    times = [a.opened for a in run(engine(ANOMALY), rows([0.5] * 50 + burst * 120)) if a.is_open]
    # Tail probabilities of 5e-4 are enough for a threshold of 1e-3 after about 0.3 of an alert.
    assert times[0] == 52 and 3400 < times[1] - times[0] < 3600
    unlimited = Rule(
        "odd", "anomaly", count=3, window=5, quiet=10, warmup=20, threshold=0.999, budget=0
    )
    assert len(run(engine(unlimited), rows([0.5] * 50 + burst * 10))) == 20
    strong = [1 - 1e-6] * 3 + [0.5] * 47
    assert len(run(engine(ANOMALY), rows([0.5] * 50 + strong * 2))) == 4


def test_the_recent_alerts_of_a_stream_are_part_of_the_state() -> None:
    change = Rule("change", "regime change", dwell=5, warmup=20)
    first = engine(ANOMALY, change)
    before = rows([0.5] * 50 + [1.0] * 3 + [0.5] * 17)
    assert len(run(first, before)) == 2
    state = json.loads(json.dumps(first.state()))
    after = rows(regimes=[0] * 70 + [1] * 12)[70:]
    # Twice the dwell, less what has faded in 20 rows.
    (opened,) = run(engine(ANOMALY, change, state=state), after)
    assert opened.opened == 70 + 10 - 1


def test_rows_without_observation_are_not_anomalous() -> None:
    assert run(engine(ANOMALY), rows([0.5] * 30 + [NAN] * 30)) == []


def test_no_alert_during_the_warm_up() -> None:
    assert run(engine(ANOMALY), rows([1.0] * 5 + [0.5] * 50)) == []


def test_the_first_regime_is_not_an_alert_and_a_short_regime_is_ignored() -> None:
    rule = Rule("change", "regime change", dwell=5, warmup=0)
    regimes = [-1] * 10 + [0] * 50 + [1] * 4 + [0] * 50
    assert run(engine(rule), rows(regimes=regimes)) == []


def test_a_new_regime_opens_one_alert_and_the_return_resolves_it() -> None:
    rule = Rule("change", "regime change", dwell=5, warmup=20)
    regimes = [0] * 60 + [1] * 30 + [0] * 30 + [1] * 30
    opened, resolved = run(engine(rule), rows(regimes=regimes))
    assert (opened.start, opened.opened) == (60, 64)
    assert (opened.regime, opened.previous) == (1, 0)
    assert resolved.resolved == 94
    assert "returned to regime 0" in str(resolved.resolution)


def test_returning_regimes_open_alerts_if_the_rule_says_so() -> None:
    rule = Rule("change", "regime change", dwell=5, warmup=20, returning=True)
    regimes = [0] * 60 + [1] * 30 + [0] * 30 + [1] * 30
    assert [a.is_open for a in run(engine(rule), rows(regimes=regimes))] == [True, False, True]


def test_a_regime_change_counts_as_usual_after_the_quiet_rows() -> None:
    rule = Rule("change", "regime change", dwell=5, warmup=20, quiet=40)
    opened, resolved = run(engine(rule), rows(regimes=[0] * 60 + [1] * 100))
    assert resolved.resolved == 60 + 40 - 1
    assert resolved.id == opened.id


def test_labelling_the_new_regime_as_normal_resolves_the_alert() -> None:
    rule = Rule("change", "regime change", dwell=5, warmup=20)
    watch = engine(rule)
    assert len(run(watch, rows(regimes=[0] * 60 + [1] * 10))) == 1
    (resolved,) = watch.update(Sample(70, None, 1.0, 0.5, 1, "normal"))
    assert not resolved.is_open


def test_a_fault_keeps_alarming_until_the_stream_leaves_it() -> None:
    rule = Rule("fault", "fault", dwell=3, severity="critical")
    regimes = [0] * 50 + [2] * 2 + [0] * 10 + [2] * 500 + [0] * 2 + [2] * 5 + [0] * 10
    first, end, opened, resolved = run(engine(rule), rows(regimes=regimes, statuses={2: "fault"}))
    assert (first.opened, end.resolved, end.id) == (50, 52 + 3 - 1, first.id)
    assert (opened.start, opened.opened, opened.severity) == (62, 62, "critical")
    assert resolved.resolved == 62 + 500 + 2 + 5 + 3 - 1


def test_a_labelled_fault_of_a_model_alerts_at_once_and_a_normal_regime_does_not() -> None:
    rng = np.random.default_rng(0)
    levels = np.repeat([0.0, 8.0, 0.0, 8.0, 0.0], 100)
    model = rk.br_ihmm()
    model.run(levels[:200] + rng.normal(size=200))
    model.label_regime(0, status="normal")
    model.label_regime(1, status="fault")
    rules = [Rule("fault", "fault"), Rule("change", "regime change", returning=True)]
    later = model.run(levels[200:] + rng.normal(size=300))
    statuses = {regime.id: regime.status for regime in model.regimes()}
    found = run(engine(*rules), rows(regimes=later.regime.tolist(), statuses=statuses))
    fault = np.r_[False, later.regime == 1, False]
    first, end = np.flatnonzero(np.diff(fault.astype(int))).reshape(-1, 2).T.tolist()
    # The rest of the visit in which it was labelled, and its return.
    assert len(first) == 2
    assert [a.opened for a in found if a.rule == "fault" and a.is_open] == first
    assert [a.resolved for a in found if a.rule == "fault" and not a.is_open] == [
        row + 4 for row in end
    ]
    assert not [a for a in found if a.is_open and a.regime == 0]


def test_anomaly_and_regime_change_of_one_event_open_one_alert() -> None:
    change = Rule("change", "regime change", dwell=5, warmup=20)
    samples = rows([0.5] * 60 + [1.0] * 10 + [0.5] * 50, [0] * 60 + [1] * 60)
    assert [a.rule for a in run(engine(ANOMALY, change), samples) if a.is_open] == ["odd"]
    # A more severe rule opens its own alert.
    severe = Rule("change", "regime change", dwell=5, warmup=20, severity="critical")
    opened = [a.rule for a in run(engine(ANOMALY, severe), samples) if a.is_open]
    assert opened == ["odd", "change"]


def test_forecast_limit_opens_once_and_resolves() -> None:
    rule = Rule("hot", "forecast limit", above=90.0, horizon=3, probability=0.2, quiet=2, warmup=0)
    watch = engine(rule)
    asked: list[float] = []

    def forecast(values: list[float]) -> Any:
        def quantiles(q: float) -> list[float]:
            asked.append(q)
            return values

        return quantiles

    samples = rows([0.5] * 10)
    assert watch.horizon == 3
    assert watch.update_forecast(samples[0], forecast([80, 85, 89, 95])) == []
    (opened,) = watch.update_forecast(samples[1], forecast([80, 91, 92, 95]))
    assert "in 2 steps" in opened.summary
    assert asked == [0.8, 0.8]
    assert watch.update_forecast(samples[2], forecast([95] * 4)) == []
    assert watch.update_forecast(samples[3], forecast([80] * 4)) == []
    (resolved,) = watch.update_forecast(samples[4], forecast([80] * 4))
    assert resolved.id == opened.id


def test_stale_streams() -> None:
    watch = engine(Rule("silent", "stale", seconds=60))
    assert watch.update_clock(1000.0, 950.0, 7) == []
    (opened,) = watch.update_clock(1011.0, 950.0, 7)
    assert watch.update_clock(2000.0, 950.0, 7) == []
    (resolved,) = watch.update_clock(2001.0, 2000.5, 8)
    assert (resolved.id, resolved.is_open) == (opened.id, False)


def test_a_restart_does_not_resolve_the_alert_of_a_stale_stream() -> None:
    """The time before the start of a watcher is not silence, but it brings no rows either."""
    rule = Rule("silent", "stale", seconds=60.0)
    watch = engine(rule)
    assert watch.update_clock(1011.0, 950.0, 7, started=1000.0) == []
    (opened,) = watch.update_clock(1061.0, 950.0, 7, started=1000.0)
    again = engine(rule, state=json.loads(json.dumps(watch.state())))
    assert again.update_clock(1071.0, 950.0, 7, started=1070.0) == []
    (resolved,) = again.update_clock(1080.0, 1079.0, 8, started=1070.0)
    assert (resolved.id, resolved.resolved_time) == (opened.id, 1079.0)


def test_a_restart_at_any_row_gives_the_same_alerts() -> None:
    rules = [
        ANOMALY,
        Rule("change", "regime change", dwell=5, warmup=20, quiet=30, severity="critical"),
        Rule("fault", "fault", dwell=3),
    ]
    scores = [0.5] * 40 + [1.0, 0.5, 1.0, 1.0] + [0.5] * 30
    regimes = [0] * 44 + [1] * 20 + [0] * 10
    samples = rows(scores, regimes, {1: "fault"})
    expected = run(engine(*rules), samples)
    assert len({alert.id for alert in expected}) == 3
    for cut in range(len(samples)):
        first = engine(*rules)
        found = run(first, samples[:cut])
        second = engine(*rules, state=json.loads(json.dumps(first.state())))
        assert found + run(second, samples[cut:]) == expected


def test_rules_apply_to_a_stream_or_a_prefix() -> None:
    rules = [
        Rule("a", "fault", prefix="plant."),
        Rule("b", "fault", stream="x"),
        Rule("c", "fault"),
    ]
    assert [rule.name for rule in engine(*rules).rules] == ["a", "c"]
    assert [rule.name for rule in engine(*rules, stream="x").rules] == ["b", "c"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "a", "kind": "anomalies"}, "anomaly"),
        ({"name": "a", "kind": "fault", "threshold": 0.9}, "threshold"),
        ({"name": "a", "kind": "anomaly", "threshold": 1.5}, "threshold"),
        ({"name": "a", "kind": "anomaly", "count": 9, "window": 5}, "count"),
        ({"name": "a", "kind": "anomaly", "severity": "bad"}, "severity"),
        ({"name": "a", "kind": "forecast limit"}, "above"),
        ({"name": "a", "kind": "stale", "seconds": -1}, "seconds"),
        ({"name": "a", "kind": "anomaly", "window": True}, "window"),
        ({"kind": "anomaly"}, "name"),
    ],
)
def test_invalid_rules_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RegimekitError, match=message):
        Rule.from_dict(given)


def test_a_rule_survives_json() -> None:
    rule = Rule("hot", "forecast limit", above=90.0, horizon=3, severity="info")
    assert Rule.from_dict(json.loads(json.dumps(rule.to_dict()))) == rule
