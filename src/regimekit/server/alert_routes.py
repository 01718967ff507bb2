"""Routes of alert rules, mute windows and alerts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Path, Query
from sqlalchemy.exc import IntegrityError

from regimekit.alerts import Mute, Rule
from regimekit.core.exceptions import RegimekitError
from regimekit.server import alerting, schemas
from regimekit.server.auth import Caller, RunningService, require
from regimekit.server.schemas import Problem
from regimekit.server.service import Service
from regimekit.server.storage import alerts, outbox
from regimekit.server.storage.alerts import StoredRule
from regimekit.server.stream_routes import PROBLEMS, Number

router = APIRouter(tags=["alerts"], responses=PROBLEMS)
AlertId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="Id of an alert.")]
_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": Problem, "description": "Another rule has this name."}
}


def _scope(rule: Rule) -> str:
    """Return the key or prefix that a caller must have access to."""
    return rule.prefix if rule.stream is None else rule.stream


def _parse_rule(body: schemas.RuleRequest) -> Rule:
    try:
        return Rule.from_dict(body.model_dump(exclude_none=True, exclude_unset=True))
    except RegimekitError as error:
        raise HTTPException(422, str(error)) from None


@router.get("/rules", summary="List alert rules")
async def list_rules(service: RunningService, token: Caller) -> schemas.Rules:
    """Rules whose streams the caller may read, with all their settings."""
    found = await service.read(alerts.list_rules)
    own = [stored for stored in found if token.allows("read", _scope(stored.rule))]
    return schemas.Rules.model_validate(
        {"rules": [{"id": stored.id, "rule": stored.rule.to_dict()} for stored in own]}
    )


@router.post("/rules", summary="Create an alert rule", status_code=201, responses=_CONFLICT)
async def add_rule(
    body: schemas.RuleRequest, service: RunningService, token: Caller
) -> schemas.Created:
    """Needs write access to the stream or prefix. The rule applies from the next observation on."""
    rule = _parse_rule(body)
    require(token, "write", _scope(rule))
    number = await _write(service, rule, alerts.add_rule, rule)
    return schemas.Created(id=number)


async def _write(service: Service, rule: Rule, change: Any, *arguments: Any) -> Any:
    try:
        result = await service.write(change, *arguments)
    except IntegrityError:
        raise HTTPException(
            409, f"A rule with the name {rule.name!r} exists. Choose another name."
        ) from None
    service.policy_changed()
    return result


async def _find_rule(service: Service, number: int) -> StoredRule:
    for stored in await service.read(alerts.list_rules):
        if stored.id == number:
            return stored
    raise HTTPException(404, f"The rule {number} does not exist.")


@router.put(
    "/rules/{number}", summary="Replace an alert rule", status_code=204, responses=_CONFLICT
)
async def put_rule(
    number: Number, body: schemas.RuleRequest, service: RunningService, token: Caller
) -> None:
    """Open alerts stay open if name, kind and streams are unchanged, and are resolved otherwise."""
    rule = _parse_rule(body)
    before = await _find_rule(service, number)
    for entry in (before.rule, rule):
        require(token, "write", _scope(entry))
    await _write(service, rule, alerting.replace_rule, before, rule)


@router.delete("/rules/{number}", summary="Delete an alert rule", status_code=204)
async def remove_rule(number: Number, service: RunningService, token: Caller) -> None:
    """Delete a rule and resolve its open alerts."""
    stored = await _find_rule(service, number)
    require(token, "write", _scope(stored.rule))
    await service.write(alerting.remove_rule, number, stored.rule.name)
    service.policy_changed()


@router.get("/mutes", summary="List mute windows")
async def list_mutes(service: RunningService, token: Caller) -> schemas.Mutes:
    """Windows whose streams the caller may read."""
    found = await service.read(alerts.list_mutes)
    own = [(number, mute) for number, mute in found if token.allows("read", mute.prefix)]
    return schemas.Mutes.model_validate(
        {"mutes": [{"id": number, "mute": mute.to_dict()} for number, mute in own]}
    )


@router.post("/mutes", summary="Create a mute window", status_code=201)
async def add_mute(
    body: schemas.MuteRequest, service: RunningService, token: Caller
) -> schemas.Created:
    """Alerts in the window are recorded; those that are open at its end are sent then."""
    require(token, "write", body.prefix)
    try:
        mute = Mute.from_dict(body.model_dump(exclude_none=True))
    except RegimekitError as error:
        raise HTTPException(422, str(error)) from None
    return schemas.Created(id=await service.write(alerts.add_mute, mute.to_dict()))


@router.delete("/mutes/{number}", summary="Delete a mute window", status_code=204)
async def remove_mute(number: Number, service: RunningService, token: Caller) -> None:
    """Messages that wait for the end of the window are sent at that time."""
    for known, mute in await service.read(alerts.list_mutes):
        if known == number:
            require(token, "write", mute.prefix)
            await service.write(alerts.remove_mute, number)
            return
    raise HTTPException(404, f"The mute window {number} does not exist.")


@router.get("/alerts", summary="List alerts")
async def list_alerts(
    service: RunningService,
    token: Caller,
    state: Literal["open", "resolved", "all"] = "open",
    stream: Annotated[
        str | None, Query(max_length=128, pattern=r"^[^\x00]*$", description="Only this stream.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    offset: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> schemas.Alerts:
    """Alerts of the streams that the caller may read, newest first."""
    total, page = await service.read(
        alerts.list_page, token.prefixes("read"), state, stream, limit, offset
    )
    return schemas.Alerts.model_validate({"total": total, "alerts": page})


async def _find_alert(service: Service, alert: str) -> dict[str, Any]:
    found = await service.read(alerts.find, alert)
    if found is None:
        raise HTTPException(404, f"The alert {alert!r} does not exist.")
    return found


@router.get("/alerts/{alert}", summary="Show an alert")
async def get_alert(alert: AlertId, service: RunningService, token: Caller) -> schemas.AlertInfo:
    """One alert with its resolution and acknowledgement."""
    found = await _find_alert(service, alert)
    require(token, "read", found["stream"])
    return schemas.AlertInfo.model_validate(found)


@router.post("/alerts/{alert}/acknowledge", summary="Acknowledge an alert", status_code=204)
async def acknowledge(
    alert: AlertId, body: schemas.Acknowledgement, service: RunningService, token: Caller
) -> None:
    """Store the name of the token and a note. Messages that are not delivered yet are discarded."""
    found = await _find_alert(service, alert)
    require(token, "write", found["stream"])
    await service.write(_acknowledge, alert, token.name, body.note)


def _acknowledge(connection: Any, alert: str, by: str, note: str) -> None:
    alerts.acknowledge(connection, alert, by, note)
    outbox.cancel(connection, alert)
