"""View: the lite client's answer to the protocol Snapshot. It holds nothing at the remote."""

from __future__ import annotations

from collections.abc import Callable

from ..volume.wire import SnapshotInfo
from .source import Source


class LiteSnapshot:
    """`has_moved` tells whether the next transaction begins on another view than the one given."""

    __slots__ = ("_has_moved", "ahead", "identity", "length", "page_size", "source", "view")

    history = 0
    """A remote discards none."""

    def __init__(self, source: Source, view: SnapshotInfo, has_moved: Callable[[SnapshotInfo], bool]) -> None:
        self.source = source
        self.view = view
        self.length = view.length
        self.page_size = view.page_size
        self.identity = view.lsn
        self.ahead = dict[int, bytes]()
        self._has_moved = has_moved

    @property
    def label(self) -> str:
        return str(self.identity)

    def read(self, page: int) -> bytes:
        return self.source.page(self.view, page)

    def newest(self) -> LiteSnapshot:
        return LiteSnapshot(self.source, self.source.view, self._has_moved)

    def release(self) -> None:
        """There is nothing to let go of."""

    def renew(self) -> bool:
        return not self._has_moved(self.view)

    def close(self) -> None:
        """See release."""
