"""Commands that connect to running systems: prometheus, mqtt, follow-table.

Each command runs until SIGTERM or Ctrl-C, then stores its state and ends with exit code 0.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regimekit.cli.console import read_json_file

if TYPE_CHECKING:
    from regimekit.alerts import Rule

Model = Annotated[str | None, typer.Option(help="Model; by default auto.")]
Settings = Annotated[str, typer.Option("--set", help="Settings of the model as a JSON object.")]
Rules = Annotated[Path | None, typer.Option(help="Alert rules: a JSON list of objects.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(prometheus)
    app.command()(mqtt)
    app.command("follow-table")(follow_table)


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


def _read_rules(file: Path | None) -> tuple[Rule, ...]:
    from regimekit.alerts import Rule
    from regimekit.core.exceptions import RegimekitError

    content = read_json_file("--rules", file)
    if not isinstance(content, list | None):
        raise RegimekitError(f"--rules {file} must be a JSON list of objects.")
    return tuple(Rule.from_dict(rule) for rule in content or ())


def _read_settings(text: str) -> dict[str, Any]:
    from regimekit.core.exceptions import RegimekitError

    try:
        content = json.loads(text)
    except ValueError as error:
        raise RegimekitError(f"--set must be a JSON object: {error}.") from None
    if not isinstance(content, dict):
        raise RegimekitError(f"--set must be a JSON object, got {text!r}.")
    return content


def mqtt(
    broker: Annotated[
        str,
        typer.Option(
            envvar="REGIMEKIT_MQTT_BROKER", help="mqtt://USER:PASSWORD@HOST:PORT, mqtts:// for TLS."
        ),
    ],
    topics: Annotated[list[str], typer.Option(help="Topic with numbers or JSON; may be repeated.")],
    state: Annotated[Path, typer.Option(help="Folder of the states of the models.")] = Path(
        "regimekit-mqtt"
    ),
    field: Annotated[
        str, typer.Option(help="Name of the value in JSON objects; dots separate levels.")
    ] = "value",
    prefix: Annotated[str, typer.Option(help="Beginning of the topics of results.")] = "regimekit",
    discovery: Annotated[
        str, typer.Option(help="Topic prefix of Home Assistant; '' switches discovery off.")
    ] = "homeassistant",
    client_id: Annotated[str, typer.Option(help="Name of the session.")] = "regimekit",
    ca: Annotated[str | None, typer.Option(help="TLS: certificate authority (PEM).")] = None,
    certificate: Annotated[str | None, typer.Option(help="TLS: client certificate (PEM).")] = None,
    private_key: Annotated[str | None, typer.Option(help="TLS: client key (PEM).")] = None,
    rules: Rules = None,
    model: Model = None,
    settings: Settings = "{}",
) -> None:
    """Monitor MQTT topics; results as topics, with Home Assistant discovery."""
    from regimekit.integrations.mqtt import MqttBridge, MqttConfig

    bridge = MqttBridge(
        MqttConfig(
            broker=broker,
            topics=tuple(topics),
            state=state,
            field=field,
            prefix=prefix,
            discovery=discovery or None,
            client_id=client_id,
            ca=ca,
            certificate=certificate,
            private_key=private_key,
            rules=_read_rules(rules),
            model=model,
            settings=_read_settings(settings),
        )
    )
    bridge.run(stop_event())


def follow_table(
    db: Annotated[
        str,
        typer.Option(
            envvar="REGIMEKIT_DB", help="postgresql://..., sqlite:///FILE or duckdb:///FILE."
        ),
    ],
    table: Annotated[str, typer.Option(help="Table to follow.")],
    key: Annotated[str, typer.Option(help="Column with a key that increases from row to row.")],
    target: Annotated[str, typer.Option(help="Column to forecast.")],
    time: Annotated[str | None, typer.Option(help="Column of times.")] = None,
    by: Annotated[str | None, typer.Option(help="Column that names the series.")] = None,
    rules: Rules = None,
    model: Model = None,
    settings: Settings = "{}",
    poll: Annotated[float, typer.Option(help="Seconds between queries.", min=0.01)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Process the present rows, then end.")] = (
        False
    ),
) -> None:
    """Monitor the new rows of a SQL table; results go to tables beside it."""
    from regimekit.integrations.sql import TableConfig, TableFollower

    follower = TableFollower(
        TableConfig(
            db=db,
            table=table,
            key=key,
            target=target,
            time=time,
            by=by,
            model=model,
            settings=_read_settings(settings),
            rules=_read_rules(rules),
            poll=poll,
        )
    )
    rows = follower.run_once() if once else follower.run(stop_event())
    typer.echo(f"{rows} rows processed")
