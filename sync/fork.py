"""Fork: a new volume that starts as another stands, unpushed commits included. No network is needed.

The remote's part of it is not copied: the new record names its parent and the remote LSN, missing pages are read from
the parent, and the first push makes the fork on the remote (push.py). The unpushed commits become one commit of the new
volume, which is what a push would make of them anyway. Pages that are held here are copied too, so that the fork can be
read offline as far as its origin could; that copy may be cut at any point, since a page that is missing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from ..volume import faults
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet, decode_pages
from . import mapped_memory
from .change import record_of
from .lmdb_errors import translated
from .local_volume import Local
from .rows import PENDING, Rows, newest
from .snapshot import LocalSnapshot
from .stage import batches
from .tables import HERE, Head, VolumeRecord
from .volume_lifecycle import add_volume, first_head, fork_head

_COPY_BYTES: Final = 16 * 1024 * 1024

FORKED = faults.point("fork: volume visible, held pages not copied")


def fork(snapshot: LocalSnapshot, new: str) -> Local:
    """A volume `new` that reads as `snapshot` does, which is a settled one, whose view is held meanwhile. Raises
    AlreadyExists, Full.
    """
    with translated(snapshot.local.environment.data_path):
        made = _fork(snapshot, new)
        FORKED()
        if snapshot.head.sync_remote:
            _copy_held(snapshot, made)
        return made


def _fork(snapshot: LocalSnapshot, new: str) -> Local:
    local, head, txn = snapshot.local, snapshot.head, snapshot.transaction
    child = VolumeId.new()
    record = record_of_fork(local.record(txn), head, child, new)
    if not head.unpushed:
        return add_volume(local.environment, record, first_head(head.length, head.sync_remote, head.page_size))
    pages, skeleton = local.written_at(txn, head).pages, PageSet()
    for _, commit in local.commits(txn, head.sync_local, head.lsn):
        skeleton |= decode_pages(HERE, commit.skeleton)
    commit = record_of(pages, skeleton & pages, head.length, head.floor)
    items = ((page, snapshot.read(page)) for page in pages)
    return add_volume(
        local.environment, record, fork_head(head), pages=batches(items, head.page_size), commit=lambda: commit
    )


def record_of_fork(origin: VolumeRecord, head: Head, child: VolumeId, new: str) -> VolumeRecord:
    """The parent is the volume that the remote can fork: the origin, or its own parent if the remote doesn't have the
    origin.
    """
    parent, lsn = (origin.vid, head.sync_remote) if origin.created else (origin.parent, origin.parent_lsn)
    if not head.sync_remote:
        parent, lsn = b"", 0
    return VolumeRecord(
        vid=child.raw,
        name=new,
        remote=origin.remote,
        store=origin.store,
        parent=parent,
        parent_lsn=lsn,
        mode=origin.mode,
        encryption=origin.encryption if parent else b"",
    )


def _copy_held(snapshot: LocalSnapshot, made: Local) -> None:
    """What is held here of the remote's pages, kept for the fork as if it had been fetched."""
    rows = snapshot.local.rows(snapshot.head.page_size)
    held = _held(snapshot, rows)
    while chunk := dict(islice(held, max(1, _COPY_BYTES // rows.page_size))):
        made.save(snapshot.head.sync_remote, chunk)
        mapped_memory.trim_scanned(made.environment.data_path)


def _held(snapshot: LocalSnapshot, rows: Rows) -> Iterator[tuple[int, bytes]]:
    txn, head = snapshot.transaction, snapshot.head
    for page, _, value in newest(rows, txn.cursor(snapshot.local.environment.tables.tails), head.lsn):
        if value[0] != PENDING:
            yield page, snapshot.read(page)
