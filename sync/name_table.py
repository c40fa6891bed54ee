"""Name table: what the names of a home stand for, and how they change, within a transaction that the caller holds.

One table gives each name its one entry. An entry is a volume of this home, or a *place*: a directory, a symbolic link,
or a file of the remote that isn't a volume here yet. Volumes and places are told apart by where their record lies; what
both have (name, bound, moved, attributes) is treated alike here.

    bound == name            the remote knows it by this name
    bound != name, moved     renamed here: the remote is to follow
    bound != name            an alias: this home calls it so, on purpose, and the remote is left alone
    bound == ""              the remote has no name for it yet

A removed name that the remote knows leaves its KnownRecord behind, `dropped`. A removed *volume* is gone: it has the
reserved name `.budwood/gone/{id}` until its last reader is done (`Namespace.sweep`), so that an open file goes on.

Whoever changes what is to be seen of the names moves the version once in its transaction (`touch`): a number by which
any process learns that it must look again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from ..volume.errors import AlreadyExists, BadInput, Corrupt
from ..volume.ids import VolumeId, check_name
from .attributes import Kind
from .tables import (
    HERE,
    KnownRecord,
    NamespaceRecord,
    PlaceRecord,
    VolumeRecord,
    name_key,
    open_row,
    seal_row,
    unpack_head,
)

if TYPE_CHECKING:
    from .environment import Environment, Txn

__all__ = [
    "Record",
    "add_place",
    "below",
    "check_open",
    "check_vacant",
    "claim_again",
    "drop_claim",
    "everything",
    "find",
    "find_place",
    "gone_name",
    "id_of",
    "is_alias",
    "is_gone",
    "is_reserved",
    "is_untouched",
    "kind_of",
    "known",
    "known_at",
    "leave_name",
    "load",
    "namespace",
    "note_change",
    "place_of",
    "put_known",
    "put_namespace",
    "relocate",
    "remove_place",
    "rename",
    "retire",
    "store",
    "target_of",
    "touch",
    "version",
]

Record = VolumeRecord | PlaceRecord

RESERVED: Final = ".budwood"
_GONE: Final = f"{RESERVED}/gone/"
_VERSION_KEY: Final = b"names"
_NAMESPACE_KEY: Final = b"namespace"
_WHOLE_KEY: Final = 400
"""Keys of names hold so many bytes of them at least (tables.name_key)."""


def is_reserved(name: str) -> bool:
    return name == RESERVED or name.startswith(f"{RESERVED}/")


def gone_name(vid: bytes) -> str:
    return f"{_GONE}{VolumeId(vid)}"


def is_gone(name: str) -> bool:
    return name.startswith(_GONE)


def check_open(name: str) -> str:
    """Raises BadInput where nothing may be called that."""
    check_name(name)
    if is_reserved(name):
        raise BadInput(f"{name!r} can't be a name: those under {RESERVED!r} are Budwood's own")
    return name


def id_of(record: Record) -> bytes:
    return record.vid if isinstance(record, VolumeRecord) else record.id


def target_of(record: Record) -> bytes:
    """What the remote's name leads to."""
    return record.vid if isinstance(record, VolumeRecord) else record.target


def kind_of(record: Record) -> Kind:
    return "file" if isinstance(record, VolumeRecord) else record.kind


def is_alias(record: Record) -> bool:
    return bool(record.bound) and record.bound != record.name and not record.moved


def is_untouched(environment: Environment, txn: Txn, record: Record) -> bool:
    """A file that nothing was ever written to, as far as is known here."""
    raw = txn.get(id_of(record), db=environment.tables.heads)
    if raw is None or not isinstance(record, VolumeRecord) or record.parent:
        return False
    head = unpack_head(record.vid, raw)
    return not head.unpushed and not head.sync_remote


def load(environment: Environment, txn: Txn, key: bytes) -> Record | None:
    tables = environment.tables
    raw = txn.get(key, db=tables.volumes)
    if raw is not None:
        return open_row("volumes", key, raw, VolumeRecord)
    raw = txn.get(key, db=tables.places)
    return None if raw is None else open_row("places", key, raw, PlaceRecord)


