"""For machines: is the process alive, does it serve, and its metrics."""

import time

from fastapi import APIRouter, Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from api.metrics import registry_of
from api.models import Health, Ready
from api.publisher import redis_view
from api.refusals import BrokerAway, responses
from api.service import ServiceOf

router = APIRouter(tags=["probes"])


@router.get("/healthz", responses=responses(503))
async def healthz(service: ServiceOf) -> Health:
    """The process runs, and still reads. Redis away is no fault of it."""
    if service.sampler.has_ended or service.publisher.has_ended:
        raise BrokerAway("what reads the runs has ended by a fault of its own (see the log): start this process again")
    return Health(status="ok")


@router.get("/readyz")
async def readyz(service: ServiceOf) -> Ready:
    """It serves, also while Redis is away: then the body says so."""
    return Ready(status="ok", redis=redis_view(service.sampler, time.monotonic()))


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: ServiceOf) -> Response:
    """What Prometheus scrapes: the last snapshot. Several replicas show the same: `max by (run)`, never `sum`."""
    registry = registry_of(service.publisher.snapshot, service.sampler)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
