"""Request and response bodies. The OpenAPI document, with its examples, is generated from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from regimekit.alerts.rules import MAX_ROWS

KEY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
_PRINTABLE = r"^[^\x00-\x1f\x7f]*$"

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
OptionalNumber = Number | None
Identifier = Annotated[str, Field(strict=True, min_length=1, max_length=128, pattern=_PRINTABLE)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=64, pattern=_PRINTABLE)]
# A test compares these with the constants of `regimekit.alerts` and `storage.outbox`.
Severity = Literal["info", "warning", "critical"]
RuleKind = Literal["anomaly", "regime change", "fault", "forecast limit", "stale"]
MessageFormat = Literal["json", "slack", "email", "alertmanager"]
MessageKind = Literal[
    "regime opened", "regime returned", "regime pruned", "outlier", "alert opened", "alert resolved"
]
_Rows = Annotated[int, Field(strict=True, ge=1, le=MAX_ROWS)]
Note = Annotated[str, Field(strict=True, max_length=2000, pattern=r"^[^\x00]*$")]


def _request(*examples: dict[str, Any], extra: Literal["forbid", "allow"] = "forbid") -> ConfigDict:
    """Configure a request body: with "forbid", misspelt fields are reported as errors."""
    shown: dict[str, Any] = {"examples": list(examples)}
    if len(examples) == 1:
        shown = {"example": examples[0]}
    if extra == "allow":
        shown["additionalProperties"] = True
    return ConfigDict(extra=extra, json_schema_extra=shown)


class ObservationBody(BaseModel):
    """One observation. Only `y` is required; `null` means not observed."""

    model_config = _request(
        {"id": "7", "time": "2026-03-01T12:00:00Z", "y": 1.5, "x": {"temperature": 3.0}}
    )

    y: OptionalNumber | Annotated[list[OptionalNumber], Field(min_length=1, max_length=16)]
    id: Identifier | None = None
    seq: Annotated[int, Field(strict=True, ge=0, le=2**53)] | None = None
    time: Annotated[str, Field(strict=True, max_length=64)] | Number | None = None
    x: Annotated[dict[Name, OptionalNumber], Field(max_length=64)] | None = None


class StreamSettings(BaseModel):
    """Name of a model and its settings; `{}` selects the default model."""

    model_config = _request({}, {"model": "br_ihmm", "noise": 0.25, "batch": 6}, extra="allow")

    model: Annotated[str, Field(strict=True, max_length=64)] | None = None


class RegimeName(BaseModel):
    """Name, note and status of a regime. A rule of kind "fault" alerts on the status "fault"."""

    model_config = _request({"name": "night shift", "note": "One press runs.", "status": "normal"})

    name: Annotated[str, Field(strict=True, max_length=80, pattern=_PRINTABLE)] = ""
    note: Note = ""
    status: Literal["unknown", "normal", "fault"] = "unknown"


class Acknowledgement(BaseModel):
    """Note on an acknowledged event or alert."""

    model_config = _request({"note": "As planned."})

    note: Note = ""


class ForecastRequest(BaseModel):
    """Covariates of the steps to forecast, one entry per step."""

    model_config = _request({"level": 0.9, "x": [{"temperature": 3.0}]})

    level: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.9
    x: Annotated[
        list[Annotated[dict[Name, OptionalNumber], Field(min_length=1, max_length=64)]],
        Field(min_length=1, max_length=1000),
    ]


class WebhookRequest(BaseModel):
    """A receiver of messages, of which streams and of which kinds.

    Without `kinds`, alerts are sent and, in the format "json", all events but outliers.
    """

    model_config = _request(
        {
            "url": "https://example.org/hooks/regimekit",
            "prefix": "plant1.",
            "kinds": ["alert opened", "alert resolved"],
        }
    )

    url: Annotated[
        str, Field(strict=True, max_length=2000, pattern=r"^(https?://|mailto:)[^\s\x00-\x1f]+$")
    ]
    prefix: Annotated[str, Field(strict=True, max_length=128, pattern=_PRINTABLE)] = ""
    kinds: Annotated[list[MessageKind], Field(max_length=16)] = []
    format: MessageFormat = "json"
    severity: Severity = "info"


class RuleRequest(BaseModel):
    """An alert rule. Which settings apply depends on `kind`; others are refused."""

    model_config = _request(
        {"name": "odd values", "kind": "anomaly", "prefix": "plant1.", "count": 3, "window": 5},
        {"name": "fault", "kind": "fault", "severity": "critical"},
        {"name": "too hot", "kind": "forecast limit", "above": 90.0, "horizon": 12},
        {"name": "silent", "kind": "stale", "seconds": 600.0},
    )

    name: Annotated[str, Field(strict=True, min_length=1, max_length=80, pattern=_PRINTABLE)]
    kind: RuleKind
    stream: Annotated[str, Field(strict=True, pattern=KEY_PATTERN)] | None = None
    prefix: Annotated[str, Field(strict=True, max_length=128, pattern=_PRINTABLE)] = ""
    severity: Severity = "warning"
    threshold: Annotated[float, Field(strict=True, ge=0, lt=1)] | None = None
    count: _Rows | None = None
    window: _Rows | None = None
    dwell: _Rows | None = None
    returning: Annotated[bool, Field(strict=True)] | None = None
    above: OptionalNumber = None
    below: OptionalNumber = None
    horizon: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = None
    probability: Annotated[float, Field(strict=True, ge=0, lt=1)] | None = None
    seconds: Annotated[float, Field(strict=True, gt=0, le=1e9)] | None = None
    quiet: _Rows | None = None
    warmup: Annotated[int, Field(strict=True, ge=0, le=MAX_ROWS)] | None = None
    budget: Annotated[float, Field(strict=True, ge=0, le=10_000)] | None = None


class MuteRequest(BaseModel):
    """A window without notifications: once from `start` to `end`, or `daily`."""

    model_config = _request(
        {"prefix": "plant1.", "start": 1772366400.0, "end": 1772370000.0, "note": "Maintenance."},
        {"daily": "22:00-02:00", "days": [4, 5], "timezone": "Europe/Berlin"},
    )

    prefix: Annotated[str, Field(strict=True, max_length=128, pattern=_PRINTABLE)] = ""
    start: Annotated[float, Field(strict=True, ge=0, le=1e11)] | None = None
    end: Annotated[float, Field(strict=True, ge=0, le=1e11)] | None = None
    daily: Annotated[str, Field(strict=True, max_length=16)] | None = None
    days: Annotated[list[Annotated[int, Field(strict=True, ge=0, le=6)]], Field(max_length=7)] = []
    timezone: Annotated[str, Field(strict=True, max_length=64, pattern=_PRINTABLE)] = "UTC"
    note: Note = ""


def _field(example: Any, description: str | None = None, **options: Any) -> Any:
    """Define a response field by an example value."""
    return Field(examples=[example], description=description, **options)


class Response(BaseModel):
    """A response body whose schema shows the examples of its fields."""

    @classmethod
    def example(cls) -> dict[str, Any]:
        """Return an example that validates against the schema."""
        fields = cls.model_fields.items()
        return {name: field.examples[0] for name, field in fields if field.examples}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core_schema)
        target = handler.resolve_ref_schema(schema)
        target["example"] = cls.example()
        for shown in target.get("properties", {}).values():
            shown.pop("examples", None)
        return schema


class Problem(BaseModel):
    """Reason for which a request failed."""

    detail: str
    errors: list[dict[str, Any]] | None = None


class Receipt(Response):
    """Result of sending observations; everything in it is durable."""

    accepted: int = _field(1, "Number of new observations.")
    duplicates: int = _field(0, "Number of observations stored before; they have no effect.")
    rows: int = _field(8, "Observations of the stream; also the next sequence number.")
    out_of_order: int = _field(0, "New observations with a time before that of an earlier one.")


class EventInfo(Response):
    """An event, detected at `seq`; it applies to the observations from `since` on."""

    number: int = _field(4)
    seq: int = _field(127)
    time: str | None = _field("2026-03-01T12:07:00Z", "Time of observation `seq`, if it has one.")
    since: int = _field(122)
    since_time: str | None = _field("2026-03-01T12:02:00Z", "Time of observation `since`.")
    kind: str = _field("regime returned")
    regime: int = _field(2)
    previous: int = _field(0)
    regime_name: str | None = _field("night shift")
    regime_note: str | None = _field("One press runs.")
    previous_name: str | None = _field("day shift")
    previous_note: str | None = _field("Both run.")
    received: float = _field(1772366400.0)
    acknowledged: float | None = _field(1772366460.0)
    acknowledged_by: str | None = _field("wallboard")
    note: str | None = _field("As planned.")


class Events(Response):
    """Events in the order of detection."""

    events: list[EventInfo] = _field([EventInfo.example()])


class StreamInfo(Response):
    """State of a stream."""

    key: str = _field("plant1.press3.load")
    model: str = _field("auto")
    settings: dict[str, JsonValue] = _field({})
    created: float = _field(1772359200.0)
    rows: int = _field(128)
    events: int = _field(5)
    outliers: int = _field(3)
    regimes: int = _field(3)
    regime: int = _field(2)
    regime_name: str | None = _field("night shift", default=None)
    change_probability: float | None = _field(0.01, default=None)
    last_received: float | None = _field(1772366400.0, default=None)
    last_time: float | None = _field(1772366399.0, default=None)
    timed: bool = _field(True, "Whether every observation has a time, in order.")
    health: str = _field("live", "waiting (no observations yet), live or stale.")
    warmup: int = _field(60, "Rows before rules open alerts; the model is learning.")
    open_alerts: int = _field(0)
    severity: str | None = _field(None, "Highest severity of the open alerts.", default=None)
    spark: list[float | None] | None = _field([1.4, 1.6, 1.5], default=None)
    spark_regimes: list[int] | None = _field([2, 2, 2], default=None)
    last_event: dict[str, Any] | None = _field(EventInfo.example(), default=None)


class StreamPage(Response):
    """One page of the list of streams."""

    total: int = _field(1)
    streams: list[StreamInfo] = _field([StreamInfo.example()])


class StoredObservation(Response):
    """An observation with the outputs computed when it arrived."""

    seq: int = _field(127)
    id: str | None = _field("7")
    time: str | None = _field("2026-03-01T12:00:00Z")
    at: float | None = _field(1772366400.0, "The time in seconds since 1970.")
    received: float = _field(1772366400.2)
    y: Any = _field(1.5)
    x: dict[str, float | None] | None = _field({"temperature": 3.0})
    mean: Any = _field(1.4)
    median: Any = _field(1.4)
    sd: Any = _field(0.3)
    lower: Any = _field(0.9)
    upper: Any = _field(1.9)
    log_score: float | None = _field(0.2)
    weight: float | None = _field(1.0)
    outlier: bool = _field(False)
    regime: int = _field(2)
    regime_name: str | None = _field("night shift")
    regime_probability: float | None = _field(0.97)
    change_probability: float | None = _field(0.01)
    anomaly_score: float | None = _field(0.31, "1 minus the two-sided tail probability.")
    n_regimes: int = _field(3)


class Bucket(BaseModel):
    """Consecutive observations, aggregated."""

    seq: int
    n: int
    at: float | None
    y: float | None
    y_min: float | None
    y_max: float | None
    mean: float | None
    lower: float | None
    upper: float | None
    outliers: int
    change_probability: float | None


class Segment(BaseModel):
    """Observations [start, end) of one regime."""

    start: int
    end: int
    regime: int


class Observations(Response):
    """A window: single `observations`, or `buckets` if there are more than `points`."""

    start: int = _field(127)
    end: int = _field(128)
    rows: int = _field(128)
    aggregated: bool = _field(False)
    observations: list[StoredObservation] = _field([StoredObservation.example()])
    buckets: list[Bucket] = _field([])
    segments: list[Segment] = _field([{"start": 127, "end": 128, "regime": 2}])


class ForecastStep(Response):
    """One step ahead; values are lists if an observation has several coordinates."""

    step: int = _field(1)
    time: str | None = _field(
        "2026-03-01T12:08:00Z", "Expected time, if all observations have times in order."
    )
    mean: Any = _field(1.4)
    median: Any = _field(1.4)
    sd: Any = _field(0.3)
    lower: Any = _field(0.9)
    upper: Any = _field(1.9)


class Forecasts(Response):
    """Forecasts after `rows` observations."""

    rows: int = _field(128)
    level: float = _field(0.9)
    steps: list[ForecastStep] = _field([ForecastStep.example()])


class RegimeInfo(Response):
    """A regime: what the model knows of it, its name, and statistics of its stays."""

    id: int = _field(2)
    name: str | None = _field("night shift")
    note: str = _field("One press runs.")
    status: str = _field("normal", "unknown, normal or fault.")
    remembered: bool = _field(True, "Whether the model still represents the regime.")
    summary: str = _field("Higher than regime 0.", "What distinguishes it, in one sentence.")
    typical: Any = _field(
        1.4, "Median of its observations; a list if they have several coordinates."
    )
    low: Any = _field(0.8, "5 % quantile of its observations.")
    high: Any = _field(2.0, "95 % quantile of its observations.")
    share: float | None = _field(0.48, "Share of all observations.")
    visits: int = _field(61)
    first_seen: int | None = _field(40)
    last_seen: int | None = _field(127)
    mean: list[float | None] = _field([1.4])
    sd: list[float | None] = _field([0.05])
    probability: float | None = _field(1.0)
    times: int = _field(2, "Number of stays.")
    usual_length: float | None = _field(30.5, "Median length of a stay, in observations.")
    sample: list[float | None] = _field([1.4, 1.6, 1.5], "Last values of the latest stay.")
    next: dict[str, int] = _field({"0": 1}, "Number of transitions to each following regime.")


class Regimes(Response):
    """All regimes of a stream."""

    regimes: list[RegimeInfo] = _field([RegimeInfo.example()])


class TransitionTable(Response):
    """Expected probabilities of transitions between regimes."""

    ids: list[int] = _field([0, 2])
    matrix: list[list[float]] = _field([[0.95, 0.04], [0.1, 0.88]])


_CALIBRATION = {"n": 128, "level": 0.9, "coverage": 0.91, "below": 0.05, "above": 0.04}
_CALIBRATION |= {"under_median": 0.49, "outliers": 0.02, "log_score": -0.4, "mae": 0.3}


class Report(Response):
    """Summary of a stream."""

    stream: StreamInfo = _field(StreamInfo.example())
    calibration: dict[str, Any] = _field(_CALIBRATION)
    recent_calibration: dict[str, Any] = _field(_CALIBRATION)
    regimes: list[RegimeInfo] = _field([RegimeInfo.example()])
    explanation: str | None = _field("auto after 128 observations ...")
    weights: dict[str, float] | None = _field({"AR(1) regime model": 0.7, "last value": 0.3})


class WebhookInfo(Response):
    """A webhook and the state of its latest message."""

    id: int = _field(1)
    prefix: str = _field("plant1.")
    url: str = _field("https://example.org/hooks/regimekit")
    kinds: list[str] = _field(["alert opened", "alert resolved"])
    format: str = _field("json")
    severity: str = _field("info")
    created: float = _field(1772359200.0)
    last_delivered: float | None = _field(1772366401.0, default=None)
    last_attempts: int = _field(1, default=0)
    last_error: str | None = _field(None, default=None)


class WebhookMade(Response):
    """A new webhook with the secret that signs its messages. The secret is not shown again."""

    id: int = _field(1)
    secret: str = _field("a secret to store at the receiver")


class Webhooks(Response):
    """The webhooks that the caller may read."""

    webhooks: list[WebhookInfo] = _field([WebhookInfo.example()])


class RuleInfo(Response):
    """An alert rule with all its settings."""

    id: int = _field(1)
    rule: dict[str, JsonValue] = _field(
        {"name": "fault", "kind": "fault", "prefix": "", "severity": "critical", "dwell": 5}
    )


class Rules(Response):
    """The rules that the caller may read."""

    rules: list[RuleInfo] = _field([RuleInfo.example()])


class MuteInfo(Response):
    """A mute window."""

    id: int = _field(1)
    mute: dict[str, JsonValue] = _field(
        {"prefix": "plant1.", "start": 1772366400.0, "end": 1772370000.0}
    )


class Mutes(Response):
    """The mute windows that the caller may read."""

    mutes: list[MuteInfo] = _field([MuteInfo.example()])


class Created(Response):
    """The id of what was created."""

    id: int = _field(1)


class AlertInfo(Response):
    """An alert. The numbers of rows are sequence numbers, the times seconds since 1970."""

    id: str = _field("5f0c6cbd2a1b9e37", "The same for the messages of one alert.")
    stream: str = _field("plant1.press3.load")
    rule: str = _field("odd values")
    kind: str = _field("anomaly")
    severity: str = _field("warning")
    summary: str = _field("3 of the latest 5 rows are anomalous.")
    start: int = _field(120, "First row of the event.")
    start_time: float | None = _field(1772366398.0)
    opened: int = _field(124, "Row at which the alert was opened.")
    opened_time: float | None = _field(1772366400.0)
    regime: int = _field(2)
    previous: int = _field(-1)
    resolved: int | None = _field(150, "Row at which it was resolved; null while it is open.")
    resolved_time: float | None = _field(1772366452.0)
    resolution: str | None = _field("returned to regime 2")
    acknowledged: float | None = _field(1772366430.0)
    acknowledged_by: str | None = _field("wallboard")
    note: str | None = _field("On it.")
    muted_until: float | None = _field(1772366500.0)


class Alerts(Response):
    """One page of alerts, newest first."""

    total: int = _field(1)
    alerts: list[AlertInfo] = _field([AlertInfo.example()])


class Status(Response):
    """State of the process."""

    status: Literal["ok"] = _field("ok")


class Readiness(Response):
    """State of database and workers."""

    status: Literal["ready"] = _field("ready")
    compiled: bool = _field(
        True, "Whether the numerical kernels are compiled; otherwise models are slow."
    )
