"""Moving: a file shows another snapshot of its volume, and what that means for those who have it open.

    nobody has it open               it shows the new snapshot
    a SQLite database                it does so under SQLite's locks: swap.py. So does an empty file that becomes one,
                                     unless somebody only writes to it
    a plain file, open for writing   it stays where it is, and so does the volume (Busy)
    a plain file, open for reading   the path gets a new file; who has the old one open reads on in the old snapshot
    another history (a reset)        the same, whoever has it open: what they write from then on fails
    a mount that is read-only        the same for a database: its locks can't be taken there

A program that reads an open plain file would else get a mixture of two snapshots, and one that writes would write over
what it has never seen. `change` is what moves the volume's head; it is called at the moment when nobody is in the way.
It is not called if that moment doesn't come.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from ...sqlite.header import MAGIC
from ...volume.errors import Busy, Unavailable
from ..files.invalidate import entry_forgotten
from ..files.regular import File
from ..names.nameops import Naming
from ..requests.in_thread import in_thread
from .locking import Locking
from .swap import PATIENCE_SECONDS, NotOurs, swap

T = TypeVar("T")


class Moving:
    """For the mount's event loop."""

    def __init__(self, naming: Naming, locking: Locking, root: Path, *, read_only: bool) -> None:
        self._naming = naming
        self._locking = locking
        self._root = root
        self._read_only = read_only
        self.moves = 0
        """Files that were moved while they were open."""

    def find(self, vid: bytes) -> File | None:
        """The file that stands for a volume, if one does."""
        file = self._naming.tree.file_of(vid)
        return None if file is None or file.stale else file

    async def move(
        self,
        vid: bytes,
        change: Callable[[], object] | None = None,
        *,
        apart: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Let whoever has the volume's file open see its head, after `change` has moved it, if given; `apart` if that
        is another history.

        Raises what `change` raises; Busy, with nothing changed, while programs keep the file where it is.
        """
        file = self.find(vid)
        if file is None:
            if change is not None:
                await in_thread(change)
            return
        await self._naming.bring(file)
        if file.writeback.parted and not apart:
            raise Busy(
                f"{file.path!r} stays where it is, as its -wal holds what the file doesn't: "
                "have SQLite checkpoint it, or remove the -wal"
            )
        if file.image.view is None:
            # Whoever opens it waits until this is done.
            await file.move_on(change)
            return
        if apart:
            await self._replace(file, change)
        elif await _is_database(file) or await _becomes_database(file, ahead=change is not None):
            await self._swap(file, change, patience_seconds)
        elif file.writers or file.dirty:
            raise Busy(f"{file.path!r} stays where it is while a program has it open for writing: close it first")
        else:
            await self._replace(file, change)
        self.moves += 1

    async def _swap(self, file: File, change: Callable[[], object] | None, patience_seconds: float) -> None:
        if self._read_only:
            await self._replace(file, change)
            return
        try:
            await swap(self._locking, file, self._root / file.path, change, patience_seconds=patience_seconds)
        except NotOurs:
            if file.writers or file.dirty:
                raise
            await self._replace(file, change)

    async def _replace(self, file: File, change: Callable[[], object] | None) -> None:
        if await file.supersede(change):
            for sidecar in file.sidecars:
                # A new one may take its name; who has it open goes on with it.
                file.services.remove_sidecar(sidecar)
            fresh = self._naming.tree.renew(file)
            if fresh is not None and fresh.parent is not None:
                # Whoever asked for it finds the new file as soon as it is told.
                await entry_forgotten(fresh.parent, fresh.name)


async def _becomes_database(file: File, *, ahead: bool) -> bool:
    """Whether it is empty, and a SQLite database where it is to move: on the remote, if that is `ahead` of this home.
    Whoever reads and writes an empty file that is a database elsewhere is SQLite, and looks again when it begins a
    transaction; whoever only writes is about to overwrite whatever is there.
    """
    if file.length or file.dirty or any(handle.blind for handle in file.handles):
        return False
    volume = file.image.known_volume
    begin = await _first_page(file, lambda: in_thread(volume.newest_bytes, len(MAGIC), ahead))
    return begin == MAGIC


async def _is_database(file: File) -> bool:
    return await _first_page(file, file.image.begins_database) if file.length else bool(file.sidecars)


async def _first_page(file: File, read: Callable[[], Awaitable[T]]) -> T:
    try:
        return await read()
    except Unavailable as error:
        raise Busy(f"{file.path!r} stays where it is: its first page can't be had ({error})") from error
