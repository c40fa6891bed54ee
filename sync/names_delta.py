"""Names delta: what the remote's names have become since those that `known` holds, gathered part by part.

The names may change between the parts, so that what was gathered is of no one revision. It is finished by what became
of the names since the first part's revision, until that is one part; each time only what changed meanwhile is asked
for. A node that doesn't remember what changed lists all names, and its parts are finished in the same way.

Rows of `known` may be newer than its revision, where this home made changes while it lacked others' before them: a
delta says what stands now, so that it comes out the same over those. Those that were bound since the delta was gathered
are newer than that, and stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ..volume.calls import PULL_NAMES, PullNamesRequest
from ..volume.errors import Corrupt, Unavailable
from ..volume.wire import NameDelta
from .attributes import Attributes
from .connection import Connection
from .name_table import is_reserved
from .tables import KnownRecord, NamespaceRecord

_ROUNDS: Final = 100
"""Each asks for what changed during the one before; no remote goes on changing so much for so long."""


class Delta:
    """`head` is the revision that it leads to."""

    def __init__(self) -> None:
        self.head = 0
        self._entries: dict[str, KnownRecord] = {}
        self._gone: set[str] = set()
        """As in wire.NameDelta."""
        self._everything = False
        """Whether no other names stand than `_entries`."""

    def begin_anew(self) -> None:
        """What comes are all names."""
        self._entries, self._gone, self._everything = {}, set(), True

    def take(self, part: NameDelta) -> None:
        below = {name[:-1] for name in part.gone if name.endswith("/")}
        if below:
            for name in [name for name in self._entries if _lies_below(name, below)]:
                del self._entries[name]
        for name in part.gone:
            self._entries.pop(name, None)
        self._gone.update(part.gone)
        for entry in part.entries:
            if not is_reserved(entry.name):
                self._entries[entry.name] = KnownRecord(
                    name=entry.name,
                    target=entry.target,
                    revision=entry.revision,
                    attributes=Attributes.from_wire(entry.attributes),
                )

    def over(self, known: Iterable[KnownRecord]) -> dict[str, KnownRecord]:
        """The names as they stand now, where `known` stood."""
        below = {name[:-1] for name in self._gone if name.endswith("/")}
        there: dict[str, KnownRecord] = {}
        newer: dict[str, KnownRecord] = {}
        for row in known:
            if row.revision > self.head:
                newer[row.name] = row
            # One that was never seen is only thought to stand there.
            elif row.revision and not self._everything and not self._is_gone(row.name, below):
                there[row.name] = row
        return there | self._entries | newer

    def _is_gone(self, name: str, below: set[str]) -> bool:
        return name in self._gone or _lies_below(name, below)


def _lies_below(name: str, directories: set[str]) -> bool:
    return bool(directories) and any(above in directories for above in _above(name))


def _above(name: str) -> Iterator[str]:
    at = name.find("/")
    while at >= 0:
        yield name[:at]
        at = name.find("/", at + 1)


def gather(connection: Connection, known: NamespaceRecord | None) -> Delta | None:
    """None where nothing has changed. Raises Corrupt of a remote that has less than was seen of it, Unavailable."""
    since, seen = (known.head, known.seen) if known is not None else (0, 0)
    delta, asked = Delta(), since
    for _ in range(_ROUNDS):
        heads = _gather_once(connection, delta, asked, seen)
        if heads is None:
            # The node has forgotten, between two parts, what changed since then.
            delta, asked = Delta(), 0
            continue
        asked, seen = heads
        if asked == seen:
            delta.head = asked
            return None if known is not None and asked == since else delta
    raise Unavailable("the remote's names change faster than they are told: try again")


def _gather_once(connection: Connection, delta: Delta, since: int, seen: int) -> tuple[int, int] | None:
    """The revisions of the first and of the last part."""
    after, first = "", -1
    while True:
        part = connection.remote.ask(PULL_NAMES, PullNamesRequest(since=since, after=after))
        if part.head < seen:
            raise Corrupt(
                f"the names at {connection.url}",
                f"they end at revision {part.head}, and {seen} was seen before: bring back what they lost",
            )
        if part.since not in (0, since) or (part.next and part.next <= after):
            raise Corrupt(f"the names at {connection.url}", "they answer something else than was asked for")
        if part.since != since:
            if after:
                return None
            since = 0
        if not since and not after:
            delta.begin_anew()
        delta.take(part)
        first, seen, after = (part.head if first < 0 else first), part.head, part.next
        if not after:
            return first, seen
