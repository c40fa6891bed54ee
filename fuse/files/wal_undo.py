"""WAL undo: commits in a -wal that SQLite takes back.

The frames of a transaction, its commit mark included, lie in the -wal before the wal-index tells of them. Where the
flush between the two fails, or the program is killed there, all the others go on as if that transaction had never been,
with what they have in their caches. The next one writes its frames over those; or, if every other commit was
checkpointed, the -wal starts over. By then the volume may have it, and so gets another commit that brings back what was
there: of each page its newest frame before, else what the database's own file holds.

Where nobody goes on without it, as after a crash, such a transaction stands: it is whole, and as if it had been told.

Crash window: brought back in the local store, the frames still in the -wal. Then the transaction stands (`recover`),
since the mark was set back with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import NamedTuple

from ...sqlite.wal import WalCommit, WalHeader, WalReader
from ...sync.commit import commit
from ...sync.overlay import Overlay, written_over
from ...sync.remote_snapshot import View
from ...sync.stage import tidy
from ...sync.tables import Head
from ...sync.volume import Volume
from ...volume import faults
from ...volume.pageset import PageSet, page_count, span
from ...volume.protocols import Durability
from .fetch import NeedsFetch
from .watermark import Write

TAKEN_BACK = faults.point("mount: commits of the -wal taken back in the local store, their frames still there")

Read = Callable[[int, int], bytes]
"""(offset, size) in bytes."""


Beneath = Overlay | View
"""What the database's own file holds."""


class Kept(NamedTuple):
    reader: WalReader
    """At the end of the last commit that stands."""
    last: WalCommit | None
    commits: int
    """How many stand."""


def undo(
    volume: Volume,
    read: Read,
    offset: int,
    beneath: Beneath,
    note: Callable[[WalHeader, int, int], Write],
) -> Kept:
    """Bring back what the commits from `offset` on have changed in the volume, which has all of the -wal's; `note` is
    to set the mark to an end in bytes, and so many commits. For a thread, while nobody writes to the -wal. Raises
    NeedsFetch, Busy.
    """
    reader, last, kept = WalReader(read), None, 0
    places: dict[int, int] = {}
    for last in reader.commits(until=offset):
        places.update(last.pages)
        kept += 1
    header, rest = reader.header, list(copy(reader).commits())
    assert header is not None, "commits have a header before them"
    size = header.page_size
    length = beneath.length if last is None else last.page_count * size
    pages = PageSet().union(*(PageSet(each.pages) for each in rest))
    # Whatever was cut off comes back, too.
    pages |= span(
        min((each.page_count for each in rest), default=page_count(length, size)) + 1, page_count(length, size)
    )

    def content(page: int) -> bytes:
        place = places.get(page)
        return read(place, size) if place is not None else _bytes(beneath, (page - 1) * size, size)

    pieces = (((page - 1) * size, content(page)) for page in pages)
    restore(volume, length, pieces, lambda _: note(header, reader.end_bytes, kept))
    TAKEN_BACK()
    return Kept(reader, last, kept)


def own_bytes(overlay: Overlay, hidden: PageSet, page_size: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of the database's own file, wherever its volume may hold something else: what was written, what a
    cut took away, and what the frames of these pages hide. Raises NeedsFetch.
    """
    unit = overlay.page_size
    for page in overlay.pages | span(page_count(overlay.floor, unit) + 1, page_count(overlay.length, unit)):
        yield (page - 1) * unit, overlay.read(page)
    for page in hidden & span(1, page_count(overlay.length, page_size)):
        yield (page - 1) * page_size, _bytes(overlay, (page - 1) * page_size, page_size)


def is_beneath(found: WalCommit, page_size: int, read: Read, beneath: Beneath) -> bool:
    """Whether the database's file holds what this commit, the last one, has written: whether it was checkpointed."""
    try:
        return all(
            read(place, page_size) == _bytes(beneath, (page - 1) * page_size, page_size)
            for page, place in found.pages.items()
        )
    except NeedsFetch:
        return False


def restore(
    volume: Volume,
    length: int,
    pieces: Iterable[tuple[int, bytes]],
    also: Callable[[Head], Write],
    durability: Durability = Durability.ORDERED,
) -> None:
    """The volume holds these (offset, bytes), and has this length; whatever the size of its pages. `also` is told the
    head that it will have. For a thread. Raises NeedsFetch, Busy.
    """
    local = volume.local
    with local.write_lock():
        head = tidy(local)
        with written_over(local, volume.misses, head.page_size, length, pieces) as overlay:
            overlay.drop_unchanged()
            if overlay.is_empty:
                local.environment.update(also(head), durable=durability is Durability.DURABLE)
            else:
                after = head._replace(lsn=head.lsn + 1)
                commit(local, head, overlay.change(), durability, also=also(after))


def _bytes(beneath: Beneath, offset: int, size: int) -> bytes:
    """Zeros where there is nothing."""
    unit = beneath.page_size
    if not unit:
        return bytes(size)
    first, last = offset // unit, (offset + size - 1) // unit
    data = b"".join([beneath.read(page + 1) for page in range(first, last + 1)])
    return data[offset - first * unit :][:size]
