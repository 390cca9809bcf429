"""The main job from beginning to end: everything is started, consumed, drained and summed up here.

Invariants: no process that was started outlives `run`; a first signal drains, a second one ends at once; what is summed
up is counted after the workers have ended, when their last heartbeats are in.
"""

import asyncio
import re
import secrets
import signal
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from deploy.local.broker import LocalBroker
from deploy.local.consumer import Consumer, Steps
from deploy.local.fleet import Fleet, Killer
from deploy.local.live import Live
from deploy.local.prompts import PromptFile
from deploy.local.screen import Screen
from deploy.local.settings import LocalSettings
from deploy.local.summary import Extras, Facts, Summary
from rolloutfleet.broker import Broker
from rolloutfleet.reading import read_dead
from rolloutfleet.redis import connect
from rolloutfleet.server import read_server
from rolloutfleet.status import Status
from rolloutfleet.trainer import Trainer

_DEAD_SHOWN = 1000
_ONE_SAMPLE = re.compile(r"^sample \d+: ")  # the same trouble of another sample is the same reason
_VIEW_RETRY_SECONDS = 1.0
# Short, for the picture's sake, and since a worker that is killed takes what it hasn't reported with it.
_BEAT_SECONDS = 0.5
_BEATS_PER_LEASE = 6


class Stopped(Exception):
    """A signal came before anything was begun."""

    def __init__(self, which: signal.Signals) -> None:
        super().__init__(which.name)
        self.signal = which


@dataclass(frozen=True, slots=True)
class Files:
    """Where the job reads and writes."""

    prompts: PromptFile
    logs: Path  # of the processes; the answers for simulated engines lie there, too
    output: IO[str] | None = None


