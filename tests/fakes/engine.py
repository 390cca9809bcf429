"""A scriptable engine in this process: the answer to each request is chosen by a function.

    async with FakeEngine() as engine:
        engine.script = lambda request: said([1, 2, 3])     # or an int: that status; or a coroutine of either

Invariants: requests are kept in the order in which they came; what the script decides is sent as it is, but for the
request's id where it names none, so that broken answers are as easy to give as good ones.
"""

import asyncio
import inspect
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from aiohttp import web

type Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer. `close`: the connection ends in the middle of the body."""

    body: bytes = b"{}"
    status: int = 200
    close: bool = False


@dataclass(frozen=True, slots=True)
class Events:
    """A stream of answers, each with all that there is so far. `hangs`: it is never done."""

    answers: Sequence[Json]
    hangs: bool = False


type Chosen = Json | bytes | int | Reply | Events
type Script = Callable[[Json], Chosen | Awaitable[Chosen]]


def said(
    ids: Sequence[int],
    *,
    text: str = "#### 4",
    finish: Json | str | None = "stop",
    version: str = "7",
    logprob: float = -0.5,
    **more: Any,
) -> Json:
    """A sound answer of these tokens; `more` goes into it at the top."""
    reason: Json | None = {"type": finish} if isinstance(finish, str) else finish
    meta: Json = {
        "finish_reason": reason,
        "output_token_logprobs": [[logprob, token, None] for token in ids],
        "completion_tokens": len(ids),
        "weight_version": version,
        "weight_versions": [{"version": version, "start": 0, "end": len(ids)}],
    }
    return {"text": text, "output_ids": list(ids), "meta_info": meta, **more}


def likely(request: Json, scale: Callable[[float, float], float] = lambda score, heat: score / heat) -> Json:
    """One token and the likeliest beside it, with the log-probabilities that `scale` makes of their scores."""
    temperature: float = request["sampling_params"]["temperature"]
    scores = [-0.5 * token for token in range(40)]
    total = math.log(sum(math.exp(score / temperature) for score in scores))
    top = [[scale(score, temperature) - total, at, None] for at, score in enumerate(scores)]
    answer = said([0], finish="length", logprob=scale(scores[0], temperature) - total)
    answer["meta_info"]["output_top_logprobs"] = [top[: request["top_logprobs_num"]]]
    return answer


class FakeEngine:
    """Serves /generate by `script`; the other routes by the fields of the same meaning."""

    def __init__(self, context_length: int = 1000, vocab_size: int = 100, slots: int = 8) -> None:
        self.script: Script = lambda _: said([1, 2, 3])
        self.requests: list[Json] = []
        self.aborted: list[str] = []
        self.scale: Callable[[float, float], float] = lambda score, temperature: score / temperature
        self.looks = 0  # at the likeliest tokens, which are no requests
        self.running = 0
        self.most_running = 0
        self.is_ready = True
        self.was_left_paused = False  # until it is told to continue, /health has no answer
        self.is_router = False
        self.weight_version = "7"
        self.model_path = "/launched"
        self.calls: list[str] = []  # what steers it: pauses with their mode, loads with their version, continue
        self.load: Script = self._load
        self.tokenizer_path = ""
        self.usage = 0.0
        self.has_metrics = True
        self.retractions = 0
        self.texts: dict[int, str] | None = None  # of tokens; None: it can neither encode nor decode
        self.routing_keys: list[str] = []
        self.port = 0
        self.model_info: Json = {"vocab_size": vocab_size, "max_context_length": context_length}
        self.server_info: Json = {"max_running_requests": slots}
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Serves; after `stop` on the same port again."""
        app = web.Application(client_max_size=2**28)
        app.add_routes(
            [
                web.post("/generate", self._generate),
                web.post("/abort_request", self._abort),
                web.post("/detokenize", self._detokenize),
                web.post("/tokenize", self._tokenize),
                web.get("/ready", self._ready),
                web.get("/readiness", self._readiness),
                web.get("/health", self._health),
                web.get("/model_info", self._model_info),
                web.post("/pause_generation", self._pause),
                web.post("/continue_generation", self._continue),
                web.post("/update_weights_from_disk", self._update),
                web.get("/server_info", self._server_info),
                web.get("/v1/loads", self._loads),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        request: Json = await http.json()
        if "top_logprobs_num" in request:  # how a worker begins, and no work of a group
            self.looks += 1
            return await _send(http, _reply(likely(request, self.scale), request["rid"]))
        self.requests.append(request)
        self.routing_keys.append(http.headers.get("X-SMG-Routing-Key", ""))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            chosen = self.script(request)
            answer = await chosen if inspect.isawaitable(chosen) else chosen
            if isinstance(answer, Events):
                return await _stream(http, answer, request["rid"])
            reply = _reply(answer, request["rid"])
        finally:
            self.running -= 1
        return await _send(http, reply)

    async def _abort(self, http: web.Request) -> web.Response:
        self.aborted.append((await http.json()).get("rid", "all"))
        return web.Response()

    async def _pause(self, http: web.Request) -> web.Response:
        self.calls.append(f"pause {(await http.json())['mode']}")
        return web.json_response({"status": "ok"})

    async def _continue(self, _: web.Request) -> web.Response:
        self.calls.append("continue")
        self.was_left_paused = False
        return web.json_response({"status": "ok"})

    async def _update(self, http: web.Request) -> web.StreamResponse:
        body: Json = await http.json()
        self.calls.append(f"load {body['weight_version']}")
        chosen = self.load(body)
        return await _send(http, _reply(await chosen if inspect.isawaitable(chosen) else chosen, ""))

    def _load(self, body: Json) -> Json:
        self.weight_version, self.model_path = body["weight_version"], body["model_path"]
        return {"success": True, "message": "Succeeded to update model weights."}

    async def _detokenize(self, http: web.Request) -> web.Response:
        texts = self.texts
        if texts is None:
            raise web.HTTPNotFound
        asked = (await http.json())["tokens"]
        return web.json_response({"text": ["".join(texts[token] for token in tokens) for tokens in asked]})

    async def _tokenize(self, http: web.Request) -> web.Response:
        if self.texts is None:
            raise web.HTTPNotFound
        asked, ids = await http.json(), {text: token for token, text in self.texts.items()}
        assert asked["add_special_tokens"] is False
        return web.json_response({"tokens": [ids[letter] for letter in asked["prompt"]]})

    async def _readiness(self, _: web.Request) -> web.Response:
        return web.Response(status=404 if not self.is_router else 200 if self.is_ready else 503)

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.is_ready and not self.was_left_paused else 503)

    async def _health(self, http: web.Request) -> web.Response:
        if self.was_left_paused:
            self.calls.append("health in vain")
            await asyncio.Event().wait()
        return await self._ready(http)

    async def _model_info(self, _: web.Request) -> web.Response:
        if self.is_router:
            raise web.HTTPNotFound
        info = {"weight_version": self.weight_version, "tokenizer_path": self.tokenizer_path}
        info["model_path"] = self.model_path
        return web.json_response(info | self.model_info)

    async def _loads(self, _: web.Request) -> web.Response:
        return web.json_response({"loads": [{"dp_rank": 0, "token_usage": self.usage}]})

    async def _metrics(self, _: web.Request) -> web.Response:
        if not self.has_metrics:
            raise web.HTTPNotFound
        numbers = {"num_running_reqs": self.running, "num_retracted_requests_total": self.retractions}
        shown = [name for name, number in numbers.items() if number or name == "num_running_reqs"]  # as the real one
        return web.Response(text="".join(f'sglang:{name}{{model_name="fake"}} {numbers[name]}.0\n' for name in shown))

    async def _server_info(self, _: web.Request) -> web.Response:
        return web.json_response(self.server_info)


def _reply(chosen: Chosen, rid: str) -> Reply:
    match chosen:
        case Reply():
            return chosen
        case int():
            return Reply(json.dumps({"error": {"message": f"status {chosen}"}}).encode(), chosen)
        case bytes():
            return Reply(chosen)
        case Events():
            raise AssertionError("a stream is no single reply")
        case _:
            told = chosen.get("meta_info")
            meta: Json = {"id": rid, **cast(Json, told)} if isinstance(told, dict) else {}
            return Reply(json.dumps({**chosen, "meta_info": meta} if meta else chosen).encode())


async def _stream(http: web.Request, events: Events, rid: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(http)
    for answer in events.answers:
        await response.write(b"data: " + _reply(answer, rid).body + b"\n\n")
    if events.hangs:
        await asyncio.Event().wait()
    await response.write(b"data: [DONE]\n\n")
    return response


async def _send(http: web.Request, reply: Reply) -> web.StreamResponse:
    if not reply.close:
        return web.Response(body=reply.body, status=reply.status, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Length": str(len(reply.body))})
    await response.prepare(http)
    await response.write(reply.body[: len(reply.body) // 2])
    if http.transport is not None:
        http.transport.close()
    return response


async def never(_: Json) -> Chosen:
    """A script: no answer for as long as the client waits."""
    await asyncio.Event().wait()
    return 500
