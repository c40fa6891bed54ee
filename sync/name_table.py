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
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ..remote.keyring import names_are_encrypted
from ..volume.errors import AlreadyExists, BadInput, Corrupt
from ..volume.ids import VolumeId, check_name
from .environment import Environment
from .tables import (
    HERE,
    AskedChange,
    AskedRecord,
    KnownRecord,
    NamespaceRecord,
    PlaceRecord,
    Txn,
    VolumeRecord,
    name_key,
    unpack_head,
)

Record = VolumeRecord | PlaceRecord

RESERVED: Final = ".budwood"
_GONE: Final = f"{RESERVED}/gone/"
_VERSION_KEY: Final = b"names"
_NAMESPACE_KEY: Final = b"namespace"
_ASKED_KEY: Final = b"asked"
_MOST_AHEAD: Final = 64
"""Changes of this home's that are remembered behind one that it doesn't know."""
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


def check_free(environment: Environment, name: str) -> None:
    """Raises AlreadyExists if this home has anything of that name, BadInput if nothing can be called that."""
    with environment.view() as txn:
        NameTable(environment, txn).check_free(name)


def find_volume(environment: Environment, name: str) -> VolumeRecord | None:
    """The volume of that name in this home; None for a place, too."""
    with environment.view() as txn:
        return NameTable(environment, txn).volume(name)


def list_volumes(environment: Environment) -> list[VolumeRecord]:
    """Every volume of this home, by id; those that are gone too."""
    with environment.view() as txn:
        return list(NameTable(environment, txn).volumes())


def find_place(environment: Environment, name: str) -> PlaceRecord | None:
    with environment.view() as txn:
        record = NameTable(environment, txn).find(name)
    return record if isinstance(record, PlaceRecord) else None


def namespace_of(environment: Environment) -> NamespaceRecord | None:
    """Whose names this home knows."""
    with environment.view() as txn:
        return NameTable(environment, txn).namespace()


def followed(head: int, ahead: Iterable[int]) -> tuple[int, tuple[int, ...]]:
    """How far the remote's names are known without a gap, where they were up to `head`, and those changes behind that
    are, too; and what of these is still behind a gap.
    """
    left = sorted({lsn for lsn in ahead if lsn > head}, reverse=True)
    while left and left[-1] == head + 1:
        head = left.pop()
    # Those furthest behind it go: a pull tells of them.
    return head, tuple(left[-_MOST_AHEAD:][::-1])


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


