"""Polling: how often a log is looked at by whoever waits for it to grow.

A log that this process owns tells by itself; one that others append to is looked at every `POLL_SECONDS`. All but the
first of these looks, and one every `CONFIRM_SECONDS`, are glances (log/reader.py): two requests would be made each
second where one will do.
"""

from __future__ import annotations

import math
from typing import Final

import anyio

POLL_SECONDS: Final = 1.0

CONFIRM_SECONDS: Final = 10.0
"""How often it is looked at whether this process still owns a log, and whether a log's tip still stands (S0.30)."""


class PollSchedule:
    """The looks of one caller who waits."""

    def __init__(self) -> None:
        self._looked_at = -math.inf

    def glance(self) -> bool:
        """Whether the next look is to be a glance only (LogReader.refresh)."""
        now = anyio.current_time()
        if now - self._looked_at < CONFIRM_SECONDS:
            return True
        self._looked_at = now
        return False
