"""Stored bytes: whose the bytes of a store are, to the last one.

    a volume    pages      objects of its own that are needed: fragments that its commits name, segments and nodes that
                           its checkpoint leads to
                entries    its part of entries that carry pages which are needed: by those pages, as long as they are
                           before they are packed
                records    its birth and its pins
    a log       entries    those that carry none, and aren't behind the newest rollup
                records    rollups, numbers, boundaries, plans, deadlists
                waiting    what nothing that stands needs any more, or what is being written just now
    the store   its root

What is needed is told by the volumes themselves, as any reader opens them; how large it is, by one listing of all.
Together they are all that stands, unless somebody writes meanwhile. A volume that can't be opened is told, and what it
needs counts as waiting.

Memory: a line for each volume and each log; 24 bytes for each commit whose pages lie in an entry; and of the log that
is looked at, 16 for each entry from the first that is needed on.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from anyio.lowlevel import checkpoint as let_others

from ...volume.entry import is_entry, slot_of
from ...volume.errors import BudwoodError, Unauthorized, Unavailable
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet
from ...volume.records import Location
from ..log.boundary import OVER, LogIsOver
from ..metastore.folded import Folded
from ..metastore.history import History
from ..metastore.logs import Logs
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..store.protocol import Sizes
from ..store.retrying import retried
from ..store.tree_nodes import loading

_PAGE: Final = 1000
"""Keys of one listing."""
AT_ONCE: Final = 256
"""Commits."""


@dataclass(slots=True)
class VolumeBytes:
    pages: int = 0
    entries: float = 0.0
    records: int = 0
    let_go: float = 0.0
    """Of these: what another policy would let go of (forgettable.py)."""


@dataclass(slots=True)
class LogBytes:
    entries: int = 0
    records: int = 0
    waiting: int = 0


class Unread(NamedTuple):
    """What could not be opened, and why."""

    what: str
    error: BudwoodError


@dataclass
class Stored:
    volumes: dict[str, VolumeBytes] = field(default_factory=dict[str, VolumeBytes])
    logs: dict[str, LogBytes] = field(default_factory=dict[str, LogBytes])
    root: int = 0
    objects: int = 0
    unread: list[Unread] = field(default_factory=list[Unread])


class Part(NamedTuple):
    """Pages that a commit, or a region, has in one place."""

    location: Location
    pages: PageSet


class Going(NamedTuple):
    """As many of the pages that lie in one place as another policy would let go of."""

    location: Location
    pages: int
    of: int


LetGo = Callable[[Volume, Callable[[Going], None]], Awaitable[None]]
"""Tells all that another policy would let go of."""


class _Shares:
    """Of one log's entries: the bytes of pages that lie there, and whose they are."""

    def __init__(self) -> None:
        self.volumes: list[VolumeBytes] = []
        self._places: dict[int, int] = {}
        self.whose = array("L")
        """Commit by commit: the volume's place in `volumes`, the slot, and the bytes of its pages there."""
        self.slots = array("Q")
        self.page_bytes = array("d")
        self.going: list[tuple[VolumeBytes, int, float]] = []
        """The volume, the slot, and how many of these bytes another policy lets go of."""

    def add(self, held: VolumeBytes, slot: int, page_bytes: int) -> None:
        if id(held) not in self._places:
            self._places[id(held)] = len(self.volumes)
            self.volumes.append(held)
        self.whose.append(self._places[id(held)])
        self.slots.append(slot)
        self.page_bytes.append(max(1, page_bytes))

    def by_slot(self, first: int) -> array[float]:
        """The bytes of all pages in each slot, from the first on."""
        summed = array("d", bytes(8 * (max(self.slots, default=-1) - first + 1)))
        for slot, page_bytes in zip(self.slots, self.page_bytes, strict=True):
            summed[slot - first] += page_bytes
        return summed

    def divide(self, first: int, each: array[float]) -> None:
        """`each` says how many bytes of a slot's entry belong to a byte of its pages."""
        for whose, slot, page_bytes in zip(self.whose, self.slots, self.page_bytes, strict=True):
            self.volumes[whose].entries += each[slot - first] * page_bytes
        for held, slot, page_bytes in self.going:
            held.let_go += each[slot - first] * page_bytes


