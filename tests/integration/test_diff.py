"""Diff at the command line and beneath: between LSNs, volumes, and what is here and on the remote."""

from __future__ import annotations

import json
import math
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import budwood
from budwood.rows.difference import Difference
from budwood.rows.row_changes import row_changes
from budwood.sync.edge import open as open_edge
from budwood.volume.protocols import Durability

from .cli import Command

SHOP = """
CREATE TABLE item(name TEXT PRIMARY KEY, n INT); INSERT INTO item VALUES ('bolt', 40), ('nut', 7);
CREATE TABLE line(words);
"""
LATER = """
UPDATE item SET n = 41 WHERE name = 'bolt'; DELETE FROM item WHERE name = 'nut'; INSERT INTO item VALUES ('screw', 3);
INSERT INTO line VALUES (x'00FF'), ('two' || char(10) || 'lines'); CREATE INDEX item_n ON item(n);
"""
SHOWN = r"""index item_n created
  + CREATE INDEX item_n ON item(n)
table item
  ~ "bolt"  n: 40 -> 41
  - "nut"  name="nut", n=7
  + "screw"  name="screw", n=3
table line
  + 1  words=x'00FF'
  + 2  words="two\nlines"
"""


@pytest.fixture
def remote(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def command(tmp_path: Path, remote: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, tmp_path / "home", remote)


def run(command: Command, remote: str, *texts: str, name: str = "shop") -> None:
    with closing(budwood.connect(name, home=command.home, remote=remote)) as db:
        for text in texts:
            db.execute(text)


PUSH = "PRAGMA budwood_push"


def test_what_is_unpushed_two_lsns_and_two_volumes_are_told_alike(command: Command, remote: str) -> None:
    run(command, remote, SHOP, PUSH)
    assert command.ok("diff", "shop") == ""
    run(command, remote, LATER)
    assert command.ok("diff", "shop") == command.ok("diff", "shop@remote", "shop") == SHOWN
    command.ok("fork", "shop", "copy")
    run(command, remote, PUSH)
    for operands in (("shop@1", "shop@2"), ("shop@1", "shop"), ("shop@1", "copy"), ("shop@1", "shop@remote")):
        assert command.ok("diff", *operands) == SHOWN
    assert command.ok("diff", "shop", "copy") == ""
    command.ok("pin", "shop", "--lsn", "1", "--as", "opening")
    assert command.ok("diff", "shop@opening", "shop") == SHOWN
    assert "went" in command.ok("diff", "shop@2", "shop@1", "--stat")
    back = command.ok("diff", "shop@2", "shop@1")
    assert '~ "bolt"  n: 41 -> 40' in back
    assert "index item_n dropped" in back


def test_as_json_and_as_counts(command: Command, remote: str) -> None:
    run(command, remote, SHOP, PUSH, LATER)
    told = json.loads(command.ok("diff", "shop", "--json"))
    assert told[0] == {
        "schema": "index",
        "name": "item_n",
        "change": "created",
        "old": None,
        "new": "CREATE INDEX item_n ON item(n)",
    }
    bolt = {"table": "item", "change": "update", "key": {"name": "bolt"}}
    assert told[1] == bolt | {"old": {"name": "bolt", "n": 40}, "new": {"name": "bolt", "n": 41}}
    assert [each["change"] for each in told[2:]] == ["delete", "insert", "insert", "insert"]
    assert json.loads(command.ok("diff", "shop", "--stat", "--json")) == [
        {"schema": "index", "name": "item_n", "change": "created"},
        {"table": "item", "insert": 1, "delete": 1, "update": 1},
        {"table": "line", "insert": 2, "delete": 0, "update": 0},
    ]
    assert json.loads(command.ok("diff", "shop@1", "shop@remote", "--json")) == []


def test_what_json_has_no_word_for_is_told_as_sql_tells_it(command: Command, remote: str) -> None:
    run(command, remote, SHOP, PUSH, "DELETE FROM line; INSERT INTO line VALUES (9e999), (-9e999), (x'00ff')")
    text = command.ok("diff", "shop", "--json")
    assert "Infinity" not in text
    rows = json.loads(command.ok("sql", "shop", "SELECT words FROM line ORDER BY rowid", "--json"))
    assert rows == [{"words": math.inf}, {"words": -math.inf}, {"words": "00FF"}]
    assert [each["new"] for each in json.loads(text) if each["new"]] == rows


def test_a_text_that_is_none_is_told_as_json_can(command: Command, remote: str) -> None:
    run(command, remote, "CREATE TABLE t(a); INSERT INTO t VALUES (CAST(x'61ff' AS TEXT)), ('é')", PUSH)
    run(command, remote, "UPDATE t SET a = 'mended' WHERE rowid = 1")
    assert command.ok("diff", "shop") == 'table t\n  ~ 1  a: "a\\udcff" -> "mended"\n'
    run(command, remote, "CREATE TABLE u(a); INSERT INTO u VALUES ('first'), (CAST(x'ff' AS TEXT)), ('last')")
    lines = command.ok("diff", "shop").splitlines()
    assert lines[lines.index("table u") + 1 :] == ['  + 1  a="first"', r'  + 2  a="\udcff"', '  + 3  a="last"']
    _, told, *_ = json.loads(command.ok("diff", "shop", "--json"))
    assert told["old"]["a"].encode(errors="surrogateescape") == b"a\xff"


def test_a_schema_with_a_name_that_is_no_text_is_refused_in_a_line(
    command: Command, remote: str, tmp_path: Path
) -> None:
    made = "'CREATE VIEW v' || CAST(x'ff' AS TEXT) || ' AS SELECT 1'"
    row = f"'view', 'v' || CAST(x'ff' AS TEXT), 'v' || CAST(x'ff' AS TEXT), 0, {made}"
    run(command, remote, SHOP, PUSH, f"PRAGMA writable_schema = ON; INSERT INTO sqlite_schema SELECT {row}")
    for words in ((), ("--json",), ("--stat",), ("--changeset", str(tmp_path / "out"))):
        assert command("diff", "shop", *words).line().startswith("the database's schema has a name")
    assert not (tmp_path / "out").exists()


def test_a_changeset_makes_the_one_of_the_other(command: Command, remote: str, tmp_path: Path) -> None:
    run(command, remote, SHOP, PUSH, LATER.replace("CREATE INDEX item_n ON item(n);", ""))
    file = tmp_path / "changes"
    assert "bytes of changeset in" in command.ok("diff", "shop", "--changeset", str(file))
    with closing(apsw.Connection(":memory:")) as other:
        other.execute(SHOP)
        apsw.Changeset.apply(file.read_bytes(), other)
        assert other.execute("SELECT * FROM item ORDER BY name").fetchall() == [("bolt", 41), ("screw", 3)]
        assert other.execute("SELECT * FROM line").fetchall() == [(b"\0\xff",), ("two\nlines",)]
    run(command, remote, "CREATE TABLE word(w TEXT PRIMARY KEY); INSERT INTO word VALUES (NULL), (NULL)")
    said = command("diff", "shop", "--changeset", str(file))
    assert said.err.splitlines() == [
        "budwood: left out: table word: 2 rows with NULL in their primary key, which a changeset can't name",
        "budwood: left out: the schema: table word created",
    ]


def test_files_are_told_by_lines_or_by_bytes(command: Command, remote: str) -> None:
    with open_edge(home=command.home, remote=remote) as edge:
        volume = edge.create("notes", page_size=4096)
        for text in (b"one\ntwo\nthree\n", b"one\n2\nthree\n", b"\xff" * 9000):
            writer = volume.writer()
            for page in range(-(-len(text) // 4096)):
                writer.write(page + 1, text[page * 4096 : (page + 1) * 4096].ljust(4096, b"\0"))
            writer.truncate(len(text))
            writer.commit(Durability.ORDERED)
            volume.push()
    shown = command.ok("diff", "notes@1", "notes@2")
    assert shown.splitlines()[2:] == ["@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"]
    shown = command.ok("diff", "notes@2", "notes")
    assert shown.splitlines()[1].split() == ["0", "9,000"]
    assert "3 pages of 4,096 bytes differ" in shown
    assert json.loads(command.ok("diff", "notes@2", "notes", "--json")) == [{"from": 0, "to": 9000}]
    assert "no SQLite database" in command("diff", "notes", "--changeset", "x").line(2)


def test_bad_operands_are_told_in_a_line(command: Command, remote: str) -> None:
    run(command, remote, SHOP)
    assert "never synced" in command("diff", "shop").line(2)
    run(command, remote, PUSH)
    assert "no LSN 9" in command("diff", "shop@9", "shop").line()
    assert "there is no volume 'nope'" in command("diff", "nope").line()
    assert "is called 'nowhere'" in command("diff", "shop@nowhere", "shop").line()
    assert "leave out --stat" in command("diff", "shop", "--stat", "--changeset", "x").line(2)


def test_a_value_that_was_overwritten_in_its_overflow_pages_alone_is_found(command: Command, remote: str) -> None:
    """Its leaf is the same in both, bit by bit."""
    long = "INSERT INTO line(words) VALUES (zeroblob(20000)), (zeroblob(30000)), ('short')"
    run(command, remote, SHOP, long, PUSH)
    with (
        closing(budwood.connect("shop", home=command.home, remote=remote)) as db,
        closing(db.blob_open("main", "line", "words", 2, True)) as blob,
    ):
        blob.seek(25_000)
        blob.write(b"!")
    with open_edge(home=command.home, remote=remote) as edge, closing(Difference(edge, "shop@base", "shop")) as found:
        assert found.changed is not None
        assert len(found.changed) <= 2
        assert [(change.kind, change.key) for change in row_changes(*found.views(), found.changed)] == [
            ("update", (2,))
        ]


def test_values_are_told_apart_as_sqlite_stores_them(command: Command, remote: str) -> None:
    run(command, remote, SHOP, "INSERT INTO line VALUES (1), (0.0), (NULL), ('x')", PUSH)
    run(
        command,
        remote,
        "UPDATE line SET words = CASE rowid WHEN 1 THEN 1.0 WHEN 2 THEN -0.0 WHEN 3 THEN '' ELSE 'x' END",
    )
    assert command.ok("diff", "shop").splitlines() == [
        "table line",
        "  ~ 1  words: 1 -> 1.0",
        "  ~ 2  words: 0.0 -> -0.0",
        '  ~ 3  words: NULL -> ""',
    ]
