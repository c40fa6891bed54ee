"""Names pull: what the remote's names have become since they were last seen happens here too.

A three-way merge in one LMDB transaction: `known` is what was last seen, `there` what stands now, the names of this
home are ours. What changed on one side alone is taken from there; where both changed:

    a name taken here and there by different files    ours moves to `NAME (conflict CLIENT)`; two directories are one.
                                                      A file that nothing was ever written to has no say: ours makes
                                                      way for any, and ours with content keeps its name over theirs
    moved here and there                              ours stays, and the remote is to follow
    removed here, moved, replaced or written there    it is here again
    removed there, and here nothing the remote lacks  a file becomes gone, a directory that is empty and a link vanish
    removed there, moved or written here              ours stays, and has no name on the remote until it is pushed
    replaced there as an empty file, written since    ours moves to a conflict name: whoever replaced it didn't see that
    attributes changed here and there                 each is the one that was changed; the same of them here and there,
                                                      then ours stays. They are to be pushed

Files and places are recognised by their target wherever the remote moved them. What stands now is what was known, and
what became of it since (names_delta.py), but for names that were bound here meanwhile, which are newer: whoever pushes
a new volume waits for nobody who pulls, nor he for that. Everything else that changes the remote's names for this home
holds the lock of its names, as a pull does. A remote that has less than was seen of it has lost changes: Corrupt, and
nothing moves back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from ..remote.keyring import ENCRYPT_NAMES, names_are_encrypted
from ..volume import faults
from ..volume.errors import Busy, Locked, NotFound, Unavailable, WrongStore
from ..volume.ids import VolumeId
from .attributes import Attributes
from .conflict_names import conflict_names, is_conflict_name
from .connection import Connection
from .environment import Environment
from .file_locks import Lock
from .local_volume import Local
from .name_table import NameTable, Record, followed, is_reserved, namespace_of, place_of
from .names_delta import Delta, gather
from .publish import is_untouched_there
from .tables import KnownRecord, NamespaceRecord, PlaceRecord, Txn, VolumeRecord, name_key

_WAY_OUT: Final = "name {url} or wherever that store is now, no remote at all, or another home"

GATHERED = faults.point("names: gathered, not merged")
MERGED = faults.point("names: merged, caller not told")


class Pulled(NamedTuple):
    changed: frozenset[str] = frozenset()
    """Names of this home that appeared, vanished or changed."""
    conflicts: tuple[str, ...] = ()
    """A line for each entry that had to make room."""


def pull_names(environment: Environment, connection: Connection) -> Pulled:
    """Raises Unavailable, WrongStore, Corrupt. A remote where no store is yet has no names."""
    before = namespace_of(environment)
    try:
        store = connection.store
        check_store(connection, before)
        delta = gather(connection, before)
        if delta is None:
            return Pulled()
        untouched = _untouched(environment, connection, delta, store)
        GATHERED()
        pulled = environment.update(partial(_merge, environment, connection, delta, untouched), durable=True)
        MERGED()
    except NotFound as error:
        connection.check_new(environment, error)
        if before is not None and before.remote != connection.url:
            raise WrongStore(f"{_owner(before)} {error}: {_WAY_OUT.format(url=before.remote)}") from None
        if before is not None:
            raise Unavailable(f"{error}; the names here were that store's: bring it back") from None
        return Pulled()
    return pulled


def check_store(connection: Connection, record: NamespaceRecord | None) -> None:
    """Raises WrongStore if the names of this home are those of another store, and Locked where they are encrypted there
    and wouldn't be read so, or the other way round: all of them would seem to be gone."""
    if record is not None and connection.store != record.store:
        way_out = _WAY_OUT.format(url=record.remote)
        raise WrongStore(f"{_owner(record)} {connection.url} is store {connection.store}: {way_out}")
    if record is not None and record.encrypted is not names_are_encrypted():
        stand, word = ("are", "yes") if record.encrypted else ("aren't", "no")
        raise Locked(f"the names that this home knows {stand} encrypted at {record.remote}: set {ENCRYPT_NAMES}={word}")


