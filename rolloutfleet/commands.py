"""What the commands of `rolloutfleet` do. Each takes the settings and its options, and answers with the exit code."""

import argparse
import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import batched
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

from rolloutfleet.broker import Broker
from rolloutfleet.checkup import checkup
from rolloutfleet.errors import InvalidGroup
from rolloutfleet.messages import PromptGroup
from rolloutfleet.reading import DeadLetter, read_dead
from rolloutfleet.redis import connect
from rolloutfleet.repair import purge, repair
from rolloutfleet.settings import BrokerSettings, RunConfig
from rolloutfleet.status import read_status, require_run
from rolloutfleet.stuck import Watch, judge, watch
from rolloutfleet.trainer import Trainer, check_groups
from rolloutfleet.view import lines

_RETRY_SECONDS = 5  # a person waits for the answer
_CLEAR = "\x1b[H\x1b[J"
_PAGE = 500
_TAKE = 50  # a group of long samples is some MiB


class UsageError(ValueError):
    """Options that don't fit together, or a setting that can't work."""


class AddParser(Protocol):
    """What argparse calls to add a sub-command."""

    def __call__(self, name: str, *, help: str) -> argparse.ArgumentParser: ...


@asynccontextmanager
async def _broker(settings: BrokerSettings) -> AsyncGenerator[Broker, None]:
    client = connect(settings.redis_url)
    try:
        yield Broker(client, settings.run, _RETRY_SECONDS)
    finally:
        await client.aclose()


@asynccontextmanager
async def _run(settings: BrokerSettings) -> AsyncGenerator[Broker, None]:
    """A broker of a run that exists."""
    async with _broker(settings) as broker:
        await require_run(broker)
        yield broker


async def submit(settings: BrokerSettings, options: argparse.Namespace) -> int:
    counts: dict[str, int] = {}
    refused = 0
    async with Trainer.connect(settings.redis_url, settings.run, "submit", retry_seconds=_RETRY_SECONDS) as trainer:
        with _open(options.file, "r") as file:
            for some in batched(_read(file, await trainer.broker.config()), _PAGE):
                groups = [group for group in some if isinstance(group, PromptGroup)]
                refused += len(some) - len(groups)
                for word in await trainer.submit(groups, max_queued=options.max_queued):
                    counts[word] = counts.get(word, 0) + 1
    print(", ".join(f"{count} {word}" for word, count in counts.items()) or "nothing submitted", file=sys.stderr)
    return 1 if refused else 0


def _read(file: TextIO, config: RunConfig) -> Iterator[PromptGroup | None]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            group = PromptGroup.from_text(line.encode(errors="surrogateescape"))
            check_groups([group], config)
        except InvalidGroup as error:
            print(f"line {number} is refused: {error}", file=sys.stderr)
            yield None
        else:
            yield group


async def consume(settings: BrokerSettings, options: argparse.Namespace) -> int:
    taken = 0
    async with Trainer.connect(settings.redis_url, settings.run, options.consumer) as trainer:
        with _open(options.output, "a") as file:
            while options.groups is None or taken < options.groups:
                most = _TAKE if options.groups is None else min(_TAKE, options.groups - taken)
                groups = await trainer.take(most, options.seconds)
                if not groups:
                    break
                file.writelines(json.dumps(group.to_json(), ensure_ascii=False) + "\n" for group in groups)
                file.flush()
                await trainer.ack(groups)
                taken += len(groups)
                print(f"\r{taken} groups", end="", file=sys.stderr, flush=True)
    print(f"\r{taken} groups taken", file=sys.stderr)
    return 0 if options.groups is None or taken == options.groups else 1


async def configure(settings: BrokerSettings, options: argparse.Namespace) -> int:
    given = {name: getattr(options, name) for name in RunConfig.model_fields}
    config = RunConfig.model_validate({name: value for name, value in given.items() if value is not None})
    async with _broker(settings) as broker:
        await broker.configure(config, only_missing=options.only_missing)
        print(json.dumps((await broker.config()).model_dump(), indent=2))
    return 0


async def status(settings: BrokerSettings, options: argparse.Namespace) -> int:
    async with _run(settings) as broker:
        found = await read_status(broker)
    _print(found.to_json(), lines(found), options.json)
    return 0


