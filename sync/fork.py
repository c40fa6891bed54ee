"""Fork: a new volume that starts as another stands, unpushed commits included. No network is needed.

The remote's part of it is not copied: the new record names its parent and the remote LSN, missing pages are read from
the parent, and the first push makes the fork on the remote (push.py). The unpushed commits become one commit of the new
volume, which is what a push would make of them anyway. Pages that are held here are copied too, so that the fork can be
read offline as far as its origin could; that copy may end at any point, since a page that is missing is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final

from ..volume import faults
from ..volume.errors import Full
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet, decode_pages
from . import mapped_memory
from .change import record_of
from .lmdb_errors import translated
from .local_volume import Local
from .rows import PENDING, Rows, newest
from .snapshot import LocalSnapshot
from .stage import Batch, batches
from .tables import HERE, CommitRecord, Head, Txn, VolumeRecord
from .volume_lifecycle import add_volume, adding_volume, first_head, fork_head

_COPY_BYTES: Final = 16 * 1024 * 1024

FORKED = faults.point("fork: volume visible, held pages not copied")


def fork(snapshot: LocalSnapshot, new: str) -> Local:
    """A volume `new` that reads as `snapshot` does, which is a settled one, whose view is held meanwhile. Raises
    AlreadyExists, Full.
    """
    with translated(snapshot.local.environment.data_path):
        made = _fork(snapshot, new)
        FORKED()
        _copy_held(snapshot, made)
        return made


@contextmanager
def forking(snapshot: LocalSnapshot, new: str | None) -> Generator[Callable[[Txn], None]]:
    """As `fork`, if there is a name and anything unpushed; but it is a volume only once what is given was called in a
    transaction of the caller's.
    """
    local, head = snapshot.local, snapshot.head
    if new is None or not head.unpushed:
        yield _nothing
        return
    with translated(local.environment.data_path):
        record, pages, commit = _record_of(snapshot, new), *_unpushed(snapshot)
        with adding_volume(local.environment, record, fork_head(head), pages=pages, commit=lambda: commit) as (
            made,
            add,
        ):
            yield add
        FORKED()
        _copy_held(snapshot, made)


def _nothing(_txn: Txn) -> None:
    """There is nothing to keep."""


def _fork(snapshot: LocalSnapshot, new: str) -> Local:
    environment, head, record = snapshot.local.environment, snapshot.head, _record_of(snapshot, new)
    if not head.unpushed:
        return add_volume(environment, record, first_head(head.length, head.sync_remote, head.page_size))
    pages, commit = _unpushed(snapshot)
    return add_volume(environment, record, fork_head(head), pages=pages, commit=lambda: commit)


def _record_of(snapshot: LocalSnapshot, new: str) -> VolumeRecord:
    return record_of_fork(snapshot.local.record(snapshot.transaction), snapshot.head, VolumeId.new(), new)


def _unpushed(snapshot: LocalSnapshot) -> tuple[Iterator[Batch], CommitRecord]:
    """What is unpushed as one commit: its pages, and its record."""
    local, head, txn = snapshot.local, snapshot.head, snapshot.transaction
    pages, skeleton = local.written_at(txn, head).pages, PageSet()
    for _, commit in local.commits(txn, head.sync_local, head.lsn):
        skeleton |= decode_pages(HERE, commit.skeleton)
    items = ((page, snapshot.read(page)) for page in pages)
    return batches(items, head.page_size), record_of(pages, skeleton & pages, head.length, head.floor)


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
    """What is held here of the remote's pages, kept for the fork as if it had been fetched, as far as there is room."""
    if not snapshot.head.sync_remote:
        return
    rows = snapshot.local.rows(snapshot.head.page_size)
    held = _held(snapshot, rows)
    with suppress(Full):
        while chunk := dict(islice(held, max(1, _COPY_BYTES // rows.page_size))):
            made.save(snapshot.head.sync_remote, chunk)
            mapped_memory.trim_scanned(made.environment.data_path)


def _held(snapshot: LocalSnapshot, rows: Rows) -> Iterator[tuple[int, bytes]]:
    txn, head = snapshot.transaction, snapshot.head
    for page, _, value in newest(rows, txn.cursor(snapshot.local.environment.tables.tails), head.lsn):
        if value[0] != PENDING:
            yield page, snapshot.read(page)
