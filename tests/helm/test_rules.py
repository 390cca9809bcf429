"""The rules hold in every mode, but for exceptions that have a reason; and each of them can fail."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.helm import rules
from tests.helm.render import Object, ci_modes, render_mode
from tests.helm.rules import EXCEPTIONS, RULES, Rule

MODES = ci_modes()


def broken(rule: Rule, objects: list[Object]) -> list[str]:
    return [line for line in rule(objects) if line not in EXCEPTIONS]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("mode", MODES)
def test_a_rule_holds_in_every_mode(mode: str, rule: Rule):
    assert broken(rule, render_mode(mode)) == []


def test_every_exception_is_needed():
    found = {line for mode in MODES for rule in RULES for line in rule(render_mode(mode))}
    assert EXCEPTIONS.keys() - found == set()


def pod_spec(objects: list[Object], component: str) -> dict[str, Any]:
    return next(one for one in objects if one["kind"] == "Deployment" and one["metadata"]["name"].endswith(component))[
        "spec"
    ]["template"]["spec"]


def unrestricted(objects: list[Object]) -> None:
    pod_spec(objects, "api")["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = False


def unprobed(objects: list[Object]) -> None:
    del pod_spec(objects, "operator")["containers"][0]["livenessProbe"]


def selecting_a_version(objects: list[Object]) -> None:
    next(one for one in objects if one["kind"] == "Deployment")["spec"]["selector"]["matchLabels"]["version"] = "1"


def serving_no_port(objects: list[Object]) -> None:
    next(one for one in objects if one["kind"] == "Service")["spec"]["ports"][0]["targetPort"] = "nothing"


def telling_a_password(objects: list[Object]) -> None:
    pod_spec(objects, "worker")["containers"][0]["env"].append({"name": "ROLLOUTFLEET_TOKEN", "value": "abc"})


def mounting_a_token(objects: list[Object]) -> None:
    pod_spec(objects, "worker")["automountServiceAccountToken"] = True


def unlimited(objects: list[Object]) -> None:
    del pod_spec(objects, "worker")["containers"][0]["resources"]["limits"]["memory"]


def mounting_nothing(objects: list[Object]) -> None:
    pod_spec(objects, "api")["volumes"] = []


def too_much_shared_memory(objects: list[Object]) -> None:
    shared = next(volume for volume in pod_spec(objects, "worker")["volumes"] if volume["name"] == "shm")
    shared["emptyDir"]["sizeLimit"] = "512Gi"


def saying_it_twice(objects: list[Object]) -> None:
    variables = pod_spec(objects, "worker")["containers"][0]["env"]
    variables.append(variables[0])


def doubled(objects: list[Object]) -> None:
    objects.append(objects[0])


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        (rules.is_restricted, unrestricted),
        (rules.has_probes, unprobed),
        (rules.has_sound_selectors, selecting_a_version),
        (rules.has_sound_selectors, serving_no_port),
        (rules.keeps_secrets, telling_a_password),
        (rules.keeps_secrets, mounting_a_token),
        (rules.has_resources, unlimited),
        (rules.has_sound_volumes, mounting_nothing),
        (rules.has_sound_volumes, too_much_shared_memory),
        (rules.has_plain_environment, saying_it_twice),
        (rules.has_names_of_its_own, doubled),
    ],
    ids=lambda one: one.__name__,
)
def test_a_rule_finds_what_breaks_it(rule: Rule, fault: Callable[[list[Object]], None]):
    objects = deepcopy(render_mode("simulated"))
    fault(objects)
    assert broken(rule, objects) != []
