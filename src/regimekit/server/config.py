"""Configuration of the service and the limits it enforces."""

from __future__ import annotations

import ipaddress
import os
import sys
from dataclasses import dataclass, field
from typing import Any

INTERVAL_LEVEL = 0.9  # nominal coverage of the interval stored with each observation
OFFLINE_MODELS = ("beam_ihmm",)  # models that cannot be updated one observation at a time
DEFAULT_DATABASE = "sqlite:///regimekit.db"


@dataclass(frozen=True)
class Limits:
    """Upper limits per request, per stream and in total."""

    connections: int = 1000  # open at a time
    header_bytes: int = 32 * 1024  # per request, with its URL
    header_seconds: float = 15.0  # to receive the headers
    send_seconds: float = 30.0  # for a client to receive what was sent
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


def _option(default: Any, text: str, **more: Any) -> Any:
    """Define a setting that is an option of `regimekit serve`, with its help text."""
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True)
class Config:
    """Settings of one service, which are the options of `regimekit serve`; and its limits."""

    db: str = _option(
        "", f"sqlite:///FILE or postgresql://USER@HOST/NAME (empty: {DEFAULT_DATABASE})."
    )
    host: str = _option("127.0.0.1", "Address to listen on.")
    port: int = _option(8000, "Port to listen on; 0 chooses a free one.", min=0, max=65535)
    demo: bool = _option(False, "Feed a demonstration stream.")
    workers: int = _option(0, "Worker processes (0: one per core, at most 8).", min=0)
    memory: int = _option(1000, "Number of models in memory, over all workers.", min=1)
    memory_mb: int = _option(1024, "Size of the models in memory, in megabytes.", min=1)
    snapshot_every: int = _option(500, "Observations between snapshots of a model.", min=1)
    require_token: bool = _option(False, "Ask local requests for a token too (behind a proxy).")
    allow_private_webhooks: bool = _option(False, "Let webhooks reach private networks.")
    smtp: str | None = _option(
        None, "smtp[s]://USER:PASSWORD@HOST:PORT for e-mail alerts.", envvar="REGIMEKIT_SMTP"
    )
    mail_from: str = _option("regimekit@localhost", "Sender of e-mail alerts.")
    public_url: str | None = _option(None, "Address of the page, for links in alerts.")
    stream_metrics: int = _option(
        100, "Number of streams with metrics of their own (the oldest).", min=0, max=10_000
    )
    certificate: str | None = _option(None, "TLS: certificate file (PEM).")
    private_key: str | None = _option(None, "TLS: private key file (PEM).")
    log: str = _option("auto", "Log format: json, text or auto (text on a terminal).")
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.log not in ("json", "text", "auto"):
            from regimekit.core.exceptions import RegimekitError  # loads numpy, which help need not

            raise RegimekitError(f"--log must be json, text or auto, got {self.log!r}.")
        cores = 1 if self.demo else max(1, min(8, os.cpu_count() or 1))
        log = ("text" if sys.stderr.isatty() else "json") if self.log == "auto" else self.log
        found = {"db": self.db or DEFAULT_DATABASE, "workers": self.workers or cores, "log": log}
        for name, value in found.items():
            # The dataclass is frozen.
            object.__setattr__(self, name, value)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address refers to this machine only."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
