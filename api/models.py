"""What the API answers: a model for every reply, with its unit in each description.

Invariants: an unknown number is null, never 0; times are seconds (`_seconds`) or unix ms (`_ms`); counts are groups
unless the name says samples or slots. Fields are only added: the page, dashboards and other programs build on them.
"""

from typing import Annotated, Literal

from api.fleet_models import FleetView
from api.model import Model, said
from rolloutfleet.settings import RunConfig
from rolloutfleet.stuck import Cause
from rolloutfleet.window import Reason, Refill

type RedisWord = Literal["ok", "away", "starting"]


# The run: what holds it back


class Shares(Model):
    """How the time of a span was spent, by the reason at the gate. Time in which no worker asked is in none."""

    seconds: Annotated[float, said("Length of the span.", 300.0)]
    observed_seconds: Annotated[float, said("The part of it in which workers asked the gate.", 298.5)]
    shares: Annotated[
        dict[str, float],
        said(
            "Reason -> fraction (0 to 1) of the observed time; sums to 1, empty if nothing was observed.", {"open": 1}
        ),
    ]


class Losses(Model):
    """Groups that became dead letters. Where the long ones are lost, the trainer learns to be brief."""

    causes: Annotated[dict[str, int], said("timeout, context, stale, other, unknown -> groups.", {"timeout": 3})]
    deciles: Annotated[list[int] | None, said("Lost groups by tenths of the completed lengths; null: none completed.")]
    is_biased: Annotated[bool, said("More than half of at least ten were as long as the longest tenth.")]


class Gate(Model):
    """May a worker claim a group now, and if not, why: the first thing to look at."""

    reason: Annotated[Reason | Literal["stuck"], said("open, stuck, or what holds the fleet back.", "completed_full")]
    at_gate: Annotated[Reason, said("The same without the watchdog: what a claim would be answered.", "completed_full")]
    is_open: Annotated[bool, said("A worker that asks now is granted a group.", False)]
    sentence: Annotated[
        str, said("The reason for a person.", "the trainer is the bottleneck: completed groups wait to be taken")
    ]
    advice: Annotated[str, said("What to do about it; empty: nothing.", "fewer GPUs for rollouts would do")]
    since_seconds: Annotated[
        float | None, said("For how long this reason has held; null: unknown (nobody asked since).", 12.5)
    ]
    last_5_minutes: Annotated[Shares | None, said("null: this process is younger than that.")]
    last_hour: Annotated[Shares | None, said("null: this process is younger than that.")]
    whole_run: Annotated[Shares | None, said("Since the run was made.")]


class Stuck(Model):
    """No group was completed for `stuck_seconds`, although prompts wait and the window is open or full of work."""

    cause: Annotated[Cause, said("The likely reason.", "slow_group")]
    sentence: Annotated[
        str, said("The same for a person.", "group gsm8k-17 has been held by pod-3/1700000000000 for 42 min")
    ]
    seconds: Annotated[float, said("Since nothing was completed.", 1260.0)]
    group: Annotated[str | None, said("The group that has been held for longest, if that is the cause.", "gsm8k-17")]


class WindowView(Model):
    """The window, in groups. As a picture: `active` and `waiting`, each against `size`, and `place_left`."""

    sample_concurrency: Annotated[int, said("Samples that the fleet may hold at once.", 512)]
    source: Annotated[
        Literal["fixed", "auto"], said("fixed: set in the config; auto: the slots of all live workers.", "auto")
    ]
    n: Annotated[int, said("Samples of a group that does not say its own.", 8)]
    overcommit: Annotated[int, said("Permille by which the window exceeds the samples.", 1000)]
    refill: Annotated[Refill, said("When a place is free: a whole group is done, or n samples are.", "group")]
    size: Annotated[int, said("W: the most groups that may be active, and the most that may wait.", 64)]
    active: Annotated[int, said("Groups that workers hold (leases).", 60)]
    used: Annotated[int, said("Active groups as the gate counts them (refill = sample: outstanding / n).", 60)]
    outstanding_samples: Annotated[int, said("Samples of the active groups that are not finished.", 301)]
    waiting: Annotated[int, said("Completed groups that no trainer has taken.", 3)]
    taken: Annotated[int, said("Completed groups that a trainer holds, not yet acked.", 32)]
    pace_left: Annotated[int | None, said("Groups that max_staleness leaves until the next update; null: no bound.", 8)]
    place_left: Annotated[
        int, said("Groups that may be claimed now if they are in line; 0 while the gate is closed.", 4)
    ]


