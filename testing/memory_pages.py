"""Pages in memory: the whole of `Pages`, `Snapshot` and `Writer` with no disk and no remote.

A `MemoryVolume` is what is stored; each `MemoryPages` is one connection to it, so that the VFS and the mount can be
tried alone, and a stateful test has a model to compare with. It is a real multi-version store: every commit keeps the
versions before it, one writer at a time holds the lock, a snapshot never changes, a writer whose snapshot is no
longer the head conflicts. A truncation leaves zeros behind.

`replace` stands for what a pull or a reset does: another history takes the volume's place, and its identity moves on.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Mapping

from ..volume.errors import BadInput, Busy, Conflict, NotFound, ReadOnly
from ..volume.page import DEFAULT_PAGE_SIZE, check_page_size, zeros
from ..volume.pageset import page_count
from ..volume.protocols import Durability, Row, Snapshot


class MemoryVolume:
    """Every version of every page. `lengths[lsn]` is the length in bytes at that LSN; LSN 0 is the empty volume."""

    def __init__(self, name: str = "memory", *, page_size: int | None = None) -> None:
        self.name = name
        self.page_size = page_size
        self.lengths = [0]
        self.durabilities: list[Durability] = []
        """What each commit was asked for, oldest first."""
        self.replaced: list[int] = []
        """The LSNs from which another history goes on."""
        self._versions: dict[int, list[tuple[int, bytes]]] = {}
        self._lock = threading.Lock()
        self._writer: weakref.ref[MemoryWriter] | None = None
        """One that nobody holds any more has given the lock back, as a home's does."""

    @property
    def head(self) -> int:
        return len(self.lengths) - 1

    @property
    def locked(self) -> bool:
        return self._writer is not None and self._writer() is not None

    def pages(self, *, lsn: int | None = None, read_only: bool = False) -> MemoryPages:
        """One more connection; fixed and read-only when an LSN is given."""
        if lsn is not None and not 0 <= lsn <= self.head:
            raise NotFound(f"volume {self.name!r} has no LSN {lsn}: its head is {self.head}")
        return MemoryPages(self, lsn, read_only or lsn is not None)

    def read(self, page: int, lsn: int) -> bytes:
        for version, data in reversed(self._versions.get(page, ())):
            if version <= lsn:
                return data
        return zeros(self.page_size or DEFAULT_PAGE_SIZE)

    def changed(self, lsn: int) -> set[int]:
        """The pages that the commit of this LSN wrote."""
        return {page for page, versions in self._versions.items() if any(at == lsn for at, _ in versions)}

    def replace(self, pages: Mapping[int, bytes], length: int, *, page_size: int) -> None:
        """The next LSN holds exactly these pages."""
        with self._lock:
            self.page_size = check_page_size(page_size)
            self.replaced.append(self.head + 1)
            self._append({**dict.fromkeys(self._versions, zeros(page_size)), **pages}, length)

    def content(self, lsn: int | None = None) -> tuple[dict[int, bytes], int]:
        """Every page within the length at `lsn`, and the length: what `replace` takes."""
        at = self.head if lsn is None else lsn
        last = page_count(self.lengths[at], self.page_size or DEFAULT_PAGE_SIZE)
        return {page: self.read(page, at) for page in sorted(self._versions) if page <= last}, self.lengths[at]

    def take(self, writer: MemoryWriter, lsn: int) -> None:
        with self._lock:
            if self.locked:
                raise Busy(f"volume {self.name!r} is being written by another connection: wait, then try again")
            if lsn != self.head:
                raise Conflict(f"volume {self.name!r} has moved on: begin the transaction again", head=self.head)
            self._writer = weakref.ref(writer)

    def drop(self, writer: MemoryWriter) -> None:
        with self._lock:
            if self._writer is not None and self._writer() is writer:
                self._writer = None

    def commit(self, writer: MemoryWriter, durability: Durability) -> int:
        with self._lock:
            holder = None if self._writer is None else self._writer()
            assert holder is writer, "a commit without the write lock"
            self.page_size = writer.page_size
            last = page_count(writer.floor, writer.page_size)
            cut = {page: zeros(writer.page_size) for page in self._versions if page > last}
            self._append({**cut, **writer.pages}, writer.length)
            self.durabilities.append(durability)
            return self.head

    def _append(self, pages: Mapping[int, bytes], length: int) -> None:
        lsn = self.head + 1
        for page, data in pages.items():
            self._versions.setdefault(page, []).append((lsn, data))
        self.lengths.append(length)


