"""Home watch: what other processes do to the home while it is mounted.

A command or a program with the VFS may commit, pull, reset, remove or rename volumes that have files here. Nobody tells
the mount, so it looks, several times a second: first at LMDB's count of transactions, which costs next to nothing and
moves with every change in the home, this process's own among them; then at the volumes' heads, and at the version of
the names. Looking takes a small part of the time, however many volumes there are.

While a program has a file open for writing its volume's write lock is held, so that what others commit meets files that
are closed, or open for reading. Those move on as after a pull (moving.py); another generation is another history.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import trio

from ...sync.edge import Edge
from ...sync.local_volume import raw_heads
from ...sync.tables import Head, unpack_head
from ...volume.errors import BudwoodError, Busy
from ..files.invalidate import forget_pages
from ..files.regular import File
from ..names.nameops import Naming
from ..requests.guarded import counters, log
from ..requests.in_thread import in_thread
from .moving import Moving
from .swap import QUIET_PATIENCE_SECONDS

INTERVAL_SECONDS: Final = 0.12
_AT_ONCE: Final = (0.0, 0.2)
_LONGEST_PAUSE_SECONDS: Final = 15.0
_SHARE: Final = 20
"""The time between two looks is so many times the one that a look takes."""


class HomeWatch:
    """For the mount's event loop. `gone` hears of volumes that went, `renamed` that names changed."""

    def __init__(
        self,
        edge: Edge,
        naming: Naming,
        moving: Moving,
        *,
        gone: Callable[[bytes], None],
        renamed: Callable[[], None],
    ) -> None:
        self._environment = edge.environment
        self._naming = naming
        self._moving = moving
        self._gone = gone
        self._renamed = renamed
        self._change = -1
        self._version = naming.namespace.version()
        self._heads: dict[bytes, bytes] = {}
        """As they were looked at last. The first look is at all: the names were read before."""
        self._behind: set[bytes] = set()
        """Volumes whose files could not move on yet, or may do so by this process's own doing in a moment."""
        self._moves: set[bytes] = set()
        """Whose files are being moved."""
        self._pauses: dict[bytes, tuple[float, float]] = {}
        """Of those that couldn't be: when to try again, and how long that was put off."""

    async def run(self) -> None:
        """For as long as the mount lives."""
        async with trio.open_nursery() as nursery:
            while True:
                began = time.monotonic()
                try:
                    await self._look(nursery)
                except BudwoodError as error:
                    log.warning("what others change in this home can't be seen now: %s", error)
                took = time.monotonic() - began
                await trio.sleep(max(INTERVAL_SECONDS, _SHARE * took))

    async def _look(self, nursery: trio.Nursery) -> None:
        change = self._environment.last_change()
        if change == self._change and not self._behind:
            return
        self._change = change
        heads = await in_thread(raw_heads, self._environment)
        before, self._heads = self._heads, heads
        for vid in before.keys() - heads.keys():
            self._behind.discard(vid)
            self._gone(vid)
        await self._look_at_names()
        changed = {vid for vid, raw in heads.items() if before.get(vid) != raw}
        for vid in changed:
            head = unpack_head(vid, heads[vid])
            was = unpack_head(vid, before[vid]) if vid in before else None
            if was is not None and was.sync_local == head.sync_local:
                counters.commits += head.lsn - was.lsn
        self._follow(changed | self._behind, heads, nursery)

    async def _look_at_names(self) -> None:
        version = self._naming.namespace.version()
        if version != self._version:
            self._version = version
            self._renamed()
        await self._naming.refresh()

    def _follow(self, vids: set[bytes], heads: dict[bytes, bytes], nursery: trio.Nursery) -> None:
        for vid in vids:
            file, head = self._naming.tree.file_of(vid), unpack_head(vid, heads[vid])
            if file is None or file.stale or file.shows(head):
                self._behind.discard(vid)
            elif vid not in self._behind:
                # It may be a change of ours that isn't shown yet: then it is at the next look.
                self._behind.add(vid)
            elif vid not in self._moves and self._pauses.get(vid, _AT_ONCE)[0] <= trio.current_time():
                self._moves.add(vid)
                nursery.start_soon(self._show, file, head)

    async def _show(self, file: File, head: Head) -> None:
        view = file.image.view
        try:
            if view is None:
                file.note_moved(head)
                await forget_pages(file)
            elif not file.writers or view.head.generation != head.generation:
                apart = view.head.generation != head.generation
                await self._moving.move(file.vid, apart=apart, patience_seconds=QUIET_PATIENCE_SECONDS)
            self._behind.discard(file.vid)
            self._pauses.pop(file.vid, None)
        except Busy as error:
            # A program is within a transaction.
            log.info("%s", error)
            pause = min(_LONGEST_PAUSE_SECONDS, 2 * self._pauses.get(file.vid, _AT_ONCE)[1])
            self._pauses[file.vid] = trio.current_time() + pause, pause
        except BudwoodError as error:
            log.warning("%s does not show what was changed by another process: %s", file.path, error)
        finally:
            self._moves.discard(file.vid)
