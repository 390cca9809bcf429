"""Kinds that belong to other products, so that the chart's objects of them can be stored. Nobody acts on them here."""

from tests.cluster.kube import Json, apply, kubectl


async def apply_crd(group: str, version: str, kind: str, plural: str) -> None:
    anything: Json = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec: Json = {
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
        "versions": [{"name": version, "served": True, "storage": True, "schema": anything}],
    }
    name = f"{plural}.{group}"
    metadata = {"name": name}
    kind_of_kinds = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    await apply(kind_of_kinds | {"metadata": metadata, "spec": spec})
    await kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s")