def _owner(record: NamespaceRecord) -> str:
    return f"the names of this home are those of store {record.store} (last seen at {record.remote}), and"


def belongs(record: Record, store: str) -> bool:
    """Whether an entry here is one of that store's namespace: not under a reserved name, nor another store's volume."""
    if is_reserved(record.name):
        return False
    return isinstance(record, PlaceRecord) or record.store in {"", store}


def _untouched(environment: Environment, connection: Connection, delta: Delta, store: str) -> frozenset[bytes]:
    """Of the files that stand there under the names of others here: those that nobody has written to."""
    with environment.view() as txn:
        names = NameTable(environment, txn)
        there = delta.over(names.known())
        records = [record for record in names.everything() if belongs(record, store)]
        contested = [
            entry
            for record in records
            if (entry := there.get(record.name)) is not None
            and entry.target != record.target
            and record.kind == "file"
            and not names.is_untouched(record)
        ]
    return frozenset(
        entry.target for entry in contested if is_untouched_there(connection, entry.target, entry.attributes)
    )


def _merge(
    environment: Environment, connection: Connection, delta: Delta, untouched: frozenset[bytes], txn: Txn
) -> Pulled:
    names = NameTable(environment, txn)
    before = names.namespace()
    head, ahead, seen = delta.head, tuple[int, ...](), delta.head
    if before is not None and before.store == connection.store:
        head, ahead = followed(max(head, before.head), before.ahead)
        seen = max(seen, before.seen)
    merge = _Merge(names, delta, untouched, connection.store)
    try:
        merge.run()
    finally:
        for lock in merge.locks:
            lock.release()
    names.put_namespace(
        NamespaceRecord(
            remote=connection.url,
            store=connection.store,
            head=head,
            seen=seen,
            ahead=ahead,
            encrypted=names_are_encrypted(),
        )
    )
    if merge.changed:
        names.touch()
    return Pulled(frozenset(merge.changed), tuple(merge.conflicts))