class NameTable:
    """The names of one home, as one transaction sees and changes them."""

    def __init__(self, environment: Environment, txn: Txn) -> None:
        self.environment = environment
        self._tables = environment.tables
        self.txn = txn

    def is_untouched(self, record: Record) -> bool:
        """A file that nothing was ever written to, as far as is known here."""
        raw = self.txn.get(record.id, db=self._tables.heads)
        if raw is None or not isinstance(record, VolumeRecord) or record.parent:
            return False
        head = unpack_head(record.vid, raw)
        return not head.unpushed and not head.sync_remote

    def load(self, key: bytes) -> Record | None:
        volume = self.environment.get(self.txn, "volumes", key, VolumeRecord)
        return volume or self.environment.get(self.txn, "places", key, PlaceRecord)

    def find(self, name: str) -> Record | None:
        """What is called that here. Raises Corrupt where a name and its entry don't fit."""
        key = self.txn.get(name_key(name), db=self._tables.names)
        if key is None:
            return None
        record = self.load(key)
        if record is None:
            raise Corrupt(HERE, f"the name {name!r} leads to no volume")
        if record.name != name:
            raise Corrupt(HERE, f"the name {name!r} leads to the volume {record.name!r}")
        return record

    def visible(self, name: str) -> Record | None:
        """As `find`; nothing under a reserved name is seen."""
        return None if is_reserved(name) else self.find(name)

    def volume(self, name: str) -> VolumeRecord | None:
        """The volume of that name; None for a place, too."""
        record = self.find(name)
        return record if isinstance(record, VolumeRecord) else None

    def check_free(self, name: str) -> None:
        check_open(name)
        self.check_vacant(name)

    def check_vacant(self, name: str) -> None:
        """Raises AlreadyExists if something is called that here."""
        record = self.find(name)
        if isinstance(record, VolumeRecord):
            raise AlreadyExists(
                f"there is a volume {name!r} here already: take another name, or `budwood rm {name}` first"
            )
        if record is not None:
            what = "volume that the remote knows by the name" if record.kind == "file" else record.kind
            raise AlreadyExists(f"there is a {what} {name!r} already: take another name")
        # A damaged name must not be taken for a free one: that would hide the volume behind an empty one. Every entry
        # has one name, so the counts tell at once whether one is missing.
        tables = self._tables
        entries = self.txn.stat(tables.volumes)["entries"] + self.txn.stat(tables.places)["entries"]
        if self.txn.stat(tables.names)["entries"] != entries and any(row.name == name for row in self.everything()):
            raise Corrupt(HERE, f"the name {name!r} is gone, and its volume is still there")

    def below(self, name: str) -> Iterator[Record]:
        """Everything whose name starts with `name/`. Not to be changed while this runs."""
        prefix = f"{name}/"
        start = prefix.encode()[:_WHOLE_KEY]
        cursor = self.txn.cursor(self._tables.names)
        more = cursor.set_range(start)
        while more:
            key, value = cursor.item()
            if not key.startswith(start):
                return
            record = self.load(value)
            if record is None:
                raise Corrupt(HERE, f"the name {key[:_WHOLE_KEY]!r} leads to no volume")
            if record.name.startswith(prefix):
                yield record
            more = cursor.next()

    def store(self, record: Record) -> None:
        """The record alone; its name stands."""
        table = "volumes" if isinstance(record, VolumeRecord) else "places"
        self.environment.put(self.txn, table, record.id, record)

    def add(self, record: Record) -> None:
        """Under a name that is free."""
        self.txn.put(name_key(record.name), record.id, db=self._tables.names)
        self.store(record)

    def remove_place(self, record: PlaceRecord) -> None:
        self.txn.delete(name_key(record.name), db=self._tables.names)
        self.txn.delete(record.id, db=self._tables.places)

    def relocate(self, record: Record, name: str) -> Record:
        """Give the entry a name that is free, and take its old one, unless that is another's by now. The record is
        stored as it was given.
        """
        names, old = self._tables.names, name_key(record.name)
        if self.txn.get(old, db=names) == record.id:
            self.txn.delete(old, db=names)
        record = msgspec.structs.replace(record, name=name)
        self.txn.put(name_key(name), record.id, db=names)
        self.store(record)
        return record

    def rename_here(self, record: Record, name: str) -> Record:
        """As this home's user wants it: the remote is to follow. The name is free."""
        moved = bool(record.bound) and not record.is_alias and name != record.bound
        return self.relocate(msgspec.structs.replace(record, moved=moved), name)

    def retire(self, record: Record) -> None:
        """The entry's name is free from now on: a volume is gone, a place is no more; what the remote calls it is to
        go.
        """
        self.drop_claim(record)
        if isinstance(record, VolumeRecord):
            own = msgspec.structs.replace(record, bound="", moved=False)
            self.relocate(own, gone_name(record.vid))
            if record.is_alias:
                self.leave_name(record)
        else:
            self.remove_place(record)

    def leave_name(self, record: VolumeRecord) -> None:
        """The name of a volume that leaves this home stays, as that of a file of the remote."""
        there = self.known_at(record.bound) if record.bound else None
        if there is None or there.dropped or there.target != record.vid:
            return
        name = record.name if record.moved else record.bound
        if self.find(name) is None:
            self.add(place_of(there, name=name, moved=record.moved))

    def drop_claim(self, record: Record) -> None:
        """The remote's name of the entry is to go. An alias has none of its own."""
        if not record.bound or record.is_alias:
            return
        there = self.known_at(record.bound)
        if there is None:
            there = KnownRecord(name=record.bound, target=record.target, revision=0)
        if there.target == record.target:
            self.put_known(msgspec.structs.replace(there, dropped=True))

    def claim_again(self, record: Record) -> None:
        """The remote's name of the entry, which may have been removed here once, is to stay."""
        there = self.known_at(record.bound) if record.bound else None
        if there is not None and there.dropped and there.target == record.target:
            self.put_known(msgspec.structs.replace(there, dropped=False))

    def known(self) -> Iterator[KnownRecord]:
        """The remote's names, as they were last seen."""
        return self.environment.records(self.txn, "known", KnownRecord)

    def known_at(self, name: str) -> KnownRecord | None:
        return self.environment.get(self.txn, "known", name_key(name), KnownRecord)

    def put_known(self, record: KnownRecord) -> None:
        self.environment.put(self.txn, "known", name_key(record.name), record)

    def drop_known(self, name: str) -> None:
        self.txn.delete(name_key(name), db=self._tables.known)

    def namespace(self) -> NamespaceRecord | None:
        return self.environment.get(self.txn, "meta", _NAMESPACE_KEY, NamespaceRecord)

    def put_namespace(self, record: NamespaceRecord) -> None:
        self.environment.put(self.txn, "meta", _NAMESPACE_KEY, record)

    def note_change(self, remote: str, store: str, lsn: int) -> None:
        """A change of the remote's names that this home has made, and noted in `known`, was the LSN `lsn` of them."""
        record = self.namespace() or NamespaceRecord(remote=remote, store=store, encrypted=names_are_encrypted())
        # Where others made changes in between, `known` lacks theirs.
        head, ahead = followed(record.head, (*record.ahead, lsn))
        self.put_namespace(msgspec.structs.replace(record, head=head, ahead=ahead, seen=max(record.seen, lsn)))

    def asked(self) -> tuple[AskedChange, ...]:
        """See asked_names.py."""
        record = self.environment.get(self.txn, "meta", _ASKED_KEY, AskedRecord)
        return () if record is None else record.changes

    def note_asked(self, asked: AskedChange) -> bool:
        """Whether it wasn't noted yet."""
        before = self.asked()
        if asked in before:
            return False
        self._put_asked((*before, asked))
        return True

    def forget_asked(self, asked: AskedChange) -> bool:
        """Whether it was noted still: else another process has recorded what became of it."""
        before = self.asked()
        after = tuple(other for other in before if other != asked)
        if after != before:
            self._put_asked(after)
        return after != before

    def _put_asked(self, changes: tuple[AskedChange, ...]) -> None:
        if changes:
            self.environment.put(self.txn, "meta", _ASKED_KEY, AskedRecord(changes=changes))
        else:
            self.txn.delete(_ASKED_KEY, db=self._tables.meta)

    def version(self) -> int:
        return self.environment.get(self.txn, "meta", _VERSION_KEY, int) or 0

    def touch(self) -> None:
        """The names have changed. Once in a transaction: who made the next number knows that no one else did."""
        self.environment.put(self.txn, "meta", _VERSION_KEY, self.version() + 1)

    def everything(self) -> Iterator[Record]:
        """Volumes, gone ones too, and places, by id. Not to be changed while this runs."""
        yield from self.volumes()
        yield from self.environment.records(self.txn, "places", PlaceRecord)

    def hashes(self) -> dict[bytes, int]:
        """Of everything, by id; within this process alike for what is alike."""
        tables = (self._tables.volumes, self._tables.places)
        return {key: hash(raw) for table in tables for key, raw in self.txn.cursor(table)}

    def volumes(self) -> Iterator[VolumeRecord]:
        """By id; those that are gone too."""
        return self.environment.records(self.txn, "volumes", VolumeRecord)
