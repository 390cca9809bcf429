"""From settings to a running worker: connects, waits for broker, engine and run, and only then claims.

Invariants: earlier processes of this pod are evicted, and a first heartbeat has told the broker of this one, before the
first claim; whatever is not there yet is said once and asked for again until it is, or until the worker is stopped.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from pydantic import ValidationError

from rolloutfleet.broker import Broker
from rolloutfleet.errors import EngineRejected, RolloutFleetError
from rolloutfleet.metrics import WorkerMetrics
from rolloutfleet.redis import connect
from rolloutfleet.server import read_server
from rolloutfleet.settings import explain
from worker.adapt import Adapt, Bounds
from worker.asking import Sampler
from worker.engine import EngineClient, EngineInfo
from worker.environments import load_generate
from worker.group import Parts
from worker.health import EngineHealth, Fitness
from worker.heartbeat import Heart
from worker.hints import Hints
from worker.hooks import Hook, HookRunner
from worker.model import read_vocab_size
from worker.probes import Probes
from worker.rewards import Scorer
from worker.scale import Scale
from worker.settings import WorkerSettings, WrongSetting
from worker.slots import Slots
from worker.stale import cancelling
from worker.store import SampleStore
from worker.tokens import Limits, Prompts, Sampling, Tokenizer
from worker.waits import back_off, within
from worker.watches import Watches
from worker.weights import Weights
from worker.worker import EXIT_OK, Lines, Now, Stop, Worker

log = logging.getLogger("worker.start")

BROKER_SECONDS = 1.0  # how long a call is repeated before the caller looks up and asks again
DEFAULT_SLOTS = 32
SCALE_SECONDS = 1.0


class Stopped(Exception):
    """Stopped before the start was over."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What is there before broker, engine and run are known to be."""

    settings: WorkerSettings
    metrics: WorkerMetrics
    fitness: Fitness
    broker: Broker
    engine: EngineClient
    runner: HookRunner
    scorer: Scorer
    generate: Hook | None
    probes: Probes


async def serve(settings: WorkerSettings, stop: Stop) -> int:
    """Runs one worker to its end; the exit code. Errors: WrongSetting."""
    try:
        async with AsyncExitStack() as things:
            worker = await start(settings, stop, things)
            return await worker.run()
    except Stopped:
        return EXIT_OK


async def start(settings: WorkerSettings, stop: Stop, things: AsyncExitStack) -> Worker:
    """A worker that the broker knows and that may claim; `things` closes what it uses.

    Errors: WrongSetting, Stopped.
    """
    opened = await _open(settings, things)
    await _check_broker(opened.broker, stop)
    config = await _until(opened.broker.config, stop, "the run")
    policy = await _until(opened.broker.policy, stop, "the broker")
    is_ours = policy is not None and not policy.is_external and settings.weights_mode == "policy"
    # An earlier process may have died while it had paused the engine to load weights.
    await _until(lambda: opened.engine.check_ready(resumes=is_ours), stop, "the engine")
    info = await _until(opened.engine.info, stop, "the engine")
    if config.reward == "worker" and not (settings.has_reward or settings.generate):
        raise WrongSetting("reward is empty, and the run's config says that workers score: set reward or reward_url")
    now = Now(config, info.weight_version, info.model_path)
    settings.heartbeat(config.lease_seconds)  # a wrong one is said now, not by the thread
    heart = Heart(
        settings.redis_url, settings.run, lambda: settings.heartbeat(now.config.lease_seconds), opened.metrics
    )
    hints = await things.enter_async_context(Hints(settings.redis_url, opened.broker.keys.named("wake")))
    parts = _parts(opened, info, things)
    name = f"{settings.pod}/{time.time_ns() // 1_000_000}"
    worker = Worker(name, settings, parts, Lines(heart, hints), now, stop)

    scale = Scale(opened.engine, opened.fitness, min(SCALE_SECONDS, settings.engine_probe_seconds))
    parts.sampler.health.went_down = scale.ask
    weights = Weights(name, settings, parts, now, scale.ask)
    weights.expect(policy)
    scale.ask()
    watches = Watches(parts, now, weights, settings.engine_probe_seconds, heart.beat_now)
    await watches.check_fingerprint(config)
    await _evict_earlier(opened.broker, name, stop)
    opened.fitness.end("starting")
    worker.told(*await _until(lambda: opened.broker.heartbeat(worker.beat()), stop, "the broker"))
    heart.start(worker.beat, worker.told)
    opened.probes.heart = heart
    loops = [scale, *_adapt(settings, opened.engine, parts.sampler.slots)]
    await things.enter_async_context(_background(parts.store, watches, weights, loops, heart))
    await things.enter_async_context(cancelling(opened.broker, worker.held, now))
    _show(opened.metrics, worker, parts)
    address = f"{settings.probe_host}:{opened.probes.port}"
    log.info(
        "ready worker=%s slots=%d engine=%s probes=%s", name, parts.sampler.slots.number, opened.engine.url, address
    )
    return worker


