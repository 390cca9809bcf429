"""How many workers can the fleet use: one number for an autoscaler."""

import time

from fastapi import APIRouter

from api.models import DesiredWorkers
from api.refusals import BrokerAway, responses
from api.routes.status import RunQuery
from api.sampler import RunBook
from api.service import Service, ServiceOf
from api.views import demand_view

router = APIRouter(tags=["scaling"])

OLDEST_SECONDS = 30.0


@router.get("/desired_workers", responses=responses(404, 422, 503))
async def desired(service: ServiceOf, run: RunQuery = None) -> DesiredWorkers:
    """Of one run, or the sum over all. Not known, or from data older than 30 s, is 503: never a number."""
    if run is not None:
        return _of(service, run, await service.book(run))
    books = sorted(service.sampler.books.items())
    if not books:
        raise BrokerAway("no run is known yet: nobody can say how many workers are wanted")
    wanted = [_of(service, name, book) for name, book in books]
    return DesiredWorkers(
        desired_workers=sum(one.desired_workers for one in wanted),
        reason="; ".join(f"{name}: {one.reason}" for (name, _), one in zip(books, wanted, strict=True)),
        age_seconds=max(one.age_seconds for one in wanted),
    )


def _of(service: Service, run: str, book: RunBook) -> DesiredWorkers:
    age = time.monotonic() - book.at
    if book.look is None:
        raise BrokerAway(book.problem or f"run {run!r} was not read yet")
    if age > OLDEST_SECONDS:
        raise BrokerAway(f"what is known of run {run!r} is {age:.0f} s old: {book.problem or 'Redis does not answer'}")
    number, reason = demand_view(book, book.look, service.settings)
    return DesiredWorkers(desired_workers=number, reason=reason, age_seconds=max(0.0, age))
