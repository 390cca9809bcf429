"""What an operator does to a run. Off unless a token is configured; each leaves an audit record, failed ones, too."""

import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import ValidationError

from api import actions
from api.bodies import AuditReply, Done, Letters, WindowChange, WorkerNames
from api.refusals import Refused, WrongRequest, responses
from api.service import RunName, Service, service_of
from rolloutfleet.broker import Broker
from rolloutfleet.settings import explain

log = logging.getLogger("api.audit")

router = APIRouter(tags=["actions"])
_bearer = HTTPBearer(auto_error=False, description="ROLLOUTFLEET_API_TOKEN")
_refusals = responses(401, 403, 404, 422, 503)

type Action = Callable[[Broker], Awaitable[Done]]


class Operator:
    """Somebody who may act. Made once for each request, after the token was checked."""

    def __init__(
        self,
        request: Request,
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    ) -> None:
        self.service: Service = service_of(request)
        self.client = request.client.host if request.client else "unknown"
        try:
            self.service.check_token(given.credentials if given else None)
        except Refused:
            # Only a log line: whoever has no token must not push the records of others out.
            log.warning("refused %s from %s", request.url.path, self.client)
            raise

    async def does(self, action: str, run: str, arguments: dict[str, Any], act: Action) -> Done:
        """Acts on a run that exists, and records it."""
        try:
            done = await self.service.asked(act(await self.service.broker(run)))
        except ValidationError as error:
            self._record(action, run, arguments, f"refused: {explain(error)}")
            raise WrongRequest(explain(error)) from error
        except Refused as error:
            self._record(action, run, arguments, f"failed: {error}")
            raise
        self._record(action, run, arguments, done.sentence)
        return done

    def _record(self, action: str, run: str, arguments: dict[str, Any], outcome: str) -> None:
        self.service.audit.record(action, run, arguments, outcome, self.client)


MayAct = Annotated[Operator, Depends()]


@router.post("/actions/{run}/pause", responses=_refusals)
async def pause(operator: MayAct, run: RunName) -> Done:
    """Nothing is claimed any more; what is held goes on."""
    return await operator.does("pause", run, {}, actions.pause)


@router.post("/actions/{run}/resume", responses=_refusals)
async def resume(operator: MayAct, run: RunName) -> Done:
    """Groups are claimed again."""
    return await operator.does("resume", run, {}, actions.resume)


@router.post("/actions/{run}/window", responses=_refusals)
async def window(operator: MayAct, run: RunName, change: WindowChange) -> Done:
    """Sets settings of the window; what is left out stays."""

    def act(broker: Broker) -> Awaitable[Done]:
        return actions.change_window(broker, change)

    return await operator.does("window", run, change.given(), act)


@router.post("/actions/{run}/drain", responses=_refusals)
async def drain(operator: MayAct, run: RunName, names: WorkerNames) -> Done:
    """These workers finish what they hold and claim no more."""
    return await operator.does("drain", run, names.model_dump(), lambda broker: actions.drain(broker, names.workers))


@router.post("/actions/{run}/undrain", responses=_refusals)
async def undrain(operator: MayAct, run: RunName, names: WorkerNames) -> Done:
    """These workers claim again."""
    return await operator.does(
        "undrain", run, names.model_dump(), lambda broker: actions.undrain(broker, names.workers)
    )


@router.post("/actions/{run}/requeue", responses=_refusals)
async def requeue(operator: MayAct, run: RunName, letters: Letters) -> Done:
    """Gives dead letters another life."""
    return await operator.does("requeue", run, letters.model_dump(), lambda broker: actions.requeue(broker, letters))


@router.post("/actions/{run}/drop", responses=_refusals)
async def drop(operator: MayAct, run: RunName, letters: Letters) -> Done:
    """Forgets dead letters; a duplicate of them is refused as before."""
    return await operator.does("drop", run, letters.model_dump(), lambda broker: actions.drop(broker, letters))


@router.get("/audit", responses=responses(401, 403))
async def audit(operator: MayAct) -> AuditReply:
    """The last 100 actions that this process was asked for, newest first. Needs the token, too."""
    return AuditReply(records=operator.service.audit.records)