class Queue(Model):
    """One line of groups."""

    groups: Annotated[int, said("How many are in it.", 1200)]
    oldest_seconds: Annotated[
        float | None,
        said("Age of the first in line since it was submitted (dead: since it died); null: empty or not known.", 41.0),
    ]


class Queues(Model):
    """Where groups wait, in the order of their way."""

    prompts: Annotated[Queue, said("Submitted, never claimed yet (or recycled).")]
    again: Annotated[Queue, said("Given back or failed, waiting for another attempt.")]
    waiting: Annotated[Queue, said("Completed, not yet taken; its age is since the completion.")]
    dead: Annotated[Queue, said("Given up. They wait for a person.")]


class Rate(Model):
    """What was finished, per second over a span; null: this process is younger than that, or it is not counted."""

    groups: Annotated[float | None, said("Groups completed per second.", 2.5)]
    samples: Annotated[float | None, said("Samples stored per second.", 20.1)]
    tokens: Annotated[float | None, said("Tokens generated per second; null where workers do not count them.", 8100.0)]


class Rates(Model):
    """Rates over three spans."""

    minute: Rate
    five_minutes: Rate
    fifteen_minutes: Rate


class Slots(Model):
    """The sample slots of all live workers' engines."""

    busy: Annotated[int | None, said("In use now, as the workers last told; null: none of them says.", 230)]
    total: Annotated[int, said("All.", 256)]
    utilisation: Annotated[float | None, said("Busy share (0 to 1) of the slots' time over the last minute.", 0.91)]
    utilisation_5_minutes: Annotated[float | None, said("The same over 5 min.", 0.9)]
    with_refill_sample: Annotated[
        float | None,
        said("Estimated utilisation if refill were sample; null: it is, or the time is too short to say.", 0.98),
    ]


class Worker(Model):
    """A live worker process, as it last told of itself."""

    name: Annotated[str, said("Pod and process start in ms.", "pod-3/1700000000000")]
    pod: Annotated[str, said("Its pod.", "pod-3")]
    host: Annotated[str | None, said("Name of its machine or pod.", "rollout-7f9c-x2x4v")]
    state: Annotated[str, said("ready, draining, or why it does not claim; unknown if it does not say.", "ready")]
    reason: Annotated[str, said("The state for a person; empty if there is nothing to say.", "")]
    is_draining: Annotated[bool, said("It was told to drain: it finishes what it holds and claims no more.", False)]
    slots: Annotated[int, said("Sample slots that it offers.", 32)]
    busy: Annotated[int | None, said("Slots in use.", 30)]
    held: Annotated[int | None, said("Groups that it holds (leases).", 4)]
    weight_version: Annotated[str | None, said("Of its engine, as the engine says it.", "7")]
    engine: Annotated[str | None, said("Address of its engine.", "http://127.0.0.1:30000")]
    heartbeat_seconds: Annotated[float, said("Age of its last heartbeat.", 3.2)]
    lease_seconds: Annotated[float, said("Time left until it counts as gone.", 56.8)]
    pod_name: Annotated[str | None, said("Name of its pod in the cluster.", "rollouts-worker-7f9c-x2x4v")] = None
    node: Annotated[str | None, said("The node that it runs on.", "gpu-7")] = None
    pod_reason: Annotated[str | None, said("What is to be said of its pod; null: no operator says.", "ready")] = None
    advice: Annotated[str, said("What to do about its pod; empty: nothing, or no operator says.", "")] = ""


