"""A SQLite file whose pages have rotted is told before it is everyone's; what its owner left so is taken as it is."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from budwood.sync.edge import open as open_edge
from budwood.volume.errors import Corrupt

from .cli import Command

PAGE = 4096
ROWS = """
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT NOT NULL CHECK (length(b) > 0));
CREATE INDEX i ON t(b);
WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
INSERT INTO t SELECT i, printf('%0100d', i) FROM n;
DELETE FROM t WHERE a BETWEEN 1000 AND 1500;
"""


@pytest.fixture
def user(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    return Command(capsys, tmp_path / "home")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Its name has what a URI would take for its own."""
    path = tmp_path / "a #1? 100%.db"
    with closing(apsw.Connection(str(path))) as db:
        db.execute(f"PRAGMA page_size = {PAGE}")
        db.execute(ROWS)
    return path


def roots(path: Path) -> dict[str, int]:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        return {str(name): int(str(page)) for name, page in db.execute("SELECT name, rootpage FROM sqlite_schema")}


def overwrite(path: Path, page: int, data: bytes, offset: int = 0) -> None:
    with path.open("r+b") as opened:
        opened.seek((page - 1) * PAGE + offset)
        opened.write(data)


def zeroed_leaf(path: Path) -> None:
    overwrite(path, last_leaf(path), bytes(PAGE))


def rotten_leaf(path: Path) -> None:
    overwrite(path, last_leaf(path), random.Random(7).randbytes(PAGE))


def rotten_root(path: Path) -> None:
    overwrite(path, roots(path)["t"], bytes(PAGE))


def rotten_index(path: Path) -> None:
    overwrite(path, roots(path)["i"], random.Random(7).randbytes(200), 12)


def rotten_schema(path: Path) -> None:
    overwrite(path, 1, bytes(100), 100)


def rotten_free_list(path: Path) -> None:
    overwrite(path, 1, (3).to_bytes(4), 32)


def last_leaf(path: Path) -> int:
    """The right-most child of the table's root."""
    raw = path.read_bytes()
    at = (roots(path)["t"] - 1) * PAGE
    assert raw[at] == 5
    return int.from_bytes(raw[at + 8 : at + 12])


@pytest.mark.parametrize(
    "damage", [zeroed_leaf, rotten_leaf, rotten_root, rotten_index, rotten_schema, rotten_free_list]
)
def test_a_rotten_page_is_told_and_the_file_is_imported_if_told(
    user: Command, file: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(file)
    before = file.read_bytes()
    line = user("import", str(file), "v").line()
    assert line.startswith(f"{file} is damaged: ")
    assert "--no-check" in line
    assert user.ok("ls", "--json") == "[]\n"
    with open_edge(home=user.home) as edge, pytest.raises(Corrupt) as told:
        edge.import_(file, "v")
    assert told.value.key == str(file)
    user.ok("import", str(file), "v", "--no-check")
    user.ok("export", "v", str(tmp_path / "out"))
    # Counters of page 1 are the volume's own.
    assert (tmp_path / "out").read_bytes()[PAGE:] == before[PAGE:]
    assert sorted(os.listdir(tmp_path)) == sorted([file.name, "home", "out"]), "nothing is left beside it"


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_sound_file_is_imported_without_a_word_more(user: Command, file: Path, tmp_path: Path, mode: str) -> None:
    with closing(apsw.Connection(str(file))) as db:
        db.pragma("journal_mode", mode)
    assert (user("import", str(file), "v").err == "") == (mode == "delete")
    assert user.ok("sql", "v", "SELECT count(*) FROM t") == "2499\n"
    assert sorted(os.listdir(tmp_path)) == sorted([file.name, "home"])


def test_rows_that_the_schema_forbids_are_their_owner_s(user: Command, file: Path) -> None:
    with closing(apsw.Connection(str(file))) as db:
        db.execute("PRAGMA ignore_check_constraints = ON; UPDATE t SET b = '' WHERE a = 7")
    user.ok("import", str(file), "checked")
    with closing(apsw.Connection(str(file))) as db:
        db.execute("CREATE TABLE n(a); INSERT INTO n VALUES (NULL); PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_schema SET sql = 'CREATE TABLE n(a NOT NULL)' WHERE name = 'n'")
    said = user("import", str(file), "v")
    assert said.code == 0
    assert "NULL value in n.a" in said.err


def test_a_collation_that_its_application_brings_is_no_damage(user: Command, file: Path) -> None:
    with closing(apsw.Connection(str(file))) as db:
        db.create_collation("ours", lambda one, other: (one > other) - (one < other))
        db.execute("CREATE TABLE c(a COLLATE ours UNIQUE); INSERT INTO c VALUES ('x'), ('y')")
    assert user("import", str(file), "v").code == 0
    assert user.ok("sql", "v", "SELECT count(*) FROM t") == "2499\n"
