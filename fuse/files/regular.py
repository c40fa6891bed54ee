"""Regular files: one volume as a file that programs read, write and lock, from the first open to the last close.

    image.py         the bytes that programs see, and their way to them
    writeback.py     what was written becomes a commit
    transitions.py   when it does: what states a file is in, what events move it, and what each does
    here             who has it open, what is held meanwhile, and how it moves to another snapshot

**Open.** While anyone has the file open a view of its volume is held, and while anyone has it open for writing the
volume's write lock (`Local.keep_write_lock`): another process is told Busy, and what a program has read stays the head
until it writes. When the last handle goes, on the file or on a sidecar of it, everything is in the volume or rolled
back, and nothing is held. What could not be committed then stays, with its -wal, and the next close tries again.

**Others who write.** A pull within this process takes SQLite's locks first (swap.py), and then moves the view
(`move_on`). A volume that was reset is another history: the path gets a new file, and this one becomes `stale`: what is
open reads on, and writes fail. So it goes where a plain file moves on under its readers (moving.py).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import pyfuse3
import trio

from ...sync.attributes import Attributes
from ...sync.tables import Head
from ...sync.volume import Volume
from ...volume.errors import BudwoodError, Busy
from ..requests.background import Background
from ..requests.guarded import log
from .image import Handle, Image, ImageServices
from .inodes import Node
from .localfile import set_aside
from .sidecar import Sidecar
from .transitions import Event
from .wal_tail import Wal
from .writeback import PATIENCE_SECONDS, PAUSE_SECONDS, Writeback

_RETRY_SECONDS: Final = 2.0


class Services(ImageServices, Protocol):
    """What the files of a mount need of it, and nothing more."""

    @property
    def background(self) -> Background: ...

    @property
    def sidecars(self) -> Path:
        """Where those lie that survive a crash."""
        ...

    def touched(self, file: File) -> None:
        """Its length and time have changed, and the names don't tell so yet."""
        ...

    async def opening(self, file: File) -> None:
        """A program is about to open what nobody has open."""
        ...

    def opened(self, file: File) -> None:
        """A program has opened it."""
        ...

    async def released(self, file: File) -> None:
        """Nobody has it open any more."""
        ...

    async def invalidate(self, file: File) -> None:
        """The kernel forgets the file's pages and attributes."""
        ...

    def remove_sidecar(self, sidecar: Sidecar) -> None:
        """It goes without a program's doing: nobody has its database open."""
        ...


