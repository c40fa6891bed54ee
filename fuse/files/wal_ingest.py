"""WAL ingest: transactions in a -wal become commits of its volume, as many at once as fit one LMDB transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ...sqlite.btree import is_skeleton
from ...sqlite.wal import WalCommit, WalHeader
from ...sync.change import Change
from ...sync.commit import commit, commit_all
from ...sync.overlay import written_over
from ...sync.stage import tidy
from ...sync.tables import Head
from ...sync.volume import Volume
from ...volume.pageset import PageSet
from ...volume.protocols import Durability
from .watermark import Watermark, Write, note

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of pages that are committed in one LMDB transaction."""

Read = Callable[[int, int], bytes]
"""(offset, size) in bytes."""


def ingest(volume: Volume, header: WalHeader, read: Read, found: Sequence[WalCommit], taken: int) -> int:
    """Commit the first of them, as many as fit one LMDB transaction; how many that were. `taken` were before them."""
    local = volume.local
    with local.write_lock():
        head = tidy(local)
        page_size = header.page_size
        if head.page_size not in (0, page_size):
            mark = Watermark.of(header, found[0].end_bytes, taken + 1)
            _commit_recut(volume, head, header, read, found[0], note(local, mark))
            return 1
        batch, total = [found[0]], _bytes_of(found[0], page_size)
        for each in found[1:]:
            total += _bytes_of(each, page_size)
            if total > BATCH_BYTES:
                break
            batch.append(each)
        also = note(local, Watermark.of(header, batch[-1].end_bytes, taken + len(batch)))
        if len(batch) == 1:
            change = _change(batch[0], head.length, page_size, read)
            commit(local, head, change, Durability.ORDERED, also=also)
        else:
            lengths = [head.length, *(each.page_count * page_size for each in batch)]
            changes = [_change(each, before, page_size, read) for each, before in zip(batch, lengths, strict=False)]
            commit_all(local, head, changes, Durability.ORDERED, also=also)
        return len(batch)


def _change(found: WalCommit, before: int, page_size: int, read: Read) -> Change:
    """`before` is the length beneath it, in bytes."""
    places = sorted(found.pages.items())

    def items() -> Iterator[tuple[int, bytes]]:
        return ((page, read(place, page_size)) for page, place in places)

    length = found.page_count * page_size
    skeleton = PageSet([page for page, data in items() if is_skeleton(data, page)])
    return Change(items(), PageSet(found.pages), skeleton, length, min(before, length), page_size)


def _commit_recut(volume: Volume, head: Head, header: WalHeader, read: Read, found: WalCommit, also: Write) -> None:
    """The volume's pages have another size than SQLite's."""
    local, page_size = volume.local, header.page_size
    pieces = (((page - 1) * page_size, read(place, page_size)) for page, place in found.pages.items())
    with written_over(local, volume.misses, head.page_size, found.page_count * page_size, pieces) as overlay:
        commit(local, head, overlay.change(), Durability.ORDERED, also=also)


def _bytes_of(found: WalCommit, page_size: int) -> int:
    return len(found.pages) * page_size
