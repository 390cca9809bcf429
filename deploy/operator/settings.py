"""Settings of the operator, from the environment (REDIS_URL, ROLLOUTFLEET_*).

Invariant: what can't work together is found here, before anything is connected.
"""

import socket
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from deploy.operator.objects import Kind
from rolloutfleet.keys import RUN_NAME
from rolloutfleet.pods import FLEET_NAME
from rolloutfleet.settings import RedisUrl

PREFIX = "ROLLOUTFLEET_"
OBJECT_NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"


class Owner(StrEnum):
    """Who decides the number of replicas. Evictions, drains, restarts and reasons are the operator's in each case."""

    FIXED = "fixed"
    OPERATOR = "operator"
    KEDA = "keda"


type Names = Annotated[tuple[str, ...], NoDecode]
type Counts = Annotated[tuple[int, ...], NoDecode]


class OperatorSettings(BaseSettings):
    """The operator: watches the pods of one release, and works on the run that they serve."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        populate_by_name=True,
        cli_prog_name="python -m deploy operator",
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    redis_url: RedisUrl
    run: Annotated[str, Field(pattern=f"^{RUN_NAME.pattern}$", description="Name of the run that the fleet serves.")]
    fleet: Annotated[
        str, Field(pattern=f"^{FLEET_NAME.pattern}$", description="<namespace>/<release>, as its workers carry it.")
    ]
    namespace: Annotated[
        str, Field(pattern=f"^{OBJECT_NAME}$", description="Namespace of the fleet; default: that of `fleet`.")
    ] = Field(default_factory=lambda given: str(given["fleet"]).split("/")[0])
    deployments: Annotated[Names, Field(description="The Deployments of workers, comma separated: one a pool.")]
    leader_worker_sets: Annotated[
        Names, Field(description="Those of `deployments` that are LeaderWorkerSets: an engine over several pods.")
    ] = ()

    scaling_owner: Annotated[Owner, Field(description="Who decides the number of workers.")] = Owner.FIXED
    worker_replicas: Annotated[
        Counts, Field(description="fixed: workers of each pool, in the order of `deployments`; one number: of each.")
    ] = (1,)
    min_workers: Annotated[int, Field(ge=0, description="operator: never fewer workers, over all pools.")] = 1
    max_workers: Annotated[int, Field(ge=1, description="operator: never more workers, over all pools.")] = 1000
    cooldown_seconds: Annotated[
        float, Field(ge=1, le=3600, description="operator: fewer must do for so long before the fleet shrinks.")
    ] = 300
    drain_seconds: Annotated[
        float, Field(ge=0, description="How long a worker that is to go may finish what it holds; then its pod goes.")
    ] = 600
    max_unavailable: Annotated[
        int, Field(ge=1, description="A restart never takes more engines away than so many, over all pools.")
    ] = 1

    lease_name: Annotated[
        str, Field(pattern=f"^{OBJECT_NAME}$", description="The Lease by which one of several operators leads.")
    ] = "rolloutfleet-operator"
    pod_name: Annotated[str, Field(min_length=1, description="Name of this process in the Lease.")] = Field(
        default_factory=socket.gethostname
    )
    probe_host: Annotated[str, Field(description="Address of /healthz, /readyz and /metrics.")] = "0.0.0.0"
    probe_port: Annotated[int, Field(ge=0, le=65_535, description="Port of the probes; 0: a free one.")] = 8081
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], Field(description="What is logged.")] = "INFO"

    @field_validator("deployments", "leader_worker_sets", "worker_replicas", mode="before")
    @classmethod
    def _split(cls, given: object) -> object:
        return tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.deployments or len(set(self.deployments)) < len(self.deployments):
            raise ValueError("deployments must name at least one Deployment, and each once")
        if unknown := ", ".join(sorted(set(self.leader_worker_sets) - set(self.deployments))):
            raise ValueError(f"leader_worker_sets names {unknown}, which deployments does not: name it there, too")
        if len(self.worker_replicas) not in (1, len(self.deployments)) or min(self.worker_replicas) < 0:
            raise ValueError("worker_replicas must be one number of at least 0, or one for each of deployments")
        if self.min_workers > self.max_workers:
            raise ValueError("min_workers is more than max_workers: lower it")
        if self.namespace != self.fleet.split("/")[0]:
            raise ValueError(f"namespace is {self.namespace!r} and the fleet {self.fleet!r}: one of them is wrong")
        return self

    @property
    def release(self) -> str:
        return self.fleet.split("/")[1]

    @property
    def selector(self) -> str:
        """Labels of the pods that the operator watches."""
        return f"app.kubernetes.io/name=rolloutfleet,app.kubernetes.io/instance={self.release},{COMPONENT}=worker"

    @property
    def kinds(self) -> dict[str, Kind]:
        """Pool -> what it is."""
        return {name: Kind.SET if name in self.leader_worker_sets else Kind.DEPLOYMENT for name in self.deployments}

    @property
    def fixed_replicas(self) -> dict[str, int]:
        """Pool -> workers, where the owner is `fixed`."""
        each = self.worker_replicas * (len(self.deployments) if len(self.worker_replicas) == 1 else 1)
        return dict(zip(self.deployments, each, strict=True))


COMPONENT = "app.kubernetes.io/component"
