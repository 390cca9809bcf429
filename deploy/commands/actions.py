"""What each command does: reads the release, says what would happen, and unless it is a dry run leaves an order.

Orders are annotations that the operator follows: on a pod that it be drained, on a Deployment another number or a
restart. So a person needs no way to Redis, the operator's own steps keep every group safe, and `kubectl` shows what was
asked for.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deploy.commands.release import NoSuchRelease, PeoplesCluster, Release
from deploy.operator.fleet import pool_of
from deploy.operator.objects import DRAIN, REPLICAS, RESTART, Deployment, Pod, micro_time
from deploy.operator.pools import PoolReason, pool_reason
from deploy.operator.reasons import reason_of
from deploy.operator.reconcile import Unit, victims
from deploy.operator.settings import Owner
from deploy.operator.wanted import order_of

_NO_OPERATOR = "no operator leads here, and it is the one that does this: set operator.enabled, or look at its pod"
_UNKNOWN = "what the workers hold is not known here (--redis-url says it): the operator chooses by that"


class Impossible(Exception):
    """What was asked for can't be done; the message says why, and the mend."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command says: lines for people, the same as data, and whether all is well."""

    lines: Sequence[str]
    data: dict[str, Any]
    is_well: bool = True
    notes: Sequence[str] = field(default_factory=tuple[str, ...])


def status(release: Release) -> Answer:
    """Pools, pods with their reasons, and who leads."""
    pods = [_row(release, pod) for pod in sorted(release.pods.values(), key=lambda pod: pod.name)]
    pools = [_pool_row(release, one) for one in release.deployments.values()]
    leader = release.lease.holder if release.lease else ""
    head = f"release {release.name} in {release.namespace}: scaling by {release.owner or 'nobody'}"
    lines = [f"{head}, operator {leader or 'none leads'}"]
    lines += [line for pool in pools for line in _pool_lines(pool)]
    lines += [f"  {row['name']:45} {row['reason']:20} {row['sentence']}" for row in pods]
    lines += [f"  {'':45} {'':20} -> {row['advice']}" for row in pods if row["advice"] and row["reason"] != "ready"]
    return Answer(lines, {"release": release.name, "operator": leader or None, "pools": pools, "pods": pods})


def _pool_row(release: Release, one: Deployment) -> dict[str, Any]:
    reason = _pool_reason(release, one)
    return {
        "name": one.name,
        "replicas": one.replicas,
        "ready": one.ready,
        "rolling": one.is_rolling,
        "reason": reason.word if reason else None,
        "why": reason.sentence if reason else "",
        "advice": reason.advice if reason else "",
    }


def _pool_lines(pool: dict[str, Any]) -> list[str]:
    more = " (a rollout runs)" if pool["rolling"] else ""
    why = f": {pool['why']}" if pool["why"] else ""
    advice = [f"  -> {pool['advice']}"] if pool["advice"] else []
    return [f"{pool['name']}: {pool['ready']} of {pool['replicas']} ready{more}{why}", *advice]


def _pool_reason(release: Release, one: Deployment) -> PoolReason | None:
    reasons = {pod.uid: reason_of(pod, release.fleet.told(pod)) for pod in release.pods.values()}
    return pool_reason(one, release.wanted(one), release.pods.values(), reasons)


def _row(release: Release, pod: Pod) -> dict[str, Any]:
    reason = reason_of(pod, release.fleet.told(pod))
    held = release.view.held.get(pod.uid, 0) if release.view else None
    return {
        "name": pod.name,
        "node": pod.node or None,
        "phase": pod.phase,
        "ready": pod.is_ready,
        "held": held,
        "reason": reason.word,
        "sentence": reason.sentence,
        "advice": reason.advice,
    }


async def scale(cluster: PeoplesCluster, release: Release, number: int, given: str | None, dry_run: bool) -> Answer:
    """Errors: Impossible, NoSuchRelease, ClusterError."""
    pool = _the_pool(release, given)
    if release.owner is not Owner.FIXED:
        raise Impossible(_not_fixed(release.owner))
    _need_operator(release)
    configured = release.configured(pool)
    if configured is None:
        raise Impossible(f"the operator does not look after {pool}: its ROLLOUTFLEET_DEPLOYMENTS doesn't name it")
    now, units = release.deployments[pool].replicas, [one for one in release.fleet.units() if one.pool == pool]
    going = victims(units, replace(pool_of(release.deployments[pool], number), is_rolling=False))
    if not dry_run:
        order = None if number == configured else order_of(number, configured)
        await cluster.annotate_deployment(pool, {REPLICAS: order}, release.deployments[pool].kind)
    data = {"pool": pool, "from": now, "to": number, "would_go": [unit.name for unit in going], "dry_run": dry_run}
    said = f"{pool}: {'would go' if dry_run else 'goes'} from {now} to {number}"
    notes = [_UNKNOWN] if going and release.view is None else []
    return Answer([said, *map(_going_line, going)], data, notes=notes)


