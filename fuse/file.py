"""File: one volume as a file that programs read, write and lock.

**Views.** Reads answer from `view`, a snapshot held while anyone has the file open, under `overlay`, what was written
since. A commit makes both one: the overlay becomes a local commit, and the new snapshot the view.

**When a commit is made** is settled by the rollback journal (journal.py): at its end; where there is none at fsync, at
the close of a handle that wrote, and at the last close. With a -wal that is in use, what SQLite writes to the file is a
checkpoint of what was committed already (wal.py): it stays in the overlay, over the view as it was when the -wal began,
since SQLite itself reads newer pages in the -wal, and a reader that goes on with an older state must not meet them
here. When the -wal starts over, is cut or goes, the volume's head becomes the view (`rebase`), which then holds the
very same bytes. Whatever else is written to the file meanwhile is *astray*: at its fsync or close the volume becomes
what the file's own bytes are, and file and -wal are parted (wal.py); from then on the file is committed as a plain one.

**Others who write.** While the file is open for writing its volume's write lock is held (`tenure`): another process is
told Busy, and what a program has read stays the head until it writes. A pull within this process takes SQLite's locks
first (swap.py). A volume that was reset is another history: the path gets a new file, and this one becomes `stale`:
what is open reads on, and writes fail. So it goes where a plain file moves on under its readers (moving.py).

**Cache validity.** SQLite believes its cache while the change counter in page 1 stands still, and two histories may
carry the same counter. After a swap page 1 is shown with a counter above every one that was shown before.

Everything here belongs to the mount's event loop, except what runs in a thread while `busy` is set, when nobody reads.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Final, TypeVar

import pyfuse3
import trio

from ..sqlite.header import MAGIC, show
from ..sync.attributes import Attributes
from ..sync.commit import commit
from ..sync.snapshot import LocalSnapshot, Misses
from ..sync.stage import tidy
from ..sync.tables import Head
from ..sync.volume import Volume
from ..volume.errors import BudwoodError, Busy, Conflict, StoreError
from ..volume.page import DEFAULT_PAGE_SIZE
from ..volume.pageset import PageSet, page_count, span
from ..volume.protocols import Durability
from .aside import set_aside
from .fetch import NEVER_WAIT, NeedsFetch, Readahead, View, chunks
from .gate import Gate
from .guard import log
from .journal import TRANSITIONS, Act, Event, Journal
from .mark import forget
from .nodes import Node, Sidecar
from .overlay import MAX_PAGE, Overlay
from .services import Services
from .shorten import shorten, sqlite_page_size
from .takeback import bring_back
from .wal import Wal

__all__ = ["File", "Handle"]

_OPEN_SECONDS: Final = 5.0
"""How long an open for writing waits for another process that writes."""
_FEW_PAGES: Final = 64
"""More than these are always committed in a thread."""
_COUNTER: Final = slice(24, 28)
_MASK: Final = 0xFFFFFFFF
_STALE: Final = (-1, -1)

T = TypeVar("T")


class Handle:
    """One open of a file."""

    __slots__ = ("blind", "readahead", "writable", "wrote")

    def __init__(self, *, writable: bool, blind: bool = False) -> None:
        self.writable = writable
        self.blind = blind
        """Whether it writes without reading."""
        self.wrote = False
        self.readahead: Readahead | None = None


class File(Node):
    __slots__ = (
        "_astray",
        "_at",
        "_counter_floor",
        "_gate",
        "_head",
        "_here",
        "_hiding",
        "_shown",
        "_unflushed",
        "_view",
        "blind_writers",
        "busy",
        "dated",
        "handles",
        "held_mtime",
        "journal",
        "overlay",
        "seen",
        "services",
        "sidecars",
        "stale",
        "synced",
        "vid",
        "volume",
        "wal",
        "writers",
    )

    def __init__(
        self, ino: int, attributes: Attributes, services: Services, vid: bytes, length: int, *, here: bool = True
    ) -> None:
        super().__init__(ino, attributes)
        self.services = services
        self.vid = vid
        self.volume: Volume | None = None
        """None until it is first needed: thousands of files are only listed."""
        self.handles = 0
        self.writers = 0
        self.blind_writers = 0
        self.dated = False
        """Whether its time was set since it was written last."""
        self.held_mtime: int | None = None
        """What is shown in place of the time for a moment after a database's commit: it may commit a thousand times a
        second, and so often the kernel is not told that a time has moved.
        """
        self.sidecars: set[Sidecar] = set()
        self.journal = Journal.COLD
        self.wal: Wal | None = None
        self.overlay: Overlay | None = None
        self.busy: trio.Event | None = None
        """While a thread works on the view."""
        self.stale = False
        self.synced = False
        """Whether the commit to come was flushed by the program, and so must be durable."""
        self.seen: tuple[int, int] | None = None
        """(LSN, generation) that the kernel's cached pages are of."""
        self._astray = False
        """Whether a program has written what no frame of the -wal holds, and what isn't committed yet."""
        self._view: View | None = None
        self._head = length
        self._at: tuple[int, int] | None = None
        """(LSN, generation) that this length is of, if it was ever looked at."""
        self._here = here
        self._gate = Gate()
        self._hiding: trio.Event | None = None
        self._unflushed = False
        self._shown = -1
        self._counter_floor = -1

    # What it looks like

    @property
    def length(self) -> int:
        if self.overlay is not None:
            return self.overlay.length
        return self._head if self._view is None else self._view.length

    @property
    def shown_mtime(self) -> int:
        return self.mtime if self.held_mtime is None else self.held_mtime

    @property
    def open_handles(self) -> int:
        return self.handles + sum(sidecar.handles for sidecar in self.sidecars)

    @property
    def view(self) -> View | None:
        return self._view

    @property
    def _is_abandoned(self) -> bool:
        """Whether it holds a view for nobody."""
        return self._view is not None and not self.open_handles

    @property
    def here(self) -> bool:
        """Whether it is a volume of this home; else only its name is known."""
        return self.volume is not None or self._here

    @property
    def brought(self) -> bool:
        """Whether it can be opened as it is; else the tree brings its volume in."""
        return self.volume is not None

    @property
    def misses(self) -> Misses:
        return self.known_volume.misses

    @property
    def dirty(self) -> bool:
        return self.overlay is not None

    @property
    def wal_in_use(self) -> bool:
        return self.wal is not None and self.wal.in_use

    @property
    def parted(self) -> bool:
        """Whether the -wal is a file beside this one, whose commits come to the volume by SQLite's next checkpoint."""
        return self.wal is not None and self.wal.parted is not None

    @property
    def _is_beneath_wal(self) -> bool:
        """Whether what SQLite writes to it is a checkpoint of what the volume has."""
        return self.wal is not None and self.wal.in_use and not self.wal.parted

    @property
    def known_volume(self) -> Volume:
        assert self.volume is not None, "the tree adopts a volume before it opens its file"
        return self.volume

    def learn(self, volume: Volume, length: int) -> None:
        """Before it is first opened."""
        self.volume = volume
        if self._view is None:
            self._head = length

    # Open and close

    async def open(self, *, writable: bool, blind: bool = False) -> Handle:
        """Raises Busy when another process writes and goes on doing so, NotFound when the volume has gone."""
        if self._view is None:
            await self.services.opening(self)
        deadline = trio.current_time() + _OPEN_SECONDS
        while True:
            async with self._gate:
                if self.stale:
                    # The kernel looks the path up again, and comes to the file that is there now.
                    raise pyfuse3.FUSEError(errno.ESTALE)
                if self._view is None:
                    self._drop_strange_wal()
                try:
                    self._take(writable=writable)
                    break
                except Busy:
                    if trio.current_time() > deadline:
                        raise
            await trio.sleep(0.02)
        self.handles += 1
        self.writers += writable
        self.blind_writers += blind
        if self._hiding is not None:
            # SQLite takes a -journal that is there and can't be opened for a hot one, and read-only it rolls none back.
            await self._hiding.wait()
        return Handle(writable=writable, blind=blind)

    def hiding(self) -> trio.Event:
        """Nobody opens it until this is set: the kernel is being told that its -journal has gone."""
        self._hiding = trio.Event()
        return self._hiding

    def _drop_strange_wal(self) -> None:
        """Nobody has had it open. If the volume has moved meanwhile, the -wal beside it belongs to a state that it no
        longer is in: SQLite would make a mixture of the two.
        """
        wal = self.wal
        if wal is None or wal.parted is None:
            return
        head = self.known_volume.local.peek()
        if wal.parted == (head.lsn, head.generation):
            return
        assert wal.file.path is not None
        self.wal, kept = None, set_aside(wal.file.path)
        wal.file.keep()
        log.warning("%s was changed beside its -wal, which is no longer part of it: kept as %s", self.path, kept)
        for sidecar in list(self.sidecars):
            self.services.remove_sidecar(sidecar)

    def _take(self, *, writable: bool) -> None:
        local = self.known_volume.local
        fresh = writable and local.begin_tenure()
        try:
            if self._view is None:
                self._view = LocalSnapshot(local, NEVER_WAIT)
            elif fresh and not self._is_head(self._view, local.peek()):
                # Another process has committed since; the view moves on in a moment (watch.py).
                raise Busy(f"volume {local.name!r} was changed a moment ago: try again")
        except BaseException:
            if fresh:
                local.end_tenure()
            raise

    @property
    def cache_is_good(self) -> bool:
        """Whether the kernel's pages are of the present view; from now on they are."""
        view = self._view
        assert view is not None
        now = view.head.lsn, view.head.generation
        good, self.seen = self.seen in (now, None), now
        return good

    async def close(self, handle: Handle) -> None:
        """Never raises: nobody would hear of it."""
        try:
            if handle.wrote:
                await self.act(Event.CLOSE)
        except (BudwoodError, OSError, pyfuse3.FUSEError) as error:
            log.error("%s: what was written last is not committed: %s", self.path, error)
        self.handles -= 1
        self.writers -= handle.writable
        self.blind_writers -= handle.blind
        if not self.writers and self.overlay is None and not self.sidecars:
            self._end_tenure()
        await self.let_go()

    async def let_go(self) -> None:
        """If nobody has it open any more: everything is in the volume, or rolled back, and nothing is held."""
        if not self._is_abandoned:
            return
        async with self._gate:
            if not self._is_abandoned:
                return
            modified = self.mtime
            try:
                cached = await self._end_sidecars()
            except (BudwoodError, OSError) as error:
                # What was written stays, and so does the -wal: the next close tries again.
                log.error("%s can't be let go: %s", self.path, error)
                return
            if self.open_handles:
                return
            self._rest(cached=cached)
        if not cached or self.mtime != modified:
            # Its length and time, too: whoever looks before anyone opens it is told by the kernel.
            await self.services.invalidate(self)
        await self.services.released(self)

    async def finish(self) -> None:
        """The mount ends. Raises what keeps a -wal from being taken over."""
        async with self._gate:
            if self._view is not None:
                await self._end_sidecars()
                self._rest(cached=False)

    async def _end_sidecars(self) -> bool:
        """Whether the kernel's pages are still good."""
        cached = True
        if self.stale:
            self._drop_overlay()
            self.wal = None
        elif self._astray:
            await self._part(Durability.ORDERED)
        elif self.overlay is not None and not self._is_beneath_wal:
            self.journal, act = TRANSITIONS[self.journal, Event.ABANDON]
            if act is Act.ROLL_BACK:
                self._drop_overlay()
                cached = False
            else:
                await self._commit(Durability.ORDERED)
        wal = self.wal
        if wal is not None and not wal.parted:
            await wal.end()
            cached = self._is_checkpointed
            self._rebase()
        # One that is parted from it stays beside it, as on any disk, unless nobody can find it any more.
        stays = {each for each in self.sidecars if wal is not None and wal.parted and wal.in_use and each.stands_beside}
        if not stays:
            self.wal = None
        for sidecar in self.sidecars - stays:
            self.services.remove_sidecar(sidecar)
        self.journal, self.synced = Journal.COLD, False
        if wal is not None and wal.marked and not stays:
            await trio.to_thread.run_sync(forget, self.known_volume.local, self.services.sidecars)
        return cached

    @property
    def _is_checkpointed(self) -> bool:
        """Whether SQLite has written to the file whatever it has committed to the -wal."""
        assert self.wal is not None
        covered = self.overlay.pages if self.overlay is not None else PageSet()
        return not self.wal.pages - covered

    def _rest(self, *, cached: bool) -> None:
        view, self._view = self._view, None
        if view is not None:
            self.seen = (view.head.lsn, view.head.generation) if cached else _STALE
            self._head, self._at = view.length, (view.head.lsn, view.head.generation)
            view.close()
        self._end_tenure()

    def _end_tenure(self) -> None:
        # A stale file has none: it may be the one of the file that took its place.
        if self.volume is not None and not self.stale:
            self.volume.local.end_tenure()

    # Reading

    def read(self, offset: int, size: int) -> bytes:
        """Raises NeedsFetch; the caller has seen that nothing is `busy`."""
        overlay, view = self.overlay, self._view
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
                await self.fetch(need, self._rest_of(offset, size))
            finally:
                self.read_ahead(handle)

    def _rest_of(self, offset: int, size: int) -> PageSet:
        """The missing pages of one read."""
        view = self._view
        if view is None or not view.page_size:
            return PageSet()
        return view.missing(span(offset // view.page_size + 1, page_count(offset + size, view.page_size)))

    async def fetch(self, need: NeedsFetch, beside: PageSet) -> None:
        need.missing |= beside
        await self.services.fetcher.fetch(self, need)

    def read_ahead(self, handle: Handle) -> None:
        """Ask for what a sequential reader will want next."""
        view, readahead = self._view, handle.readahead
        if readahead is None or view is None or self.busy is not None:
            return
        wanted = readahead.wanted(view.page_size, view.length)
        if wanted:
            for chunk in chunks(view.missing(wanted), view.page_size):
                need = NeedsFetch(view.head, chunk.min(), chunk)
                self.services.fetcher.ahead(self, need)

    async def settled(self) -> None:
        while self.busy is not None:
            await self.busy.wait()

    # Writing

    async def write(self, handle: Handle, offset: int, data: bytes) -> None:
        await self._change(
            lambda overlay: overlay.write(offset, data),
            offset + len(data),
            lambda wal: wal.holds(offset, data) or (offset >= self.length and not data.strip(b"\0")),
            first=(offset, data),
        )
        handle.wrote = True

    async def truncate(self, length: int) -> None:
        await self._change(
            lambda overlay: overlay.truncate(length), length, lambda wal: length >= self.length or wal.leaves(length)
        )

    async def _change(
        self,
        change: Callable[[Overlay], None],
        end: int,
        is_checkpoint: Callable[[Wal], bool],
        *,
        first: tuple[int, bytes] = (0, b""),
    ) -> None:
        """`is_checkpoint` tells whether SQLite does so where it copies committed frames to the file; room that it
        reserves there (SQLITE_FCNTL_CHUNK_SIZE) is part of that.
        """
        drained = False
        while True:
            await self.settled()
            if self.stale:
                raise pyfuse3.FUSEError(errno.EIO)
            wal, astray = self.wal, False
            if wal is not None and self._is_beneath_wal and not self._astray and not is_checkpoint(wal):
                if not drained:
                    # Its frames may have been committed a moment ago.
                    await wal.drain(flush=False)
                    drained = True
                    continue
                astray = True
            overlay = self.overlay or self._cover(*first)
            if end > MAX_PAGE * overlay.page_size:
                raise pyfuse3.FUSEError(errno.EFBIG)
            try:
                change(overlay)
            except NeedsFetch as need:
                await self.fetch(need, PageSet())
                continue
            self.overlay, self.dated = overlay, False
            self._astray |= astray
            offset, data = first
            if offset <= _COUNTER.start and offset + len(data) >= _COUNTER.stop:
                at = _COUNTER.start - offset
                self._shown = max(self._shown, int.from_bytes(data[at : at + 4]))
            return

    def _cover(self, offset: int, data: bytes) -> Overlay:
        view = self._view
        assert view is not None
        size = view.page_size or self.known_volume.page_size
        if size is None:
            size = sqlite_page_size(data) if offset == 0 else None
        return Overlay(view, size or DEFAULT_PAGE_SIZE, self.services.spill)

    # Commits

    async def act(self, event: Event) -> None:
        """What the journal's table says of this event. Raises what makes the commit impossible; then the journal is as
        it was.
        """
        if self._astray and event in (Event.FSYNC, Event.CLOSE):
            async with self._gate:
                if self._astray:
                    await self._part(Durability.DURABLE if event is Event.FSYNC else Durability.ORDERED)
        if self._is_beneath_wal:
            # What is in the overlay is a checkpoint: it was committed, or is about to be.
            if event is Event.FSYNC:
                assert self.wal is not None
                await self.wal.drain()
            return
        after, act = TRANSITIONS[self.journal, event]
        if act is Act.NOTE:
            self.synced = True
        elif act is Act.COMMIT:
            durable = event is Event.FSYNC or self.synced
            async with self._gate:
                if self.stale and self.overlay is not None:
                    raise pyfuse3.FUSEError(errno.EIO)
                if self.overlay is not None:
                    shorten(self.overlay, by_journal=event is Event.END)
                await self._commit(Durability.DURABLE if durable else Durability.ORDERED)
            self.synced = False
        self.journal = after

    async def _commit(self, durability: Durability) -> None:
        """The overlay becomes a commit, if it changes anything. When it can't, it stays: the program may try again, or
        write back what was there.
        """
        overlay = self.overlay
        if overlay is None:
            await self._flush(durability)
            return
        try:
            view = await self._do_commit(overlay, durability)
        except Conflict:
            # It never can be committed, and the kernel still has it.
            self._drop_overlay()
            await self.services.invalidate(self)
            raise
        except StoreError as error:
            if not error.determinate:
                # It stands, and only a power loss could take it back. The program takes it for failed, and whatever it
                # does about that is a change of what stands.
                overlay.move(LocalSnapshot(self.known_volume.local, NEVER_WAIT))
                self._adopt(overlay.view)
            raise
        self._drop_overlay()
        if view is None:
            await self._flush(durability)
            return
        self._unflushed = durability is not Durability.DURABLE
        self._adopt(view)
        self._moved()
        self.services.committed(self)

    async def _flush(self, durability: Durability) -> None:
        """There is nothing to commit, but the last commit may not have reached the disk."""
        if durability is Durability.DURABLE and self._unflushed:
            await trio.to_thread.run_sync(self.known_volume.local.environment.flush)
            self._unflushed = False

    async def _do_commit(self, overlay: Overlay, durability: Durability) -> LocalSnapshot | None:
        pace = self.services.commits
        if pace.is_quick and len(overlay.pages) <= _FEW_PAGES:
            return pace.timed(lambda: self._commit_now(overlay, durability))
        return await self._in_thread(lambda: pace.timed(lambda: self._commit_now(overlay, durability)))

    def _commit_now(self, overlay: Overlay, durability: Durability) -> LocalSnapshot | None:
        """None if nothing had changed."""
        local = self.known_volume.local
        overlay.drop_unchanged()
        if overlay.is_empty:
            return None
        overlay = self._in_sqlite_pages(overlay)
        with local.write_lock():
            head = tidy(local)
            if not self._is_head(overlay.view, head):
                raise Conflict(f"volume {local.name!r} was changed by another process meanwhile", head=head.lsn)
            wal, after = self.wal, head._replace(lsn=head.lsn + 1)
            also = wal.part(after) if wal is not None and wal.parted else None
            commit(local, head, overlay.change(), durability, also=also)
            if wal is not None and wal.parted:
                wal.stand((after.lsn, after.generation))
            return LocalSnapshot(local, NEVER_WAIT)

    def _in_sqlite_pages(self, overlay: Overlay) -> Overlay:
        """A new database has its volume's pages of the size of its own, whatever was written first."""
        if overlay.view.page_size or self.known_volume.page_size or not overlay.length:
            return overlay
        wanted = sqlite_page_size(overlay.read(1))
        if wanted in (None, overlay.page_size):
            return overlay
        self.overlay = overlay.recut(wanted or overlay.page_size)
        return self.overlay

    def _drop_overlay(self) -> None:
        overlay, self.overlay = self.overlay, None
        self._astray = False
        if overlay is not None:
            overlay.close()

    # Moving to another snapshot

    async def restart_wal(self, offset: int = 0, *, by_sqlite: bool = False) -> None:
        """Before the -wal is overwritten or cut from `offset` on, or unlinked, and commits with that. `by_sqlite`:
        it does so to a -wal only when it has checkpointed all of it, or goes on without what is there.
        """
        async with self._gate:
            if self.wal is None:
                return
            if self.wal.parted:
                if not offset:
                    # What SQLite has checkpointed is the file's own, and what it hasn't goes, as on any disk.
                    await self._commit(Durability.ORDERED)
                    self.wal.reset()
                return
            await self.wal.drain()
            if self.wal.spares(offset):
                return
            if by_sqlite and offset:
                await self._take_back(offset)
                return
            if self._astray:
                await self._part(Durability.ORDERED)
                self.wal.reset()
                return
            if by_sqlite and self.wal.last is not None and not await self._was_checkpointed():
                await self._take_back(self.wal.last.start_bytes)
            cached = self._is_checkpointed
            self.wal.reset()
            self._rebase()
            if not cached:
                await self.services.invalidate(self)

    async def _was_checkpointed(self) -> bool:
        wal, beneath = self.wal, self.overlay or self._view
        assert wal is not None
        assert beneath is not None
        return await self._in_thread(lambda: wal.was_checkpointed(beneath))

    async def _take_back(self, offset: int) -> None:
        """SQLite goes on without the commits from `offset` on. What the file shows is what it was before them."""
        wal, beneath = self.wal, self.overlay or self._view
        assert wal is not None
        assert beneath is not None
        await self._patiently(wal, lambda: wal.take_back(offset, beneath))

    async def _part(self, durability: Durability) -> None:
        """The volume becomes what the file's own bytes are. Raises what makes that impossible, with all as it was."""
        wal, overlay, volume = self.wal, self.overlay, self.known_volume
        assert wal is not None
        assert overlay is not None

        def work() -> LocalSnapshot:
            bring_back(volume, overlay.length, wal.hides(overlay), wal.part, durability)
            return LocalSnapshot(volume.local, NEVER_WAIT)

        view = await self._patiently(wal, work)
        wal.stand((view.head.lsn, view.head.generation))
        self._drop_overlay()
        self._unflushed = durability is not Durability.DURABLE
        self._adopt(view)
        self._moved()
        self.services.committed(self)

    async def _patiently(self, wal: Wal, work: Callable[[], T]) -> T:
        """Do it in a thread while nothing is taken over; what it needs is fetched first."""
        deadline = trio.current_time() + _OPEN_SECONDS
        while True:
            try:
                async with wal.alone():
                    return await self._in_thread(work)
            except NeedsFetch as need:
                await self.fetch(need, PageSet())
            except Busy:
                # A pull or a push has the lock for a moment.
                if trio.current_time() > deadline:
                    raise
                await trio.sleep(0.02)

    def _rebase(self) -> None:
        """The head becomes the view. What a checkpoint wrote is in it already."""
        view, before = LocalSnapshot(self.known_volume.local, NEVER_WAIT), self._view
        if before is None or not self._is_head(before, view.head):
            self._moved()
        self._drop_overlay()
        self._adopt(view)

    async def move_on(self, change: Callable[[], object] | None = None) -> bool:
        """Show the volume's head, after `change` has moved it, if given. The caller holds SQLite's locks, or nobody has
        the file open; `change` runs in a thread.

        False, with nothing changed, if a program has written what isn't committed.
        """
        async with self._gate:
            if self._view is not None and (self.dirty or self.wal_in_use or self.journal is Journal.HOT):
                return False
            if change is not None:
                await self._in_thread(change)
            if self._view is None:
                self.told(self.known_volume.local.peek())
            else:
                self._counter_floor = self._shown + 1
                self._adopt(LocalSnapshot(self.known_volume.local, NEVER_WAIT))
            self.mtime = self.ctime = time.time_ns()
            await self.services.invalidate(self)
            return True

    async def supersede(self, change: Callable[[], object] | None = None) -> bool:
        """Become stale, after `change` has moved the volume to where those who have this open shall not follow; what
        they have committed is in the volume before. Whoever calls puts another file in its place.

        False if the volume stands where it stood. Raises what `change` raises, with this file as it was.
        """
        local = self.known_volume.local
        async with self._gate:
            if self.stale:
                return False
            # From here on no commit is taken that `change` would not know of.
            self.stale = True
            try:
                if self.wal is not None:
                    await self.wal.drain()
                if change is not None:
                    await self._in_thread(change)
                self.stale = self._view is None or not self._is_head(self._view, local.peek())
            except BaseException:
                self.stale = False
                raise
            if self.stale:
                local.end_tenure()
            return self.stale

    def told(self, head: Head) -> None:
        """Someone else has moved the volume while nobody has it open here. The caller has the kernel forget it."""
        self.seen, self._at, self._head = _STALE, (head.lsn, head.generation), head.length
        self.mtime = self.ctime = time.time_ns()

    def shows(self, head: Head) -> bool:
        """Whether what is shown is this state, or will be in a moment by this process's own doing."""
        view = self._view
        if view is None:
            return self._at in ((head.lsn, head.generation), None) and self._head == head.length
        own = self.stale or self.busy is not None or self.wal_in_use or self.dirty
        return own or self._is_head(view, head)

    def refresh(self) -> None:
        """Told every few seconds: what is open for days must not keep the home from using its room again."""
        if self.busy is None and isinstance(self._view, LocalSnapshot):
            self._view.refresh()

    def _moved(self) -> None:
        """The content has changed by a commit here: so has the time, and what the name tells of it is to follow."""
        if self.dated:
            # A program has said what time it is of, after it wrote: so do cp -p and tar, before they close it.
            self.ctime = time.time_ns()
        else:
            if self.sidecars and self.held_mtime is None:
                self.held_mtime = self.mtime
            self.touch()
        self.services.touched(self)

    def _adopt(self, view: View) -> None:
        before, self._view = self._view, view
        if before is not None:
            before.close()
        self.seen = view.head.lsn, view.head.generation

    async def _in_thread(self, work: Callable[[], T]) -> T:
        while self.busy is not None:
            await self.busy.wait()
        done = self.busy = trio.Event()
        try:
            return await trio.to_thread.run_sync(work)
        finally:
            self.busy = None
            done.set()

    @staticmethod
    def _is_head(view: View, head: Head) -> bool:
        return (view.head.lsn, view.head.generation) == (head.lsn, head.generation)
