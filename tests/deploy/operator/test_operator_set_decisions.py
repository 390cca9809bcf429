"""The decisions for a LeaderWorkerSet under the same state machine: its pods have indices, and the highest one goes."""

from hypothesis import settings
from hypothesis.stateful import invariant

from deploy.operator.reconcile import Plan, Pool, Rules, Unit, plan
from tests.deploy.operator.test_operator_decisions import DRAIN_MS, Fleet


class Set(Fleet):
    """One set. What has gone from its middle comes again under its index."""

    def _replace_missing(self) -> None:
        for unit in [unit for unit in self.units.values() if unit.index >= self.replicas]:
            assert unit.is_told or not unit.workers, f"{unit} could still claim when its index went"
            if unit.is_busy:
                assert self.now_ms - self.seen[unit.uid].since_ms >= DRAIN_MS, f"{unit} had time left"
            del self.units[unit.uid]
        there = {unit.index for unit in self.units.values()}
        for index in sorted(set(range(self.replicas)) - there):
            self.number += 1
            uid = f"u{self.number}"
            self.units[uid] = Unit(uid, f"p-{index}", "p", index, is_ready=False, created_at=self.now_ms)

    def _plan(self) -> Plan:
        pool = Pool("p", self.replicas, self.wanted, self.is_rolling, not self.is_rolling, self.restart_at, True)
        return plan(list(self.units.values()), [pool], Rules(self.now_ms, DRAIN_MS, 1))

    @invariant()
    def an_idle_one_that_serves_is_not_left_standing_for_a_busy_one(self) -> None:
        """Here it may be: who goes is told by the index alone."""
        going = {self.units[uid].index for uid, why in self._plan().leaving.items() if why in ("scale", "person")}
        staying = {unit.index for uid, unit in self.units.items() if self._plan().leaving.get(uid) != "scale"}
        assert self.is_rolling or not {index for index in staying if index >= self.wanted} - going

    @invariant()
    def a_set_is_never_shrunk_by_deleting_a_pod(self) -> None:
        assert "scale" not in self._plan().deletes.values()


Set.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
TestSetDecisions = Set.TestCase
