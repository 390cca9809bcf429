"""The pure model of how long answers are."""

import math
from pathlib import Path
from statistics import NormalDist, fmean, pstdev

import pytest

from deploy.simulator.lengths import LengthModel, Lognormal, Trace

PROMPTS, SAMPLES = 1500, 8


def draw_groups(model: LengthModel) -> list[list[int]]:
    return [[model.draw(prompt, sample) for sample in range(SAMPLES)] for prompt in range(PROMPTS)]


def logs(group: list[int]) -> list[float]:
    return [math.log(length) for length in group]


@pytest.fixture(scope="module")
def groups() -> list[list[int]]:
    return draw_groups(LengthModel(Lognormal.with_mean(2000, 0.9), between=0.5, seed=3))


def test_the_same_seed_draws_the_same_lengths() -> None:
    first, second = (LengthModel(Lognormal(5, 0.9), seed=7) for _ in range(2))
    assert [first.draw(p, s) for p in range(20) for s in range(4)] == [
        second.draw(p, s) for p in range(20) for s in range(4)
    ]


def test_a_length_does_not_change_between_releases() -> None:
    model = LengthModel(Lognormal(5, 0.9), seed=7)
    assert [model.draw(1, sample) for sample in range(3)] == [209, 1670, 732]


def test_another_seed_draws_other_lengths() -> None:
    first, second = (LengthModel(Lognormal(5, 0.9), seed=seed) for seed in (1, 2))
    assert [first.draw(p, 0) for p in range(20)] != [second.draw(p, 0) for p in range(20)]


def test_the_mean_is_the_one_asked_for(groups: list[list[int]]) -> None:
    assert fmean(fmean(group) for group in groups) == pytest.approx(2000, rel=0.05)


def test_the_spread_of_log_length_is_sigma(groups: list[list[int]]) -> None:
    assert pstdev(log for group in groups for log in logs(group)) == pytest.approx(0.9, rel=0.03)


def test_the_share_of_variance_between_prompts_is_the_one_asked_for(groups: list[list[int]]) -> None:
    within = fmean(pstdev(logs(group)) ** 2 for group in groups) * SAMPLES / (SAMPLES - 1)
    assert 1 - within / 0.9**2 == pytest.approx(0.5, abs=0.03)


def test_the_expected_mean_and_longest_agree_with_draws(groups: list[list[int]]) -> None:
    model = LengthModel(Lognormal.with_mean(2000, 0.9), between=0.5, seed=3)
    cut = [[min(length, 6000) for length in group] for group in groups]
    assert model.mean(6000) == pytest.approx(fmean(fmean(group) for group in cut), rel=0.04)
    assert model.mean_longest(8, 6000) == pytest.approx(fmean(max(group) for group in cut), rel=0.04)


def test_the_longest_of_two_independent_lognormals_is_as_the_closed_formula_says() -> None:
    longest = 2 * math.exp(0.5) * NormalDist().cdf(1 / math.sqrt(2))
    model = LengthModel(Lognormal(8, 1.0), between=0)
    assert model.mean_longest(2) == pytest.approx(math.exp(8) * longest, rel=1e-6)
    assert model.group_bound(2) == pytest.approx(math.exp(0.5) / longest, rel=1e-6)


def test_without_variance_within_a_prompt_its_samples_are_equally_long() -> None:
    model = LengthModel(Lognormal(6, 1.0), between=1.0)
    assert len({model.draw(4, sample) for sample in range(8)}) == 1
    assert model.group_bound(8) == pytest.approx(1)


def test_a_trace_is_drawn_in_its_own_distribution(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("prompt_len,output_len\n" + "".join(f"1,{length}\n" for length in range(100, 1101)))
    lengths = [length for group in draw_groups(LengthModel(Trace.read(path))) for length in group]
    assert min(lengths) >= 100
    assert max(lengths) <= 1100
    assert fmean(lengths) == pytest.approx(600, rel=0.03)


def test_a_histogram_counts_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "histogram.csv"
    path.write_text("output_len,count\n5,3\n9,1\n")
    assert Trace.read(path).lengths == (5, 5, 5, 9)


def test_a_file_without_lengths_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"other\.csv has no column output_len; it has a, b"):
        Trace.read(path)


def test_a_length_is_at_least_one_token() -> None:
    assert LengthModel(Lognormal(-20, 0.1)).draw(0, 0) == 1
