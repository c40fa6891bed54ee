"""Writeback: what was written over a file's view becomes a commit of its volume; transitions.py says when.

**A commit** makes the overlay a local commit, and the new snapshot the view. It fails whole: what was written stays,
and so does the journal, so that the program may try again, or write back what was there. Only a volume that somebody
else has moved meanwhile takes it for good.

**Beneath a -wal** that is in use, what SQLite writes to the file is a checkpoint of what was committed already. It
stays in the overlay, over the view as it was when the -wal began: SQLite itself reads newer pages in the -wal, and a
reader that goes on with an older state must not meet them here. When the -wal starts over, is cut or goes, the volume's
head becomes the view, which then holds the very same bytes. Whatever else is written to the file meanwhile is *astray*:
at its fsync or close the volume becomes what the file's own bytes are, and file and -wal are parted (wal_tail.py).

**The gate** is held while a file is opened, committed, moved or let go. Reads and writes don't ask for it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import pyfuse3
import trio

from ...sync.commit import commit
from ...sync.overlay import MAX_PAGE, Overlay
from ...sync.snapshot import LocalSnapshot
from ...sync.stage import tidy
from ...volume.errors import Busy, Conflict, StoreError
from ...volume.pageset import PageSet
from ...volume.protocols import Durability
from ..requests.in_thread import in_thread
from ..requests.quick_lock import QuickLock
from .fetch import NeedsFetch
from .image import Image
from .shorten import shorten, sqlite_page_size
from .transitions import ACTS, Act, Event, State
from .wal_tail import Wal
from .wal_undo import restore

PATIENCE_SECONDS: Final = 5.0
"""How long another process that writes the volume is waited for."""
PAUSE_SECONDS: Final = 0.02
_FEW_PAGES: Final = 64
"""More than these are always committed in a thread."""
_GATED: Final = frozenset((Act.COMMIT, Act.PART, Act.REFUSE))

T = TypeVar("T")


class Owner(Protocol):
    """The file, as it hears of its commits."""

    def settled(self) -> None:
        """Nothing that was written is uncommitted."""
        ...

    def moved(self) -> None:
        """It shows a commit of a program's, made now or before; or what a program wrote changes nothing."""
        ...

    async def invalidate(self) -> None:
        """The kernel forgets its pages and attributes."""
        ...


