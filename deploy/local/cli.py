"""The command `python -m deploy local`: reads options and prompts, runs the job, shows and writes what it came to.

Exit code 0 when every group came to an end; 1 when one was lost or doubled, or when something failed; 2 for a wrong
option; 128 + signal when it was stopped.
"""

import asyncio
import json
import logging
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

from deploy.embedded import ServerFailed
from deploy.local.job import Files, Job, Stopped
from deploy.local.options import WrongOption, read_settings
from deploy.local.process import ChildFailed
from deploy.local.prompts import PromptFile, PromptsUnusable, read_prompts
from deploy.local.screen import Screen
from deploy.local.settings import LocalSettings
from deploy.local.summary import Summary
from deploy.local.table import table
from rolloutfleet.errors import BrokerUnavailable

_BAD_SHOWN = 5


def main(argv: Sequence[str]) -> int:
    try:
        settings = read_settings(argv)
        return run(settings)
    except (WrongOption, PromptsUnusable) as error:
        print(f"deploy local: {error}", file=sys.stderr)
        return 2
    except (ChildFailed, ServerFailed, BrokerUnavailable) as error:
        print(f"deploy local: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # who read our lines has left: the fleet was ended, and there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Stopped as error:
        return 128 + error.signal
    except KeyboardInterrupt:  # before the job listens to it
        return 130


def run(settings: LocalSettings) -> int:
    """Errors: those that `main` answers."""
    prompts = read_prompts(settings.prompts, settings.prompt_key, settings.label_key, settings.group_count)
    screen = Screen(sys.stdout, sys.stdout.isatty() and not settings.no_live)
    _tell_bad_lines(prompts, screen)
    with ExitStack() as stack:
        logs = stack.enter_context(_logs(settings.logs))
        output = stack.enter_context(_open(settings.output, "--output")) if settings.output else None
        summary_file = stack.enter_context(_open(settings.summary, "--summary")) if settings.summary else None
        # What the library warns of would tear the picture apart; it is kept beside the logs of the processes.
        logging.basicConfig(filename=logs / "trainer.log", level=logging.INFO)
        summary, code = _run_job(settings, Files(prompts, logs, output), screen)
        if summary_file is not None:
            json.dump(summary.to_json(), summary_file, indent=2)
            summary_file.write("\n")
        print("\n".join(["", *table(summary)]))
        if settings.redis_url and summary.facts.unfinished:
            print(f"Redis keeps the {summary.facts.unfinished} unfinished groups: --run {summary.extras.run} goes on.")
    return code


def _run_job(settings: LocalSettings, files: Files, screen: Screen) -> tuple[Summary, int]:
    async def work() -> tuple[Summary, int]:
        job = Job(settings, files, screen)
        summary = await job.run()
        is_sound = summary.lost == 0 and summary.facts.doubled == 0
        return summary, 128 + job.signals[0] if job.signals else int(not is_sound)

    try:
        return asyncio.run(work())
    except ExceptionGroup as group:
        raise _first(group) from group


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """What went wrong first: a task that failed cancels the others."""
    error = group.exceptions[0]
    return _first(cast(ExceptionGroup[Exception], error)) if isinstance(error, ExceptionGroup) else error


def _tell_bad_lines(prompts: PromptFile, screen: Screen) -> None:
    for bad in prompts.bad[:_BAD_SHOWN]:
        screen.say(f"left out: {bad}")
    if len(prompts.bad) > _BAD_SHOWN:
        screen.say(f"left out: {len(prompts.bad) - _BAD_SHOWN} more lines")
    if prompts.label_key is None:
        screen.say("the lines have no answers (--label-key names their key): samples are not scored")


@contextmanager
def _logs(given: Path | None) -> Generator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(prefix="rolloutfleet-") as directory:
            yield Path(directory)
        return
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongOption(f"--logs: can't make {given}: {error.strerror}") from error
    if not os.access(given, os.W_OK):
        raise WrongOption(f"--logs: {given} can't be written to: choose another directory")
    yield given


@contextmanager
def _open(path: Path, option: str) -> Generator[IO[str]]:
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise WrongOption(f"{option}: can't write {path}: {error.strerror}") from error
    with file:
        yield file
