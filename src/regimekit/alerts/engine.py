"""The alert engine of one stream: rows in, opened and resolved alerts out.

The engine is deterministic and has no clock of its own. Its state is a small dictionary of JSON
values, which a caller stores together with the position in the stream. So a restart continues
exactly, and replaying rows gives alerts with the same ids.

One event opens one alert. While the alert is open, further causes extend it. Rules of the kinds
"anomaly" and "regime change" see the same event from two sides: the second one does not open
another alert, unless its severity is higher. A stream that has had such alerts needs more evidence
for the next one, see `Rule.budget`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from regimekit.alerts.rules import (
    ANOMALY,
    FAULT,
    FORECAST_LIMIT,
    REGIME_CHANGE,
    SEVERITIES,
    STALE,
    Rule,
)
from regimekit.core.exceptions import RegimekitError
from regimekit.results import CHANGES, NO_REGIME, UNKNOWN, Run

_SAME_EVENT = (ANOMALY, REGIME_CHANGE)
_MAX_SEEN = 1000  # regime ids that a rule remembers
# Returns the quantile of the given probability at each step ahead.
Quantiles = Callable[[float], Sequence[float]]


class Sample(NamedTuple):
    """One row of a stream as the rules see it.

    Attributes:
        seq: number of the row, from 0.
        at: time in seconds since 1970, or None.
        y: the observation; NaN if it was not observed.
        anomaly_score: 1 minus the two-sided tail probability of y, in [0, 1]; NaN without y.
        regime: id of the regime, -1 if none is known.
        status: "unknown", "normal" or "fault".
        since: if the regime changed with this row, the first row that belongs to it.
    """

    seq: int
    at: float | None
    y: float
    anomaly_score: float
    regime: int = NO_REGIME
    status: str = "unknown"
    since: int | None = None


def samples(
    run: Run, first: int, times: Sequence[float | None], statuses: Mapping[int, str]
) -> Iterator[Sample]:
    """Yield the rows of a run; of several coordinates the first one.

    Args:
        run: outputs of a model.
        first: number of the first row.
        times: times of the rows in seconds since 1970, or None.
        statuses: status by regime; "unknown" if it is missing.
    """
    y = run.y if run.y.ndim == 1 else run.y[:, 0]
    began = {event.time: event.since for event in run.events if event.kind in CHANGES}
    columns = (times, y.tolist(), run.anomaly_score.tolist(), run.regime.tolist())
    for seq, (at, value, score, regime) in enumerate(zip(*columns, strict=True), first):
        status = statuses.get(regime, UNKNOWN)
        yield Sample(seq, at, value, score, regime, status, began.get(seq))


@dataclass(frozen=True)
class Alert:
    """An alert. A resolved alert has the same id as the open one.

    Attributes:
        id: derived from stream, rule and start, so it is the same after a restart or a replay.
        stream: key of the stream.
        rule: name of the rule.
        kind: kind of the rule.
        severity: severity of the rule.
        start: number of the first row of the event.
        start_time: its time in seconds since 1970, or None.
        opened: number of the row at which the alert was opened.
        opened_time: its time in seconds since 1970, or None.
        summary: one sentence.
        regime: regime at the time of opening.
        previous: regime before, for a change of regime.
        resolved: number of the row at which it was resolved; None while it is open.
        resolved_time: its time in seconds since 1970, or None.
        resolution: why it was resolved.
    """

    id: str
    stream: str
    rule: str
    kind: str
    severity: str
    start: int
    start_time: float | None
    opened: int
    opened_time: float | None
    summary: str
    regime: int = NO_REGIME
    previous: int = NO_REGIME
    resolved: int | None = None
    resolved_time: float | None = None
    resolution: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the alert is not resolved."""
        return self.resolved is None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


