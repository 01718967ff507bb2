"""The HTTP API, tested by a client."""

from __future__ import annotations

import asyncio
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from fastapi import HTTPException
from server_helpers import SMALL
from waiting import wait

import regimekit as rk
from regimekit import datasets as data
from regimekit.server.app import LimitedBody
from regimekit.server.config import Limits

_numbers = itertools.count()


@pytest.fixture
def key() -> str:
    return f"api.{next(_numbers)}"


@pytest.mark.parametrize("key", ["-a", "a b", "a\n", "a\0", "a" * 129])
def test_invalid_keys_are_refused(server: Any, key: str) -> None:
    path = f"/streams/{quote(key, safe='')}"
    for method, where in (("PUT", path), ("POST", f"{path}/observations"), ("GET", path)):
        answer = server.client.request(method, where, json={"y": 1.0} if method == "POST" else {})
        assert answer.status_code == 422, (method, answer.text)


def test_forecasts_and_events_have_times(server: Any, key: str) -> None:
    times = [f"2026-03-01T{i // 60:02d}:{i % 60:02d}Z" for i in range(120)]
    y = data.regime_stream(seed=3, n=120).y.tolist()
    server.make(key)
    server.send(key, [{"y": v, "time": t} for v, t in zip(y, times, strict=True)])
    steps = server.client.get(f"/streams/{key}/forecast?horizon=2").json()["steps"]
    assert [step["time"] for step in steps] == ["2026-03-01T02:00:00Z", "2026-03-01T02:01:00Z"]
    events = server.client.get(f"/streams/{key}/events?kind=-outlier").json()["events"]
    assert events
    for event in events:
        assert event["time"] == times[event["seq"]]
        assert event["since_time"] == times[event["since"]]

    server.send(key, [{"y": 9.0}])  # no time: the time of the next one is unknown
    (step,) = server.client.get(f"/streams/{key}/forecast").json()["steps"]
    assert step["time"] is None


def post(server: Any, key: str, content: str | bytes, kind: str = "application/json") -> Any:
    return server.client.post(
        f"/streams/{key}/observations", content=content, headers={"content-type": kind}
    )


def test_outputs_are_those_of_the_library(server: Any, key: str) -> None:
    y = data.regime_stream(seed=3, n=130).y
    server.make(key)
    for first in (0, 1, 40, 41, 100):
        last = {0: 1, 1: 40, 40: 41, 41: 100, 100: 130}[first]
        server.send(key, [{"y": v} for v in y[first:last].tolist()])
    model = rk.make("br_ihmm", particles=20, noise=0.16)
    run = model.run(y)
    rows = server.rows(key)
    assert [row["seq"] for row in rows] == list(range(130))
    for name in ("mean", "sd", "lower", "upper", "log_score", "weight", "regime"):
        assert [row[name] for row in rows] == getattr(run, name).tolist(), name
    assert [row["outlier"] for row in rows] == run.outlier.tolist()
    taken = server.client.get(f"/streams/{key}/snapshot")
    assert taken.headers["regimekit-rows"] == "130"
    assert rk.from_bytes(taken.content).predict().mean == model.predict().mean
    steps = server.client.get(f"/streams/{key}/forecast?horizon=3&level=0.5").json()["steps"]
    assert [step["mean"] for step in steps] == [f.mean for f in model.forecast(3)]
    assert steps[0]["lower"] == pytest.approx(model.forecast(1)[0].interval(0.5)[0])
    told = server.client.get(f"/streams/{key}/regimes").json()["regimes"]
    shown = {regime["id"]: regime for regime in told}
    for regime in model.regimes():
        found = shown[regime.id]
        assert found["typical"] == pytest.approx(regime.typical)
        assert (found["low"], found["high"]) == pytest.approx((regime.low, regime.high))
        assert found["summary"] == regime.summary != ""
    assert [row["anomaly_score"] for row in rows] == run.anomaly_score.tolist()
    moves = server.client.get(f"/streams/{key}/transitions").json()
    assert np.allclose(moves["matrix"], model.transitions().matrix)


