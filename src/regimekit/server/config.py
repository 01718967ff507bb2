"""Configuration of the service and the limits it enforces."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field

INTERVAL_LEVEL = 0.9  # nominal coverage of the interval stored with each observation
OFFLINE_MODELS = ("beam_ihmm",)  # models that cannot be updated one observation at a time
DEFAULT_DATABASE = "sqlite:///regimekit.db"


def default_workers() -> int:
    """Return the default number of worker processes: one per core, at most 8."""
    return max(1, min(8, os.cpu_count() or 1))


@dataclass(frozen=True)
class Limits:
    """Upper limits per request, per stream and in total."""

    connections: int = 1000  # open at a time
    header_bytes: int = 32 * 1024  # per request, with its URL
    header_seconds: float = 15.0  # to receive the headers
    body_bytes: int = 8 * 1024 * 1024  # per request with observations
    settings_bytes: int = 256 * 1024  # per other request
    rows: int = 10_000  # observations per request
    streams: int = 100_000
    pending_rows: int = 20_000  # accepted but not yet stored observations of one stream
    pending_total: int = 100_000  # the same over all streams
    body_seconds: float = 30.0  # to receive a request body
    answer_seconds: float = 30.0  # to answer a request
    live: int = 500  # open event streams
    model_bytes: int = 32 * 1024 * 1024  # state of one model
    step_seconds: float = 0.1  # CPU time of one observation
    batch_seconds: float = 30.0  # CPU time of the observations of one request
    trial_seconds: float = 20.0  # to try the settings of a new stream


@dataclass(frozen=True)
class Config:
    """Settings of one service.

    Attributes:
        db: database URL.
        host, port: address to listen on; port 0 chooses a free port.
        workers: number of worker processes.
        models_in_memory: largest number of models in memory, over all workers.
        memory_mb: largest size of their states together, in megabytes.
        snapshot_every: observations between two snapshots of a model.
        require_token: ask for a token also on requests from this machine.
        allow_private_webhooks: let webhooks reach private networks.
        smtp: server of e-mail messages, `smtp://USER:PASSWORD@HOST:PORT` (STARTTLS if the server
            offers it) or `smtps://...`; None disables e-mail.
        mail_from: sender of e-mail messages.
        public_url: address of the page in messages; None leaves links out.
        stream_metrics: number of streams with metrics of their own; the oldest ones.
        demo: feed a demonstration stream.
        certificate, private_key: PEM files for TLS; both or neither.
        log_format: "json" or "text".
        limits: upper limits.
    """

    db: str = DEFAULT_DATABASE
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = field(default_factory=default_workers)
    models_in_memory: int = 1000
    memory_mb: int = 1024
    snapshot_every: int = 500
    require_token: bool = False
    allow_private_webhooks: bool = False
    smtp: str | None = None
    mail_from: str = "regimekit@localhost"
    public_url: str | None = None
    stream_metrics: int = 100
    demo: bool = False
    certificate: str | None = None
    private_key: str | None = None
    log_format: str = "json"
    limits: Limits = field(default_factory=Limits)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address refers to this machine only."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