class AlertEngine:
    """Apply the rules of one stream."""

    def __init__(
        self, stream: str, rules: Iterable[Rule], state: Mapping[str, Any] | None = None
    ) -> None:
        """Create an engine.

        Args:
            stream: key of the stream.
            rules: rules; those that do not apply to the stream are ignored.
            state: result of `state` of an earlier engine. Rules without a state start afresh.
        """
        self.stream = stream
        self._monitors = [
            _MONITORS[rule.kind](rule, stream) for rule in rules if rule.applies(stream)
        ]
        for monitor in self._monitors:
            monitor.load((state or {}).get(monitor.rule.name))

    @property
    def rules(self) -> list[Rule]:
        """The rules that apply to the stream."""
        return [monitor.rule for monitor in self._monitors]

    @property
    def open(self) -> list[Alert]:
        """The alerts that are open now."""
        return [monitor.alert for monitor in self._monitors if monitor.alert is not None]

    @property
    def warmup(self) -> int:
        """Rows before the first alert can be opened."""
        return max((m.rule.warmup for m in self._monitors if m.rule.kind != STALE), default=0)

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {monitor.rule.name: monitor.state() for monitor in self._monitors}

    def update(self, sample: Sample) -> list[Alert]:
        """Process one row.

        Returns:
            Alerts that were opened or resolved with this row.
        """
        return self._apply(lambda monitor: monitor.update(sample))

    def update_forecast(self, sample: Sample, quantiles: Quantiles) -> list[Alert]:
        """Check the forecast after the row `sample`.

        Args:
            sample: the latest row.
            quantiles: quantiles of the forecast at each step ahead; called only if a rule
                needs them.
        """
        return self._apply(lambda monitor: monitor.update_forecast(sample, quantiles))

    def update_clock(
        self, now: float, last: float, seq: int, started: float = -math.inf
    ) -> list[Alert]:
        """Check whether rows still arrive.

        Args:
            now: present time in seconds since 1970.
            last: time of arrival of the latest row in seconds since 1970.
            seq: number of the latest row.
            started: begin of the watch; the time before it does not count as silence.
        """
        return self._apply(lambda monitor: monitor.update_clock(now, last, seq, started))

    @property
    def horizon(self) -> int:
        """Steps ahead that the rules need; 0 if they need no forecast."""
        rules = [m.rule for m in self._monitors if m.rule.kind == FORECAST_LIMIT]
        return max((rule.horizon for rule in rules), default=0)

    def check_forecast(self, sample: Sample, model: Any) -> list[Alert]:
        """Check the forecast of `model` after the row `sample`, if a rule needs it.

        A model that cannot forecast so far, or needs covariates of the future, gives no alert.
        """
        if not self.horizon:
            return []
        try:
            steps = list(model.forecast(self.horizon))
        except RegimekitError:
            return []
        return self.update_forecast(
            sample, lambda q: [float(np.ravel(step.quantile(q))[0]) for step in steps]
        )

    def _apply(self, check: Callable[[_Monitor], Alert | None]) -> list[Alert]:
        found = []
        for monitor in self._monitors:
            alert = check(monitor)
            if alert is None:
                continue
            if alert.is_open and self._is_duplicate(monitor):
                monitor.discard()
                continue
            if alert.is_open and monitor.rule.kind in _SAME_EVENT:
                for other in self._monitors:
                    other.burden = [other.strictness(alert.opened) + 1.0, alert.opened]
            found.append(alert)
        return found

    def _is_duplicate(self, monitor: _Monitor) -> bool:
        """Return whether another rule has an open alert for the same event."""
        if monitor.rule.kind not in _SAME_EVENT:
            return False
        rank = SEVERITIES.index(monitor.rule.severity)
        return any(
            other.alert is not None
            and other.rule.kind in _SAME_EVENT
            and other.rule.kind != monitor.rule.kind
            and SEVERITIES.index(other.rule.severity) >= rank
            for other in self._monitors
        )


class _Monitor:
    """One rule on one stream.

    Attributes:
        alert: the open alert, or None.
        burden: recent alerts of the stream, and the row of the latest one; see `strictness`.
    """

    # Attributes of the state besides the alert.
    fields: tuple[str, ...] = ()

    def __init__(self, rule: Rule, stream: str) -> None:
        self.rule, self.stream = rule, stream
        # `Rule` replaces None by a default.
        self.dwell, self.quiet = rule.dwell or 1, rule.quiet or 1
        self.alert: Alert | None = None
        self.burden: list[Any] = [0.0, 0]

    def strictness(self, seq: int) -> float:
        """Return the number of recent alerts of the stream, each fading with the rows since."""
        count, row = self.burden
        return (
            max(0.0, count - (seq - row) * self.rule.budget / 10_000) if self.rule.budget else 0.0
        )

    def state(self) -> dict[str, Any]:
        alert = None if self.alert is None else self.alert.to_dict()
        names = ("burden", *self.fields)
        return {"alert": alert} | {name: getattr(self, name) for name in names}

    def load(self, state: Mapping[str, Any] | None) -> None:
        # A rule that was replaced by another kind with the same name starts afresh.
        if state is None or not all(name in state for name in self.fields):
            return
        for name in self.fields:
            setattr(self, name, state[name])
        self.burden = state.get("burden", self.burden)
        if state["alert"] is not None and state["alert"]["kind"] == self.rule.kind:
            self.alert = Alert(**state["alert"])

    def update(self, sample: Sample) -> Alert | None:
        return None

    def update_forecast(self, sample: Sample, quantiles: Quantiles) -> Alert | None:
        return None

    def update_clock(self, now: float, last: float, seq: int, started: float) -> Alert | None:
        return None

    def open(
        self,
        start: tuple[int, float | None],
        known: tuple[int, float | None],
        summary: str,
        regime: int = NO_REGIME,
        previous: int = NO_REGIME,
    ) -> Alert:
        rule = self.rule
        digest = hashlib.sha256(f"{self.stream}\0{rule.name}\0{start[0]}".encode()).hexdigest()
        self.alert = Alert(
            digest[:16],
            self.stream,
            rule.name,
            rule.kind,
            rule.severity,
            *start,
            *known,
            summary,
            regime,
            previous,
        )
        return self.alert

    def discard(self) -> None:
        """Forget the alert that was just opened."""
        self.alert = None

    def resolve(self, seq: int, at: float | None, reason: str) -> Alert:
        assert self.alert is not None
        done = replace(self.alert, resolved=seq, resolved_time=at, resolution=reason)
        self.alert = None
        return done