class File(Node):
    """For the mount's event loop."""

    __slots__ = (
        "_here",
        "_hiding",
        "_is_retried",
        "_sent_back",
        "dated",
        "handles",
        "image",
        "services",
        "sidecars",
        "unlinked",
        "unread",
        "untold",
        "vid",
        "writeback",
    )

    def __init__(
        self, ino: int, attributes: Attributes, services: Services, vid: bytes, image: Image, *, here: bool = True
    ) -> None:
        super().__init__(ino, attributes)
        self.services = services
        self.vid = vid
        self.image = image
        self.writeback = Writeback(image, self)
        # Most files of a mount are only listed: they hold no empty collections of their own.
        self.handles: tuple[Handle, ...] = ()
        self.sidecars: tuple[Sidecar, ...] = ()
        self.dated = False
        """Whether its time was set since it was written last."""
        self.untold = False
        """Whether its name doesn't tell yet of what was committed here."""
        self.unread = False
        """Whether nobody has opened it since others told its time, which then is that of the content to come, too."""
        self._here = here
        self.unlinked = False
        """Whether a program took its name away: what it holds is worth nothing once nobody has it open."""
        self._is_retried = False
        self._hiding: trio.Event | None = None
        self._sent_back = False
        """Whether who came to open it last was told to look it up again."""

    @property
    def length(self) -> int:
        return self.image.length

    @property
    def open_handles(self) -> int:
        return len(self.handles) + sum(sidecar.handles for sidecar in self.sidecars)

    @property
    def writers(self) -> int:
        return sum(handle.writable for handle in self.handles)

    @property
    def volume(self) -> Volume | None:
        return self.image.volume

    @property
    def here(self) -> bool:
        """Whether it is a volume of this home; else only its name is known."""
        return self.volume is not None or self._here

    @property
    def dirty(self) -> bool:
        return self.image.overlay is not None

    @property
    def stale(self) -> bool:
        return self.writeback.stale

    @property
    def wal(self) -> Wal | None:
        return self.writeback.wal

    @property
    def _is_abandoned(self) -> bool:
        """Whether it holds a view for nobody."""
        return self.image.view is not None and not self.open_handles

    # Open and close

    async def open(self, *, writable: bool, blind: bool = False) -> Handle:
        """Raises Busy when another process writes and goes on doing so, NotFound when the volume has gone."""
        if self.image.view is None:
            await self.services.opening(self)
        deadline = trio.current_time() + PATIENCE_SECONDS
        while True:
            async with self.writeback.gate:
                if self.stale:
                    # The kernel looks the path up again, and comes to the file that is there now.
                    raise pyfuse3.FUSEError(errno.ESTALE)
                if self.image.view is None:
                    self._drop_strange_wal()
                try:
                    moved = self._take(writable=writable)
                except Busy:
                    if trio.current_time() > deadline:
                        raise
                else:
                    if moved:
                        await self._tell_kernel()
                    self._sent_back = False
                    break
            await trio.sleep(PAUSE_SECONDS)
        self.unread = False
        handle = Handle(writable=writable, blind=blind)
        self.handles = (*self.handles, handle)
        if self._hiding is not None:
            # SQLite takes a -journal that is there and can't be opened for a hot one, and read-only it rolls none back.
            await self._hiding.wait()
        return handle

    async def _tell_kernel(self) -> None:
        """Another process has committed, and who opens the file is quicker than home_watch.py: by the length that the
        kernel knows, a program would read as much of the new content as there was of the old, and append in its midst.
        """
        self._touch_for_others()
        if not self._sent_back:
            # The kernel asks for its length and comes again. It does so once: whoever it sends then has to be let in.
            self._sent_back = True
            self._rest(cached=False)
            await self.services.invalidate(self)
            raise pyfuse3.FUSEError(errno.ESTALE)
        await self.services.invalidate(self)

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
        head = self.image.known_volume.local.peek()
        if wal.parted == (head.lsn, head.generation):
            return
        assert wal.file.path is not None
        self.writeback.wal, kept = None, set_aside(wal.file.path)
        wal.file.keep()
        log.warning("%s was changed beside its -wal, which is no longer part of it: kept as %s", self.path, kept)
        for sidecar in self.sidecars:
            self.services.remove_sidecar(sidecar)

    def _take(self, *, writable: bool) -> bool:
        """Whether the kernel was told of another state."""
        image = self.image
        fresh = writable and image.known_volume.local.keep_write_lock()
        try:
            if image.view is None:
                return image.look()
            if fresh and not image.is_of(image.known_volume.local.peek()):
                # Another process has committed since; the view moves on in a moment (home_watch.py).
                raise Busy(f"volume {image.known_volume.name!r} was changed a moment ago: try again")
            return False
        except BaseException:
            if fresh:
                image.known_volume.local.drop_write_lock()
            raise

    async def close(self, handle: Handle) -> None:
        """Never raises: nobody would hear of it."""
        try:
            if handle.wrote and not self.unlinked:
                await self.writeback.act(Event.CLOSE)
        except (BudwoodError, OSError, pyfuse3.FUSEError) as error:
            log.error("%s: what was written last is not committed: %s", self.path, error)
        self.handles = tuple(each for each in self.handles if each is not handle)
        if not self.writers and not self.dirty and not self.sidecars:
            self._drop_write_lock()
        await self.let_go()

    async def let_go(self) -> None:
        """If nobody has it open any more: everything is in the volume, or rolled back, and nothing is held."""
        if not self._is_abandoned:
            return
        async with self.writeback.gate:
            if not self._is_abandoned:
                return
            modified = self.mtime
            try:
                cached = await self._abandon()
            except (BudwoodError, OSError) as error:
                # What was written stays, and so does the -wal; and the view, for which the store keeps what it shows.
                if not self._is_retried:
                    log.error("%s can't be let go, and is tried again: %s", self.path, error)
                    self._is_retried = True
                    self.services.background.start_soon(self._let_go_later)
                return
            if self.open_handles:
                return
            self._rest(cached=cached)
        if not cached or self.mtime != modified:
            # Its length and time, too: whoever looks before anyone opens it is told by the kernel.
            await self.services.invalidate(self)
        await self.services.released(self)

    async def _let_go_later(self) -> None:
        while self._is_abandoned:
            await trio.sleep(_RETRY_SECONDS)
            await self.let_go()
        self._is_retried = False

    async def finish(self) -> None:
        """The mount ends. Raises what keeps a -wal from being taken over."""
        async with self.writeback.gate:
            if self.image.view is not None:
                await self._abandon()
                self._rest(cached=False)

    async def _abandon(self) -> bool:
        """Whether the kernel's pages are still good."""
        cached = await self.writeback.abandon(in_vain=self.unlinked)
        wal = self.wal
        # One that is parted from it stays beside it, as on any disk, unless nobody can find it any more.
        stays = {each for each in self.sidecars if wal is not None and wal.parted and wal.in_use and each.stands_beside}
        if not stays:
            self.writeback.wal = None
        for sidecar in self.sidecars:
            if sidecar not in stays:
                self.services.remove_sidecar(sidecar)
        if wal is not None and not stays:
            await wal.forget()
        return cached

    def _rest(self, *, cached: bool) -> None:
        self.image.rest(cached=cached)
        self._drop_write_lock()

    def _drop_write_lock(self) -> None:
        # A stale file has none: it may be the one of the file that took its place.
        if self.volume is not None and not self.stale:
            self.volume.local.drop_write_lock()

    # Writing

    async def write(self, handle: Handle, offset: int, data: bytes) -> None:
        await self.writeback.write(offset, data)
        self.dated, handle.wrote = False, True

    async def truncate(self, length: int) -> None:
        await self.writeback.truncate(length)
        self.dated = False

    def settled(self) -> None:
        # Whoever closes it has nothing of their own to be committed, and what others write is not theirs to commit.
        for handle in self.handles:
            handle.wrote = False

    def moved(self) -> None:
        """The content was written here: so the time has changed, and what the name tells of it is to follow."""
        if self.dated:
            # A program has said what time it is of, after it wrote: so do cp -p and tar, before they close it.
            self.ctime = time.time_ns()
        else:
            if self.sidecars and self.held_mtime is None:
                self.held_mtime = self.mtime
            self.touch()
        self.untold = True
        self.services.touched(self)

    async def invalidate(self) -> None:
        await self.services.invalidate(self)

    # Moving to another snapshot

    async def move_on(self, change: Callable[[], object] | None = None) -> bool:
        """Show the volume's head, after `change` has moved it, if given. The caller holds SQLite's locks, or nobody has
        the file open; `change` runs in a thread.

        False, with nothing changed, if a program has written what isn't committed.
        """
        image = self.image
        async with self.writeback.gate:
            if image.view is not None and not self.writeback.is_settled:
                return False
            if change is not None:
                await image.in_thread(change)
            if image.view is None:
                image.note_moved(image.known_volume.local.peek())
            else:
                image.swap()
            self._touch_for_others()
            await self.services.invalidate(self)
            return True

    async def supersede(self, change: Callable[[], object] | None = None) -> bool:
        """Become stale, after `change` has moved the volume to where those who have this open shall not follow; what
        they have committed is in the volume before. Whoever calls puts another file in its place.

        False if the volume stands where it stood. Raises what `change` raises, with this file as it was.
        """
        local, writeback = self.image.known_volume.local, self.writeback
        async with writeback.gate:
            if self.stale:
                return False
            # From here on no commit is taken that `change` would not know of.
            writeback.stale = True
            try:
                if self.wal is not None:
                    await self.wal.drain()
                if change is not None:
                    await self.image.in_thread(change)
                writeback.stale = not self.image.is_of(local.peek())
            except BaseException:
                writeback.stale = False
                raise
            if self.stale:
                local.drop_write_lock()
            return self.stale

    def note_moved(self, head: Head) -> None:
        """Someone else has moved the volume while nobody has it open here. The caller has the kernel forget it."""
        self.image.note_moved(head)
        self._touch_for_others()

    def _touch_for_others(self) -> None:
        """The content is another: nobody who has read it finds it with the time that it had."""
        if self.unread:
            self.ctime = time.time_ns()
        else:
            self.touch()

    def shows(self, head: Head) -> bool:
        """Whether what is shown is this state, or will be in a moment by this process's own doing."""
        if self.image.view is not None and (
            self.stale or self.dirty or self.image.busy is not None or self.writeback.wal_in_use
        ):
            return True
        return self.image.shows(head)
