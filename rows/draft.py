"""Draft: a transaction of SQLite on a snapshot that can't be written. Its pages are kept, and go nowhere."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import TracebackType

import apsw

from ..sync.change import Change
from ..sync.overlay import Overlay
from ..sync.remote_snapshot import RemoteSnapshot
from ..vfs.system import Opened, Request, VolumeVFS
from ..volume.errors import BadInput
from ..volume.protocols import Durability, Snapshot, Writer
from .view import OneSnapshot, refuse

_numbers = count(1)


class Draft:
    """`connection` reads the snapshot, and what it has written; one transaction is made with it. `change` is what came
    of that: None for nothing. Not for two threads at once."""

    def __init__(self, name: str, snapshot: RemoteSnapshot, folder: Path) -> None:
        self._overlay = Overlay(snapshot, snapshot.page_size, folder)
        self._vfs = VolumeVFS(f"budwood-draft-{next(_numbers)}", refuse)
        pages = _DraftPages(name, snapshot, self._overlay)
        opened = Opened(pages, lambda: None)
        self.connection: apsw.Connection = self._vfs.connect_opened(
            opened, Request(name, "rw"), fixed=False, timeout_seconds=0
        )

    @property
    def change(self) -> Change | None:
        """With its pages in memory, since the draft's own are gone once it is closed."""
        self._overlay.drop_unchanged()
        if self._overlay.is_empty:
            return None
        made = self._overlay.change()
        return made._replace(items=list(made.items))

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.connection.close()
        self._vfs.unregister()
        self._overlay.close()


class _DraftPages(OneSnapshot):
    """Answers the protocol `Pages`."""

    read_only = False

    def __init__(self, name: str, snapshot: Snapshot, overlay: Overlay) -> None:
        super().__init__(name, snapshot)
        self._overlay = overlay

    def writer(self, snapshot: Snapshot, *, page_size: int | None = None) -> Writer:
        if not self._overlay.is_empty:
            raise BadInput("a draft has one transaction, and it was made")
        return _DraftWriter(self._overlay)


class _DraftWriter:
    """Answers the protocol `Writer`."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self.page_size = overlay.page_size

    @property
    def length(self) -> int:
        return self._overlay.length

    def read(self, page: int) -> bytes:
        return self._overlay.read(page)

    def write(self, page: int, data: bytes) -> None:
        self._overlay.write((page - 1) * self.page_size, data)

    def truncate(self, length: int) -> None:
        self._overlay.truncate(length)

    def confirm(self) -> None:
        """A draft is nobody's until it is asked for its change."""

    def commit(self, durability: Durability) -> Snapshot | None:
        """What is written stays in the overlay, and nobody reads the draft any more."""
        return None

    def rollback(self) -> None:
        """The draft is closed then."""
