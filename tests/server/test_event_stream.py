"""Server-sent events: observations and events in order, nothing lost after a disconnection."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx

from regimekit import datasets as data


def messages(answer: httpx.Response) -> Iterator[tuple[str, int | None, dict[str, Any]]]:
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            number = int(fields["id"]) if "id" in fields else None
            yield fields["event"], number, json.loads(fields["data"])
            fields = {}
        else:
            fields = {}


def follow(server: Any, key: str, last: str | None = None, **query: Any) -> Any:
    headers = {} if last is None else {"last-event-id": last}
    return httpx.stream(
        "GET",
        f"{server.url}/streams/{key}/live",
        headers=headers,
        params=query,
        timeout=120,
        trust_env=False,
    )


def test_observations_and_events_as_they_come(server: Any) -> None:
    server.make("live.a")
    y = data.regime_stream(seed=1, n=40).y.tolist()
    server.send("live.a", [{"y": v} for v in y[:10]])
    with follow(server, "live.a") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        sender = threading.Timer(0.3, server.send, ("live.a", [{"y": v} for v in y[10:20]]))
        sender.start()
        seen = list(islice(messages(answer), 5))
        sender.join()
    numbers = [number for kind, number, _ in seen if kind == "observation"]
    assert numbers == list(range(10, 10 + len(numbers)))
    with follow(server, "live.a", last=str(numbers[1])) as answer:
        _, number, row = next(m for m in messages(answer) if m[0] == "observation")
        assert number == numbers[1] + 1 and row["y"] == y[number]
        assert row == server.rows("live.a")[number]
    with follow(server, "live.a", **{"from": 0}) as answer:
        kinds = [m[0] for m in islice(messages(answer), 21)]
        assert "event" in kinds, "the first regime opens among these"


def test_a_last_id_beyond_the_end_continues_at_the_end(server: Any) -> None:
    """After a restore or a new stream with the same key, new observations must not be missed."""
    server.make("live.short")
    server.send("live.short", [{"y": 1.0}])
    for last in ("99", "9" * 40):
        rows = server.client.get("/streams/live.short").json()["rows"]
        with follow(server, "live.short", last=last) as answer:
            sender = threading.Timer(0.3, server.send, ("live.short", {"y": 2.0}))
            sender.start()
            _, number, _ = next(m for m in messages(answer) if m[0] == "observation")
            assert number == rows
            sender.join()


def test_a_deleted_stream_ends_the_connection(server: Any) -> None:
    server.make("live.gone")
    with follow(server, "live.gone") as answer:
        sender = threading.Timer(0.3, server.client.delete, ("/streams/live.gone",))
        sender.start()
        assert next(messages(answer))[0] == "gone"
        sender.join()


def test_a_missing_stream_cannot_be_followed(server: Any) -> None:
    with follow(server, "live.none") as answer:
        assert answer.status_code == 404
