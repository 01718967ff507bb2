"""The configuration file of the bridge, in YAML.

source: http://127.0.0.1:9090
step: 60s
backfill: 2d
state: /var/lib/regimekit/prometheus
listen: 127.0.0.1:9109
queries:
  load: node_load1
  requests:
    expr: http_requests_total
    counter: true
rules:
  - {name: odd values, kind: anomaly}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from regimekit.alerts import Rule
from regimekit.alerts.rules import check_names
from regimekit.core.exceptions import RegimekitError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATIONS = ("step", "backfill", "delay", "stale", "forget", "save_every", "timeout")


def seconds(name: str, given: Any) -> float:
    """Convert a duration such as 15, "15s", "5m" or "2d" to seconds.

    Raises:
        RegimekitError: if it is not a positive duration.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|[smhdw])?", str(given).strip())
    value = float(found[1]) * _UNITS[found[2] or "s"] if found else -1.0
    if value < 0 or (value == 0 and name != "delay"):
        raise RegimekitError(f"{name} must be a duration such as 15s or 2d, got {given!r}.")
    return value


@dataclass(frozen=True)
class Query:
    """A query and the model of its series.

    Attributes:
        name: value of the label `for` of the results.
        expr: PromQL expression that gives one value per series and time.
        counter: the expression is a counter: its increase per second is monitored, and a
            decrease is a restart of the counter.
        model: name of the model; None for the default.
        settings: settings of the model.
    """

    name: str
    expr: str
    counter: bool = False
    model: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RegimeLabel:
    """Name and status of a regime of the series that have all of `labels`."""

    query: str
    regime: int
    labels: dict[str, str] = field(default_factory=dict)
    name: str = ""
    status: str = "unknown"


@dataclass(frozen=True)
class BridgeConfig:
    """Settings of the bridge; durations in seconds.

    Attributes:
        source: address of Prometheus or VictoriaMetrics.
        queries: the queries.
        state: folder of the states of the models.
        step: interval of the rows.
        backfill: history that a new query starts with; also the longest interruption of the
            bridge that is made up for.
        delay: a row is read this long after its time, so that scrapes have arrived.
        stale: a series without a value for so long is not exported.
        forget: a series without a value for so long is deleted.
        max_gap: longest gap within a series that is passed to its model, in rows.
        max_series: largest number of series per query.
        save_every: interval between two snapshots of the models.
        listen: HOST:PORT of the endpoint /metrics; None for none.
        remote_write: address to which results are written; None for none.
        alertmanager: address of Alertmanager; None for none.
        rules: alert rules; keys of series are `NAME{label="value",...}` after the query's name.
        threshold: anomaly score that the exported `anomaly_score` maps to 1.
        headers: headers of the requests to `source` and `remote_write`, for authentication.
        regimes: names and statuses of regimes.
        metric_prefix: beginning of the names of the exported metrics.
        timeout: of a request.
    """

    source: str
    queries: tuple[Query, ...]
    state: Path
    step: float = 60.0
    backfill: float = 2 * 86400.0
    delay: float = 30.0
    stale: float = 300.0
    forget: float = 7 * 86400.0
    max_gap: int = 1000
    max_series: int = 1000
    save_every: float = 60.0
    listen: str | None = "127.0.0.1:9109"
    remote_write: str | None = None
    alertmanager: str | None = None
    rules: tuple[Rule, ...] = ()
    threshold: float = 0.9999
    headers: dict[str, str] = field(default_factory=dict)
    regimes: tuple[RegimeLabel, ...] = ()
    metric_prefix: str = ""
    timeout: float = 30.0

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> BridgeConfig:
        """Create a configuration from the values of a file.

        Raises:
            RegimekitError: if an entry is missing, unknown or invalid.
        """
        check_names("entry of the configuration", given, [entry.name for entry in fields(cls)])
        for name in ("source", "queries", "state"):
            if not given.get(name):
                raise RegimekitError(f"The configuration needs an entry {name!r}.")
        values = dict(given)
        for name in _DURATIONS:
            if name in values:
                values[name] = seconds(name, values[name])
        values["state"] = Path(str(values["state"]))
        values["queries"] = tuple(_query(n, q) for n, q in _mapping(given, "queries").items())
        values["rules"] = tuple(Rule.from_dict(rule) for rule in given.get("rules") or ())
        values["regimes"] = tuple(_regime(label) for label in given.get("regimes") or ())
        values["headers"] = {k: str(v) for k, v in _mapping(given, "headers").items()}
        config = cls(**values)
        for name in ("source", "remote_write", "alertmanager"):
            address = getattr(config, name)
            if address is not None and not re.match(r"https?://[^\s/]+", str(address)):
                raise RegimekitError(f"{name} must be an http(s) address, got {address!r}.")
        for name in ("max_gap", "max_series"):
            if not isinstance(getattr(config, name), int) or getattr(config, name) < 1:
                raise RegimekitError(f"{name} must be at least 1, got {getattr(config, name)!r}.")
        if not isinstance(config.threshold, float) or not 0 < config.threshold < 1:
            raise RegimekitError(f"threshold must be in (0, 1), got {config.threshold!r}.")
        if config.listen is None and config.remote_write is None:
            raise RegimekitError("The results need `listen`, `remote_write` or both.")
        return config


def _mapping(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name) or {}
    if not isinstance(found, Mapping):
        raise RegimekitError(f"{name} must be a mapping, got {type(found).__name__}.")
    return dict(found)


def _query(name: str, given: Any) -> Query:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", str(name)):
        raise RegimekitError(f"The name of a query must be a word, got {name!r}.")
    if isinstance(given, str):
        return Query(name, given)
    known = [entry.name for entry in fields(Query) if entry.name != "name"]
    if not isinstance(given, Mapping) or not given.get("expr"):
        raise RegimekitError(f"The query {name!r} needs an expression `expr`.")
    check_names(f"entry of the query {name!r}", given, known)
    return Query(name, **given)


def _regime(given: Any) -> RegimeLabel:
    if not isinstance(given, Mapping) or not {"query", "regime"} <= set(given):
        raise RegimekitError("An entry of `regimes` needs `query` and `regime`.")
    check_names("entry of `regimes`", given, [entry.name for entry in fields(RegimeLabel)])
    return RegimeLabel(**given)


def load_config(file: Path) -> BridgeConfig:
    """Read a configuration file.

    Raises:
        RegimekitError: if the file cannot be read or is invalid.
    """
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise RegimekitError(f"--config {file} cannot be read: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise RegimekitError(f"--config {file} is not YAML: {error}.") from None
    if not isinstance(content, Mapping):
        raise RegimekitError(f"--config {file} must be a mapping of entries.")
    return BridgeConfig.from_dict(content)
