"""POST /generate of a simulated engine: refusals, faults, the answer, the stream."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from deploy.simulator import bodies
from deploy.simulator.engine import DuplicateRid, End, Job, QueueFull
from deploy.simulator.requests import (
    BadRequest,
    ContractViolation,
    DeadlyRequest,
    GenerateRequest,
    Json,
    MalformedBody,
    read_generate,
    read_json,
)
from deploy.simulator.service import Plan, Service

_STREAM_SECONDS = 0.02
_DONE = b"data: [DONE]\n\n"
_HTML = "<html><body><h1>502 Bad Gateway</h1></body></html>"


def refusal(error: BadRequest) -> web.Response:
    """400 in the shape that the real server has for this kind of error."""
    if isinstance(error, MalformedBody):
        return server_error(400, str(error))
    if isinstance(error, ContractViolation):
        return web.json_response({"error": str(error)}, status=400)
    return web.json_response({"error": {"message": str(error)}}, status=400)


def server_error(status: int, message: str) -> web.Response:
    """The shape of errors that the server itself raises."""
    body = {"object": "error", "message": message, "type": str(status), "param": None, "code": status}
    return web.json_response(body, status=status)


class GenerateRoute:
    """Answers /generate. `die` ends the whole engine and returns at once."""

    def __init__(self, service: Service, die: Callable[[], None]) -> None:
        self._service = service
        self._die = die

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        body: Json = {}
        settings = self._service.settings
        try:
            body = read_json(await http.read())
            request = read_generate(body, settings.context_length, settings.vocabulary)
        except BadRequest as error:
            return await self._refuse(http, body, error)
        except DeadlyRequest:
            return await die_unanswered(self._die)
        number = self._service.count_request(len(request.prompt_ids))
        if self._service.is_time_to_die():
            return await die_unanswered(self._die)
        fault = self._service.draw_fault(number)
        met = await self._meet(fault)
        return met if met is not None else await self._serve(http, request, fault, number)

    async def _meet(self, fault: str | None) -> web.StreamResponse | None:
        """The faults that need no generation."""
        match fault:
            case "hang":
                return await _never()
            case "error":
                return web.Response(status=500, text="Internal Server Error")
            case "queue_full":
                return server_error(503, bodies.QUEUE_FULL_TEXT)
            case "html_body":
                return web.Response(text=_HTML, content_type="text/html")
            case _:
                return None

    async def _serve(
        self, http: web.Request, request: GenerateRequest, fault: str | None, number: int
    ) -> web.StreamResponse:
        plan = self._service.plan(request)
        running = Running(self._service, plan, self._service.job(plan, fault, number), fault)
        try:
            self._service.engine.submit(running.job)
            if request.stream:
                return await running.stream(http)
            return await _send(http, await running.answer(), fault)
        except DuplicateRid:
            return await self._refuse(
                http, {"stream": request.stream}, BadRequest(f"Duplicate request ID {request.rid}")
            )
        except QueueFull:
            return await self._refuse_full(http, running)
        finally:
            self._service.engine.forget(running.job)

    async def _refuse(self, http: web.Request, body: Json, error: BadRequest) -> web.StreamResponse:
        if not body.get("stream") or isinstance(error, MalformedBody | ContractViolation):
            return refusal(error)
        fault = {"message": str(error), "type": "invalid_request_error", "code": 400, "retryable": False}
        return await _send_events(http, [json.dumps({"error": fault}).encode()])

    async def _refuse_full(self, http: web.Request, running: "Running") -> web.StreamResponse:
        if not running.plan.request.stream:
            return server_error(503, bodies.QUEUE_FULL_TEXT)
        return await _send_events(http, [running.body(bodies.aborted(bodies.QUEUE_FULL_TEXT, 503))])


class Running:
    """One request between its admission and its answer."""

    def __init__(self, service: Service, plan: Plan, job: Job, fault: str | None) -> None:
        self.plan = plan
        self.job = job
        self._service = service
        self._fault = fault
        self._began = time.monotonic()

    async def answer(self) -> bytes:
        """Waits for the end. Raises QueueFull when it was held and then found no place."""
        how = await self.job.ended
        if how is End.REFUSED:
            raise QueueFull(self.job.rid)
        self._service.aborted += how is not End.DONE
        return self.body(bodies.finish_reason(self.plan, how, self._fault), how is End.ABORTED_IN_QUEUE)

    def body(self, finish: dict[str, Any] | None, is_queued_abort: bool = False) -> bytes:
        """What can be said now; `finish` is None while it runs."""
        job, engine = self.job, self._service.engine
        made = engine.made(job)
        progress = bodies.Progress(
            made=made,
            spans=job.spans(made, engine.version),
            finish=finish,
            is_queued_abort=is_queued_abort,
            weight_version=self._service.weight_version,
            retractions=job.retractions,
            seconds=time.monotonic() - self._began,
        )
        return bodies.answer(self.plan, progress, self._service.tokens, self._fault)

    async def stream(self, http: web.Request) -> web.StreamResponse:
        """Cumulative events, some tens a second at most; a queue that is full ends it with an abort."""
        response = await _begin_events(http)
        sent = 0
        while not (await asyncio.wait({self.job.ended}, timeout=_STREAM_SECONDS))[0]:
            self._service.engine.settle()
            made = self._service.engine.made(self.job)
            if made > sent and not self.job.ended.done():
                sent = made
                await response.write(b"data: " + self.body(None) + b"\n\n")
        try:
            last = await self.answer()
        except QueueFull:
            last = self.body(bodies.aborted(bodies.QUEUE_FULL_TEXT, 503))
        await response.write(b"data: " + last + b"\n\n" + _DONE)
        return response


async def die_unanswered(die: Callable[[], None]) -> web.Response:
    """Ends the engine; the client sees its connection closed."""
    die()
    return await _never()


async def _never() -> web.Response:
    """No answer for as long as the client waits."""
    return await asyncio.get_running_loop().create_future()


async def _send(http: web.Request, body: bytes, fault: str | None) -> web.StreamResponse:
    if fault == "truncated_body":
        body = body[: len(body) // 2]
    if fault != "disconnect":
        return web.Response(body=body, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
    await response.prepare(http)
    await response.write(body[: len(body) // 2])
    if http.transport is not None:
        http.transport.close()
    return response


async def _begin_events(http: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(http)
    return response


async def _send_events(http: web.Request, events: list[bytes]) -> web.StreamResponse:
    response = await _begin_events(http)
    await response.write(b"".join(b"data: " + event + b"\n\n" for event in events) + _DONE)
    return response
