"""Snapshots for the page: a run that works, and what tests change of it."""

import time
from typing import Any

from api.fleet_models import FleetView
from api.models import (
    Gate,
    History,
    Queue,
    Queues,
    Rate,
    Rates,
    RedisView,
    RunStatus,
    ServerView,
    Shares,
    Slots,
    Staleness,
    StatusReply,
    TrainerView,
    WindowView,
    Worker,
)
from rolloutfleet.settings import RunConfig
from rolloutfleet.window import Reason

POINTS = 180
STEP_MS = 5000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def gate(reason: str = "completed_full", **changes: Any) -> Gate:
    shares = Shares(
        seconds=300, observed_seconds=298, shares={"open": 0.62, "active_full": 0.2, "completed_full": 0.18}
    )
    known = {
        "reason": reason,
        "at_gate": "open" if reason == "stuck" else reason,
        "is_open": reason == "open",
        "sentence": Reason(reason).sentence if reason != "stuck" else "nothing is completed although prompts wait",
        "advice": "fewer GPUs for rollouts would do; or let the trainer take more at once",
        "since_seconds": 12.5,
        "last_5_minutes": shares,
        "last_hour": None,
        "whole_run": shares,
    }
    return Gate.model_validate({**known, **changes})


def worker(number: int, **changes: Any) -> Worker:
    known = {
        "name": f"pod-{number}/1700000000000",
        "pod": f"pod-{number}",
        "host": f"rollout-7f9c-x2x{number}",
        "state": "ready",
        "reason": "",
        "is_draining": False,
        "slots": 32,
        "busy": 30,
        "held": 8,
        "weight_version": "7",
        "engine": "http://127.0.0.1:30000",
        "heartbeat_seconds": 3.2,
        "lease_seconds": 56.8,
    }
    return Worker.model_validate({**known, **changes})


def run_status(name: str = "math", **changes: Any) -> RunStatus:
    """A run of eight workers behind a trainer that is slower than they are."""
    known = {
        "name": name,
        "age_seconds": 0.3,
        "problem": None,
        "gate": gate(),
        "stuck": None,
        "window": WindowView(
            sample_concurrency=256,
            source="auto",
            n=8,
            overcommit=1000,
            refill="group",
            size=32,
            active=27,
            used=27,
            outstanding_samples=131,
            waiting=32,
            taken=16,
            pace_left=None,
            place_left=0,
        ),
        "queues": Queues(
            prompts=Queue(groups=1200, oldest_seconds=641.0),
            again=Queue(groups=3, oldest_seconds=None),
            waiting=Queue(groups=32, oldest_seconds=44.0),
            dead=Queue(groups=2, oldest_seconds=7300.0),
        ),
        "rates": Rates(
            minute=Rate(groups=2.53, samples=20.1, tokens=81234.0),
            five_minutes=Rate(groups=2.31, samples=18.7, tokens=79012.0),
            fifteen_minutes=Rate(groups=None, samples=None, tokens=None),
        ),
        "slots": Slots(busy=230, total=256, utilisation=0.91, utilisation_5_minutes=0.9, with_refill_sample=0.98),
        "workers": workers(),
        "trainers": [
            TrainerView(consumer="rank-0", taken=16, idle_seconds=2.0, oldest_seconds=31.0),
            TrainerView(consumer="rank-1", taken=0, idle_seconds=70.0, oldest_seconds=None),
        ],
        "staleness": Staleness(groups=200, unknown=0, histogram={0: 150, 1: 50}, mean=0.25),
        "judged": {"trained": {"0": 700, "2": 12}, "recycled": {"5": 3}, "dropped": {}},
        "losses": {"causes": {"timeout": 12}, "deciles": [0, 0, 0, 0, 0, 0, 0, 0, 1, 11], "is_biased": True},
        "weight_version": 7,
        "weight_label": "step 8",
        "eta_seconds": 480.0,
        "desired_workers": 7,
        "counters": {"completed": 910, "acked": 862, "samples": 7280},
        "config": RunConfig(),
    }
    return RunStatus.model_validate({**known, **changes})


def fleet(**changes: Any) -> FleetView:
    """A fleet of two pods, one of which finds no node."""
    waits = {
        "name": "rollouts-worker-1",
        "uid": "u-1",
        "fleet": "ml/rollouts",
        "pool": "rollouts-worker",
        "node": None,
        "phase": "Pending",
        "is_ready": False,
        "reason": "needs_gpu",
        "sentence": "it needs a GPU that no node has free",
        "advice": "add GPU nodes",
        "restarts": 0,
        "since_seconds": 42.0,
    }
    works = {"name": "rollouts-worker-0", "uid": "u-0", "node": "gpu-7", "phase": "Running", "is_ready": True}
    works |= {"reason": "ready", "sentence": "it works", "advice": ""}
    known = {
        "fleet": "ml/rollouts",
        "age_seconds": 1.2,
        "is_old": False,
        "operator": "operator-0",
        "owner": "fixed",
        "sentence": "fixed, rollouts-worker: 2",
        "problem": "",
        "pools": [
            {"name": "rollouts-worker", "replicas": 2, "ready": 1, "wanted": 2, "problem": "", "advice": ""},
        ],
        "pods": [waits, waits | works],
    }
    return FleetView.model_validate({**known, **changes})


def workers() -> list[Worker]:
    draining = {"state": "ready", "is_draining": True, "reason": "told to drain: 2 leases left", "busy": 5, "held": 2}
    starting = {
        "state": "engine not ready",
        "reason": "the engine loads its weights",
        "busy": None,
        "held": None,
        "weight_version": None,
    }
    late = {"heartbeat_seconds": 44.0, "lease_seconds": 16.0}
    odd: dict[int, dict[str, Any]] = {2: draining, 5: starting, 6: late}
    return [worker(number, **odd.get(number, {})) for number in range(8)]


def reply(*runs: RunStatus, **changes: Any) -> StatusReply:
    known = {
        "at_ms": now_ms(),
        "redis": RedisView(state="ok", reason=None, age_seconds=0.3),
        "server": ServerView(
            name="valkey",
            version="9.1.0",
            used_memory_bytes=73_400_320,
            maxmemory_bytes=0,
            maxmemory_policy="noeviction",
            has_aof=True,
            problems=[],
        ),
        "has_actions": False,
        "runs": list(runs or [run_status()]),
    }
    return StatusReply.model_validate({**known, **changes})


def history(name: str, points: int = POINTS) -> History:
    """A quarter of an hour with a pause of 90 s in the record, and a trainer that falls behind at its end."""
    end = now_ms()
    kept = [index for index in range(points) if not 60 <= index < 78]
    late = [index > 0.8 * points for index in kept]
    return History(
        run=name,
        step_seconds=STEP_MS / 1000,
        at_ms=[end - (points - 1 - index) * STEP_MS for index in kept],
        reason=[Reason.COMPLETED_FULL if it else Reason.OPEN for it in late],
        slots_busy=[180 + (index * 37) % 71 - (60 if it else 0) for index, it in zip(kept, late, strict=True)],
        slots_total=[256 if index > 30 else 192 for index in kept],
        active=[27 for _ in kept],
        waiting=[32 if it else (index * 7) % 20 for index, it in zip(kept, late, strict=True)],
        queued=[1200 for _ in kept],
        window=[32 for _ in kept],
        groups_per_second=[2.5 for _ in kept],
        samples_per_second=[15 + (index * 13) % 9 if index else None for index in kept],
        tokens_per_second=[None for _ in kept],
    )
