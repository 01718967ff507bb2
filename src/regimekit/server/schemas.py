"""What comes in and goes out over HTTP, with examples; the OpenAPI document is made of these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from regimekit.server import examples

KEY = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Id = Annotated[str, Field(strict=True, min_length=1, max_length=128, pattern=PRINTABLE)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=64, pattern=PRINTABLE)]
MaybeNumber = Number | None


def _like(example: dict[str, Any]) -> ConfigDict:
    """A model whose schema shows an example."""
    return ConfigDict(json_schema_extra={"example": example})


class Strict(BaseModel):
    """A request body: unknown fields are an error, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid")


class Observation(Strict):
    """One observation; all but `y` may be left out, `null` means not observed."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": "7",
                "time": "2026-03-01T12:00:00Z",
                "y": 1.5,
                "x": {"temperature": 3.0},
            }
        },
    )

    y: MaybeNumber | Annotated[list[MaybeNumber], Field(min_length=1, max_length=16)]
    id: Id | None = None
    seq: Annotated[int, Field(strict=True, ge=0, le=2**53)] | None = None
    time: Annotated[str, Field(strict=True, max_length=64)] | Number | None = None
    x: Annotated[dict[Name, MaybeNumber], Field(max_length=64)] | None = None


class StreamSettings(BaseModel):
    """A model by name and its settings beside it; `{}` is the default model."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": True,
            "examples": [{}, {"model": "br_ihmm", "noise": 0.25, "batch": 6}],
        },
    )

    model: Annotated[str, Field(strict=True, max_length=64)] | None = None


class RegimeName(Strict):
    """What a person calls a regime."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"name": "night shift", "note": "One press runs."}},
    )

    name: Annotated[str, Field(strict=True, max_length=80, pattern=PRINTABLE)] = ""
    note: Annotated[str, Field(strict=True, max_length=2000, pattern=r"^[^\x00]*$")] = ""


class Acknowledgement(Strict):
    """A word on an event that somebody has seen."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"note": "As planned."}}
    )

    note: Annotated[str, Field(strict=True, max_length=2000, pattern=r"^[^\x00]*$")] = ""


class ForecastRequest(Strict):
    """Steps ahead whose covariates are known."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"level": 0.9, "x": [{"temperature": 3.0}]}},
    )

    level: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.9
    x: Annotated[
        list[Annotated[dict[Name, MaybeNumber], Field(min_length=1, max_length=64)]],
        Field(min_length=1, max_length=1000),
    ]


class WebhookRequest(Strict):
    """Where to send events, of which streams and of which kinds (none: all but outliers)."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "url": "https://example.org/hooks/regimekit",
                "prefix": "plant1.",
                "kinds": ["regime opened"],
            }
        },
    )

    url: Annotated[str, Field(strict=True, max_length=2000, pattern=r"^https?://[^\s\x00-\x1f]+$")]
    prefix: Annotated[str, Field(strict=True, max_length=128, pattern=PRINTABLE)] = ""
    kinds: Annotated[list[Name], Field(max_length=16)] = []


class Problem(BaseModel):
    """Why a request was not done, in a sentence."""

    detail: str
    errors: list[dict[str, Any]] | None = None


class Receipt(BaseModel):
    """What became of a request's observations: all of this is durable."""

    model_config = _like({"accepted": 1, "duplicates": 0, "rows": 8})

    accepted: int = Field(description="Observations that were new.")
    duplicates: int = Field(description="Observations stored before: no effect.")
    rows: int = Field(description="Observations of the stream now; the next one's `seq`.")


class StreamInfo(BaseModel):
    """A stream as it stands."""

    model_config = _like(examples.STREAM)

    key: str
    model: str
    settings: dict[str, JsonValue]
    created: float
    rows: int
    events: int
    outliers: int
    regimes: int
    regime: int
    regime_name: str | None = None
    change_probability: float | None = None
    last_received: float | None = None
    last_time: float | None = None
    timed: bool = Field(description="Whether every observation has a time, in order.")
    health: str = Field(description="waiting (no rows yet), live or stale.")
    spark: list[float | None] | None = None
    spark_regimes: list[int] | None = None
    last_event: dict[str, Any] | None = None


