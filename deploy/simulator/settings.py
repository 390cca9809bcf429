"""Settings of one simulated engine. Each is checked when it is made, so that a wrong one names itself at start."""

from dataclasses import dataclass, field
from pathlib import Path

from deploy.simulator.faults import Faults
from deploy.simulator.lengths import LengthModel, Lognormal, Trace

# The vocabulary of the Qwen family, whose ids real prompts of this project's examples have.
QWEN_VOCABULARY = 151_936
QWEN_END_OF_TEXT = 151_645


@dataclass(frozen=True, slots=True)
class SimulatorSettings:
    """`slots` is max_running_requests. A lone request makes `speed` tokens/s, one among r running ones speed / (1 + r
    / half); half = 0 is constant speed. Raises ValueError that names the setting."""

    host: str = "127.0.0.1"
    port: int = 0
    api_key: str | None = None
    model_path: str = "simulated"
    tokenizer_path: str = ""
    weight_version: str = "default"
    any_weights: bool = False
    context_length: int = 32_768
    vocabulary: int = QWEN_VOCABULARY
    stop_token: int = QWEN_END_OF_TEXT

    slots: int = 32
    max_queued_requests: int | None = None
    speed: float = 400.0
    half: float = 32.0

    seed: int = 0
    mu: float | None = None
    mean_tokens: float = 200.0
    sigma: float = 0.9
    between: float = 0.5
    lengths: Path | None = None

    answers: Path | None = None
    prompt_key: str = "question"
    label_key: str = "answer"
    accuracy: float = 0.5

    health_seconds: float = 1.0
    health_timeout_seconds: float = 20.0
    drain_check_seconds: float = 5.0
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        _require(self.slots >= 1, f"slots must be at least 1, not {self.slots}")
        _require(self.speed > 0, f"speed must be above 0 tokens/s, not {self.speed}")
        _require(self.half >= 0, f"half must be at least 0 (0: constant speed), not {self.half}")
        _require(self.sigma >= 0, f"sigma must be at least 0, not {self.sigma}")
        _require(0 <= self.between <= 1, f"between must be a share in 0 to 1, not {self.between}")
        _require(self.mean_tokens >= 1, f"mean-tokens must be at least 1, not {self.mean_tokens}")
        _require(0 <= self.accuracy <= 1, f"accuracy must be in 0 to 1, not {self.accuracy}")
        _require(self.context_length >= 2, f"context-length must be at least 2, not {self.context_length}")
        _require(self.vocabulary >= 16, f"vocabulary must be at least 16, not {self.vocabulary}")
        _require(0 <= self.stop_token < self.vocabulary, f"stop-token {self.stop_token} is not below {self.vocabulary}")
        limit = self.max_queued_requests
        _require(limit is None or limit >= 0, f"max-queued-requests must be at least 0, not {limit}")

    def length_model(self) -> LengthModel:
        """Raises OSError or ValueError when the trace can't be read."""
        if self.lengths is not None:
            return LengthModel(Trace.read(self.lengths), self.between, self.seed)
        if self.mu is not None:
            return LengthModel(Lognormal(self.mu, self.sigma), self.between, self.seed)
        return LengthModel(Lognormal.with_mean(self.mean_tokens, self.sigma), self.between, self.seed)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)
