"""For those who run the service: alive, ready, measured."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field

from regimekit.server.routes.common import PROBLEMS, Caller, Serving
from regimekit.server.schemas import Problem
from regimekit.server.security import demand

router = APIRouter(tags=["operations"])


class Status(BaseModel):
    """A word for a probe."""

    model_config = ConfigDict(json_schema_extra={"example": {"status": "ok"}})

    status: Literal["ok"]


class Readiness(BaseModel):
    """The service takes observations, at full speed once the kernels are compiled."""

    model_config = ConfigDict(json_schema_extra={"example": {"status": "ready", "compiled": True}})

    status: Literal["ready"]
    compiled: bool = Field(
        description="False while the kernels are compiled, once on a machine; models are slow then."
    )


@router.get("/healthz", summary="Alive")
async def healthz() -> Status:
    """The process answers."""
    return Status(status="ok")


@router.get("/readyz", summary="Ready", responses={503: {"model": Problem}})
async def readyz(service: Serving) -> Readiness:
    """The database answers and the workers can learn."""
    if not service.ready:
        raise HTTPException(503, "The workers are starting.", {"Retry-After": "2"})
    if not await service.healthy():
        raise HTTPException(503, "The database does not answer.", {"Retry-After": "5"})
    return Readiness(status="ready", compiled=service.pool.compiled)


@router.get(
    "/metrics",
    summary="Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **PROBLEMS},
)
async def metrics(service: Serving, token: Caller) -> Response:
    """Needs a token that may read every stream."""
    demand(token, "read", "")
    return Response(await service.exposition(), media_type="text/plain; version=0.0.4")
