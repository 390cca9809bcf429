"""The catalogue of reasons: what is to be said of a pod first, and what to do about it.

Invariant: one reason for each pod, the one nearest to the cause; its words are stable (metrics, the page and scripts
read them), the sentence may carry what the cluster said.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deploy.operator.evict import CONTAINER
from deploy.operator.objects import Container, Pod
from rolloutfleet.status import WorkerStatus

ENGINE = "engine"

# word -> (what it means, what to do). The sentence may carry more.
CATALOGUE: dict[str, tuple[str, str]] = {
    "ready": ("it works", ""),
    "unschedulable": ("no node has room for it", "wait for a node, add one, or lower the number of workers"),
    "needs_gpu": ("it needs a GPU that no node has free", "add GPU nodes, or lower the number of workers"),
    "gated": ("it is held back until its queue admits it (Kueue)", "look at the queue's quota; it starts by itself"),
    "volume_not_bound": ("a volume claim is not bound", "give the claim a storage class, or choose emptyDir"),
    "creating": ("its containers are being made", ""),
    "pulling_image": ("its image is being pulled", ""),
    "image_missing": ("its image can't be pulled", "check the image's name and tag, and the pull secret"),
    "config_missing": (
        "a secret or config map that it names is missing",
        "make it, or mend its name in the values; the pod then starts by itself",
    ),
    "container_refused": ("a container can't be made", "read the message; a mount or a device is the usual cause"),
    "loading_weights": ("its engine starts: it loads weights", "wait; the start-up budget is engine.startupSeconds"),
    "engine_crash_loop": ("its engine ends again and again", "read the engine's log: `deploy logs POD --engine`"),
    "engine_out_of_memory": (
        "its engine was ended: out of memory",
        "raise the engine's memory, or lower shm and its static share",
    ),
    "crash_loop": ("its worker ends again and again", "read its log: `deploy logs POD --previous`"),
    "out_of_memory": ("its worker was ended: out of memory", "raise the worker's memory, or lower slots"),
    "starting": ("its worker starts: it waits for engine, broker and run", ""),
    "not_heard_of": (
        "its worker runs, but tells the broker nothing",
        "check REDIS_URL, the run's name and the network",
    ),
    "lost_heartbeat": ("its worker's heartbeats have stopped", "look at its node and at the way to Redis"),
    "not_ready": ("it is not ready", "read its log: `deploy logs POD`"),
    "engine_down": (
        "its engine does not answer",
        "it comes back by itself or is restarted; else read the engine's log",
    ),
    "updating_weights": ("paused for a weight update", ""),
    "stale_weights": ("its weights are not the newest", "it updates by itself; if it lasts, read its log"),
    "reward_down": ("its reward service is away", "look at the reward service"),
    "fingerprint": ("its tokenizer or template is another than the run's", "give all workers the same model"),
    "no_run": ("the run has no config", "make it: `rolloutfleet configure`"),
    "not_fit": ("its worker does not claim", "the sentence says why"),
    "draining": ("it finishes what it holds, and claims no more", "`deploy undrain POD` takes that back"),
    "scaling_down": ("it drains, since fewer workers are wanted", ""),
    "restarting": ("it drains, to be replaced", ""),
    "terminating": ("it ends", ""),
    "preempted": ("a pod of higher priority took its place", "give it a higher priorityClassName, or wait"),
    "node_pressure": ("its node ran out of a resource and put it out", "raise its requests, or its node's room"),
    "node_drained": ("its node is being drained", ""),
    "node_unreachable": ("its node does not answer", "look at the node; heartbeats decide about its work"),
    "failed": ("it has failed", "it is replaced by itself; its log may be gone with it"),
    "ended": ("it has ended", ""),
}

_WAITING = {
    "ContainerCreating": "creating",
    "PodInitializing": "creating",
    "ErrImagePull": "image_missing",
    "ImagePullBackOff": "image_missing",
    "InvalidImageName": "image_missing",
    "ErrImageNeverPull": "image_missing",
    "CreateContainerConfigError": "config_missing",
    "CreateContainerError": "container_refused",
    "RunContainerError": "container_refused",
}
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted",
    "TerminationByKubelet": "node_pressure",
    "EvictionByEvictionAPI": "node_drained",
    "DeletionByTaintManager": "node_unreachable",
    "DeletionByPodGC": "node_unreachable",
}
_STATES = {  # what a worker says of itself
    "starting": "starting",
    "engine_down": "engine_down",
    "reward_down": "reward_down",
    "fingerprint": "fingerprint",
    "no_run": "no_run",
    "updating": "updating_weights",
    "weights": "updating_weights",
    "stale": "stale_weights",
}
_LEAVING = {"scale": "scaling_down", "restart": "restarting", "person": "draining"}


@dataclass(frozen=True, slots=True)
class Reason:
    """A word of the catalogue, with what the cluster or the worker said."""

    word: str
    detail: str = ""

    @property
    def sentence(self) -> str:
        return CATALOGUE[self.word][0] + (f": {self.detail}" if self.detail else "")

    @property
    def advice(self) -> str:
        return CATALOGUE[self.word][1]

    @property
    def is_trouble(self) -> bool:
        """Whether a person should know: there is something to do about it."""
        return self.word in TROUBLES


TROUBLES = frozenset(
    {"needs_gpu", "unschedulable", "volume_not_bound", "image_missing", "config_missing", "container_refused"}
    | {"engine_crash_loop", "engine_out_of_memory", "crash_loop", "out_of_memory", "not_heard_of", "fingerprint"}
    | {"preempted", "node_pressure", "node_unreachable"}
)


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a pod beside the pod. `workers`: None while Redis is unknown."""

    workers: Sequence[WorkerStatus] | None
    groups: int = 0
    leaving: str = ""
    version: str = ""  # of the weights that were published last
    was_heard: bool = False  # an earlier look found a worker of it


