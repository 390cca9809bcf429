"""The decisions under a state machine: pods, groups, crashes in the middle of a step, rollouts, restarts, people.

The fleet is values only. A look may end after any part of it: then the next one, of the same or another leader, plans
from what is there. The ReplicaSet drops what Kubernetes would drop, and must never have to choose a busy pod.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from deploy.operator.reconcile import Plan, Pool, Rules, Unit, plan

DRAIN_MS = 60_000
PARTS = ("marks", "deletes", "replicas")


class Fleet(RuleBasedStateMachine):
    """One pool that may have `room` pods running; the others wait."""

    def __init__(self) -> None:
        super().__init__()
        self.units: dict[str, Unit] = {}
        self.replicas = self.wanted = 4
        self.room = 6
        self.now_ms = 1000
        self.number = 0
        self.is_rolling: bool = False
        self.restart_at: int | None = None
        self.seen: dict[str, Unit] = {}  # as the look saw them that is carried out
        self._replace_missing()
        self._settle()

    # The cluster

    def _replace_missing(self) -> None:
        while len(self.units) < self.replicas:
            self.number += 1
            uid = f"u{self.number}"
            self.units[uid] = Unit(uid, uid, "p", is_ready=False, created_at=self.now_ms)
        extra = sorted(self.units.values(), key=_dropped_first)[: len(self.units) - self.replicas]
        for unit in extra:
            assert not unit.is_busy, f"the ReplicaSet had to drop {unit}"
            del self.units[unit.uid]

    def _settle(self) -> None:
        running = sum(bool(unit.workers) for unit in self.units.values())
        for unit in list(self.units.values()):
            if not unit.workers and running < self.room:
                running += 1
                self.units[unit.uid] = replace(unit, is_ready=True, workers=(f"{unit.uid}/1",), is_told=False)

    # One look, or a part of it

    def _plan(self) -> Plan:
        pool = Pool("p", self.replicas, self.wanted, self.is_rolling, not self.is_rolling, self.restart_at)
        return plan(list(self.units.values()), [pool], Rules(self.now_ms, DRAIN_MS, 1))

    def _look(self, parts: int) -> None:
        made, self.seen = self._plan(), dict(self.units)
        for part in PARTS[:parts]:
            getattr(self, f"_carry_out_{part}")(made)
        self._replace_missing()

    def _carry_out_marks(self, made: Plan) -> None:
        for uid, unit in self.units.items():
            why = made.leaving.get(uid, "")
            if not unit.workers:
                continue
            since = unit.since_ms if unit.leaving else self.now_ms
            self.units[uid] = replace(unit, leaving=why, is_told=bool(why), since_ms=since)

    def _carry_out_deletes(self, made: Plan) -> None:
        going = [self.units[uid] for uid in made.deletes]
        stays = [unit for uid, unit in self.units.items() if uid not in made.deletes]
        for unit in going:
            assert self.seen[unit.uid].is_told or not unit.workers, f"{unit} could still claim when it was seen idle"
            if unit.is_busy:
                assert self.now_ms - self.seen[unit.uid].since_ms >= DRAIN_MS, f"{unit} had time left"
                if made.deletes[unit.uid] == "scale":
                    assert all(other.is_busy for other in stays), f"{unit} went before an idle one"
            del self.units[unit.uid]

    def _carry_out_replicas(self, made: Plan) -> None:
        before = self.replicas
        self.replicas = made.replicas.get("p", before)
        assert self.replicas >= min(before, self.wanted), "below what is wanted"
        assert self.replicas <= max(before, self.wanted), "above what is wanted"
        assert not (self.is_rolling and self.replicas < before), "shrunk in the middle of a rollout"

    @rule(parts=st.integers(0, 3))
    def look(self, parts: int) -> None:
        self._look(parts)

    # The world

    @rule(wanted=st.integers(0, 8))
    def want(self, wanted: int) -> None:
        self.wanted = wanted

    @rule(seconds=st.sampled_from([1, 20, 90]))
    def wait(self, seconds: int) -> None:
        self.now_ms += seconds * 1000

    @rule()
    def settle(self) -> None:
        self._settle()

    @rule(room=st.integers(1, 8))
    def nodes(self, room: int) -> None:
        self.room = room

    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        able = [unit for unit in self.units.values() if unit.workers and not unit.is_told]
        if able:
            unit = data.draw(st.sampled_from(able))
            self.units[unit.uid] = replace(unit, groups=unit.groups + 1, samples=unit.samples + 4)

    @rule()
    def claim_all(self) -> None:
        for unit in list(self.units.values()):
            if unit.workers and not unit.is_told:
                self.units[unit.uid] = replace(unit, groups=unit.groups + 1, samples=unit.samples + 1)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        busy = [unit for unit in self.units.values() if unit.is_busy]
        if busy:
            unit = data.draw(st.sampled_from(busy))
            self.units[unit.uid] = replace(unit, groups=unit.groups - 1, samples=max(0, unit.samples - 4))

    @rule(data=st.data(), drained=st.booleans())
    def person(self, data: st.DataObject, drained: bool) -> None:
        if self.units:
            unit = data.draw(st.sampled_from(list(self.units.values())))
            self.units[unit.uid] = replace(unit, is_drained_by_person=drained)

    @rule(data=st.data(), ready=st.booleans())
    def readiness(self, data: st.DataObject, ready: bool) -> None:
        running = [unit for unit in self.units.values() if unit.workers]
        if running:
            unit = data.draw(st.sampled_from(running))
            self.units[unit.uid] = replace(unit, is_ready=ready)

    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        """Somebody forces a pod away."""
        if self.units:
            del self.units[data.draw(st.sampled_from(list(self.units)))]
            self._replace_missing()

    @rule(rolling=st.booleans())
    def rollout(self, rolling: bool) -> None:
        self.is_rolling = rolling

    @rule()
    def restart(self) -> None:
        self.restart_at = self.now_ms
        self.now_ms += 2000

    @precondition(lambda self: self.restart_at is not None)
    @rule()
    def restart_step_takes_one_at_most(self) -> None:
        """What a restart adds to the engines that are away is one at most."""
        made = self._plan()
        told = [self.units[uid] for uid, why in made.leaving.items() if why == "restart"]
        assert sum(unit.is_ready and not unit.is_drained_by_person for unit in told) <= 1

    @rule(wanted=st.integers(0, 3), rolling=st.booleans(), looks=st.integers(1, 3))
    def too_many_and_all_busy(self, wanted: int, rolling: bool, looks: int) -> None:
        """Those that are told hold groups, and their time is not over."""
        self._settle()
        self.claim_all()
        self.wanted = wanted
        self._look(3)
        self.is_rolling = rolling
        for _ in range(looks):
            self._look(3)

    # What always holds

    @invariant()
    def nobody_is_told_to_go_in_a_rollout(self) -> None:
        assert not self.is_rolling or not {"scale", "restart"} & set(self._plan().leaving.values())

    @invariant()
    def a_restart_waits_for_the_shrinking(self) -> None:
        assert not {"scale", "restart"} <= set(self._plan().leaving.values())

    @invariant()
    def the_number_does_not_fall_in_a_rollout(self) -> None:
        assert not self.is_rolling or self._plan().replicas.get("p", self.replicas) >= self.replicas

    @invariant()
    def an_idle_one_that_serves_is_not_left_standing_for_a_busy_one(self) -> None:
        made = self._plan()
        chosen = [self.units[uid] for uid, why in made.leaving.items() if why == "scale"]
        if any(unit.is_busy for unit in chosen):
            assert all(unit.is_busy for uid, unit in self.units.items() if made.leaving.get(uid) != "scale")

    def teardown(self) -> None:
        """Once the world is quiet, so many looks lead to what is wanted, with nobody told to go but by people."""
        self.is_rolling = False
        for _ in range(40):
            self.units = {uid: replace(unit, groups=0, samples=0) for uid, unit in self.units.items()}
            self._look(3)
            self._settle_all()
            self.now_ms += 1000
        assert (self.replicas, len(self.units)) == (self.wanted, self.wanted)
        assert all(unit.leaving in ("", "person") for unit in self.units.values())
        assert all(unit.created_at > self.restart_at for unit in self.units.values() if self.restart_at is not None)

    def _settle_all(self) -> None:
        room, self.room = self.room, 100
        self._settle()
        self.units = {uid: replace(unit, is_ready=True) for uid, unit in self.units.items()}
        self.room = room


def _dropped_first(unit: Unit) -> tuple[object, ...]:
    return (bool(unit.workers), unit.is_ready, -unit.created_at)


Fleet.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
TestDecisions = Fleet.TestCase
