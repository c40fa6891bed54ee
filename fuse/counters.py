"""Counters: what the mount has done, for `metrics`. A process has one mount."""

from __future__ import annotations

from collections import Counter
from typing import Final

__all__ = ["counters"]


class Counters:
    """For the mount's event loop."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        """What programs were told, by errno."""
        self.commits = 0


counters: Final = Counters()