def test_defaults(server: Any, key: str) -> None:
    made = server.client.put(f"/streams/{key}", json={})
    assert made.status_code == 201 and made.json()["model"] == "auto"
    assert server.client.put(f"/streams/{key}", json={}).status_code == 200
    server.send(key, {"id": "7", "time": "2026-03-01T12:00:00Z", "y": 1.5})
    assert server.rows(key)[0]["y"] == 1.5


def test_an_id_or_a_sequence_number_counts_once(server: Any, key: str) -> None:
    server.make(key)
    rows = [{"id": str(i), "y": float(i)} for i in range(5)]
    assert server.send(key, rows) == {"accepted": 5, "duplicates": 0, "rows": 5, "out_of_order": 0}
    assert server.send(key, rows[2:] + [{"id": "5", "y": 5.0}] * 2) == {
        "accepted": 1,
        "duplicates": 4,
        "rows": 6,
        "out_of_order": 0,
    }
    assert server.send(key, [{"seq": 5, "y": 9.0}, {"seq": 6, "y": 6.0}])["accepted"] == 1
    assert server.send(key, {"seq": 6, "y": 6.0})["duplicates"] == 1
    gap = server.client.post(f"/streams/{key}/observations", json={"seq": 9, "y": 1.0})
    assert gap.status_code == 409 and "next observation is 7" in gap.json()["detail"]
    assert [row["y"] for row in server.rows(key)] == [0, 1, 2, 3, 4, 5, 6]


def test_all_formats_give_the_same_rows(server: Any, key: str) -> None:
    bodies = {
        "application/json": '[{"id":"1","time":"2026-03-01T00:00:00Z","y":1.5},'
        '{"id":"2","time":"2026-03-01T01:00:00Z","y":null}]',
        "application/x-ndjson": '{"id":"1","time":"2026-03-01T00:00:00Z","y":1.5}\n\n'
        '{"id":"2","time":"2026-03-01T01:00:00Z","y":null}\n',
        "text/csv": "id,time,y\r\n1,2026-03-01T00:00:00Z,1.5\r\n2,2026-03-01T01:00:00Z,\r\n",
    }
    found = []
    for i, (kind, body) in enumerate(bodies.items()):
        server.make(f"{key}.{i}")
        assert post(server, f"{key}.{i}", body, kind).status_code == 200
        found.append([row | {"received": 0} for row in server.rows(f"{key}.{i}")])
    assert found[0] == found[1] == found[2]
    assert found[0][1]["y"] is None and found[0][1]["at"] == 1772326800.0


def test_seconds_since_1970_are_a_time_in_every_format(server: Any, key: str) -> None:
    for i, (kind, body) in enumerate(
        {
            "application/json": '{"time": 1772326800, "y": 1}',
            "text/csv": "time,y\n1772326800,1\n",
        }.items()
    ):
        server.make(f"{key}.{i}")
        assert post(server, f"{key}.{i}", body, kind).status_code == 200
        found = server.rows(f"{key}.{i}")[0]
        assert (found["time"], found["at"]) == ("2026-03-01T01:00:00Z", 1772326800.0)


def test_covariates_and_vectors(server: Any, key: str) -> None:
    features = (rk.features.intercept() + rk.features.columns("heat")).to_json()
    server.make(key, model="br_ihmm", particles=20, features=features)
    body = "y,heat\n" + "".join(f"{2 * i},{i}\n" for i in range(20))
    assert post(server, key, body, "text/csv").status_code == 200
    assert server.rows(key)[3]["x"] == {"heat": 3.0}
    without = server.client.get(f"/streams/{key}/forecast?horizon=2")
    assert without.status_code == 422, without.text
    ahead = server.client.post(f"/streams/{key}/forecast", json={"x": [{"heat": 20}, {"heat": 1}]})
    assert ahead.json()["steps"][0]["mean"] > ahead.json()["steps"][1]["mean"]
    wrong = server.client.post(f"/streams/{key}/observations", json={"y": 1, "x": {"cold": 1}})
    assert wrong.status_code == 422 and "heat" in wrong.json()["detail"]
    server.make(key + ".v")
    server.send(key + ".v", [{"y": [1.0, 2.0]}, {"y": [1.0, None]}, {"y": None}])
    rows = server.rows(key + ".v")
    assert rows[1]["y"] == [1.0, None] and len(rows[2]["mean"]) == 2


