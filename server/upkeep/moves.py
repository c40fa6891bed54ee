"""Moves: an `open` goes on from a `close` in another log, with all that the stream came to there.

Both may be met in either order, and the states at them are compared when the second is. So memory holds what a move
came to, 32 bytes, for each whose other side wasn't met yet. Where a scrub's parts are done apart, those are what they
hand on (`unmet`), and whoever puts them together lets them meet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ...volume.entry import entry_key, parse_entry
from ...volume.envelope import encode
from ...volume.errors import BadInput, Corrupt, Unsupported
from ...volume.ids import is_ephemeral
from ...volume.records import Close, Open, policy_of, rules_of
from ..metastore.state import StreamState
from .findings import Findings, Wrong
from .objects import Objects
from .reach import Reach

Place: TypeAlias = tuple[str, str, int]
"""A stream, and the log and the slot that it was closed in."""
_Last: TypeAlias = tuple[bytes, bytes, int, int]
"""Client, token, base, LSN."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """Moves whose other side wasn't met."""

    closed: Mapping[Place, bytes] = field(default_factory=dict[Place, bytes])
    """What the stream came to there."""
    opened: Mapping[Place, tuple[bytes, str, int]] = field(default_factory=dict[Place, tuple[bytes, str, int]])
    """What it goes on with, by which entry, and its head there."""


class Moves:
    def __init__(self, objects: Objects, reach: Reach, findings: Findings) -> None:
        self._objects = objects
        self._reach = reach
        self._findings = findings
        self._closed: dict[Place, bytes] = {}
        self._opened: dict[Place, tuple[bytes, str, int]] = {}

    @property
    def unmet(self) -> Unmet:
        return Unmet(dict(self._closed), dict(self._opened))

    async def meet(self, unmet: Unmet) -> None:
        """Those of another part, which had the entries that open them checked. Raises Unavailable."""
        for (stream, log, slot), state in unmet.closed.items():
            await self.closed(stream, log, slot, state)
        for (stream, log, slot), (state, key, head) in unmet.opened.items():
            before = self._closed.pop((stream, log, slot), None)
            if before is None:
                self._opened[stream, log, slot] = state, key, head
            elif before != state:
                await self._differs(stream, key, head)

    async def closed(self, stream: str, log: str, slot: int, state: bytes) -> None:
        """The stream was closed in that slot, as `fingerprint` says. Raises Unavailable."""
        opened = self._opened.pop((stream, log, slot), None)
        if opened is None:
            self._closed[stream, log, slot] = state
        elif opened[0] != state:
            await self._differs(stream, opened[1], opened[2])

    async def opened(self, stream: str, record: Open, to: str, key: str, *, quiet: bool) -> None:
        """The stream goes on in the log `to`, by that record of the entry `key`; `quiet` where that was checked."""
        place = (stream, record.log, record.slot)
        state = fingerprint_of_open(record)
        closed = self._closed.pop(place, None)
        if closed is None:
            self._opened[place] = state, key, record.head
            if not quiet and not await self._was_closed(stream, record, to):
                await self._differs(stream, key, record.head)
        elif closed != state:
            await self._differs(stream, key, record.head)

    async def _differs(self, stream: str, key: str, head: int) -> None:
        problem = f"volume {stream} goes on in it otherwise than it was closed"
        self._findings.tell(Wrong(key, [problem], await self._reach.of_all(stream, head + 1)))

    async def _was_closed(self, stream: str, record: Open, to: str) -> bool:
        """By the entry that closed it, if that can be read: else its own log tells."""
        key = entry_key(record.log, record.slot)
        try:
            data = (await self._objects.heads([key]))[0]
            if data is None:
                return True
            part = parse_entry(key, data).header.streams.get(stream)
            records = () if part is None else part.decode(key)
        except (Corrupt, Unsupported):
            return True
        except BadInput:
            return False
        return any(
            isinstance(close, Close) and (close.to, close.head, close.length) == (to, record.head, record.length)
            for close in records
        )


def fingerprint(state: StreamState) -> bytes:
    """Of a stream where it was closed. From memory; raises NotLoaded."""
    clients = [(client, last.token, last.base, last.lsn) for client, last in state.clients.items()]
    retained = state.since, state.collect, state.collected, state.policy, state.rules
    return _digest(state.head, state.length, retained, _lasting(clients), sorted(state.forks.items()))


def fingerprint_of_open(record: Open) -> bytes:
    retained = record.since, record.collect, record.collected, policy_of(record), rules_of(record)
    return _digest(record.head, record.length, retained, _lasting(record.clients), sorted(record.forks))


def _lasting(clients: Iterable[_Last]) -> list[_Last]:
    """Earlier releases keep those that are ephemeral, too."""
    return sorted(last for last in clients if not is_ephemeral(last[0]))


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(encode(parts), digest_size=32).digest()