async def top(settings: BrokerSettings, options: argparse.Namespace) -> int:
    watched: Watch | None = None
    async with _run(settings) as broker:
        while True:
            status, now = await read_status(broker), time.monotonic()
            watched = watch(watched, status, now)
            verdict = judge(watched, status, now, options.stuck_seconds, None)
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            shown = "\n".join([*([f"STUCK: {verdict.sentence}"] if verdict else []), *lines(status, width)])
            print(_CLEAR + shown if sys.stdout.isatty() else shown + "\n", flush=True)
            await asyncio.sleep(options.every)


async def doctor(settings: BrokerSettings, options: argparse.Namespace) -> int:
    async with _broker(settings) as broker:
        findings = await checkup(broker, options.batch)
    said = [f"{'ok   ' if finding.ok else 'mend '} {finding.what}: {finding.says}" for finding in findings]
    _print([asdict(finding) for finding in findings], said, options.json)
    return 0 if all(finding.ok for finding in findings) else 1


async def pause(settings: BrokerSettings, options: argparse.Namespace) -> int:
    async with _run(settings) as broker:
        await broker.pause()
    print("paused: nothing is claimed any more, what is held goes on", file=sys.stderr)
    return 0


async def resume(settings: BrokerSettings, options: argparse.Namespace) -> int:
    async with _run(settings) as broker:
        await broker.resume()
    print("resumed", file=sys.stderr)
    return 0


async def repair_run(settings: BrokerSettings, options: argparse.Namespace) -> int:
    async with _run(settings) as broker:
        mended = await repair(broker)
    print(json.dumps(asdict(mended)))
    return 0


async def purge_run(settings: BrokerSettings, options: argparse.Namespace) -> int:
    async with _run(settings) as broker:
        question = f"Delete run {settings.run} with all its groups? [y/N] "
        if not options.yes and (await asyncio.to_thread(input, question)).lower() != "y":
            return 1
        print(f"{await purge(broker)} keys deleted", file=sys.stderr)
    return 0


async def dead_list(settings: BrokerSettings, options: argparse.Namespace) -> int:
    async with _run(settings) as broker:
        letters = await read_dead(broker, options.most)
    said = [f"{letter.entry}  {letter.id or '-':34}  {letter.attempts:>2}  {letter.reason}" for letter in letters]
    _print([letter.to_json() for letter in letters], said or ["no dead letters"], options.json)
    return 0


async def dead_show(settings: BrokerSettings, options: argparse.Namespace) -> int:
    async with _run(settings) as broker:
        letters = [letter for letter in await read_dead(broker, 1, options.entry) if letter.entry == options.entry]
    if not letters:
        raise ValueError(f"there is no dead letter {options.entry}: `rolloutfleet dead list` shows their entries")
    shown = letters[0].to_json()
    _print(shown, [f"{name:9} {value}" for name, value in shown.items()], options.json)
    return 0


async def dead_requeue(settings: BrokerSettings, options: argparse.Namespace) -> int:
    if bool(options.entry) == options.all:
        raise UsageError("name the entries to requeue, or give --all")
    async with _run(settings) as broker:
        entries = [letter.entry for letter in await _all_dead(broker)] if options.all else options.entry
        words = dict(zip(entries, await broker.requeue_dead(entries), strict=True))
    _print(words, [f"{entry}  {word}" for entry, word in words.items()], options.json)
    return 0


async def _all_dead(broker: Broker) -> list[DeadLetter]:
    letters: list[DeadLetter] = []
    before = "+"
    while page := await read_dead(broker, _PAGE, before):
        letters += page
        before = f"({page[-1].entry}"
    return letters


def _open(name: str, mode: Literal["r", "a"]) -> TextIO:
    # Bytes that are no UTF-8 pass through a read, so that their line is refused and not the file.
    errors = "surrogateescape" if mode == "r" else "strict"
    if name == "-":
        return open(0 if mode == "r" else 1, mode, encoding="utf-8", errors=errors, closefd=False)
    return Path(name).open(mode, encoding="utf-8", errors=errors)


def _print(data: Any, text: Sequence[str], as_json: bool) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False) if as_json else "\n".join(text))