BAD = [
    ("application/json", "", 422),
    ("application/json", "{", 422),
    ("application/json", "[]", 422),
    ("application/json", "[1, 2]", 422),
    ("application/json", '"y"', 422),
    ("application/json", '{"x": {"a": 1}}', 422),
    ("application/json", '{"y": "1.5"}', 422),
    ("application/json", '{"y": true}', 422),
    ("application/json", '{"y": NaN}', 422),
    ("application/json", '{"y": 1e999}', 422),
    ("application/json", '{"y": []}', 422),
    ("application/json", '{"y": [[1]]}', 422),
    ("application/json", '{"y": 1, "value": 2}', 422),
    ("application/json", '{"y": 1, "id": 7}', 422),
    ("application/json", '{"y": 1, "id": ""}', 422),
    ("application/json", '{"y": 1, "id": "a\\u0000b"}', 422),
    ("application/json", '{"y": 1, "id": "' + "i" * 129 + '"}', 422),
    ("application/json", '{"y": 1, "seq": -1}', 422),
    ("application/json", '{"y": 1, "seq": 1.5}', 422),
    ("application/json", '{"y": 1, "time": "yesterday"}', 422),
    ("application/json", '{"y": 1, "time": 1e300}', 422),
    ("application/json", '{"y": 1, "x": {"a": "b"}}', 422),
    ("application/json", '{"y": 1, "x": {"' + "n" * 65 + '": 1}}', 422),
    ("application/json", '{"y": 1, "x": {' + ",".join(f'"c{i}": 1' for i in range(65)) + "}}", 422),
    ("application/json", '[{"y": 1}, {"y": 2}, {"y": "three"}]', 422),
    ("application/json", '[{"y": 1}, {"y": [1, 2]}]', 422),
    ("application/json", '[{"y": 1}, {"y": 1, "x": {"a": 1}}]', 422),
    ("application/json", "[" + ",".join(['{"y": 1}'] * 10_001) + "]", 413),
    ("application/json", b"\xff\xfe{", 422),
    ("application/x-ndjson", '{"y": 1}\n{"y": 2\n', 422),
    ("text/csv", "a,b\n1,2\n", 422),
    ("text/csv", "y,y\n1,2\n", 422),
    ("text/csv", "y,a\n1\n", 422),
    ("text/csv", "y\nfour\n", 422),
    ("text/csv", "y\ninf\n", 422),
    ("text/csv", "time,y\nnan,1\n", 422),
    ("text/csv", "time,y\nsoon,1\n", 422),
    ("text/csv", 'y\n"1\n', 422),
    ("text/csv", b"y\n\xff\n", 422),
    ("text/csv", "y\n", 422),
    ("application/xml", "<y>1</y>", 415),
]


@pytest.mark.parametrize(("kind", "body", "status"), BAD)
def test_an_invalid_body_is_rejected_as_a_whole(
    server: Any, kind: str, body: Any, status: int
) -> None:
    server.client.put("/streams/api.bad", json=SMALL)
    answer = post(server, "api.bad", body, kind)
    assert answer.status_code == status, answer.text
    assert len(answer.json()["detail"]) > 10 and "Traceback" not in answer.text
    assert server.client.get("/streams/api.bad").json()["rows"] == 0


def test_a_bad_cell_is_named(server: Any) -> None:
    server.client.put("/streams/api.bad", json=SMALL)
    answer = post(server, "api.bad", "y,load\n1,2\n3,loud\n", "text/csv")
    assert answer.status_code == 422
    assert "Row 1: 'loud' in column 'load' is not a finite number" in answer.json()["detail"]


