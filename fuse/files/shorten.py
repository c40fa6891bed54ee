"""Shorten: a database's length as SQLite is about to make it.

SQLite cuts a database that became shorter (VACUUM, auto-vacuum, a savepoint rolled back after pages were spilled) only
after the transaction has ended. The commit would have the old length, and the cut after it would be a commit of its
own. So where SQLite is going to cut the file, the commit has that length already, and the cut that follows changes
nothing.

A page count in a header is no reason to cut anything: any program may write those four bytes, and what lies behind a
database may be its own, or room that SQLite itself has reserved (SQLITE_FCNTL_CHUNK_SIZE). SQLite cuts a file only
where it was exactly as long as its header said before, and then

    at a journal's end    the header counts less than before, or pages behind the new end were spilled
    elsewhere             (MEMORY, OFF) the header counts less than before, and its change counter is the next one, as
                          SQLite's own commit leaves it; and nothing behind the new end was written

Wherever else it cuts, its cut is a commit of its own.
"""

from __future__ import annotations

from typing import Final

from ...sqlite.header import HEADER_SIZE, is_sqlite
from ...sync.overlay import Overlay
from ...volume.pageset import beyond, page_count
from .fetch import NeedsFetch

_COUNTER: Final = slice(24, 28)


def shorten(overlay: Overlay, *, by_journal: bool) -> None:
    """Cut what is about to be committed to the length that SQLite will cut it to."""
    if 1 not in overlay.pages:
        return
    length = _header_length(overlay.read(1))
    if not 0 < length < overlay.length:
        return
    try:
        if _will_be_cut(overlay, length, by_journal=by_journal):
            overlay.truncate(length)
    except NeedsFetch:
        # Only the page size of another database could make it need a page: that one is not SQLite's to cut.
        return


def _will_be_cut(overlay: Overlay, length: int, *, by_journal: bool) -> bool:
    view = overlay.view
    before = view.read(1) if view.length else b""
    if _header_length(before) != view.length:
        return False
    behind = beyond(overlay.pages, page_count(length, overlay.page_size))
    if by_journal:
        # Room that is reserved is zeros; a page that was spilled is hardly ever.
        return length < view.length or any(overlay.read(page).strip(b"\0") for page in behind)
    counters = [int.from_bytes(page[_COUNTER]) for page in (before, overlay.read(1))]
    return overlay.length == view.length and not behind and counters[1] == (counters[0] + 1) & 0xFFFFFFFF


def _header_length(page1: bytes) -> int:
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
