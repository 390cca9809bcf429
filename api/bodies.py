"""What the actions are given and answer.

A field that is not known is an error: a misspelt setting would be no change at all.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from api.models import Model, said
from rolloutfleet.window import Refill

MOST = 500  # workers or letters in one request

type WorkerName = Annotated[str, StringConstraints(min_length=1, max_length=512)]
type LetterEntry = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}-[0-9]{1,18}$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class WindowChange(_Body):
    """Settings of the window; what is left out stays as it is."""

    sample_concurrency: Annotated[
        Annotated[int, Field(ge=1, le=100_000_000)] | Literal["auto"] | None,
        Field(description="Samples that the fleet holds at once, or auto.", examples=[512]),
    ] = None
    n: Annotated[
        int | None, Field(ge=1, le=4096, description="Samples of a group that does not say its own.", examples=[8])
    ] = None
    refill: Annotated[Refill | None, Field(description="group or sample.", examples=["sample"])] = None
    overcommit: Annotated[
        Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] | None,
        Field(description="Permille by which W exceeds the samples, or auto.", examples=[1200]),
    ] = None
    open_cap: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="sample refill: most open groups, in windows.", examples=[4])
    ] = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.given():
            raise ValueError("name at least one setting")
        return self

    def given(self) -> dict[str, int | str]:
        """The settings that are to change."""
        return self.model_dump(exclude_none=True)


class WorkerNames(_Body):
    """Workers, by the names that /status shows."""

    workers: Annotated[list[WorkerName], Field(min_length=1, max_length=MOST, examples=[["pod-3/1700000000000"]])]


class Letters(_Body):
    """Dead letters by their entries, or all of them."""

    entries: Annotated[list[LetterEntry], Field(max_length=MOST, examples=[["1764433380000-0"]])] = []
    all: Annotated[bool, Field(description="All that are there now, instead of entries.")] = False

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if self.all == bool(self.entries):
            raise ValueError("give either entries or all = true")
        return self


class Done(Model):
    """An action was carried out."""

    action: Annotated[str, said("Which.", "pause")]
    run: Annotated[str, said("On which run.", "math")]
    changed: Annotated[int, said("How many things changed: settings, workers or letters.", 1)]
    sentence: Annotated[str, said("What holds now.", "paused: nothing is claimed any more, what is held goes on")]
    results: Annotated[
        dict[str, int] | None, said("requeue: how many ended as ok, known, cut or gone; else null.", {"ok": 3})
    ] = None


class AuditRecord(Model):
    """Who did what."""

    at_ms: Annotated[int, said("When.", 1_764_433_380_000)]
    action: Annotated[str, said("Which.", "drain")]
    run: Annotated[str, said("On which run.", "math")]
    arguments: Annotated[dict[str, Any], said("With what.", {"workers": ["pod-3/1700000000000"]})]
    outcome: Annotated[str, said("What came of it.", "1 worker drains")]
    client: Annotated[str, said("Address that asked.", "10.0.0.7")]


class AuditReply(Model):
    """The last 100 actions that this process was asked for with the token, newest first."""

    records: list[AuditRecord]