async def _open(settings: WorkerSettings, things: AsyncExitStack) -> Opened:
    metrics, fitness = WorkerMetrics(), Fitness()
    generate = load_generate(settings.generate) if settings.generate else None
    runner = HookRunner(settings.reward_concurrency, settings.reward_timeout_seconds)
    scorer = Scorer(settings, runner, fitness, metrics)
    things.push_async_callback(scorer.close)
    client = await things.enter_async_context(connect(settings.redis_url))
    engine = EngineClient(
        settings.engine_url,
        settings.engine_api_key,
        settings.request_timeout_seconds,
        is_router=settings.engine_kind == "router",
    )
    await things.enter_async_context(engine)
    probes = Probes(metrics.registry, fitness)
    try:
        await probes.start(settings.probe_host, settings.probe_port)
    except OSError as error:
        raise WrongSetting(f"probe_port {settings.probe_port} can't be used ({error}): choose another") from error
    things.push_async_callback(probes.stop)
    broker = Broker(client, settings.run, retry_seconds=BROKER_SECONDS)
    return Opened(settings, metrics, fitness, broker, engine, runner, scorer, generate, probes)


def _parts(opened: Opened, info: EngineInfo, things: AsyncExitStack) -> Parts:
    settings = opened.settings
    vocab_size = settings.vocab_size or info.vocab_size or read_vocab_size(info.model_path)
    limits = Limits(settings.context_length or info.context_length, vocab_size)
    opened.engine.vocab_size = limits.vocab_size
    if limits.vocab_size is None:
        log.warning("the vocabulary's size is unknown, and an id outside of it ends the engine: set vocab_size")
    counters: Counter[str] = Counter()
    tokenizer = Tokenizer(settings.tokenizer or info.tokenizer_path)
    things.callback(tokenizer.close)
    sampler = Sampler(
        opened.engine,
        EngineHealth(opened.fitness),
        Slots(settings.slots or info.max_running_requests or DEFAULT_SLOTS),
        limits,
        opened.metrics,
        counters,
        settings.max_tries,
        tokenizer,
        settings.partial_tokens,
    )
    return Parts(
        broker=opened.broker,
        store=SampleStore(opened.broker, opened.metrics),
        prompts=Prompts(tokenizer, limits, Sampling(settings.max_new_tokens, settings.temperature)),
        sampler=sampler,
        scorer=opened.scorer,
        runner=opened.runner,
        generate=opened.generate,
        fitness=opened.fitness,
        counters=counters,
        changed=asyncio.Event(),
        proof={"dtype": info.dtype, "fingerprint": ""},
    )


def _adapt(settings: WorkerSettings, engine: EngineClient, slots: Slots) -> list[Adapt]:
    if not settings.adapt_slots:
        return []
    bounds = Bounds(min(settings.least_slots, slots.most), slots.most, settings.full_cache)
    return [Adapt(engine, slots, bounds, settings.adapt_seconds)]


@asynccontextmanager
async def _background(
    store: SampleStore, watches: Watches, weights: Weights, loops: Sequence[Scale | Adapt], heart: Heart
) -> AsyncGenerator[None]:
    """What runs beside the worker, and ends after it."""
    async with asyncio.TaskGroup() as background:
        background.create_task(store.run())
        background.create_task(watches.run())
        background.create_task(weights.run())
        for loop in loops:
            background.create_task(loop.run())
        try:
            yield
        finally:
            watches.over.set()
            weights.over.set()
            for loop in loops:
                loop.over.set()
            store.close()
            await heart.stop()
            await watches.count_once()


async def _evict_earlier(broker: Broker, name: str, stop: Stop) -> None:
    pod = name.rpartition("/")[0]
    earlier = await _until(lambda: broker.evict_earlier(pod, name), stop, "the broker")
    if earlier:
        log.warning("evicted earlier processes of this pod: %s", ", ".join(earlier))


async def _check_broker(broker: Broker, stop: Stop) -> None:
    """Says what the server should be set to, above all if it may evict keys: then groups would vanish."""
    server = await _until(lambda: broker.calls.repeat(lambda: read_server(broker.client)), stop, "the broker")
    for problem in server.problems():
        log.warning("the broker: %s", problem)


async def _until[T](ask: Callable[[], Awaitable[T]], stop: Stop, what: str) -> T:
    """Asks until there is an answer; says once what it waits for. Errors: Stopped, WrongSetting."""
    tries, said = 0, ""
    while not stop.asked.is_set():
        try:
            return await ask()
        except ValidationError as error:
            raise WrongSetting(f"the run's config: {explain(error)}") from error
        except EngineRejected as error:
            raise WrongSetting(f"engine_url: {error}") from error
        except RolloutFleetError as error:
            if str(error) != said:
                log.warning("waits for %s: %s", what, error)
                said = str(error)
        tries += 1
        await within(stop.asked, back_off(tries, longest=2.0))
    raise Stopped


def _show(metrics: WorkerMetrics, worker: Worker, parts: Parts) -> None:
    slots = parts.sampler.slots
    metrics.slots.set_function(lambda: slots.offered)
    metrics.busy.set_function(lambda: slots.busy)
    metrics.held.set_function(lambda: len(worker.held))
    metrics.fit.set_function(lambda: parts.fitness.is_fit)
