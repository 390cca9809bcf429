"""Settings that the processes share: where the broker is, and what a run is configured with.

`BrokerSettings` comes from the environment; `RunConfig` is what lies in the key `config`, the same for the whole fleet.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from redis.asyncio.connection import parse_url

from rolloutfleet.keys import RUN_NAME
from rolloutfleet.sampling import Bent
from rolloutfleet.window import Refill, overcommit_of


def _is_an_address(url: str) -> str:
    parse_url(url)  # its error says which schemes there are
    return url


# Where the broker is: one variable for all processes, whatever the prefix of their own.
RedisUrl = Annotated[
    str,
    AfterValidator(_is_an_address),
    Field(validation_alias=AliasChoices("redis_url", "REDIS_URL"), description="Redis or Valkey, redis://..."),
]


class BrokerSettings(BaseSettings):
    """Where the broker is. Read from REDIS_URL and ROLLOUTFLEET_RUN."""

    model_config = SettingsConfigDict(populate_by_name=True, extra="ignore")

    redis_url: RedisUrl
    run: Annotated[
        str,
        Field(validation_alias="ROLLOUTFLEET_RUN", pattern=f"^{RUN_NAME.pattern}$", description="Name of the run."),
    ]


class RunConfig(BaseModel):
    """The config of a run. Times are in seconds here and in ms in Redis; counts of samples unless they say groups."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sample_concurrency: Annotated[
        int | Literal["auto"],
        Field(description='Samples that the fleet holds at once; "auto": the slots of all live workers.'),
    ] = "auto"
    n: Annotated[int, Field(ge=1, le=4096, description="Samples of a group that does not say its own n.")] = 8
    redundant: Annotated[
        int,
        Field(ge=0, le=4096, description="Answers asked for beyond n; the first n win, which favours short ones."),
    ] = 0
    refill: Annotated[
        Refill,
        Field(description="A place is free when a whole group is done (group), or when n samples are (sample)."),
    ] = "group"
    overcommit: Annotated[
        Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"],
        Field(
            description="Permille by which W exceeds the samples; auto: 1000, but 1250 where sample_concurrency is "
            "auto and refill is sample, so that every engine has samples in line."
        ),
    ] = "auto"
    open_cap: Annotated[int, Field(ge=1, description="sample refill: most open groups, in windows.")] = 4
    max_attempts: Annotated[int, Field(ge=1, description="Failed attempts after which a group is dead.")] = 5
    lease_seconds: Annotated[float, Field(ge=0.05, description="A lease that isn't extended ends after this.")] = 60
    group_seconds: Annotated[float, Field(gt=0, description="Longest that one attempt at a group may take.")] = 7200
    retry_seconds: Annotated[float, Field(gt=0, description="First delay of a failed group; doubles each time.")] = 1
    retry_cap_seconds: Annotated[float, Field(gt=0, description="Longest delay of a failed group.")] = 60
    max_bytes: Annotated[int, Field(ge=1024, description="Longest prompt group, in bytes of JSON.")] = 8 * 2**20
    partial_bytes: Annotated[
        int, Field(ge=0, description="Most bytes that are kept of a sample that is not finished; 0: nothing is.")
    ] = 8 * 2**20
    recycle_limit: Annotated[int, Field(ge=0, description="How often a group may be recycled.")] = 3
    max_staleness: Annotated[
        int | Literal["off"],
        Field(description="Most weight versions that a group may be behind its trainer; off: no bound."),
    ] = "off"
    groups_per_update: Annotated[
        int, Field(ge=0, description="Groups that the trainer trains on between two weight versions; 0: not said.")
    ] = 0
    stale: Annotated[
        Literal["pace", "recycle", "drop"],
        Field(description="A group beyond max_staleness is handed out all the same (pace), made again, or dropped."),
    ] = "pace"
    recycle_then: Annotated[
        Literal["deliver", "dead"],
        Field(description="What becomes of a group that is too stale after recycle_limit recycles."),
    ] = "deliver"
    cancel_stale: Annotated[
        bool, Field(description="Workers give groups back that would be beyond max_staleness if they ended now.")
    ] = False
    done_seconds: Annotated[float, Field(ge=0, description="How long an id that is over refuses a duplicate.")] = (
        604_800
    )
    done_number: Annotated[int, Field(ge=0, description="The most such ids that are kept.")] = 1_000_000
    dead_number: Annotated[int, Field(ge=1, description="About how many dead letters are kept.")] = 10_000
    reward: Annotated[
        Literal["worker", "trainer"], Field(description="Who scores: with trainer, groups complete unscored.")
    ] = "worker"
    bent_sampling: Annotated[
        Bent,
        Field(description="Groups whose sampling parameters bend the distribution (top_p, top_k, penalties, ...)."),
    ] = "refuse"
    timeout: Annotated[
        Literal["fail", "truncate"],
        Field(description="What runs out of group_seconds: a failed attempt, or delivered with its tokens masked."),
    ] = "fail"
    fingerprint: Annotated[
        str,
        Field(description="Of tokenizer, template, vocabulary and end ids; a worker with another does not claim."),
    ] = ""
    paused: Annotated[bool, Field(description="Nothing is claimed while this holds.")] = False

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.sample_concurrency != "auto" and self.sample_concurrency < 1:
            raise ValueError('sample_concurrency must be at least 1, or "auto"')
        if self.max_staleness != "off" and self.max_staleness < 0:
            raise ValueError('max_staleness must be at least 0, or "off"')
        # Only where both are known: a change of one field is checked together with what the run has.
        is_whole = {"max_staleness", "groups_per_update", "stale"} <= self.model_fields_set
        if is_whole and self.max_staleness != "off" and self.stale == "pace" and not self.groups_per_update:
            raise ValueError(
                "max_staleness needs groups_per_update, how many groups the trainer trains on between two versions; "
                "or set stale to recycle or drop"
            )
        if self.retry_cap_seconds < self.retry_seconds:
            raise ValueError("retry_cap_seconds is shorter than retry_seconds: raise it")
        return self

    @property
    def permille(self) -> int:
        """The over-commit, as a number."""
        return overcommit_of(self.overcommit, self.sample_concurrency, self.refill)

    def fields(self, *, only_set: bool = False) -> dict[str, str]:
        """What goes into the key `config`. `only_set`: just the fields that were given to the constructor."""
        given = self.model_dump(include=set(self.model_fields_set) if only_set else None)
        return dict(_to_wire(name, value) for name, value in given.items())

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> "RunConfig":
        """The config as read from Redis. Fields of a newer version are ignored."""
        read = dict(_from_wire(name, value) for name, value in fields.items())
        return cls.model_validate({name: value for name, value in read.items() if name in cls.model_fields})


