"""What is said of a pool: why it makes no pods, and what a rollout that can't go on waits for."""

from dataclasses import replace

import pytest

from deploy.operator.objects import Deployment, Pod, deployment_of, pod_of
from deploy.operator.pools import POOLS, pool_reason
from deploy.operator.reasons import Told, reason_of

POOL = "fleet-worker"
SETTLED = deployment_of(
    {
        "metadata": {"name": POOL, "uid": "d1", "generation": 2, "resourceVersion": "7"},
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3},
    }
)
ROLLING = replace(SETTLED, updated=1, ready=2)


def pod(name: str, *, message: str = "", ends: bool = False) -> Pod:
    """A pod that runs, or one that no node has room for."""
    meta = {
        "name": name,
        "uid": name,
        "labels": {"pod-template-hash": "5d8f"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": f"{POOL}-5d8f"}],
    }
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    status = {"phase": "Pending", "conditions": [unplaced]} if message else {"phase": "Running"}
    return pod_of(
        {"metadata": meta | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if ends else {}), "status": status}
    )


WAITS = pod("new", message="0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")


def said(pool: Deployment | None, wanted: int | None, *pods: Pod) -> tuple[str, str]:
    """(word, sentence); empty: nothing."""
    reason = pool_reason(pool, wanted, pods, {one.uid: reason_of(one, Told(None)) for one in pods})
    return (reason.word, reason.sentence) if reason else ("", "")


def test_of_a_settled_pool_there_is_nothing_to_say() -> None:
    assert said(SETTLED, 2, WAITS) == ("", "")


def test_a_rollout_that_goes_on_is_worth_a_word_only_where_fewer_are_wanted() -> None:
    assert said(ROLLING, 3, pod("old"))[0] == ""
    assert said(ROLLING, 2, pod("old"))[0] == "rolling"


def test_a_rollout_that_waits_for_a_gpu_names_the_pod_and_the_gpu() -> None:
    word, sentence = said(ROLLING, 3, pod("old"), WAITS)
    assert word == "rollout_stuck"
    assert "pod new: it needs a GPU that no node has free" in sentence


def test_a_lower_number_behind_a_rollout_that_can_not_go_on_is_never_silent() -> None:
    word, sentence = said(ROLLING, 2, pod("old"), WAITS)
    assert word == "shrinking_waits"
    assert "needs a GPU" in sentence
    assert "kubectl scale" in POOLS[word][1]


def test_a_pod_that_ends_will_free_what_the_other_waits_for() -> None:
    assert said(ROLLING, 3, pod("old", ends=True), WAITS) == ("", "")


def test_a_rollout_over_its_time_is_stuck_whatever_its_pods_say() -> None:
    late = deployment_of(
        {
            "metadata": {"name": POOL, "generation": 2},
            "status": {
                "observedGeneration": 2,
                "replicas": 3,
                "updatedReplicas": 1,
                "conditions": [
                    {
                        "type": "Progressing",
                        "status": "False",
                        "reason": "ProgressDeadlineExceeded",
                        "message": 'ReplicaSet "fleet-worker-5d8f" has timed out progressing.',
                    }
                ],
            },
        }
    )
    assert said(late, None, pod("old")) == (
        "rollout_stuck",
        'its rollout can\'t go on: ReplicaSet "fleet-worker-5d8f" has timed out progressing.',
    )


def test_a_quota_is_said_before_all_else() -> None:
    condition = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": "exceeded quota: pods",
    }
    failing = deployment_of({"metadata": {"name": POOL, "generation": 9}, "status": {"conditions": [condition]}})
    assert said(failing, 1, WAITS) == ("no_pods", "its pods are refused: exceeded quota: pods")


def test_a_pool_that_is_not_there_says_so() -> None:
    assert said(None, 1)[0] == "missing"


@pytest.mark.parametrize("word", POOLS)
def test_whatever_is_trouble_says_what_to_do(word: str) -> None:
    assert bool(POOLS[word][1]) == (word != "rolling")