def _going_line(unit: Unit) -> str:
    state = f"busy with {unit.groups} groups: it finishes them first" if unit.is_busy else "idle"
    return f"  {unit.name}: {state if unit.is_ready else 'not ready, ' + state}"


async def drain(cluster: PeoplesCluster, release: Release, name: str, dry_run: bool, undo: bool) -> Answer:
    """Errors: Impossible, NoSuchRelease, ClusterError."""
    pod = release.pod(name)
    _need_operator(release)
    if not dry_run:
        await cluster.annotate_pod(pod.name, {DRAIN: None if undo else micro_time(time.time())})
    will = "would" if dry_run else "will"
    does = "claim again" if undo else "finish what it holds, and claim no more"
    data = {"pod": pod.name, "drain": not undo, "dry_run": dry_run}
    return Answer([f"{pod.name} {will} {does}"], data)


async def restart(cluster: PeoplesCluster, release: Release, given: str | None, dry_run: bool) -> Answer:
    """Errors: Impossible, NoSuchRelease, ClusterError."""
    _need_operator(release)
    pools = [_the_pool(release, given)] if given else list(release.deployments)
    names: list[str] = []
    for pool in pools:
        pods = [pod for pod in release.pods.values() if pod.pool == pool and pod.is_alive]
        names += sorted(pod.name for pod in pods)
        if pods and not dry_run:
            # By the API server's clock, which made the pods: what is made later is new.
            newest = max(pod.created_at for pod in pods)
            await cluster.annotate_deployment(pool, {RESTART: micro_time(newest)}, release.deployments[pool].kind)
    most = release.settings.get("MAX_UNAVAILABLE", "1")
    will = "would be" if dry_run else "are"
    lines = [f"{len(names)} pods {will} replaced, at most {most} at a time, each after it gave up its work", *names]
    return Answer(lines, {"pools": pools, "would_go": names, "dry_run": dry_run})


async def doctor(cluster: PeoplesCluster, release: Release) -> Answer:
    """What is wrong with the release, and what to do about it."""
    findings: list[tuple[bool, str]] = [
        (release.has_operator, "an operator leads" if release.has_operator else _NO_OPERATOR)
    ]
    for one in release.deployments.values():
        findings.append(_pool_finding(release, one))
    if not release.deployments:
        findings.append((False, "there is no Deployment of workers"))
    for pod in sorted(release.pods.values(), key=lambda pod: pod.name):
        reason = reason_of(pod, release.fleet.told(pod))
        if reason.is_trouble:
            findings.append((False, f"pod {pod.name}: {reason.sentence}; {reason.advice}"))
    if release.view is None:
        findings.append((True, "Redis was not looked at: --redis-url names it"))
    lines = [f"{'ok   ' if ok else 'mend '} {says}" for ok, says in findings]
    data = {"findings": [{"ok": ok, "says": says} for ok, says in findings]}
    return Answer(lines, data, is_well=all(ok for ok, _ in findings))


def _pool_finding(release: Release, one: Deployment) -> tuple[bool, str]:
    reason = _pool_reason(release, one)
    if reason is not None:
        return False, f"{one.name}: {reason.sentence}" + (f"; {reason.advice}" if reason.advice else "")
    return one.is_settled, f"{one.name} is settled" if one.is_settled else f"{one.name}: a rollout runs"


def _the_pool(release: Release, given: str | None) -> str:
    pools = sorted(release.deployments)
    if given in pools or (given is None and len(pools) == 1):
        return given or pools[0]
    there = ", ".join(pools) or "none"
    raise NoSuchRelease(f"release {release.name} has these pools: {there}; name one with --pool")


def _need_operator(release: Release) -> None:
    if not release.has_operator:
        raise Impossible(_NO_OPERATOR)


def _not_fixed(owner: Owner | None) -> str:
    if owner is Owner.OPERATOR:
        return "the operator decides the number (scaling.owner: operator): set scaling.minWorkers and maxWorkers"
    if owner is Owner.KEDA:
        return "KEDA decides the number (scaling.owner: keda): set the bounds of its ScaledObject"
    return f"{_NO_OPERATOR}; without one, set worker.replicas by `helm upgrade`"
