"""The calculator of examples/: what it computes, and what a trainer is handed of a simulated engine that calls it."""

import json
from pathlib import Path

import pytest

from deploy.simulator import Simulator, SimulatorSettings
from deploy.simulator.tokens import text_to_ids
from examples.calculator import MOST_CALLS, calculate
from rolloutfleet.reading import fetch
from tests.worker.fleet import Fleet, until

VOCABULARY = 151_936
QUESTION = "What is 3 times 4?"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (" 3 * (4 + 5) ", "27"),
        ("-7 / 2", "-3.5"),
        ("1 / 0", "error: ZeroDivisionError"),
        ("2 ** 9999", "error: ValueError"),
        ("__import__('os')", "error: ValueError"),
        ("3 *", "error: SyntaxError"),
        ("9" * 40, "error: ValueError"),
        ("(" * 500, "error: SyntaxError"),
    ],
)
def test_it_calculates_and_does_nothing_else(expression: str, said: str) -> None:
    assert calculate(expression) == said


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """A model that asks the calculator whenever it is asked."""
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"question": QUESTION, "answer": "<calc>3 * 4</calc>"}) + "\n")
    return path


async def test_what_the_tool_said_is_in_the_row_and_masked(fleet: Fleet, answers: Path) -> None:
    settings = SimulatorSettings(speed=50_000, half=0, mean_tokens=30, sigma=0.1, answers=answers, accuracy=1.0)
    await fleet.configure(n=2)
    async with Simulator(settings) as simulator:
        await fleet.submit("g", prompt=QUESTION, input_ids=None, label="12")
        async with fleet.worker(
            engine_url=simulator.url, generate="examples.calculator:Calculator", vocab_size=VOCABULARY
        ):
            await until(lambda: fleet.stat("completed"))
            _, entries = await fleet.broker.take("trainer", 1)
            (group,) = await fetch(fleet.broker, entries)
            await fleet.broker.ack([group.entry])
    for sample in group.samples:
        (row,) = sample.rows
        masked = [int(token) for token, mask in zip(row.ids, row.mask, strict=True) if not mask]
        said = text_to_ids("<result>12</result>", VOCABULARY)
        assert 1 <= sample.metadata["calls"] <= MOST_CALLS
        assert masked == said * sample.metadata["calls"]
        assert row.mask[0] == 1
        assert not row.logprobs[row.mask == 0].any()