class Writeback:
    __slots__ = ("_astray", "_image", "_owner", "_promised", "_unflushed", "gate", "hot", "stale", "wal")

    def __init__(self, image: Image, owner: Owner) -> None:
        self.gate = QuickLock()
        self.wal: Wal | None = None
        self.hot = False
        """Whether there is a rollback journal that would undo what is written now."""
        self.stale = False
        """Whether the volume has become another history."""
        self._image = image
        self._owner = owner
        self._astray = False
        """Whether a program has written what no frame of the -wal holds, and what isn't committed yet."""
        self._promised = False
        """Whether the commit to come was flushed by the program, and so must be durable."""
        self._unflushed = False
        """Whether the last commit may not have reached the disk."""

    # How it stands

    @property
    def state(self) -> State:
        if self.stale:
            return State.STALE
        if self._is_beneath_wal:
            return State.ASTRAY if self._astray else State.BENEATH
        return State.JOURNALED if self.hot else State.PLAIN

    @property
    def wal_in_use(self) -> bool:
        return self.wal is not None and self.wal.in_use

    @property
    def parted(self) -> bool:
        """Whether the -wal is a file beside this one, whose commits come to the volume by SQLite's next checkpoint."""
        return self.wal is not None and self.wal.parted is not None

    @property
    def uncommitted(self) -> bool:
        """Whether anything was written that is neither a commit nor a checkpoint of one."""
        return self._image.overlay is not None and (self._astray or not self._is_beneath_wal)

    @property
    def is_settled(self) -> bool:
        """Whether all that programs have done is in the volume."""
        return self._image.overlay is None and not self.wal_in_use and not self.hot

    @property
    def _is_beneath_wal(self) -> bool:
        return self.wal is not None and self.wal.in_use and not self.wal.parted

    @property
    def _is_checkpointed(self) -> bool:
        """Whether SQLite has written to the file whatever it has committed to the -wal."""
        overlay = self._image.overlay
        return self.wal is None or not self.wal.pages - (overlay.pages if overlay is not None else PageSet())

    # Writing

    async def write(self, offset: int, data: bytes) -> None:
        image = self._image
        await self._change(
            lambda overlay: overlay.write(offset, data),
            offset + len(data),
            lambda wal: wal.holds(offset, data) or (offset >= image.length and not data.strip(b"\0")),
            first=(offset, data),
        )
        image.note_page1(offset, data)

    async def truncate(self, length: int) -> None:
        image = self._image
        await self._change(
            lambda overlay: overlay.truncate(length), length, lambda wal: length >= image.length or wal.leaves(length)
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
        image, drained = self._image, False
        while True:
            await image.settled()
            state, wal, astray = self.state, self.wal, False
            if state is State.STALE:
                raise pyfuse3.FUSEError(errno.EIO)
            if wal is not None and state is State.BENEATH and not is_checkpoint(wal):
                if not drained:
                    # Its frames may have been committed a moment ago.
                    await wal.drain(flush=False)
                    drained = True
                    continue
                astray = True
            overlay = image.overlay or image.cover(*first)
            if end > MAX_PAGE * overlay.page_size:
                raise pyfuse3.FUSEError(errno.EFBIG)
            try:
                change(overlay)
            except NeedsFetch as need:
                await image.fetch(need)
                continue
            image.overlay = overlay
            self._astray |= astray
            return

    # Events

    def made(self) -> None:
        """The file is new: its name may not have reached the disk either."""
        self._unflushed = True

    async def act(self, event: Event) -> None:
        """What the table says of a program's event. Raises what makes the commit impossible; then all is as it was."""
        if ACTS[self.state, event] in _GATED:
            async with self.gate:
                # Whoever had it may have moved the file to another state.
                await self._act(event)
        else:
            await self._act(event)

    async def _act(self, event: Event) -> None:
        durability = Durability.DURABLE if event is Event.FSYNC or self._promised else Durability.ORDERED
        match ACTS[self.state, event]:
            case Act.BEGIN:
                self.hot = True
            case Act.PROMISE:
                self._promised = True
            case Act.DRAIN:
                assert self.wal is not None
                await self.wal.drain()
            case Act.COMMIT:
                if self._image.overlay is not None:
                    shorten(self._image.overlay, by_journal=event is Event.END)
                await self._commit(durability)
                self.hot = self._promised = False
            case Act.PART:
                await self._part(durability)
            case Act.REFUSE:
                if self.uncommitted:
                    raise pyfuse3.FUSEError(errno.EIO)
                await self._flush(durability)
            case _:
                pass

    async def abandon(self, *, in_vain: bool = False) -> bool:
        """Nobody has it open any more; the caller holds the gate. Whether the kernel's pages are still good. `in_vain`:
        nobody will ever see what was written."""
        cached = True
        match Act.ROLL_BACK if in_vain and self.wal is None else ACTS[self.state, Event.ABANDON]:
            case Act.COMMIT:
                await self._commit(Durability.ORDERED)
            case Act.PART:
                await self._part(Durability.ORDERED)
            case Act.ROLL_BACK:
                cached = self.stale or self._image.overlay is None
                self._uncover()
            case _:
                pass
        if self.stale:
            self.wal = None
        elif self.wal is not None and not self.wal.parted:
            # One that seems to hold nothing, too.
            await self.wal.end()
            cached = self._is_checkpointed
            self._rebase()
        self.hot = self._promised = False
        return cached

    async def restart_wal(self, offset: int = 0, *, by_sqlite: bool = False) -> None:
        """Before the -wal is overwritten or cut from `offset` on, or unlinked, and commits with that. `by_sqlite`:
        it does so to a -wal only when it has checkpointed all of it, or goes on without what is there.
        """
        async with self.gate:
            wal, cached = self.wal, True
            if wal is None:
                return
            await wal.drain()
            state = self.state
            if not wal.parted and wal.spares(offset):
                return
            event = Event.OVERWRITE if offset and (by_sqlite or wal.parted) else Event.RESTART
            match ACTS[state, event]:
                case Act.COMMIT:
                    # What SQLite has checkpointed is the file's own, and what it hasn't goes, as on any disk.
                    await self._commit(Durability.ORDERED)
                case Act.PART:
                    await self._part(Durability.ORDERED)
                case Act.UNDO:
                    await self._undo(wal, offset)
                case Act.REBASE:
                    if by_sqlite and wal.last is not None and not await self._was_checkpointed(wal):
                        await self._undo(wal, wal.last.start_bytes)
                    cached = self._is_checkpointed
                    self._rebase()
                case _:
                    pass
            if event is Event.RESTART:
                wal.reset()
            if not cached:
                await self._owner.invalidate()

    # Commits

    async def _commit(self, durability: Durability) -> None:
        """The overlay becomes a commit, if it changes anything."""
        image, overlay = self._image, self._image.overlay
        if overlay is None:
            await self._flush(durability)
            return
        try:
            view = await self._paced(overlay, durability)
        except Conflict:
            # It never can be committed, and the kernel still has it.
            self._uncover()
            await self._owner.invalidate()
            raise
        except StoreError as error:
            if not error.determinate:
                # It stands, and only a power loss could take it back. The program takes it for failed, and whatever it
                # does about that is a change of what stands.
                view = image.newest()
                overlay.move(view)
                image.adopt(view)
            raise
        if view is None:
            # It was written all the same, if to what it was.
            self._uncover()
            self._owner.moved()
            await self._flush(durability)
        else:
            self._stands(view, durability)

    def _stands(self, view: LocalSnapshot, durability: Durability) -> None:
        """What was written is a commit, and the view has it."""
        self._uncover()
        self._unflushed = durability is not Durability.DURABLE
        self._image.adopt(view)
        self._owner.moved()

    async def _flush(self, durability: Durability) -> None:
        """There is nothing to commit, but the last commit may not have reached the disk."""
        if durability is Durability.DURABLE and self._unflushed:
            await in_thread(self._image.known_volume.local.environment.flush)
            self._unflushed = False

    async def _paced(self, overlay: Overlay, durability: Durability) -> LocalSnapshot | None:
        offload = self._image.services.commits
        if offload.is_quick and len(overlay.pages) <= _FEW_PAGES:
            return offload.timed(lambda: self._commit_now(overlay, durability))
        return await self._image.in_thread(lambda: offload.timed(lambda: self._commit_now(overlay, durability)))

    def _commit_now(self, overlay: Overlay, durability: Durability) -> LocalSnapshot | None:
        """None if nothing had changed."""
        image, local = self._image, self._image.known_volume.local
        overlay.drop_unchanged()
        if overlay.is_empty:
            return None
        overlay = self._in_sqlite_pages(overlay)
        with local.write_lock():
            head = tidy(local)
            if not image.is_of(head):
                raise Conflict(f"volume {local.name!r} was changed by another process meanwhile", head=head.lsn)
            wal, after = self.wal, head._replace(lsn=head.lsn + 1)
            also = wal.part(after) if wal is not None and wal.parted else None
            commit(local, head, overlay.change(), durability, also=also)
            if wal is not None and wal.parted:
                wal.stand((after.lsn, after.generation))
            return image.newest()

    def _in_sqlite_pages(self, overlay: Overlay) -> Overlay:
        """A new database has its volume's pages of the size of its own, whatever was written first."""
        if overlay.view.page_size or self._image.known_volume.page_size or not overlay.length:
            return overlay
        wanted = sqlite_page_size(overlay.read(1))
        if wanted in (None, overlay.page_size):
            return overlay
        self._image.overlay = overlay.recut(wanted or overlay.page_size)
        return self._image.overlay

    def _uncover(self) -> None:
        self._image.uncover()
        self._owner.settled()
        self._astray = False

    # Beneath a -wal

    def _rebase(self) -> None:
        """The head becomes the view. What a checkpoint wrote is in it already."""
        image = self._image
        view = image.newest()
        if not image.is_of(view.head):
            self._owner.moved()
        self._uncover()
        image.adopt(view)

    async def _was_checkpointed(self, wal: Wal) -> bool:
        beneath = self._image.own_bytes
        return await self._image.in_thread(lambda: wal.was_checkpointed(beneath))

    async def _undo(self, wal: Wal, offset: int) -> None:
        """SQLite goes on without the commits from `offset` on. What the file shows is what it was before them."""
        beneath = self._image.own_bytes
        await self._patiently(wal, lambda: wal.undo(offset, beneath))

    async def _part(self, durability: Durability) -> None:
        """The volume becomes what the file's own bytes are. Raises what makes that impossible, with all as it was."""
        wal, overlay, image = self.wal, self._image.overlay, self._image
        assert wal is not None
        assert overlay is not None

        def work() -> LocalSnapshot:
            restore(image.known_volume, overlay.length, wal.hides(overlay), wal.part, durability)
            return image.newest()

        view = await self._patiently(wal, work)
        wal.stand((view.head.lsn, view.head.generation))
        self._stands(view, durability)

    async def _patiently(self, wal: Wal, work: Callable[[], T]) -> T:
        """Do it in a thread while nothing is taken over; what it needs is fetched first."""
        deadline = trio.current_time() + PATIENCE_SECONDS
        while True:
            try:
                async with wal.alone():
                    return await self._image.in_thread(work)
            except NeedsFetch as need:
                await self._image.fetch(need)
            except Busy:
                # A pull or a push has the lock for a moment.
                if trio.current_time() > deadline:
                    raise
                await trio.sleep(PAUSE_SECONDS)
