"""The catalogue of reasons: each word comes from a status as Kubernetes writes it, and stands in docs/operations.md."""

import re
from pathlib import Path
from typing import Any

import pytest

from deploy.operator.objects import pod_of
from deploy.operator.pools import POOLS
from deploy.operator.reasons import CATALOGUE, TROUBLES, Told, reason_of
from rolloutfleet.status import WorkerStatus
from tests.deploy.operator.statuses import UID, condition, over, placed, pod, running, unplaced, up, waiting

DOCS = Path(__file__).parents[3] / "docs" / "operations.md"
NOT_YET = waiting("worker", "PodInitializing")


def told(*, draining: bool = False, groups: int = 0, leaving: str = "", version: str = "", **facts: Any) -> Told:
    """What the broker knows of the pod's worker."""
    worker = WorkerStatus(
        name=f"{UID}/1767225640000", lease_seconds=30.0, slots=64, facts={"state": "ready"} | facts, draining=draining
    )
    return Told([worker], groups, leaving, version)


SILENT = Told(())
GPU = "0/12 nodes are available: 12 Insufficient nvidia.com/gpu. preemption: 0/12 nodes are available."
ROOM = "0/12 nodes are available: 4 Insufficient memory, 8 node(s) had untolerated taint {team: a}."
CLAIM = "0/12 nodes are available: pod has unbound immediate PersistentVolumeClaims."
PULL = 'Back-off pulling image "registry.example.com/sglang:v9": ErrImagePull: not found'


def loop(name: str, code: int, reason: str) -> dict[str, Any]:
    message = f"back-off 5m0s restarting failed container={name}"
    return waiting(name, "CrashLoopBackOff", message, restarts=7, lastState=over(code, reason))


def target(reason: str, message: str = "") -> tuple[dict[str, Any], ...]:
    return (condition("DisruptionTarget", True, reason, message),)


CASES: list[tuple[str, dict[str, Any], Told]] = [
    ("ready", up(), told()),
    ("unschedulable", unplaced("Unschedulable", ROOM), SILENT),
    ("needs_gpu", unplaced("Unschedulable", GPU), SILENT),
    ("gated", unplaced("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"), SILENT),
    ("volume_not_bound", unplaced("Unschedulable", CLAIM), SILENT),
    ("creating", placed(waiting("engine", "PodInitializing"), NOT_YET, sandbox=False), SILENT),
    ("creating", pod("Pending", conditions=[condition("PodScheduled", True)]), SILENT),
    ("pulling_image", placed(waiting("engine", "PodInitializing"), NOT_YET), SILENT),
    ("image_missing", placed(waiting("engine", "ImagePullBackOff", PULL), NOT_YET), SILENT),
    ("image_missing", placed(running("engine"), waiting("worker", "ErrImagePull", PULL)), SILENT),
    ("image_missing", placed(waiting("engine", "InvalidImageName", 'Failed to apply: "A:"'), NOT_YET), SILENT),
    (
        "config_missing",
        placed(running("engine"), waiting("worker", "CreateContainerConfigError", 'secret "redis" not found')),
        SILENT,
    ),
    (
        "container_refused",
        placed(running("engine"), waiting("worker", "RunContainerError", "failed to create containerd task")),
        SILENT,
    ),
    ("loading_weights", placed(running("engine", ready=False, started=False), NOT_YET), SILENT),
    ("engine_crash_loop", placed(loop("engine", 1, "Error"), NOT_YET), SILENT),
    ("engine_out_of_memory", placed(loop("engine", 137, "OOMKilled"), NOT_YET), SILENT),
    ("engine_out_of_memory", placed(waiting("engine", "", lastState=over(137, "OOMKilled")), NOT_YET), SILENT),
    ("crash_loop", up(ready=False, worker=loop("worker", 1, "Error")), SILENT),
    ("out_of_memory", up(ready=False, worker=loop("worker", 137, "OOMKilled")), SILENT),
    ("starting", up(ready=False), SILENT),
    ("starting", up(ready=False), told(state="starting")),
    ("not_heard_of", up(), SILENT),
    ("lost_heartbeat", up(), Told((), was_heard=True)),
    ("not_ready", up(ready=False), told()),
    ("not_ready", up(ready=False), Told(None)),
    ("engine_down", up(ready=False), told(state="engine_down", reason="no answer to /health")),
    ("updating_weights", up(), told(state="updating")),
    ("stale_weights", up(), told(weight_version=3, version="4")),
    ("stale_weights", up(), told(state="stale", reason="version 3, and 4 is published")),
    ("reward_down", up(), told(state="reward_down")),
    ("fingerprint", up(ready=False), told(state="fingerprint")),
    ("no_run", up(ready=False), told(state="no_run")),
    ("not_fit", up(ready=False), told(state="scale", reason="its log-probabilities are on another scale")),
    ("draining", up(), told(draining=True, groups=2, state="draining")),
    ("draining", up(), told(leaving="person", groups=1)),
    ("scaling_down", up(), told(leaving="scale", draining=True)),
    ("restarting", up(), told(leaving="restart", draining=True)),
    ("terminating", up(ends=True), told(draining=True, groups=3)),
    ("preempted", up(ends=True, conditions=target("PreemptionByScheduler", "by a higher priority")), told()),
    (
        "node_pressure",
        pod("Failed", reason="Evicted", message="The node was low on resource: ephemeral-storage."),
        SILENT,
    ),
    ("node_pressure", pod("Failed", conditions=list(target("TerminationByKubelet"))), SILENT),
    ("node_drained", up(ends=True, conditions=target("EvictionByEvictionAPI", "Eviction API: evicting")), told()),
    ("node_unreachable", up(ends=True, conditions=target("DeletionByTaintManager")), told()),
    ("node_unreachable", up(ready=False, worker=running("worker")), told()),
    ("failed", pod("Failed", reason="UnexpectedAdmissionError", message="Allocate failed: no GPU is healthy"), SILENT),
    ("ended", pod("Succeeded"), SILENT),
]


@pytest.mark.parametrize(("word", "status", "known"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)])
def test_a_status_as_kubernetes_writes_it_has_its_reason(word: str, status: dict[str, Any], known: Told) -> None:
    assert reason_of(pod_of(status), known).word == word


def test_every_word_of_the_catalogue_has_a_status_that_brings_it_about() -> None:
    assert {word for word, *_ in CASES} == CATALOGUE.keys()


def test_the_sentence_carries_what_the_cluster_said() -> None:
    said = reason_of(pod_of(unplaced("Unschedulable", GPU)), SILENT)
    assert (said.sentence, said.is_trouble) == (f"it needs a GPU that no node has free: {GPU}", True)


def test_what_is_trouble_says_what_to_do() -> None:
    assert [word for word in TROUBLES if not CATALOGUE[word][1]] == []


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """Word -> (means, do) of the table below a heading of the docs."""
    text = DOCS.read_text().split(f"\n{heading}\n")[1].split("\n#")[0]
    found = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    return {word: (means, do) for word, means, do in found}


@pytest.mark.parametrize(("heading", "catalogue"), [("### Of pods", CATALOGUE), ("### Of pools", POOLS)])
def test_the_docs_say_of_each_reason_what_it_means_and_what_to_do(
    heading: str, catalogue: dict[str, tuple[str, str]]
) -> None:
    told = rows(heading)
    assert told.keys() == catalogue.keys()
    assert {word: told[word][0] for word in told} == {word: means for word, (means, _) in catalogue.items()}
    wrong = [word for word, (_, do) in catalogue.items() if told[word][1] != (do or "nothing")]
    assert wrong == []