def test_a_rejected_request_leaves_the_model_unchanged(server: Any, key: str) -> None:
    y = data.regime_stream(seed=5, n=60).y.tolist()
    for name in (key, key + ".twin"):
        server.make(name)
        server.send(name, [{"y": v} for v in y[:30]])
    bad = [{"y": 1.0}, {"y": 2.0}, {"y": [1.0, 2.0]}]
    assert server.client.post(f"/streams/{key}/observations", json=bad).status_code == 422
    for name in (key, key + ".twin"):
        server.send(name, [{"y": v} for v in y[30:]])
    ours, twin = ([r | {"received": 0} for r in server.rows(n)] for n in (key, key + ".twin"))
    assert ours == twin


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"model": "br_ihm"}, "Did you mean 'br_ihmm'"),
        ({"model": "beam_ihmm"}, "online"),
        ({"model": "br_ihmm", "partcles": 3}, "particles"),
        ({"model": 3}, "model"),
        ({"model": "br_ihmm", "particles": 10**9}, "at most"),
        ({"model": "br_ihmm", "particles": -1}, "particles"),
        ({"model": "br_ihmm", "noise": "loud"}, "noise"),
    ],
)
def test_bad_settings_make_no_stream(server: Any, settings: Any, word: str) -> None:
    answer = server.client.put("/streams/api.none", json=settings)
    assert answer.status_code == 422 and word in answer.json()["detail"], answer.text
    assert server.client.get("/streams/api.none").status_code == 404


@pytest.mark.parametrize("name", ["a" * 129, "-a", "a%2Fb", "a b", "ü", "a%00"])
def test_a_key_is_plain(server: Any, name: str) -> None:
    assert server.client.put(f"/streams/{name}", json={}).status_code in (404, 405, 422)


def test_other_settings_are_a_conflict(server: Any, key: str) -> None:
    server.make(key)
    assert server.client.put(f"/streams/{key}", json=SMALL).status_code == 200
    other = server.client.put(f"/streams/{key}", json={**SMALL, "particles": 30})
    assert other.status_code == 409


def test_a_deleted_stream_can_be_created_again(server: Any, key: str) -> None:
    server.make(key)
    server.send(key, [{"id": "1", "y": 1.0}])
    assert server.client.delete(f"/streams/{key}").status_code == 204
    assert server.client.get(f"/streams/{key}").status_code == 404
    lost = server.client.post(f"/streams/{key}/observations", json={"y": 1})
    assert lost.status_code == 404 and "PUT" in lost.json()["detail"]
    server.make(key)
    assert server.send(key, [{"id": "1", "y": 1.0}])["accepted"] == 1


def test_history_by_number_by_time_and_in_buckets(server: Any, key: str) -> None:
    server.make(key)
    y = data.regime_stream(seed=1, n=400).y.tolist()
    server.send(key, [{"y": v, "time": 1_700_000_000 + 60 * i} for i, v in enumerate(y)])
    assert [r["seq"] for r in server.rows(key, **{"from": 10, "to": 13})] == [10, 11, 12]
    by_time = server.rows(key, **{"from": "2023-11-14T22:23:20Z", "to": "2023-11-14T22:25:20Z"})
    assert [r["seq"] for r in by_time] == [10, 11]
    window = server.client.get(f"/streams/{key}/observations?points=40").json()
    assert window["aggregated"] and len(window["buckets"]) == 40
    first = window["buckets"][0]
    assert (first["n"], first["y_min"], first["y_max"]) == (10, min(y[:10]), max(y[:10]))
    outliers = server.client.get(f"/streams/{key}").json()["outliers"]
    assert sum(bucket["outliers"] for bucket in window["buckets"]) == outliers > 0
    regimes = {s["regime"] for s in window["segments"]}
    assert window["segments"][-1]["end"] == 400 and len(regimes) > 1
    for bad in ("from=soon", "points=0", "points=5001"):
        assert server.client.get(f"/streams/{key}/observations?{bad}").status_code == 422
    server.send(key, {"y": 1.0})
    untimed = server.client.get(f"/streams/{key}/observations?from=2023-11-14")
    assert untimed.status_code == 422 and "times" in untimed.json()["detail"]


