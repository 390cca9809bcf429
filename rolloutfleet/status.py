"""One look at a run: window, gate and reason, queues, workers. Shared by the command line, the main job and the API.

Invariants: one round trip, and only commands whose cost does not grow with the queues (with the workers it does); an
unknown number is None, never 0.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from rolloutfleet.answers import as_scores, as_texts, run_ms, server_ms, trainer_group
from rolloutfleet.broker import Broker
from rolloutfleet.calls import Arg
from rolloutfleet.errors import ProtocolMismatch, RunMissing
from rolloutfleet.keys import CONFIGS, Keys, run_of
from rolloutfleet.lengths import Losses, is_length, losses_of
from rolloutfleet.policy import Policy
from rolloutfleet.settings import RunConfig
from rolloutfleet.window import Pace, Reason, Window

type Texts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A live worker as it last told of itself. `lease_seconds`: what is left until it counts as gone."""

    name: str
    slots: int
    lease_seconds: float
    facts: Mapping[str, Any]
    draining: bool


@dataclass(frozen=True, slots=True)
class Status:
    """A run at one moment. Counts are groups unless they say samples; times are seconds."""

    run: str
    config: RunConfig
    window: Window
    prompts: int
    again: int
    again_seconds: float | None  # until the first of `again` may be claimed; None: there is none
    dead: int
    stats: Texts
    gate: str  # what the last claim was answered
    gate_seconds: float | None  # since when it is answered so
    workers: Sequence[WorkerStatus]
    state: Texts = field(default_factory=dict[str, str])  # what the steps keep: epoch, gate_at, shift
    now_ms: int = 0  # server time of this look
    policy: Policy | None = None  # None: no weights were published

    @property
    def taken(self) -> int:
        """Completed groups that a trainer holds."""
        return self.window.taken

    @property
    def queued(self) -> int:
        return self.prompts + self.again

    @property
    def is_claimable(self) -> bool:
        """Whether a group waits that may be claimed now."""
        return self.prompts > 0 or (self.again_seconds is not None and self.again_seconds <= 0)

    @property
    def reason(self) -> Reason:
        """What holds the fleet back now. Computed from the numbers: the last claim may be long ago."""
        closed = self.window.closed()
        if closed or not self.is_claimable:
            return closed or Reason.NO_PROMPTS
        return Reason.BUSY if self.gate == Reason.BUSY else Reason.OPEN

    @property
    def sentence(self) -> str:
        """Why the fleet idles, or that it does not."""
        if self.reason is Reason.OPEN and not self.workers:
            return "no worker is alive"
        if self.reason is Reason.NO_PROMPTS and self.again:
            return "no prompt group may be claimed yet: those that wait were given back, for a later attempt"
        return self.reason.sentence

    @property
    def seconds_behind(self) -> dict[str, float]:
        """Time that the gate spent behind each reason since the run began."""
        behind = {name.removeprefix("behind:"): ms for name, ms in self.stats.items() if name.startswith("behind:")}
        return {reason: int(ms) / 1000 for reason, ms in sorted(behind.items())}

    @property
    def judged(self) -> dict[str, dict[str, int]]:
        """trained, recycled, dropped -> versions behind their trainer ("0" to "20" or more, "unknown") -> groups."""
        found: dict[str, dict[str, int]] = {"trained": {}, "recycled": {}, "dropped": {}}
        for name, number in self.stats.items():
            fate, mark, behind = name.partition("_staleness:")
            if mark and fate in found:
                found[fate][behind] = int(number)
        return {fate: dict(sorted(each.items(), key=_in_order)) for fate, each in found.items()}

    @property
    def workers_current(self) -> int | None:
        """Live workers whose engine serves the policy; None: nothing was published."""
        version = self.policy and str(self.policy.version)
        return None if version is None else sum(it.facts.get("weight_version") == version for it in self.workers)

    @property
    def stood(self) -> float | None:
        """The share of all slots' time for which new weights let no request in; None: nobody has reported any."""
        slot_ms = self.stat("slot_ms")
        return min(1.0, self.stat("updating_ms") / slot_ms) if slot_ms else None

    @property
    def losses(self) -> Losses:
        """Dead groups by cause and by length."""
        return losses_of(self.stats)

    def stat(self, name: str) -> int:
        """A counter; 0 when nothing was counted yet."""
        return int(self.stats.get(name, 0))

    @property
    def counters(self) -> dict[str, int]:
        """What is counted, without what `seconds_behind` and `losses` say better."""
        return {
            name: int(value)
            for name, value in self.stats.items()
            if not name.startswith("behind:") and not is_length(name)
        }

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json."""
        return {
            "run": self.run,
            "reason": self.reason,
            "sentence": self.sentence,
            "gate": self.gate,
            "gate_seconds": self.gate_seconds,
            "window": self.window.size,
            "active": self.window.active,
            "used": self.window.used,
            "outstanding": self.window.outstanding,
            "waiting": self.window.waiting,
            "taken": self.taken,
            "pace_left": self.window.pace_left,
            "prompts": self.prompts,
            "again": self.again,
            "dead": self.dead,
            "seconds_behind": self.seconds_behind,
            "judged": self.judged,
            "policy": asdict(self.policy) if self.policy else None,
            "workers_current": self.workers_current,
            "stood": self.stood,
            "losses": {"causes": dict(self.losses.causes), "deciles": self.losses.deciles},
            "stats": self.counters,
            "config": self.config.model_dump(),
            "workers": [
                {"name": worker.name, "slots": worker.slots, "draining": worker.draining, **worker.facts}
                for worker in self.workers
            ],
        }


def _in_order(pair: tuple[str, int]) -> tuple[int, str]:
    return (int(pair[0]) if pair[0].isdigit() else 10**6, pair[0])


async def read_status(broker: Broker) -> Status:
    """Reads the run. Errors: RunMissing, BrokerUnavailable."""
    status = status_of(broker.keys.run, await broker.calls.read(status_commands(broker.keys)))
    if status is None:
        raise await _missing(broker)
    return status


def status_commands(keys: Keys) -> list[list[Arg]]:
    """What `status_of` needs to be asked of Redis, for whoever asks more in the same round trip."""
    key = keys.named
    return [
        ["HGETALL", key("config")],
        ["HGETALL", key("state")],
        ["HGETALL", key("stats")],
        ["HGETALL", key("capacity")],
        ["ZRANGE", key("workers"), 0, -1, "WITHSCORES"],
        ["ZRANGE", key("draining"), 0, -1],
        ["ZCARD", key("leases")],
        ["GET", key("outstanding")],
        ["LLEN", key("prompts")],
        ["ZCARD", key("again")],
        ["ZRANGE", key("again"), 0, 0, "WITHSCORES"],
        ["XLEN", key("dead")],
        ["XLEN", key("completed")],
        ["XINFO", "GROUPS", key("completed")],
        ["TIME"],
        ["HGETALL", key("policy")],
    ]


def status_of(run: str, answers: Sequence[Any]) -> Status | None:
    """The status in the answers to `status_commands`; None: there is no such run."""
    config, state, stats, capacity = (as_texts(answer) for answer in answers[:4])
    if not config:
        return None
    deadlines, draining, active, outstanding, prompts, again, due, dead, entries, groups, time, policy = answers[4:]
    now, run_now = server_ms(time), run_ms(time, state.get("shift"))
    taken, _ = trainer_group(groups)
    settings = RunConfig.from_fields(config)
    window = _window(settings, state, active, int(outstanding or 0), max(0, entries - taken), taken)
    return Status(
        run,
        settings,
        window,
        prompts,
        again,
        next(((at - run_now) / 1000 for at in as_scores(due).values()), None),
        dead,
        stats,
        state.get("gate", "unknown"),
        (now - int(state["gate_since"])) / 1000 if "gate_since" in state else None,
        _workers(deadlines, capacity, {name.decode() for name in draining}, run_now),
        state,
        now,
        _policy(as_texts(policy)),
    )


def _policy(fields: Texts) -> Policy | None:
    try:
        return Policy.from_fields(fields)
    except (ProtocolMismatch, ValueError):  # of a newer process, or by hand: the rest is worth showing
        return None


def _window(config: RunConfig, state: Texts, active: int, outstanding: int, waiting: int, taken: int) -> Window:
    samples = config.sample_concurrency
    return Window(
        samples=int(state.get("slots", 0)) if samples == "auto" else samples,
        n=config.n,
        active=active,
        outstanding=outstanding,
        waiting=waiting,
        taken=taken,
        refill=config.refill,
        overcommit=config.permille,
        open_cap=config.open_cap,
        paused=config.paused,
        pace=_pace(config, state),
    )


def _pace(config: RunConfig, state: Texts) -> Pace | None:
    """The books as parts/pace.lua reads them."""
    if config.max_staleness == "off" or not config.groups_per_update:
        return None
    updates, trained = (int(state.get(name, 0)) - int(state.get(f"{name}_from", 0)) for name in ("updates", "trained"))
    return Pace(config.max_staleness, config.groups_per_update, updates, trained)


def _workers(deadlines: Any, capacity: Texts, draining: set[str], now: int) -> list[WorkerStatus]:
    # Expired ones are dropped by the heartbeats of others, of which there may be none.
    found: list[WorkerStatus] = []
    for name, deadline in as_scores(deadlines).items():
        facts = json.loads(capacity.get(f"{name}:facts", "{}"))
        left = (deadline - now) / 1000
        if left > 0:
            found.append(WorkerStatus(name, int(capacity.get(name, 0)), left, facts, name in draining))
    return found


async def require_run(broker: Broker) -> None:
    """A step on a run that isn't there would make a second one out of a slip of the pen. Errors: RunMissing."""
    if not await broker.config_fields():
        raise await _missing(broker)


async def _missing(broker: Broker) -> RunMissing:
    runs = ", ".join(await known_runs(broker)) or "none"
    return RunMissing(f"there is no run {broker.keys.run!r} (runs here: {runs}): `rolloutfleet configure` makes it")


async def known_runs(broker: Broker) -> list[str]:
    """Names of the runs on this server that have a config."""
    keys = cast(AsyncIterator[bytes], broker.client.scan_iter(match=CONFIGS, count=1000))
    return sorted([run_of(key.decode()) async for key in keys])
