"""The engine's HTTP client.

On aiohttp: hundreds of long requests wait on one event loop here. It parses responses in C, its pool needs no limit,
and a request that is cancelled closes its connection at once, which is what ends it at the engine. Clients on threads
would need a thread per sample.

Invariants: every request has a timeout; an answer is a checked Piece, a Fault (unsound, worth another try), or one of
EngineUnavailable (try again later) and EngineRejected (never, in the engine's own words); a request whose caller goes
away, or that takes too long, is aborted at the engine; an answer by older weights than the engine was given is a Fault.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, cast

import aiohttp

from rolloutfleet.errors import EngineRejected, EngineUnavailable
from worker.answers import Asked, Fault, Piece, check_answer, read_unfinished
from worker.events import ended_by, read_events
from worker.gate import Gate
from worker.refusals import REJECTIONS, NoAnswer, engine_words, refusal, words_of

_CONTROL_SECONDS = 10.0
_METRICS = "sglang:"
_RETRACTIONS = f"{_METRICS}num_retracted_requests_total"
NO_HEADERS: Mapping[str, str] = {}
_KEPT_FREE = 6  # SGLang's longest input is its context less this, where it doesn't tell the context
_PAUSE_SECONDS = 60.0  # with abort it waits until all that runs was answered, and looks once a second
_HEALTH_SECONDS = 25.0  # a good /health makes a token: up to 20 s under load


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine says of itself; None where it doesn't."""

    context_length: int | None = None
    vocab_size: int | None = None
    max_running_requests: int | None = None
    model_path: str = ""
    tokenizer_path: str = ""
    weight_version: str = ""
    has_text: bool = True
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Serving:
    """The weights of an engine, in its own words."""

    version: str
    path: str


@dataclass(frozen=True, slots=True)
class Load:
    """How full an engine is. `usage`: share of the KV cache; `retractions`: requests thrown out of it since it was
    started, None where it doesn't tell (it needs --enable-metrics)."""

    usage: float
    retractions: int | None


@dataclass(frozen=True, slots=True)
class Wish:
    """How a request is to be treated. `key`: the same for all that a router should send to one engine. `ends_at` (the
    loop's time): it is aborted then, and answered with the tokens so far. `tell` hears what it has meanwhile."""

    key: str = ""
    ends_at: float | None = None
    tell: Callable[[Piece], None] | None = None


