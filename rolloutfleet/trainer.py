"""The client that trainers use: submit prompt groups, take completed ones, ack what was trained on.

Invariants: at least once: a group that was taken and not acked is handed out again, first of all to the same consumer;
a group that is handed out has exactly n sound samples and the rewards of these; what is held is touched from a thread,
so that a long step loses nothing to another rank. Errors: BrokerUnavailable after `retry_seconds` without an answer.
"""

import asyncio
import logging
import math
import random
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from redis.exceptions import RedisError

from rolloutfleet.batch import Batch, say_ahead
from rolloutfleet.broker import Broker, Entry, Submitted
from rolloutfleet.errors import BrokerUnavailable, InvalidGroup, VersionAhead
from rolloutfleet.messages import CompletedGroup, PromptGroup
from rolloutfleet.policy import Mode
from rolloutfleet.reading import Outcome, fetch, find_lost
from rolloutfleet.redis import BLOCK_SECONDS, connect, connect_blocking
from rolloutfleet.sampling import check_sampling
from rolloutfleet.server import read_server
from rolloutfleet.settings import RunConfig
from rolloutfleet.status import Status, read_status, require_run
from rolloutfleet.touch import Toucher
from rolloutfleet.weights import Unused, delete_unused, prepare

log = logging.getLogger(__name__)

_PENDING_PAGE = 200
_KEPT = ("ok", "stale", "ahead")  # what judge answers of a group that stays the trainer's
_FIRST_DELAY, _LONGEST_DELAY = 0.02, 1.0  # seconds between tries to take
_ROOM_SECONDS = 0.2  # between looks whether there is room to submit
_LOOK_SECONDS = 1.0  # between looks whether a group that is waited for was given up


