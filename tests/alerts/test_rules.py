"""Mute windows and the payloads of alerts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from regimekit import RegimekitError
from regimekit.alerts import Alert, Mute, mute_end
from regimekit.alerts.messages import (
    alertmanager_payload,
    email_message,
    json_payload,
    slack_payload,
)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_single_window() -> None:
    mute = Mute("plant.", 100.0, 200.0)
    assert mute.until("plant.a", 150.0) == 200.0
    assert mute.until("plant.a", 200.0) is None
    assert mute.until("other", 150.0) is None


def test_a_daily_window_that_passes_midnight() -> None:
    mute = Mute(daily="22:00-02:00", days=(4,))  # begins on Fridays
    friday_evening, saturday_morning = at("2026-03-06T23:00"), at("2026-03-07T01:00")
    assert mute.until("a", friday_evening) == at("2026-03-07T02:00")
    assert mute.until("a", saturday_morning) == at("2026-03-07T02:00")
    assert mute.until("a", at("2026-03-07T23:00")) is None


def test_a_daily_window_in_a_time_zone() -> None:
    mute = Mute(daily="08:00-09:00", timezone="Europe/Berlin")
    assert mute.until("a", at("2026-07-01T06:30")) == at("2026-07-01T07:00")
    assert mute.until("a", at("2026-01-01T06:30")) is None


def test_windows_without_a_gap_count_as_one() -> None:
    mutes = [Mute("", 100.0, 200.0), Mute("", 150.0, 300.0), Mute("", 400.0, 500.0)]
    assert mute_end(mutes, "a", 120.0) == 300.0
    assert mute_end(mutes, "a", 350.0) is None
    assert mute_end([Mute(daily="00:00-00:00")], "a", at("2026-03-01T12:00")) is not None


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"start": 2.0, "end": 1.0},
        {"daily": "25:00-26:00"},
        {"daily": "08:00"},
        {"daily": "08:00-09:00", "timezone": "Mars/Base"},
        {"daily": "08:00-09:00", "days": [7]},
        {"daily": "08:00-09:00", "start": 1.0},
        {"from": 1.0},
    ],
)
def test_invalid_windows_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(RegimekitError):
        Mute.from_dict(given)


OPEN = Alert("ab12", "a<b", "odd", "anomaly", "critical", 30, 1030.0, 34, 1034.0, "3 of 5 rows.")
DONE = Alert(**OPEN.to_dict() | {"resolved": 50, "resolved_time": 1050.0, "resolution": "quiet"})


def test_json_payload_has_all_fields() -> None:
    payload = json_payload(OPEN, "http://host/#/a")
    assert payload["kind"] == "alert opened"
    assert payload["rule_kind"] == "anomaly"
    assert payload["id"] == json_payload(DONE)["id"]
    assert json_payload(DONE)["kind"] == "alert resolved"


def test_slack_payload_escapes_markup() -> None:
    payload = slack_payload(OPEN)
    assert payload["text"] == "Critical: odd on a&lt;b"
    assert payload["attachments"][0]["color"] != slack_payload(DONE)["attachments"][0]["color"]


def test_emails_of_one_alert_form_a_thread() -> None:
    first = email_message(OPEN, "a@example.org", "b@example.org", None)
    second = email_message(DONE, "a@example.org", "b@example.org", "http://host/")
    assert second["In-Reply-To"] == first["Message-ID"]
    assert "Resolved: quiet." in second.get_content()


def test_alertmanager_payload_ends_when_the_alert_does() -> None:
    payload = alertmanager_payload(OPEN, {"instance": "n1"}, 1700.0)
    assert payload["labels"]["instance"] == "n1"
    assert payload["endsAt"].startswith("1970-01-01T00:33:20")
    done = alertmanager_payload(DONE, {"instance": "n1"}, 1700.0)
    assert done["labels"] == payload["labels"]
    assert done["endsAt"].startswith("1970-01-01T00:17:30")
    # A stream whose clock is ahead; Alertmanager would keep the alert until then.
    ahead = alertmanager_payload(DONE, {"instance": "n1"}, 1040.0)
    assert ahead["endsAt"].startswith("1970-01-01T00:17:20")
