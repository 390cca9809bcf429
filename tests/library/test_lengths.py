"""Whether groups are lost by their length."""

from collections import Counter

import pytest

from rolloutfleet.lengths import Losses, completed_field, is_length, losses_of, lost_field


def stats(completed: list[int], lost: list[int], dead: int | None = None) -> dict[str, str]:
    fields = Counter([completed_field(length) for length in completed])
    fields += Counter([lost_field("timeout", length) for length in lost])
    return {name: str(number) for name, number in fields.items()} | {"dead": str(len(lost) if dead is None else dead)}


SPREAD = [round(2 ** (at / 10)) for at in range(40, 140)]  # from 16 to 15,000 tokens


def test_groups_longer_than_any_completed_one_are_in_the_last_tenth() -> None:
    found = losses_of(stats(SPREAD, [20_000] * 12))
    assert found == Losses({"timeout": 12}, (0,) * 9 + (12,))
    assert found.is_biased


def test_losses_that_follow_the_lengths_are_spread_over_the_tenths() -> None:
    found = losses_of(stats(SPREAD, SPREAD))
    assert found.deciles is not None
    assert sum(found.deciles) == len(SPREAD)
    assert max(found.deciles) <= 25
    assert not found.is_biased


@pytest.mark.parametrize("lost", [[20], [20_000] * 9])
def test_a_few_losses_say_nothing_of_a_bias(lost: list[int]) -> None:
    assert not losses_of(stats(SPREAD, lost)).is_biased


def test_a_group_that_had_not_begun_has_a_cause_and_no_tenth() -> None:
    assert losses_of(stats(SPREAD, [0, 0])) == Losses({"timeout": 2}, (0,) * 10)


def test_dead_letters_that_no_worker_counted_are_unknown() -> None:
    assert losses_of(stats([9], [9], dead=4)).causes == {"timeout": 1, "unknown": 3}


def test_without_a_completed_group_there_are_no_tenths() -> None:
    assert losses_of(stats([], [5])).deciles is None
    assert losses_of({}) == Losses({}, None)


def test_the_fields_are_bounded_however_long_answers_are() -> None:
    names = {completed_field(length) for length in range(0, 1 << 16, 3)} | {completed_field(1 << 40)}
    assert len(names) < 45
    assert all(map(is_length, names))