class Trainer:
    """One consumer of a run. Made by `connect`, used as an async context manager."""

    def __init__(self, broker: Broker, url: str, consumer: str, idle_seconds: float) -> None:
        self.broker = broker
        self.consumer = consumer
        self.idle_seconds = idle_seconds
        # A take that was executed, not answered and then repeated would hide that something was lost.
        self._once = Broker(broker.client, broker.keys.run, retry_seconds=0)
        self._blocking = connect_blocking(url)
        self._toucher = Toucher(url, broker.keys.run, consumer, idle_seconds / 4)
        self._held: dict[str, CompletedGroup] = {}  # by entry: handed out or ready, not acked
        self._ready: list[CompletedGroup] = []  # taken, not handed out
        self._owed: list[CompletedGroup] = []  # trained on, but their ack was not answered
        self._recover = True
        self._has_begun = False
        self._session = uuid.uuid4().hex
        self._config: RunConfig | None = None
        self._looked_for_dead = time.monotonic()

    @classmethod
    def connect(
        cls,
        url: str,
        run: str,
        consumer: str = "trainer",
        *,
        config: RunConfig | None = None,
        idle_seconds: float = 300,
        retry_seconds: float = 60,
    ) -> Self:
        """A trainer that is not connected yet: `async with` connects it.

        `config`: the fields given to it are set, others stay as they are in the run. `idle_seconds`: entries of a
        consumer that was not heard of for so long are taken over. Connecting raises RunMissing where neither the run
        nor a `config` is there.
        """
        trainer = cls(Broker(connect(url), run, retry_seconds), url, consumer, idle_seconds)
        trainer._config = config
        return trainer

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def _start(self) -> None:
        if self._config is not None:
            await self.broker.configure(self._config)
        await require_run(self.broker)
        for problem in (await self.broker.calls.repeat(lambda: read_server(self.broker.client))).problems():
            log.warning("%s", problem)
        await self.broker.adopt(self.consumer)
        self._toucher.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection. What is held stays pending: this consumer is handed it again, or later another."""
        await asyncio.to_thread(self._toucher.stop)
        await self._blocking.aclose()
        await self.broker.client.aclose()

    # Prompt groups

    async def submit(self, groups: Sequence[PromptGroup], *, max_queued: int | None = None) -> list[Submitted]:
        """Puts groups in line; queued, known or done for each. With `max_queued` it waits while so many wait already.

        Ids that a run has seen are refused, so a ledger may be submitted again as a whole. Errors: RunMissing; and
        InvalidGroup, before anything is submitted, where sampling parameters bend what the run wants unbent.
        """
        if max_queued is not None and max_queued < 1:
            raise ValueError(f"max_queued is {max_queued}: nothing would ever be submitted; give at least 1")
        check_groups(groups, await self.broker.config())
        words: list[Submitted] = []
        while len(words) < len(groups):
            room = len(groups) if max_queued is None else max_queued - await self.broker.queued()
            if room <= 0:
                await asyncio.sleep(_ROOM_SECONDS)
                continue
            words += await self.broker.submit(groups[len(words) : len(words) + room])
        return words

    # Completed groups

    async def take(
        self, most: int, timeout: float | None = None, *, version: int | None = None
    ) -> list[CompletedGroup]:
        """1 to `most` groups as soon as there is one; [] after `timeout` seconds. They are held until `ack`.

        `version`: the trainer's own weights; what is too stale for these is not among them, or is marked (see judge).
        """
        if most < 1:  # to XREADGROUP 0 means all
            raise ValueError(f"most is {most}: give at least 1")
        end = None if timeout is None else time.monotonic() + timeout
        while groups := await self._take_any(most, end):
            judged = groups if version is None else await self.judge(groups, version)
            if judged:
                return judged
        return []

    async def _take_any(self, most: int, end: float | None) -> list[CompletedGroup]:
        self._drop_lost()
        while not self._ready:
            last = await self._look(most)
            longest = min(BLOCK_SECONDS, self.idle_seconds / 4)  # then it looks for what dead consumers hold
            left = longest if end is None else min(longest, end - time.monotonic())
            if self._ready or left <= 0:
                break
            await self._wait(last, left)
        groups, self._ready = self._ready[:most], self._ready[most:]
        return groups

    @asynccontextmanager
    async def batch(
        self, size: int, *, version: int | None = None, timeout: float | None = None
    ) -> AsyncGenerator[Batch, None]:
        """Exactly `size` groups, acked when the block ends well; otherwise they come again with the next batch.

        `version`: the trainer's own weights; groups that are too stale for these are made again, dropped or marked
        `is_stale`, as the run's config says. What an earlier batch gave back is judged again.
        Errors: TimeoutError after `timeout` seconds; what came until then is kept for the next batch.
        """
        groups = await self._fill(size, timeout, version)
        try:
            yield Batch(groups, version)
        except BaseException:
            self._give_back(groups)
            raise
        try:
            await self.ack(groups)
        except BaseException:
            self._owed += groups
            raise

    async def judge(self, groups: Sequence[CompletedGroup], version: int) -> list[CompletedGroup]:
        """Those of these groups that may be trained on by weights of this version; `is_stale` marks those beyond
        max_staleness that are handed out all the same. The others are not held any more: they are made again or over.

        For whoever takes ahead: what was fresh then need not be when it is trained on.
        Errors: VersionAhead: newer weights made some of them; all that were asked about stay held and come again.
        """
        words = await self._give_back_on_error(groups, self.broker.judge(version, [group.entry for group in groups]))
        kept = [
            replace(group, is_stale=word == "stale") for group, word in zip(groups, words, strict=True) if word in _KEPT
        ]
        self._forget([group for group, word in zip(groups, words, strict=True) if word not in _KEPT])
        if ahead := [group for group, word in zip(groups, words, strict=True) if word == "ahead"]:
            self._give_back(kept)
            raise VersionAhead(say_ahead(ahead, version))
        return kept

    async def generate(
        self, groups: Sequence[PromptGroup], timeout: float | None = None, *, version: int | None = None
    ) -> list[Outcome]:
        """Submits these groups and gives their results in the order asked, acked.

        A result is a CompletedGroup, or a LostGroup with its reason (dead letter, dropped). One reader per run.
        `version`: see batch; what is too stale and recycled is waited for again.
        Errors: TimeoutError after `timeout` seconds.
        """
        await self.submit(groups)
        found: dict[str, Outcome] = {}
        others: list[CompletedGroup] = []
        try:
            await self._collect({group.id for group in groups}, found, others, timeout, version)
            await self.ack(_completed(found))
        except BaseException:
            others += _completed(found)
            raise
        finally:
            self._give_back(others)
        return [found[group.id] for group in groups]

    async def ack(self, groups: Sequence[CompletedGroup]) -> list[str]:
        """These were trained on: they are over. ok, or gone (acked before, by this or another consumer), for each."""
        words = await self.broker.ack([group.entry for group in groups], (self.consumer, self._session))
        self._forget(groups)
        return list(words)

    async def recycle(self, group: CompletedGroup) -> str:
        """Throws the samples away and has the group generated again: ok, limit (too often: decide yourself) or gone."""
        word = await self.broker.recycle(group.entry)
        if word != "limit":
            self._forget([group])
        return word

    # Weights

    async def publish_weights(
        self, path: str | Path = "", label: str = "", mode: Mode = "retract", at_once: int = 0, *, sealed: bool = True
    ) -> int:
        """Tells the fleet to load the weights in this folder; their version, higher than any before (docs/weights.md).

        The folder must not change from here on. `at_once`: at most so many workers load at a time, 0: all.
        `sealed=False`: nobody checks the folder, which is not seen from here. mode="external" only draws a version: the
        trainer gives it to the engines with the weights. Errors: WrongWeights, RunMissing.
        """
        weights = await asyncio.to_thread(prepare, str(path), label, mode, at_once, sealed)
        return await self.broker.publish(uuid.uuid4().hex, weights)

    async def delete_old_weights(self, keep: int = 2) -> list[Unused]:
        """Deletes published folders that nobody needs: not the last `keep`, nor what a worker serves or loads."""
        return await delete_unused(self.broker, keep)

    async def status(self) -> Status:
        return await read_status(self.broker)

    # Inside

    async def _give_back_on_error[T](self, groups: Sequence[CompletedGroup], call: Awaitable[T]) -> T:
        try:
            return await call
        except BaseException:
            self._give_back(groups)
            raise

    async def _fill(self, size: int, timeout: float | None, version: int | None) -> list[CompletedGroup]:
        groups: list[CompletedGroup] = []
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while len(groups) < size:
                left = None if end is None else end - time.monotonic()
                groups += await self.take(size - len(groups), left, version=version)
                if end is not None and len(groups) < size and time.monotonic() >= end:
                    raise TimeoutError(await self._why(f"{len(groups)} of {size} groups"))
        except BaseException:
            self._give_back(groups)
            raise
        return groups

    async def _collect(
        self,
        wanted: set[str],
        found: dict[str, Outcome],
        others: list[CompletedGroup],
        timeout: float | None,
        version: int | None,
    ) -> None:
        """Takes until `found` has all that is wanted. `others`: what came along, kept aside or it would come again."""
        end = None if timeout is None else time.monotonic() + timeout
        looked, wait = -math.inf, 0.0  # at first only what is there already
        while wanted - found.keys():
            left = wait if end is None else min(wait, end - time.monotonic())
            for group in await self.take(len(wanted), left, version=version):
                if group.id in wanted:
                    found[group.id] = group
                else:
                    others.append(group)
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked, wait = time.monotonic(), _LOOK_SECONDS
                found |= await find_lost(self.broker, wanted - found.keys())
            if end is not None and time.monotonic() >= end and wanted - found.keys():
                raise TimeoutError(await self._why(f"{len(found)} of {len(wanted)} results"))

    async def _why(self, what: str) -> str:
        return f"{what} within the time given; {(await self.status()).sentence}"

    async def _look(self, most: int) -> str:
        """Takes what is there, and tries so until retry_seconds are over; the newest entry's id."""
        end, delay = time.monotonic() + self.broker.calls.retry_seconds, _FIRST_DELAY
        while True:
            try:
                return await self._look_once(most)
            except BaseException as error:
                # An answer may be lost: its entries are pending here, and we don't know them.
                self._recover = True
                if not isinstance(error, BrokerUnavailable) or time.monotonic() + delay > end:
                    raise
            await asyncio.sleep(delay * random.uniform(0.5, 1))
            delay = min(delay * 2, _LONGEST_DELAY)

    async def _look_once(self, most: int) -> str:
        """Own pending entries where something was lost, entries of dead consumers, new ones."""
        if not self._has_begun:  # not when it connects: many who only submit connect, too
            await self._once.begin(self.consumer, self._session)
            self._has_begun = True
        if self._owed:
            await self.ack(self._owed)
            self._owed = []
        if self._recover:
            await self._take_pending()
        await self._take_over(most)
        last, entries = await self._once.take(self.consumer, most)
        await self._receive([entry for entry in entries if entry.entry not in self._held])
        return last

    async def _take_pending(self) -> None:
        position = "0"
        while position:
            _, entries = await self._once.take(self.consumer, _PENDING_PAGE, position)
            await self._receive([entry for entry in entries if entry.entry not in self._held])
            # Until none is left: deleted entries leave gaps, so a short page need not be the last.
            position = entries[-1].entry if entries else ""
        self._recover = False

    async def _take_over(self, most: int) -> None:
        # After an outage of the broker everybody looks idle: whoever lives gets the time to touch what it holds.
        if self._toucher.reachable_seconds < self.idle_seconds / 2:
            return
        if time.monotonic() - self._looked_for_dead < self.idle_seconds / 4:
            return
        self._looked_for_dead = time.monotonic()
        entries = await self._once.take_over(self.consumer, self.idle_seconds, most)
        await self._receive([entry for entry in entries if entry.entry not in self._held])

    async def _receive(self, entries: Sequence[Entry]) -> None:
        groups = await fetch(self.broker, entries)
        self._held |= {group.entry: group for group in groups}
        self._ready += groups
        self._toucher.hold(list(self._held))

    async def _wait(self, last: str, seconds: float) -> None:
        """Until there is an entry beyond `last`. Nothing is taken by it."""
        key = self.broker.keys.named("completed")
        try:
            await self._blocking.xread({key: last}, count=1, block=max(1, round(seconds * 1000)))
        except RedisError:
            self._recover = True
            await asyncio.sleep(min(seconds, 0.1))

    def _give_back(self, groups: Sequence[CompletedGroup]) -> None:
        self._ready = [group for group in [*groups, *self._ready] if group.entry in self._held]

    def _drop_lost(self) -> None:
        """What another consumer has taken over is its own: not handed out here any more."""
        for entry in self._toucher.lost():
            self._held.pop(entry, None)
        self._give_back([])

    def _forget(self, groups: Sequence[CompletedGroup]) -> None:
        for group in groups:
            self._held.pop(group.entry, None)
        self._toucher.hold(list(self._held))


def check_groups(groups: Sequence[PromptGroup], config: RunConfig) -> None:
    """Errors: InvalidGroup, naming the first group that no worker of such a run would generate."""
    for group in groups:
        try:
            check_sampling(group.sampling_params or {}, config.bent_sampling)
        except InvalidGroup as error:
            raise InvalidGroup(f"group {group.id}: {error}") from error


def _completed(found: Mapping[str, Outcome]) -> list[CompletedGroup]:
    return [group for group in found.values() if isinstance(group, CompletedGroup)]
