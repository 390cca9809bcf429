"""A stream of SGLang's /generate: server-sent events, each with all that the request has so far.

Invariants: an event is heard whole or not at all; the last event is the answer, in the form that it has without a
stream; a stream that ends in the middle of an event is cut off.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import aiohttp

_DATA, _DONE = b"data:", b"[DONE]"
_UNFINISHED = re.compile(rb'"finish_reason":\s*null')  # unescaped quotes: in no text


async def read_events(stream: aiohttp.StreamReader, hear: Callable[[bytes], None]) -> bytes:
    """The last event. `hear` gets each before it. Errors: aiohttp.ClientPayloadError if the stream is cut off."""
    rest, last = bytearray(), b""
    async for chunk in stream.iter_any():
        looked = max(0, len(rest) - 1)
        rest += chunk
        while (end := rest.find(b"\n\n", looked)) >= 0:
            event = bytes(rest[:end]).removeprefix(_DATA).strip()
            del rest[: end + 2]
            looked = 0
            if event == _DONE:
                return last
            last = event
            if _UNFINISHED.search(event):
                hear(event)
    raise aiohttp.ClientPayloadError("the stream ended before it was done")


def ended_by(event: bytes) -> tuple[int, bytes]:
    """(status, body) as they would be without a stream: in one, refusals come as HTTP 200."""
    if len(event) > 4096:
        return 200, event
    try:
        answer: Any = json.loads(event)
        if "error" in answer:
            return int(answer["error"].get("code") or 400), event
        reason: Any = answer["meta_info"]["finish_reason"]
        if reason["type"] == "abort" and reason.get("status_code") and not answer.get("output_ids"):
            return int(reason["status_code"]), json.dumps({"error": {"message": str(reason.get("message"))}}).encode()
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    return 200, event
