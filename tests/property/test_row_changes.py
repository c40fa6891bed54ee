"""Row changes against an oracle that reads every row of both states: whatever was done between them, and whichever
pages are said to have changed beside those that did."""

from __future__ import annotations

import tempfile
from contextlib import closing, suppress
from pathlib import Path

import apsw
from hypothesis import given, settings
from hypothesis import strategies as st

import budwood
from budwood.rows.candidates import all_pages_that_differ
from budwood.rows.changeset import changeset
from budwood.rows.row_changes import RowChange, row_changes
from budwood.rows.table import tables_of
from budwood.rows.view import View
from budwood.sqlite.record import Value
from budwood.sync.edge import open as open_edge
from budwood.volume.pageset import PageSet

SCHEMA = """
CREATE TABLE number(id INTEGER PRIMARY KEY, a, b TEXT DEFAULT 'x');
CREATE TABLE word(w TEXT PRIMARY KEY, a, b REAL);
CREATE TABLE pair(a INT, b TEXT COLLATE NOCASE, c, PRIMARY KEY(b, a)) WITHOUT ROWID;
CREATE TABLE heap(a, b, c AS (a || 'g') STORED, d AS (length(b)));
CREATE INDEX heap_b ON heap(b);
"""
TABLES = ("number", "word", "pair", "heap")
TYPES = ("", "TEXT", "REAL")
DEFAULTS = ("5", "'5'", "5.0")
KEYS = {"number": ("id",), "word": ("w",), "pair": ("b", "a"), "heap": ()}

numbers = st.integers(0, 40)


def long(letter: str, size: int) -> str:
    return letter * size


def long_blob(letter: bytes, size: int) -> bytes:
    return letter * size


lengths = st.sampled_from([0, 3, 60, 700, 5000])
values: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, 2.5]),
    st.builds(long, st.sampled_from("abA"), lengths),
    st.builds(long_blob, st.sampled_from([b"a", b"b"]), lengths),
)

Step = tuple[str, int, int, Value]
steps = st.tuples(
    st.sampled_from(
        [
            *("insert", "insert", "insert", "replace", "update", "delete", "many", "overwrite"),
            *("vacuum", "column", "anew", "respell", "rename", "spoil"),
        ]
    ),
    st.integers(0, len(TABLES) - 1),
    numbers,
    values,
)


def run(db: apsw.Connection, step: Step) -> None:
    what, at, n, value = step
    table, text = TABLES[at], f"k{n}"
    # A key that is there already, or a column.
    with suppress(apsw.ConstraintError, apsw.SQLError):
        match what:
            case "insert" | "replace":
                verb = "INSERT OR REPLACE" if what == "replace" else "INSERT"
                key: Value = text if n % 7 else None
                columns, row = {
                    "number": ("id, a", (n, value)),
                    "word": ("w, a", (key, value)),
                    "pair": ("a, b", (n, text)),
                    "heap": ("a, b", (n, value)),
                }[table]
                db.execute(f"{verb} INTO {table}({columns}) VALUES (?, ?)", row)
            case "update":
                db.execute(f"UPDATE {table} SET {'c' if table == 'pair' else 'a'} = ? WHERE a % 5 = ? % 5", (value, n))
            case "spoil":
                # A text of bytes that are none.
                spoilt = f"{'c' if table == 'pair' else 'a'} = CAST(x'61ff' AS TEXT)"
                db.execute(f"UPDATE {table} SET {spoilt} WHERE a % 5 = ? % 5", (n,))
            case "delete":
                db.execute(f"DELETE FROM {table} WHERE a = ? OR a IS ?", (n, value))
            case "many" if table == "number":
                some = "WITH RECURSIVE c(x) AS (SELECT 100 UNION ALL SELECT x + 1 FROM c WHERE x < 600)"
                db.execute(f"{some} INSERT OR IGNORE INTO number(id, a) SELECT x * ? + 41, ? FROM c", (n + 1, value))
            case "overwrite":
                # In its overflow pages alone, where there are some.
                long = "SELECT id, length(a) FROM number WHERE typeof(a) = 'blob' AND length(a) > 4000"
                for rowid, size in db.execute(long).fetchall():
                    with closing(db.blob_open("main", "number", "a", int(str(rowid)), True)) as blob:
                        blob.seek(int(str(size)) - 1 - n)
                        blob.write(b"!")
            case "vacuum":
                db.execute("VACUUM")
            case "column":
                db.execute(f"ALTER TABLE {table} ADD COLUMN z{n} {TYPES[n % 3]} DEFAULT 5")
            case "respell":
                db.execute("UPDATE pair SET b = upper(b) WHERE a % 3 = ? % 3", (n,))
            case "rename" if table == "number":
                (old,) = [name for (name,) in db.execute("SELECT name FROM pragma_table_info('number') WHERE cid = 2")]
                db.execute(f"ALTER TABLE number RENAME COLUMN {old} TO b_{n}")
            case "anew" if n % 3 == 0:
                db.execute("DROP TABLE heap; CREATE TABLE heap(a, b); CREATE TABLE IF NOT EXISTS other(a, b)")
            case _:
                pass


