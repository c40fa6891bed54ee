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

from .calls import A, Call, Q
from .frame import Frame
from .ids import VolumeId
from .pageset import PageSet
from .records import Location
from .wire import CommitRequest, Committed, SnapshotInfo


class PagesRead(Protocol):
    """An answer to read_pages: its head at once, its frames as they come. The frames can be iterated once."""

    @property
    def snapshot(self) -> SnapshotInfo: ...
    @property
    def zeros(self) -> PageSet: ...
    def frames(self) -> AsyncIterator[Frame]: ...


class Remote(Protocol):
    """The protocol of DESIGN §6: the calls of calls.py, and three that carry pages. Every call may raise Unavailable;
    those that change something say in `.determinate` whether it may have happened, and may be repeated as they are."""

    @property
    def url(self) -> str: ...

    async def ask(self, call: Call[Q, A], request: Q) -> A:
        """The answer to one call; its row says more."""
        ...

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        """One segment of one volume (8 MiB or so); durable when this returns, readable once a commit names it."""
        ...

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        """Accepted only if `request.base` is the head: else Conflict. PagesNotHere, NotOwner.

        The same token twice is one commit, and both get its LSN.
        """
        ...

    def read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0
    ) -> AbstractAsyncContextManager[PagesRead]:
        """Frames that hold `pages` at `lsn` (0: the newest), as stored, neighbours included."""
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
        """A u64 that grows with every change that the volume's local store sees. Two snapshots of one volume and home
        are the same view exactly if their identities are equal."""
        ...

    @property
    def history(self) -> int:
        """Another where commits were discarded that earlier snapshots were of: what was counted in the volume need not
        have counted on."""
        ...

    @property
    def ahead(self) -> dict[int, bytes]:
        """Pages that a read would give: whoever takes one out need not call `read`. It stays the same dictionary."""
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

    def read(self, page: int) -> bytes: ...
    def write(self, page: int, data: bytes) -> None:
        """A whole page; the length grows to hold it."""
        ...

    def truncate(self, length: int) -> None:
        """Set the length, in bytes. What lies beyond it reads as zeros if the volume grows again."""
        ...

    def confirm(self) -> None:
        """Have the remote acknowledge what was written; `commit` follows, with nothing written in between. Whoever
        commits to the remote at once, or to nobody, does nothing here.

        Raises Conflict where the remote has moved on, Diverged, Busy, Unavailable; the transaction goes on.
        """
        ...

    def commit(self, durability: Durability) -> Snapshot | None:
        """Makes the next local commit and returns its snapshot; None if nothing had changed. Releases the write lock.

        Raises Full or another StoreError with the volume as it was.
        """
        ...

    def rollback(self) -> None:
        """Drop everything and release the write lock. Harmless after commit."""
        ...


Row = dict[str, Any]
"""What is answered, by name; the names are the answerer's own."""


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

    # What a person or program asks of it, as by PRAGMA budwood_status.

    def status(self) -> Row:
        """How it stands here."""
        ...

    def view_row(self, view: Snapshot | None) -> Row:
        """`view`, where that is what the caller's transaction sees, else the newest."""
        ...

    def log_rows(self, argument: str | None) -> list[Row]:
        """Commits, a row each; what the argument says of which is the volume's own. Raises BadInput, Unavailable."""
        ...

    def bind_rows(self, argument: str | None) -> list[Row]:
        """How far sources were read (rules.py), a row each; the argument, "OFFSET SOURCE", is bound by the transaction
        in progress. Raises BadInput."""
        ...

    def push_row(self, as_name: str | None) -> Row: ...
    def pull_row(self) -> Row: ...
    def fetch_row(self) -> Row: ...

    def close(self) -> None: ...
