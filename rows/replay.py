"""Replay: a diverged database's rows, as they were changed here, on the remote's newest snapshot.

    report = replay(volume)                                 # refused, with nothing changed, where both changed a row
    report = replay(volume, on_conflict="ours")             # "theirs"; or a function: see Conflict
    report = replay(volume, on_conflict="ours", dry_run=True)

The rows changed between the base, which is where this home synced last, and what stands here become a changeset, which
SQLite's session extension applies to the remote's snapshot in one transaction: with its constraints, and without its
triggers, whose effects are among the rows. What comes of it is the volume's one unpushed commit, on the remote's head
(sync/rebase.py). Only pages that changed on either side are read, and what SQLite reads to find their rows.

It is one transaction for all that is unpushed, since that is what a push makes of it anyway: local commits were never
others' to see, and no page of a state between them is kept.

Same row, changed on both sides to the same: no conflict. Rows of a table without a declared primary key are known by
their rowid, which nobody chose: where both have inserted under one rowid, ours gets another, and the report says so.
Where a conflict is decided by a policy, the report names the row. Statistics (sqlite_stat1) are the remote's;
AUTOINCREMENT goes on from the greater of both. New and dropped indexes, views, triggers and tables are replayed as the
statements that made them, unless the remote has another of that name. Refused in words, with nothing changed: a table
whose columns were altered on either side while its rows changed here; rows with NULL in their primary key; rows that
break a foreign key where they come to; a constraint that the remote's rows leave no room for, unless theirs win.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal, TypeAlias, cast

import apsw

from ..sqlite.invalid_text import as_parameter
from ..sqlite.names import folded
from ..sqlite.record import Value
from ..sync.change import Change
from ..sync.pull import Move
from ..sync.remote_snapshot import RemoteSnapshot
from ..sync.reset import touched
from ..sync.snapshot import LocalSnapshot
from ..sync.volume import Volume
from ..volume.errors import BadInput, Diverged
from ..volume.wire import SnapshotInfo
from .changeset import changeset
from .difference import fetches_of
from .draft import Draft
from .row_changes import RowChange, Values, row_changes
from .schema_changes import SchemaChange, schema_changes, statements_of
from .table import Table, tables_of
from .view import View, quoted

Recorded: TypeAlias = tuple[object, ...]
"""A row in a changeset: of one that was updated, without the values that stayed."""
Choice: TypeAlias = Literal["ours", "theirs", "abort"]

_CHOICES: Final = ("ours", "theirs", "abort")


@dataclass(frozen=True, slots=True)
class Conflict:
    """A row that both sides have changed since the base, given to a policy: a function of it that answers "ours",
    "theirs" or "abort".

    `ours` is how it stands here, `theirs` on the remote; None where it is gone. `base` is how it stood before. Each by
    its columns. `reason`: "changed" (both changed it, or one removed it), "inserted" (both have inserted it), or
    "constraint" (the remote's rows leave no room for it: then "ours" can't be had).
    """

    table: str
    key: Values
    reason: str
    base: dict[str, Value] | None
    ours: dict[str, Value] | None
    theirs: dict[str, Value] | None


Violation: TypeAlias = tuple[str, Value, str, Value]
"""Of a foreign key: a table, the rowid of its row, the table that it refers to, and which of its keys it is."""
Policy: TypeAlias = Callable[[Conflict], str]


@dataclass(frozen=True, slots=True)
class Decided:
    conflict: Conflict
    choice: Choice


@dataclass
class Report:
    """What a replay has done, or would do."""

    base: int = 0
    onto: int = 0
    """The remote's LSNs: where the unpushed commits began, and on which they stand now."""
    changes: list[RowChange] = field(default_factory=list[RowChange])
    """The rows that were changed here, as far as they are shown."""
    applied: int = 0
    agreed: int = 0
    """Rows that the remote has as they are here already."""
    decided: list[Decided] = field(default_factory=list[Decided])
    renumbered: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    """Tables, and rowids here and now."""
    statements: list[str] = field(default_factory=list[str])
    """Of the schema, that were run."""


def replay(
    volume: Volume,
    on_conflict: Choice | Policy = "abort",
    *,
    dry_run: bool = False,
    keep_as: str | None = None,
    move: Move | None = None,
) -> Report:
    """Raises Diverged where a conflict is left to nobody, or can't be decided as it was, with nothing changed; BadInput
    for what can't be replayed; Unavailable, Busy. `keep_as` forks what is unpushed as it stands first.
    """
    if not callable(on_conflict) and on_conflict not in _CHOICES:
        raise BadInput(f"{on_conflict!r} is no policy: abort, ours, theirs, or a function")
    report = Report()

    def remake(mine: LocalSnapshot, to: SnapshotInfo) -> Change | None:
        nonlocal report
        report = Report(base=mine.head.sync_remote, onto=to.lsn)
        change = _Replaying(volume, mine, to, on_conflict, report).run()
        if dry_run:
            raise _OnlyTried
        return change

    with suppress(_OnlyTried):
        volume.rebase(remake, keep_as=keep_as, move=move)
    return report


