"""A bridge from Prometheus or VictoriaMetrics: one model per series, results as metrics.

===========  ==========================================================================
config       the configuration file
client       range queries, remote write, Alertmanager
bridge       the schedule: query, update, publish, store
===========  ==========================================================================
"""

from __future__ import annotations

from regimekit.integrations._common import require

require("prometheus", "httpx", "prometheus_client", "yaml")

from regimekit.integrations.prometheus.bridge import Bridge
from regimekit.integrations.prometheus.config import BridgeConfig, Query, load_config

__all__ = ["Bridge", "BridgeConfig", "Query", "load_config"]
