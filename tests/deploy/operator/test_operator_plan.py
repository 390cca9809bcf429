"""Single decisions that the state machine does not reach: pods that are missing for a moment."""

import pytest

from deploy.operator.reconcile import Pool, Rules, Unit, plan

RULES = Rules(now_ms=1000, drain_ms=60_000)
THREE = [Unit(f"u{number}", f"u{number}", "p") for number in range(3)]


@pytest.mark.parametrize(("is_rolling", "is_settled"), [(True, False), (True, True), (False, False)])
def test_the_number_does_not_fall_while_pods_are_missing_for_a_moment(is_rolling: bool, is_settled: bool) -> None:
    pool = Pool("p", replicas=5, wanted=3, is_rolling=is_rolling, is_settled=is_settled)
    assert plan(THREE, [pool], RULES).replicas == {}


def test_it_falls_at_once_where_the_missing_pods_can_not_be_made() -> None:
    made = plan(THREE, [Pool("p", replicas=5, wanted=3)], RULES)
    assert (made.replicas, made.leaving, made.deletes) == ({"p": 3}, {}, {})
