"""Publish: the remote learns of a volume, and of its name.

A name leads to content from the moment at which it is there. So a volume is made on the remote first, then its first
commit is sent, and the name is bound last, with its attributes: whoever follows it finds the content, and where it led
elsewhere before, to what was removed or renamed over here, the old content or the new. A file that was made empty and
let go has no commit to wait for: its name is bound at once.

**An empty name yields.** A file that nothing was ever written to gives its name to whoever has content: its name is
bound over, at the revision that was seen before it was seen to be empty. What was written into it meanwhile is kept by
its own edge, which finds its name taken (names_pull.py).

`find_name` comes before anything is sent, so that a name that is another's is told at once; `bind_name` looks again
where the name was changed in between.

Crash windows: the volume is there, without its name; the commit is there, without its name; the name is bound, and not
recorded. Whoever pushes next finds each by asking.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from ..remote.keyring import keyring
from ..volume import faults
from ..volume.calls import (
    CREATE,
    FORK,
    SNAPSHOT,
    CreateRequest,
    ForkRequest,
    SnapshotRequest,
)
from ..volume.errors import AlreadyExists, BadInput, Busy, Conflict, Forgotten, NotFound, Unsupported
from ..volume.wire import NameEntry, NameRequest
from .asked_names import ask_change, asked_changes
from .attributes import Attributes
from .connection import Connection
from .local_volume import Local
from .name_table import NameTable, is_gone
from .tables import AskedChange, Head, KnownRecord, Txn, VolumeRecord

NAMED = faults.point("push: volume made on the remote, name not bound")

_ROUNDS: Final = 4


class RemoteName(NamedTuple):
    """A name that the volume may take on the remote."""

    name: str
    entry: NameEntry | None
    """What stands there and yields, or leads to the volume already."""
    alias: bool
    """Another name than the one that the volume has here, on purpose."""


def publish(local: Local, connection: Connection, record: VolumeRecord, head: Head, as_name: str | None = None) -> None:
    """See that the remote has the volume, whose content it has or which has none, under its name. Raises as
    `find_name` does.
    """
    remote_name = find_name(local, connection, record, head, as_name)
    create_on_remote(local, connection, record, head)
    if remote_name is not None:
        bind_name(local, connection, remote_name, head)


def find_name(
    local: Local, connection: Connection, record: VolumeRecord, head: Head, as_name: str | None = None
) -> RemoteName | None:
    """The name that the volume is to have on the remote; None if it has it, or gets it by the next push of the names.
    Raises AlreadyExists if that is another volume's, Busy while that waits for a name of its own, NotFound for a volume
    that was removed, WrongStore. Asks nothing once all is known.
    """
    if record.remote == connection.url and record.created and record.bound and as_name in (None, record.bound):
        return None
    if record.remote != connection.url or not record.created or not record.bound:
        if is_gone(record.name):
            raise NotFound(f"volume {local.vid} was removed from this home: it is not pushed any more")
        if not record.store:
            connection.make(local.environment)
        connection.check(record)
    if not record.bound:
        record = _settle_name(local, connection, record)
    if record.bound and as_name in (None, record.bound):
        return None
    known = _Known.TAKEN if as_name is not None else _what_is_known(local, connection, record.name)
    if known is _Known.REMOVED_TREE:
        return None
    if known is _Known.FREE:
        # Nobody is asked: where the names that were seen here are out of date, binding it is refused.
        return RemoteName(record.name, None, alias=False)
    return _look_at(local, connection, as_name or record.name, head, alias=as_name is not None)


def create_on_remote(local: Local, connection: Connection, record: VolumeRecord, head: Head) -> VolumeRecord:
    """See that the remote has the volume, and that this is remembered. The record with its encryption header."""
    encryption = record.encryption
    if not record.created:
        if record.parent:
            try:
                connection.remote.ask(FORK, ForkRequest(record.parent, child=local.vid.raw, lsn=record.parent_lsn))
            except Forgotten as error:
                raise _forgotten_origin(record, error) from None
            except NotFound as error:
                raise connection.mend(record, error, seen=record.parent_lsn) from None
        else:
            encryption = _create(local, connection, record, head)
        NAMED()
    elif record.remote == connection.url:
        return record
    # An LSN that a fork shares had its parent's time till now, and has the fork's own on the remote from here on.
    synced_ms = record.synced_ms if record.created else 0
    learned = {"remote": connection.url, "store": connection.store, "created": True, "synced_ms": synced_ms}
    local.change_record(**learned, encryption=encryption)
    return msgspec.structs.replace(record, encryption=encryption)


def _create(local: Local, connection: Connection, record: VolumeRecord, head: Head) -> bytes:
    """Encrypted, where this home has a key; its encryption header then, as the remote has it: an earlier try may have
    sent another."""
    region = os.environ.get("BUDWOOD_REGION", "")
    encryption = record.encryption or keyring().new_header()
    request = CreateRequest(local.vid.raw, page_size=head.page_size, region=region, encryption=encryption)
    connection.remote.ask(CREATE, request)
    if not encryption:
        return b""
    told = connection.remote.ask(SNAPSHOT, SnapshotRequest(local.vid.raw)).encryption
    if not told:
        raise Unsupported(f"{connection.url} can't keep encrypted volumes: nothing was sent there; upgrade it")
    return told


def _forgotten_origin(record: VolumeRecord, error: Forgotten) -> Forgotten:
    name = record.name
    return Forgotten(
        f"the remote has forgotten LSN {record.parent_lsn}, which volume {name!r} was forked at: it can't be pushed; "
        f"its commits stay here, and if all its pages do, `budwood export {name} FILE` and `budwood import FILE NEW` "
        "make a volume of it that can",
        oldest=error.oldest,
    )


def bind_name(local: Local, connection: Connection, remote_name: RemoteName, head: Head) -> None:
    """See that the name leads to the volume. Raises AlreadyExists if another one took it meanwhile."""
    there, asked = _bind(local, connection, remote_name, head)
    _record_name(local, there, asked, alias=remote_name.alias)


def lacks_name(record: VolumeRecord, head: Head, as_name: str | None) -> bool:
    """Has the remote the content, as that of a fork, but not under a name, or not under this one?"""
    return head.sync_remote > 0 and (not record.bound or as_name not in (None, record.bound))


def is_untouched_there(connection: Connection, target: bytes, attributes: Attributes) -> bool:
    """Whether it is an empty file, to which nobody has committed anything."""
    if attributes.kind != "file" or attributes.size:
        return False
    try:
        return connection.remote.ask(SNAPSHOT, SnapshotRequest(target)).lsn == 0
    except NotFound:
        return False


def _look_at(local: Local, connection: Connection, name: str, head: Head, *, alias: bool) -> RemoteName:
    entry = connection.lookup(name)
    has_content = head.unpushed > 0 or head.sync_remote > 0
    if (
        entry is None
        or entry.target == local.raw
        or _is_dropped(local, entry)
        or (has_content and is_untouched_there(connection, entry.target, Attributes.from_wire(entry.attributes)))
    ):
        return RemoteName(name, entry, alias)
    way_out = f"push this one under a name of its own, `budwood push {local.name} --as NEW`"
    if _is_leaving(local, entry):
        raise Busy(
            f"the remote knows another volume by the name {name!r}, which was renamed here, and isn't told so yet: "
            f"a mount of this home tells it; or {way_out}"
        )
    raise AlreadyExists(f"the remote knows another volume by the name {name!r}: {way_out}")


def _settle_name(local: Local, connection: Connection, record: VolumeRecord) -> VolumeRecord:
    """Ask again for the name whose answer was lost, if one was: the volume may have been renamed since."""
    for asked in asked_changes(local.environment, connection.store):
        is_own = asked.request.op == "bind" and asked.request.target == local.raw
        if is_own:
            with suppress(AlreadyExists, BadInput, Conflict, NotFound):
                there = _bound(asked, ask_change(local.environment, connection, asked))
                _record_name(local, there, asked, alias=asked.alias)
                return local.record()
    return record


def _record_name(local: Local, there: NameEntry, asked: AskedChange | None, *, alias: bool) -> None:
    """What was asked for that, if anything, has its outcome."""

    def known(txn: Txn) -> None:
        record = local.record(txn)
        is_new = asked is None or NameTable(local.environment, txn).forget_asked(asked)
        if is_new or not record.bound:
            local.put_record(txn, _named(local, txn, record, there, alias=alias))

    local.environment.update(known)


def _bind(
    local: Local, connection: Connection, remote_name: RemoteName, head: Head
) -> tuple[NameEntry, AskedChange | None]:
    """The remote's entry that leads to the volume, and what was asked for it."""
    for _ in range(_ROUNDS):
        if remote_name.entry is not None and remote_name.entry.target == local.raw:
            break
        request = NameRequest(
            op="bind",
            name=remote_name.name,
            revision=0 if remote_name.entry is None else remote_name.entry.revision,
            target=local.raw,
            attributes=local.record().attributes.sized(head.length).to_wire(),
            client=local.environment.client.raw,
        )
        asked = AskedChange(store=connection.store, request=request, alias=remote_name.alias)
        try:
            return _bound(asked, ask_change(local.environment, connection, asked)), asked
        except (Conflict, AlreadyExists):
            remote_name = _look_at(local, connection, remote_name.name, head, alias=remote_name.alias)
    if remote_name.entry is None or remote_name.entry.target != local.raw:
        raise AlreadyExists(f"the name {remote_name.name!r} changes on the remote again and again: push once more")
    return remote_name.entry, None