class _Anomaly(_Monitor):
    """At least `count` of the latest `window` rows are anomalous."""

    fields = ("recent", "calm")

    def __init__(self, rule: Rule, stream: str) -> None:
        super().__init__(rule, stream)
        self.recent: list[list[Any]] = []  # [seq, time, y] of the anomalous rows in the window
        self.calm = 0  # rows since the latest anomalous row

    def discard(self) -> None:
        super().discard()
        self.recent = []

    def update(self, sample: Sample) -> Alert | None:
        rule = self.rule
        while self.recent and self.recent[0][0] <= sample.seq - rule.window:
            self.recent.pop(0)
        # Comparisons with NaN are false: a row without an observation is not anomalous.
        self.calm = 0 if sample.anomaly_score > rule.threshold else self.calm + 1
        tail = (1 - rule.threshold) * 10 ** -self.strictness(sample.seq)
        if sample.anomaly_score > 1 - tail:
            self.recent.append([sample.seq, sample.at, sample.y])
        if self.alert is not None:
            if self.calm >= self.quiet:
                self.recent = []
                reason = f"no anomalous row in {self.quiet} rows"
                return self.resolve(sample.seq, sample.at, reason)
            return None
        if len(self.recent) < rule.count or sample.seq < rule.warmup:
            return None
        first, at, y = self.recent[0]
        summary = (
            f"{len(self.recent)} of the latest {rule.window} rows are anomalous "
            f"(score above {rule.threshold:g}), first value {y:.6g}."
        )
        return self.open((first, at), (sample.seq, sample.at), summary, sample.regime)


class _RegimeChange(_Monitor):
    """The regime has changed and the new one has lasted `dwell` rows."""

    fields = ("settled", "candidate", "since", "since_time", "began", "rows", "seen", "age")

    def __init__(self, rule: Rule, stream: str) -> None:
        super().__init__(rule, stream)
        self.settled = NO_REGIME  # the regime that has lasted `dwell` rows
        self.candidate = NO_REGIME  # the regime of the latest row
        self.since = 0  # row at which the candidate was reported first
        self.since_time: float | None = None
        self.began = 0  # first row that belongs to the candidate in hindsight
        self.rows = 0  # rows of the candidate so far
        self.seen: list[int] = []  # regimes that have lasted `dwell` rows
        self.age = 0  # rows since the regime settled

    def update(self, sample: Sample) -> Alert | None:
        if sample.regime == NO_REGIME:
            return None
        if sample.regime != self.candidate:
            self.candidate, self.rows = sample.regime, 0
            self.since, self.since_time = sample.seq, sample.at
            self.began = sample.seq if sample.since is None else sample.since
        self.rows += 1
        self.age += 1
        # The return to the regime before the alert is no new alert.
        returns = self.alert is not None and self.candidate == self.alert.previous
        dwell = self.dwell if returns else self.dwell * 2 ** self.strictness(sample.seq)
        if self.candidate != self.settled and self.rows >= dwell:
            return self._settle(sample)
        if self.alert is not None and self.candidate == self.settled:
            if sample.status == "normal":
                return self.resolve(sample.seq, sample.at, f"regime {sample.regime} is normal")
            if self.age >= self.quiet:
                reason = f"regime {self.settled} has lasted {self.age} rows and counts as usual"
                return self.resolve(sample.seq, sample.at, reason)
        return None

    def _settle(self, sample: Sample) -> Alert | None:
        previous, self.settled, self.age = self.settled, self.candidate, self.rows
        known = self.settled in self.seen
        if not known:
            self.seen = [*self.seen, self.settled][-_MAX_SEEN:]
        if self.alert is not None:
            if self.settled == self.alert.previous:
                reason = f"returned to regime {self.settled}"
                return self.resolve(sample.seq, sample.at, reason)
            if sample.status == "normal":
                return self.resolve(sample.seq, sample.at, f"regime {self.settled} is normal")
            return None
        # The first regime of a stream is not a change.
        if previous == NO_REGIME or sample.seq < self.rule.warmup or sample.status == "normal":
            return None
        if known and not self.rule.returning and sample.status != "fault":
            return None
        summary = f"The regime changed from {previous} to {self.settled} at row {self.began}"
        summary += "." if known else "; it was not seen before."
        start = (self.since, self.since_time)
        return self.open(start, (sample.seq, sample.at), summary, self.settled, previous)


