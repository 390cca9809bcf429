"""The steps against their specification: any order, faults and late messages, on fakeredis and on a real server."""

import fakeredis
import pytest
import redis.asyncio
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from deploy.embedded import EmbeddedServer
from rolloutfleet.redis import Client
from tests.library.machine import FleetMachine

EACH = settings(
    deadline=None,
    database=None,
    print_blob=True,
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def on_fakeredis() -> Client:
    return fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer(), protocol=2)


class OnFakeredis(FleetMachine):
    connect = staticmethod(on_fakeredis)


def run(machine: type[FleetMachine], examples: int) -> None:
    run_state_machine_as_test(machine, settings=settings(EACH, max_examples=examples))


def run_on_a_server(examples: int) -> None:
    with EmbeddedServer(durability="off") as server:

        class OnServer(FleetMachine):
            connect = staticmethod(lambda: redis.asyncio.Redis.from_url(server.url, protocol=2))

        run(OnServer, examples)


@pytest.mark.timeout(600)
def test_the_steps_do_what_their_specification_says():
    run(OnFakeredis, examples=80)


@pytest.mark.timeout(600)
def test_a_real_server_does_what_the_specification_says():
    run_on_a_server(examples=50)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_steps_do_what_their_specification_says_for_minutes():
    run(OnFakeredis, examples=2000)
    run_on_a_server(examples=2000)
