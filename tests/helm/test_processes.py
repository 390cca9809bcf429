"""What the chart tells the processes is what they take: each starts from what its container is given."""

from typing import Any

import pytest
from pydantic_settings import BaseSettings

from api.settings import ApiSettings
from deploy.operator.settings import OperatorSettings
from deploy.simulator import cli as simulator
from rolloutfleet.cli import make_parser
from rolloutfleet.settings import RunConfig
from tests.helm.pods import Container, containers_of
from tests.helm.render import ci_modes, ci_values, render, render_mode
from worker.settings import WorkerSettings

# What the kubelet and secrets fill in.
FILLED = {
    "REDIS_URL": "redis://:secret@redis:6379/0",
    "ROLLOUTFLEET_POD": "6f1c6f5e-0000-4000-8000-000000000000",
    "ROLLOUTFLEET_API_TOKEN": "eight-or-more",
}
# Read by others than our settings.
FOREIGN = {"REDIS_PASSWORD", "HF_HUB_OFFLINE", "ROLLOUTFLEET_RUN"}


def container(mode: str, name: str) -> Container:
    return next(one for one in containers_of(render_mode(mode)) if one.name == name)


def modes_with(name: str) -> list[str]:
    return [mode for mode in ci_modes() if any(one.name == name for one in containers_of(render_mode(mode)))]


def environment(one: Container) -> dict[str, str]:
    given = {name: variable.get("value", "filled-in") for name, variable in one.env.items()}
    return given | {name: value for name, value in FILLED.items() if name in given}


def settings_of(mode: str, name: str, model: type[BaseSettings], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Settings as the process in this container reads them."""
    variables = environment(container(mode, name))
    known = {field.upper() for field in model.model_fields}
    prefix = str(model.model_config.get("env_prefix"))
    unknown = {each for each in variables if each.removeprefix(prefix) not in known} - FOREIGN
    assert unknown == set(), "variables that nobody reads"
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    return model()


@pytest.mark.parametrize("mode", ci_modes())
def test_a_worker_reads_its_container(mode: str, monkeypatch: pytest.MonkeyPatch):
    settings: WorkerSettings = settings_of(mode, "worker/worker", WorkerSettings, monkeypatch)
    assert (settings.fleet, settings.pod, settings.probe_port) == ("rollouts/fleet", FILLED["ROLLOUTFLEET_POD"], 8081)


@pytest.mark.parametrize("mode", modes_with("operator/operator"))
def test_an_operator_reads_its_container(mode: str, monkeypatch: pytest.MonkeyPatch):
    settings: OperatorSettings = settings_of(mode, "operator/operator", OperatorSettings, monkeypatch)
    deployments = {
        one["metadata"]["name"] for one in render_mode(mode) if one["kind"] in ("Deployment", "LeaderWorkerSet")
    }
    assert (settings.fleet, settings.namespace, settings.probe_port) == ("rollouts/fleet", "rollouts", 8081)
    assert set(settings.deployments) <= deployments


@pytest.mark.parametrize("mode", modes_with("api/api"))
def test_an_api_reads_its_container(mode: str, monkeypatch: pytest.MonkeyPatch):
    settings: ApiSettings = settings_of(mode, "api/api", ApiSettings, monkeypatch)
    assert settings.port == 8000


def test_worker_and_operator_drain_for_the_same_time():
    told = [
        environment(container("simulated", name))["ROLLOUTFLEET_DRAIN_SECONDS"]
        for name in ("worker/worker", "operator/operator")
    ]
    assert told == ["30", "30"]


def test_pools_tell_the_operator_how_many_workers_each_has(monkeypatch: pytest.MonkeyPatch):
    settings: OperatorSettings = settings_of("pools", "operator/operator", OperatorSettings, monkeypatch)
    assert settings.fixed_replicas == {"fleet-rolloutfleet-worker-h200": 4, "fleet-rolloutfleet-worker-small": 0}


def test_the_settings_of_a_worker_arrive(monkeypatch: pytest.MonkeyPatch):
    settings: WorkerSettings = settings_of("sidecar", "worker/worker", WorkerSettings, monkeypatch)
    assert (settings.reward, settings.max_new_tokens, settings.engine_api_key) == ("math", 8192, "filled-in")


def test_a_simulator_takes_its_arguments():
    one = container("simulated", "worker/engine")
    entry, *arguments = one.spec["args"]
    settings = simulator.read_settings(vars(simulator.make_parser().parse_args(arguments[1:])))
    assert (entry, arguments[0]) == ("deploy", "simulator")
    assert (settings.host, settings.port, settings.slots) == ("0.0.0.0", 30000, 16)


@pytest.mark.parametrize("mode", modes_with("configure/configure"))
def test_the_run_is_configured_by_a_command_that_takes_its_arguments(mode: str):
    one = container(mode, "configure/configure")
    module, *arguments = one.spec["args"]
    options = make_parser().parse_args(arguments)
    given = {name: getattr(options, name) for name in RunConfig.model_fields}
    config = RunConfig.model_validate({name: value for name, value in given.items() if value is not None})
    wanted = ci_values(mode).get("run", {}).get("config", {})
    assert module == "rolloutfleet.cli"
    assert {name: getattr(config, name) for name in wanted} == wanted


def test_a_bare_n_in_yaml_is_n():
    """YAML reads the key n as the boolean false."""
    values = ci_values("simulated") | {"run": {"config": {"false": 4}}}
    (one,) = [one for one in containers_of(render(values)) if one.name == "configure/configure"]
    assert "--n=4" in one.spec["args"]
