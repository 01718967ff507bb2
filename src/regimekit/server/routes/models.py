"""What a stream's model has to say: forecasts, regimes, transitions, a report, itself."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import statistics
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy import Connection

from regimekit.server.routes.common import PROBLEMS, Readable, Serving, ask
from regimekit.server.routes.streams import info
from regimekit.server.schemas import (
    ForecastRequest,
    Forecasts,
    RegimeInfo,
    Regimes,
    Report,
    TransitionTable,
)
from regimekit.server.service import Service
from regimekit.server.storage import history, streams
from regimekit.server.storage.streams import Stream

router = APIRouter(tags=["models"], responses=PROBLEMS)
_RECENT = 500
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)

Level = Annotated[float, Query(gt=0, lt=1, description="Probability the interval should hold.")]


@router.get("/streams/{key}/forecast", summary="The steps to come")
async def get_forecast(
    stream: Readable,
    service: Serving,
    horizon: Annotated[int, Query(ge=1, le=1000)] = 1,
    level: Level = 0.9,
) -> Forecasts:
    """Forecasts of the next `horizon` observations, each with a central interval."""
    steps = await ask(service, stream, "forecast", horizon, level, None)
    return Forecasts(rows=stream.n_rows, level=level, steps=steps)


@router.post("/streams/{key}/forecast", summary="The steps to come, given their covariates")
async def post_forecast(stream: Readable, body: ForecastRequest, service: Serving) -> Forecasts:
    """As many steps as there are covariates."""
    steps = await ask(service, stream, "forecast", len(body.x), body.level, body.x)
    return Forecasts(rows=stream.n_rows, level=body.level, steps=steps)


@router.get("/streams/{key}/regimes", summary="The library of regimes")
async def get_regimes(stream: Readable, service: Serving) -> Regimes:
    """Every regime that was reported or is remembered, with its name and its habits."""
    return Regimes(regimes=await _library(service, stream))


async def _library(service: Service, stream: Stream) -> list[RegimeInfo]:
    remembered, stored = await asyncio.gather(
        ask(service, stream, "regimes"), service.read(_habits, stream)
    )
    names, visits = stored
    known = {regime["id"]: regime for regime in remembered}
    return [
        _regime(number, known.get(number), visits.get(number), names.get(number, ("", "")))
        for number in sorted({*known, *visits, *names} - {-1})
    ]


def _habits(connection: Connection, stream: Stream) -> tuple[Any, Any]:
    return streams.names(connection, stream.id), history.visits(connection, stream)


def _regime(
    number: int, known: dict[str, Any] | None, habit: dict[str, Any] | None, named: tuple[str, str]
) -> RegimeInfo:
    fields = known or {"visits": 0, "first_seen": None, "last_seen": None, "mean": [], "sd": []}
    fields = {name: fields[name] for name in ("visits", "first_seen", "last_seen", "mean", "sd")}
    lengths = habit["lengths"] if habit else []
    return RegimeInfo(
        id=number,
        name=named[0] or None,
        note=named[1],
        remembered=known is not None,
        probability=known.get("probability") if known else None,
        times=len(lengths),
        usual_length=statistics.median(lengths) if lengths else None,
        sample=habit["sample"] if habit else [],
        next={str(then): count for then, count in habit["next"].items()} if habit else {},
        **fields,
    )


@router.get("/streams/{key}/transitions", summary="Between regimes")
async def get_transitions(stream: Readable, service: Serving) -> TransitionTable:
    """Expected probabilities of moving from regime to regime; the rest belongs to new ones."""
    return TransitionTable(**await ask(service, stream, "transitions"))


@router.get(
    "/streams/{key}/report",
    summary="All there is to know, on one page",
    response_model=Report,
    responses={
        200: {
            "description": "Facts, or an HTML file for people that needs nothing else.",
            "content": {"text/html": {"schema": {"type": "string"}}},
        }
    },
)
async def get_report(
    stream: Readable,
    service: Serving,
    request: Request,
    form: Annotated[
        Literal["json", "html"] | None,
        Query(alias="format", description="Without it the Accept header decides."),
    ] = None,
) -> Report | Response:
    """The stream, how honest its forecasts were, its regimes, and what the model says of itself."""
    if (form or _preferred(request)) == "html":
        return _document(await ask(service, stream, "report", stream.key))
    about, regimes, stored = await asyncio.gather(
        ask(service, stream, "about"), _library(service, stream), service.read(_honesty, stream)
    )
    shown, whole, recent = stored
    return Report(
        stream=shown, calibration=whole, recent_calibration=recent, regimes=regimes, **about
    )


def _preferred(request: Request) -> str:
    """Browsers ask for HTML by name; programs say nothing, or JSON."""
    return "html" if "text/html" in request.headers.get("accept", "") else "json"


def _document(page: str) -> Response:
    """The report to be looked at, cut off from the service: it can neither ask it nor run a
    script that was not written into it.
    """
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; sandbox allow-scripts; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        f"script-src {' '.join(_digest(script) for script in _SCRIPT.findall(page))}"
    )
    return HTMLResponse(page, headers={"content-security-policy": policy})


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _honesty(connection: Connection, stream: Stream) -> tuple[Any, Any, Any]:
    return (
        info(connection, stream),
        history.calibration(connection, stream.id, 0),
        history.calibration(connection, stream.id, max(0, stream.n_rows - _RECENT)),
    )


@router.get(
    "/streams/{key}/snapshot",
    summary="The model itself",
    response_class=Response,
    responses={
        200: {
            "description": "Bytes for `regimekit.from_bytes`; Regimekit-Rows says how many rows.",
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def get_snapshot(stream: Readable, service: Serving) -> Response:
    """The model as it stands, to be loaded with `regimekit.load` or `regimekit.from_bytes`."""
    seq, data = await ask(service, stream, "snapshot")
    return Response(
        data,
        media_type="application/octet-stream",
        headers={
            "Regimekit-Rows": str(seq),
            "Content-Disposition": f'attachment; filename="{stream.key}.regimekit"',
        },
    )