class _Fault(_Monitor):
    """The stream is in a regime with status "fault"."""

    fields = ("rows", "since", "since_time")

    def __init__(self, rule: Rule, stream: str) -> None:
        super().__init__(rule, stream)
        self.rows = 0  # latest rows that contradict the present state
        self.since = 0  # first of them
        self.since_time: float | None = None

    def update(self, sample: Sample) -> Alert | None:
        faulty = sample.status == "fault"
        if faulty == (self.alert is not None):
            self.rows = 0
            return None
        if self.rows == 0:
            self.since, self.since_time = sample.seq, sample.at
        self.rows += 1
        # A fault that returns is known: it opens an alert at once, and must be over to resolve it.
        if not faulty and self.rows < self.dwell:
            return None
        self.rows = 0
        if not faulty:
            return self.resolve(sample.seq, sample.at, f"returned to regime {sample.regime}")
        start = (self.since, self.since_time)
        summary = f"The stream is in regime {sample.regime}, which is labelled as a fault."
        return self.open(start, (sample.seq, sample.at), summary, sample.regime)


class _ForecastLimit(_Monitor):
    """The forecast crosses a limit within `horizon` steps."""

    fields = ("calm_since",)

    def __init__(self, rule: Rule, stream: str) -> None:
        super().__init__(rule, stream)
        self.calm_since: int | None = None  # first row without a crossing, while an alert is open

    def update_forecast(self, sample: Sample, quantiles: Quantiles) -> Alert | None:
        rule = self.rule
        crossing = self._crossing(quantiles) if sample.seq >= rule.warmup else None
        if crossing is not None:
            self.calm_since = None
            if self.alert is not None:
                return None
            here = (sample.seq, sample.at)
            return self.open(here, here, crossing, sample.regime)
        if self.alert is None:
            return None
        if self.calm_since is None:
            self.calm_since = sample.seq
        if sample.seq - self.calm_since + 1 < self.quiet:
            return None
        reason = f"the forecast has not crossed the limit for {self.quiet} rows"
        return self.resolve(sample.seq, sample.at, reason)

    def _crossing(self, quantiles: Quantiles) -> str | None:
        rule = self.rule
        upper, lower = 1 - rule.probability, rule.probability
        for side, limit, level in (("above", rule.above, upper), ("below", rule.below, lower)):
            if limit is None:
                continue
            sign = 1 if side == "above" else -1
            values = quantiles(level)[: rule.horizon]
            for step, value in enumerate(values, 1):
                if math.isfinite(value) and sign * (value - limit) > 0:
                    return (
                        f"The forecast is {side} {limit:g} in {step} steps with a probability of "
                        f"at least {rule.probability:g}."
                    )
        return None


class _Stale(_Monitor):
    """No row has arrived for `seconds`."""

    def update_clock(self, now: float, last: float, seq: int, started: float) -> Alert | None:
        if self.alert is not None:
            silent = now - last > self.rule.seconds
            return None if silent else self.resolve(seq, last, "rows arrive again")
        if now - max(last, started) <= self.rule.seconds:
            return None
        summary = f"No row has arrived for {self.rule.seconds:g} s."
        return self.open((seq, last), (seq, now), summary)


_MONITORS: dict[str, type[_Monitor]] = {
    ANOMALY: _Anomaly,
    REGIME_CHANGE: _RegimeChange,
    FAULT: _Fault,
    FORECAST_LIMIT: _ForecastLimit,
    STALE: _Stale,
}
