"""Birth: volumes come into this home, and leave it.

A volume exists once its name, record and head stand, which is one LMDB transaction: of two processes that make the same
name one wins and the other is told AlreadyExists. A volume that starts with pages (import, fork) writes them first,
under its write lock, with a stage record and no head: if its maker dies, nothing of it is visible, and whoever opens
the home next removes it (`tidy_orphans`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from ..volume import faults
from ..volume.errors import AlreadyExists, Busy, Corrupt, Diverged, NotFound
from ..volume.ids import VolumeId, check_name
from .environment import Environment
from .local import Local, find_volume, list_volumes, store_record
from .stage import Batch, apply, begin_removal, tidy
from .tables import NO_HEAD, CommitRecord, Head, VolumeRecord, name_key

if TYPE_CHECKING:
    from .environment import Txn

__all__ = ["check_free", "check_unpushed", "first_head", "give_birth", "remove", "rename", "tidy_orphans"]

BORN = faults.point("birth: pages written, volume not visible")
REMOVED = faults.point("remove: name gone, some rows left")


def check_free(environment: Environment, name: str, txn: Txn | None = None) -> None:
    """Raises AlreadyExists if this home has a volume of that name, BadInput if nothing can be called that."""
    check_name(name)
    if txn is None:
        with environment.view() as txn:
            check_free(environment, name, txn)
        return
    if find_volume(environment, name, txn) is not None:
        raise AlreadyExists(f"there is a volume {name!r} here already: take another name, or `budwood rm {name}` first")
    # A damaged name must not be taken for a free one: that would hide the volume behind an empty one.
    if any(record.name == name for record in list_volumes(environment, txn)):
        raise Corrupt("local store", f"the name {name!r} is gone, and its volume is still there")


def give_birth(
    environment: Environment,
    record: VolumeRecord,
    head: Head,
    *,
    pages: Iterable[Batch] = (),
    commit: Callable[[], CommitRecord] | None = None,
) -> Local:
    """A new volume with its first rows at `head.lsn`, and the unpushed commit that wrote them, if any: asked for once
    the rows are written.
    """
    local = Local(environment, VolumeId(record.vid), record.name)
    check_free(environment, record.name)
    record = msgspec.structs.replace(record, born_ms=record.born_ms or time.time_ns() // 1_000_000)

    def publish(txn: Txn) -> None:
        check_free(environment, record.name, txn)
        if txn.get(record.vid, db=environment.tables.heads) is not None:
            raise AlreadyExists(f"the volume {local.vid} is in this home already")
        BORN()
        store_record(environment, txn, record)
        txn.put(name_key(record.name), record.vid, db=environment.tables.names)
        if commit is not None:
            local.put_commit(txn, head.lsn, commit())
        # A view may rest while its volume leaves this home and comes back under the same id, at the same local LSN: by
        # the generation it is told from the one it was.
        local.put_head(txn, head._replace(generation=int.from_bytes(os.urandom(4)) >> 1))

    with local.write_lock():
        apply(local, head.lsn, head.page_size or 4096, pages, publish, durable=True, fresh=True)
    return local


def rename(environment: Environment, old: str, new: str, *, bound: str | None = None) -> None:
    """One transaction. `bound` is the name that the remote knows it by from now on."""

    def move(txn: Txn) -> None:
        record = find_volume(environment, old, txn)
        if record is None:
            raise NotFound(f"there is no volume {old!r} here")
        if new != old:
            check_free(environment, new, txn)
        txn.delete(name_key(old), db=environment.tables.names)
        txn.put(name_key(new), record.vid, db=environment.tables.names)
        store_record(
            environment, txn, msgspec.structs.replace(record, name=new, bound=record.bound if bound is None else bound)
        )

    environment.update(move, durable=True)


def remove(environment: Environment, local: Local, *, discard: bool) -> None:
    """The local copy goes: name, head and records in one transaction, then its rows. Raises Diverged while commits are
    unpushed, unless told to `discard` them, and Busy while someone writes or syncs it.
    """
    with local.sync_lock(), local.write_lock():
        tidy(local)

        def vanish(txn: Txn) -> None:
            head = local.head(txn)
            # Asked again: a commit may have been made since the caller asked.
            check_unpushed(head, local.name, discard=discard)
            record = local.record(txn)
            tables = environment.tables
            txn.delete(name_key(record.name), db=tables.names)
            for table in (tables.heads, tables.volumes, tables.pushes):
                txn.delete(local.raw, db=table)
            local.drop_commits(txn, 0, head.lsn)
            begin_removal(local, txn)

        environment.update(vanish, durable=True)
        REMOVED()
        tidy(local)


def check_unpushed(head: Head, name: str, *, discard: bool) -> None:
    """Raises Diverged if removing the volume would lose commits, unless told to `discard` them."""
    if head.unpushed and not discard:
        raise Diverged(
            f"volume {name!r} has {head.in_words}, which would be lost: push it first, "
            f"or drop it with `budwood rm {name} --discard`"
        )


def tidy_orphans(environment: Environment) -> None:
    """Remove what makers of volumes left behind when they died. Whatever has a living maker is left alone."""
    with environment.view() as txn:
        staged = [
            key for key, _ in txn.cursor(environment.tables.stages) if txn.get(key, db=environment.tables.heads) is None
        ]
    for raw in staged:
        local = Local(environment, VolumeId(raw), "")
        try:
            lock = local.write_lock()
        except Busy:
            continue
        with lock:
            tidy(local)


def first_head(length: int, sync_remote: int, page_size: int) -> Head:
    """Of a volume that starts as the remote's at `sync_remote`, with nothing local."""
    return NO_HEAD._replace(
        lsn=1, length=length, sync_remote=sync_remote, sync_local=1, floor=length, page_size=page_size
    )
