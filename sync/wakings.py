"""Wakings: whether this process was held, the machine slept, or its network changed. Connections from before may be
dead without a word then, and a remote that was away may answer again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

_SLEPT_SECONDS: Final = 5.0
_NETWORK_SECONDS: Final = 2.0
_ROUTES: Final = (Path("/proc/net/route"), Path("/proc/net/ipv6_route"))


class Wakings:
    """To be asked several times a second."""

    def __init__(self) -> None:
        self._seen = _elapsed()
        self._routes = _routes()
        self._next = self._seen + _NETWORK_SECONDS

    def woke(self) -> bool:
        """Since it was asked last."""
        before, self._seen = self._seen, _elapsed()
        woke = self._seen - before > _SLEPT_SECONDS
        if self._seen >= self._next:
            self._next = self._seen + _NETWORK_SECONDS
            was, self._routes = self._routes, _routes()
            woke = woke or was != self._routes
        return woke


def _elapsed() -> float:
    """With the time for which the machine slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _routes() -> frozenset[tuple[str, ...]]:
    """The ways out of this machine, without their counters; none where the system doesn't tell."""
    found = set[tuple[str, ...]]()
    for path in _ROUTES:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        found |= {
            tuple(line.split()[:3] if path.name == "route" else (line.split()[0], line.split()[-1])) for line in lines
        }
    return frozenset(found)
