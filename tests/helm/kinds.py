"""Is an object what the API server would take? Strictly: a field that the schema does not know is an error.

Schemas of Kubernetes itself are those of kubernetes-validate; those of kinds of others that the chart renders are our
own, in `schemas/`, small and closed: what the chart does not use is not in them.
"""

import functools
import json
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import jsonschema
from referencing import Resource
from referencing.jsonschema import EMPTY_REGISTRY, SchemaRegistry

type Schema = dict[str, Any]

OWN = Path(__file__).parent / "schemas"


class UnknownKind(Exception):
    """Neither Kubernetes of this version nor we know the kind."""


def problems(one: dict[str, Any], kubernetes: str) -> list[str]:
    """What is wrong with an object, a line each. Errors: UnknownKind."""
    validator = _validator(one["apiVersion"], one["kind"], ".".join(kubernetes.split(".")[:2]))
    found = cast("list[jsonschema.ValidationError]", list(validator.iter_errors(one)))
    return [f"{'.'.join(str(part) for part in error.absolute_path)}: {error.message}" for error in found]


@functools.cache
def _validator(api_version: str, kind: str, minor: str) -> jsonschema.Draft202012Validator:
    own = OWN / f"{kind}.json"
    if own.exists():
        schema = cast(Schema, json.loads(own.read_text()))
        if schema["properties"]["apiVersion"]["const"] != api_version:
            raise UnknownKind(f"{api_version} {kind}")
        return jsonschema.Draft202012Validator(schema, registry=_definitions(minor))
    group, _, version = api_version.rpartition("/")
    name = f"{kind.lower()}-{group.split('.')[0] + '-' if group else ''}{version}.json"
    schema = _schema(minor, name)
    if schema is None:
        raise UnknownKind(f"{api_version} {kind} in Kubernetes {minor}")
    return jsonschema.Draft202012Validator(schema, registry=_definitions(minor))


def _schema(minor: str, name: str) -> Schema | None:
    folder = files("kubernetes_validate").joinpath("kubernetes-json-schema", f"v{minor}.0-local-strict")
    path = folder.joinpath(name)
    return cast(Schema, json.loads(path.read_text())) if path.is_file() else None


@functools.cache
def _definitions(minor: str) -> SchemaRegistry:
    definitions = _schema(minor, "_definitions.json")
    if definitions is None:
        raise UnknownKind(f"Kubernetes {minor}: kubernetes-validate has no schemas of it")
    return Resource[Any].from_contents(definitions) @ EMPTY_REGISTRY
