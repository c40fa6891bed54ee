"""Names mirror: how the remote's names stand, and who stands for them here, as a push of names reads it once, and as it
is kept up with what is sent.

Each outcome changes the mirror at once, and comes with a note that records it in the home, in a transaction: by then
programs may have renamed or removed the entry.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

import msgspec

from .environment import Environment
from .name_table import NameTable, Record, is_reserved
from .names_pull import belongs
from .tables import KnownRecord, VolumeRecord

Note = Callable[[NameTable], None]


class NamesMirror:
    """Of the names of one store."""

    def __init__(self, environment: Environment, store: str) -> None:
        """`store` is whose names they are, where no names of it are known yet."""
        with environment.view() as txn:
            names = NameTable(environment, txn)
            self.namespace = names.namespace()
            self.asked = names.asked()
            """Changes whose outcome wasn't recorded."""
            self.rows = {row.name: row for row in names.known()}
            store = store if self.namespace is None else self.namespace.store
            every = [record for record in names.everything() if belongs(record, store)]
        self.records = {record.id: record for record in every}
        self.called = {record.name: record.id for record in every}
        self.claims = {record.bound: record.id for record in every if self._holds(record)}
        """By the remote's name: whom it stands for here."""
        self._ordered = sorted(self.rows)

    def _holds(self, record: Record) -> bool:
        row = self.rows.get(record.bound)
        return row is not None and not row.dropped and row.target == record.target

    def at_and_below(self, name: str) -> list[str]:
        first, end = bisect_left(self._ordered, f"{name}/"), bisect_left(self._ordered, f"{name}0")
        own = [name] if name in self.rows else []
        return own + self._ordered[first:end]

    def bearer(self, row: KnownRecord) -> bytes | None:
        """Of the entries here that lead where the name does: the one that it was bound for."""
        claiming = self.claims.get(row.name)
        leading = [record for record in self.records.values() if record.target == row.target and not record.is_alias]
        leading.sort(key=lambda record: (record.id != claiming, record.bound != "", not record.moved))
        return leading[0].id if leading else None

    def unbound(self, name: str, _lsn: int) -> Note:
        row = self.rows.get(name)
        if row is not None:
            self._drop_row(name)

        def forget(names: NameTable) -> None:
            now = names.known_at(name)
            if now is not None and row is not None and now.target == row.target:
                names.drop_known(name)

        return forget

    def bound(self, key: bytes | None, row: KnownRecord, lsn: int, *, alias: bool = False) -> Note:
        """`key` is None where what it was bound to was removed here before this is known."""
        name, left = row.name, "" if key is None or alias else self.records[key].bound
        row = msgspec.structs.replace(row, revision=lsn, dropped=key is None)
        displaced = self.claims.pop(name, None)
        if displaced is not None and displaced != key:
            self.records[displaced] = _rebound(self.records[displaced], "")
        if left in self.rows and left != name:
            self._put_row(msgspec.structs.replace(self.rows[left], dropped=True))
            self.claims.pop(left, None)
        self._put_row(row)
        if key is not None:
            self.claims[name] = key
            self.records[key] = _rebound(self.records[key], name, alias=alias)

        def note(names: NameTable) -> None:
            names.put_known(row)
            if displaced is not None and displaced != key:
                self._rebind(names, displaced, name, "")
            if left and left != name:
                there = names.known_at(left)
                if there is not None and there.target == row.target:
                    names.put_known(msgspec.structs.replace(there, dropped=True))
            if key is not None and not self._rebind(names, key, left, name, alias=alias):
                # It was removed here meanwhile.
                names.put_known(msgspec.structs.replace(row, dropped=True))

        return note

    def moved(self, old: str, new: str, lsn: int) -> Note:
        """With all that lies below it."""
        moving = self.at_and_below(old)
        # Some may have been removed here, where it is known only now that it happened.
        keys = {name: self.claims.pop(name) for name in moving if name in self.claims}
        for name in moving:
            row, after = self.rows[name], new + name[len(old) :]
            self._drop_row(name)
            self._put_row(msgspec.structs.replace(row, name=after, revision=lsn))
            if name in keys:
                self.claims[after] = keys[name]
                self.records[keys[name]] = _rebound(self.records[keys[name]], after)

        def note(names: NameTable) -> None:
            # What was removed here meanwhile is dropped under its new name.
            rows = [(name, names.known_at(name)) for name in moving]
            for name in moving:
                names.drop_known(name)
            for name, row in rows:
                after = new + name[len(old) :]
                if row is not None:
                    names.put_known(msgspec.structs.replace(row, name=after, revision=lsn))
                if name in keys:
                    self._rebind(names, keys[name], name, after)

        return note

    def _rebind(self, names: NameTable, key: bytes, was: str, bound: str, *, alias: bool = False) -> bool:
        """What this entry is bound to by now, if it still is the one that it was; it may have become a volume here, and
        may have been renamed again.
        """
        record = names.load(key) or names.load(self.records[key].target)
        if record is None or record.bound not in {was, bound} or is_reserved(record.name):
            return False
        names.store(_rebound(record, bound, alias=alias))
        return True

    def _put_row(self, row: KnownRecord) -> None:
        if row.name not in self.rows:
            insort(self._ordered, row.name)
        self.rows[row.name] = row

    def _drop_row(self, name: str) -> None:
        del self.rows[name]
        del self._ordered[bisect_left(self._ordered, name)]


def _rebound(record: Record, bound: str, *, alias: bool = False) -> Record:
    """Bound to what the remote calls it by now; renamed here meanwhile, it is to be moved on."""
    if record.bound == bound:
        return record
    return msgspec.structs.replace(record, bound=bound, moved=bool(bound) and bound != record.name and not alias)


def may_push(record: Record) -> bool:
    return not isinstance(record, VolumeRecord) or record.mode in {"push", "both"}