def reason_of(pod: Pod, told: Told) -> Reason:
    """What is to be said of it first: the first of these that knows something."""
    for look in _LOOKS:
        found = next(look(pod, told), None)
        if found:
            return found
    return Reason("ready")


def _over(pod: Pod, told: Told) -> Iterator[Reason]:
    disruption = pod.conditions.get("DisruptionTarget")
    if disruption and disruption.is_true and disruption.reason in _DISRUPTIONS:
        yield Reason(_DISRUPTIONS[disruption.reason], disruption.message)
    if pod.phase == "Failed":
        yield Reason("node_pressure" if pod.reason == "Evicted" else "failed", pod.message or pod.reason)
    if pod.phase == "Succeeded":
        yield Reason("ended")
    if pod.is_deleting:
        yield Reason("terminating", _holding(told))


def _placing(pod: Pod, told: Told) -> Iterator[Reason]:
    scheduled = pod.conditions.get("PodScheduled")
    if scheduled is None or scheduled.is_true or pod.node:
        return
    if scheduled.reason == "SchedulingGated":
        yield Reason("gated")
    if "persistentvolumeclaim" in scheduled.message.lower():
        yield Reason("volume_not_bound", scheduled.message)
    if "nvidia.com/gpu" in scheduled.message:
        yield Reason("needs_gpu", scheduled.message)
    if scheduled.reason == "Unschedulable":
        yield Reason("unschedulable", scheduled.message)


def _containers(pod: Pod, told: Told) -> Iterator[Reason]:
    engine, worker = pod.containers.get(ENGINE), pod.containers.get(CONTAINER)
    for container in pod.containers.values():
        word = _WAITING.get(container.waiting)
        if word and word != "creating":
            yield Reason(word, f"container {container.name}: {container.message or container.waiting}")
    if engine:
        yield from _crashes(engine, "engine_crash_loop", "engine_out_of_memory")
        if engine.started_at and not engine.is_started:
            yield Reason("loading_weights")
    if worker:
        yield from _crashes(worker, "crash_loop", "out_of_memory")
    if pod.phase == "Pending":
        # Volumes and network are there: what takes time from here on is the image.
        yield Reason("pulling_image" if pod.holds("PodReadyToStartContainers") else "creating")


def _crashes(container: Container, loop: str, memory: str) -> Iterator[Reason]:
    last = f"last {container.ended}, {container.restarts} restarts" if container.ended else ""
    if container.waiting == "CrashLoopBackOff":
        is_memory = container.ended is not None and container.ended.reason == "OOMKilled"
        yield Reason(memory if is_memory else loop, last)
    if container.started_at is None and container.ended and container.ended.reason == "OOMKilled":
        yield Reason(memory, last)


def _node(pod: Pod, told: Told) -> Iterator[Reason]:
    """The node's own controller says not ready over containers that were ready when they were last heard of."""
    ready = pod.conditions.get("Ready")
    if ready and not ready.is_true and pod.containers and all(one.is_ready for one in pod.containers.values()):
        yield Reason("node_unreachable", f"node {pod.node}")


def _worker(pod: Pod, told: Told) -> Iterator[Reason]:
    if told.workers is None:
        return
    if not told.workers:
        if pod.is_ready:
            yield Reason("lost_heartbeat" if told.was_heard else "not_heard_of")
        yield Reason("lost_heartbeat" if told.was_heard else "starting")
        return
    newest = max(told.workers, key=lambda worker: worker.name)
    if told.leaving or newest.draining:
        yield Reason(_LEAVING.get(told.leaving, "draining"), _holding(told))
    state, says = str(newest.facts.get("state", "")), str(newest.facts.get("reason") or "")
    if state not in ("", "ready", "draining"):
        yield Reason(_STATES.get(state, "not_fit"), says)
    version = newest.facts.get("weight_version")
    if told.version and version not in (None, "") and str(version) != told.version:
        yield Reason("stale_weights", f"version {version}, and {told.version} is published")


def _readiness(pod: Pod, told: Told) -> Iterator[Reason]:
    if not pod.is_ready:
        yield Reason("not_ready")


def _holding(told: Told) -> str:
    if told.workers is None:
        return ""
    return f"{told.groups} {'lease' if told.groups == 1 else 'leases'} left"


type _Look = Callable[[Pod, Told], Iterator[Reason]]
_LOOKS: tuple[_Look, ...] = (_over, _placing, _containers, _node, _worker, _readiness)
