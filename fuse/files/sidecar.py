"""Sidecars: the files that SQLite keeps beside a database. They are local, and never become volumes.

    -journal         an unlinked file of this process                  see transitions.py
    -wal             a file in <home>/mount/sidecars/, which a crash leaves for the next mount   see wal_tail.py
    -shm             an unlinked file: what its memory mapping holds is worth nothing once nobody has it open
    -mjXXXXXXXXX     an unlinked file: names the journals of a transaction over several databases

A file of such a name is a sidecar only if the file that it is named after stands beside it and is a SQLite database, or
empty: a user's file that happens to be called so is a file like any other.
"""

from __future__ import annotations

import errno
import re
from enum import Enum
from typing import Final, Protocol

import pyfuse3
import trio

from ...sync.attributes import Attributes
from ..requests.offload import Offload
from .inodes import Node
from .localfile import LocalFile
from .transitions import Event, event_of_write
from .wal_tail import Wal
from .writeback import Writeback


class Kind(Enum):
    JOURNAL = "-journal"
    WAL = "-wal"
    SHM = "-shm"
    SUPER = "-mj"


_SUPER: Final = re.compile(r"(.+)-mj[0-9A-F]{9}")


def split_name(name: str) -> tuple[str, Kind] | None:
    """The name of the file that a sidecar of this name belongs to; None if it is no sidecar's name."""
    for kind in (Kind.JOURNAL, Kind.WAL, Kind.SHM):
        if name.endswith(kind.value) and len(name) > len(kind.value):
            return name[: -len(kind.value)], kind
    found = _SUPER.fullmatch(name)
    return (found[1], Kind.SUPER) if found else None


class Database(Protocol):
    """The file that a sidecar lies beside."""

    sidecars: tuple[Sidecar, ...]

    @property
    def writeback(self) -> Writeback: ...

    def hiding(self) -> trio.Event: ...

    async def let_go(self) -> None: ...


class Sidecar(Node):
    """For the mount's event loop. `owner` is its database, wherever that is moved."""

    __slots__ = ("file", "handles", "kind", "owner")

    def __init__(self, ino: int, attributes: Attributes, kind: Kind, owner: Database, file: LocalFile) -> None:
        super().__init__(ino, attributes)
        self.kind = kind
        self.owner = owner
        self.file = file
        self.handles = 0

    @property
    def wal(self) -> Wal | None:
        """Whose commits count; those of a -wal that was removed while a program has it open don't any more."""
        wal = self.owner.writeback.wal
        return wal if wal is not None and wal.file is self.file else None

    @property
    def stands_beside(self) -> bool:
        """Whether it is a -wal that whoever opens its database finds."""
        return self.wal is not None and self.parent is not None

    @property
    def is_fleeting(self) -> bool:
        # SQLite looks for a -journal at every transaction, and can live with one that has just gone: at worst whoever
        # has a database open that was renamed is told of an I/O error, for a moment; on other file systems, for good.
        return self.kind in (Kind.WAL, Kind.SHM)

    @property
    def length(self) -> int:
        return self.file.size

    @property
    def open_handles(self) -> int:
        return self.handles

    async def write(self, offset: int, data: bytes) -> None:
        writeback, wal = self.owner.writeback, self.wal
        if wal is not None:
            if writeback.stale:
                raise pyfuse3.FUSEError(errno.EIO)
            if wal.overwrites(offset):
                await writeback.restart_wal(offset, by_sqlite=True)
            if not wal.in_use and writeback.uncommitted:
                # What was written to the file before there is a commit in the -wal is no checkpoint.
                await writeback.act(Event.CLOSE)
            wal.write(offset, data)
            return
        event = event_of_write(offset, data) if self.kind is Kind.JOURNAL and self.parent is not None else None
        if event is not None:
            # The commit comes first: where it fails, the journal is still hot.
            await writeback.act(event)
        self.file.write(offset, data)

    async def truncate(self, size: int, *, by_sqlite: bool) -> None:
        """SQLite cuts what it has open; the locker, by the name (swap.py)."""
        if self.kind is Kind.JOURNAL and size == 0 and self.parent is not None:
            await self.owner.writeback.act(Event.END)
        elif (wal := self.wal) is not None and wal.overwrites(size):
            await self.owner.writeback.restart_wal(size, by_sqlite=by_sqlite)
        # Its database may have been let go meanwhile, and it with that: then nothing is left to cut.
        if not self.file.closed:
            self.file.truncate(size)

    async def sync(self, flushes: Offload) -> None:
        """Only what survives a crash is flushed. Raises what keeps the commits of a -wal from the local store."""
        if self.kind is not Kind.WAL:
            return
        wal = self.wal
        count = wal.commit_count() if wal is not None else None
        await flushes.run(self.file.sync)
        if wal is not None and count is not None:
            wal.note_flushed(count)
        if wal is not None and wal.error is not None:
            raise wal.error

    async def unlinked(self) -> None:
        """What its end means to the database. Raises what makes a commit impossible, with the sidecar as it was."""
        writeback, wal = self.owner.writeback, self.wal
        if self.kind is Kind.JOURNAL:
            await writeback.act(Event.END)
        elif wal is not None:
            if wal.in_use:
                # Where its program has died the database may be let go meanwhile; then what follows changes nothing.
                await writeback.restart_wal()
            writeback.wal = None
            self.file.remove()
            await wal.forget()