def test_names_and_acknowledgements(server: Any, key: str) -> None:
    server.make(key)
    server.send(key, [{"y": v} for v in data.regime_stream(seed=1, n=300).y.tolist()])
    events = server.client.get(f"/streams/{key}/events?kind=-outlier").json()["events"]
    assert {e["kind"] for e in events} <= {"regime opened", "regime returned", "regime pruned"}
    regime = events[0]["regime"]
    path = f"/streams/{key}/regimes/{regime}"
    assert server.client.put(path, json={"name": "night shift"}).status_code == 204
    done = server.client.post(
        f"/streams/{key}/events/{events[0]['number']}/acknowledge", json={"note": "fine"}
    )
    assert done.status_code == 204
    again = server.client.get(f"/streams/{key}/events?kind=-outlier").json()["events"]
    assert again[0]["regime_name"] == "night shift" and again[0]["acknowledged_by"] == "local"
    assert any(row["regime_name"] == "night shift" for row in server.rows(key))
    report = server.client.get(f"/streams/{key}/report").json()
    assert "night shift" in {r["name"] for r in report["regimes"]}
    assert 0.7 < report["calibration"]["coverage"] <= 1
    later = server.client.get(f"/streams/{key}/events?since=200").json()["events"]
    assert all(e["seq"] >= 200 for e in later)
    missing = server.client.post(f"/streams/{key}/events/999999/acknowledge", json={})
    assert missing.status_code == 404


def test_the_html_report(server: Any, key: str) -> None:
    server.make(key)
    path = f"/streams/{key}/report"
    empty = server.client.get(path, params={"format": "html"})
    assert empty.status_code == 422 and "send observations" in empty.json()["detail"]
    server.send(key, [{"y": v} for v in data.regime_stream(seed=1, n=300).y.tolist()])
    now = server.client.get(f"/streams/{key}").json()["regime"]
    server.client.put(f"/streams/{key}/regimes/{now}", json={"name": "<night> shift"})
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    page = server.client.get(path, headers=browser)
    assert page.headers["content-type"].startswith("text/html")
    assert f"<h1>{key}</h1>" in page.text and "&lt;night&gt; shift" in page.text
    policy = page.headers["content-security-policy"]
    assert "sandbox allow-scripts" in policy and "script-src 'sha256-" in policy
    for more in ({}, {"headers": browser, "params": {"format": "json"}}):
        facts = server.client.get(path, **more)
        assert facts.json()["stream"]["rows"] == 300
    server.make(key + ".v")
    server.send(key + ".v", [{"y": [1.0, 2.0]}, {"y": [1.0, None]}, {"y": None}] * 5)
    wide = server.client.get(f"/streams/{key}.v/report?format=html")
    assert wide.status_code == 200, wide.text


def test_listing_searches_and_sorts(server: Any, key: str) -> None:
    for name, n in (("x_a", 3), ("x%b", 5), ("xzc", 1)):
        name = name.replace("%", ".")
        server.make(f"{key}.{name}")
        server.send(f"{key}.{name}", [{"y": float(i)} for i in range(n)])
    found = server.client.get("/streams", params={"search": key + ".x", "sort": "rows"}).json()
    assert found["total"] == 3
    assert [s["rows"] for s in found["streams"]] == [5, 3, 1]
    assert found["streams"][0]["spark"] == [0, 1, 2, 3, 4]
    assert found["streams"][0]["health"] == "live"
    literal = server.client.get("/streams", params={"search": "x_"}).json()
    assert literal["total"] == 1  # an underscore is no wildcard


def test_a_body_that_is_too_large_is_rejected(server: Any, key: str) -> None:
    server.make(key)
    large = b"[" + b'{"y": 1.0000000000000000000000000},' * 300_000
    answer = post(server, key, large)
    assert answer.status_code == 413 and server.client.get(f"/streams/{key}").json()["rows"] == 0


