"""Alert policy of a monitored stream: pure functions of rows and rules, without input or output.

===========  =================================================================================
rules        `Rule`: what to alert on, for which streams; `Mute`: when not to notify
engine       `AlertEngine`: rows of one stream in, opened and resolved alerts out
messages     payloads of an alert: generic JSON, Slack, e-mail, Alertmanager
===========  =================================================================================

The service, the Prometheus bridge, the MQTT bridge and `follow-table` use the same engine.
"""

from __future__ import annotations

from regimekit.alerts.engine import Alert, AlertEngine, Sample, samples
from regimekit.alerts.rules import ALERT_KINDS, SEVERITIES, Mute, Rule, mute_end

__all__ = [
    "ALERT_KINDS",
    "SEVERITIES",
    "Alert",
    "AlertEngine",
    "Mute",
    "Rule",
    "Sample",
    "mute_end",
    "samples",
]
