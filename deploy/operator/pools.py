"""What is to be said of a pool: why it makes no pods, or why what is wanted of it waits. Pure.

Nothing is scaled down in the middle of a rollout, not even of one that can't go on: a Deployment that is scaled then
takes pods from its ReplicaSets in proportion, so that not even the order in which a ReplicaSet drops its pods decides
which template loses one, and a busy pod may go while an idle one stands. What is said instead names the pod that the
rollout waits for, and what a person can do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deploy.operator.objects import Deployment, Pod
from deploy.operator.reasons import Reason

# word -> (what it means, what to do). The sentence may carry more.
POOLS: dict[str, tuple[str, str]] = {
    "missing": (
        "it can't be read",
        "check its name in ROLLOUTFLEET_DEPLOYMENTS, and that the operator's role may get it",
    ),
    "no_pods": ("its pods are refused", "a quota, or the namespace's pod security: the message says which"),
    "rollout_stuck": (
        "its rollout can't go on",
        "mend what the pod lacks, or take the new template back with `helm rollback`",
    ),
    "shrinking_waits": (
        "its rollout can't go on, so fewer workers wait, too: nothing is scaled down in the middle of one",
        "give the pod what it lacks, or `kubectl scale` to that number: a busy worker may go then, drained",
    ),
    "rolling": ("fewer workers are wanted, and nothing is scaled down in the middle of a rollout", ""),
}
# A pod with one of these does not become ready by itself.
_BLOCKED = frozenset(
    {"needs_gpu", "unschedulable", "volume_not_bound", "gated", "image_missing", "config_missing", "container_refused"}
    | {"engine_crash_loop", "engine_out_of_memory", "crash_loop", "out_of_memory"}
)


@dataclass(frozen=True, slots=True)
class PoolReason:
    """A word of POOLS, with what the cluster said."""

    word: str
    detail: str = ""

    @property
    def sentence(self) -> str:
        return POOLS[self.word][0] + (f": {self.detail}" if self.detail else "")

    @property
    def advice(self) -> str:
        return POOLS[self.word][1]

    @property
    def is_trouble(self) -> bool:
        return bool(self.advice)


def pool_reason(
    pool: Deployment | None, wanted: int | None, pods: Iterable[Pod], reasons: Mapping[str, Reason]
) -> PoolReason | None:
    """`reasons`: of pods, by uid. None: there is nothing to say."""
    if pool is None:
        return PoolReason("missing")
    if pool.failure:
        return PoolReason("no_pods", pool.failure)
    if not pool.is_rolling:
        return None
    shrinks = wanted is not None and wanted < pool.replicas
    why = _stuck_by(pool, [pod for pod in pods if pod.pool == pool.name], reasons)
    if why:
        return PoolReason("shrinking_waits" if shrinks else "rollout_stuck", why)
    return PoolReason("rolling") if shrinks else None


def _stuck_by(pool: Deployment, pods: Sequence[Pod], reasons: Mapping[str, Reason]) -> str:
    """What the rollout waits for; empty: it goes on. A pod that ends gives its GPU to one that waits for it."""
    if any(pod.is_deleting for pod in pods):
        return ""
    for pod in sorted(pods, key=lambda pod: pod.name):
        reason = reasons[pod.uid]
        if pod.is_alive and reason.word in _BLOCKED:
            return f"pod {pod.name}: {reason.sentence}"
    progress = pool.conditions.get("Progressing")
    return "" if progress is None or progress.is_true else progress.message or progress.reason
