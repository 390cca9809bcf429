"""Hooks of fleets on real engines."""

from rolloutfleet.messages import PromptGroup, Sample


def length(prompt: PromptGroup, sample: Sample) -> float:
    """Anybody who has the sample can check it."""
    return float(sample.length)