class Job:
    """One run of the main job. `signals`: those that came, the first tells the exit code."""

    def __init__(self, settings: LocalSettings, files: Files, screen: Screen) -> None:
        self.signals: list[signal.Signals] = []
        self._settings = settings
        self._files = files
        self._screen = screen
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()
        self._ended = asyncio.Event()
        self._began = time.monotonic()
        self._run = settings.run or f"local-{secrets.token_hex(3)}"
        self._fleet = Fleet(settings, files.logs, screen.say)
        self._total = settings.group_count or len(files.prompts.questions)

    async def run(self) -> Summary:
        """Errors: Stopped; ChildFailed, ServerFailed, BrokerUnavailable (in groups)."""
        for which in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(which, self._on_signal, which)
        async with AsyncExitStack() as stack:
            broker = stack.enter_context(LocalBroker(self._settings.redis_url, self._screen.say))
            self._screen.say(f"broker {broker.shown}, run {self._run}; logs in {self._files.logs}")
            await broker.wait(self._stop)
            if self.signals:
                raise Stopped(self.signals[0])
            trainer = await stack.enter_async_context(self._trainer(broker.url))
            for problem in (await read_server(trainer.broker.client)).problems():
                self._screen.say(f"the broker: {problem}")
            return await self._work(broker, trainer)

    def _trainer(self, url: str) -> Trainer:
        config = self._settings.run_config(scored=self._files.prompts.label_key is not None)
        return Trainer.connect(url, self._run, config=config)

    @property
    def _weights(self) -> Path | None:
        """Where what the steps publish lies; None: they publish nothing."""
        return None if self._settings.max_staleness is None else self._files.logs / "weights"

    async def _work(self, broker: LocalBroker, trainer: Trainer) -> Summary:
        settings = self._settings
        before = await trainer.status()
        steps = Steps(settings.batch, settings.train_seconds, self._weights)
        consumer = Consumer(trainer, steps, self._files.output, self._stop)
        viewer = Broker(connect(broker.url, connections=2), self._run, _VIEW_RETRY_SECONDS)
        live = Live(self._screen, viewer, consumer, self._total, lambda: self._fleet.kills)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(broker.watch(self._ended))
                group.create_task(live.run())
                beat = min(_BEAT_SECONDS, before.config.lease_seconds / _BEATS_PER_LEASE)
                if settings.kill_every is not None:
                    group.create_task(Killer(self._fleet, viewer, settings.kill_every, self._stop).run())
                await self._consume(group, consumer, self._worker_environment(broker.url, beat))
                await self._fleet.drain(self._at_once)
                after, ended_ms = await trainer.status(), consumer.server_ms()
                self._ended.set()
                live.ended.set()
            return Summary(
                facts(settings, consumer, (before, after), ended_ms if self.signals else None),
                await self._extras(trainer, consumer, (before, after), broker.deaths),
            )
        finally:
            self._screen.clear()
            await viewer.client.aclose()

    async def _consume(self, group: asyncio.TaskGroup, consumer: Consumer, environment: dict[str, str]) -> None:
        settings = self._settings
        answers = self._files.logs / "answers.jsonl"
        self._files.prompts.write_answers(answers)
        urls = await self._fleet.start_engines(group, answers)
        if not settings.no_api:
            await self._fleet.start_api(group, environment["REDIS_URL"])
        self._fleet.start_workers(group, urls, environment)
        params = {"max_new_tokens": settings.max_new_tokens, "temperature": settings.temperature}
        # A simulated engine has no tokenizer, and so no chat template.
        as_text = settings.is_simulated and settings.tokenizer is None
        await consumer.run(self._files.prompts.groups(self._total, params=params, as_text=as_text))
        self._stop.set()

    def _worker_environment(self, url: str, beat: float) -> dict[str, str]:
        settings = self._settings
        scored = self._files.prompts.label_key is not None
        variables = {
            "REDIS_URL": url,
            "ROLLOUTFLEET_RUN": self._run,
            "ROLLOUTFLEET_HEARTBEAT_SECONDS": str(beat),
            "ROLLOUTFLEET_REWARD": settings.reward if scored else "",
        }
        return variables | ({"ROLLOUTFLEET_TOKENIZER": settings.tokenizer} if settings.tokenizer else {})

    async def _extras(
        self, trainer: Trainer, consumer: Consumer, statuses: tuple[Status, Status], broker_deaths: int
    ) -> Extras:
        seen, (before, after) = consumer.seen, statuses
        new_dead = after.stat("dead") - before.stat("dead")
        letters = await read_dead(trainer.broker, min(new_dead, _DEAD_SHOWN)) if new_dead > 0 else []
        children = [*self._fleet.engines, *self._fleet.workers]
        return Extras(
            run=self._run,
            seconds=time.monotonic() - self._began,
            steps=len(seen.steps),
            mean_reward=seen.rewards / seen.scored if seen.scored else None,
            steps_behind_mean=sum(seen.steps_behind) / len(seen.steps_behind) if seen.steps_behind else None,
            steps_behind_max=max(seen.steps_behind, default=None),
            worker_kills=self._fleet.kills,
            deaths=broker_deaths + sum(child.deaths for child in children),
            bad_lines=len(self._files.prompts.bad),
            finished_before=consumer.finished_before,
            dead_reasons=Counter(_ONE_SAMPLE.sub("a sample: ", letter.reason) for letter in letters),
            stopped=bool(self.signals),
        )

    def _on_signal(self, which: signal.Signals) -> None:
        if self.signals:
            self._at_once.set()
        else:
            self._screen.say(f"{which.name}: draining (once more ends at once)")
        self.signals.append(which)
        self._stop.set()


def facts(
    settings: LocalSettings, consumer: Consumer, statuses: tuple[Status, Status], stopped_ms: float | None
) -> Facts:
    """What was measured. `statuses`: the run when the job began, and when its workers had ended.

    `stopped_ms`: when that was, if they were stopped early.
    """
    before, after = statuses
    seen, config = consumer.seen, after.config
    concurrency = settings.total_slots if config.sample_concurrency == "auto" else config.sample_concurrency
    names = [name for name in after.stats if not name.startswith("behind:")]
    counters = {name: after.stat(name) - before.stat(name) for name in names}
    highest = {name: after.stat(name) for name in ("most_active", "most_waiting")}
    behind = {name: seconds - before.seconds_behind.get(name, 0.0) for name, seconds in after.seconds_behind.items()}
    return Facts(
        n=config.n,
        slots=settings.total_slots,
        engines=settings.engine_count,
        concurrency=concurrency,
        overcommit=config.permille,
        refill=config.refill,
        submitted=consumer.submitted,
        trained=len(seen.times),
        doubled=seen.doubled,
        unfinished=after.queued + after.window.active + after.window.waiting + after.taken,
        samples=seen.samples,
        tokens=seen.tokens,
        longest=seen.longest,
        makespan=seen.makespan_seconds(stopped_ms),
        busy=counters.get("busy_ms", 0) / 1000,
        full_speed=settings.full_speed,
        counters=counters | highest,
        behind=behind,
    )
