"""What the API server wrote down of the calls of service accounts: who asked what, when, and what was answered.

Two operators share one account: they are told apart by the address of their pod.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.cluster.ground import Ground
from tests.cluster.kube import Json

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

# Of the accounts of pods, once each call is answered; of the cluster's own controllers nothing.
_POLICY: Json = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `at`: when it came, in seconds of the API server's clock. `address`: of the pod that made it."""

    at: float
    account: str
    address: str
    verb: str
    resource: str  # with its subresource: deployments/scale
    code: int

    @property
    def is_write(self) -> bool:
        """It changed something."""
        return self.verb in WRITES and self.code < 300


def log_of(ground: Ground) -> Path:
    return ground.folder / "log" / "audit.log"


def write_policy(ground: Ground) -> Path:
    path = ground.folder / "audit.json"
    path.write_text(json.dumps(_POLICY))
    return path


def calls(ground: Ground, namespace: str) -> list[Call]:
    """What the service accounts of a namespace asked, the first one first. A watch that runs is there, too."""
    with log_of(ground).open() as lines:
        told = [json.loads(line) for line in lines if namespace in line and line.endswith("\n")]
    account = f"system:serviceaccount:{namespace}:"
    mine = (each for each in told if each["user"]["username"].startswith(account))
    found = {each["auditID"]: _call(each) for each in mine}
    return sorted(found.values(), key=lambda call: call.at)


def _call(told: Json) -> Call:
    of = told.get("objectRef", {})
    sub = of.get("subresource")
    return Call(
        at=datetime.fromisoformat(told["requestReceivedTimestamp"]).timestamp(),
        account=told["user"]["username"].rpartition(":")[2],
        address=told["sourceIPs"][0],
        verb=told["verb"],
        resource=f"{of.get('resource', '')}/{sub}" if sub else of.get("resource", ""),
        code=told.get("responseStatus", {}).get("code", 0),
    )


def late_writes(told: Iterable[Call], account: str) -> list[Call]:
    """What was changed in the name of an account by a pod that was not the last one to write its Lease.

    Without events: a note of one that was frozen for a while changes nothing.
    """
    leader, late = "", list[Call]()
    for call in told:
        if call.account != account or not call.is_write or call.resource == "events":
            continue
        if call.resource == "leases":
            leader = call.address
        elif call.address != leader:
            late.append(call)
    return late
