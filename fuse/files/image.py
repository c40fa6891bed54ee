"""Image: the bytes of one file, as programs see them: a view, and what was written over it since.

**Views.** `view` is a snapshot, held while anyone has the file open. `overlay` is what was written since; writeback.py
says when the two become one, and so a commit. A file that nobody has open has neither, and remembers its length.

**Cache validity.** The kernel keeps pages for as long as they are the view's (`seen`). SQLite believes its cache while
the change counter in page 1 stands still, and two histories may carry the same counter. After a swap page 1 is shown
with a counter above every one that was shown before.

Everything here belongs to the mount's event loop, except what runs in a thread while `busy` is set, when nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

import trio

from ...sqlite.header import MAGIC, show
from ...sqlite.shown_cookie import ShownCookie
from ...sync.overlay import Overlay
from ...sync.remote_snapshot import View
from ...sync.snapshot import LocalSnapshot, Misses
from ...sync.tables import Head
from ...sync.volume import Volume
from ...volume.page import DEFAULT_PAGE_SIZE
from ...volume.pageset import PageSet, page_count, span
from ..requests.in_thread import in_thread
from ..requests.offload import Offload
from .fetch import NEVER_WAIT, Fetcher, NeedsFetch, Readahead, chunks
from .shorten import sqlite_page_size

_COUNTER: Final = slice(24, 28)
_MASK: Final = 0xFFFFFFFF
_STALE: Final = (-1, -1)

T = TypeVar("T")


class ImageServices(Protocol):
    """What the bytes of files need of their mount."""

    @property
    def read_only(self) -> bool: ...

    @property
    def fetcher(self) -> Fetcher: ...

    @property
    def commits(self) -> Offload:
        """How long commits take."""
        ...

    @property
    def spill(self) -> Path:
        """Where what is too large for memory goes."""
        ...


class Handle:
    """One open of a file."""

    __slots__ = ("blind", "readahead", "writable", "wrote")

    def __init__(self, *, writable: bool = False, blind: bool = False) -> None:
        self.writable = writable
        self.blind = blind
        """Whether it writes without reading."""
        self.wrote = False
        self.readahead: Readahead | None = None


class Image:
    __slots__ = (
        "_at",
        "_cookie",
        "_counter_floor",
        "_length",
        "_shown",
        "busy",
        "overlay",
        "seen",
        "services",
        "view",
        "volume",
    )

    def __init__(self, services: ImageServices, length: int, head: Head | None = None) -> None:
        """`head`: of a volume that is here, and that is so long."""
        self.services = services
        self.volume: Volume | None = None
        """None until it is first needed: thousands of files are only listed."""
        self.view: View | None = None
        self.overlay: Overlay | None = None
        self.busy: trio.Event | None = None
        """While a thread works on the view."""
        self.seen: tuple[int, int] | None = None
        """(LSN, generation) that the kernel's cached pages are of."""
        self._length = length
        self._at = None if head is None else (head.lsn, head.generation)
        """(LSN, generation) that this length is of, as far as it is known."""
        self._shown = -1
        self._counter_floor = -1
        self._cookie = ShownCookie()

    @property
    def known_volume(self) -> Volume:
        assert self.volume is not None, "the tree adopts a volume before it opens its file"
        return self.volume

    @property
    def misses(self) -> Misses:
        return self.known_volume.misses

    @property
    def length(self) -> int:
        if self.overlay is not None:
            return self.overlay.length
        return self._length if self.view is None else self.view.length

    @property
    def own_bytes(self) -> Overlay | View:
        """What was written, or the view where nothing was."""
        beneath = self.overlay or self.view
        assert beneath is not None
        return beneath

    def is_of(self, head: Head) -> bool:
        """Whether the view is of that state."""
        view = self.view
        return view is not None and (view.head.lsn, view.head.generation) == (head.lsn, head.generation)

    # Views

    def learn(self, volume: Volume, head: Head) -> None:
        """Before it is first opened. What was told of its length stays told, until somebody opens it or it moves."""
        self.volume = volume
        if self._at is None and self.view is None:
            self._at, self._length = (head.lsn, head.generation), head.length

    def look(self) -> bool:
        """Show the volume's head, which nobody has open; whether the kernel was told of another."""
        view = self.view = self.newest()
        return self._at not in (None, (view.head.lsn, view.head.generation))

    def newest(self) -> LocalSnapshot:
        return LocalSnapshot(self.known_volume.local, NEVER_WAIT)

    def adopt(self, view: View) -> None:
        before, self.view = self.view, view
        if before is not None:
            before.close()
        self.seen = view.head.lsn, view.head.generation

    def swap(self) -> None:
        """Show the head, which may be of another history, to those who have read what was shown before."""
        self._counter_floor = self._shown + 1
        self.adopt(self.newest())

    def rest(self, *, cached: bool) -> None:
        """Nobody has it open any more; `cached`: the kernel's pages are those of the view."""
        view, self.view = self.view, None
        if view is not None:
            self._at, self._length = (view.head.lsn, view.head.generation), view.length
            self.seen = self._at if cached else _STALE
            view.close()

    def note_moved(self, head: Head) -> None:
        """Someone else has moved the volume while nobody has it open here. The caller has the kernel forget it."""
        self.seen, self._at, self._length = _STALE, (head.lsn, head.generation), head.length

    def shows(self, head: Head) -> bool:
        if self.view is None:
            return self._at == (head.lsn, head.generation)
        return self.is_of(head)

    @property
    def cache_is_good(self) -> bool:
        """Whether the kernel's pages are of the present view; from now on they are."""
        view = self.view
        assert view is not None
        now = view.head.lsn, view.head.generation
        good, self.seen = self.seen in (now, None), now
        return good

    def refresh(self) -> None:
        """Told every few seconds: what is open for days must not keep the home from using its room again."""
        if self.busy is None and isinstance(self.view, LocalSnapshot):
            self.view.refresh()

    # Reading

    def read(self, offset: int, size: int) -> bytes:
        """Raises NeedsFetch; the caller has seen that nothing is `busy`."""
        overlay, view = self.overlay, self.view
        assert view is not None
        if overlay is not None:
            length, page_size, read = overlay.length, overlay.page_size, overlay.read
        else:
            length, page_size, read = view.length, view.page_size, view.read
        end = min(offset + size, length)
        if offset >= end:
            return b""
        first, start = divmod(offset, page_size)
        last = (end - 1) // page_size
        data = read(first + 1) if first == last else b"".join([read(page) for page in range(first + 1, last + 2)])
        if not first:
            data = self._show(data)
        return data[start : start + end - offset] if start or len(data) != end - offset else data

    def _show(self, data: bytes) -> bytes:
        """Page 1 (and what follows it) of a database as programs shall see it."""
        if data[:16] != MAGIC:
            return data
        if self.view is not None:
            self._cookie.follow(self.view.history)
            data = self._cookie.show(data, committed=self.overlay is None)
        if self.services.read_only:
            # Where nothing can be written there is no -shm either: a database in WAL mode is shown as one that isn't.
            data = show(data[:100] + bytes(412), int.from_bytes(data[_COUNTER]))[:100] + data[100:]
        counter = int.from_bytes(data[_COUNTER])
        if counter < self._counter_floor:
            counter = self._counter_floor & _MASK
            raw = counter.to_bytes(4)
            # Where the two counters differ the page count beside them doesn't hold; so it must stay.
            valid = raw if data[92:96] == data[_COUNTER] else ((counter - 1) & _MASK).to_bytes(4)
            data = b"".join((data[:24], raw, data[28:92], valid, data[96:]))
        self._shown = max(self._shown, counter)
        return data

    async def read_slowly(self, handle: Handle, offset: int, size: int) -> bytes:
        """As `read`, for whoever may have to wait. Raises Unavailable, Forgotten, Corrupt."""
        if handle.readahead is not None:
            handle.readahead.read(offset, size)
        while True:
            await self.settled()
            try:
                return self.read(offset, size)
            except NeedsFetch as need:
                if handle.readahead is None:
                    handle.readahead = Readahead()
                    handle.readahead.read(offset, size)
                await self.fetch(need, self._missing(offset, size))
            finally:
                self._read_ahead(handle.readahead)

    async def begins_database(self) -> bool:
        """Whether it begins as SQLite's files do. Raises as `read_slowly`."""
        return await self.read_slowly(Handle(), 0, len(MAGIC)) == MAGIC

    def _missing(self, offset: int, size: int) -> PageSet:
        """The missing pages of one read."""
        view = self.view
        if view is None or not view.page_size:
            return PageSet()
        return view.missing(span(offset // view.page_size + 1, page_count(offset + size, view.page_size)))

    async def fetch(self, need: NeedsFetch, beside: PageSet | None = None) -> None:
        if beside is not None:
            need.missing |= beside
        await self.services.fetcher.fetch(self, need)

    def _read_ahead(self, readahead: Readahead | None) -> None:
        """Ask for what a sequential reader will want next."""
        view = self.view
        if readahead is None or view is None or self.busy is not None:
            return
        wanted = readahead.wanted(view.page_size, view.length)
        if wanted:
            for chunk in chunks(view.missing(wanted), view.page_size):
                self.services.fetcher.ahead(self, NeedsFetch(view.head, chunk.min(), chunk))

    async def settled(self) -> None:
        while self.busy is not None:
            await self.busy.wait()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """While it runs nobody reads."""
        await self.settled()
        done = self.busy = trio.Event()
        try:
            return await in_thread(work)
        finally:
            self.busy = None
            done.set()

    # Writing

    def cover(self, offset: int, data: bytes) -> Overlay:
        """An overlay over the view, for these bytes to begin with; it isn't shown yet."""
        view = self.view
        assert view is not None
        size = view.page_size or self.known_volume.page_size
        if size is None:
            size = sqlite_page_size(data) if offset == 0 else None
        return Overlay(view, size or DEFAULT_PAGE_SIZE, self.services.spill)

    def note_page1(self, offset: int, data: bytes) -> None:
        """Who writes page 1 has seen its counter, and has its schema's cookie in mind."""
        if not offset:
            self._cookie.wrote(data)
        if offset <= _COUNTER.start and offset + len(data) >= _COUNTER.stop:
            at = _COUNTER.start - offset
            self._shown = max(self._shown, int.from_bytes(data[at : at + 4]))

    def uncover(self) -> None:
        """Forget what was written, or what the view has by now."""
        overlay, self.overlay = self.overlay, None
        if overlay is not None:
            overlay.close()
