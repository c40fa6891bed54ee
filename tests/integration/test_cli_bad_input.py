"""Bad input: names, files, SQL, stores and homes. The command says what is wrong in one line, and loses nothing.

Each test looks again afterwards: what stood before is read back.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import lmdb
import msgspec
import pytest

from budwood.server.store.root import ROOT_KEY
from budwood.sync.tables import Format, open_row, seal_row
from budwood.volume import envelope

from .cli import Command

ROWS = ["1\tone", "2\ttwo", "3\t"]
READ = "SELECT * FROM t"


@pytest.fixture
def user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """With an unpushed volume `v`, and a store that nothing was sent to."""
    user = Command(capsys, tmp_path / "home", (tmp_path / "store").as_uri())
    user.sql_made("v")
    return user


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A good SQLite file."""
    path = tmp_path / "file.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA user_version = 7; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    return path


def unharmed(user: Command) -> None:
    """The volume `v` is as it was, and alone."""
    assert user.sql("v", READ) == ROWS
    assert [line.split()[0] for line in user.ok("ls").splitlines()] == ["name", "v"]


# Names


UNKNOWN: list[list[str]] = [
    ["status", "nobody"],
    ["log", "nobody"],
    ["sql", "nobody", "CREATE TABLE t (a)"],
    ["shell", "nobody"],
    ["export", "nobody", "out.db"],
    ["clone", "nobody"],
    ["push", "nobody"],
    ["pull", "nobody"],
    ["fetch", "nobody"],
    ["reset", "nobody", "--discard"],
    ["fork", "nobody", "new"],
    ["mv", "nobody", "new"],
    ["rm", "nobody"],
    ["move", "nobody", "--log", "private"],
]


@pytest.mark.parametrize("arguments", UNKNOWN, ids=[case[0] for case in UNKNOWN])
def test_an_unknown_name_is_refused_and_not_created(user: Command, arguments: list[str]) -> None:
    assert "'nobody'" in user(*arguments).line()
    alone = Command(user.capsys, user.home)
    assert "'nobody'" in alone(*arguments).line()
    assert not Path("out.db").exists()
    unharmed(user)


ODD = ["", "/v", "v/", "a//b", ".", "..", "a/../b", "a\nb", "a\x00b", "a\\b", "x" * 1025, "y" * 256, "\udcff"]


@pytest.mark.parametrize("name", ODD, ids=[repr(name)[:12] for name in ODD])
def test_an_odd_name_is_refused(user: Command, file: Path, name: str) -> None:
    for arguments in (["create", name], ["import", str(file), name], ["fork", "v", name], ["mv", "v", name]):
        user(*arguments).line(2)
    unharmed(user)


def test_a_name_may_have_any_letters(user: Command) -> None:
    for name in ("größe", "日本/東京", "a b", "%41?x=1#y&z", "v.db", "-v"):
        user.ok("create", "--", name)
        assert user.sql(name, "CREATE TABLE t (a); INSERT INTO t VALUES (1); SELECT * FROM t") == ["1"]
        user.ok("push", "--", name)


def test_a_taken_name_is_refused(user: Command, file: Path) -> None:
    user.ok("create", "w")
    for arguments in (["create", "v"], ["import", str(file), "v"], ["fork", "w", "v"], ["mv", "w", "v"]):
        assert "'v'" in user(*arguments).line()
    user.ok("rm", "w")
    unharmed(user)


# Files and page sizes


def test_a_page_size_that_is_none_is_refused(user: Command) -> None:
    for size in ("0", "-4096", "1000", "131072"):
        assert "power of two" in user("create", "w", "--page-size", size).line(2)
    user("create", "w", "--page-size", "many").line(2)
    unharmed(user)


def test_a_page_size_is_not_changed_later(user: Command) -> None:
    assert "4096" in user("sql", "v", "PRAGMA page_size = 8192; VACUUM").line(2)
    unharmed(user)


def cut(data: bytes) -> bytes:
    return data[:-1]


def wal_marked(data: bytes) -> bytes:
    return data[:18] + b"\2\2" + data[20:]


def newer(data: bytes) -> bytes:
    return data[:18] + b"\3\3" + data[20:]


def odd_pages(data: bytes) -> bytes:
    return data[:16] + b"\x03\xe8" + data[18:]


BAD_FILES: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("text", lambda _: b"name,count\nbolt,40\n" * 99, "not a SQLite file"),
    ("empty", lambda _: b"", "empty"),
    ("header only", lambda data: data[:50], "cut short"),
    ("cut by a byte", cut, "no multiple of its page size"),
    ("cut by a page", lambda data: data[:4096], "cut short"),
    ("newer", newer, "newer"),
    ("page size 1000", odd_pages, "not a SQLite file"),
]


@pytest.mark.parametrize(("spoil", "words"), [case[1:] for case in BAD_FILES], ids=[case[0] for case in BAD_FILES])
def test_a_file_that_is_no_database_is_refused(
    user: Command, file: Path, spoil: Callable[[bytes], bytes], words: str
) -> None:
    file.write_bytes(spoil(file.read_bytes()))
    said = user("import", str(file), "w")
    assert words in said.line(said.code)
    assert said.code in (1, 2)
    unharmed(user)


def test_a_file_that_cannot_be_read_is_refused(user: Command, tmp_path: Path) -> None:
    assert "No such file" in user("import", str(tmp_path / "nothing"), "w").line(2)
    assert "directory" in user("import", str(tmp_path), "w").line(2)
    unharmed(user)


