"""The OpenAPI is true: whatever is asked within it is answered as it says, and never with a 5xx."""

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import redis
import schemathesis
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks

from api.app import create_app
from api.settings import ApiSettings
from rolloutfleet.settings import RunConfig
from tests.api.process import Process, api_process
from tests.api.served import BEARER, TOKEN

RUN = "schema"
CHECKS: list[Any] = [checks.not_a_server_error, openapi_checks.response_schema_conformance]
document: dict[str, Any] = create_app(ApiSettings.model_validate({"redis_url": "redis://127.0.0.1:1"})).openapi()
# A stream has no end; tests/api/test_events.py is about it.
schema = schemathesis.openapi.from_dict(document).exclude(path="/events")


@pytest.fixture(scope="module")
def process(redis_url: str) -> Iterator[Process]:
    """The service over a run with a queue and a dead letter."""
    prefix = f"rf1:{{{RUN}}}:"
    with redis.Redis.from_url(redis_url) as client:
        for name, value in RunConfig(sample_concurrency=8).fields().items():
            client.hset(prefix + "config", name, value)
        client.rpush(prefix + "prompts", '{"id": "a", "prompt": "x"}', "no JSON")
        client.xadd(prefix + "dead", {"id": "d", "reason": "r", "attempts": 1, "n": 8, "text": "{}", "at": 1})
        with api_process(redis_url, token=TOKEN) as process:
            yield process
        client.delete(*client.keys(prefix + "*"))


@schema.parametrize()  # pyright: ignore[reportUntypedFunctionDecorator]
@hypothesis.settings(max_examples=12, deadline=None, derandomize=True)
def test_nothing_is_answered_with_a_5xx(case: schemathesis.Case[Any], process: Process):
    if "run" in case.path_parameters and len(str(case.path_parameters["run"])) % 2:
        case.path_parameters["run"] = RUN
    answer = case.call(base_url=process.url, headers=BEARER)
    case.validate_response(answer, checks=CHECKS)


def test_every_reply_has_a_model():
    bare = [
        f"{method} {path}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for kind, body in operation["responses"]["200"].get("content", {}).items()
        if kind == "application/json" and "$ref" not in body["schema"]
    ]
    assert bare == []


def test_every_field_is_described():
    models = document["components"]["schemas"]
    ours = {name: model for name, model in models.items() if "Validation" not in name and name != "RunConfig"}
    bare = [
        f"{name}.{field}"
        for name, model in ours.items()
        for field, said in model.get("properties", {}).items()
        if not {"description", "$ref", "items"} & set(said)
    ]
    assert bare == []
