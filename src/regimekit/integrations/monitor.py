"""One model and one alert engine on one series: what the bridges and `follow-table` have in common.

A monitor processes rows, keeps the position of the latest one, and is stored as bytes together
with both. So a bridge that is killed continues from its last stored state with the same results.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import regimekit as rk
from regimekit.alerts import Alert, AlertEngine, Rule, Sample, samples
from regimekit.core.exceptions import RegimekitError
from regimekit.integrations._common import make_model

LEVEL = 0.9  # nominal coverage of the intervals
STATUS_CODES = {"unknown": 0, "normal": 1, "fault": 2}  # for systems that store numbers only
_META, _MODEL = "monitor.json", "model.regimekit"


class Output(NamedTuple):
    """What a monitor knows about one row.

    Attributes:
        seq: number of the row, from 0.
        at: time in seconds since 1970, or None.
        y: the observation; NaN if there was none.
        yhat: median of the forecast that was made before the observation.
        yhat_lower: lower end of its 90 % interval.
        yhat_upper: upper end of its 90 % interval.
        anomaly_score: 1 minus the two-sided tail probability of y, in [0, 1].
        regime: id of the regime, -1 if none is known.
        regime_probability: its posterior probability.
        regime_status: "unknown", "normal" or "fault".
        regime_name: name of the regime, or "".
    """

    seq: int
    at: float | None
    y: float
    yhat: float
    yhat_lower: float
    yhat_upper: float
    anomaly_score: float
    regime: int
    regime_probability: float
    regime_status: str
    regime_name: str


class Monitor:
    """A model and an alert engine on one series.

    Attributes:
        key: name of the series.
        model: the model.
        rows: number of rows processed.
        position: the caller's position of the latest row (a time or a key), or None.
        latest: output of the latest row, or None.
        arrived: when the latest row arrived, in seconds since 1970; set by the caller, or None.
        extra: JSON values of the caller that are stored with the monitor.
        labels: name and status per regime.
    """

    def __init__(
        self,
        key: str,
        rules: Iterable[Rule] = (),
        model: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a monitor that has seen nothing.

        Args:
            key: name of the series.
            rules: alert rules; those that do not apply to `key` are ignored.
            model: name of a model; None for the default.
            settings: settings of the model.
        """
        self.key = key
        self.model = make_model(model, settings)
        self.engine = AlertEngine(key, rules)
        self.rows = 0
        self.position: Any = None
        self.latest: Output | None = None
        self.arrived: float | None = None
        self.extra: dict[str, Any] = {}
        self.labels: dict[int, tuple[str, str]] = {}

    def label(self, regime: int, name: str = "", status: str = "unknown") -> None:
        """Set name and status of a regime.

        Raises:
            RegimekitError: if the status is not "unknown", "normal" or "fault".
        """
        if status not in STATUS_CODES:
            raise RegimekitError(
                f"status must be one of {', '.join(STATUS_CODES)}, got {status!r}."
            )
        self.labels[regime] = (name, status)
        self.model.set_regime_labels(self.labels)

    def process(
        self, values: Sequence[float], times: Sequence[float | None]
    ) -> tuple[list[Output], list[Alert], list[rk.Event]]:
        """Update the model with rows in order.

        Args:
            values: observations; NaN for a row without one.
            times: their times in seconds since 1970.

        Returns:
            One output per row, the alerts opened or resolved, and the events of the model.
        """
        if not len(values):
            return [], [], []
        run = self.model.run(np.asarray(values, dtype=float), level=LEVEL)
        statuses = {regime: status for regime, (_, status) in self.labels.items()}
        outputs, alerts = [], []
        for i, sample in enumerate(samples(run, self.rows, times, statuses)):
            alerts += self.engine.update(sample)
            outputs.append(self._output(run, i, sample))
        self.rows += len(run)
        self.latest = outputs[-1]
        alerts += self.engine.check_forecast(sample, self.model)
        return outputs, alerts, list(run.events)

    def check_clock(self, now: float, started: float = -math.inf) -> list[Alert]:
        """Return the alerts that open or resolve because rows do not arrive, or do again.

        Args:
            now: present time in seconds since 1970.
            started: begin of the watch; the time before it does not count as silence.
        """
        if self.arrived is None or not self.rows:
            return []
        return self.engine.update_clock(now, self.arrived, self.rows - 1, started)

    def _output(self, run: rk.Run, i: int, sample: Sample) -> Output:
        return Output(
            seq=sample.seq,
            at=sample.at,
            y=sample.y,
            yhat=float(run.median[i]),
            yhat_lower=float(run.lower[i]),
            yhat_upper=float(run.upper[i]),
            anomaly_score=sample.anomaly_score,
            regime=sample.regime,
            regime_probability=float(run.regime_probability[i]),
            regime_status=sample.status,
            regime_name=self.labels.get(sample.regime, ("", ""))[0],
        )

    def to_bytes(self) -> bytes:
        """Return model, engine and position as bytes; no pickle."""
        meta = {
            "key": self.key,
            "rows": self.rows,
            "position": self.position,
            "arrived": self.arrived,
            "latest": None if self.latest is None else _to_json(self.latest),
            "extra": self.extra,
            "labels": [[regime, *label] for regime, label in self.labels.items()],
            "alerts": self.engine.state(),
        }
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            # Without the present time, which may be before 1980 on a device without a clock.
            archive.writestr(zipfile.ZipInfo(_META), json.dumps(meta))
            archive.writestr(zipfile.ZipInfo(_MODEL), self.model.to_bytes())
        return content.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, rules: Iterable[Rule] = ()) -> Monitor:
        """Return the monitor that `to_bytes` stored, with the rules of today.

        Raises:
            RegimekitError: if the bytes are not a stored monitor.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                meta = json.loads(archive.read(_META))
                model = rk.from_bytes(archive.read(_MODEL))
            monitor = cls.__new__(cls)
            monitor.key, monitor.rows = meta["key"], meta["rows"]
            monitor.position, monitor.extra = meta["position"], meta["extra"]
            # States of earlier versions have no time of arrival.
            monitor.arrived = meta.get("arrived")
            latest = meta["latest"]
            monitor.latest = None if latest is None else _from_json(latest)
            monitor.labels = {regime: (name, status) for regime, name, status in meta["labels"]}
            monitor.engine = AlertEngine(meta["key"], rules, meta["alerts"])
        except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
            raise RegimekitError(f"The state of a monitor cannot be read: {error}.") from None
        model.advised = False
        monitor.model = model
        return monitor


def _to_json(output: Output) -> list[Any]:
    # JSON has no NaN.
    return [None if isinstance(v, float) and math.isnan(v) else v for v in output]


def _from_json(values: list[Any]) -> Output:
    numbers = dict(zip(Output._fields, values, strict=True))
    for name in ("y", "yhat", "yhat_lower", "yhat_upper", "anomaly_score", "regime_probability"):
        numbers[name] = math.nan if numbers[name] is None else numbers[name]
    return Output(**numbers)


def scaled_score(score: float, threshold: float) -> float:
    """Convert an anomaly score to the scale on which values above 1 are anomalous.

    The result is log(1 - score) / log(1 - threshold), the logarithm of the tail probability in
    units of that of the threshold. This is the convention of other detectors for Prometheus.

    Args:
        score: anomaly score in [0, 1]; NaN is returned as NaN.
        threshold: score in (0, 1) that is mapped to 1.
    """
    if math.isnan(score):
        return score
    # A tail probability of 0 is below the resolution of the score.
    tail = max(1.0 - score, 1e-16)
    return math.log(tail) / math.log1p(-threshold)
