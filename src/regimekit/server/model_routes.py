"""Routes of a stream's model: forecasts, regimes, transitions, report, snapshot."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy import Connection

from regimekit.server.auth import ReadableStream, RunningService
from regimekit.server.schemas import (
    ForecastRequest,
    Forecasts,
    RegimeInfo,
    Regimes,
    Report,
    TransitionTable,
)
from regimekit.server.service import Service
from regimekit.server.storage import observations, streams
from regimekit.server.storage.streams import Stream
from regimekit.server.stream_routes import PROBLEMS, stream_info, unwrap

router = APIRouter(tags=["models"], responses=PROBLEMS)
_RECENT_ROWS = 500  # observations of the recent calibration
_RECENT_TIMES = 30  # observations whose median interval dates the forecasts
# Fields that come from the model, and their values for a regime that the model has removed.
_MODEL_FIELDS: dict[str, Any] = {"visits": 0, "mean": [], "sd": [], "summary": ""}
_MODEL_FIELDS |= dict.fromkeys(("first_seen", "last_seen", "probability"))
_MODEL_FIELDS |= dict.fromkeys(("typical", "low", "high", "share"))

Level = Annotated[float, Query(gt=0, lt=1, description="Nominal coverage of the intervals.")]


async def _call(service: Service, stream: Stream, method: str, *arguments: Any) -> Any:
    """Return the answer of the stream's worker within the time limit."""
    try:
        answer = await asyncio.wait_for(
            service.pool.call(stream.id, method, *arguments), service.config.limits.answer_seconds
        )
    except TimeoutError:
        raise HTTPException(
            503, "The model is busy. Send the request again.", {"Retry-After": "2"}
        ) from None
    return unwrap(answer)


@router.get("/streams/{key}/forecast", summary="Forecast")
async def get_forecast(
    stream: ReadableStream,
    service: RunningService,
    horizon: Annotated[int, Query(ge=1, le=1000)] = 1,
    level: Level = 0.9,
) -> Forecasts:
    """Forecasts of the next `horizon` observations, each with a central interval."""
    return await _forecasts(service, stream, horizon, level, None)


@router.post("/streams/{key}/forecast", summary="Forecast with known covariates")
async def post_forecast(
    stream: ReadableStream, body: ForecastRequest, service: RunningService
) -> Forecasts:
    """One forecast per entry of `x`."""
    return await _forecasts(service, stream, len(body.x), body.level, body.x)


async def _forecasts(
    service: Service, stream: Stream, horizon: int, level: float, x: Any
) -> Forecasts:
    steps, recent = await asyncio.gather(
        _call(service, stream, "forecast", horizon, level, x),
        service.read(observations.latest, stream, _RECENT_TIMES),
    )
    times = _next_times([row.at for row in recent], horizon) if stream.timed else [None] * horizon
    steps = [step | {"time": time} for step, time in zip(steps, times, strict=True)]
    return Forecasts(rows=stream.n_rows, level=level, steps=steps)


def _next_times(recent: list[float], horizon: int) -> list[str | None]:
    """Return the expected times of the next observations, at the median interval so far."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(recent)]
    if not gaps:
        return [None] * horizon
    gap = statistics.median(gaps)
    moments = (datetime.fromtimestamp(recent[-1] + gap * (i + 1), UTC) for i in range(horizon))
    return [moment.isoformat().replace("+00:00", "Z") for moment in moments]


@router.get("/streams/{key}/regimes", summary="List regimes")
async def get_regimes(stream: ReadableStream, service: RunningService) -> Regimes:
    """Every regime that was reported or that the model knows, with name and statistics."""
    return Regimes(regimes=await _regimes(service, stream))


async def _regimes(service: Service, stream: Stream) -> list[RegimeInfo]:
    found, labels, stays = await asyncio.gather(
        _call(service, stream, "regimes"),
        service.read(streams.regime_labels, stream.id),
        service.read(observations.regime_statistics, stream),
    )
    known = {regime["id"]: regime for regime in found}
    return [
        _regime_info(i, known.get(i), stays.get(i), labels.get(i, streams.NO_LABEL))
        for i in sorted({*known, *stays, *labels} - {-1})
    ]


def _regime_info(
    regime: int,
    known: dict[str, Any] | None,
    stays: dict[str, Any] | None,
    label: streams.RegimeLabel,
) -> RegimeInfo:
    stays = stays or {"lengths": [], "next": {}, "sample": []}
    return RegimeInfo(
        id=regime,
        name=label.name or None,
        note=label.note,
        status=label.status,
        remembered=known is not None,
        times=len(stays["lengths"]),
        usual_length=statistics.median(stays["lengths"]) if stays["lengths"] else None,
        sample=stays["sample"],
        next={str(following): count for following, count in stays["next"].items()},
        **{name: (known or {}).get(name, default) for name, default in _MODEL_FIELDS.items()},
    )


@router.get("/streams/{key}/transitions", summary="Transition probabilities")
async def get_transitions(stream: ReadableStream, service: RunningService) -> TransitionTable:
    """Expected transition probabilities; the remainder of a row belongs to new regimes."""
    return TransitionTable(**await _call(service, stream, "transitions"))


@router.get(
    "/streams/{key}/report",
    summary="Report",
    response_model=Report,
    responses={
        200: {
            "description": "JSON, or a self-contained HTML file.",
            "content": {"text/html": {"schema": {"type": "string"}}},
        }
    },
)
async def get_report(
    stream: ReadableStream,
    service: RunningService,
    request: Request,
    form: Annotated[
        Literal["json", "html"] | None,
        Query(alias="format", description="By default the Accept header decides."),
    ] = None,
) -> Report | Response:
    """State of the stream, calibration of its forecasts, its regimes, and the model's summary."""
    # Browsers list text/html in Accept; other programs usually do not.
    by_header = "html" if "text/html" in request.headers.get("accept", "") else "json"
    if (form or by_header) == "html":
        return _html_response(await _call(service, stream, "report", stream.key))
    model, regimes, stored = await asyncio.gather(
        _call(service, stream, "describe"),
        _regimes(service, stream),
        service.read(_stored_facts, stream),
    )
    return Report(regimes=regimes, **stored, **model)


def _stored_facts(connection: Connection, stream: Stream) -> dict[str, Any]:
    recent = max(0, stream.n_rows - _RECENT_ROWS)
    return {
        "stream": stream_info(connection, stream),
        "calibration": observations.calibration(connection, stream.id, 0),
        "recent_calibration": observations.calibration(connection, stream.id, recent),
    }


def _html_response(page: str) -> Response:
    """Serve a report in a sandbox: it cannot use the API, and only its own scripts run."""
    # Imported on demand: it would slow down the start.
    from regimekit.report import script_policy

    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; sandbox allow-scripts; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; {script_policy()}"
    )
    return HTMLResponse(page, headers={"content-security-policy": policy})


@router.get(
    "/streams/{key}/snapshot",
    summary="Download the model",
    response_class=Response,
    responses={
        200: {
            "description": "Bytes for `regimekit.from_bytes`; the header Regimekit-Rows has the "
            "number of observations.",
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def get_snapshot(stream: ReadableStream, service: RunningService) -> Response:
    """The current model, to be loaded with `regimekit.load` or `regimekit.from_bytes`."""
    seq, data = await _call(service, stream, "snapshot")
    return Response(
        data,
        media_type="application/octet-stream",
        headers={
            "Regimekit-Rows": str(seq),
            "Content-Disposition": f'attachment; filename="{stream.key}.regimekit"',
        },
    )
