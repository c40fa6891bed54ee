"""Names rollup: a namespace's part of the next rollup of its log (rollup_builder.py).

A stream without a birth is followed as a namespace from its first record on, by the same function that judges its
changes; each entry's part whole or not at all. What the changes of the newest `MOST_REMEMBERED` LSNs touched is kept
with the names, so that an edge is told of those alone, whoever it asks; and what stood there before, so that the names
of a time can be told (past_names.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...volume.envelope import encode
from ...volume.errors import Corrupt, Unsupported
from ...volume.records import NameChange
from ...volume.rollup import (
    CHANGE,
    CLIENT,
    NAME,
    NAMES,
    PART,
    RolledChange,
    RolledClient,
    RolledNames,
    RolledPart,
    number,
    stream_key,
)
from .name_map import Gone
from .namespace_state import NamesState, apply_change, names_behind
from .recent_changes import reach_at
from .rolled_names import NamesBehind
from .rolled_stream import RolledLog, RolledStream
from .state import Refusal
from .streams import Part


class NamesRollup:
    """What it has followed stays followed when a node is missing, so that it goes on from there."""

    def __init__(self, base: RolledLog, stream: str) -> None:
        self._key = stream_key(stream)
        self._rolled = RolledStream(base, stream)
        self._behind = NamesBehind(base, stream)
        self._state: NamesState | None = None
        self._before = 0
        """The revision that the rollup before has."""
        self._followed = 0
        """Parts."""
        self._changes: list[RolledChange] = []

    def changes(self, parts: list[Part]) -> Iterator[tuple[bytes, bytes | None]]:
        """What it puts into the tree, and None for what it takes away. Raises NotLoaded, and has told nothing then."""
        if self._state is None:
            self._state = names_behind(self._key, self._behind)
            self._before = self._state.head
        if not self._rolled.unfollowed():
            while self._followed < len(parts) and self._follow(parts[self._followed]):
                self._followed += 1
        for part in parts[self._followed :]:
            yield self._key + PART + number(part.slot), encode(RolledPart(size=part.size, part=part.carried))
        if self._followed:
            yield from self._state_changes(self._state)

    @property
    def has_policy(self) -> bool:
        return self._state is not None and self._state.policy is not None

    def _follow(self, part: Part) -> bool:
        """Whether the names take the part. If not, all is as it was."""
        state, changes = self._state, list[RolledChange]()
        assert state is not None
        try:
            for record in part.carried.decode(part.key):
                after = apply_change(state, record)
                if isinstance(after, Refusal):
                    return False
                if isinstance(record, NameChange) and after.last is not None:
                    changes.append(after.last)
                state = after
        except (Corrupt, Unsupported):
            # It is kept as it stands, and whoever opens the stream meets the same.
            return False
        self._state = state
        self._changes += changes
        return True

    def _state_changes(self, state: NamesState) -> Iterator[tuple[bytes, bytes | None]]:
        told = RolledNames(head=state.head, time=state.time, count=len(state.names), policy=state.policy)
        yield self._key + NAMES, encode(told)
        for name, bound in state.names.changes.items():
            yield self._key + NAME + name.encode(), None if isinstance(bound, Gone) else encode(bound)
        for client, last in state.clients.changed():
            yield self._key + CLIENT + client, None if last is None else encode(_rolled(*last))
        reach = reach_at(state.head)
        for lsn in range(reach_at(self._before) + 1, min(reach, self._before) + 1):
            yield self._key + CHANGE + number(lsn), None
        for change in self._changes:
            if change.lsn > reach:
                yield self._key + CHANGE + number(change.lsn), encode(change)


def _rolled(token: bytes, lsn: int) -> RolledClient:
    return RolledClient(token=token, base=lsn - 1, lsn=lsn)
