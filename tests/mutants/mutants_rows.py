"""Mutants of rows that differ, and of replay."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

CHANGES: Final = "tests/property/test_row_changes.py"
CASES: Final = "tests/integration/test_row_changes.py"
DIFF: Final = "tests/integration/test_diff.py"
REPLAY: Final = "tests/integration/test_replay.py"
MERGED: Final = "tests/property/test_replay.py"
MIXED: Final = "tests/property/test_mixed.py"
PAGES: Final = "tests/property/test_merge.py"

MUTANTS: Final = (
    Mutant(
        "mixed: a fork of what the remote has never heard of has that for its parent",
        "sync/fork.py",
        "(origin.vid, head.sync_remote) if origin.created else (origin.parent, origin.parent_lsn)\n",
        "(origin.vid, head.sync_remote)\n",
        (MIXED,),
    ),
    Mutant(
        "merge: what was cut off here is not changed here",
        "sync/merge.py",
        "    if head.floor < base:\n",
        "    if False:\n",
        (PAGES,),
    ),
    Mutant(
        "merge: a page that both changed is ours",
        "sync/merge.py",
        "    if both:\n",
        "    if False:\n",
        (PAGES,),
    ),
    Mutant(
        "merge: of two lengths ours is taken",
        "sync/merge.py",
        "    if head.length != base != to.length and head.length != to.length:\n",
        "    if False:\n",
        (PAGES,),
    ),
    Mutant(
        "rows: a page that changed holds the same rows",
        "rows/candidates.py",
        "same = (PageSet(one.rows) & PageSet(other.rows)) - self.changed",
        "same = PageSet(one.rows) & PageSet(other.rows)",
        (CHANGES,),
    ),
    Mutant(
        "rows: what was overwritten in its overflow pages is passed over",
        "rows/candidates.py",
        "if self._overwritten else iter(())",
        "if False else iter(())",
        (DIFF, "-k", "overwritten"),
    ),
    Mutant(
        "rows: a cell that stayed as it was is a row that did, whatever its overflow pages say",
        "rows/candidates.py",
        "None if cell.overflow else cell.local",
        "cell.local",
        (CASES, CHANGES),
    ),
    Mutant(
        "rows: WITHOUT ROWID a record that is another than it was is the same",
        "rows/candidates.py",
        '                if left.get(key, b"") == record:\n',
        "                if key in left:\n",
        (CASES, CHANGES),
    ),
    Mutant(
        "rows: a rowid that is in both trees is one row",
        "rows/candidates.py",
        " or records[0] != records[1]:\n",
        ":\n",
        (CASES, CHANGES),
    ),
    Mutant(
        "rows: a row that got another rowid is another row",
        "rows/row_changes.py",
        "    if not keyed:\n",
        "    if True:\n",
        (CASES, CHANGES),
    ),
    Mutant(
        "rows: 1 and 1.0 are the same",
        "rows/columns.py",
        "    return [(type(value), repr(value) if isinstance(value, float) else value) for value in values]",
        "    return [(int, value) for value in values]",
        (DIFF, "-k", "told_apart"),
    ),
    Mutant(
        "rows: a row whose key is spelled otherwise is told twice",
        "rows/row_changes.py",
        "return found is not None and (not self.table.without_rowid or self.key_of(found[1]) == key)",
        "return found is not None",
        (CASES, CHANGES),
    ),
    Mutant(
        "rows: a column that has come is compared with its default as it is written",
        "rows/columns.py",
        'quoted(column.declared) if column.declared else ""',
        '""',
        (CASES, CHANGES),
    ),
    Mutant(
        "changeset: a row whose key is spelled otherwise is updated",
        "rows/changeset.py",
        "respelled if self._is_respelled(change) else comes",
        "comes",
        (CASES,),
    ),
    Mutant(
        "replay: keys that refer to no table are enforced",
        "rows/replay.py",
        "PRAGMA foreign_keys = {'OFF' if self._may_dangle else 'ON'}",
        "PRAGMA foreign_keys = {'ON' if self._may_dangle else 'ON'}",
        (REPLAY, "-k", "nobody_has_enforced"),
    ),
    Mutant(
        "replay: a row that refers to nothing is known by its rowid",
        "rows/replay.py",
        "self._rowid_here(db, own, rowid, here)",
        "rowid",
        (REPLAY, "-k", "refer_to_nothing"),
    ),
    Mutant(
        "replay: what refers to nothing here already is told",
        "rows/replay.py",
        "parent, which) in ours:",
        "parent, which) in ours and not own.name:",
        (REPLAY, "-k", "nobody_has_enforced"),
    ),
    Mutant(
        "changeset: a text that isn't valid goes in as its bytes",
        "sqlite/invalid_text.py",
        '"CAST(? AS TEXT)", value.encode(',
        '"?", value.encode(',
        (REPLAY, "-k", "is_none"),
    ),
    Mutant(
        "rows: those before one with a text that isn't valid come again",
        "rows/row_changes.py",
        "came, None)",
        "0, None)",
        (DIFF, "-k", "is_none"),
    ),
    Mutant(
        "changeset: a key's collation is its column's",
        "rows/changeset.py",
        "[1].upper() != part.collation.upper():",
        "[1] is None:",
        (CASES,),
    ),
    Mutant(
        "rows: keys are told apart by their columns' collations",
        "rows/row_changes.py",
        "{quoted(part.column)} = ? COLLATE {quoted(part.collation)}",
        "{quoted(part.column)} = ?",
        (CASES,),
    ),
    Mutant(
        "rows: the same record is the same row, wherever its columns are",
        "rows/row_changes.py",
        "if columns[name].same_records}",
        "}",
        (CASES,),
    ),
    Mutant(
        "rows: pages of the volume are the database's",
        "rows/row_changes.py",
        "pages = rescaled(changed, after.snapshot.page_size, after.header.page_size)",
        "pages = changed",
        (CASES,),
    ),
    Mutant(
        "replay: triggers fire a second time",
        "rows/replay.py",
        "            db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)\n",
        "",
        (MERGED,),
    ),
    Mutant(
        "replay: rows may refer to what is gone",
        "rows/replay.py",
        "                self._may_dangle = True\n",
        "",
        (REPLAY, "-k", "foreign"),
    ),
    Mutant(
        "replay: two rows at one rowid are a conflict",
        "rows/replay.py",
        "        if reason == apsw.SQLITE_CHANGESET_CONFLICT and not table.key:\n",
        "        if False:\n",
        (MERGED,),
    ),
    Mutant(
        "replay: what a program has committed meanwhile is dropped",
        "sync/rebase.py",
        "                raise _MovedOn\n",
        "                pass\n",
        (REPLAY, "-k", "meanwhile"),
    ),
    Mutant(
        "replay: the remote's pages that changed are read as they were",
        "sync/rebase.py",
        "changed = decode_pages(connection.url, changes.pages) | touched(now)",
        "changed = touched(now)",
        (MERGED,),
    ),
)
