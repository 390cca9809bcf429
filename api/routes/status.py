"""How do the runs stand: the snapshot, one run of it, its workers, its last minutes."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.columns import columns
from api.fleet_models import PodsReply
from api.models import History, RunReply, StatusReply, WorkersReply
from api.refusals import responses
from api.service import RunName, ServiceOf
from rolloutfleet.history import FINE_SECONDS
from rolloutfleet.keys import RUN_NAME

router = APIRouter(tags=["status"])

JSON = "application/json"
RunQuery = Annotated[
    str | None,
    Query(description="Only this run.", examples=["math"], max_length=256, pattern=f"^{RUN_NAME.pattern}$"),
]


@router.get("/status", response_model=StatusReply, responses=responses(404, 422, 503))
async def status(service: ServiceOf, run: RunQuery = None) -> Response:
    """All runs, or one: the last snapshot, at most a second old, with the age of its data."""
    if run is not None:
        found = await service.run(run)
        reply = service.publisher.snapshot.reply.model_copy(update={"runs": [found]})
        return Response(reply.model_dump_json(), media_type=JSON)
    return Response(service.publisher.snapshot.encoded(), media_type=JSON)


@router.get("/status/{run}", response_model=RunReply, responses=responses(404, 422, 503))
async def run_status(service: ServiceOf, run: RunName) -> Response:
    """One run."""
    found = await service.run(run)
    return Response(service.publisher.snapshot.encoded_run(found), media_type=JSON)


@router.get("/status/{run}/workers", responses=responses(404, 422, 503))
async def workers(service: ServiceOf, run: RunName) -> WorkersReply:
    """The live workers of a run."""
    found = await service.run(run)
    return WorkersReply(run=run, age_seconds=found.age_seconds, workers=found.workers)


@router.get("/status/{run}/pods", responses=responses(404, 422, 503))
async def pods(service: ServiceOf, run: RunName) -> PodsReply:
    """The pods of the fleets that serve a run, as their operators report them: also those without a worker."""
    found = await service.run(run)
    return PodsReply(run=run, has_operator=bool(found.fleets), fleets=found.fleets)


@router.get("/status/{run}/history", responses=responses(404, 422, 503))
async def history(
    service: ServiceOf,
    run: RunName,
    seconds: Annotated[float, Query(ge=1, le=900, description="How far back.")] = 900,
    step_seconds: Annotated[float, Query(ge=FINE_SECONDS, le=60, description="Time between points.")] = 5,
) -> History:
    """The last minutes as columns, for charts. As much as this process has seen of them."""
    book = await service.book(run)
    return columns(run, book.history, seconds, step_seconds)
