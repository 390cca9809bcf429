"""The faults of a chaos run: what is done to whom, in an order drawn from the seed."""

import asyncio
import random
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.chaos.run import ChaosRun

_HANG_SECONDS = 3.0
_BROKER_AWAY_SECONDS = 1.0
_LOST_REPLIES = 5

type Fault = Coroutine[Any, Any, None]


class Injector:
    """Says which faults are due when a share of the groups is over. `done` tells what was done to whom."""

    def __init__(self, run: "ChaosRun") -> None:
        self.done: list[str] = []
        self._run = run
        self._random = random.Random(run.settings.seed)
        self._plan = self._shuffled()
        self._total = len(self._plan)
        self._broker_is_away = asyncio.Lock()

    def due(self, share: float) -> list[Fault]:
        """Faults whose turn it is; the last comes before 90 % of the groups are over."""
        faults: list[Fault] = []
        while self._plan and share * self._total / 0.9 >= self._total - len(self._plan):
            faults.append(getattr(self, f"_{self._plan.pop(0)}")())
        return faults

    def _shuffled(self) -> list[str]:
        settings = self._run.settings
        counts = {
            "kill": settings.kills,
            "freeze": settings.freezes,
            "term": settings.terms,
            "broker_kill": settings.broker_kills,
            "lose_replies": settings.lost_replies,
            "engine_kill": settings.engine_kills,
            "engine_hang": settings.engine_hangs,
            "trainer_crash": settings.trainer_crashes,
            "reward_away": int(settings.reward_away_seconds > 0),
        }
        plan = [name for name, count in counts.items() for _ in range(count)]
        self._random.shuffle(plan)
        return plan

    def _note(self, what: str) -> None:
        self.done.append(what)

    async def _kill(self) -> None:
        worker = self._random.choice(self._run.workers)
        self._note(f"kill -9 {worker.name}")
        worker.signal(signal.SIGKILL)

    async def _freeze(self) -> None:
        worker = self._random.choice(self._run.workers)
        seconds = self._run.settings.lease_seconds * 2
        self._note(f"SIGSTOP {worker.name} for {seconds} s")
        worker.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        worker.signal(signal.SIGCONT)

    async def _term(self) -> None:
        worker = self._random.choice(self._run.workers)
        self._note(f"SIGTERM {worker.name}")
        worker.signal(signal.SIGTERM)

    async def _broker_kill(self) -> None:
        async with self._broker_is_away:
            self._note("SIGKILL the broker")
            await asyncio.to_thread(self._run.server.kill)
            await asyncio.sleep(_BROKER_AWAY_SECONDS)
            await asyncio.to_thread(self._run.server.restart)

    async def _lose_replies(self) -> None:
        self._note(f"lose {_LOST_REPLIES} replies of the broker")
        self._run.proxy.drop_replies(_LOST_REPLIES)

    async def _engine_kill(self) -> None:
        engine = self._random.choice(self._run.engines)
        self._note(f"kill -9 {engine.name}")
        await engine.end()
        await asyncio.sleep(1)
        await engine.start()

    async def _engine_hang(self) -> None:
        engine = self._random.choice(self._run.engines)
        self._note(f"{engine.name} makes no token for {_HANG_SECONDS} s")
        await engine.stall(True)
        await asyncio.sleep(_HANG_SECONDS)
        await engine.stall(False)

    async def _trainer_crash(self) -> None:
        self._note("the trainer dies in the middle of a step")
        self._run.consumer.crash()

    async def _reward_away(self) -> None:
        seconds = self._run.settings.reward_away_seconds
        self._note(f"the reward service is away for {seconds} s")
        await self._run.reward.stop()
        await asyncio.sleep(seconds)
        await self._run.reward.start()