class _OnlyTried(Exception):
    """Nothing is to be changed."""


class _Replaying:
    def __init__(
        self, volume: Volume, mine: LocalSnapshot, to: SnapshotInfo, on_conflict: Choice | Policy, report: Report
    ) -> None:
        self.volume = volume
        self.name = volume.name
        self.mine = mine
        self.to = to
        self.on_conflict = on_conflict
        self.report = report
        self._again: list[tuple[Table, Values, int | None]] = []
        """Rows to be inserted once all else was applied; with their rowid here where another is to be given."""
        self._old: dict[tuple[str, Values], RowChange] = {}
        self._failed: Exception | None = None
        self._may_dangle = False
        """Whether rows may refer to nothing by now: foreign keys are off, or some were broken and nothing said."""

    def run(self) -> Change | None:
        base_info = self.volume.base(self.mine.head)
        with (
            closing(self.volume.snapshot_of(base_info)) as base,
            closing(self.volume.snapshot_of(self.to)) as theirs,
            closing(View(self.name, base, fetches_of(base))) as before,
            closing(View(self.name, self.mine, fetches_of(self.mine))) as here,
            closing(View(self.name, theirs, fetches_of(theirs))) as there,
        ):
            for view in (before, here, there):
                _check_writable(view)
            tables = tables_of(here)
            changes = [
                c for c in row_changes(before, here, touched(self.mine)) if not folded(c.table).startswith("sqlite_")
            ]
            self.report.changes = changes
            self._old = {(folded(change.table), change.key): change for change in changes}
            # SQLite makes its own.
            made = [each for each in schema_changes(before, here) if not folded(each.name).startswith("sqlite_")]
            self._check(made, changes, tables, before, there)
            dropped = {folded(each.name) for each in made if each.type == "table" and each.new is None}
            rows = changeset((c for c in changes if folded(c.table) not in dropped), tables)
            if rows.left_out:
                raise BadInput(f"volume {self.name!r} can't be replayed: {rows.left_out[0]}")
            return self._apply(theirs, made, rows.data, tables, here, there)

    def _check(
        self, made: list[SchemaChange], changes: list[RowChange], tables: dict[str, Table], before: View, there: View
    ) -> None:
        """Raises BadInput, Diverged."""
        theirs = {(each.type, folded(each.name)): each for each in schema_changes(before, there)}
        for each in made:
            other = theirs.get((each.type, folded(each.name)))
            if other is not None and other.new != each.new:
                raise Diverged(
                    f"{each.type} {each.name} was {each.kind} here and {other.kind} on the remote: {_WAY_OUT}"
                )
            if each.type == "table" and each.kind == "changed":
                raise BadInput(f"table {each.name} was altered here, which can't be replayed: {_WAY_OUT}")
        created = {folded(each.name) for each in made if each.type == "table" and each.old is None}
        remote = tables_of(there)
        for name, _ in groupby(changes, key=lambda change: folded(change.table)):
            if name in created or name not in tables:
                continue
            own, there_now = tables[name], remote.get(name)
            if there_now is None:
                raise Diverged(f"table {own.name} was dropped on the remote, and its rows changed here: {_WAY_OUT}")
            if (own.columns, own.key) != (there_now.columns, there_now.key):
                raise Diverged(f"table {own.name} was altered on the remote, and its rows changed here: {_WAY_OUT}")

    def _apply(
        self,
        theirs: RemoteSnapshot,
        made: list[SchemaChange],
        data: bytes,
        tables: dict[str, Table],
        here: View,
        there: View,
    ) -> Change | None:
        changed = {folded(change.table) for change in self.report.changes}
        # Whoever has written these had them off.
        self._may_dangle = not _are_foreign_keys_sound(here, [tables[name] for name in changed & tables.keys()])
        known = {(type_, folded(name)): sql for (type_, name), sql in statements_of(there).items()}
        with Draft(self.name, theirs, self.volume.local.environment.spill) as draft:
            db = draft.connection
            db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            db.execute(f"PRAGMA foreign_keys = {'OFF' if self._may_dangle else 'ON'}")
            with db:
                db.execute(_DEFERRED)
                for each in sorted(made, key=lambda each: (each.new is not None, each.type != "table")):
                    self._run_statement(db, each, known)
                self._apply_rows(db, data, tables)
                if self._may_dangle or db.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]:
                    self._check_foreign_keys(db, tables, here, there)
                    # What was counted is forgotten: what is left of it stood on a side already.
                    db.execute("PRAGMA defer_foreign_keys = OFF")
            return draft.change

    def _run_statement(self, db: apsw.Connection, made: SchemaChange, known: dict[tuple[str, str], str]) -> None:
        if made.new == known.get((made.type, folded(made.name))):
            return
        statements = [f"DROP {made.type} IF EXISTS {quoted(made.name)}"] if made.old is not None else []
        statements += [made.new] if made.new is not None else []
        for sql in statements:
            try:
                db.execute(sql)
            except (apsw.SQLError, apsw.ConstraintError) as error:
                raise Diverged(f"{sql!r} can't be run on the remote's newest ({error}): {_WAY_OUT}") from None
            self.report.statements.append(sql)

    def _apply_rows(self, db: apsw.Connection, data: bytes, tables: dict[str, Table]) -> None:
        def conflict(reason: int, change: apsw.TableChange) -> int:
            if reason == apsw.SQLITE_CHANGESET_FOREIGN_KEY:
                # Rows that are inserted below may mend it.
                self._may_dangle = True
                return apsw.SQLITE_CHANGESET_OMIT
            try:
                return self._decide(reason, change, tables[folded(change.name)])
            except Exception as error:
                self._failed = error
                return apsw.SQLITE_CHANGESET_ABORT

        self.report.applied = len(self.report.changes)
        try:
            apsw.Changeset.apply(data, db, conflict=conflict, flags=apsw.SQLITE_CHANGESETAPPLY_FKNOACTION)
        except apsw.AbortError:
            raise self._failed or Diverged(f"volume {self.name!r} can't be replayed: {_WAY_OUT}") from None
        except apsw.SQLError as error:
            # It compares all columns of a row in one expression, which can be too deep for it.
            words = f"volume {self.name!r} can't be replayed, since SQLite can't apply a changeset to its tables"
            raise BadInput(f"{words} ({error}): {_WAY_OUT}") from None
        # Applying has ended it, and forgotten what was counted.
        db.execute(_DEFERRED)
        for table, row, rowid in self._again:
            columns = ", ".join(map(quoted, table.columns))
            places, values = zip(*map(as_parameter, row), strict=True)
            try:
                db.execute(f"INSERT INTO {quoted(table.name)}({columns}) VALUES ({', '.join(places)})", values)
            except apsw.ConstraintError as error:
                raise Diverged(f"a row of table {table.name} has no room on the remote ({error}): {_WAY_OUT}") from None
            if rowid is not None:
                self.report.renumbered.append((table.name, rowid, db.last_insert_rowid()))

    def _decide(self, reason: int, change: apsw.TableChange, table: Table) -> int:
        try:
            found = self._conflict(reason, change, table)
        except UnicodeDecodeError:
            words = f"a row of table {change.name} that was changed on either side has a text that isn't valid"
            raise Diverged(f"{words} in the database's encoding, and can't be told: {_WAY_OUT}") from None
        if reason == apsw.SQLITE_CHANGESET_CONFLICT and not table.key:
            self._again.append((table, _stored(table, change.new), _rowid_of(change.new)))
            return apsw.SQLITE_CHANGESET_OMIT
        if reason != apsw.SQLITE_CHANGESET_CONSTRAINT and _same(found.ours, found.theirs):
            self.report.agreed += 1
            self.report.applied -= 1
            return apsw.SQLITE_CHANGESET_OMIT
        choice = self.on_conflict(found) if callable(self.on_conflict) else self.on_conflict
        if choice not in _CHOICES:
            raise BadInput(f"the policy answers {choice!r} to a conflict: it is ours, theirs or abort")
        if choice == "abort":
            raise Diverged(f"{_words(found)}: say who wins with --on-conflict ours|theirs, or {_WAY_OUT}")
        self.report.decided.append(Decided(found, "ours" if choice == "ours" else "theirs"))
        if choice == "theirs":
            self.report.applied -= 1
            return apsw.SQLITE_CHANGESET_OMIT
        if reason == apsw.SQLITE_CHANGESET_CONSTRAINT:
            raise Diverged(f"{_words(found)}, so ours can't be had: take theirs, or {_WAY_OUT}")
        if reason == apsw.SQLITE_CHANGESET_NOTFOUND:
            # It was removed there, and stands here: a row that comes anew.
            assert found.ours is not None
            self._again.append((table, tuple(found.ours.values()), None))
            return apsw.SQLITE_CHANGESET_OMIT
        return apsw.SQLITE_CHANGESET_REPLACE

    def _conflict(self, reason: int, change: apsw.TableChange, table: Table) -> Conflict:
        """What a changeset leaves out of a row that was updated, since it stayed as it was, is in our own list."""
        key = _key_of(change, table)
        own = self._old.get((folded(table.name), key))
        base = ours = None
        if own is not None:
            base = None if own.old is None else dict(zip(own.old_columns, own.old, strict=True))
            ours = None if own.new is None else dict(zip(own.new_columns, own.new, strict=True))
        theirs = None
        if reason in {apsw.SQLITE_CHANGESET_DATA, apsw.SQLITE_CHANGESET_CONFLICT} and change.conflict is not None:
            theirs = dict(zip(table.columns, _stored(table, change.conflict), strict=True))
        words = {
            apsw.SQLITE_CHANGESET_CONFLICT: "inserted",
            apsw.SQLITE_CHANGESET_CONSTRAINT: "constraint",
        }.get(reason, "changed")
        return Conflict(table.name, key, words, base, ours, theirs)

    def _check_foreign_keys(self, db: apsw.Connection, tables: dict[str, Table], here: View, there: View) -> None:
        """SQLite has counted rows that refer to nothing, and now all are looked through. Raises Diverged for one that
        neither side has got."""
        ours = _violations(here.connection)
        for table, rowid, parent, which in _violations(db) - _violations(there.connection):
            own = tables.get(folded(table))
            if own is not None and (table, self._rowid_here(db, own, rowid, here), parent, which) in ours:
                continue
            raise Diverged(f"row {rowid!r} of table {table} would refer to a row of {parent} that is gone: {_WAY_OUT}")

    def _rowid_here(self, db: apsw.Connection, table: Table, rowid: Value, here: View) -> Value:
        """The rowid that the row has on this side; None for none."""
        if not table.key:
            return next((old for name, old, new in self.report.renumbered if (name, new) == (table.name, rowid)), rowid)
        if table.without_rowid:
            return None
        name, key = quoted(table.name), [quoted(column) for column in table.key]
        values = db.execute(f"SELECT {', '.join(key)} FROM {name} WHERE {table.rowid} = ?", (rowid,)).fetchone()
        same = " AND ".join(f"{column} IS ?" for column in key)
        found = here.connection.execute(f"SELECT {table.rowid} FROM {name} WHERE {same}", values).fetchone()
        return None if found is None else found[0]


