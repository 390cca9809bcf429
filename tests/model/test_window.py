"""The specification's window and the library's say the same, value by value."""

from collections.abc import Iterator
from itertools import product

import pytest

from rolloutfleet.window import Pace, Refill, Window
from tests.model import window
from tests.model.state import Broker, Config, Entry, Map

GROUPS = "abcde"


def brokers(refill: Refill) -> Iterator[Broker]:
    """Up to five leases and three waiting entries under many configurations."""
    sizes = product((1, 2, 3, 4), (1, 2, 3), (1000, 1500), (1, 2), (False, True), (None, 0, 1))
    for size, leases, extra, waiting in product(sizes, range(6), range(4), range(4)):
        samples, n, overcommit, cap, paused, most = size
        config = Config(samples, n, refill, overcommit, cap, paused=paused, max_staleness=most, groups_per_update=2)
        yield Broker(
            config,
            "1",
            leases=Map((id, "live") for id in GROUPS[:leases]),
            outstanding=leases + extra if leases else 0,
            completed=tuple(Entry(id, "1.1", 0, ()) for id in GROUPS[:waiting]),
            updates=1,
            trained=1,
        )


def library_window(broker: Broker, config: Config) -> Window:
    return Window(
        samples=config.sample_concurrency or 0,
        n=config.n,
        active=len(broker.leases),
        outstanding=broker.outstanding,
        waiting=len(broker.completed),
        refill=config.refill,
        overcommit=window.permille(config),
        open_cap=config.open_cap,
        paused=config.paused,
        pace=None
        if config.max_staleness is None
        else Pace(config.max_staleness, config.groups_per_update, broker.updates, broker.trained),
    )


@pytest.mark.parametrize("refill", ["group", "sample"])
def test_both_close_the_window_for_the_same_reason(refill: Refill) -> None:
    for broker in brokers(refill):
        config = broker.config or Config()
        reason = library_window(broker, config).closed()

        assert window.gate(broker, config) == (reason or "open"), broker


@pytest.mark.parametrize("refill", ["group", "sample"])
def test_both_let_the_same_groups_fit(refill: Refill) -> None:
    for broker, left in product(brokers(refill), (1, 2, 3, 5)):
        config = broker.config or Config()

        assert window.fits(broker, config, left) == library_window(broker, config).fits(left), (broker, left)
