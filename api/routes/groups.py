"""Where are the groups: pages of them by state, one of them, and the dead letters."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from api.group import read_group
from api.group_models import DeadPage, GroupReply, GroupsPage, GroupState
from api.groups import MOST, WrongPosition, read_groups, read_letters
from api.refusals import NotFound, WrongRequest, responses
from api.service import RunName, ServiceOf

router = APIRouter(tags=["groups"])

After = Annotated[str | None, Query(max_length=64, description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=MOST, description="The most rows.")]


@router.get("/status/{run}/groups", responses=responses(404, 422, 503))
async def groups(
    service: ServiceOf,
    run: RunName,
    state: Annotated[GroupState, Query(description="Where they are.")] = "active",
    after: After = None,
    limit: Limit = 50,
) -> GroupsPage:
    """A page of the groups in one state, in the order of the line. Read now, not from the snapshot."""
    broker = await service.broker(run)
    try:
        return await service.asked(read_groups(broker, state, after, limit))
    except WrongPosition as error:
        raise WrongRequest(str(error)) from error


@router.get("/status/{run}/groups/{group_id:path}", responses=responses(404, 422, 503))
async def group(
    service: ServiceOf,
    run: RunName,
    group_id: Annotated[str, Path(description="Its id.", examples=["gsm8k-17"], min_length=1, max_length=256)],
) -> GroupReply:
    """One group: where it is, who holds it, which samples are finished, what is known of its way."""
    broker = await service.broker(run)
    found = await service.asked(read_group(broker, group_id))
    if found is None:
        raise NotFound(
            f"run {run!r} knows no group {group_id!r}: an entry that was pushed raw is known from its claim on"
        )
    return found


@router.get("/status/{run}/dead", responses=responses(404, 422, 503))
async def dead(service: ServiceOf, run: RunName, after: After = None, limit: Limit = 50) -> DeadPage:
    """A page of the dead letters, newest first."""
    broker = await service.broker(run)
    try:
        return await service.asked(read_letters(broker, after, limit))
    except ValueError as error:
        raise WrongRequest(str(error)) from error
