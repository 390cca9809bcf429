"""Settings of a worker, from the environment (ROLLOUTFLEET_*, REDIS_URL) and from options of the same names.

Invariant: what makes one setting wrong by itself is found here, before anything is connected; what needs the run's
config or the engine is checked at start in `start.py`.
"""

import socket
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rolloutfleet.keys import RUN_NAME
from rolloutfleet.pods import FLEET_NAME
from rolloutfleet.settings import RedisUrl

type Seconds = Annotated[float, Field(gt=0)]

HOOK = r"^([A-Za-z_][\w.]*:[A-Za-z_][\w.]*)?$"
BEATS_PER_LEASE = 6  # the default; three are the least


class WrongSetting(ValueError):
    """A setting can't work; the message is one sentence that names it and the mend."""


class WorkerSettings(BaseSettings):
    """A rollout worker: claims prompt groups from Redis, samples answers from an SGLang server, scores them."""

    model_config = SettingsConfigDict(
        env_prefix="ROLLOUTFLEET_",
        extra="ignore",
        populate_by_name=True,
        cli_prog_name="python -m worker",
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    redis_url: RedisUrl
    run: Annotated[str, Field(pattern=f"^{RUN_NAME.pattern}$", description="Name of the run.")]
    pod: Annotated[
        str,
        Field(
            pattern=r"^[^\s/]+$",
            description="Name of this pod (its uid), its own: earlier processes of the same name are evicted.",
        ),
    ] = Field(default_factory=socket.gethostname)
    pod_name: Annotated[str, Field(description="Name of this pod in the cluster; empty: there is none.")] = ""
    node: Annotated[str, Field(description="Name of the node that this pod runs on.")] = ""
    fleet: Annotated[
        str,
        Field(
            pattern=f"^({FLEET_NAME.pattern})?$",
            description="<namespace>/<release>: whose operator may evict this worker; empty: nobody's.",
        ),
    ] = ""

    engine_url: Annotated[str, Field(pattern=r"^https?://", description="The SGLang server beside this worker.")] = (
        "http://127.0.0.1:30000"
    )
    engine_kind: Annotated[
        Literal["engine", "router"],
        Field(description="router: engine_url is an sglang-router, which tells nothing of its engines."),
    ] = "engine"
    engine_api_key: Annotated[str, Field(description="Bearer key of the engine; empty: none.")] = ""
    slots: Annotated[
        int | None, Field(ge=1, description="Samples that the engine serves at once; default: what it says, else 32.")
    ] = None
    adapt_slots: Annotated[
        bool, Field(description="Fewer slots while the engine's KV cache is full or throws requests out.")
    ] = False
    least_slots: Annotated[int, Field(ge=1, description="With adapt_slots: never fewer than these.")] = 1
    adapt_seconds: Annotated[Seconds, Field(description="With adapt_slots: how often the engine is looked at.")] = 5
    full_cache: Annotated[
        float, Field(gt=0, le=1, description="With adapt_slots: the share of the KV cache that counts as full.")
    ] = 0.95
    context_length: Annotated[
        int | None, Field(ge=2, description="Most tokens of prompt and answer; default: what the engine says.")
    ] = None
    vocab_size: Annotated[
        int | None, Field(ge=1, description="Number of token ids; default: what the engine says.")
    ] = None
    tokenizer: Annotated[
        str,
        Field(description="Path or name of the tokenizer, for chat messages and fingerprints; default: the engine's."),
    ] = ""
    request_timeout_seconds: Annotated[Seconds, Field(description="Longest that one request may take.")] = 1800
    engine_probe_seconds: Annotated[Seconds, Field(description="How often the engine is asked if it is ready.")] = 5

    weights_mode: Annotated[
        Literal["policy", "external"],
        Field(description="policy: load what the trainer publishes; external: somebody else updates the engine."),
    ] = "policy"
    weights_check: Annotated[
        Literal["sizes", "hashes"],
        Field(description="What of published weights is compared with their manifest; hashes: every file is read."),
    ] = "sizes"
    weights_seconds: Annotated[Seconds, Field(description="Longest that the engine may take to load weights.")] = 1800

    max_new_tokens: Annotated[
        int, Field(ge=1, description="Longest answer, for groups that don't say; less where the context is full.")
    ] = 2048
    temperature: Annotated[float, Field(ge=0, description="Sampling temperature, for groups that don't say.")] = 1.0
    max_tries: Annotated[int, Field(ge=1, description="Unsound answers to one sample after which its group fails.")] = 4

    partial_tokens: Annotated[
        int,
        Field(ge=0, description="After so many tokens each, what a sample has is stored for a next holder; 0: never."),
    ] = 0

    generate: Annotated[
        str,
        Field(pattern=HOOK, description="module:function, or module:Class, that replaces the one-turn generation."),
    ] = ""
    reward: Annotated[
        str,
        Field(
            pattern=r"^(exact_match|math|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)?$",
            description="exact_match, math, or module:function; empty: none (reward_url, or the trainer scores).",
        ),
    ] = "exact_match"
    reward_url: Annotated[
        str, Field(pattern=r"^(https?://.*)?$", description="HTTP reward service; replaces `reward`.")
    ] = ""
    reward_concurrency: Annotated[int, Field(ge=1, description="Rewards that are computed at once.")] = 32
    reward_timeout_seconds: Annotated[Seconds, Field(description="Longest that one hook may take.")] = 60
    reward_tries: Annotated[int, Field(ge=1, description="Tries of one reward before its group fails.")] = 3
    group_reward: Annotated[str, Field(pattern=HOOK, description="module:function that scores a group as a whole.")] = (
        ""
    )
    group_filter: Annotated[
        str, Field(pattern=HOOK, description="module:function that keeps or drops a scored group.")
    ] = ""

    drain_seconds: Annotated[
        float, Field(ge=0, description="After SIGTERM: how long what is held may go on until it is given back.")
    ] = 30
    heartbeat_seconds: Annotated[
        Seconds | None, Field(description="Time between heartbeats; default: a sixth of the lease.")
    ] = None
    probe_host: Annotated[str, Field(description="Address of /healthz, /readyz and /metrics.")] = "0.0.0.0"
    probe_port: Annotated[int, Field(ge=0, le=65_535, description="Port of the probes; 0: a free one.")] = 0
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], Field(description="What is logged.")] = "INFO"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.context_length is not None and self.max_new_tokens >= self.context_length:
            raise ValueError("max_new_tokens fills the whole context_length: lower it")
        if self.adapt_slots and self.slots is not None and self.least_slots > self.slots:
            raise ValueError("least_slots is more than slots: lower it")
        if self.engine_kind == "router":
            unsaid = [name for name in ("slots", "context_length", "vocab_size") if getattr(self, name) is None]
            if unsaid:
                raise ValueError(f"a router tells nothing of its engines: set {', '.join(unsaid)}")
            if self.partial_tokens:
                raise ValueError(
                    "a router drops stream_interval, and each token would be an event: leave out partial_tokens"
                )
        return self

    @property
    def place(self) -> dict[str, str]:
        """Where this worker runs, as it tells with each heartbeat; what it doesn't know it leaves out."""
        told = {"pod": self.pod, "pod_name": self.pod_name, "node": self.node, "fleet": self.fleet}
        return {name: value for name, value in told.items() if value}

    @property
    def has_reward(self) -> bool:
        return bool(self.reward or self.reward_url)

    def heartbeat(self, lease_seconds: float) -> float:
        """Seconds between heartbeats under this lease. Errors: WrongSetting if the lease doesn't outlast three."""
        beat = self.heartbeat_seconds or lease_seconds / BEATS_PER_LEASE
        if beat * 3 > lease_seconds:
            raise WrongSetting(
                f"heartbeat_seconds is {beat:g} and the run's lease_seconds {lease_seconds:g}: "
                "a lease must outlast three heartbeats; lower the first or raise the second"
            )
        return beat
