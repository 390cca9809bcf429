"""What an operator in a cluster knows of its pods, as it lies in Redis: the status service has no right in the cluster.

Invariants: a report is one value, so that nobody sees half of it; it carries the server's time at which it was true,
and is kept for an hour after the operator has gone, so that who reads it can say how old it is. All keys of a fleet
share a hash tag that no run can have.
"""

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from rolloutfleet.answers import as_scores, server_ms
from rolloutfleet.calls import Arg, Calls
from rolloutfleet.keys import VERSION

FLEET_NAME = re.compile(r"[a-z0-9][-a-z0-9]*/[a-z0-9][-a-z0-9.]*")
FLEETS = f"{VERSION}:fleets"  # ZSET  fleet -> server ms of its last report
KEPT_SECONDS = 3600
_MOST_FLEETS = 256


class FleetKeys:
    """The keys of one fleet `<namespace>/<release>`. Anything else is a ValueError that says so."""

    def __init__(self, fleet: str) -> None:
        if not FLEET_NAME.fullmatch(fleet):
            raise ValueError(f"fleet {fleet!r}: it must be <namespace>/<release>, in lower case")
        prefix = f"{VERSION}:{{fleet:{fleet}}}:"
        self.fleet = fleet
        self.pods = prefix + "pods"  # STRING  the last report, as JSON
        self.marks = prefix + "marks"  # HASH  worker -> JSON: the drains that the operator told
        self.operator = prefix + "operator"  # HASH  what one leader leaves to the next


class _Value(BaseModel):
    # A newer operator may say more than an older reader knows.
    model_config = ConfigDict(frozen=True, extra="ignore")


class PodReport(_Value):
    """One pod, and the first thing that is to be said of it."""

    name: str
    uid: str
    pool: Annotated[str, Field(description="Its Deployment.")]
    node: str = ""
    phase: str = "Unknown"
    is_ready: bool = False
    reason: Annotated[str, Field(description="A word of the catalogue of reasons.")]
    sentence: str
    advice: Annotated[str, Field(description="What to do; empty: nothing.")] = ""
    restarts: int = 0
    since_ms: Annotated[int | None, Field(description="Server time from which this reason has held.")] = None


class PoolReport(_Value):
    """One Deployment of workers."""

    name: str
    replicas: Annotated[int | None, Field(description="spec.replicas; null: not known.")] = None
    ready: int | None = None
    wanted: Annotated[int | None, Field(description="Workers that are wanted; null: another decides, or not known.")]
    problem: Annotated[str, Field(description="What keeps it from what is wanted; empty: nothing.")] = ""
    advice: str = ""


class FleetReport(_Value):
    """What the operator of one fleet knew at `at_ms` (server time)."""

    fleet: str
    run: str
    at_ms: int
    operator: Annotated[str, Field(description="The leader's name.")]
    owner: Annotated[str, Field(description="Who decides the number: fixed, operator or keda.")]
    sentence: Annotated[str, Field(description="Why so many workers, and what the operator waits for.")]
    problem: Annotated[str, Field(description="Why the cluster can't be seen; empty: it can.")] = ""
    pools: tuple[PoolReport, ...] = ()
    pods: tuple[PodReport, ...] = ()


async def write_report(calls: Calls, report: FleetReport) -> None:
    """Replaces the fleet's report. Errors: BrokerUnavailable."""
    keys = FleetKeys(report.fleet)
    oldest = report.at_ms - KEPT_SECONDS * 1000
    await calls.read(
        [
            ["SET", keys.pods, report.model_dump_json(), "EX", KEPT_SECONDS],
            ["ZADD", FLEETS, report.at_ms, report.fleet],
            ["ZREMRANGEBYSCORE", FLEETS, "-inf", oldest],
        ]
    )


async def read_reports(calls: Calls) -> tuple[int, list[FleetReport]]:
    """(server ms, the last report of each fleet on this server). Errors: BrokerUnavailable."""
    time, fleets = await calls.read([["TIME"], ["ZREVRANGE", FLEETS, 0, _MOST_FLEETS - 1, "WITHSCORES"]])
    names = [name for name in as_scores(fleets) if FLEET_NAME.fullmatch(name)]
    commands: list[list[Arg]] = [["GET", FleetKeys(name).pods] for name in names]
    found = await calls.read(commands) if commands else []
    return server_ms(time), [report for report in map(_report, found) if report]


def _report(text: Any) -> FleetReport | None:
    """None: it has expired, or is of a version that this one can't read."""
    try:
        return FleetReport.model_validate_json(text) if isinstance(text, bytes) else None
    except ValueError:
        return None
