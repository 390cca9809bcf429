"""Settings of the status service, from the environment (REDIS_URL, ROLLOUTFLEET_API_*)."""

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rolloutfleet.demand import Bounds
from rolloutfleet.settings import RedisUrl

PREFIX = "ROLLOUTFLEET_API_"


class ApiSettings(BaseSettings):
    """The status service: why is the fleet idle, since when, and what to do about it."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        populate_by_name=True,
        cli_prog_name="python -m api",
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    redis_url: RedisUrl
    host: Annotated[str, Field(description="Address to listen on.")] = "0.0.0.0"
    port: Annotated[int, Field(ge=0, le=65_535, description="Port to listen on; 0: a free one.")] = 8000
    token: Annotated[SecretStr, Field(description="Bearer token of the actions; empty: the service is read-only.")] = (
        SecretStr("")
    )
    stuck_seconds: Annotated[
        float, Field(gt=0, description="A run with work that completes no group for so long is stuck.")
    ] = 600
    least_workers: Annotated[int, Field(ge=0, description="desired_workers is never less, for each run.")] = 1
    most_workers: Annotated[int, Field(ge=1, description="desired_workers is never more, for each run.")] = 1000
    cool_down_seconds: Annotated[
        float, Field(ge=1, le=3600, description="The trainer must be the bottleneck for so long before it shrinks.")
    ] = 300
    redis_seconds: Annotated[
        float, Field(gt=0, description="Longest that a page of groups, or an action, waits for Redis.")
    ] = 5
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], Field(description="What is logged.")] = "INFO"

    @field_validator("token")
    @classmethod
    def _is_no_blank(cls, token: SecretStr) -> SecretStr:
        text = token.get_secret_value()
        if text and (len(text) < 8 or not text.isascii() or text != text.strip()):
            raise ValueError("must be at least 8 ASCII characters without blanks around them")
        return token

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.least_workers > self.most_workers:
            raise ValueError("least_workers is more than most_workers: lower it")
        return self

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.least_workers, self.most_workers)
