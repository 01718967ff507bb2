"""Payloads of an alert for its receivers: generic JSON, Slack, e-mail, Alertmanager."""

from __future__ import annotations

from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any

from regimekit.alerts.engine import Alert

FORMATS = ("json", "slack", "email", "alertmanager")
OPENED, RESOLVED = "alert opened", "alert resolved"
MESSAGE_KINDS = (OPENED, RESOLVED)
ALERT_LIFETIME = 300.0  # seconds after which Alertmanager resolves an alert without a message
_COLORS = {"info": "#3b82f6", "warning": "#f59e0b", "critical": "#dc2626"}
_RESOLVED_COLOR = "#16a34a"


def message_kind(alert: Alert) -> str:
    """Return "alert opened" or "alert resolved"."""
    return OPENED if alert.is_open else RESOLVED


def title(alert: Alert) -> str:
    """Return one line: state, severity, stream and rule."""
    state = "Resolved" if not alert.is_open else alert.severity.capitalize()
    return f"{state}: {alert.rule} on {alert.stream}"


def text(alert: Alert) -> str:
    """Return the sentences of an alert as plain text."""
    lines = [alert.summary, f"Since {_since(alert)}."]
    if not alert.is_open:
        lines.append(f"Resolved: {alert.resolution}.")
    return "\n".join(lines)


def _since(alert: Alert) -> str:
    if alert.start_time is None:
        return f"row {alert.start}"
    return f"{rfc3339(alert.start_time)}, row {alert.start}"


def rfc3339(moment: float) -> str:
    """Return a time in seconds since 1970 as text, in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def json_payload(alert: Alert, link: str | None = None) -> dict[str, Any]:
    """Return the generic payload: all fields, and `kind` of the message."""
    fields = alert.to_dict()
    fields["rule_kind"] = fields.pop("kind")
    return {"kind": message_kind(alert), "title": title(alert), "link": link} | fields


def from_payload(payload: dict[str, Any]) -> Alert:
    """Return the alert of a generic payload."""
    own = {name: payload[name] for name in Alert.__dataclass_fields__ if name != "kind"}
    return Alert(kind=payload["rule_kind"], **own)


def slack_payload(alert: Alert, link: str | None = None) -> dict[str, Any]:
    """Return the payload of a Slack incoming webhook."""
    color = _COLORS[alert.severity] if alert.is_open else _RESOLVED_COLOR
    heading = _slack_escape(title(alert))
    body = f"*<{link}|{heading}>*" if link else f"*{heading}*"
    section = {"type": "mrkdwn", "text": f"{body}\n{_slack_escape(text(alert))}"}
    attachment = {"color": color, "blocks": [{"type": "section", "text": section}]}
    return {"text": heading, "attachments": [attachment]}


def _slack_escape(content: str) -> str:
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        content = content.replace(character, entity)
    return content


def email_message(alert: Alert, sender: str, recipient: str, link: str | None) -> EmailMessage:
    """Return the e-mail of an alert. Its messages form one thread in a mail program."""
    message = EmailMessage()
    message["From"], message["To"] = sender, recipient
    message["Subject"] = title(alert)
    thread = f"<{alert.id}@regimekit>"
    if alert.is_open:
        message["Message-ID"] = thread
    else:
        message["Message-ID"] = f"<{alert.id}.resolved@regimekit>"
        message["In-Reply-To"] = message["References"] = thread
    message.set_content(text(alert) + (f"\n\n{link}\n" if link else "\n"))
    return message


def alertmanager_payload(
    alert: Alert, labels: dict[str, str], now: float, link: str | None = None
) -> dict[str, Any]:
    """Return one entry of the body of Alertmanager's `POST /api/v2/alerts`.

    Alertmanager identifies an alert by its labels. It resolves an alert at `endsAt`, so an open
    alert must be sent again within `ALERT_LIFETIME`.

    Args:
        alert: the alert.
        labels: further labels, for example those of a Prometheus series.
        now: present time in seconds since 1970.
        link: address of the stream's page.
    """
    own = {"alertname": alert.rule, "stream": alert.stream, "severity": alert.severity}
    own |= {"kind": alert.kind, "regimekit_alert": alert.id}
    start = alert.start_time if alert.start_time is not None else alert.opened_time
    # The clock of a stream may be ahead.
    end = now + ALERT_LIFETIME if alert.is_open else min(alert.resolved_time or now, now)
    payload: dict[str, Any] = {
        "labels": labels | own,
        "annotations": {"summary": title(alert), "description": text(alert)},
        "endsAt": rfc3339(end),
    }
    if start is not None:
        payload["startsAt"] = rfc3339(min(start, end))
    return payload | ({"generatorURL": link} if link else {})
