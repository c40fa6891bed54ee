"""Volume lifecycle: volumes come into this home, and leave it.

A volume exists once its name, record and head stand, which is one LMDB transaction: of two processes that make the same
name one wins and the other is told AlreadyExists. A volume that starts with pages (import, fork) writes them first,
under its write lock, with a stage record and no head: if its maker dies, nothing of it is visible, and whoever opens
the home next removes it (`remove_orphans`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from ..volume import faults
from ..volume.errors import AlreadyExists, Busy, Diverged, NotFound
from ..volume.ids import VolumeId
from . import name_table
from .conflict_names import conflict_names
from .environment import Environment
from .local_volume import Local, find_volume, store_record
from .stage import Batch, apply, begin_removal, tidy
from .tables import NO_HEAD, CommitRecord, Head, PlaceRecord, VolumeRecord, name_key

if TYPE_CHECKING:
    from .environment import Txn

__all__ = [
    "add_volume",
    "adopt_place",
    "check_free",
    "check_unpushed",
    "first_head",
    "remove",
    "remove_orphans",
    "rename",
    "restore_removed",
    "unbind",
]

BORN = faults.point("birth: pages written, volume not visible")
REMOVED = faults.point("remove: name gone, some rows left")


def check_free(environment: Environment, name: str, txn: Txn | None = None) -> None:
    """Raises AlreadyExists if this home has anything of that name, BadInput if nothing can be called that."""
    name_table.check_open(name)
    if txn is None:
        with environment.view() as txn:
            name_table.check_vacant(environment, txn, name)
    else:
        name_table.check_vacant(environment, txn, name)


def add_volume(
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
        name_table.touch(environment, txn)
        name_table.claim_again(environment, txn, record)
        if commit is not None:
            local.put_commit(txn, head.lsn, commit())
        local.put_head(txn, _born(head))

    with local.write_lock():
        apply(local, head.lsn, head.page_size or 4096, pages, publish, durable=True, fresh=True)
    return local


def adopt_place(environment: Environment, place: PlaceRecord, record: VolumeRecord, head: Head) -> Local:
    """A file of the remote becomes a volume here, under the name and with the attributes that it has here by now."""
    local = Local(environment, VolumeId(record.vid), place.name)

    def publish(txn: Txn) -> str:
        now = name_table.load(environment, txn, place.id)
        if not isinstance(now, PlaceRecord) or now.target != place.target:
            raise NotFound(f"{place.name!r} was changed meanwhile: look again")
        if txn.get(record.vid, db=environment.tables.heads) is not None:
            raise AlreadyExists(f"the volume {local.vid}, which is called {now.name!r}, has another name here already")
        own = msgspec.structs.replace(
            record,
            name=now.name,
            bound=now.bound,
            moved=now.moved,
            attributes=now.attributes,
            born_ms=time.time_ns() // 1_000_000,
        )
        name_table.remove_place(environment, txn, now)
        name_table.touch(environment, txn)
        store_record(environment, txn, own)
        txn.put(name_key(own.name), own.vid, db=environment.tables.names)
        local.put_head(txn, _born(head))
        return own.name

    with local.write_lock():
        # Rows of an earlier stay that were not removed yet must not be taken for this one's.
        tidy(local)
        local.name = environment.update(publish, durable=True)
    return local


def rename(environment: Environment, old: str, new: str, *, bound: str | None = None, revision: int = 0) -> None:
    """One transaction. `bound` is the name that the remote knows it by from now on, at that revision."""

    def move(txn: Txn) -> None:
        record = find_volume(environment, old, txn)
        if record is None:
            raise NotFound(f"there is no volume {old!r} here")
        if new != old:
            check_free(environment, new, txn)
        if bound is not None and bound != record.bound:
            _follow(environment, txn, record, bound, revision)
            record = msgspec.structs.replace(record, bound=bound, moved=False)
        elif record.bound == new:
            record = msgspec.structs.replace(record, moved=False)
        name_table.relocate(environment, txn, record, new)
        name_table.touch(environment, txn)

    environment.update(move, durable=True)


def remove(environment: Environment, local: Local, *, discard: bool) -> None:
    """The local copy goes: name, head and records in one transaction, then its rows. Raises Diverged while commits are
    unpushed, unless told to `discard` them, and Busy while someone writes or syncs it.

    Where the home keeps the remote's names, the name stays as that of a file that isn't here.
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
            name_table.leave_name(environment, txn, record)
            if not name_table.is_gone(record.name):
                name_table.touch(environment, txn)

        environment.update(vanish, durable=True)
        REMOVED()
        tidy(local)


def restore_removed(environment: Environment, gone: VolumeRecord) -> None:
    """A volume whose name others took away has been written to since: it gets a conflict name."""

    def name_again(txn: Txn) -> None:
        record = find_volume(environment, gone.name, txn)
        if record is None or record.vid != gone.vid:
            return
        free = (
            name for name in conflict_names(environment, gone.left) if name_table.find(environment, txn, name) is None
        )
        name_table.relocate(environment, txn, msgspec.structs.replace(record, left=""), next(free))
        name_table.touch(environment, txn)

    environment.update(name_again, durable=True)


def unbind(environment: Environment, local: Local) -> None:
    """The remote has no name for it any more."""

    def forget(txn: Txn) -> None:
        record = local.record(txn)
        there = name_table.known_at(environment, txn, record.bound) if record.bound else None
        if there is not None and there.target == record.vid:
            txn.delete(name_key(record.bound), db=environment.tables.known)
        store_record(environment, txn, msgspec.structs.replace(record, bound="", moved=False))

    environment.update(forget)


def check_unpushed(head: Head, name: str, *, discard: bool) -> None:
    """Raises Diverged if removing the volume would lose commits, unless told to `discard` them."""
    if head.unpushed and not discard:
        raise Diverged(
            f"volume {name!r} has {head.in_words}, which would be lost: push it first, "
            f"or drop it with `budwood rm {name} --discard`"
        )


def remove_orphans(environment: Environment) -> None:
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


def _born(head: Head) -> Head:
    """A view may rest while its volume leaves this home and comes back under the same id, at the same local LSN: by the
    generation it is told from the one it was.
    """
    return head._replace(generation=int.from_bytes(os.urandom(4)) >> 1)


def _follow(environment: Environment, txn: Txn, record: VolumeRecord, bound: str, revision: int) -> None:
    """The remote has moved the volume's name: so does what is known of it."""
    there = name_table.known_at(environment, txn, record.bound) if record.bound else None
    if there is not None and there.target == record.vid:
        txn.delete(name_key(record.bound), db=environment.tables.known)
        name_table.put_known(environment, txn, msgspec.structs.replace(there, name=bound, revision=revision))
