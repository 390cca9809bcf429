"""What an upgrade can't change: the API server refuses it, or a second object appears beside the old one.

`python -m tests.helm.released` records it in released.json: at each release, and never between two, since what is
recorded is what people have installed. Each mode is recorded with its values, so that a later chart is asked the same.
"""

import json
from pathlib import Path
from typing import Any

from tests.helm.render import Object, ci_modes, ci_values, named, render

type Map = dict[str, Any]

RECORD = Path(__file__).parent / "released.json"


def fixed_part(objects: list[Object]) -> Map:
    """Object -> its immutable fields. Jobs are left out: their names carry what is in them."""
    return {named(one): part for one in objects if (part := _fixed_fields(one)) is not None}


def _fixed_fields(one: Object) -> Map | None:
    spec = one.get("spec", {})
    match one["kind"]:
        case "Deployment":
            return {"selector": spec["selector"]}
        case "StatefulSet":
            names = ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates")
            return {name: spec.get(name) for name in names}
        case "LeaderWorkerSet":
            return {"size": spec["leaderWorkerTemplate"]["size"]}
        case "RoleBinding":
            return {"roleRef": one["roleRef"]}
        case "Service":
            return {"clusterIP": spec.get("clusterIP"), "selector": spec["selector"]}
        case _:
            return None


def record() -> Map:
    return {mode: {"values": ci_values(mode), "fixed": fixed_part(render(ci_values(mode)))} for mode in ci_modes()}


if __name__ == "__main__":
    RECORD.write_text(json.dumps(record(), indent=1, sort_keys=True) + "\n")
