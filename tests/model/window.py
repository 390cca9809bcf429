"""The window, as the specification sees it: may one more group be claimed, and if not, why.

Written apart from `rolloutfleet.window`, so that the two can be compared value by value.
"""

from tests.model.guards import guard
from tests.model.state import ORPHAN, Broker, Config, Group, Samples


def ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def left_of(group: Group, samples: Samples) -> int:
    """The samples that a lease counts: a lease counts at least 1 until it is completed."""
    return max(1, group.n - len(samples))


def size(broker: Broker, config: Config) -> int:
    """W, in groups: ceil(overcommit * S / n), overcommit in thousandths."""
    samples = config.sample_concurrency
    if samples is None:
        samples = sum(broker.capacity.values())
    return ceil_div(permille(config) * samples, 1000 * config.n)


def permille(config: Config) -> int:
    """`auto` is a quarter more than the slots where finished samples free places."""
    if config.overcommit is not None:
        return config.overcommit
    return 1250 if config.refill == "sample" and config.sample_concurrency is None else 1000


def active(broker: Broker, config: Config) -> int:
    if config.refill == "group":
        return len(broker.leases)
    return ceil_div(broker.outstanding, config.n)


def waiting(broker: Broker) -> int:
    """Entries that no trainer has taken. What was delivered to a deleted consumer counts until it is repaired."""
    pending = sum(entry.who not in (None, ORPHAN) for entry in broker.completed)
    return max(0, len(broker.completed) - pending)


def gate(broker: Broker, config: Config) -> str:
    """`open`, or the first reason for which nothing may be claimed, whatever waits in the lists."""
    places = size(broker, config)
    if guard("window.paused", config.paused):
        return "paused"
    if places == 0:
        return "no_capacity"
    if guard("window.waiting", waiting(broker) >= places):
        return "completed_full"
    left = pace_left(broker, config)
    if guard("window.pace", left is not None and left <= 0):
        return "pace"
    if guard("window.active", active(broker, config) >= places) or not has_free_lease(broker, config):
        return "active_full"
    return "open"


def pace_left(broker: Broker, config: Config) -> int | None:
    """Groups that may be claimed before what they bring is too old; None: staleness has no bound."""
    if config.max_staleness is None:
        return None
    trained_by_then = (config.max_staleness + broker.updates + 1) * config.groups_per_update
    return trained_by_then - broker.trained - len(broker.leases) - len(broker.completed)


def has_free_lease(broker: Broker, config: Config) -> bool:
    """Sample refill bounds the leases, too: a slow reward would open group after group."""
    full = len(broker.leases) >= config.open_cap * size(broker, config)
    return config.refill == "group" or not guard("window.open_cap", full)


def fits(broker: Broker, config: Config, left: int) -> bool:
    """Sample refill, groups of different n: a big one waits for its room, or for the fleet to be empty."""
    room = config.n * size(broker, config) - broker.outstanding
    too_big = left > room and broker.outstanding > 0
    return config.refill == "group" or not guard("window.fits", too_big)
