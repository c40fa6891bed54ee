"""Trace: what happened in a run, in order. The last of it is kept, and a sum of all of it, by which two runs of one
seed can be compared."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from typing import Final

import trio

KEPT: Final = 400


class Trace:
    def __init__(self) -> None:
        self.events = 0
        self.sum = 0
        self.counts = Counter[str]()
        """How often what was done."""
        self._last = deque[str](maxlen=KEPT)

    def __call__(self, who: str, what: str) -> None:
        line = f"{trio.current_time():14.3f} {who:8} {what}"
        self.events += 1
        self.sum = zlib.crc32(line.encode(), self.sum)
        self._last.append(line)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def last(self) -> tuple[str, ...]:
        return tuple(self._last)
