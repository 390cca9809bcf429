"""What an engine answers that is no answer: whether to ask again, and its words.

Invariant: a group is rejected only in the engine's own words; what speaks of the way to the engine is asked again.
"""

import json
from typing import Any

from rolloutfleet.errors import EngineRejected, EngineUnavailable
from rolloutfleet.metrics import EngineFault

# Of the request itself. Other 4xx speak of the way to the engine (key, path, proxy): not the group's fault.
REJECTIONS = (400, 413, 422)


class NoAnswer(EngineUnavailable):
    """This request got no answer; `fault` is the name under which it is counted."""

    def __init__(self, fault: EngineFault, message: str) -> None:
        super().__init__(message)
        self.fault: EngineFault = fault


class EngineBusy(NoAnswer):
    """The engine lives, and has no room now (429, or 503 with a full queue)."""


def refusal(status: int, body: bytes) -> EngineRejected | NoAnswer:
    words = words_of(body)
    if status in REJECTIONS:
        return EngineRejected(f"the engine refuses the request ({status}): {words}")
    if status in (401, 403):
        return NoAnswer("key_refused", f"the engine refuses the key ({status}): set engine_api_key")
    if status == 429:
        return EngineBusy("full_429", f"the engine is full ({status}): {words}")
    if status == 503 and "queue is full" in words:
        return EngineBusy("full_503", f"the engine is full ({status}): {words}")
    fault: EngineFault = "error_500" if status == 500 else "error_503" if status == 503 else "error_other"
    return NoAnswer(fault, f"the engine answers {status}: {words}")


def words_of(body: bytes) -> str:
    """The message in an error's body; else its beginning."""
    words = engine_words(body)
    return body[:300].decode(errors="replace") if words is None else words


def engine_words(body: bytes) -> str | None:
    """The message in an error's body, which comes in four shapes; None: these are not the engine's words."""
    try:
        answer: Any = json.loads(body)
        is_flat = answer.get("object") == "error" or answer.get("success") is False
        error: Any = answer if is_flat else answer["error"]
        message: Any = error if isinstance(error, str) else error["message"]
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError):
        return None
    return message[:500] if isinstance(message, str) and message else None
