"""What `rolloutfleet doctor` looks at: server, window against the trainer's batch, workers, engines."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rolloutfleet.broker import Broker
from rolloutfleet.errors import RunMissing
from rolloutfleet.server import read_server
from rolloutfleet.status import Status, read_status

_ENGINE_SECONDS = 5
_CHECKSUM_SECONDS = 120  # reads all weights
_LIVES = "answers"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `says` is a fact, and the mend where it is not ok."""

    what: str
    ok: bool
    says: str


async def checkup(broker: Broker, batch: int | None = None) -> list[Finding]:
    """Looks at everything. `batch`: groups that the trainer takes before it acks. Errors: BrokerUnavailable."""
    server = await broker.calls.repeat(lambda: read_server(broker.client))
    says = f"{server.name} {server.version}, {(server.used_memory or 0) / 2**20:.0f} MiB used"
    findings = [Finding("server", False, problem) for problem in server.problems()] or [Finding("server", True, says)]
    try:
        status = await read_status(broker)
    except RunMissing as error:
        return [*findings, Finding("run", False, str(error))]
    findings += [_window(status), *_batch(status, batch), _workers(status), _dead(status)]
    engines = await asyncio.gather(*(_engine(url) for url in _engine_urls(status)))
    return [*findings, *engines, *await _weights([one.what.partition(" ")[2] for one in engines if one.says == _LIVES])]


def _window(status: Status) -> Finding:
    window, slots = status.window, sum(worker.slots for worker in status.workers)
    says = f"W = {window.size} groups of {window.n}: {status.sentence}"
    if window.size == 0:
        return Finding("window", False, "W is 0: start workers, or set sample_concurrency to a number")
    if status.workers and window.samples < slots:
        mend = (
            f"sample_concurrency is {window.samples}, the workers have {slots} slots: some idle; raise it, or use auto"
        )
        return Finding("window", False, mend)
    return Finding("window", True, says)


def _batch(status: Status, batch: int | None) -> list[Finding]:
    if batch is None:
        return []
    most = 2 * status.window.size - 1
    if batch > most:
        says = (
            f"a batch of {batch} groups is larger than the {most} that can wait: it fills only as the fleet generates"
        )
        return [Finding("batch", True, says)]
    return [Finding("batch", True, f"a batch of {batch} groups fits into the {most} that can wait")]


def _workers(status: Status) -> Finding:
    if not status.workers:
        return Finding("workers", False, "no worker is alive: start some, and look at their logs")
    unfit = [worker for worker in status.workers if worker.facts.get("state") not in ("ready", "draining")]
    if unfit:
        says = "; ".join(
            f"{worker.name} is {worker.facts.get('state')}: {worker.facts.get('reason')}" for worker in unfit
        )
        return Finding("workers", False, says)
    return Finding("workers", True, f"{len(status.workers)} alive")


def _dead(status: Status) -> Finding:
    if status.dead:
        return Finding("dead letters", False, f"{status.dead} groups were given up: `rolloutfleet dead list` says why")
    return Finding("dead letters", True, "none")


def _engine_urls(status: Status) -> list[str]:
    return sorted({str(worker.facts["engine"]) for worker in status.workers if worker.facts.get("engine")})


async def _engine(url: str) -> Finding:
    try:
        await asyncio.to_thread(_read, f"{url.rstrip('/')}/model_info")
    except (OSError, ValueError, urllib.error.URLError) as error:
        # An engine beside its worker listens in its pod only: from elsewhere it can't be seen, and that is no fault.
        return Finding(f"engine {url}", True, f"not reachable from here ({error}); its worker's state says how it is")
    return Finding(f"engine {url}", True, _LIVES)


async def _weights(urls: Sequence[str]) -> list[Finding]:
    """Whether engines of one version have equal weights, as far as they tell."""
    told = await asyncio.gather(*(asyncio.to_thread(_checksum, url) for url in urls))
    of_version: dict[str, dict[str, list[str]]] = {}
    for url, answer in zip(urls, told, strict=True):
        if answer is not None:
            version, checksum = answer
            of_version.setdefault(version, {}).setdefault(checksum, []).append(url)
    return [_compared(version, of_sum) for version, of_sum in sorted(of_version.items())]


def _compared(version: str, of_sum: Mapping[str, Sequence[str]]) -> Finding:
    what = f"weights of version {version}"
    if len(of_sum) == 1:
        return Finding(what, True, f"{len(next(iter(of_sum.values())))} engines have the same")
    *fewest, most = sorted(of_sum.values(), key=len)
    others = ", ".join(url for urls in fewest for url in urls)
    return Finding(what, False, f"{others} has other weights than {most[0]}: start it anew, and its worker loads them")


def _checksum(url: str) -> tuple[str, str] | None:
    """(version, checksum over all weights); None: the engine does not tell."""
    try:
        version = json.loads(_read(f"{url.rstrip('/')}/model_info"))["weight_version"]
        ask = {"action": "checksum"}
        checksum = json.loads(_read(f"{url.rstrip('/')}/weights_checker", ask, _CHECKSUM_SECONDS))
        return str(version), str(checksum["per_engine_checksum"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _read(url: str, body: object = None, seconds: float = _ENGINE_SECONDS) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=seconds) as answer:
        return answer.read()
