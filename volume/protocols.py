"""The protocols that the floors meet at: Remote (a volume's other end), and what a reader or writer of pages can do.

`Remote` is async (anyio) and is answered by an HTTP client or by a node in the same process. `Pages`, `Snapshot` and
`Writer` are plain synchronous code, answered by the edge's local store (`sync/`) and by the lite client, and used by
the VFS and the mount: a warm read never meets an event loop. (DESIGN §2, §6)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Any, Protocol

from .frame import FrameInfo
from .ids import PinId, VolumeId
from .pageset import PageSet
from .pins import Pin
from .records import Location
from .wire import (
    Changes,
    CommitInfo,
    CommitRequest,
    Committed,
    Located,
    NameEntry,
    NameList,
    NameRequest,
    Outcome,
    SnapshotInfo,
    StoreInfo,
)

__all__ = ["Durability", "Pages", "PagesRead", "ReadFrame", "Remote", "Snapshot", "Writer"]


class ReadFrame(Protocol):
    """A frame on its way to a reader: bytes as stored, and which of its pages belong to the snapshot."""

    @property
    def info(self) -> FrameInfo: ...
    @property
    def valid(self) -> PageSet: ...
    @property
    def stored(self) -> bytes: ...


class PagesRead(Protocol):
    """An answer to read_pages: its head at once, its frames as they come. The frames can be iterated once."""

    @property
    def snapshot(self) -> SnapshotInfo: ...
    @property
    def zeros(self) -> PageSet: ...
    def frames(self) -> AsyncIterator[ReadFrame]: ...


class Remote(Protocol):
    """The protocol of DESIGN §6. Every call may raise Unavailable; calls that change something say in `.determinate`
    whether it may have happened, and may be repeated as they are."""

    @property
    def url(self) -> str: ...

    async def hello(self) -> StoreInfo: ...

    async def create(self, vid: VolumeId, page_size: int) -> None:
        """A volume with no commits. Repeating it is harmless; AlreadyExists if it stands with another page size."""
        ...

    async def snapshot(
        self, vid: VolumeId, *, lsn: int | None = None, at_ms: int | None = None, confirm: bool = False
    ) -> SnapshotInfo:
        """The newest snapshot, the one at `lsn`, or the last not later than `at_ms`. NotFound, Forgotten.

        `confirm` probes the log first, so that a deposed owner can't answer with its own past (rule 7).
        """
        ...

    async def pull_changes(self, vid: VolumeId, after: int, to: int | None = None) -> Changes: ...

    async def pull_commits(self, vid: VolumeId, after: int, to: int | None = None) -> list[CommitInfo]:
        """The commits (after, to], oldest first; as many as fit in an answer, 1,000 at most: ask again after the
        last."""
        ...

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        """One segment of one volume (8 MiB or so); durable when this returns, readable once a commit names it."""
        ...

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        """Accepted only if `request.base` is the head: else Conflict. PagesNotHere, OutcomeUnknown, NotOwner.

        The same token twice is one commit, and both get its LSN.
        """
        ...

    async def outcome(self, vid: VolumeId, client: bytes, token: bytes) -> Outcome:
        """What became of a commit whose answer was lost, confirmed against the log."""
        ...

    def read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0
    ) -> AbstractAsyncContextManager[PagesRead]:
        """Frames that hold `pages` at `lsn` (0: the newest), as stored, neighbours included."""
        ...

    async def locate(self, vid: VolumeId, lsn: int, pages: PageSet, *, measure: bool = False) -> Located:
        """Which objects of the store hold `pages` at `lsn` (0: the newest), and the commits that wrote them; with
        `measure`, the frames that would be fetched for them as well. What it says nothing of is in `rest`."""
        ...

    async def wait(self, vid: VolumeId, after: int, timeout_seconds: float) -> int:
        """Returns the head as soon as it is above `after`, or at the timeout."""
        ...

    async def fork(self, vid: VolumeId, child: VolumeId, lsn: int) -> SnapshotInfo:
        """A new volume that starts as `vid` at `lsn`; no page is copied. Its LSNs go on from the parent's."""
        ...

    async def pin(
        self,
        vid: VolumeId,
        lsn: int | None = None,
        *,
        seconds: float,
        owner: str = "",
        kind: str = "lease",
        pin: PinId | None = None,
    ) -> Pin:
        """Hold an LSN, or the newest, for so many seconds (0: for ever), so that it can be read however far `since`
        moves. Kinds: lease, named, sync. NotFound; Forgotten where it can't be held any more.

        A repetition that names the same `pin` is harmless. The pin's own `vid` is the one to renew and release it by.
        """
        ...

    async def renew(self, vid: VolumeId, pin: PinId, seconds: float) -> Pin:
        """It holds for so many seconds from now, or longer if it did before. NotFound once it has ended."""
        ...

    async def unpin(self, vid: VolumeId, pin: PinId) -> None:
        """Hold it no more; harmless if it has ended."""
        ...

    async def pins(self, vid: VolumeId) -> list[Pin]:
        """Those that hold one of this volume's own LSNs, oldest first; its forks are among them."""
        ...

    async def advance(self, vid: VolumeId, since: int) -> int:
        """Forget the LSNs below `since` that nothing holds. The since afterwards: it never goes back."""
        ...

    async def lookup(self, name: str) -> NameEntry | None: ...
    async def list_names(self, prefix: str = "", after: str = "", limit: int = 1000) -> NameList:
        """Names that start with `prefix`, sorted, behind `after`; at most `limit`, and 10,000."""
        ...

    async def wait_names(self, after: int, timeout_seconds: float) -> int:
        """As `wait`, for the head of the namespace."""
        ...

    async def change_name(self, request: NameRequest) -> int:
        """The names' new LSN. Conflict when a name isn't at the revision that was seen; a repetition succeeds."""
        ...

    async def move_log(self, vid: VolumeId, to: str, *, takeover: bool = False) -> str:
        """The log that the volume lives in afterwards."""
        ...

    async def aclose(self) -> None: ...