class MemorySnapshot:
    __slots__ = ("_released", "_volume", "ahead", "fixed", "history", "identity", "length")

    def __init__(self, volume: MemoryVolume, lsn: int, *, fixed: bool) -> None:
        self._volume = volume
        self._released = False
        self.identity = lsn
        self.history = bisect_right(volume.replaced, lsn)
        self.length = volume.lengths[lsn]
        self.fixed = fixed
        self.ahead = dict[int, bytes]()

    @property
    def page_size(self) -> int:
        return self._volume.page_size or DEFAULT_PAGE_SIZE

    @property
    def label(self) -> str:
        return str(self.identity)

    def read(self, page: int) -> bytes:
        assert not self._released, "a read from a snapshot that was released"
        return self._volume.read(page, self.identity)

    def release(self) -> None:
        self._released = True

    def renew(self) -> bool:
        self._released = False
        return self.fixed or self.identity == self._volume.head

    def close(self) -> None:
        self._released = True


class MemoryWriter:
    __slots__ = ("__weakref__", "_changed", "_over", "_volume", "floor", "length", "page_size", "pages")

    def __init__(self, volume: MemoryVolume, snapshot: Snapshot, page_size: int) -> None:
        self._volume = volume
        self._over = snapshot.identity
        self._changed: bool = False
        self.page_size = page_size
        self.length: int = snapshot.length
        self.floor: int = snapshot.length
        self.pages: dict[int, bytes] = {}

    def read(self, page: int) -> bytes:
        data = self.pages.get(page)
        if data is not None:
            return data
        if page > page_count(self.floor, self.page_size):
            return zeros(self.page_size)
        return self._volume.read(page, self._over)

    def write(self, page: int, data: bytes) -> None:
        if len(data) != self.page_size:
            raise BadInput(f"a page of {len(data)} bytes in a volume of {self.page_size}-byte pages")
        self._changed = True
        self.pages[page] = data
        self.length = max(self.length, page * self.page_size)

    def truncate(self, length: int) -> None:
        if length == self.length:
            return
        self._changed = True
        last, rest = page_count(length, self.page_size), length % self.page_size
        if rest and length < self.length:
            self.pages[last] = self.read(last)[:rest].ljust(self.page_size, b"\0")
        self.length = length
        self.floor = min(self.floor, length)
        for page in [page for page in self.pages if page > last]:
            del self.pages[page]

    def confirm(self) -> None:
        """It has no remote."""

    def commit(self, durability: Durability) -> MemorySnapshot | None:
        try:
            if not self._changed:
                return None
            return MemorySnapshot(self._volume, self._volume.commit(self, durability), fixed=False)
        finally:
            self.rollback()

    def rollback(self) -> None:
        self._volume.drop(self)


class MemoryPages:
    """One connection to a `MemoryVolume`."""

    def __init__(self, volume: MemoryVolume, lsn: int | None, read_only: bool) -> None:
        self._volume = volume
        self._lsn = lsn
        self.read_only = read_only
        self.closed = False

    @property
    def name(self) -> str:
        return self._volume.name

    @property
    def page_size(self) -> int | None:
        return self._volume.page_size

    def snapshot(self) -> MemorySnapshot:
        fixed = self._lsn is not None
        return MemorySnapshot(self._volume, self._volume.head if self._lsn is None else self._lsn, fixed=fixed)

    def writer(self, snapshot: Snapshot, *, page_size: int | None = None) -> MemoryWriter:
        if self.read_only:
            raise ReadOnly(f"this view of volume {self.name!r} can't be written")
        size = self._volume.page_size
        if size is not None and page_size not in (None, size):
            raise BadInput(f"volume {self.name!r} has {size}-byte pages; that can't be changed to {page_size}")
        writer = MemoryWriter(self._volume, snapshot, check_page_size(size or page_size or DEFAULT_PAGE_SIZE))
        self._volume.take(writer, snapshot.identity)
        return writer

    def status(self) -> Row:
        return self.view_row(None)

    def view_row(self, view: Snapshot | None) -> Row:
        lsn = self._volume.head if self._lsn is None else self._lsn
        if view is not None:
            lsn = view.identity
        return {"name": self.name, "lsn": lsn, "length": self._volume.lengths[lsn]}

    def log_rows(self, argument: str | None) -> list[Row]:
        """From the LSN on that the argument says."""
        first = int(argument or 1)
        return [{"lsn": lsn, "length": length} for lsn, length in enumerate(self._volume.lengths) if lsn >= first]

    def bind_rows(self, argument: str | None) -> list[Row]:
        raise BadInput("a volume in memory has no remote, so it binds no source")

    def push_row(self, as_name: str | None) -> Row:
        raise BadInput("a volume in memory has no remote, so it can't push")

    def pull_row(self) -> Row:
        raise BadInput("a volume in memory has no remote, so it can't pull")

    def fetch_row(self) -> Row:
        raise BadInput("a volume in memory has no remote, so it can't fetch")

    def close(self) -> None:
        self.closed = True