class _Merge:
    """One transaction's. `records` are the entries here that belong to the namespace, as they stand at each step."""

    def __init__(self, names: NameTable, delta: Delta, untouched: frozenset[bytes], store: str) -> None:
        self.environment = names.environment
        self.txn = names.txn
        self.names = names
        self.base = {row.name: row for row in names.known()}
        self.there = delta.over(self.base.values())
        self.untouched = untouched
        self.records = {record.id: record for record in names.everything() if belongs(record, store)}
        self.asked = self._asked_meanwhile(store)
        self.base |= self.asked
        self.before = dict(self.records)
        self.left = {row.target for row in self.base.values() if row.dropped and not self._leads_to(row)}
        """Targets of names that were to go, and have been moved or taken away there."""
        self.claims: dict[str, bytes] = {}
        """By the remote's name: whom it stands for here."""
        self.dropped: set[str] = set()
        self.changed: set[str] = set()
        self.conflicts: list[str] = []
        self.locks: list[Lock] = []

    def _asked_meanwhile(self, store: str) -> dict[str, KnownRecord]:
        """What the remote has bound for this home to files that programs have removed, or replaced, since it was asked:
        a push of content doesn't hold the lock of the names, and what came of this one isn't recorded yet.
        """
        rows: dict[str, KnownRecord] = {}
        all_asked = self.names.asked()
        targets = {record.target for record in self.records.values()} if all_asked else set[bytes]()
        for asked in all_asked:
            request, entry = asked.request, self.there.get(asked.request.name)
            if request.op != "bind" or asked.store != store or request.target in targets:
                continue
            if entry is not None and entry.target == request.target:
                attributes = Attributes.from_wire(request.attributes)
                rows[entry.name] = msgspec.structs.replace(entry, attributes=attributes, dropped=True)
        return rows

    def _leads_to(self, row: KnownRecord) -> bool:
        entry = self.there.get(row.name)
        return entry is not None and entry.target == row.target

    def run(self) -> None:
        arriving, vanished = self._follow(self._claim())
        # All of those leave before any arrives: the remote may have swapped two, or put one in another's place.
        for key in arriving:
            self.txn.delete(name_key(self.records[key].name), db=self.environment.tables.names)
        # Files first, and the deepest directories first, which are empty by then if they were on the remote.
        self._vanish(sorted(vanished, key=self._directory_and_name, reverse=True))
        for key, name in arriving.items():
            self._arrive(self.records[key], name)
        self._appear()
        self._take_attributes()
        self._note()

    def _directory_and_name(self, key: bytes) -> tuple[bool, str]:
        record = self.records[key]
        return record.kind != "directory", record.name

    def _claim(self) -> list[bytes]:
        """Entries whose remote name still is theirs keep it; the others that had one are answered."""
        lost: list[bytes] = []
        for key, record in self.records.items():
            if not record.bound:
                continue
            entry = self.there.get(record.bound)
            if entry is not None and entry.target == record.target and record.bound not in self.claims:
                self.claims[record.bound] = key
            else:
                lost.append(key)
        return lost

    def _follow(self, lost: list[bytes]) -> tuple[dict[bytes, str], list[bytes]]:
        """Who is to be called otherwise here, since the remote moved it, and who has no name there any more."""
        # One that is new, rather than one that led to it all along.
        free = self._unclaimed((self.records[key] for key in lost), lambda name: (name not in self.base, name))
        arriving: dict[bytes, str] = {}
        vanished: list[bytes] = []
        for key in lost:
            record = self.records[key]
            name = self._next(free, record)
            if name is None:
                vanished.append(key)
                continue
            self.claims[name] = key
            is_own = self._is_aside(name)
            if record.name == record.bound and not is_own:
                arriving[key] = name
            else:
                # It was moved here too, and the remote is to follow; or it is an alias.
                moved = (record.moved or is_own) and record.name != name
                self._put(msgspec.structs.replace(record, bound=name, moved=moved))
        # What the remote has, and is here without a name there: an answer that was lost, mostly.
        nameless = [record for record in self.records.values() if not record.bound]
        free = self._unclaimed(nameless, lambda name: name)
        for record in nameless:
            own = self.there.get(record.name)
            may_keep = own is not None and own.target == record.target and own.name not in self.claims
            name = record.name if may_keep else self._next(free, record)
            if name is not None:
                self.claims[name] = record.id
                self._put(msgspec.structs.replace(record, bound=name, moved=record.name != name))
        return arriving, vanished

    def _unclaimed(self, records: Iterable[Record], order: Callable[[str], Any]) -> dict[bytes, list[str]]:
        """The remote's names for these that stand for nothing here yet, by target; the first is at the end. Sorted
        once, since any number of names may lead to one target."""
        targets = {record.target for record in records}
        free: dict[bytes, list[str]] = {}
        for name, entry in self.there.items() if targets else ():
            if entry.target in targets and name not in self.claims:
                free.setdefault(entry.target, []).append(name)
        for names in free.values():
            names.sort(key=order, reverse=True)
        return free

    def _next(self, free: dict[bytes, list[str]], record: Record) -> str | None:
        names = free.get(record.target, [])
        while names:
            name = names.pop()
            if name not in self.claims:
                return name
        return None

    def _arrive(self, record: Record, name: str) -> None:
        record = msgspec.structs.replace(record, bound=name, moved=False)
        standing = self.names.find(name)
        if standing is not None and not self._yields(standing, record):
            # Another store's volume is called so here: ours keeps its old name, as an alias.
            taken = self.names.find(record.name) is not None
            name = self._free_name(record.name) if taken else record.name
        self._relocate(record, name)

    def _yields(self, standing: Record, arriving: Record) -> bool:
        """Makes room at `standing.name`."""
        if standing.id not in self.records:
            return False
        if standing.kind == arriving.kind == "directory":
            self._drop_claim(standing)
            self._forget(standing)
        else:
            self._make_way(standing)
        return True

    def _vanish(self, keys: list[bytes]) -> None:
        """The remote has no name for them any more."""
        for key in keys:
            record = msgspec.structs.replace(self.records[key], bound="", moved=False)
            if not self._may_go(self.records[key]):
                self._put(record)
            elif isinstance(record, VolumeRecord):
                self._retire(record)
            else:
                self._forget(record)

    def _may_go(self, record: Record) -> bool:
        """Whether nothing of it is here that the remote never had."""
        row = self.base.get(record.bound)
        if record.moved:
            return False
        if not isinstance(record, VolumeRecord):
            if record.kind == "directory":
                return next(self.names.below(record.name), None) is None
            return record.kind == "file" or row is None or record.attributes.says_as(row.attributes)
        local = Local(self.environment, VolumeId(record.vid), record.name)
        head = local.head(self.txn)
        if head.unpushed or local.push(self.txn) is not None:
            return False
        if row is not None and not record.attributes.says_as(row.attributes):
            # What was written to it is there, and that it was isn't told yet.
            return False
        return self._locked(local)

    def _locked(self, local: Local) -> bool:
        """Whether nobody is writing it, until this transaction has ended."""
        try:
            self.locks.append(local.write_lock())
        except Busy:
            return False
        return True

    def _appear(self) -> None:
        """What the remote calls by a name that stands for nothing here yet."""
        for name in sorted(self.there):
            entry, row = self.there[name], self.base.get(name)
            if name in self.claims or name in self.dropped:
                continue
            if row is not None and row.dropped and row.target == entry.target and not self._is_again(row, entry):
                self.dropped.add(name)
                continue
            if self._was_left(entry) or (entry.target in self.left and self._is_aside(name)):
                self.dropped.add(name)
                continue
            standing = self.names.find(name)
            if standing is None:
                self._add(entry)
            elif standing.id in self.records and not self._joins(standing, entry):
                if entry.target in self.untouched:
                    # The name is to lead to what stands here under it.
                    self.dropped.add(name)
                    continue
                self._make_way(standing)
                self._add(entry)

    def _is_again(self, row: KnownRecord, entry: KnownRecord) -> bool:
        """Whether a file that was removed here, and not renamed, was written to there, or given other attributes, since
        it was seen last."""
        written = entry.attributes.kind == "file" and not entry.attributes.says_as(row.attributes)
        return written and all(record.target != entry.target for record in self.records.values())

    def _was_left(self, entry: KnownRecord) -> bool:
        """Whether it is a name that the entry has had there until it was bound by another, here, and that was moved
        there meanwhile: so it is to go as if it had stayed.
        """
        row = self.base.get(entry.name)
        if entry.target not in self.left or (row is not None and row.target == entry.target):
            return False
        return any(self.records[key].target == entry.target for key in self.claims.values())

    def _is_aside(self, name: str) -> bool:
        """Whether this home has moved something there that it was about to move on, and may not have heard so."""
        return is_conflict_name(self.environment, name, why="moving")

    def _make_way(self, standing: Record) -> None:
        there = self.there.get(standing.bound)
        has_content = there is not None and there.target == standing.target and there.attributes.size
        if isinstance(standing, VolumeRecord) and self.names.is_untouched(standing) and not has_content:
            local = Local(self.environment, VolumeId(standing.vid), standing.name)
            if local.push(self.txn) is None and self._locked(local):
                self._drop_claim(standing)
                self._retire(standing)
                return
        self._step_aside(standing)

    def _joins(self, standing: Record, entry: KnownRecord) -> bool:
        """Whether the two are one, or can be made one."""
        same = standing.target == entry.target
        if same and not standing.moved:
            # It has two names there; this home has it by the other one, and as an alias by this.
            return True
        if not same and not self._alike(standing, entry.attributes):
            return False
        self._drop_claim(standing)
        joined = msgspec.structs.replace(standing, bound=entry.name, moved=False)
        if isinstance(joined, PlaceRecord):
            joined = msgspec.structs.replace(joined, target=entry.target)
        self.claims[entry.name] = joined.id
        self._put(joined)
        return True

    @staticmethod
    def _alike(standing: Record, attributes: Attributes) -> bool:
        kind = standing.kind
        if kind != attributes.kind:
            return False
        return kind == "directory" or (kind == "link" and standing.attributes.link == attributes.link)

    def _take_attributes(self) -> None:
        for name, key in self.claims.items():
            record, entry = self.records[key], self.there[name]
            theirs = entry.attributes
            was = self.before.get(key)
            row = self.base.get(was.bound if was is not None and was.bound else name)
            if theirs.kind != record.kind:
                continue
            if row is not None and row.target == entry.target:
                merged = record.attributes.merged(row.attributes, theirs)
            else:
                merged = record.attributes if theirs == Attributes() else theirs
            if merged != record.attributes:
                self._put(msgspec.structs.replace(record, attributes=merged))
                self.changed.add(record.name)

    def _note(self) -> None:
        """`known` becomes what stands there."""
        for name in self.base.keys() - self.there.keys():
            self.names.drop_known(name)
        for name, entry in self.there.items():
            dropped = name in self.dropped
            row = entry if entry.dropped == dropped else msgspec.structs.replace(entry, dropped=dropped)
            if row != self.base.get(name) or name in self.asked:
                self.names.put_known(row)

    def _add(self, entry: KnownRecord) -> None:
        record = place_of(entry)
        self.names.add(record)
        self.records[record.id] = record
        self.claims[entry.name] = record.id
        self.changed.add(entry.name)

    def _retire(self, record: VolumeRecord) -> None:
        own = msgspec.structs.replace(record, bound="", moved=False, left=record.name)
        self.names.retire(own)
        del self.records[record.vid]
        self.changed.add(record.name)

    def _forget(self, record: Record) -> None:
        assert isinstance(record, PlaceRecord)
        self.names.remove_place(record)
        del self.records[record.id]
        self.changed.add(record.name)

    def _drop_claim(self, record: Record) -> None:
        """The name that the remote has for it is to go: the entry has another one now, or is no more."""
        if record.bound and self.claims.get(record.bound) == record.id:
            del self.claims[record.bound]
            self.dropped.add(record.bound)

    def _step_aside(self, record: Record) -> None:
        """To a conflict name, and all that lies below a directory with it, but for what the remote calls so itself."""
        old, new = record.name, self._free_name(record.name)
        below = list(self.names.below(old)) if record.kind == "directory" else []
        self.conflicts.append(f"{old!r} is called {new!r} here now: the remote has another by that name")
        self._rename(record, new)
        for lower in below:
            if lower.id in self.records and lower.name != lower.bound:
                self._rename(lower, new + lower.name[len(old) :])

    def _rename(self, record: Record, name: str) -> None:
        after = self.names.rename_here(record, name)
        self.records[after.id] = after
        self.changed |= {record.name, name}

    def _relocate(self, record: Record, name: str) -> None:
        after = self.names.relocate(record, name)
        self.records[after.id] = after
        self.changed |= {record.name, name}

    def _put(self, record: Record) -> None:
        self.names.store(record)
        self.records[record.id] = record

    def _free_name(self, name: str) -> str:
        for candidate in conflict_names(self.environment, name):
            if candidate not in self.there and self.names.find(candidate) is None:
                return candidate
        raise AssertionError("there is always another number")
