"""Replay against an oracle: rows as a three-way merge of dicts says, and each row that a policy decided is named.

Two homes start from one snapshot and do what they want; one pushes, the other replays. Changes to different rows are
both there afterwards, as if made in sequence; of a row that both have changed to different ends, one is there, as the
policy says, and the report names it, and no other.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Literal

import apsw
from hypothesis import given, settings
from hypothesis import strategies as st

import budwood
from budwood.rows.replay import Conflict, Policy, replay
from budwood.sqlite.record import Value
from budwood.sync.edge import open as open_edge

SCHEMA = """
CREATE TABLE number(id INTEGER PRIMARY KEY AUTOINCREMENT, a, b TEXT DEFAULT 'x', c AS (a || b) STORED);
CREATE TABLE word(w TEXT PRIMARY KEY, a, b REAL);
CREATE TABLE pair(a INT, b TEXT, c, PRIMARY KEY(b, a)) WITHOUT ROWID;
CREATE TABLE heap(a);
CREATE INDEX word_a ON word(a);
CREATE TABLE seen(n INT);
CREATE TRIGGER number_seen AFTER INSERT ON number BEGIN INSERT INTO seen VALUES (new.id); END;
"""
KEYS = {"number": "id", "word": "w", "pair": "b, a"}
VALUE = {"number": "a", "word": "a", "pair": "c"}

values: st.SearchStrategy[Value] = st.one_of(
    st.integers(-3, 3), st.sampled_from(["", "a", "b" * 3000]), st.sampled_from([1.0, -0.0]), st.none()
)
steps = st.tuples(
    st.sampled_from(["put", "put", "put", "delete", "heap"]), st.sampled_from([*KEYS]), st.integers(1, 30), values
)
Step = tuple[str, str, int, Value]
Key = tuple[Value, ...]
State = dict[tuple[str, Key], tuple[tuple[str, str], ...]]


def run(db: apsw.Connection, step: Step) -> None:
    what, table, n, value = step
    keys: dict[str, Key] = {"number": (n,), "word": (f"k{n}",), "pair": (f"k{n % 3}", n)}
    key = keys[table]
    names = KEYS[table].split(", ")
    if what == "heap":
        db.execute("INSERT INTO heap VALUES (?)", (value,))
    elif what == "delete":
        db.execute(f"DELETE FROM {table} WHERE {' AND '.join(f'{name} = ?' for name in names)}", key)
    else:
        columns, places = ", ".join([*names, VALUE[table]]), ", ".join("?" * (len(key) + 1))
        sets = f"{VALUE[table]} = excluded.{VALUE[table]}"
        sql = f"INSERT INTO {table}({columns}) VALUES ({places}) ON CONFLICT({KEYS[table]}) DO UPDATE SET {sets}"
        db.execute(sql, (*key, value))


def state(db: apsw.Connection) -> State:
    found: State = {}
    for table, names in KEYS.items():
        width = names.count(",") + 1
        for row in db.execute(f"SELECT {names}, {VALUE[table]}, b FROM {table}"):
            found[table, tuple(row[:width])] = tuple((type(value).__name__, repr(value)) for value in row[width:])
    return found


def heap(db: apsw.Connection) -> Counter[str]:
    """And what the trigger has written, once for each row that was inserted."""
    return Counter(repr(row) for row in db.execute("SELECT 'heap', a FROM heap UNION ALL SELECT 'seen', n FROM seen"))


def by_parity(conflict: Conflict) -> Literal["ours", "theirs"]:
    return "ours" if len(str(conflict.key)) % 2 else "theirs"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(steps, max_size=25),
    st.lists(steps, max_size=12),
    st.lists(steps, max_size=12),
    st.sampled_from(["ours", "theirs", by_parity]),
    st.booleans(),
)
def test_what_both_have_changed_is_there_and_what_a_policy_decided_is_named(
    first: list[Step],
    theirs: list[Step],
    ours: list[Step],
    policy: Literal["ours", "theirs"] | Policy,
    disjoint: bool,
) -> None:
    if disjoint:
        theirs = [(what, table, n * 2, value) for what, table, n, value in theirs]
        ours = [(what, table, n * 2 + 1, value) for what, table, n, value in ours]
    with tempfile.TemporaryDirectory() as folder:
        remote = f"file://{folder}/store"
        homes = [Path(folder) / name for name in ("one", "two")]
        with closing(budwood.connect("v", home=homes[0], remote=remote)) as one:
            one.execute(f"PRAGMA page_size = 1024; {SCHEMA}")
            for step in first:
                run(one, step)
            one.execute("PRAGMA budwood_push")
            with closing(budwood.connect("v", home=homes[1], remote=remote)) as two:
                base, base_heap = state(two), heap(two)
                for step in theirs:
                    run(one, step)
                # It has moved on, whatever it did.
                one.execute("PRAGMA user_version = 7; PRAGMA budwood_push")
                for step in ours:
                    run(two, step)
                local, there = state(two), state(one)
                expected, decided = merged(base, local, there, policy)
                heaps = heap(one) + (heap(two) - base_heap)
                with open_edge(home=homes[1], remote=remote) as edge:
                    report = replay(edge.volume("v"), policy)
                assert {(each.conflict.table, each.conflict.key): each.choice for each in report.decided} == decided
                assert not (disjoint and decided)
                assert state(two) == expected
                assert heap(two) == heaps
                assert two.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                two.execute("PRAGMA budwood_push")
                one.execute("PRAGMA budwood_pull")
                assert (state(one), heap(one)) == (expected, heaps)


def merged(
    base: State, ours: State, theirs: State, policy: Literal["ours", "theirs"] | Policy
) -> tuple[State, dict[tuple[str, Key], str]]:
    """Row by row; and those that the policy decides, with what it says."""
    expected, decided = State(), dict[tuple[str, Key], str]()
    for at in base.keys() | ours.keys() | theirs.keys():
        was, own, other = base.get(at), ours.get(at), theirs.get(at)
        row = other
        if own not in (was, other):
            choice = "ours"
            if other != was:
                table, key = at
                choice = policy if isinstance(policy, str) else policy(Conflict(table, key, "", None, None, None))
                decided[at] = choice
            row = own if choice == "ours" else other
        if row is not None:
            expected[at] = row
    return expected, decided