def test_a_file_in_wal_mode_is_imported_when_it_is_whole(user: Command, file: Path, tmp_path: Path) -> None:
    file.write_bytes(wal_marked(file.read_bytes()))
    said = user("import", str(file), "w")
    assert said.code == 0
    assert "WAL mode" in said.err
    assert said.err.count("\n") == 1
    assert user.sql("w", "SELECT * FROM t; PRAGMA user_version") == ["1", "7"]
    out = tmp_path / "out.db"
    user.ok("export", "w", str(out))
    with closing(sqlite3.connect(out)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_file_whose_commits_lie_in_its_wal_is_refused(user: Command, file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.executescript("PRAGMA journal_mode = WAL; INSERT INTO t VALUES (2)")
        assert "wal_checkpoint" in user("import", str(file), "w").line(2)
    unharmed(user)
    # The last connection to close has moved them into the file.
    assert user("import", str(file), "w").code == 0
    assert user.sql("w", "SELECT * FROM t") == ["1", "2"]


def test_an_export_where_it_cannot_be_written_leaves_nothing_behind(user: Command, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert "exists" in user("export", "v", str(folder)).line()
    user("export", "v", str(tmp_path / "no" / "where.db")).line(2)
    (folder / "x.db-wal").write_bytes(b"x")
    assert "-wal" in user("export", "v", str(folder / "x.db")).line(2)
    assert os.listdir(folder) == ["x.db-wal"]
    unharmed(user)


# SQL


def test_a_wrong_statement_says_what_sqlite_says(user: Command) -> None:
    assert user("sql", "v", "SELEC 1").line() == 'near "SELEC": syntax error'
    assert user("sql", "v", "INSERT INTO t VALUES (1, 'again')").line() == "UNIQUE constraint failed: t.a"
    assert "UTF-8" in user("sql", "v", "SELECT CAST(x'ff' AS TEXT)").line()
    unharmed(user)


def test_a_past_that_never_was_is_refused_and_the_past_is_not_written(user: Command) -> None:
    assert "never pushed" in user("sql", "v", READ, "--lsn", "1").line()
    user.ok("push", "v")
    assert "9" in user("sql", "v", READ, "--lsn", "9").line()
    user("sql", "v", READ, "--lsn", "-1").line(2)
    user("sql", "v", READ, "--lsn", "1", "--at", "2030-01-01").line(2)
    user("sql", "v", "DELETE FROM t", "--lsn", "1").line()
    unharmed(user)


# Stores and homes that are none, or not these


def reseal(path: Path, kind: bytes, *, version: int = envelope.VERSION, features: int = 0) -> None:
    """Make an object look written by a newer or an early program, its checksum right."""
    header = envelope.unseal(path.name, kind, path.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelope, "VERSION", version)
        path.write_bytes(envelope.seal(kind, header, features=features))


def test_a_newer_or_foreign_store_is_refused(user: Command, tmp_path: Path) -> None:
    user.ok("push", "v")
    root = tmp_path / "store" / ROOT_KEY
    good = root.read_bytes()
    for make, words in (
        (partial(reseal, root, envelope.ROOT, version=3), "newer Budwood"),
        (partial(reseal, root, envelope.ROOT, version=1), "early Budwood"),
        (partial(reseal, root, envelope.ROOT, features=4), "newer Budwood"),
        (partial(root.write_bytes, b"<?xml version='1.0'?>" * 9), "not Budwood's"),
    ):
        make()
        other = Command(user.capsys, tmp_path / words[:5], user.options[-1])
        for arguments in (["clone", "v"], ["ls", "--remote"]):
            assert words in other(*arguments).line()
        assert words in user("pull", "v").line()
        root.write_bytes(good)
    assert user.ok("pull", "v")
    unharmed(user)


def test_a_newer_or_foreign_home_is_refused(user: Command, tmp_path: Path) -> None:
    with lmdb.open(str(user.home / "store"), max_dbs=16, map_size=1 << 30) as env:
        meta = env.open_db(b"meta")
        with env.begin(write=True, db=meta) as txn:
            raw = txn.get(b"format")
            assert raw is not None
            newer = msgspec.structs.replace(open_row("meta", b"format", raw, Format), version=99)
            txn.put(b"format", seal_row(b"format", newer))
    assert "format 99" in user("status").line()
    with lmdb.open(str(user.home / "store"), max_dbs=16, map_size=1 << 30) as env:
        meta = env.open_db(b"meta")
        with env.begin(write=True, db=meta) as txn:
            txn.put(b"format", raw)
    unharmed(user)
    foreign = tmp_path / "foreign"
    shutil.copytree(user.home, foreign)
    (foreign / "store" / "data.mdb").write_bytes(b"not LMDB at all " * 1024)
    Command(user.capsys, foreign)("status").line()
    (tmp_path / "file.txt").write_text("a file")
    for home in (tmp_path / "file.txt", Path("/proc/nowhere")):
        said = Command(user.capsys, home)("status")
        assert said.line(said.code)
        assert str(home) in said.err


def test_another_store_than_the_volume_s_is_refused(user: Command, tmp_path: Path) -> None:
    user.ok("push", "v")
    user.sql("v", "INSERT INTO t (b) VALUES ('mine')")
    other = Command(user.capsys, user.home, (tmp_path / "other").as_uri())
    for arguments in (["push", "v"], ["pull", "v"], ["reset", "v", "--discard"], ["sql", "v", READ, "--lsn", "1"]):
        assert "belongs to store" in other(*arguments).line()
    assert user.sql("v", "SELECT count(*) FROM t") == ["4"]
    assert user.ok("push", "v") == "pushed 1 commit of v: LSN 2\n"
    assert "there is no store at" in other("ls", "--remote").line(), "none was made there"
