"""What Prometheus sees."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from regimekit.server.rows import Learnt

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.rows = Counter("regimekit_rows", "Observations stored.", registry=r)
        self.duplicates = Counter(
            "regimekit_duplicates", "Observations that had been stored before.", registry=r
        )
        self.refused = Counter("regimekit_refused", "Requests a model refused.", registry=r)
        self.outliers = Counter("regimekit_outliers", "Outliers among the rows.", registry=r)
        self.events = Counter("regimekit_events", "Events of regimes.", ["kind"], registry=r)
        self.replayed = Counter("regimekit_replayed_rows", "Rows learnt again.", registry=r)
        self.differing = Counter(
            "regimekit_replay_differences", "Replayed rows with other outputs.", registry=r
        )
        self.learning = Histogram(
            "regimekit_learning_seconds", "A job in a worker.", buckets=_SECONDS, registry=r
        )
        self.commits = Histogram(
            "regimekit_commit_seconds", "A transaction.", buckets=_SECONDS, registry=r
        )
        self.requests = Histogram(
            "regimekit_request_seconds",
            "A request, by route, method and status.",
            ["route", "method", "status"],
            buckets=_SECONDS,
            registry=r,
        )
        self.pending = Gauge("regimekit_pending_rows", "Rows accepted, not stored.", registry=r)
        self.streams = Gauge("regimekit_streams", "Streams.", registry=r)
        self.regimes = Gauge("regimekit_regimes", "Regimes known, over all streams.", registry=r)
        self.live = Gauge("regimekit_live_connections", "Open live connections.", registry=r)
        self.webhooks = Counter(
            "regimekit_webhooks", "Attempts to deliver a webhook.", ["result"], registry=r
        )

    def learnt(self, learnt: Learnt) -> None:
        """Count a job that is stored."""
        self.learning.observe(learnt.seconds)
        self.replayed.inc(learnt.replayed)
        self.differing.inc(learnt.differing)
        for outcome in learnt.outcomes:
            self.rows.inc(outcome.accepted)
            self.duplicates.inc(outcome.duplicates)
            self.refused.inc(outcome.error is not None)
        if learnt.commit is not None:
            self.outliers.inc(learnt.commit.outliers)
            for event in learnt.commit.events:
                self.events.labels(event[3]).inc()

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
