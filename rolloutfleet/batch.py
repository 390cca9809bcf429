"""What a trainer trains on in one step, and how stale it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rolloutfleet.messages import CompletedGroup


@dataclass(frozen=True, slots=True)
class Batch:
    """Groups that are trained on together. `version` is the trainer's own weight version, if it gave one."""

    groups: Sequence[CompletedGroup]
    version: int | None = None

    def __iter__(self) -> Iterator[CompletedGroup]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def staleness(self) -> list[int | None]:
        """Versions that each group's oldest token is behind; None where either version is unknown."""
        if self.version is None:
            return [None] * len(self.groups)
        return [group.staleness(self.version) for group in self.groups]


def say_ahead(groups: Sequence[CompletedGroup], version: int) -> str:
    """Why no group is handed out, for VersionAhead."""
    newest = max(group.versions[1] for group in groups)
    return (
        f"{len(groups)} groups (such as {groups[0].id!r}) were made with weights up to version {newest}, and the "
        f"trainer hands in {version}: hand in the version that publish_weights gave for the weights that it trains"
    )
