"""Tests on a real cluster: `make test-cluster` brings one; without it they are skipped.

Each test has a namespace of its own with a release in it, and a run of its own on the tests' broker. Everything that
they make carries one label, and is gone at the end, also after an interruption.
"""

import asyncio
import os
import re
import secrets
import signal
import time
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster import broker, session
from tests.cluster.ground import Ground
from tests.cluster.jobs import Job, connected
from tests.cluster.kube import get, kubectl, name_of
from tests.cluster.ours import Ours
from tests.cluster.reach import reached
from tests.cluster.release import Release, describe, make_namespace

SECONDS = 1500
HERE = Path(__file__).parent
# Tests that have not begun after so many minutes are left out, where time is short: their number is then in the result.
MINUTES = "ROLLOUTFLEET_CLUSTER_MINUTES"
failed = pytest.StashKey[bool]()
began = time.monotonic()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("no_cluster") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))
            if session.TESTED not in os.environ:
                item.add_marker(pytest.mark.skip(reason="needs a cluster: make test-cluster brings one"))


def pytest_sessionstart() -> None:
    if session.TESTED in os.environ:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, interrupt)


def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = float(os.environ.get(MINUTES) or "inf")
    if HERE in item.path.parents and time.monotonic() - began > 60 * minutes:
        pytest.skip(f"left out: the {minutes:g} minutes of {MINUTES} are over")


def interrupt(number: int, frame: object) -> None:
    """What the tests made is taken away, also when it is said a second time that they must end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[failed] = item.stash.get(failed, False) or report.failed
    return report


@dataclass(frozen=True, slots=True)
class Shared:
    """What the tests of a session have in common. `label`: of all namespaces. `inside`, `url`: the broker, for pods and
    for tests."""

    label: str
    inside: str
    url: str


@pytest.fixture(scope="session")
def shared() -> Iterator[Shared]:
    label = f"s{secrets.token_hex(4)}"
    namespace = f"broker-{label}"
    try:
        asyncio.run(make_namespace(namespace, label))
        address = asyncio.run(broker.start(namespace))
        with reached(namespace, f"pod/{broker.NAME}", broker.PORT) as there:
            yield Shared(label, f"redis://{address}:{broker.PORT}/0", f"redis://{there}/0")
    finally:
        sweep(label)


def sweep(label: str) -> None:
    """Deletes every namespace of this session, and waits until they are gone."""
    asyncio.run(_sweep(f"rolloutfleet-tests={label}"))


async def _sweep(selector: str) -> None:
    names = [name_of(each) for each in await get("namespaces", "-l", selector)]
    for name in names:
        await empty(name)
    if names:
        await kubectl("wait", "--for=delete", "namespace", *names, "--timeout=150s")


async def empty(namespace: str) -> None:
    """It goes, and its pods at once: nobody waits for their grace."""
    await kubectl("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")
    await kubectl("delete", "pods", "--all", "-n", namespace, "--grace-period=0", "--force", "--wait=false")


@pytest.fixture
def run(request: pytest.FixtureRequest) -> str:
    """Name of the run and of the namespace; it says which test it is of."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    return f"{words[:30].strip('-')}-{secrets.token_hex(2)}"


@pytest.fixture
async def release(request: pytest.FixtureRequest, run: str, shared: Shared) -> AsyncIterator[Release]:
    """A namespace of the test's own, in which nothing is installed yet."""
    await make_namespace(run, shared.label, shared.inside)
    yield Release(run, run)
    if request.node.stash.get(failed, False):
        print(await describe(run))
    await empty(run)


@pytest.fixture
async def job(run: str, shared: Shared) -> AsyncIterator[Job]:
    """A trainer outside of the cluster's pods, and the run that it made."""
    async with connected(shared.url, run) as made:
        yield made


@pytest.fixture
def ours() -> Ours:
    """The cluster's own parts, to break them; skips on a cluster of somebody else."""
    if session.OURS not in os.environ:
        pytest.skip("breaks nodes or the API server: only on a cluster of make cluster")
    return Ours(Ground(Path(os.environ[session.OURS])))