def find(environment: Environment, txn: Txn, name: str) -> Record | None:
    """What is called that here. Raises Corrupt where a name and its entry don't fit."""
    key = txn.get(name_key(name), db=environment.tables.names)
    if key is None:
        return None
    record = load(environment, txn, key)
    if record is None:
        raise Corrupt(HERE, f"the name {name!r} leads to no volume")
    if record.name != name:
        raise Corrupt(HERE, f"the name {name!r} leads to the volume {record.name!r}")
    return record


def find_place(environment: Environment, name: str) -> PlaceRecord | None:
    with environment.view() as txn:
        record = find(environment, txn, name)
    return record if isinstance(record, PlaceRecord) else None


def check_vacant(environment: Environment, txn: Txn, name: str) -> None:
    """Raises AlreadyExists if something is called that here."""
    record = find(environment, txn, name)
    if isinstance(record, VolumeRecord):
        raise AlreadyExists(f"there is a volume {name!r} here already: take another name, or `budwood rm {name}` first")
    if record is not None:
        what = "volume that the remote knows by the name" if record.kind == "file" else record.kind
        raise AlreadyExists(f"there is a {what} {name!r} already: take another name")
    # A damaged name must not be taken for a free one: that would hide the volume behind an empty one. Every entry has
    # one name, so the counts tell at once whether one is missing.
    tables = environment.tables
    entries = txn.stat(tables.volumes)["entries"] + txn.stat(tables.places)["entries"]
    if txn.stat(tables.names)["entries"] != entries and any(row.name == name for row in everything(environment, txn)):
        raise Corrupt(HERE, f"the name {name!r} is gone, and its volume is still there")


def below(environment: Environment, txn: Txn, name: str) -> Iterator[Record]:
    """Everything whose name starts with `name/`. Not to be changed while this runs."""
    prefix = f"{name}/"
    start = prefix.encode()[:_WHOLE_KEY]
    cursor = txn.cursor(environment.tables.names)
    more = cursor.set_range(start)
    while more:
        key, value = cursor.item()
        if not key.startswith(start):
            return
        record = load(environment, txn, value)
        if record is None:
            raise Corrupt(HERE, f"the name {key[:_WHOLE_KEY]!r} leads to no volume")
        if record.name.startswith(prefix):
            yield record
        more = cursor.next()


def store(environment: Environment, txn: Txn, record: Record) -> None:
    """The record alone; its name stands."""
    key = id_of(record)
    table = environment.tables.volumes if isinstance(record, VolumeRecord) else environment.tables.places
    txn.put(key, seal_row(key, record), db=table)


def add_place(environment: Environment, txn: Txn, record: PlaceRecord) -> None:
    """Under a name that is free."""
    txn.put(name_key(record.name), record.id, db=environment.tables.names)
    store(environment, txn, record)


def place_of(there: KnownRecord, *, name: str = "", moved: bool = False) -> PlaceRecord:
    """What stands here for a name of the remote."""
    return PlaceRecord(
        id=VolumeId.new().raw,
        name=name or there.name,
        kind=there.attributes.kind,
        target=there.target,
        attributes=there.attributes,
        bound=there.name,
        moved=moved,
        born_ms=time.time_ns() // 1_000_000,
    )


def remove_place(environment: Environment, txn: Txn, record: PlaceRecord) -> None:
    txn.delete(name_key(record.name), db=environment.tables.names)
    txn.delete(record.id, db=environment.tables.places)


def relocate(environment: Environment, txn: Txn, record: Record, name: str) -> Record:
    """Give the entry a name that is free, and take its old one, unless that is another's by now. The record is stored
    as it was given."""
    names, old = environment.tables.names, name_key(record.name)
    if txn.get(old, db=names) == id_of(record):
        txn.delete(old, db=names)
    record = msgspec.structs.replace(record, name=name)
    txn.put(name_key(name), id_of(record), db=names)
    store(environment, txn, record)
    return record


def rename(environment: Environment, txn: Txn, record: Record, name: str) -> Record:
    """As the user wants it: the remote is to follow. The name is free."""
    moved = bool(record.bound) and not is_alias(record) and name != record.bound
    return relocate(environment, txn, msgspec.structs.replace(record, moved=moved), name)


