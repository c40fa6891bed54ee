"""Entry watch: what the owners of shared logs send, held against rule 3 (DESIGN §4).

- An entry says how many its writer has in flight at most, and lies no further beyond what that had acknowledged.
- Whoever has lost a slot sends what it has sent before in a fresh one, and nothing behind that until it counts.

A guest sends one entry, for one slot, and has no line of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...server.log.chain import GUEST
from ...server.log.term import PRIVATE
from ...server.store.temporaries import parse_temporary
from ...volume.entry import parse_entry
from .model import Violation
from .network import Caller


@dataclass(slots=True)
class _Line:
    """One writer's entries."""

    slots: dict[int, int] = field(default_factory=dict[int, int])
    """By n: where it was sent last."""
    first: int = 0
    """The slot of the first that was sent behind a lost one."""


class EntryWatch:
    def __init__(self, fail: Callable[[Violation], None]) -> None:
        self._fail = fail
        self._seen = set[tuple[str, bytes]]()
        self._lines: dict[tuple[str, int, bytes], _Line] = {}

    def sent(self, process: Caller, key: str, data: bytes) -> None:
        if "/entries/" not in key:
            return
        named = parse_temporary(key)
        entry = parse_entry(key if named is None else named.dest, data)
        header = entry.header
        if header.epoch == PRIVATE or header.kind == GUEST or (entry.key, entry.digest) in self._seen:
            return
        self._seen.add((entry.key, entry.digest))
        ahead, where = header.i - header.acked, f"{process.name} sends slot {header.i} of log {header.log}"
        if header.alpha != process.alpha:
            self._fail(Violation(f"{where} with {header.alpha} in flight, and has {process.alpha}"))
        if ahead > header.alpha:
            self._fail(Violation(f"{where} while {header.acked} is acknowledged, with {header.alpha} in flight"))
        line = self._lines.setdefault((header.log, header.epoch, header.writer), _Line())
        if line.first <= line.slots.get(header.n, -1) < header.i:
            line.first = header.i
        if line.first > header.acked and (line.first != header.i or ahead > 1):
            self._fail(Violation(f"{where} beside slot {line.first}, the first since it lost one"))
        line.slots[header.n] = header.i
