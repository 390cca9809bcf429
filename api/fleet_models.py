"""What the API answers of pods: models, with the unit in each description."""

from typing import Annotated

from api.model import Model, said


class PodView(Model):
    """A pod of the fleet: the first thing that is to be said of it, and what to do."""

    name: Annotated[str, said("Its name.", "rollouts-worker-7f9c-x2x4v")]
    uid: Annotated[str, said("Its uid: the `pod` of its worker.", "5b4a3c1e-…")]
    fleet: Annotated[str, said("Its fleet.", "ml/rollouts")]
    pool: Annotated[str, said("Its Deployment; empty: none of the fleet's.", "rollouts-worker")]
    node: Annotated[str | None, said("Its node; null: it has none yet.", "gpu-7")]
    phase: Annotated[str, said("As Kubernetes calls it.", "Pending")]
    is_ready: Annotated[bool, said("Ready, as Kubernetes counts it.", False)]
    reason: Annotated[str, said("A word of the catalogue of reasons.", "needs_gpu")]
    sentence: Annotated[str, said("The same for a person.", "it needs a GPU that no node has free")]
    advice: Annotated[str, said("What to do; empty: nothing.", "add GPU nodes, or lower the number of workers")]
    restarts: Annotated[int, said("Restarts of its containers.", 0)]
    since_seconds: Annotated[float | None, said("For how long this reason has held; null: not known.", 42.0)]


class PoolView(Model):
    """A Deployment of workers."""

    name: Annotated[str, said("Its name.", "rollouts-worker")]
    replicas: Annotated[int | None, said("Replicas that are set; null: not known.", 4)]
    ready: Annotated[int | None, said("Of these, ready; null: not known.", 3)]
    wanted: Annotated[int | None, said("Replicas that are wanted; null: another decides, or not known.", 4)]
    problem: Annotated[str, said("What keeps it from what is wanted; empty: nothing.", "")]
    advice: Annotated[str, said("What to do about it.", "")]


class FleetView(Model):
    """A fleet that serves the run, as its operator last reported it."""

    fleet: Annotated[str, said("<namespace>/<release>.", "ml/rollouts")]
    age_seconds: Annotated[float, said("Age of the report.", 1.2)]
    is_old: Annotated[bool, said("The operator has not reported for 30 s: it is away, or nobody leads.", False)]
    operator: Annotated[str, said("Who leads.", "rollouts-operator-0_1a2b3c4d")]
    owner: Annotated[str, said("Who decides the number of workers: fixed, operator or keda.", "fixed")]
    sentence: Annotated[str, said("Why so many workers are wanted.", "fixed, rollouts-worker: 4")]
    problem: Annotated[str, said("Why the operator can't see or change the cluster; empty: it can.", "")]
    pools: list[PoolView]
    pods: Annotated[list[PodView], said("Those with something to do about them first.")]


class PodsReply(Model):
    """The table of pods as data."""

    run: Annotated[str, said("Name of the run.", "math")]
    has_operator: Annotated[bool, said("An operator reported within the last hour. If not, pods are not known.", True)]
    fleets: tuple[FleetView, ...]
