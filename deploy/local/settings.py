"""Settings of the main job. Each field is an option of the same name, and its description the option's help.

Invariant: settings that were made fit together; what is wrong is a ValidationError that names the option and the mend.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from deploy.simulator import Faults, SimulatorSettings, Trace
from deploy.simulator.engine import Pace
from rolloutfleet.keys import RUN_NAME
from rolloutfleet.settings import RunConfig
from rolloutfleet.window import Refill

EXAMPLES = Path(__file__).parents[2] / "examples" / "prompts.jsonl"
DEMO_GROUPS = 300
_CONTEXT = 32_768
MAX_ENGINES, MAX_WORKERS, MAX_SLOTS = 64, 256, 65_536

type Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LocalSettings(BaseModel):
    """One fleet on one machine. `faults` are the simulated engines' (deploy.simulator.Faults), by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompts: Annotated[Path, Field(description="JSON lines with questions and answers")] = EXAMPLES
    prompt_key: Annotated[
        str | None, Field(description="key of the question, dots go deeper; default: what the first line has")
    ] = None
    label_key: Annotated[
        str | None, Field(description="key of the answer, dots go deeper; default: what the first line has")
    ] = None
    groups: Annotated[
        int | None,
        Field(ge=1, le=10_000_000, description="how many groups; lines are cut or repeated. Default: each line once"),
    ] = None
    n: Annotated[int, Field(ge=1, le=4096, description="samples of a group")] = 8
    max_new_tokens: Annotated[int, Field(ge=1, description="longest answer, in tokens")] = 1024
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False, description="sampling temperature")] = 1.0

    sample_concurrency: Annotated[
        Annotated[int, Field(ge=1)] | Literal["auto"],
        Field(description="samples that the fleet holds at once; auto: as many as it has slots"),
    ] = "auto"
    refill: Annotated[
        Refill, Field(description="a place is free when a whole group is done (group), or when n samples are (sample)")
    ] = "group"
    overcommit: Annotated[
        Annotated[float, Field(gt=0, le=100)] | Literal["auto"],
        Field(
            description="factor by which the window exceeds sample-concurrency; auto: 1, but 1.25 where that is auto "
            "and refill is sample"
        ),
    ] = "auto"
    batch: Annotated[int, Field(ge=1, description="groups that the trainer trains on at once")] = 32
    max_staleness: Annotated[
        int | None,
        Field(ge=0, description="publish weights after each step, and bound how many versions a group may be behind"),
    ] = None
    train_seconds: Annotated[Seconds, Field(description="how long a step of the trainer takes")] = 0.5

    engines: Annotated[int, Field(ge=1, le=MAX_ENGINES, description="simulated engines to start")] = 2
    engine: Annotated[
        tuple[Annotated[str, Field(pattern=r"^https?://[^/\s]+")], ...],
        Field(description="address of a real SGLang server instead, http://host:port; may be given several times"),
    ] = ()
    slots: Annotated[int, Field(ge=1, le=MAX_SLOTS, description="samples that each engine serves at once")] = 32
    workers: Annotated[
        int | None,
        Field(ge=1, le=MAX_WORKERS, description="worker processes, spread over the engines; default: one each"),
    ] = None
    reward: Annotated[str, Field(description="exact_match, math, or module:function")] = "exact_match"
    tokenizer: Annotated[
        str | None, Field(description="path of the tokenizer for chat messages; default: the engine's own")
    ] = None
    drain_seconds: Annotated[
        Seconds, Field(description="how long a worker that is stopped may finish what it holds")
    ] = 10

    speed: Annotated[float, Field(gt=0, description="simulated: tokens per second of a lone request")] = 550
    half: Annotated[
        float, Field(ge=0, description="simulated: running requests at which each is half as fast; 0: constant speed")
    ] = 0
    mean_tokens: Annotated[float, Field(ge=1, description="simulated: mean length of an answer")] = 200
    sigma: Annotated[float, Field(ge=0, description="simulated: standard deviation of the log of the lengths")] = 0.9
    between: Annotated[
        float, Field(ge=0, le=1, description="simulated: share of the lengths' variance between prompts")
    ] = 0.5
    lengths: Annotated[
        Path | None, Field(description="simulated: CSV with a column output_len to draw lengths from")
    ] = None
    accuracy: Annotated[float, Field(ge=0, le=1, description="simulated: share of right answers")] = 0.5
    faults: dict[str, float] = Field(default_factory=dict)

    seed: Annotated[int, Field(description="of lengths, answers, faults, and of which worker is killed")] = 0
    kill_every: Annotated[
        float | None, Field(gt=0, description="kill -9 a random worker each so many seconds; it is started again")
    ] = None
    redis_url: Annotated[
        str | None,
        Field(pattern=r"^(rediss?|unix)://", description="a Redis or Valkey; default: REDIS_URL, else one is started"),
    ] = None
    run: Annotated[
        str | None, Field(pattern=f"^{RUN_NAME.pattern}$", description="name of the run; default: a fresh one")
    ] = None
    no_live: Annotated[bool, Field(description="plain lines instead of a picture that is redrawn")] = False
    no_api: Annotated[bool, Field(description="without the status page")] = False
    output: Annotated[Path | None, Field(description="write the completed groups there, as JSON lines")] = None
    summary: Annotated[Path | None, Field(description="write the summary there, as JSON")] = None
    logs: Annotated[Path | None, Field(description="keep the logs of engines and workers in this directory")] = None

    @field_validator("lengths")
    @classmethod
    def _readable(cls, value: Path | None) -> Path | None:
        try:
            if value is not None:
                Trace.read(value)
        except OSError as error:
            raise ValueError(f"can't read {value}: {error.strerror}") from error
        return value

    @field_validator("faults")
    @classmethod
    def _known_faults(cls, value: dict[str, float]) -> dict[str, float]:
        Faults().changed(_typed(value))
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        engines = len(self.engine) or self.engines
        if self.worker_count < engines:
            raise ValueError(
                f"--workers: {self.worker_count} can't reach {engines} engines: give {engines}, or fewer engines"
            )
        if self.worker_count > engines * self.slots:
            raise ValueError(
                f"--workers: {self.worker_count} share {engines * self.slots} slots: give fewer, or --slots"
            )
        if self.engine and self.max_staleness is not None:
            raise ValueError("--max-staleness: this trainer has no weights for real engines: leave out --engine")
        if self.engine and self.faults:
            raise ValueError("faults are the simulated engines': leave them out, or leave out --engine")
        self.run_config()
        self.simulator(None)
        return self

    @property
    def worker_count(self) -> int:
        return self.workers or len(self.engine) or self.engines

    @property
    def is_simulated(self) -> bool:
        return not self.engine

    @property
    def total_slots(self) -> int:
        """Samples that all engines together serve at once."""
        return self.slots * self.engine_count

    @property
    def engine_count(self) -> int:
        return len(self.engine) or self.engines

    @property
    def group_count(self) -> int | None:
        """How many groups; None: one for each line of the file."""
        return DEMO_GROUPS if self.groups is None and self.prompts == EXAMPLES else self.groups

    @property
    def full_speed(self) -> float | None:
        """Tokens per second of one slot while all slots of its engine are busy; None where nobody knows."""
        if not self.is_simulated:
            return None
        return Pace(self.speed, self.half, self.faults.get("slow_factor", 1.0)).of(self.slots)

    def run_config(self, *, scored: bool = True) -> RunConfig:
        return RunConfig(
            sample_concurrency=self.sample_concurrency,
            n=self.n,
            refill=self.refill,
            max_staleness="off" if self.max_staleness is None else self.max_staleness,
            groups_per_update=self.batch,
            overcommit="auto" if self.overcommit == "auto" else round(self.overcommit * 1000),
            reward="worker" if scored else "trainer",
        )

    def simulator(self, answers: Path | None) -> SimulatorSettings:
        """Of each simulated engine; the same seed for all, so that a prompt's lengths don't depend on the engine."""
        return SimulatorSettings(
            slots=self.slots,
            speed=self.speed,
            half=self.half,
            mean_tokens=self.mean_tokens,
            sigma=self.sigma,
            between=self.between,
            lengths=self.lengths,
            accuracy=self.accuracy,
            seed=self.seed,
            answers=answers,
            weight_version="0",
            health_seconds=0,
            context_length=max(_CONTEXT, 2 * self.max_new_tokens),
            faults=Faults().changed(_typed(self.faults)),
        )


def _typed(faults: dict[str, float]) -> dict[str, Any]:
    """`die_after` is a number of requests, the others are shares and factors."""
    return {name: int(value) if name == "die_after" else value for name, value in faults.items()}