_DEFERRED: Final = "PRAGMA defer_foreign_keys = ON"
"""Rows come in an order of their own."""
_WAY_OUT: Final = "keep both with `budwood fork`, or see `budwood reset`"


def _check_writable(view: View) -> None:
    """Raises BadInput unless SQLite could write it through the VFS."""
    if view.empty:
        raise BadInput(f"volume {view.name!r} holds no SQLite database at {view.snapshot.label}: {_WAY_OUT}")
    own, size = view.header.page_size, view.snapshot.page_size
    if own != size:
        raise BadInput(f"volume {view.name!r} has pages of {size} bytes and its database of {own}: {_WAY_OUT}")


def _are_foreign_keys_sound(view: View, tables: Iterable[Table]) -> bool:
    """Whether each refers to a table, and to a key of it. Otherwise SQLite, while it enforces them, refuses every
    statement that changes a row of the one or the other table."""
    db = view.connection
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    db.execute("PRAGMA foreign_keys = ON")
    try:
        for table in tables:
            name = quoted(table.name)
            db.execute(f"EXPLAIN INSERT INTO {name} DEFAULT VALUES; EXPLAIN DELETE FROM {name}").fetchall()
    except apsw.SQLError:
        return False
    return True


def _violations(db: apsw.Connection) -> set[Violation]:
    found = set[Violation]()
    for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        try:
            sql = 'SELECT "table", rowid, parent, fkid FROM pragma_foreign_key_check(?)'
            for table, rowid, parent, which in db.execute(sql, (name,)):
                found.add((cast("str", table), rowid, cast("str", parent), which))
        except apsw.SQLError:
            # What it refers to is no key, so that SQLite can't say of a row whether it refers to one.
            continue
    return found


def _key_of(change: apsw.TableChange, table: Table) -> Values:
    row = change.old if change.old is not None else change.new
    assert row is not None
    if not table.key:
        return (_rowid_of(row),)
    values = dict(zip(table.columns, row, strict=True))
    return tuple(cast("Value", values[column]) for column in table.key)


def _rowid_of(row: Recorded | None) -> int:
    assert row is not None
    return int(str(row[0]))


def _stored(table: Table, row: Recorded | None) -> Values:
    """A whole row, without the rowid that stands first where there is no declared key."""
    assert row is not None
    return tuple(cast("Value", value) for value in (row if table.key else row[1:]))


def _same(one: dict[str, Value] | None, other: dict[str, Value] | None) -> bool:
    return repr(one) == repr(other)


def _words(found: Conflict) -> str:
    row = f"row {', '.join(map(repr, found.key))} of table {found.table}"
    if found.reason == "constraint":
        return f"{row} breaks a constraint on the remote's newest"
    if found.reason == "inserted":
        return f"{row} was inserted here and on the remote"
    return f"{row} was changed here and {'changed' if found.theirs is not None else 'removed'} on the remote"
