"""What Redis answers, read in whichever shape the client gave it: flat lists, pairs, or redis-py's own dicts."""

from itertools import batched
from typing import Any, cast


def as_dict(answer: Any) -> dict[Any, Any]:
    """Names and values."""
    if isinstance(answer, dict):
        return cast(dict[Any, Any], answer)
    return dict(zip(answer[::2], answer[1::2], strict=True))


def as_fields(answer: Any) -> dict[str, bytes]:
    """The fields of a stream entry by name."""
    return {name.decode(): value for name, value in as_dict(answer).items()}


def as_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def text_or_none(value: Any) -> str | None:
    return None if value is None else as_text(value)


def as_texts(answer: Any) -> dict[str, str]:
    """A hash."""
    return {as_text(name): as_text(value) for name, value in as_dict(answer).items()}


def as_scores(answer: Any) -> dict[str, float]:
    """A range of a sorted set WITHSCORES, in its order."""
    pairs = answer if answer and isinstance(answer[0], list | tuple) else batched(answer, 2)
    return {as_text(name): float(score) for name, score in pairs}


def trainer_group(answer: Any) -> tuple[int, str]:
    """(entries that trainers hold, the last one that was delivered) of XINFO GROUPS; (0, "0-0") without a stream."""
    for group in cast(list[Any], answer) if isinstance(answer, list) else []:
        fields = {as_text(name): value for name, value in as_dict(group).items()}
        if as_text(fields["name"]) == "trainer":
            return int(fields["pending"]), as_text(fields["last-delivered-id"])
    return 0, "0-0"


def server_ms(time: Any) -> int:
    """TIME in ms."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def run_ms(time: Any, shift: Any) -> int:
    """The run's clock, in which leases, `again` and workers are: TIME less the field `shift` of `state`."""
    return server_ms(time) - int(shift or 0)
