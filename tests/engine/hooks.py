"""Hooks of fleets on real engines."""

from typing import ClassVar

from examples.calculator import Calculator
from rolloutfleet.messages import PromptGroup, Sample
from worker.generate import Session


def length(prompt: PromptGroup, sample: Sample) -> float:
    """Anybody who has the sample can check it."""
    return float(sample.length)


class Watched(Calculator):
    """The example's environment, and who remembers how each of them ended."""

    made: ClassVar[list["Watched"]] = []

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0
        Watched.made.append(self)

    async def close(self) -> None:
        await super().close()
        self.closed += 1


async def scripted(session: Session) -> None:
    """Three turns with words of somebody else between them, whatever the model says."""
    for number in range(3):
        if number:
            session.append(await session.encode(f"<result>{number}</result>"))
        await session.generate(max_new_tokens=20)