def retire(environment: Environment, txn: Txn, record: Record) -> None:
    """The entry's name is free from now on: a volume is gone, a place is no more; what the remote calls it is to go."""
    drop_claim(environment, txn, record)
    if isinstance(record, VolumeRecord):
        own = msgspec.structs.replace(record, bound="", moved=False)
        relocate(environment, txn, own, gone_name(record.vid))
        if is_alias(record):
            leave_name(environment, txn, record)
    else:
        remove_place(environment, txn, record)


def leave_name(environment: Environment, txn: Txn, record: VolumeRecord) -> None:
    """The name of a volume that leaves this home stays, as that of a file of the remote."""
    there = known_at(environment, txn, record.bound) if record.bound else None
    if there is None or there.dropped or there.target != record.vid:
        return
    name = record.name if record.moved else record.bound
    if find(environment, txn, name) is None:
        add_place(environment, txn, place_of(there, name=name, moved=record.moved))


def drop_claim(environment: Environment, txn: Txn, record: Record) -> None:
    """The remote's name of the entry is to go. An alias has none of its own."""
    if not record.bound or is_alias(record):
        return
    there = known_at(environment, txn, record.bound)
    if there is None:
        there = KnownRecord(name=record.bound, target=target_of(record), revision=0)
    if there.target == target_of(record):
        put_known(environment, txn, msgspec.structs.replace(there, dropped=True))


def claim_again(environment: Environment, txn: Txn, record: Record) -> None:
    """The remote's name of the entry, which may have been removed here once, is to stay."""
    there = known_at(environment, txn, record.bound) if record.bound else None
    if there is not None and there.dropped and there.target == target_of(record):
        put_known(environment, txn, msgspec.structs.replace(there, dropped=False))


def known(environment: Environment, txn: Txn) -> Iterator[KnownRecord]:
    """The remote's names, as they were last seen."""
    for key, value in txn.cursor(environment.tables.known):
        yield open_row("known", key, value, KnownRecord)


def known_at(environment: Environment, txn: Txn, name: str) -> KnownRecord | None:
    key = name_key(name)
    raw = txn.get(key, db=environment.tables.known)
    return None if raw is None else open_row("known", key, raw, KnownRecord)


def put_known(environment: Environment, txn: Txn, record: KnownRecord) -> None:
    key = name_key(record.name)
    txn.put(key, seal_row(key, record), db=environment.tables.known)


def namespace(environment: Environment, txn: Txn) -> NamespaceRecord | None:
    raw = txn.get(_NAMESPACE_KEY, db=environment.tables.meta)
    return None if raw is None else open_row("meta", _NAMESPACE_KEY, raw, NamespaceRecord)


def put_namespace(environment: Environment, txn: Txn, record: NamespaceRecord) -> None:
    txn.put(_NAMESPACE_KEY, seal_row(_NAMESPACE_KEY, record), db=environment.tables.meta)


def note_change(environment: Environment, txn: Txn, remote: str, store: str, lsn: int) -> None:
    """A change of the remote's names that this home has made, and noted in `known`, was the LSN `lsn` of them."""
    record = namespace(environment, txn) or NamespaceRecord(remote=remote, store=store)
    # Where others made changes in between, `known` lacks theirs.
    head = lsn if lsn == record.head + 1 else record.head
    put_namespace(environment, txn, msgspec.structs.replace(record, head=head, seen=max(record.seen, lsn)))


def version(environment: Environment, txn: Txn) -> int:
    raw = txn.get(_VERSION_KEY, db=environment.tables.meta)
    return 0 if raw is None else open_row("meta", _VERSION_KEY, raw, int)


def touch(environment: Environment, txn: Txn) -> None:
    """The names have changed: once in a transaction, so that who made the next number knows that nobody else did."""
    after = version(environment, txn) + 1
    txn.put(_VERSION_KEY, seal_row(_VERSION_KEY, after), db=environment.tables.meta)


def everything(environment: Environment, txn: Txn) -> Iterator[Record]:
    """Volumes, gone ones too, and places, by id. Not to be changed while this runs."""
    for key, value in txn.cursor(environment.tables.volumes):
        yield open_row("volumes", key, value, VolumeRecord)
    for key, value in txn.cursor(environment.tables.places):
        yield open_row("places", key, value, PlaceRecord)