def _bound(asked: AskedChange, revision: int) -> NameEntry:
    request = asked.request
    return NameEntry(name=request.name, target=request.target, revision=revision, attributes=request.attributes)


def _named(local: Local, txn: Txn, record: VolumeRecord, there: NameEntry, *, alias: bool) -> VolumeRecord:
    """The record of a volume that the remote's name `there` leads to by now."""
    names, attributes = NameTable(local.environment, txn), Attributes.from_wire(there.attributes)
    gone = is_gone(record.name)
    if gone or names.namespace() is not None:
        row = KnownRecord(
            name=there.name,
            target=there.target,
            revision=there.revision,
            attributes=attributes,
            # Removed while it was being named: the name is to go again.
            dropped=gone,
        )
        standing = names.known_at(row.name)
        # What stands there was removed meanwhile, maybe, and another has the name by now.
        if standing is None or standing.revision <= row.revision:
            names.put_known(row)
        names.note_change(record.remote, record.store, there.revision)
    if gone:
        return record
    return msgspec.structs.replace(
        record,
        bound=there.name,
        moved=not alias and record.name != there.name,
        attributes=record.attributes.sized(attributes.size),
    )


class _Known(Enum):
    """What a home that follows the remote's names knows of one."""

    FREE = auto()
    REMOVED_TREE = auto()
    """A directory that was removed here stands there, with something below it. That goes first (names_push.py): others
    would keep the directory for it, beside the file that has its name."""
    TAKEN = auto()
    """Or nothing is known."""


def _what_is_known(local: Local, connection: Connection, name: str) -> _Known:
    with local.environment.view() as txn:
        names = NameTable(local.environment, txn)
        followed = names.namespace()
        if followed is None or followed.store != connection.store:
            return _Known.TAKEN
        there = names.known_at(name)
        if there is None:
            return _Known.FREE
        was_directory = there.dropped and there.attributes.kind == "directory"
        if was_directory and any(row.name.startswith(f"{name}/") for row in names.known()):
            return _Known.REMOVED_TREE
        return _Known.TAKEN


def _is_leaving(local: Local, entry: NameEntry) -> bool:
    """Whether it has another name here, which the remote gets by the next push of the names."""
    with local.environment.view() as txn:
        records = NameTable(local.environment, txn).everything()
        return any(each.moved and each.bound == entry.name and each.target == entry.target for each in records)


def _is_dropped(local: Local, entry: NameEntry) -> bool:
    """Whether that was removed here, or replaced, as it stands there."""
    with local.environment.view() as txn:
        there = NameTable(local.environment, txn).known_at(entry.name)
    if there is None or there.revision not in (0, entry.revision):
        return False
    return there.dropped and there.target == entry.target
