"""Commands that connect to running systems: prometheus, mqtt, follow-table.

Each command runs until SIGTERM or Ctrl-C, then stores its state and ends with exit code 0.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(prometheus)


def stop_event() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set, and send log lines to standard error."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return stop


def prometheus(
    config: Annotated[Path, typer.Option(help="Configuration file (YAML).")],
    once: Annotated[
        bool, typer.Option("--once", help="Process all rows up to now, then end.")
    ] = False,
) -> None:
    """Monitor series of Prometheus or VictoriaMetrics; results as metrics."""
    from regimekit.integrations.prometheus import Bridge, load_config

    bridge = Bridge(load_config(config))
    if once:
        bridge.poll()
        bridge.save()
        return
    bridge.run(stop_event())
