"""Replay over schemas and statements at random, sound and unsound: it applies what was done, or refuses in words and
changes nothing; and who has the database open meanwhile reads and writes what is there.

REPLAY_SEEDS=N makes N cases instead of 40; each is decided by its seed.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Final

import apsw
import pytest

import budwood
from budwood.rows.replay import replay
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import BadInput, Diverged

SEEDS: Final = int(os.environ.get("REPLAY_SEEDS", "40"))
TYPES: Final = ("INT", "TEXT", "REAL", "BLOB", "", "NUMERIC", "VARCHAR(3)")
STRICT_TYPES: Final = ("INT", "TEXT", "REAL", "BLOB", "ANY")
NAMES: Final = ("t", "T ", "é", "it's")
KEYS: Final = (
    "a PRIMARY KEY",
    "a INTEGER PRIMARY KEY",
    "a INTEGER PRIMARY KEY AUTOINCREMENT",
    "a TEXT PRIMARY KEY COLLATE NOCASE",
    "a",
    "a TEXT NOT NULL",
)
STRICT_KEYS: Final = ("a INT PRIMARY KEY", "a INTEGER PRIMARY KEY", "a TEXT PRIMARY KEY", "a INT")
MORE: Final = ("", " UNIQUE", " NOT NULL DEFAULT 3", " CHECK(b IS NOT 7)", " DEFAULT 'x'", " COLLATE NOCASE")
ENCODINGS: Final = ("", "PRAGMA encoding = 'UTF-16le'", "PRAGMA page_size = 1024")
VALUES: Final = (
    *("NULL", "1", "2", "3", "7", "'1'", "'a'", "'A'", "1.5", "x'61'", "-0.0", "9e999", "''", "'é'"),
    *("CAST(x'ff61' AS TEXT)", "CAST(x'fe' AS TEXT)", "zeroblob(3000)"),
)


def schema(chance: random.Random) -> tuple[list[str], list[str]]:
    """Statements; and the tables' names, quoted."""
    tables = [f'"{chance.choice(NAMES)}{number}"' for number in range(chance.randint(1, 4))]
    made = list[str]()
    for number, table in enumerate(tables):
        strict, without_rowid = chance.random() < 0.2, chance.random() < 0.25
        types = STRICT_TYPES if strict else TYPES
        key, both = chance.choice(STRICT_KEYS if strict else KEYS), False
        if without_rowid and ("PRIMARY" not in key or "AUTO" in key):
            key, both = "a INT", True
        to = chance.choice(tables) if chance.random() < 0.7 else "nowhere"
        refers = chance.choice(("", "(a)", "(b)", " ", "(a) ON DELETE CASCADE", "(a) DEFERRABLE INITIALLY DEFERRED"))
        columns = [
            key,
            f"b {chance.choice(types)}{'' if strict else chance.choice(MORE)}",
            f"c {chance.choice(types)}{f' REFERENCES {to}{refers}' if refers else ''}",
        ]
        if chance.random() < 0.3:
            columns.append(f"g {'ANY' if strict else ''} AS (a || '-') {chance.choice(('STORED', 'VIRTUAL'))}")
        if both:
            columns.append("PRIMARY KEY(a, b)")
        options = ", ".join([*["STRICT"] * strict, *["WITHOUT ROWID"] * without_rowid])
        made.append(f"CREATE TABLE {table}({', '.join(columns)}) {options}")
        if chance.random() < 0.3:
            unique, by = chance.choice(("", "UNIQUE")), chance.choice(("b", "c, b", "b || c", "b COLLATE NOCASE"))
            made.append(
                f"CREATE {unique} INDEX i{number} ON {table}({by}) {chance.choice(('', 'WHERE b IS NOT NULL'))}"
            )
        if chance.random() < 0.2:
            made.append(f"CREATE VIEW v{number} AS SELECT * FROM {chance.choice((table, 'nosuch'))}")
        if chance.random() < 0.2:
            what, other = chance.choice(("INSERT", "UPDATE", "DELETE")), chance.choice((*tables, "nosuch"))
            made.append(f"CREATE TRIGGER g{number} AFTER {what} ON {table} BEGIN DELETE FROM {other} WHERE a = 3; END")
    return made, tables


