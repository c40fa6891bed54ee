"""Introduce: the remote learns of a volume, and of its name.

A volume is made there before its first commit is sent, and its name is bound to it, with the name's attributes. Where
the name leads elsewhere on the remote, to what was removed or renamed over here, the name comes last: whoever follows
it finds the old content or the new.

Crash windows: the volume is there, without its name; the name is bound, and not recorded. Whoever pushes next finds
either by asking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..volume import faults
from ..volume.errors import AlreadyExists, Conflict, NotFound
from ..volume.ids import VolumeId
from ..volume.wire import NameEntry, NameRequest
from . import places
from .attributes import Attributes
from .connection import Connection
from .local import Local, list_volumes
from .tables import Head, KnownRecord, VolumeRecord

if TYPE_CHECKING:
    from .environment import Txn

__all__ = ["introduce", "lacks_name", "replaces_another"]

NAMED = faults.point("push: volume made on the remote, name not bound")


def introduce(
    local: Local, connection: Connection, head: Head, as_name: str | None = None, *, named: bool = True
) -> None:
    """See that the remote has the volume, and if `named`, under its name. Asks nothing once that is known."""
    record = local.record()
    connection_is_new = record.remote != connection.url
    if connection_is_new or not record.created or not record.bound:
        if places.is_gone(record.name):
            raise NotFound(f"volume {local.vid} was removed from this home: it is not pushed any more")
        if not record.store:
            connection.make(_volumes(local))
        connection.check(record)
    if not record.created:
        if record.parent:
            connection.remote.fork(VolumeId(record.parent), local.vid, record.parent_lsn)
        else:
            connection.remote.create(local.vid, head.page_size)
        NAMED()
    bound, there = record.bound, None
    if named and (not bound or as_name is not None):
        bound = as_name or record.name
        there = _bind(local, connection, bound, record.attributes.sized(head.length))
    if connection_is_new or not record.created or bound != record.bound:
        store = connection.store

        def known(txn: Txn) -> None:
            now = local.record(txn)
            own = msgspec.structs.replace(now, remote=connection.url, store=store, created=True)
            if there is not None:
                own = _named(local, txn, own, there, alias=as_name is not None)
            local.put_record(txn, own)

        local.environment.update(known)


def lacks_name(record: VolumeRecord, head: Head, as_name: str | None) -> bool:
    """Has the remote the content, as that of a fork, but not under a name, or not under this one?"""
    return head.sync_remote > 0 and (not record.bound or as_name not in (None, record.bound))


def replaces_another(local: Local) -> bool:
    """Whether its name leads elsewhere on the remote, to what was removed or renamed over here."""
    with local.environment.view() as txn:
        record = local.record(txn)
        there = places.known_at(local.environment, txn, record.name)
    return not record.bound and there is not None and there.dropped and there.target != local.raw


def _volumes(local: Local) -> list[VolumeRecord]:
    with local.environment.view() as txn:
        return list(list_volumes(local.environment, txn))


def _named(local: Local, txn: Txn, record: VolumeRecord, there: NameEntry, *, alias: bool) -> VolumeRecord:
    """The record of a volume that the remote's name `there` leads to by now."""
    environment, attributes = local.environment, Attributes.from_wire(there.attributes)
    gone = places.is_gone(record.name)
    if gone or places.namespace(environment, txn) is not None:
        row = KnownRecord(
            name=there.name,
            target=there.target,
            revision=there.revision,
            attributes=attributes,
            # Removed while it was being named: the name is to go again.
            dropped=gone,
        )
        places.put_known(environment, txn, row)
        places.note_change(environment, txn, record.remote, record.store, there.revision)
    if gone:
        return record
    return msgspec.structs.replace(
        record,
        bound=there.name,
        moved=not alias and record.name != there.name,
        attributes=record.attributes.sized(attributes.size),
    )


def _bind(local: Local, connection: Connection, name: str, attributes: Attributes) -> NameEntry:
    """The remote's entry that leads to the volume. It may take the place of what was removed here under that name."""
    entry = connection.remote.lookup(name)
    if entry is None or _is_dropped(local, entry):
        request = NameRequest(
            op="bind",
            name=name,
            revision=0 if entry is None else entry.revision,
            target=local.raw,
            attributes=attributes.to_wire(),
            client=local.environment.client.raw,
        )
        try:
            revision = connection.remote.change_name(request)
            return NameEntry(name=name, target=local.raw, revision=revision, attributes=request.attributes)
        except (Conflict, AlreadyExists):
            entry = connection.remote.lookup(name)
    if entry is None or entry.target != local.raw:
        raise AlreadyExists(
            f"the remote knows another volume by the name {name!r}: push this one under a name of its own, "
            f"`budwood push {local.name} --as NEW`"
        )
    return entry


def _is_dropped(local: Local, entry: NameEntry) -> bool:
    with local.environment.view() as txn:
        there = places.known_at(local.environment, txn, entry.name)
    return there is not None and there.dropped and there.target == entry.target
