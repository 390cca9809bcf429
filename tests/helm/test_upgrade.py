"""An upgrade from what was released leaves alone what can't be changed."""

import json
from copy import deepcopy
from typing import Any, cast

import pytest

from tests.helm.released import RECORD, fixed_part
from tests.helm.render import changed, named, of_kind, render

type Map = dict[str, Any]

RELEASED = cast("dict[str, Map]", json.loads(RECORD.read_text()))


@pytest.mark.parametrize("mode", RELEASED)
def test_what_cannot_be_changed_is_as_it_was_released(mode: str):
    now = fixed_part(render(RELEASED[mode]["values"]))
    before = RELEASED[mode]["fixed"]
    assert {name: now.get(name) for name in before} == before


def test_a_selector_with_one_more_label_would_be_found():
    objects = deepcopy(render(RELEASED["simulated"]["values"]))
    of_kind(objects, "Deployment")[0]["spec"]["selector"]["matchLabels"]["version"] = "2"
    assert fixed_part(objects) != RELEASED["simulated"]["fixed"]


@pytest.mark.parametrize(
    "dotted",
    [
        {"image__tag": "2.0"},
        {"worker__pod": {"labels": {"team": "a"}}},
        {"redis__memory": "1Gi"},
        {"run__config": {"n": 2}},
        {"scaling__owner": "operator"},
        {"drain__seconds": 5},
    ],
)
def test_a_changed_value_leaves_alone_what_cannot_be_changed(dotted: Map):
    before, after = render(changed("simulated")), render(changed("simulated", **dotted))
    assert fixed_part(after) == fixed_part(before)


def test_a_job_that_does_something_else_has_another_name():
    jobs = [
        of_kind(render(changed("sidecar", **dotted)), "Job")
        for dotted in ({}, {"run__config": {"n": 2}, "modelCache__preload__source": "Qwen/Qwen3-1.7B"})
    ]
    before, after = ({named(one): one["spec"] for one in some} for some in jobs)
    assert len(before) == len(after) == 2
    assert before.keys() & after.keys() == set()