class TrainerView(Model):
    """A consumer of the completed groups."""

    consumer: Annotated[str, said("Its name.", "rank-0")]
    taken: Annotated[int, said("Groups that it holds, not yet acked.", 32)]
    idle_seconds: Annotated[float, said("Since it last asked for groups or touched one.", 2.0)]
    oldest_seconds: Annotated[
        float | None, said("Age since completion of the oldest group that it holds; null: it holds none.", 31.0)
    ]


class WeightsView(Model):
    """How far the fleet is with the weights that the trainer published last."""

    mode: Annotated[str, said("What becomes of running requests; external: the trainer's affair.", "retract")]
    workers_current: Annotated[int, said("Live workers whose engine serves them.", 6)]
    workers_failed: Annotated[int, said("Live workers that could not load them, and are left out.", 0)]
    stood: Annotated[float | None, said("Share (0 to 1) of the slots' time that updates took; null: unknown.", 0.004)]


class Staleness(Model):
    """How many weight versions the newest completed groups are behind the published one."""

    groups: Annotated[int, said("Groups looked at: the newest ones, at most 200.", 200)]
    unknown: Annotated[int, said("Of these, groups whose engine did not say its version.", 0)]
    histogram: Annotated[dict[int, int], said("Versions behind -> groups.", {"0": 150, "1": 50})]
    mean: Annotated[float | None, said("Mean over those whose version is known.", 0.25)]


class DesiredWorkers(Model):
    """How many workers the run can use: the number that an autoscaler follows."""

    desired_workers: Annotated[int, said("Workers.", 7)]
    reason: Annotated[str, said("Why this number.", "prompts wait and all slots are busy")]
    age_seconds: Annotated[float, said("Age of the data that it is computed from; at most 30.", 0.4)]


class RunStatus(Model):
    """All about one run, as it was `age_seconds` before `at_ms`."""

    name: Annotated[str, said("Name of the run.", "math")]
    age_seconds: Annotated[
        float, said("Age of this data at `at_ms` of the reply. Show it, above all when it grows.", 0.3)
    ]
    problem: Annotated[
        str | None, said("Why its data is old although Redis answers, or cannot be read; null: nothing is wrong.")
    ] = None
    gate: Gate
    stuck: Annotated[Stuck | None, said("null: it is not stuck.")]
    window: WindowView
    queues: Queues
    rates: Rates
    slots: Slots
    workers: Annotated[list[Worker], said("Live workers, by name.")]
    fleets: Annotated[tuple[FleetView, ...], said("Fleets in clusters that serve it; empty: no operator reports.")] = ()
    trainers: Annotated[list[TrainerView], said("Consumers, by name; at most 256.")]
    staleness: Annotated[Staleness | None, said("null: no weight version was published.")]
    judged: Annotated[
        dict[str, dict[str, int]],
        said(
            "trained, recycled, dropped -> versions behind the trainer -> groups.", {"trained": {"0": 9, "unknown": 1}}
        ),
    ]
    weights: Annotated[WeightsView | None, said("null: nothing was published.")] = None
    weight_version: Annotated[int | None, said("The version that the trainer published last; null: none.", 7)]
    weight_label: Annotated[str | None, said("The trainer's own name for it.", "step 8")]
    eta_seconds: Annotated[
        float | None,
        said("Time until all groups in line and at work are completed, at the rate of the last minutes.", 480.0),
    ]
    desired_workers: Annotated[int | None, said("See /desired_workers; null: not known.", 7)]
    losses: Losses
    counters: Annotated[dict[str, int], said("Counters since the run began (docs/protocol.md).", {"completed": 91})]
    config: RunConfig


# The reply around it


