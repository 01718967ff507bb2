"""What the service is told at its start, and the limits it keeps."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field

from regimekit.core.registry import DEFAULT_MODEL

LEVEL = 0.9  # of the interval that is stored beside each observation
OFFLINE = ("beam_ihmm",)  # models that cannot learn one observation at a time
DEFAULT_DATABASE = "sqlite:///regimekit.db"


def default_model() -> str:
    """The model of a stream for which nothing was chosen."""
    return DEFAULT_MODEL


@dataclass(frozen=True)
class Limits:
    """What one request, one stream and all of them may ask for."""

    body_bytes: int = 8 * 1024 * 1024
    rows: int = 10_000
    covariates: int = 64
    coordinates: int = 16
    streams: int = 100_000
    pending_rows: int = 20_000  # accepted of one stream, not yet stored
    pending_total: int = 100_000
    body_seconds: float = 30.0
    answer_seconds: float = 30.0
    horizon: int = 1000
    points: int = 5000
    live: int = 500


@dataclass(frozen=True)
class Config:
    """One service: where it listens, where it stores, how much it holds in memory."""

    db: str = DEFAULT_DATABASE
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = field(default_factory=lambda: max(1, min(8, os.cpu_count() or 1)))
    models_in_memory: int = 1000
    snapshot_every: int = 500
    require_token: bool = False
    allow_private_webhooks: bool = False
    demo: bool = False
    certificate: str | None = None
    private_key: str | None = None
    log_format: str = "json"
    limits: Limits = field(default_factory=Limits)

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine alone."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