class EngineClient:
    """One engine. `vocab_size` and `has_text` are known once `info` has been asked, or given."""

    def __init__(self, url: str, api_key: str = "", timeout_seconds: float = 1800, is_router: bool = False) -> None:
        self.url = url.rstrip("/")
        self.is_router = is_router  # sglang-router: tells nothing of its engines, and forwards only requests
        self.vocab_size: int | None = None
        self.has_text = True
        self.gate = Gate()
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=_CONTROL_SECONDS)
        self._session: aiohttp.ClientSession | None = None
        self._aborts: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=self._timeout, read_bufsize=2**18, trust_env=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._aborts:
            await asyncio.wait(self._aborts, timeout=1)
        if self._session is not None:
            await self._session.close()

    async def generate(self, request: dict[str, Any], wish: Wish = Wish()) -> Piece | Fault:
        """POST /generate, once the gate is open. Errors: NoAnswer, EngineBusy, EngineRejected."""
        try:
            async with asyncio.timeout_at(wish.ends_at):
                await self.gate.wait()
        except TimeoutError:
            return Fault("timeout", "its time was over before the engine had its weights")
        with self.gate.inside() as least:
            piece = await self._generate(request, wish)
        if isinstance(piece, Fault) or not piece.spans:
            return self._marked(piece)
        if self.gate.is_old(min(version for version, _, _ in piece.spans), least):
            return Fault("old_weights", f"made by other weights than version {least}")
        self.gate.newest = piece.spans[-1][0]
        return self._marked(piece)

    def _marked(self, piece: Piece | Fault) -> Piece | Fault:
        is_aborted = isinstance(piece, Piece) and piece.finish == "abort"
        return replace(piece, for_update=True) if is_aborted and not self.gate.is_open else piece

    async def _generate(self, request: dict[str, Any], wish: Wish) -> Piece | Fault:
        rid = request["rid"]
        asked = Asked(rid, self.vocab_size, self.has_text, bool(request.get("return_sampling_mask")))
        loop, ends_at = asyncio.get_running_loop(), wish.ends_at
        end = None if ends_at is None else loop.call_at(ends_at, self.abort_soon, rid)
        try:
            status, answer = await self._send(request, asked, wish)
        except asyncio.CancelledError:
            self.abort_soon(rid)
            raise
        except aiohttp.ClientPayloadError as error:
            return Fault("cut_off", f"cut off: {type(error).__name__}")
        except NoAnswer as error:
            if error.fault == "timeout":
                self.abort_soon(rid)
            raise
        finally:
            if end is not None:
                end.cancel()
        if status == 200:
            return check_answer(answer, asked)
        if status in REJECTIONS and engine_words(answer) is None:
            # Not the engine's own: a proxy's, perhaps. A request that is at fault ends by the number of tries.
            return Fault("refused_without_words", f"refused ({status}) not in the engine's words: {words_of(answer)}")
        raise refusal(status, answer)

    async def _send(self, request: dict[str, Any], asked: Asked, wish: Wish) -> tuple[int, bytes]:
        headers = {"X-SMG-Routing-Key": wish.key} if wish.key else {}  # sglang-router's; an engine ignores it
        body, tell = json.dumps(request).encode(), wish.tell
        if tell is None:
            return await self._call("POST", "/generate", body, self._timeout, headers=headers)

        def hear(event: bytes) -> None:
            piece = read_unfinished(event, asked)
            if piece is not None and len(piece.ids):
                tell(piece)

        return await self._call("POST", "/generate", body, self._timeout, headers=headers, hear=hear)

    async def decode(self, sequences: Sequence[Sequence[int]], skip_special_tokens: bool) -> list[str] | None:
        """The texts of these ids, by the engine's own tokenizer; None where it has none, or does not answer."""
        if self.is_router:
            return None
        body = json.dumps({"tokens": sequences, "skip_special_tokens": skip_special_tokens}).encode()
        texts = await self._ask_tokenizer("/detokenize", body, "text")
        return cast(list[str], texts) if isinstance(texts, list) else None

    async def encode(self, text: str) -> list[int] | None:
        """The ids of a text without special ones around it, by the engine's own tokenizer; None as for `decode`."""
        if self.is_router:
            return None
        body = json.dumps({"prompt": text, "add_special_tokens": False}).encode()
        ids = await self._ask_tokenizer("/tokenize", body, "tokens")
        return cast(list[int], ids) if isinstance(ids, list) else None

    async def _ask_tokenizer(self, path: str, body: bytes, field: str) -> object:
        try:
            status, answer = await self._call("POST", path, body, aiohttp.ClientTimeout(total=_CONTROL_SECONDS))
            return json.loads(answer)[field] if status == 200 else None
        except (EngineUnavailable, aiohttp.ClientPayloadError, ValueError, LookupError, TypeError):
            return None

    async def info(self) -> EngineInfo:
        """From /model_info and /server_info. Errors: EngineUnavailable, EngineRejected."""
        if self.is_router:
            return EngineInfo()
        model, server = await self._get_json("/model_info"), await self._get_json("/server_info")
        longest = _number(server.get("max_req_input_len"))
        info = EngineInfo(
            context_length=_number(model.get("max_context_length"))
            or _number(server.get("context_length"))
            or (longest and longest + _KEPT_FREE),
            model_path=str(model.get("model_path") or ""),
            vocab_size=_number(model.get("vocab_size")),
            max_running_requests=_number(server.get("max_running_requests")),
            tokenizer_path=str(model.get("tokenizer_path") or server.get("tokenizer_path") or ""),
            weight_version=str(model.get("weight_version", "")),
            has_text=not server.get("skip_tokenizer_init"),
            dtype=str(server.get("dtype") or ""),
        )
        self.vocab_size = self.vocab_size or info.vocab_size
        self.has_text = info.has_text
        return info

    async def check_ready(self, *, resumes: bool = False) -> Serving:
        """The weights that a ready engine serves. `resumes`: an unready one may have been left paused: it is told to
        go on. Errors: EngineUnavailable, EngineRejected."""
        if self.is_router:
            status = await self._status("/readiness", _CONTROL_SECONDS)
            if status != 200:
                raise EngineUnavailable(f"the router at {self.url} is not ready: /readiness answers {status}")
            return Serving("", "")
        if await self._status("/ready", _CONTROL_SECONDS) != 200:
            if resumes:  # first: paused, it makes no token, and /health waits long for one
                await self.resume()
            # Once unready, the engine stays so until its next good /health.
            status = await self._status("/health", _HEALTH_SECONDS)
            if status != 200:
                raise EngineUnavailable(f"the engine at {self.url} is not ready: /health answers {status}")
        return await self.serving()

    # Weights. Errors of all: EngineUnavailable; EngineRejected, in the engine's words.

    async def serving(self) -> Serving:
        model = await self._get_json("/model_info")
        return Serving(str(model.get("weight_version", "")), str(model.get("model_path") or ""))

    async def pause(self, mode: Literal["retract", "abort"]) -> None:
        """No token is made from here on; what comes is held. Running requests wait, or are answered with what they
        have."""
        await self._post("/pause_generation", {"mode": mode}, _PAUSE_SECONDS)

    async def resume(self) -> None:
        await self._post("/continue_generation", {}, _CONTROL_SECONDS)

    async def load_weights(self, path: str, version: int, seconds: float) -> None:
        """While paused. 200 says that the cache of the old weights was flushed, too; any other answer says nothing of
        which weights the engine has now."""
        body = {"model_path": path, "weight_version": str(version), "flush_cache": True}
        answer = await self._post("/update_weights_from_disk", body, seconds)
        if answer.get("success") is not True:
            raise EngineRejected(f"the engine does not say that it loaded the weights: {str(answer)[:300]}")

    async def abort_all(self) -> None:
        await self._post("/abort_request", {"abort_all": True}, _CONTROL_SECONDS)

    async def _post(self, path: str, body: dict[str, Any], seconds: float) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONTROL_SECONDS)
        try:
            status, answer = await self._call("POST", path, json.dumps(body).encode(), timeout)
        except aiohttp.ClientPayloadError as error:
            raise EngineUnavailable(f"{self.url}{path}: {error}") from error
        if status != 200:
            raise refusal(status, answer)
        try:
            content: Any = json.loads(answer or b"{}")
        except ValueError:
            content = {}
        return cast(dict[str, Any], content) if isinstance(content, dict) else {}

    async def load(self) -> Load:
        """Errors: EngineUnavailable, EngineRejected."""
        loads: Any = (await self._get_json("/v1/loads")).get("loads") or []
        try:
            status, body = await self._call("GET", "/metrics", None, aiohttp.ClientTimeout(total=_CONTROL_SECONDS))
            usage = max((float(load["token_usage"]) for load in loads), default=0.0)
        except aiohttp.ClientPayloadError as error:
            raise EngineUnavailable(f"{self.url}/metrics: {error}") from error
        except (LookupError, TypeError, ValueError) as error:
            raise EngineRejected(
                f"{self.url}/v1/loads does not say token_usage: is engine_url an SGLang server?"
            ) from error
        return Load(usage, _retractions(body) if status == 200 else None)

    async def likeliest(self, temperature: float, count: int) -> dict[str, Any]:
        """The meta_info of one token, drawn after a fixed prompt, with the `count` likeliest beside it.

        Errors: EngineUnavailable, EngineRejected; ValueError where it is no such answer.
        """
        sampling = {"max_new_tokens": 1, "temperature": temperature, "ignore_eos": True}
        request = {"rid": uuid.uuid4().hex, "input_ids": [1, 2, 3], "sampling_params": sampling}
        body = json.dumps(request | {"return_logprob": True, "top_logprobs_num": count}).encode()
        try:
            status, answer = await self._call("POST", "/generate", body, aiohttp.ClientTimeout(total=_HEALTH_SECONDS))
        except aiohttp.ClientPayloadError as error:
            raise EngineUnavailable(f"{self.url}/generate: {error}") from error
        if status != 200:
            raise refusal(status, answer)
        meta: Any = json.loads(answer)["meta_info"]
        return meta

    async def _get_json(self, path: str) -> dict[str, Any]:
        try:
            status, body = await self._call("GET", path, None, aiohttp.ClientTimeout(total=_CONTROL_SECONDS))
        except aiohttp.ClientPayloadError as error:
            raise EngineUnavailable(f"{self.url}{path}: {error}") from error
        if status != 200:
            raise refusal(status, body)
        try:
            answer: Any = json.loads(body)
        except ValueError as error:
            raise EngineUnavailable(f"{self.url}{path} is no JSON: is engine_url an SGLang server?") from error
        return cast(dict[str, Any], answer) if isinstance(answer, dict) else {}

    async def _status(self, path: str, seconds: float) -> int:
        try:
            return (await self._call("GET", path, None, aiohttp.ClientTimeout(total=seconds)))[0]
        except aiohttp.ClientPayloadError:
            return 0

    async def _call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        hear: Callable[[bytes], None] | None = None,
    ) -> tuple[int, bytes]:
        """(status, body). `hear`: the answer may be a stream; it gets the events of a sample that is not finished."""
        if self._session is None:
            raise RuntimeError("EngineClient is used inside of `async with`")
        kind = {"Content-Type": "application/json"} if body is not None else {}
        began = time.monotonic()
        try:
            async with self._session.request(
                method, self.url + path, data=body, headers={**kind, **headers}, timeout=timeout, allow_redirects=False
            ) as response:
                if hear is not None and response.content_type == "text/event-stream":
                    return ended_by(await read_events(response.content, hear))
                return response.status, await response.read()
        except TimeoutError as error:
            waited = time.monotonic() - began
            raise NoAnswer(
                "timeout", f"the engine at {self.url} did not answer {path} within {waited:.1f} s"
            ) from error
        except aiohttp.ClientPayloadError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(
                "unreachable", f"the engine at {self.url} does not answer: {str(error) or type(error).__name__}"
            ) from error

    def abort_soon(self, rid: str) -> None:
        """The engine notices a closed connection seconds later; this is at once, and nobody waits for it."""
        if self.is_router:
            return
        abort = asyncio.get_running_loop().create_task(self._abort(rid))
        self._aborts.add(abort)
        abort.add_done_callback(self._aborts.discard)

    async def _abort(self, rid: str) -> None:
        body = json.dumps({"rid": rid}).encode()
        try:
            await self._call("POST", "/abort_request", body, aiohttp.ClientTimeout(total=_CONTROL_SECONDS))
        except (EngineUnavailable, aiohttp.ClientError):
            return  # the closed connection ends the request, too


def _retractions(metrics: bytes) -> int | None:
    """The sum over the engine's ranks, in Prometheus' text; None: these are no metrics of an engine."""
    lines = [line for line in metrics.decode(errors="replace").splitlines() if line.startswith(_METRICS)]
    counts = [line for line in lines if line.startswith(_RETRACTIONS)]  # not there until it has thrown out the first
    try:
        return round(sum(float(line.rsplit(maxsplit=1)[1]) for line in counts)) if lines else None
    except (ValueError, IndexError, OverflowError):
        return None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