class Durability(Enum):
    """How far a commit must have come when it returns; SQLite's `synchronous`."""

    ORDERED = "ordered"
    """It survives a crash of the process, and a crash of the machine loses it whole or not at all (NORMAL, OFF)."""
    DURABLE = "durable"
    """It survives a crash of the machine (FULL, EXTRA)."""


class Snapshot(Protocol):
    """A fixed view of a volume's pages. Not for two threads at once."""

    @property
    def length(self) -> int:
        """Bytes."""
        ...

    @property
    def page_size(self) -> int: ...

    @property
    def identity(self) -> int:
        """Grows by one with every change that this volume's local store sees; u64. Two snapshots of one volume and
        home are the same
        view exactly if their identities are equal."""
        ...

    @property
    def label(self) -> str:
        """The LSN as users meet it: "7", or "7+2" with two unpushed commits on top."""
        ...

    def read(self, page: int) -> bytes:
        """One page, zeros where nothing was written. Fetches what is missing; Unavailable if that can't be had."""
        ...

    def release(self) -> None:
        """Rest between transactions: holds nothing in the store until `renew`."""
        ...

    def renew(self) -> bool:
        """Hold the view again. False if the volume has moved on: then close this and take a new one."""
        ...

    def close(self) -> None: ...


class Writer(Protocol):
    """A transaction in progress over a snapshot, holding the volume's write lock. Reads see its own writes."""

    @property
    def length(self) -> int: ...
    @property
    def dirty(self) -> bool: ...

    def read(self, page: int) -> bytes: ...
    def write(self, page: int, data: bytes) -> None:
        """A whole page; the length grows to hold it."""
        ...

    def truncate(self, length: int) -> None:
        """Set the length in bytes; what lies beyond is zeros if it ever grows back."""
        ...

    def commit(self, durability: Durability) -> Snapshot | None:
        """Makes the next local commit and returns its snapshot; None if nothing had changed. Releases the write lock.

        Raises Full or another StoreError with the volume as it was.
        """
        ...

    def rollback(self) -> None:
        """Drop everything and release the write lock. Harmless after commit."""
        ...


class Pages(Protocol):
    """A volume that can be opened by the VFS or the mount."""

    @property
    def name(self) -> str: ...

    @property
    def page_size(self) -> int | None:
        """None until the first commit settles it."""
        ...

    @property
    def read_only(self) -> bool: ...

    def snapshot(self) -> Snapshot: ...

    def writer(self, snapshot: Snapshot, *, page_size: int | None = None) -> Writer:
        """Takes the write lock: Busy if another connection or process has it; Conflict if the volume has moved on since
        `snapshot`; ReadOnly. `page_size` settles the size of a volume that has no commit yet."""
        ...

    def control(self, verb: str, argument: str | None = None, *, view: Snapshot | None = None) -> list[dict[str, Any]]:
        """The verbs status, snapshot, log, push, pull, fetch: rows for a person or program to read. `snapshot` tells of
        `view`, where that is what the caller's transaction sees, else of the newest.
        """
        ...

    def close(self) -> None: ...
