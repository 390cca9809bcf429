"""Why a request is refused, each with its code and a sentence that says the mend.

Refused
├── RunUnknown     404  there is no run of this name; the known ones are in the body
├── NotFound       404  there is no such group
├── WrongRequest   422  a position or a setting that can't work
├── ActionsOff     403  no token is configured: the service is read-only
├── Unauthorised   401  the token is missing or wrong
└── BrokerAway     503  Redis does not answer, or what is asked is not known
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from api.models import Refusal
from rolloutfleet.errors import BrokerUnavailable

type Responses = dict[int | str, dict[str, Any]]


class Refused(Exception):
    """What every refusal derives from. `detail`: one sentence."""

    code: ClassVar[int] = 400
    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, detail: str, runs: Sequence[str] | None = None) -> None:
        super().__init__(detail)
        self.refusal = Refusal(detail=detail, runs=None if runs is None else list(runs))


class RunUnknown(Refused):
    code = 404

    def __init__(self, run: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no run {run!r} (runs here: {', '.join(known) or 'none'})", known)


class NotFound(Refused):
    code = 404


class WrongRequest(Refused):
    code = 422


class ActionsOff(Refused):
    code = 403

    def __init__(self) -> None:
        super().__init__("actions are off: set ROLLOUTFLEET_API_TOKEN to turn them on")


class Unauthorised(Refused):
    code = 401
    headers: ClassVar[dict[str, str]] = {"WWW-Authenticate": "Bearer"}

    def __init__(self) -> None:
        super().__init__("actions need the header `Authorization: Bearer <ROLLOUTFLEET_API_TOKEN>`")


class BrokerAway(Refused):
    code = 503
    headers: ClassVar[dict[str, str]] = {"Retry-After": "1"}


def responses(*codes: int) -> Responses:
    """What a route says of its refusals in the OpenAPI."""
    texts = {
        401: "The token is missing or wrong.",
        403: "Actions are off: no token is configured.",
        404: "There is no such run, group or letter.",
        422: "A parameter can't work.",
        503: "Redis does not answer, or what is asked is not known.",
    }
    return {code: {"model": Refusal, "description": texts[code]} for code in codes}


def install(app: FastAPI) -> None:
    """Turns refusals into replies."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(BrokerUnavailable, _away)
    app.add_exception_handler(RequestValidationError, _wrong)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    return _reply(error)


async def _away(_: Request, error: Exception) -> JSONResponse:
    return _reply(BrokerAway(str(error)))


async def _wrong(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = [f"{_place(problem['loc'])}: {problem['msg']}" for problem in error.errors()]
    return _reply(WrongRequest("; ".join(problems)))


def _place(location: Sequence[Any]) -> str:
    """`query.limit`: where in the request, and which."""
    return ".".join(str(part) for part in location)


def _reply(error: Refused) -> JSONResponse:
    content = error.refusal.model_dump(exclude_none=True)
    return JSONResponse(content, error.code, headers=dict(error.headers))