def test_probes_and_metrics(server: Any, key: str) -> None:
    server.make(key)
    before = server.metric("regimekit_rows_total")
    server.send(key, [{"id": "a", "y": 1.0}, {"id": "a", "y": 1.0}])
    assert server.metric("regimekit_rows_total") == before + 1
    assert server.metric("regimekit_streams") >= 1
    for name in ("regimes", "outliers_total", "replayed_rows_total", "duplicates_total"):
        assert server.metric(f"regimekit_{name}") >= 0
    assert server.client.get("/healthz").json() == {"status": "ok"}
    text = server.client.get("/metrics").text
    assert 'route="/streams/{key}/observations"' in text
    assert {"regimekit_request_seconds_count", "regimekit_learning_seconds_count"} <= {
        line.partition(" ")[0].partition("{")[0] for line in text.splitlines()
    }


def test_the_log_is_lines_of_json(server: Any, key: str) -> None:
    server.make(key)

    def found() -> Any:
        lines = server.log.read_text().splitlines(keepends=True)
        written = [json.loads(line) for line in lines if line.endswith("\n")]
        return [line for line in written if line.get("path") == f"/streams/{key}"]

    # A line is written after the answer is sent.
    made = wait(found, "the line of the request")[0]
    assert {"time", "level", "request", "ms"} <= made.keys()
    assert (made["method"], made["status"], made["token"]) == ("PUT", 201, "local")


def test_too_many_pending_rows_are_rejected_with_a_retry_time(server: Any, key: str) -> None:
    server.make(key)
    path, most = f"/streams/{key}/observations", [{"y": 1.0}] * 10_000

    def rejected() -> Any:
        """Return the answer to a request while the queue is full; None if it was not full."""
        with ThreadPoolExecutor(2) as clients:
            sent = [clients.submit(server.client.post, path, json=most) for _ in range(2)]
            pending = 0.0
            while pending < 20_000 and not all(f.done() for f in sent):
                pending = server.metric("regimekit_pending_rows")
            busy = server.client.post(path, json={"y": 1.0})
            answers = {future.result().status_code for future in sent}
        assert answers <= {200, 429, 503}, "accepted, or not stored in time on a slow machine"
        return busy if busy.status_code == 429 else None

    assert 1 <= int(wait(rejected, "a full queue").headers["retry-after"]) <= 60


def test_a_slow_body_times_out() -> None:
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> Any:
        for part in parts:
            return part
        await asyncio.sleep(60)

    async def read() -> None:
        scope = {"path": "/streams/a/observations", "headers": []}
        body = LimitedBody(scope, receive, Limits(body_seconds=0.05))
        assert (await body.receive())["body"] == b"{"
        await body.receive()

    with ThreadPoolExecutor(1) as apart, pytest.raises(HTTPException) as caught:
        # In a thread of its own: a browser may keep this one's event loop running.
        apart.submit(lambda: asyncio.run(read())).result()
    assert caught.value.status_code == 408


def test_unknown_paths(server: Any) -> None:
    for path in ("/nothing", "/static/nothing.js"):
        answer = server.client.get(path)
        assert answer.status_code == 404 and answer.json()["detail"] == f"{path} does not exist."


def test_the_page_and_its_headers(server: Any) -> None:
    page = server.client.get("/")
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy and "script-src 'self'" in policy
    assert "<script>" not in page.text and "style=" not in page.text
    assert page.headers["x-content-type-options"] == "nosniff"
    assert server.client.get("/static/assets/uplot/uPlot.iife.min.js").status_code == 200
    assert "access-control-allow-origin" not in page.headers


def test_other_sites_cannot_use_the_api(server: Any) -> None:
    for headers in (
        {"origin": "https://evil.example"},
        {"host": "evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"x-forwarded-for": "10.0.0.1"},
    ):
        answer = httpx.get(f"{server.url}/streams", headers=headers, trust_env=False)
        assert answer.status_code == 401, headers


def test_a_wrong_method_is_answered_with_the_allowed_ones(server: Any) -> None:
    answer = server.client.patch("/streams")
    assert answer.status_code == 405 and answer.headers["allow"] == "GET"
    assert answer.json()["detail"] == "Method PATCH is not allowed. Allowed: GET."