class StoredBytes:
    def __init__(self, logs: Logs, volumes: Volumes, *, let_go: LetGo | None = None) -> None:
        self._logs = logs
        self._volumes = volumes
        self._let_go = let_go
        self._shares: dict[str, _Shares] = {}
        self._needed: dict[str, int] = {}
        """By log: the bytes of objects under t/ that are needed."""
        self._stored = Stored()

    async def survey(self) -> Stored:
        """Raises Unavailable, Unauthorized."""
        at = ""
        while keys := await self._listed("volumes/", at, 1):
            vid = keys[0][0].split("/")[1]
            await self._try(f"volume {vid}", partial(self._volume, vid))
            # Behind all that lies below: "0" is the character after "/".
            at = f"volumes/{vid}0"
        await self._each("volumes/", self._record)
        at = ""
        while keys := await self._listed("logs/", at, 1):
            log = keys[0][0].split("/")[1]
            await self._log(log)
            at = f"logs/{log}0"
        await self._each("root", self._root)
        return self._stored

    async def _volume(self, vid: str) -> None:
        volume = await self._volumes.get(VolumeId.parse(vid))
        held, history, moved = self._held(vid), volume.history, set[str]()
        if isinstance(history.folding, Folded):
            folding = history.folding
            segments, pointers = await loading(folding.segments), await folding.tree.pointers()
            relocated = [each for _, each in await loading(folding.relocations)]
            moved = {each.object for each in relocated}
            for segment in segments.values():
                self._needs(held, segment.object, segment.size)
            for each in relocated:
                self._needs(held, each.object, each.size)
            for pointer in pointers:
                self._needs(held, folding.tree.folder, pointer.size)
        for first in range(history.folded_to + 1, history.head + 1, AT_ONCE):
            for part in await loading(partial(_parts, history, first, min(first + AT_ONCE - 1, history.head))):
                key = part.location.object
                if key in moved:
                    continue
                if is_entry(key):
                    shares = self._shares.setdefault(_log_of(key), _Shares())
                    shares.add(held, slot_of(key), len(part.pages) * volume.page_size)
                else:
                    self._needs(held, key, part.location.size)
            await let_others()
        if self._let_go is not None:
            await self._let_go(volume, partial(self._going, held, volume.page_size))

    def _going(self, held: VolumeBytes, page_size: int, going: Going) -> None:
        key = going.location.object
        if is_entry(key):
            self._shares[_log_of(key)].going.append((held, slot_of(key), going.pages * page_size))
        else:
            held.let_go += going.location.size * going.pages / going.of

    def _needs(self, held: VolumeBytes, key: str, size: int) -> None:
        held.pages += size
        self._needed[_log_of(key)] = self._needed.get(_log_of(key), 0) + size

    def _held(self, vid: str) -> VolumeBytes:
        return self._stored.volumes.setdefault(vid, VolumeBytes())

    def _record(self, key: str, size: int) -> None:
        self._held(key.split("/")[1]).records += size

    def _root(self, key: str, size: int) -> None:
        self._stored.root += size if key == "root" or key.startswith("roots/") else 0

    async def _log(self, log: str) -> None:
        found, shares = self._stored.logs.setdefault(log, LogBytes()), self._shares.pop(log, _Shares())
        first, objects = min(shares.slots, default=0), 0
        pages = shares.by_slot(first)
        divided = array("d", bytes(8 * len(pages)))
        # Up to there, but for the anchor, nobody needs an entry.
        uncovered = await self._uncovered(log)
        below = min(first, uncovered) if pages else uncovered

        def take(key: str, size: int) -> None:
            nonlocal objects
            what = key.split("/")[2]
            if what in ("t", "shards") and not key.endswith("/deadlist"):
                objects += size
            elif what != "entries":
                found.records += size
            elif 0 <= (at := slot_of(key) - first) < len(pages) and pages[at]:
                divided[at] = size / pages[at]
            elif 0 < slot_of(key) < below:
                found.waiting += size
            else:
                found.entries += size

        await self._each(f"logs/{log}/", take)
        found.waiting += max(objects - self._needed.pop(log, 0), 0)
        shares.divide(first, divided)

    async def _uncovered(self, log: str) -> int:
        """The first slot that no rollup covers; 0 where the log can't be opened."""
        covered = -1

        async def look() -> None:
            nonlocal covered
            try:
                covered = (await self._logs.get(log)).rolled.slot
            except LogIsOver:
                covered = OVER

        await self._try(f"log {log}", look)
        return covered + 1

    async def _try(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except (Unavailable, Unauthorized):
            raise
        except BudwoodError as error:
            self._stored.unread.append(Unread(what, error))

    async def _each(self, prefix: str, take: Callable[[str, int], None]) -> None:
        """All objects of that prefix."""
        start, full = "", True
        while full:
            found = await self._listed(prefix, start, _PAGE)
            for key, size in found:
                take(key, size)
            self._stored.objects += len(found)
            full = len(found) == _PAGE
            start = f"{found[-1][0]}\0" if found else ""

    async def _listed(self, prefix: str, start: str, limit: int) -> Sizes:
        asking = partial(self._logs.store.sizes, prefix, start=start, limit=limit)
        return await retried(f"list {prefix}", asking, self._logs.patience)


def _parts(history: History, first: int, last: int) -> list[Part]:
    """Where the pages of these commits lie."""
    placed = (each for lsn in range(first, last + 1) for each in history.at(lsn).placed())
    return [Part(location, pages) for location, pages in placed]


def _log_of(key: str) -> str:
    return key.split("/")[1]