def state(view: View) -> dict[str, dict[tuple[object, ...], dict[str, Value]]]:
    """Of each table each row by what it is known by, and its values by their columns; b_3 is what was b, or b_2."""
    found = dict[str, dict[tuple[object, ...], dict[str, Value]]]()
    for (table,) in view.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        listed = view.connection.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,))
        columns = [str(name) for name, hidden in listed if not hidden]
        names = [name.partition("_")[0] for name in columns]
        key = KEYS.get(str(table), ())
        rows = found.setdefault(str(table), {})
        rowid = "NULL" if table == "pair" else "rowid"
        for at, *read in view.connection.execute(f"SELECT {rowid}, {as_hex(columns)} FROM {table}"):
            row = [text_of(value) if isinstance(value, str) else value for value in read]
            named = dict(zip(names, row, strict=True))
            known = tuple(_folded(str(table), column, named[column]) for column in key)
            rows[known if key and None not in known else ("rowid", at)] = named
    return found


def as_hex(columns: list[str]) -> str:
    """As they are, but for texts: any can be read so."""
    return ", ".join(f"iif(typeof({column}) = 'text', hex({column}), {column})" for column in columns)


def text_of(hexadecimal: str) -> str:
    return bytes.fromhex(hexadecimal).decode(errors="surrogateescape")


def _folded(table: str, column: str, value: Value) -> Value:
    return value.lower() if (table, column) == ("pair", "b") and isinstance(value, str) else value


def identity(change: RowChange) -> tuple[object, ...]:
    key, row = KEYS.get(change.table, ()), change.new or change.old
    columns = change.new_columns if change.new is not None else change.old_columns
    assert row is not None
    known = tuple(_folded(change.table, column, row[columns.index(column)]) for column in key)
    return known if key and None not in known else ("rowid", change.rowid)


def shown(row: dict[str, Value]) -> dict[str, str]:
    return {column: repr(value) for column, value in row.items()}


def expected(old: View, new: View) -> set[tuple[str, tuple[object, ...], str]]:
    before, after = state(old), state(new)
    found = set[tuple[str, tuple[object, ...], str]]()
    for table in before.keys() | after.keys():
        gone, come = before.get(table, {}), after.get(table, {})
        for key in gone.keys() | come.keys():
            if key not in come:
                found.add((table, key, "delete"))
            elif key not in gone:
                found.add((table, key, "insert"))
            else:
                one, other = shown(gone[key]), shown(come[key])
                both = one.keys() & other.keys()
                fresh = other.keys() - one.keys()
                added = [column for column in fresh if other[column] != DEFAULTS[int(column[1:]) % 3]]
                if added or any(one[column] != other[column] for column in both):
                    found.add((table, key, "update"))
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=25), st.lists(steps, max_size=12), st.integers(0, 2), st.sets(st.integers(1, 60)))
def test_each_row_that_differs_is_told_once_and_no_other(
    first: list[Step], then: list[Step], vacuum: int, beside: set[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with closing(budwood.connect("v", home=home, remote="")) as db, open_edge(home=home, remote="") as edge:
            db.execute(f"PRAGMA page_size = 1024; PRAGMA auto_vacuum = {vacuum}; {SCHEMA}")
            for step in first:
                run(db, step)
            volume = edge.volume("v")
            with closing(volume.snapshot()) as old:
                for step in then:
                    run(db, step)
                with closing(volume.snapshot()) as new, View("v", old) as before, View("v", new) as after:
                    differing = all_pages_that_differ(before, after)
                    wanted = expected(before, after)
                    for changed in (None, differing, differing | PageSet(beside)):
                        told = [(each.table, identity(each), each.kind) for each in row_changes(before, after, changed)]
                        # SQLite's own tables are told as well.
                        told = [each for each in told if not each[0].startswith("sqlite_")]
                        assert len(told) == len(set(told))
                        assert set(told) == {each for each in wanted if not each[0].startswith("sqlite_")}
                    a_changeset_tells_them_too(before, after, differing)


def a_changeset_tells_them_too(before: View, after: View, differing: PageSet) -> None:
    """Applied to a copy of the one, it makes the other; but for what is said to be left out, and the schema."""
    made = changeset(row_changes(before, after, differing), tables_of(after))
    with closing(apsw.Connection(":memory:")) as copy:
        with copy.backup("main", before.connection, "main") as backup:
            backup.step()
        if made.data:
            apsw.Changeset.apply(made.data, copy)
        found, wanted = rows_of(copy), rows_of(after.connection)
    left_out = {words.split()[1].rstrip(":") for words in made.left_out}
    for table in found.keys() & wanted.keys():
        assert table[0] in left_out or found[table] == wanted[table]


def rows_of(db: apsw.Connection) -> dict[tuple[str, str], list[str]]:
    """By table, and how it is declared."""
    tables = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
    found = dict[tuple[str, str], list[str]]()
    for name, sql in tables:
        columns = [str(column) for (column,) in db.execute("SELECT name FROM pragma_table_xinfo(?)", (name,))]
        rows = db.execute(f"SELECT {as_hex(columns)} FROM {name}")
        found[str(name), str(sql)] = sorted(map(repr, rows))
    return found
