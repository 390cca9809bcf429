"""Settings of the operator: what the chart gives, and what is refused with a sentence."""

import pytest
from pydantic import ValidationError

from deploy.operator.objects import Kind
from deploy.operator.settings import OperatorSettings, Owner

GIVEN = {
    "REDIS_URL": "redis://broker:6379",
    "ROLLOUTFLEET_RUN": "math",
    "ROLLOUTFLEET_FLEET": "ml/rollouts",
    "ROLLOUTFLEET_DEPLOYMENTS": "rollouts-worker, rollouts-worker-h200",
}


def read(monkeypatch: pytest.MonkeyPatch, **more: str) -> OperatorSettings:
    for name, value in (GIVEN | {f"ROLLOUTFLEET_{name.upper()}": value for name, value in more.items()}).items():
        monkeypatch.setenv(name, value)
    return OperatorSettings()  # pyright: ignore[reportCallIssue]  # from the environment


def test_the_chart_s_environment_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, scaling_owner="operator", pod_name="operator-0")
    assert settings.deployments == ("rollouts-worker", "rollouts-worker-h200")
    assert (settings.namespace, settings.release) == ("ml", "rollouts")
    assert settings.scaling_owner is Owner.OPERATOR


def test_one_number_of_replicas_is_that_of_each_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, worker_replicas="3").fixed_replicas == {"rollouts-worker": 3, "rollouts-worker-h200": 3}


def test_each_pool_may_have_its_own_number(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, worker_replicas="3,0")
    assert settings.fixed_replicas == {"rollouts-worker": 3, "rollouts-worker-h200": 0}


def test_those_that_are_sets_are_named_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, leader_worker_sets="rollouts-worker-h200")
    assert settings.kinds == {"rollouts-worker": Kind.DEPLOYMENT, "rollouts-worker-h200": Kind.SET}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("deployments", "", "deployments must name at least one"),
        ("deployments", "a,a", "each once"),
        ("leader_worker_sets", "rollouts-worker,other", "names other, which deployments does not"),
        ("worker_replicas", "1,2,3", "one for each of deployments"),
        ("worker_replicas", "-1", "at least 0"),
        ("min_workers", "2000", "min_workers is more than max_workers"),
        ("namespace", "other", "one of them is wrong"),
        ("fleet", "no-release", "fleet"),
        ("scaling_owner", "hpa", "'fixed', 'operator' or 'keda'"),
    ],
)
def test_what_can_t_work_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        read(monkeypatch, **{name: value})