def change(chance: random.Random, tables: list[str]) -> str:
    table, kind = chance.choice(tables), chance.random()
    either = chance.choice(("IGNORE", "REPLACE", "ABORT"))

    def value() -> str:
        return chance.choice(VALUES)

    if kind < 0.5:
        return f"INSERT OR {either} INTO {table}(a, b, c) VALUES ({value()}, {value()}, {value()})"
    if kind < 0.75:
        where = f"{chance.choice('abc')} {chance.choice(('=', '<>', 'IS', '>'))} {value()}"
        return f"UPDATE OR {either} {table} SET {chance.choice('abc')} = {value()} WHERE {where}"
    if kind < 0.92:
        return f"DELETE FROM {table} WHERE {chance.choice('abc')} IS {value()}"
    number = chance.randint(0, 3)
    return chance.choice(
        (
            f"CREATE INDEX IF NOT EXISTS x{number} ON {table}({chance.choice('abc')})",
            f"CREATE TABLE IF NOT EXISTS n{number}(a, b, c)",
            f"DROP TABLE {table}",
            f"ALTER TABLE {table} ADD COLUMN z{number} DEFAULT 4",
            "VACUUM",
            "ANALYZE",
        )
    )


def run(db: apsw.Connection, statements: Iterable[str]) -> None:
    for sql in statements:
        with suppress(apsw.Error):
            db.execute(sql).fetchall()


def rows(db: apsw.Connection) -> dict[str, list[str]]:
    """Of each table; any text can be read so."""
    names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'").fetchall()
    each = ", ".join(f"typeof({column}), hex(CAST({column} AS BLOB))" for column in "abc")
    return {str(name): sorted(map(repr, db.execute(f"SELECT {each} FROM {quoted(str(name))}"))) for (name,) in names}


def quoted(name: str) -> str:
    return f'"{name}"'


@pytest.mark.parametrize("seed", range(SEEDS))
def test_it_applies_or_refuses_and_who_has_it_open_goes_on(seed: int) -> None:
    chance = random.Random(seed)
    made, tables = schema(chance)

    def changes(least: int, most: int) -> list[str]:
        return [change(chance, tables) for _ in range(chance.randint(least, most))]

    with tempfile.TemporaryDirectory() as folder:
        homes, remote = [f"{folder}/one", f"{folder}/two"], f"file://{folder}/store"
        with closing(budwood.connect("v", home=homes[0], remote=remote)) as one:
            run(one, [chance.choice(ENCODINGS), *made, *changes(0, 20)])
            one.execute("CREATE TABLE always(a, b, c); PRAGMA budwood_push")
            with closing(budwood.connect("v", home=homes[1], remote=remote)) as two:
                assert rows(two) == rows(one)
                run(one, changes(1, 8))
                one.execute("INSERT INTO always(a) VALUES (1); PRAGMA budwood_push")
                run(two, ["PRAGMA foreign_keys = ON"] * (chance.random() < 0.3) + changes(1, 8))
                before = rows(two)
                with open_edge(home=homes[1], remote=remote) as edge:
                    volume = edge.volume("v")
                    lsn = volume.status(count=False)["lsn"]
                    refused = ""
                    try:
                        replay(volume, chance.choice(("ours", "theirs", "abort")))
                    except (BadInput, Diverged) as error:
                        refused = str(error)
                    if refused:
                        assert "\n" not in refused
                        assert (rows(two), volume.status(count=False)["lsn"]) == (before, lsn)
                run(two, changes(1, 8))
                assert two.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                with closing(budwood.connect("v", home=homes[1], remote=remote)) as fresh:
                    assert rows(fresh) == rows(two)
                    assert fresh.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