def _to_wire(name: str, value: object) -> tuple[str, str]:
    if name.endswith("_seconds") and isinstance(value, int | float):
        return name.removesuffix("seconds") + "ms", str(round(value * 1000))
    return name, str(int(value)) if isinstance(value, bool) else str(value)


def _from_wire(name: str, value: str) -> tuple[str, object]:
    if name.endswith("_ms"):
        return name.removesuffix("ms") + "seconds", int(value) / 1000
    return name, int(value) if value.isdigit() and name != "fingerprint" else value


_SECRET = re.compile("url|token|key|password", re.IGNORECASE)  # a URL may carry a password


def explain(error: ValidationError, prefix: str = "") -> str:
    """A wrong setting in one sentence each, with its name, the mend, and its value unless that may be a secret.

    `prefix`: of the environment variables, where the settings are such.
    """
    lines: list[str] = []
    for problem in error.errors():
        name = _named([str(part) for part in problem["loc"]], prefix)
        if problem["type"] == "missing":
            lines.append(f"{name} is not set: give it as an option or in the environment")
            continue
        value = "" if not problem["loc"] or _SECRET.search(name) else f" (it is {problem['input']!r})"
        lines.append(f"{name}: {problem['msg'].removeprefix('Value error, ')}{value}")
    return "; ".join(lines)


def _named(parts: list[str], prefix: str) -> str:
    if not parts:
        return "settings"
    if parts[0].upper() == "REDIS_URL":
        return "REDIS_URL"
    return prefix + parts[0].upper() if prefix else ".".join(parts)
