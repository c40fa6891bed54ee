"""Shorten: a database's length as its own header tells it.

SQLite cuts a database that became shorter (VACUUM, auto-vacuum, a rollback after pages were spilled) only after the
transaction has ended. The commit would have the old length, and the cut after it would be a commit of its own. So where
the header in page 1 says that the database is shorter than the file, the commit has that length, and the cut that
follows changes nothing.

At a journal's end the header is SQLite's for certain. Elsewhere, any program may have written the file, and what
lies behind a database may be its own: there the file must have been exactly as long as its header said before, and
nothing behind the new end may have been written.
"""

from __future__ import annotations

from ..sqlite.header import HEADER_SIZE, is_sqlite
from ..volume.pageset import beyond, page_count
from .fetch import NeedsFetch
from .overlay import Overlay

__all__ = ["shorten", "sqlite_page_size"]


def shorten(overlay: Overlay, *, by_journal: bool) -> None:
    """Cut what is about to be committed to the length that its header tells."""
    if 1 not in overlay.pages:
        return
    length = _told(overlay.read(1))
    if not 0 < length < overlay.length:
        return
    try:
        if by_journal or _was_exact(overlay, length):
            overlay.truncate(length)
    except NeedsFetch:
        # Only the page size of another database could make it need a page: that one is not SQLite's to cut.
        return


def _was_exact(overlay: Overlay, length: int) -> bool:
    view = overlay.view
    if overlay.length != view.length or beyond(overlay.pages, page_count(length, overlay.page_size)):
        return False
    return _told(view.read(1)) == view.length


def _told(page1: bytes) -> int:
    """Bytes; 0 where the header doesn't say, or is none."""
    size = sqlite_page_size(page1)
    if size is None or page1[24:28] != page1[92:96]:
        return 0
    return int.from_bytes(page1[28:32]) * size


def sqlite_page_size(data: bytes) -> int | None:
    """The page size of the database that these bytes begin; None if they begin none."""
    if len(data) < HEADER_SIZE or not is_sqlite(data):
        return None
    size = int.from_bytes(data[16:18]) & 0xFFFE or 65536
    return size if size >= 512 and not size & (size - 1) else None
