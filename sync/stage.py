"""Stage: how a change of any size reaches the local store whole.

A change is batches of rows at one local LSN above the head, and a last step that moves the head there. One batch:
everything in one LMDB transaction. More: LMDB would hold all of it in memory and lock out the home's other writers
meanwhile, so the batches go in one by one, invisible, since no reader looks above its head; a stage record, written
with the first and kept up with each, says which pages have such rows.

    stage record, head below its LSN    the change did not happen: its rows are removed
    stage record, head at its LSN       it did: the versions beneath it are removed
    stage record of a removal           the volume is gone: all its rows are removed

Whoever takes the write lock next tidies what a crash left (`tidy`), in batches too, each of which may be cut and done
again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from ..volume import faults
from ..volume.pageset import PageSet, decode_pages, encode_pages
from . import mapped_memory
from .local_volume import Local
from .rows import Editor
from .tables import HERE, NO_HEAD, Head, StageRecord, Txn, unpack_head

BATCH_BYTES = 16 * 1024 * 1024
"""Tests make it small."""
TIDY_ROWS = 4096
"""In one transaction. Tests make it small."""

STAGED = faults.point("stage: some rows written, head not moved")
READY = faults.point("stage: all rows written, head not moved")
PUBLISHED = faults.point("stage: head moved, older versions not removed")
TIDYING = faults.point("stage: some older versions removed")

_T = TypeVar("_T")


class Batch(NamedTuple):
    """Rows of one change, ascending: pages with their bytes, or pages that all get the same mark."""

    items: Sequence[tuple[int, bytes]] = ()
    marked: PageSet = PageSet()
    state: int = 0

    @property
    def pages(self) -> PageSet:
        return PageSet([page for page, _ in self.items]) | self.marked


def batches(items: Iterable[tuple[int, bytes]], page_size: int) -> Iterator[Batch]:
    """Pages, ascending, in batches of about BATCH_BYTES."""
    iterator, count = iter(items), max(1, BATCH_BYTES // page_size)
    while chunk := list(islice(iterator, count)):
        yield Batch(chunk)


def apply(
    local: Local,
    lsn: int,
    page_size: int,
    changes: Iterable[Batch],
    publish: Callable[[Txn], _T],
    *,
    durable: bool = False,
    fresh: bool = False,
) -> _T:
    """Write all rows at `lsn`, then `publish`, which moves the head there. The caller holds the write lock; `lsn` is
    the head's successor.

    `fresh` says that no page of the change has any row yet. Raises Full and whatever `publish` raises, with the volume
    as it was.
    """
    iterator = iter(changes)
    first = next(iterator, None)
    second = next(iterator, None)
    if second is None:
        pages = PageSet() if first is None else first.pages

        def whole(txn: Txn) -> _T:
            if first is not None:
                editor = _write(local, txn, lsn, page_size, first, pages)
                if not fresh:
                    editor.prune(pages, lsn, local.keep(txn))
            return publish(txn)

        return local.environment.update(whole, durable=durable)
    assert first is not None
    with staged(local, lsn, page_size, chain((first, second), iterator), fresh=fresh) as finish:

        def last(txn: Txn) -> _T:
            result = publish(txn)
            finish(txn)
            return result

        return local.environment.update(last, durable=durable)


def tidy(local: Local) -> Head:
    """Finish or undo what a holder of the write lock left behind when it died; the head as it stands. The caller holds
    the write lock.
    """
    with local.environment.look() as (txn, tail):
        stage = local.environment.get(txn, "stages", local.raw, StageRecord)
        raw, part = txn.get(local.raw, db=local.environment.tables.heads), tail.volumes.get(local.raw)
        head = part.head if part is not None else NO_HEAD if raw is None else unpack_head(local.raw, raw)
    if stage is not None and stage.removal:
        _sweep(local)
    elif stage is not None:
        _tidy(local, stage, head)
    return head


def begin_removal(local: Local, txn: Txn) -> None:
    """In the transaction in which a volume goes: a small one's rows go with it, those of others follow, by `tidy`."""
    if _drop_some(local, txn):
        record = StageRecord(lsn=0, pages=encode_pages(PageSet()), removal=True)
        local.environment.put(txn, "stages", local.raw, record)


@contextmanager
def staged(
    local: Local, lsn: int, page_size: int, changes: Iterable[Batch], *, fresh: bool = False
) -> Generator[Callable[[Txn], object]]:
    """All rows at `lsn` are written, and seen by nobody until the head moves there: what is given is called in the
    transaction that moves it. The caller holds the write lock. Nothing is left of them if the block raises.
    """
    pages = PageSet()
    try:
        for batch in changes:
            own = batch.pages
            pages |= own
            record = StageRecord(lsn=lsn, pages=encode_pages(pages))

            def write(txn: Txn, batch: Batch = batch, own: PageSet = own, record: StageRecord = record) -> None:
                local.environment.put(txn, "stages", local.raw, record)
                _write(local, txn, lsn, page_size, batch, own)

            local.environment.update(write)
            mapped_memory.trim_scanned(local.environment.data_path)
            STAGED()
        READY()
        # Of a fresh volume there is nothing to remove afterwards.
        yield partial(_end_stage, local) if fresh else _leave_stage
    except Exception:
        # Undo at once, so that the room is free again; a crash leaves that to the next holder of the write lock.
        tidy(local)
        raise
    if fresh:
        return
    PUBLISHED()
    tidy(local)
    local.environment.room.look()


def _leave_stage(_txn: Txn) -> None:
    """Older versions are still to be removed."""


def _write(local: Local, txn: Txn, lsn: int, page_size: int, batch: Batch, pages: PageSet) -> Editor:
    editor = local.editor(txn, page_size)
    editor.put(batch.items, lsn)
    if batch.marked:
        editor.mark(batch.marked, lsn, batch.state)
    editor.check(pages, lsn)
    return editor


def _tidy(local: Local, stage: StageRecord, head: Head) -> None:
    remaining = iter(decode_pages(HERE, stage.pages))
    happened = head.lsn >= stage.lsn
    # Rows above the head are dropped by exact LSN, so the page size only decides whether bodies are looked for.
    page_size = head.page_size or 65536
    while chunk := list(islice(remaining, TIDY_ROWS)):

        def clean(txn: Txn, chunk: list[int] = chunk) -> None:
            editor = local.editor(txn, page_size)
            if happened:
                editor.prune(chunk, head.lsn, local.keep(txn))
            else:
                editor.drop(chunk, stage.lsn)

        local.environment.update(clean)
        mapped_memory.trim_scanned(local.environment.data_path)
        TIDYING()

    local.environment.update(partial(_end_stage, local))


def _sweep(local: Local) -> None:
    while local.environment.update(lambda txn: _drop_some(local, txn)):
        TIDYING()
    local.environment.update(partial(_end_stage, local))
    local.environment.room.look()


def _drop_some(local: Local, txn: Txn) -> bool:
    """Of a volume that is gone as many rows as one transaction may take; whether some may be left."""
    tables, vid, is_left = local.environment.tables, local.raw, False
    for table in (tables.tails, tables.bodies):
        cursor = txn.cursor(table)
        more = cursor.set_range(vid)
        for _ in range(TIDY_ROWS):
            if not more or cursor.key()[:16] != vid:
                break
            more = cursor.delete()
        else:
            is_left = True
    return is_left


def _end_stage(local: Local, txn: Txn) -> None:
    txn.delete(local.raw, db=local.environment.tables.stages)
