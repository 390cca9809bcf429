"""What a value may be, where its default does not say it: by the end of its path, the longest that fits."""

from typing import Any

from pydantic import BaseModel

from api.settings import ApiSettings
from rolloutfleet.settings import RunConfig
from worker.settings import WorkerSettings

type Schema = dict[str, Any]

QUANTITY: Schema = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"}
AMOUNT: Schema = {"anyOf": [QUANTITY, {"type": "number", "minimum": 0}]}
OBJECT: Schema = {"type": "object"}
OBJECTS: Schema = {"type": "array", "items": OBJECT}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
NAME: Schema = {"type": "string", "pattern": r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$"}
TEXT: Schema = {"type": "string", "pattern": r"^[^\x00-\x1f\x7f]*$"}  # one line
LABEL: Schema = {"type": "string", "pattern": r"^([a-z]([-a-z0-9]{0,34}[a-z0-9])?)?$"}
PATH: Schema = {"type": "string", "pattern": r"^/[^\x00-\x1f\x7f:]*$"}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def closed(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def whole(least: int, most: int = 2**31 - 1) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


POD: dict[str, tuple[Schema, str]] = {
    "labels": (TEXTS, "Labels of the pods."),
    "annotations": (TEXTS, "Annotations of the pods, such as safe-to-evict or do-not-disrupt."),
    "nodeSelector": (TEXTS, "Labels that a node must have."),
    "tolerations": (OBJECTS, "Taints that are tolerated."),
    "affinity": (OBJECT, "Affinity."),
    "topologySpreadConstraints": (OBJECTS, "How the pods spread."),
    "priorityClassName": (NAME, "Priority class."),
    "runtimeClassName": (NAME, "Runtime class, such as nvidia."),
    "schedulerName": (NAME, "Scheduler, if not the default one."),
}
WORKER_POD: dict[str, tuple[Schema, str]] = {
    "resourceClaims": (
        OBJECTS,
        "Workers only: devices by dynamic resource allocation, named in engine.resources.claims.",
    ),
    "hostNetwork": ({"type": "boolean"}, "Workers only: the node's network; the pod is no restricted one then."),
    "hostIPC": ({"type": "boolean"}, "Workers only: the node's IPC; the pod is no restricted one then."),
}


def pod(fields: dict[str, tuple[Schema, str]]) -> Schema:
    return closed(**{name: {**schema, "description": says} for name, (schema, says) in fields.items()})


def settings(model: type[BaseModel], *, without: set[str]) -> Schema:
    """The settings of a process, as its own class checks them; `without` those that the chart sets."""
    whole_schema = model.model_json_schema(by_alias=False)
    definitions: dict[str, Schema] = whole_schema.get("$defs", {})
    properties = {
        name: _inlined(schema, definitions)
        for name, schema in whole_schema["properties"].items()
        if name not in without
    }
    return closed(**properties)


def _inlined(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]] | {key: schema[key] for key in schema if key != "$ref"}
    choices = [_inlined(choice, definitions) for choice in schema.get("anyOf", []) if choice.get("type") != "null"]
    found = {key: value for key, value in schema.items() if key not in ("title", "default", "anyOf")}
    if len(choices) == 1:
        return found | choices[0]
    return found | {"anyOf": choices} if choices else found


def run_config() -> Schema:
    """YAML takes a bare n for the boolean false: whoever writes {n: 8} means n."""
    schema = settings(RunConfig, without={"paused"})
    schema["properties"]["false"] = schema["properties"]["n"]
    return schema


SET_FOR_WORKERS = {"redis_url", "run", "pod", "pod_name", "node", "fleet", "engine_url", "engine_api_key"} | {
    "drain_seconds",
    "probe_host",
    "probe_port",
}
SET_FOR_API = {"redis_url", "host", "port", "token", "fleet", "least_workers", "most_workers", "cool_down_seconds"}

ENVIRONMENT: Schema = {
    "type": "array",
    "items": closed(name={"type": "string", "minLength": 1}, value={"type": "string"}, valueFrom=OBJECT)
    | {"required": ["name"]},
}
RESOURCES = closed(
    requests={"type": "object", "additionalProperties": AMOUNT},
    limits={"type": "object", "additionalProperties": AMOUNT},
    claims=OBJECTS,
)

SHAPES: dict[str, Schema] = {
    "global.imagePullSecrets": {"type": "array", "items": NAME},
    "nameOverride": LABEL,
    "fullnameOverride": LABEL,
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "repository": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._/:-]*$"},
    "tag": {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$"},
    "global.imageRegistry": {"type": "string", "pattern": "^([A-Za-z0-9][A-Za-z0-9._/:-]*)?$"},
    "pullPolicy": one_of("Always", "IfNotPresent", "Never"),
    "run.name": {"type": "string", "pattern": "^[A-Za-z0-9._-]{0,256}$"},
    "run.configure": one_of("missing", "always", "never"),
    "run.config": run_config(),
    "redis.mode": one_of("bundled", "external"),
    "redis.program": one_of("valkey", "redis"),
    "redis.memory": QUANTITY,
    "redis.cpu": AMOUNT,
    "redis.extraConfig": {"type": "array", "items": TEXT},
    "redis.persistence.type": one_of("pvc", "existingClaim", "emptyDir"),
    "redis.persistence.storageClass": {"type": "string", "pattern": r"^(-|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"},
    "redis.runAsUser": whole(1),
    "existingSecret": NAME,
    "existingSecretKey": {"type": "string", "pattern": r"^[-._a-zA-Z0-9]+$"},
    "caSecret": NAME,
    "tlsSecret": NAME,
    "existingClaim": NAME,
    "size": QUANTITY,
    "tmpSize": QUANTITY,
    "shmSize": QUANTITY,
    "cacheSize": QUANTITY,
    "resources": RESOURCES,
    "replicas": whole(0, 10_000),
    "maxUnavailable": whole(0, 10_000),
    "worker.maxUnavailable": whole(1, 10_000),
    "worker.settings": settings(WorkerSettings, without=SET_FOR_WORKERS),
    "worker.labels": TEXTS,
    "worker.pod": pod(POD | WORKER_POD),
    "worker.serviceAccountName": NAME,
    "pod": pod(POD),
    "extraEnv": ENVIRONMENT,
    "extraVolumes": OBJECTS,
    "extraVolumeMounts": OBJECTS,
    "pools": {
        "type": "object",
        "propertyNames": {"pattern": "^[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?$"},
        "additionalProperties": closed(worker={"$ref": "#/properties/worker"}, engine={"$ref": "#/properties/engine"}),
    },
    "engine.mode": one_of("sidecar", "external", "simulated"),
    "engine.args": {"type": "array", "items": TEXT},
    "engine.nodes": whole(1, 256),
    "engine.port": whole(1024, 65_535),
    "engine.startupSeconds": whole(1, 86_400),
    "engine.probes.path": PATH,
    "engine.probes.livenessSeconds": whole(30),
    "engine.external.url": {"type": "string", "pattern": "^(https?://.+)?$"},
    "engine.securityContext": OBJECT,
    "modelCache.type": one_of("emptyDir", "pvc", "hostPath"),
    "modelCache.hostPath": {"type": "string", "pattern": "^(/.*)?$"},
    "mountPath": PATH,
    "drain.seconds": whole(0, 86_400),
    "drain.graceSeconds": whole(0, 100_000),
    "scaling.owner": one_of("fixed", "operator", "keda"),
    "scaling.cooldownSeconds": whole(1, 3600),
    "scaling.maxWorkers": whole(1, 10_000),
    "pollingSeconds": whole(1, 3600),
    "failureThreshold": whole(1),
    "startupSeconds": whole(1, 86_400),
    "operator.replicas": whole(1, 10),
    "api.settings": settings(ApiSettings, without=SET_FOR_API),
    "api.service.type": one_of("ClusterIP", "NodePort", "LoadBalancer"),
    "port": whole(1, 65_535),
    "annotations": TEXTS,
    "redisFrom": OBJECTS,
    "apiFrom": OBJECTS,
    "monitoring.labels": TEXTS,
    "dashboardLabels": TEXTS,
    "extraObjects": OBJECTS,
}


def shape(path: str, default: object) -> Schema:
    """Errors: TypeError where neither the table nor the default says it."""
    parts = path.split(".")
    for start in range(len(parts)):
        if (end := ".".join(parts[start:])) in SHAPES:
            return SHAPES[end]
    match default:
        case bool():
            return {"type": "boolean"}
        case int():
            return whole(0)
        case str():
            return TEXT
        case _:
            raise TypeError(f"{path}: a list or map needs an entry in SHAPES")