class RedisView(Model):
    """Does the broker answer? While it does not, the last data stays, with its age."""

    state: Annotated[RedisWord, said("ok; away: slow, or no answer; starting: not asked yet.", "ok")]
    reason: Annotated[str | None, said("Why it is away.", "connection refused")]
    age_seconds: Annotated[float | None, said("Since it last answered; null: never yet.", 0.3)]


class ServerView(Model):
    """The Redis or Valkey behind it. null: the server does not tell."""

    name: Annotated[str, said("valkey or redis.", "valkey")]
    version: Annotated[str, said("Its version.", "9.1.0")]
    used_memory_bytes: Annotated[int | None, said("Memory in use.", 73_400_320)]
    maxmemory_bytes: Annotated[int | None, said("Bound of the memory; 0: none.", 0)]
    maxmemory_policy: Annotated[str | None, said("Must be noeviction.", "noeviction")]
    has_aof: Annotated[bool | None, said("The append-only file is on: a restart loses nothing.", True)]
    problems: Annotated[list[str], said("What should be mended, a sentence each.", [])]


class StatusReply(Model):
    """The snapshot: what /status answers and what each event of /events carries."""

    at_ms: Annotated[int, said("When this was put together, by this service's clock.", 1_764_433_380_000)]
    redis: RedisView
    server: Annotated[ServerView | None, said("null: it has not told yet.")]
    has_actions: Annotated[bool, said("A token is configured: actions are possible.", False)]
    runs: Annotated[list[RunStatus], said("All runs on this Redis (or the one asked for), by name.")]


class RunReply(Model):
    """One run: what /status/{run} answers."""

    at_ms: Annotated[int, said("When this was put together, by this service's clock.", 1_764_433_380_000)]
    redis: RedisView
    server: Annotated[ServerView | None, said("null: it has not told yet.")]
    has_actions: Annotated[bool, said("A token is configured: actions are possible.", False)]
    run: RunStatus


class WorkersReply(Model):
    """The table of workers as data."""

    run: Annotated[str, said("Name of the run.", "math")]
    age_seconds: Annotated[float, said("Age of this data.", 0.3)]
    workers: list[Worker]


class History(Model):
    """The last minutes as columns of equal length, oldest first; a gap in the data is a gap in `at_ms`."""

    run: Annotated[str, said("Name of the run.", "math")]
    step_seconds: Annotated[float, said("Nominal time between two points.", 5.0)]
    at_ms: Annotated[list[int], said("Time of each point.", [1_764_433_380_000])]
    reason: Annotated[list[Reason], said("What the gate's reason was.", ["open"])]
    slots_busy: Annotated[list[int | None], said("Busy slots as the workers told.", [230])]
    slots_total: Annotated[list[int], said("All slots.", [256])]
    active: Annotated[list[int], said("Active groups.", [60])]
    waiting: Annotated[list[int], said("Groups that wait for a trainer.", [3])]
    queued: Annotated[list[int], said("Groups in prompts and again.", [1200])]
    window: Annotated[list[int], said("W.", [64])]
    groups_per_second: Annotated[
        list[float | None], said("Completed since the point before; null at the first.", [2.5])
    ]
    samples_per_second: Annotated[list[float | None], said("Stored since the point before.", [20.1])]
    tokens_per_second: Annotated[list[float | None], said("Generated since the point before.", [8100.0])]


# Probes and refusals


class Health(Model):
    """This process."""

    status: Annotated[Literal["ok"], said("It runs.", "ok")]


class Ready(Model):
    """It serves. Redis away is in the body, not in the code: a page that is out of the service can't say so."""

    status: Annotated[Literal["ok"], said("It serves.", "ok")]
    redis: RedisView


class Refusal(Model):
    """Why a request was not answered, and the mend."""

    detail: Annotated[str, said("One sentence.", "there is no run 'maths'")]
    runs: Annotated[list[str] | None, said("Known runs, where the name of the run was wrong.", ["math"])] = None
