"""Volume lifecycle: volumes come into this home, and leave it.

A volume exists once its name, record and head stand, which is one LMDB transaction: of two processes that make the same
name one wins and the other is told AlreadyExists. A volume that starts with pages (import, fork) writes them first,
under its write lock, with a stage record and no head: if its maker dies, nothing of it is visible, and whoever opens
the home next removes it (`remove_orphans`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress

import msgspec

from ..volume import faults
from ..volume.errors import AlreadyExists, BadInput, Busy, Diverged, NotFound
from ..volume.ids import VolumeId
from ..volume.protocols import Durability
from .conflict_names import conflict_names
from .environment import Environment
from .file_locks import SYNC, FileLock, lock_files, sync_lock
from .local_volume import Local
from .name_table import NameTable, check_free, is_gone
from .stage import Batch, apply, begin_removal, staged, tidy
from .tables import NO_HEAD, CommitRecord, Head, KnownRecord, PlaceRecord, Txn, VolumeRecord, name_key

BORN = faults.point("birth: pages written, volume not visible")
REMOVED = faults.point("remove: name gone, some rows left")


def add_volume(
    environment: Environment,
    record: VolumeRecord,
    head: Head,
    *,
    pages: Iterable[Batch] = (),
    commit: Callable[[], CommitRecord] | None = None,
    durability: Durability = Durability.DURABLE,
) -> Local:
    """A new volume with its first rows at `head.lsn`, and the unpushed commit that wrote them, if any: asked for once
    the rows are written.
    """
    local = Local(environment, VolumeId(record.vid), record.name)
    publish = _birth(local, record, head, commit)
    with local.write_lock():
        is_durable = durability is Durability.DURABLE
        apply(local, head.lsn, head.page_size or 4096, pages, publish, durable=is_durable, fresh=True)
    return local


@contextmanager
def adding_volume(
    environment: Environment,
    record: VolumeRecord,
    head: Head,
    *,
    pages: Iterable[Batch],
    commit: Callable[[], CommitRecord],
) -> Generator[tuple[Local, Callable[[Txn], None]]]:
    """As `add_volume`, but it is a volume only once what is given was called in a transaction of the caller's."""
    local = Local(environment, VolumeId(record.vid), record.name)
    publish = _birth(local, record, head, commit)
    with local.write_lock(), staged(local, head.lsn, head.page_size, pages, fresh=True) as finish:

        def add(txn: Txn) -> None:
            publish(txn)
            finish(txn)

        yield local, add


