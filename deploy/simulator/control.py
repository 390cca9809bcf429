"""The routes of a simulated engine beside /generate: what it is, how it is, and how it is steered."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast

from aiohttp import web

from deploy.simulator.engine import PauseMode
from deploy.simulator.faults import Faults
from deploy.simulator.generate import die_unanswered, refusal, server_error
from deploy.simulator.requests import BadRequest, Json, MalformedBody, read_json
from deploy.simulator.service import Service, UpdateRefused
from deploy.simulator.tokens import ids_to_text, text_to_ids

ENGINE_VERSION = "0.5.23"

_PAUSE_MODES: dict[str, PauseMode] = {"abort": "abort", "retract": "retract", "in_place": "in_place"}
_PAUSED_POLL_SECONDS = 0.05

type Steer = Callable[[Json], Awaitable[web.Response]]


class ControlRoutes:
    """`die` ends the whole engine and returns at once."""

    def __init__(self, service: Service, die: Callable[[], None]) -> None:
        self._service = service
        self._die = die
        self._began = time.time()
        self._paused_load: Json = {}  # a paused scheduler counts no more: it shows what its last step was

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/health", self.health),
            web.get("/health_generate", self.health),
            web.get("/ready", self.ready),
            web.get("/model_info", self.model_info),
            web.get("/server_info", self.server_info),
            web.get("/v1/loads", self.loads),
            web.get("/metrics", self.metrics),
            web.get("/flush_cache", self.flush_cache),
            web.post("/flush_cache", self.flush_cache),
            web.post("/abort_request", _steer(self.abort_request)),
            web.post("/pause_generation", _steer(self.pause_generation)),
            web.post("/continue_generation", _steer(self.continue_generation)),
            web.post("/update_weights_from_disk", _steer(self.update_weights_from_disk)),
            web.post("/update_weight_version", _steer(self.update_weight_version)),
            web.get("/weights_checker", self.weights_checker),
            web.post("/weights_checker", self.weights_checker),
            web.post("/tokenize", _steer(self.tokenize)),
            web.post("/detokenize", _steer(self.detokenize)),
            web.post("/slow_down", _steer(self.slow_down)),
            web.get("/simulator/faults", self.show_faults),
            web.post("/simulator/faults", _steer(self.change_faults)),
        ]

    # What it is and how it is

    async def health(self, _: web.Request) -> web.Response:
        """200 when it could make a token; a paused or stalled engine can't, and is then unready until the next good
        one, whatever else it does meanwhile."""
        service = self._service
        if service.is_draining:
            return web.Response(status=503)
        service.is_healthy = await self._makes_a_token()
        return web.Response(status=200 if service.is_healthy else 503)

    async def _makes_a_token(self) -> bool:
        service, settings = self._service, self._service.settings
        await asyncio.sleep(settings.health_seconds)
        until = time.monotonic() + settings.health_timeout_seconds - settings.health_seconds
        while service.engine.paused or service.faults.stalled:
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(min(_PAUSED_POLL_SECONDS, settings.health_timeout_seconds))
        return True

    async def ready(self, _: web.Request) -> web.Response:
        is_ready = self._service.is_healthy and self._service.engine.paused is None
        return web.Response(status=200 if is_ready else 503)

    async def model_info(self, _: web.Request) -> web.Response:
        settings = self._service.settings
        return web.json_response(
            {
                "model_path": self._service.model_path,
                "served_model_name": settings.model_path,
                "tokenizer_path": settings.tokenizer_path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": self._service.weight_version,
                "load_format": "auto",
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": "simulated",
                "architectures": ["SimulatedForCausalLM"],
                "vocab_size": settings.vocabulary,
                "eos_token_ids": [settings.stop_token],
                "max_context_length": settings.context_length,
            }
        )

    async def server_info(self, http: web.Request) -> web.Response:
        settings = self._service.settings
        return web.json_response(
            {
                "model_path": settings.model_path,
                "tokenizer_path": settings.tokenizer_path,
                "host": settings.host,
                "port": http.url.port,
                "context_length": settings.context_length,
                "max_req_input_len": settings.context_length - 1,
                "max_total_num_tokens": settings.slots * settings.context_length,
                "max_running_requests": settings.slots,
                "max_queued_requests": settings.max_queued_requests,
                "random_seed": settings.seed,
                "weight_version": settings.weight_version,
                "startup_time": self._began,
                "internal_states": [{"last_gen_throughput": self._throughput()}],
                "version": ENGINE_VERSION,
                "frontend": "simulator",
            }
        )

    async def loads(self, _: web.Request) -> web.Response:
        load = self._paused_load if self._service.engine.paused else self._load()
        return web.json_response(
            {"timestamp": datetime.now(UTC).isoformat(), "version": ENGINE_VERSION, "loads": [load]}
        )

    async def metrics(self, _: web.Request) -> web.Response:
        load, service = self._load(), self._service
        numbers = {
            "num_running_reqs gauge": load["num_running_reqs"],
            "num_queue_reqs gauge": load["num_waiting_reqs"],
            "num_used_tokens gauge": load["num_used_tokens"],
            "token_usage gauge": load["token_usage"],
            "gen_throughput gauge": load["gen_throughput"],
            "prompt_tokens_total counter": service.prompt_tokens,
            "generation_tokens_total counter": service.engine.tokens_made,
            "num_requests_total counter": service.requests,
            "num_aborted_requests_total counter": service.aborted,
        }
        lines: list[str] = []
        for title, number in numbers.items():
            name = title.split()[0]
            lines += [f"# TYPE sglang:{title}", f'sglang:{name}{{model_name="{service.settings.model_path}"}} {number}']
        return web.Response(text="\n".join(lines) + "\n")

    def _load(self) -> dict[str, Any]:
        engine, settings = self._service.engine, self._service.settings
        engine.settle()
        used, capacity = engine.tokens_held(), settings.slots * settings.context_length
        waiting = sum(job.prompt_tokens for job in engine.unfinished()[engine.running :])
        return {
            "dp_rank": 0,
            "num_running_reqs": engine.running,
            "num_waiting_reqs": engine.queued,
            "num_waiting_uncached_tokens": waiting,
            "num_used_tokens": used,
            "num_total_tokens": used + waiting,
            "max_total_num_tokens": capacity,
            "max_running_requests": settings.slots,
            "token_usage": round(used / capacity, 4),
            "gen_throughput": self._throughput(),
            "cache_hit_rate": 0.0,
            "utilization": 0.0,
            "most_running_reqs": engine.most_running,
        }

    def _throughput(self) -> float:
        engine = self._service.engine
        return round(engine.rate() * engine.running, 2)

    # How it is steered

    async def flush_cache(self, _: web.Request) -> web.Response:
        engine = self._service.engine
        engine.settle()
        # What a pause put back makes no token, and holds nothing in the cache.
        if engine.running or (engine.queued and not engine.paused):
            return web.Response(status=400, text="Flush cache failed: requests are running or queued.\n")
        return web.Response(text="Cache flushed.\n")

    async def abort_request(self, body: Json) -> web.Response:
        engine = self._service.engine
        rid = body.get("rid")
        if rid is not None and not isinstance(rid, str):
            raise MalformedBody("rid must be a string")
        if body.get("abort_all"):
            engine.abort_all()
        elif rid:
            engine.abort(rid)
        return web.Response()

    async def pause_generation(self, body: Json) -> web.Response:
        mode = _PAUSE_MODES.get(str(body.get("mode", "abort")))
        if mode is None:
            raise MalformedBody(f"mode must be one of {', '.join(_PAUSE_MODES)}")
        load = self._paused_load if self._service.engine.paused else self._load()
        self._service.engine.pause(mode)
        self._paused_load = self._load() if mode == "abort" else load
        return web.json_response({"message": "Generation paused successfully.", "status": "ok"})

    async def continue_generation(self, _: Json) -> web.Response:
        self._service.engine.resume()
        return web.json_response({"message": "Generation continued successfully.", "status": "ok"})

    async def update_weights_from_disk(self, body: Json) -> web.Response:
        model_path, version = body.get("model_path"), body.get("weight_version")
        if not isinstance(model_path, str) or not isinstance(version, str | None):
            raise MalformedBody("model_path must be a string, and weight_version a string where given")
        if body.get("abort_all_requests"):
            self._service.engine.abort_all()
        try:
            await self._service.update_weights(model_path, version)
        except UpdateRefused as error:
            return _update_answer(False, str(error))
        return _update_answer(True, "Succeeded to update model weights.")

    async def update_weight_version(self, body: Json) -> web.Response:
        version = body.get("new_version")
        if not isinstance(version, str):
            raise MalformedBody("new_version must be a string")
        if body.get("abort_all_requests", True):
            self._service.engine.abort_all()
        self._service.set_version(version)
        return web.json_response(
            {"success": True, "message": f"Weight version updated to {version}", "new_version": version}
        )

    async def weights_checker(self, _: web.Request) -> web.Response:
        checksum = await asyncio.to_thread(self._service.checksum)
        return web.json_response({"success": True, "message": "Success.", "per_engine_checksum": checksum})

    async def slow_down(self, body: Json) -> web.Response:
        seconds = body.get("forward_sleep_time", False)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float | None):
            raise MalformedBody("forward_sleep_time must be a number of seconds or null")
        self._service.slow_down(seconds)
        return web.json_response(None)

    # The tokenizer

    async def tokenize(self, body: Json) -> web.Response:
        prompt, settings = body.get("prompt"), self._service.settings
        if not isinstance(body.get("add_special_tokens", True), bool):
            raise MalformedBody("add_special_tokens must be true or false")
        texts = cast(list[Any], prompt) if isinstance(prompt, list) else [prompt]
        if not all(isinstance(text, str) for text in texts):
            raise MalformedBody("prompt must be a text, or a list of texts")
        lists = [text_to_ids(str(text), settings.vocabulary) for text in texts]
        counts = [len(ids) for ids in lists]
        tokens, count = (lists, counts) if isinstance(prompt, list) else (lists[0], counts[0])
        return web.json_response({"tokens": tokens, "count": count, "max_model_len": settings.context_length})

    async def detokenize(self, body: Json) -> web.Response:
        """Tokens of simulated answers have no text of their own: only what was made of a text becomes text again."""
        given: Any = body.get("tokens")
        lists: Any = [given] if _are_ids(given) else given
        if not isinstance(lists, list) or not all(map(_are_ids, cast(list[Any], lists))):
            raise MalformedBody("tokens must be a list of ids, or of such lists")
        known = cast(list[list[int]], lists)
        if any(token < 0 for ids in known for token in ids):
            return server_error(500, "Internal server error during detokenization: an id is negative")
        texts = [ids_to_text(ids) for ids in known]
        return web.json_response({"text": texts[0] if _are_ids(given) else texts})

    # Faults

    async def show_faults(self, _: web.Request) -> web.Response:
        return self._faults_answer(self._service.faults)

    async def change_faults(self, body: Json) -> web.Response:
        """Replaces the settings named in the body; `reset` puts all others to none first; `die` ends the engine at
        once."""
        if body.pop("die", False):
            return await die_unanswered(self._die)
        before = Faults() if body.pop("reset", False) else self._service.faults
        try:
            self._service.set_faults(before.changed(body))
        except ValueError as error:
            raise BadRequest(str(error)) from error
        return self._faults_answer(self._service.faults)

    def _faults_answer(self, faults: Faults) -> web.Response:
        return web.json_response(asdict(faults))


def _steer(steer: Steer) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(http: web.Request) -> web.Response:
        try:
            return await steer(read_json(await http.read()))
        except BadRequest as error:
            return refusal(error)

    return respond


def _are_ids(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(token, int) for token in cast(list[Any], given))


def _update_answer(success: bool, message: str) -> web.Response:
    body = {"success": success, "message": message, "num_paused_requests": 0}
    return web.json_response(body, status=200 if success else 400)
