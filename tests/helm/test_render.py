"""Every mode renders, on both helms and on old and new Kubernetes, into objects that the API server would take."""

import subprocess

import pytest

from tests.helm.kinds import UnknownKind, problems
from tests.helm.render import NAMESPACE, Cluster, ci_modes, ci_values, combinations, named, render_mode, render_text
from tests.helm.values import CHART
from tests.helm_tools import Generation, helm

MODES = ci_modes()
GENERATIONS: tuple[Generation, ...] = (3, 4)


@pytest.mark.parametrize(("mode", "kubernetes"), combinations())
def test_every_object_of_every_mode_is_valid(mode: str, kubernetes: str):
    objects = render_mode(mode, Cluster(kubernetes))
    wrong = [f"{named(one)}: {problem}" for one in objects for problem in problems(one, kubernetes)]
    assert objects
    assert wrong == []


@pytest.mark.parametrize(("mode", "kubernetes"), combinations())
def test_both_helms_render_the_same(mode: str, kubernetes: str):
    older, newer = (render_mode(mode, Cluster(kubernetes, generation=generation)) for generation in GENERATIONS)
    assert {named(one): one for one in older} == {named(one): one for one in newer}


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("mode", MODES)
def test_lint_finds_nothing(mode: str, generation: Generation):
    command = [
        str(helm(generation)),
        "lint",
        "--strict",
        str(CHART),
        "--values",
        str(CHART / "ci" / f"{mode}-values.yaml"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_every_object_names_its_namespace_and_no_two_are_the_same(mode: str):
    objects = render_mode(mode)
    assert {one["metadata"]["namespace"] for one in objects} == {NAMESPACE}
    assert len({named(one) for one in objects}) == len(objects)


def test_a_misspelt_field_would_be_found():
    (found,) = problems(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"tpye": "x"}}, "1.37.0"
    )
    assert "tpye" in found


def test_an_unknown_kind_would_be_found():
    with pytest.raises(UnknownKind, match="Deploiment"):
        problems({"apiVersion": "apps/v1", "kind": "Deploiment"}, "1.37.0")


def test_a_kind_that_is_newer_than_the_cluster_would_be_found():
    with pytest.raises(UnknownKind, match="ResourceClaim"):
        problems({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}, "1.29.0")


def test_rendering_the_same_twice_gives_the_same():
    values = ci_values("simulated")
    again = dict(reversed(list(values.items())))
    assert render_text(values) == render_text(again)