def _birth(
    local: Local, record: VolumeRecord, head: Head, commit: Callable[[], CommitRecord] | None
) -> Callable[[Txn], None]:
    """What makes it a volume, in a transaction."""
    environment = local.environment
    check_free(environment, record.name)
    record = msgspec.structs.replace(record, born_ms=record.born_ms or time.time_ns() // 1_000_000)

    def publish(txn: Txn) -> None:
        names = NameTable(environment, txn)
        names.check_free(record.name)
        if txn.get(record.vid, db=environment.tables.heads) is not None:
            held = names.load(record.vid)
            raise AlreadyExists(
                f"the volume {local.vid} is in this home already"
                + (f", as {held.name!r}: take it by that name, or `budwood mv` it" if held is not None else "")
            )
        BORN()
        names.add(record)
        names.touch()
        names.claim_again(record)
        if commit is not None:
            local.put_commit(txn, head.lsn, commit())
        local.put_head(txn, _born(head))

    return publish


def adopt_place(environment: Environment, place: PlaceRecord, record: VolumeRecord, head: Head) -> Local:
    """A file of the remote becomes a volume here, under the name and with the attributes that it has here by now."""
    local = Local(environment, VolumeId(record.vid), place.name)

    def publish(txn: Txn) -> str:
        names = NameTable(environment, txn)
        now = names.load(place.id)
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
        names.remove_place(now)
        names.add(own)
        names.touch()
        local.put_head(txn, _born(head))
        return own.name

    with local.write_lock():
        # Rows of an earlier stay that were not removed yet must not be taken for this one's.
        tidy(local)
        local.name = environment.update(publish, durable=True)
    return local


def record_rename(environment: Environment, old: str, new: str, *, bound: str | None = None, revision: int = 0) -> None:
    """A volume has another name here. `bound` is the name that the remote knows it by from now on, at that revision."""

    def move(txn: Txn) -> None:
        names = NameTable(environment, txn)
        record = names.volume(old)
        if record is None:
            raise NotFound(f"there is no volume {old!r} here")
        if new != old:
            names.check_free(new)
        if bound is not None and bound != record.bound:
            there = _known_name(names, record)
            if there is not None:
                names.drop_known(there.name)
                names.put_known(msgspec.structs.replace(there, name=bound, revision=revision))
            record = msgspec.structs.replace(record, bound=bound, moved=False)
        elif record.bound == new:
            record = msgspec.structs.replace(record, moved=False)
        names.relocate(record, new)
        names.touch()

    environment.update(move, durable=True)


def remove(environment: Environment, local: Local, *, discard: bool) -> None:
    """The local copy goes: name, head and records in one transaction, then its rows. Raises Diverged while commits are
    unpushed, unless told to `discard` them, and Busy while someone writes or syncs it.

    Where the home keeps the remote's names, the name stays as that of a file that isn't here.
    """
    with environment.ballast.making_room(), local.sync_lock() as syncing, local.write_lock() as writing:
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
            names = NameTable(environment, txn)
            names.leave_name(record)
            if not is_gone(record.name):
                names.touch()

        # What a power loss brings back without a name is swept again.
        environment.update(vanish, durable=not is_gone(local.name))
        REMOVED()
        tidy(local)
        environment.room.catch_up()
        # In this order: whoever writes the volume, which may come again, can sync it.
        syncing.remove()
        writing.remove()


def restore_removed(environment: Environment, gone: VolumeRecord) -> None:
    """A volume whose name others took away has been written to since: it gets a conflict name."""

    def name_again(txn: Txn) -> None:
        names = NameTable(environment, txn)
        record = names.volume(gone.name)
        if record is None or record.vid != gone.vid:
            return
        free = next(name for name in conflict_names(environment, gone.left) if names.find(name) is None)
        names.relocate(msgspec.structs.replace(record, left=""), free)
        names.touch()

    environment.update(name_again, durable=True)


def unbind(environment: Environment, local: Local) -> None:
    """The remote has no name for it any more."""

    def forget(txn: Txn) -> None:
        record, names = local.record(txn), NameTable(environment, txn)
        there = _known_name(names, record)
        if there is not None:
            names.drop_known(there.name)
        names.store(msgspec.structs.replace(record, bound="", moved=False))

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
        with suppress(Busy), sync_lock(environment.home, str(local.vid), "") as syncing, local.write_lock() as writing:
            tidy(local)
            syncing.remove()
            writing.remove()


def remove_leftover_locks(environment: Environment) -> None:
    """Remove the lock files of volumes that are no more: of makers that died, of releases that left them there."""

    def is_leftover() -> bool:
        with environment.view() as txn:
            tables = environment.tables
            return all(txn.get(vid.raw, db=table) is None for table in (tables.heads, tables.volumes, tables.stages))

    for path in lock_files(environment.home):
        try:
            vid = VolumeId.parse(path.name.removesuffix(SYNC))
        except BadInput:
            # No volume's.
            continue
        if is_leftover():
            with suppress(Busy), FileLock(str(path), "it is no leftover") as lock:
                # It may have come to be one meanwhile.
                if is_leftover():
                    lock.remove()


def first_head(length: int, sync_remote: int, page_size: int) -> Head:
    """Of a volume that starts as the remote's at `sync_remote`, with nothing local."""
    return NO_HEAD._replace(
        lsn=1, length=length, sync_remote=sync_remote, sync_local=1, floor=length, page_size=page_size
    )


def fork_head(head: Head) -> Head:
    """Of a volume that starts as another stands at `head`: the remote's part of it, and one commit on top."""
    synced = 1 if head.sync_remote else 0
    return NO_HEAD._replace(
        lsn=synced + 1,
        length=head.length,
        sync_remote=head.sync_remote,
        sync_local=synced,
        floor=head.floor,
        page_size=head.page_size,
        unpushed=1,
    )


def _born(head: Head) -> Head:
    """A view may rest while its volume leaves this home and comes back under the same id, at the same local LSN: by the
    generation it is told from the one it was.
    """
    return head._replace(generation=int.from_bytes(os.urandom(4)) >> 1)


def _known_name(names: NameTable, record: VolumeRecord) -> KnownRecord | None:
    """What is known of the remote's name of the volume."""
    there = names.known_at(record.bound) if record.bound else None
    return there if there is not None and there.target == record.vid else None
