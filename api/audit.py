"""Who did what: a log line for each action, and the last hundred in memory."""

import json
import logging
import time
from collections import deque
from typing import Any

from api.bodies import AuditRecord

log = logging.getLogger("api.audit")

KEPT = 100
_LONGEST = 2000  # characters of arguments in the log


class Audit:
    """The records of this process, newest first."""

    def __init__(self) -> None:
        self._records: deque[AuditRecord] = deque(maxlen=KEPT)

    def record(self, action: str, run: str, arguments: dict[str, Any], outcome: str, client: str) -> None:
        record = AuditRecord(
            at_ms=time.time_ns() // 1_000_000,
            action=action,
            run=run,
            arguments=arguments,
            outcome=outcome,
            client=client,
        )
        self._records.appendleft(record)
        told = json.dumps(arguments, separators=(",", ":"))[:_LONGEST]
        log.info("action=%s run=%s client=%s outcome=%r arguments=%s", action, run, client, outcome, told)

    @property
    def records(self) -> list[AuditRecord]:
        return list(self._records)
