"""The Prometheus bridge without a server: encoding, gaps, counters, staleness, restarts."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="the extra `prometheus` is not installed")

from prometheus_client import generate_latest

from regimekit import RegimekitError
from regimekit.integrations.monitor import Monitor, scaled_score
from regimekit.integrations.prometheus import Bridge, BridgeConfig
from regimekit.integrations.prometheus.client import (
    DuplicateError,
    Series,
    SourceError,
    Written,
    grid_end,
    snappy_block,
    write_request,
)

SMALL = {"expr": "m", "model": "br_ihmm", "settings": {"particles": 20, "noise": 0.16}}
STEP = 10.0


def config(folder: Path, **more: Any) -> BridgeConfig:
    given = {
        "source": "http://127.0.0.1:1",
        "state": str(folder),
        "step": "10s",
        "delay": "0s",
        "backfill": "1h",
        "stale": "60s",
        "queries": {"q": SMALL},
    }
    return BridgeConfig.from_dict(given | more)


class Source:
    """Series in memory instead of a server, and what was written to them."""

    def __init__(self, bridge: Bridge, series: dict[str, dict[float, float]]) -> None:
        self.series = series
        self.written: list[Written] = []
        self.failures = 0
        bridge._client.query_range = self.query_range  # type: ignore[method-assign]
        bridge._client.remote_write = self.remote_write  # type: ignore[method-assign]

    def query_range(self, source: str, expr: str, start: float, end: float, step: float) -> Any:
        found = []
        for name, points in self.series.items():
            inside = [(t, v) for t, v in sorted(points.items()) if start <= t <= end]
            if inside:
                found.append(Series({"__name__": "m", "instance": name}, inside))
        return found

    def remote_write(self, address: str, samples: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise SourceError("down")
        known = {(tuple(sorted(s.labels.items())), s.at) for s in self.written}
        new = list(samples)
        if any((tuple(sorted(s.labels.items())), s.at) in known for s in new):
            raise DuplicateError("out of order sample")
        self.written += new


def values(n: int, start: float = 0.0, seed: int = 0) -> dict[float, float]:
    y = np.random.default_rng(seed).normal(size=n)
    return {start + STEP * i: float(y[i]) for i in range(n)}


def test_snappy_and_protobuf_decode_to_what_was_encoded() -> None:
    samples = [Written({"__name__": "yhat", "b": "ü"}, 1.5, -2.25)]
    block = snappy_block(write_request(samples))
    assert block[1] == 61 << 2
    content = block[4:]
    assert block[0] == len(content) == struct.unpack("<H", block[2:4])[0] + 1
    assert struct.pack("<d", -2.25) in content and "ü".encode() in content
    assert content.endswith(b"\x10\xdc\x0b")  # 1500 ms as a varint
    long = snappy_block(b"x" * 200_000)
    assert len(long) == 3 + 200_000 + 4 * 3


def test_the_scaled_score_is_above_1_beyond_the_threshold() -> None:
    assert scaled_score(0.9999, 0.9999) == pytest.approx(1.0)
    assert scaled_score(0.5, 0.9999) < 0.1
    assert 3 < scaled_score(1.0, 0.9999) < 5
    assert math.isnan(scaled_score(math.nan, 0.9999))


def test_the_grid_ends_before_the_delay() -> None:
    assert grid_end(125.0, 0.0, 10.0) == 120.0
    assert grid_end(125.0, 30.0, 10.0) == 90.0


def test_labels_are_kept_and_stale_series_leave_the_endpoint(tmp_path: Path) -> None:
    now = [1000.0]
    bridge = Bridge(config(tmp_path), lambda: now[0])
    source = Source(bridge, {"a": values(101), "b": values(51, seed=1)})
    bridge.poll()
    text = generate_latest(bridge.registry).decode()
    line = next(x for x in text.splitlines() if x.startswith("yhat{"))
    assert 'instance="a"' in line and 'for="q"' in line
    for name in ("yhat", "yhat_lower", "yhat_upper", "anomaly_score", "regime", "regime_status"):
        assert f'{name}{{for="q",instance="a"}}' in text
        assert f'{name}{{for="q",instance="b"}}' not in text, "b has no values since 500"
    source.series["b"] |= values(1, 1010.0)
    now[0] = 1010.0
    bridge.poll()
    assert 'yhat{for="q",instance="b"}' in generate_latest(bridge.registry).decode()
    # The model of b has seen the gap as rows without an observation.
    monitor = next(m for key, m in bridge.queries[0].monitors.items() if '"b"' in key)
    assert monitor.rows == 102


@pytest.mark.parametrize("cuts", [[], [3, 40], [1, 2, 3, 4, 5, 60]])
def test_restarts_lose_and_double_nothing(tmp_path: Path, cuts: list[int]) -> None:
    """Kill the bridge (no save) or stop it (save) at some polls; the samples stay the same."""
    series = {"a": values(90), "b": {t: v for t, v in values(90, seed=1).items() if t % 70}}
    series["late"] = values(30, 400.0, seed=2)
    expected: list[Written] = []
    for name, killed in (("plain", []), ("cut", cuts)):
        now = [0.0]
        settings = config(tmp_path / name, remote_write="http://127.0.0.1:1", save_every="50s")
        bridge = Bridge(settings, lambda now=now: now[0])
        source = Source(bridge, series)
        for i in range(90):
            now[0] = STEP * i
            bridge.poll()
            if i in killed:
                written = source.written
                if i % 2:
                    bridge.save()
                bridge = Bridge(settings, lambda now=now: now[0])
                source = Source(bridge, series)
                source.written = written
        if not expected:
            expected = source.written
            assert len({s.at for s in expected}) == 90
    key = lambda s: (s.at, sorted(s.labels.items()))  # noqa: E731
    assert sorted(source.written, key=key) == sorted(expected, key=key)


def test_samples_wait_while_the_receiver_is_down(tmp_path: Path) -> None:
    now = [0.0]
    settings = config(tmp_path, remote_write="http://127.0.0.1:1", save_every="1s")
    bridge = Bridge(settings, lambda: now[0])
    source = Source(bridge, {"a": values(30)})
    source.failures = 5
    for i in range(30):
        now[0] = STEP * i
        bridge.poll()
    assert {s.at for s in source.written} == set(source.series["a"])


def test_a_kill_between_writing_and_noting_it_does_not_double_samples(tmp_path: Path) -> None:
    now = [0.0]
    settings = config(tmp_path, remote_write="http://127.0.0.1:1")
    series = {"a": values(30)}
    bridge = Bridge(settings, lambda: now[0])
    source = Source(bridge, series)
    for i in range(20):
        now[0] = STEP * i
        bridge.poll()
    (tmp_path / "q" / "written.json").unlink()
    again = Bridge(settings, lambda: now[0])
    source_again = Source(again, series)
    source_again.written = list(source.written)
    now[0] = STEP * 29
    again.poll()
    assert len(source_again.written) == len({(str(s.labels), s.at) for s in source_again.written})
    assert {s.at for s in source_again.written} == set(series["a"])


def test_values_that_arrive_late_are_not_lost(tmp_path: Path) -> None:
    now = [0.0]
    settings = config(tmp_path, remote_write="http://127.0.0.1:1")
    bridge = Bridge(settings, lambda: now[0])
    complete = {"a": values(40), "b": values(40, seed=1)}
    source = Source(bridge, {"a": {}, "b": {}})
    for i in range(44):
        now[0] = STEP * i
        # Values of b arrive three steps late.
        for name, late in (("a", 0), ("b", 3)):
            known = {t: v for t, v in complete[name].items() if t <= now[0] - late * STEP}
            source.series[name] = known
        bridge.poll()
    for name in "ab":
        times = {s.at for s in source.written if s.labels["instance"] == name}
        assert times == set(complete[name])


def test_a_counter_is_monitored_by_its_increase_also_after_a_reset(tmp_path: Path) -> None:
    now = [200.0]
    bridge = Bridge(config(tmp_path, queries={"q": SMALL | {"counter": True}}), lambda: now[0])
    totals = {0.0: 100.0, 10.0: 150.0, 20.0: 210.0, 30.0: 20.0, 50.0: 120.0}
    Source(bridge, {"a": totals})
    bridge.poll()
    (monitor,) = bridge.queries[0].monitors.values()
    run_rows: list[float] = []
    again = Monitor("x", (), "br_ihmm", SMALL["settings"])
    for rate in (5.0, 6.0, 2.0, math.nan, 5.0):
        run_rows.append(again.process([rate], [0.0])[0][0].yhat)
    assert monitor.rows == 5
    assert monitor.latest is not None
    assert monitor.latest.y == 5.0
    assert monitor.latest.yhat == pytest.approx(run_rows[-1])


def test_a_series_that_ended_long_ago_does_not_stop_the_bridge(tmp_path: Path) -> None:
    """Its alert opens and resolves within one request, after which its model is deleted."""
    y = values(300)
    y |= {t: v + 30 for t, v in y.items() if 2000 <= t < 2050}
    rule = {"name": "odd", "kind": "anomaly", "quiet": 20, "warmup": 50, "threshold": 0.999}
    settings = config(tmp_path, backfill="10h", forget="1h", rules=[rule])
    bridge = Bridge(settings, lambda: 30_000.0)
    Source(bridge, {"a": y, "b": values(5, 29_950.0)})
    bridge.poll()
    assert [m.extra["labels"]["instance"] for m in bridge.queries[0].monitors.values()] == ["b"]
    assert [(alert.rule, labels["instance"]) for alert, labels in bridge._resolved] == [
        ("odd", "a")
    ]


def test_a_series_that_stops_is_stale_until_it_returns(tmp_path: Path) -> None:
    now = [1000.0]
    rules = [{"name": "silent", "kind": "stale", "seconds": 120.0}]
    bridge = Bridge(config(tmp_path, rules=rules), lambda: now[0])
    source = Source(bridge, {"a": values(101), "b": values(200)})
    seen = []
    for now[0] in (1000.0, 1110.0, 1130.0, 1200.0):
        bridge.poll()
        seen.append(
            [alert.stream for m in bridge.queries[0].monitors.values() for alert in m.engine.open]
        )
    key = 'q:m{instance="a"}'
    assert seen == [[], [], [key], [key]]
    bridge.save()
    bridge = Bridge(bridge.config, lambda: now[0])
    source = Source(bridge, source.series | {"a": values(130)})
    now[0] = 1300.0
    bridge.poll()
    ((alert, labels),) = bridge._resolved
    assert (alert.stream, alert.resolution) == (key, "rows arrive again")
    assert labels == {"instance": "a", "for": "q"}


def test_the_number_of_series_is_limited(tmp_path: Path) -> None:
    bridge = Bridge(config(tmp_path, max_series=2), lambda: 100.0)
    Source(bridge, {name: values(5) for name in "abcd"})
    bridge.poll()
    assert len(bridge.queries[0].monitors) == 2


def test_a_monitor_survives_its_bytes() -> None:
    monitor = Monitor("k", (), "br_ihmm", SMALL["settings"])
    y = np.random.default_rng(0).normal(size=60).tolist()
    monitor.process(y[:30], [None] * 30)
    monitor.label(0, "calm", "normal")
    monitor.position = 3
    again = Monitor.from_bytes(monitor.to_bytes())
    assert again.latest == monitor.latest and again.position == 3
    assert again.process(y[30:], [None] * 30) == monitor.process(y[30:], [None] * 30)
    with pytest.raises(RegimekitError, match="cannot be read"):
        Monitor.from_bytes(b"nonsense")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"source": "localhost:9090"}, "source"),
        ({"step": "soon"}, "step"),
        ({"queries": {}}, "queries"),
        ({"queries": {"q": {"model": "auto"}}}, "expr"),
        ({"queries": {"q": {"expr": "m", "modle": "auto"}}}, "modle"),
        ({"intervall": 3}, "intervall"),
        ({"rules": [{"name": "a", "kind": "odd"}]}, "odd"),
        ({"listen": None}, "remote_write"),
        ({"threshold": 2.0}, "threshold"),
    ],
)
def test_invalid_configurations_name_the_entry(
    tmp_path: Path, entry: dict[str, Any], message: str
) -> None:
    with pytest.raises(RegimekitError, match=message):
        config(tmp_path, **entry)