class StreamPage(BaseModel):
    """Some of the streams."""

    model_config = _like({"total": 1, "streams": [examples.STREAM]})

    total: int
    streams: list[StreamInfo]


class Stored(BaseModel):
    """An observation with the outputs that were made when it arrived."""

    model_config = _like(examples.STORED)

    seq: int
    id: str | None
    time: str | None
    at: float | None = Field(description="The time in seconds since 1970.")
    received: float
    y: Any
    x: dict[str, float | None] | None
    mean: Any
    median: Any
    sd: Any
    lower: Any
    upper: Any
    log_score: float | None
    weight: float | None
    outlier: bool
    regime: int
    regime_name: str | None
    regime_probability: float | None
    change_probability: float | None
    n_regimes: int


class Bucket(BaseModel):
    """Neighbouring observations as one point."""

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


class Observations(BaseModel):
    """A window: `observations` as they are, or `buckets` where `points` asked for fewer."""

    model_config = _like(examples.OBSERVATIONS)

    start: int
    end: int
    rows: int
    aggregated: bool
    observations: list[Stored]
    buckets: list[Bucket]
    segments: list[Segment]


class ForecastStep(BaseModel):
    """One step ahead; lists where an observation has several coordinates."""

    step: int
    mean: Any
    median: Any
    sd: Any
    lower: Any
    upper: Any


class Forecasts(BaseModel):
    """The steps to come, after `rows` observations."""

    model_config = _like(examples.FORECASTS)

    rows: int
    level: float
    steps: list[ForecastStep]


class EventInfo(BaseModel):
    """Something worth telling: known at `seq`, belonging to the observations from `since` on."""

    model_config = _like(examples.EVENT)

    number: int
    seq: int
    since: int
    kind: str
    regime: int
    previous: int
    regime_name: str | None
    regime_note: str | None
    previous_name: str | None
    previous_note: str | None
    received: float
    acknowledged: float | None
    acknowledged_by: str | None
    note: str | None


class Events(BaseModel):
    """Events in the order in which they became known."""

    model_config = _like({"events": [examples.EVENT]})

    events: list[EventInfo]


class RegimeInfo(BaseModel):
    """A regime as it is remembered, with what people call it and how it used to go."""

    model_config = _like(examples.REGIME)

    id: int
    name: str | None
    note: str
    remembered: bool = Field(description="Whether the model still knows it.")
    visits: int
    first_seen: int | None
    last_seen: int | None
    mean: list[float | None]
    sd: list[float | None]
    probability: float | None
    times: int = Field(description="How often the stream was in it.")
    usual_length: float | None = Field(description="Median length of a stay, in observations.")
    sample: list[float | None] = Field(description="The last values of its latest stay.")
    next: dict[str, int] = Field(description="What followed, and how often.")


class Regimes(BaseModel):
    """The library of regimes."""

    model_config = _like({"regimes": [examples.REGIME]})

    regimes: list[RegimeInfo]


class TransitionTable(BaseModel):
    """Expected probabilities of moving between regimes."""

    model_config = _like(examples.TRANSITIONS)

    ids: list[int]
    matrix: list[list[float]]


class Report(BaseModel):
    """What there is to know about a stream, on one page."""

    model_config = _like(examples.REPORT)

    stream: StreamInfo
    calibration: dict[str, Any]
    recent_calibration: dict[str, Any]
    regimes: list[RegimeInfo]
    explanation: str | None
    weights: dict[str, float] | None


class WebhookInfo(BaseModel):
    """A webhook and the fate of its latest message."""

    model_config = _like(examples.WEBHOOK)

    id: int
    prefix: str
    url: str
    kinds: list[str]
    created: float
    last_delivered: float | None = None
    last_attempts: int = 0
    last_error: str | None = None


class WebhookMade(BaseModel):
    """A new webhook; the secret that signs its messages is shown this once."""

    model_config = _like(examples.WEBHOOK_MADE)

    id: int
    secret: str


class Webhooks(BaseModel):
    """The webhooks this token may see."""

    model_config = _like({"webhooks": [examples.WEBHOOK]})

    webhooks: list[WebhookInfo]
