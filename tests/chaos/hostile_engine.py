"""An engine that lies: a part of its answers is spoiled, in every way of `lies`, dealt from a seeded deck.

Invariants: each kind of lie comes as often as each other, within one deck; what it meant well is kept for the checker,
whatever became of it on the way; of every request it knows which kind it met, and whether the client gave it up.
"""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import Any, Self

from aiohttp import web

from tests.chaos.lies import HANG_UP, LIES, OTHER_REQUEST, SILENCE, VOCABULARY, Reply, tell
from tests.chaos.soundness import Ints, Said
from tests.fakes.engine import likely

GOOD, PARTIAL = "good", "abort with tokens"
PROMPT_LENGTH = 3

_PARTIALS_OF_DECK = 3
_LONGEST = 12


@dataclass(slots=True)
class Met:
    """One request. `given_up`: seconds after which its client did not wait any more."""

    kind: str
    prompt: Ints
    began: float
    given_up: float | None = None


class HostileEngine:
    """Serves one engine's API in this process. `honesty`: good answers for each lie."""

    def __init__(self, seed: int, slots: int, honesty: float) -> None:
        self.said: dict[tuple[Ints, int], list[Said]] = defaultdict(list)
        self.met: dict[str, Met] = {}
        self._random = Random(seed)
        self._deck: list[str] = []
        self._slots = slots
        self._honesty = honesty
        self._good_bodies: list[bytes] = []
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**24)
        app.add_routes(
            [
                web.post("/generate", self._generate),
                web.post("/abort_request", self._abort),
                web.get("/ready", _ok),
                web.get("/health", _ok),
                web.get("/model_info", self._model_info),
                web.get("/server_info", self._server_info),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    # What became of its answers

    def made(self) -> Counter[str]:
        """How many requests met each kind."""
        return Counter(met.kind for met in self.met.values())

    def counted(self, timeout_seconds: float) -> tuple[Counter[str], Counter[str]]:
        """By the name of the fault: the least and the most that its clients must have counted.

        Those that gave a request up saw nothing of its answer. Where they gave up at about the time of their timeout
        it can't be told from here if that was the reason: hence least and most.
        """
        least, most = Counter[str](), Counter[str]()
        for met in self.met.values():
            if met.given_up is not None:
                least["timeout"] += met.given_up >= timeout_seconds
                most["timeout"] += met.given_up >= timeout_seconds / 2
            elif met.kind in LIES:
                least[LIES[met.kind][0]] += 1
                most[LIES[met.kind][0]] += 1
        return least, most

    def has_refused(self, prompt: Ints) -> bool:
        """Whether it said of this prompt, in its own words, that it will never take it."""
        return any(met.prompt == prompt and met.kind == "400" for met in self.met.values())

    # Answers

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        request: dict[str, Any] = await http.json()
        if "top_logprobs_num" in request:  # a worker that finds a lie here claims nothing
            answer = likely(request)
            answer["meta_info"]["id"] = request["rid"]
            return web.json_response(answer)
        input_ids: Ints = tuple(request["input_ids"])
        kind = self._deal(request["sampling_params"]["max_new_tokens"])
        met = Met(kind, input_ids[:PROMPT_LENGTH], time.monotonic())
        self.met[request["rid"]] = met
        try:
            return await self._answer(http, request, input_ids, kind)
        except asyncio.CancelledError:
            self._give_up(met)
            raise

    async def _answer(
        self, http: web.Request, request: dict[str, Any], input_ids: Ints, kind: str
    ) -> web.StreamResponse:
        await asyncio.sleep(self._random.uniform(0, 0.02))
        prompt, before = input_ids[:PROMPT_LENGTH], input_ids[PROMPT_LENGTH:]
        said = self._say(before, "abort" if kind == PARTIAL else self._random.choice(["stop", "length"]))
        answer = _as_json(said, request["rid"])
        if kind in (GOOD, PARTIAL):
            self.said[prompt, request["sampling_params"]["sampling_seed"]].append(said)
            body = json.dumps(answer).encode()
            self._good_bodies.append(body)
            return await _send(http, Reply(body))
        if kind == SILENCE:
            await asyncio.Event().wait()
        if kind == HANG_UP:
            return _hang_up(http)
        if kind == OTHER_REQUEST:
            return await _send(http, self._other(answer))
        return await _send(http, tell(kind, self._random, answer))

    def _deal(self, room: int) -> str:
        if not self._deck:
            lies = list(LIES)
            self._deck = lies + [GOOD] * round(self._honesty * len(lies)) + [PARTIAL] * _PARTIALS_OF_DECK
            self._random.shuffle(self._deck)
        kind = self._deck.pop()
        return GOOD if kind == PARTIAL and room <= _LONGEST else kind  # one that fills its room is no partial one

    def _say(self, before: Ints, finish: str) -> Said:
        random = self._random
        length = random.randint(1, _LONGEST)
        ids = tuple(random.randrange(VOCABULARY) for _ in range(length))
        logprobs = tuple(-random.expovariate(1) for _ in ids)
        turn = random.choice([0, random.randint(0, length)])
        versions = (3,) * turn + (4,) * (length - turn)
        return Said(before, ids, logprobs, versions, finish, "".join(f"<{token}>" for token in ids))

    def _other(self, answer: dict[str, Any]) -> Reply:
        """An earlier good answer to another request, or this one under a name that nobody asked with."""
        if self._good_bodies and self._random.random() < 0.8:
            return Reply(self._random.choice(self._good_bodies))
        answer["meta_info"]["id"] = "0" * 32
        return Reply(json.dumps(answer).encode())

    async def _abort(self, http: web.Request) -> web.Response:
        met = self.met.get((await http.json())["rid"])
        if met is not None:
            self._give_up(met)
        return web.Response()

    def _give_up(self, met: Met) -> None:
        if met.given_up is None:
            met.given_up = time.monotonic() - met.began

    async def _model_info(self, _: web.Request) -> web.Response:
        return web.json_response({"vocab_size": VOCABULARY, "max_context_length": 4096, "weight_version": "4"})

    async def _server_info(self, _: web.Request) -> web.Response:
        return web.json_response({"max_running_requests": self._slots})


async def _ok(_: web.Request) -> web.Response:
    return web.Response()


def _as_json(said: Said, rid: str) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "id": rid,
        "finish_reason": {"type": said.finish},
        "completion_tokens": len(said.ids),
        "weight_version": "4",
        "weight_versions": list(_spans(said.versions)),
        "output_token_logprobs": [
            list(entry) for entry in zip(said.logprobs, said.ids, [None] * len(said.ids), strict=True)
        ],
    }
    return {"text": said.text, "output_ids": list(said.ids), "meta_info": meta}


def _spans(versions: Sequence[int]) -> Iterator[dict[str, Any]]:
    start = 0
    for version, tokens in groupby(versions):
        end = start + len(list(tokens))
        yield {"version": str(version), "start": start, "end": end}
        start = end


async def _send(http: web.Request, reply: Reply) -> web.StreamResponse:
    if not reply.cut:
        return web.Response(body=reply.body, status=reply.status)
    response = web.StreamResponse(headers={"Content-Length": str(len(reply.body))})
    await response.prepare(http)
    await response.write(reply.body[: len(reply.body) // 2])
    return _hang_up(http, response)


def _hang_up(http: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
    if http.transport is not None:
        http.transport.close()
    return response or web.Response()
