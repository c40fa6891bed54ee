"""The node's pages: what they show, to whom, and that nothing which they show is taken for markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

import budwood
from budwood.server.console.console import Console
from budwood.server.console.words import moment_of
from budwood.server.node import Node
from budwood.server.upkeep.collector import Stage
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import ADVANCE, CREATE, CreateRequest, SinceRequest
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.protocols import Durability

from ..rolling import hasty
from .cli import serving
from .console import MARKUP, VIEWS, fill

TOKEN = "open sesame"
CLIENT = ClientId.new()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("console")
    with serving(folder / "store") as url:
        fill(folder / "home", url)
        with open_edge(home=folder / "home", remote=url) as edge:
            writer = edge.create("plain").writer(page_size=4096)
            writer.write(1, b"no database" * 300 + bytes(796))
            made = writer.commit(Durability.ORDERED)
            assert made is not None
            made.close()
            edge.volume("plain").push()
            change_rows(edge, folder / "home", url)
        yield url


def change_rows(edge: Edge, home: Path, url: str) -> None:
    """A database in which LSN 2 changes some of what LSN 1 made."""
    with closing(budwood.connect("changing", home=home, remote=url)) as db:
        db.execute(
            "CREATE TABLE keyed(name TEXT PRIMARY KEY COLLATE NOCASE, word TEXT COLLATE NOCASE, n) WITHOUT ROWID"
        )
        db.execute("CREATE TABLE free(rowid TEXT, x)")
        db.execute("CREATE TABLE gone(x)")
        db.execute("CREATE TABLE same(x)")
        db.execute("CREATE TABLE other(x)")
        db.execute("INSERT INTO keyed VALUES ('a', 'word', 1), ('b', 'word', 1), ('c', 'left', NULL), ('d', NULL, 5)")
        db.execute("INSERT INTO free VALUES ('one', 1), ('two', 2)")
        for table in ("gone", "same", "other"):
            db.execute(f"INSERT INTO {table} VALUES ('in {table}')")
        edge.volume("changing").push()
        db.execute("UPDATE keyed SET word = 'WORD' WHERE name = 'a'")
        db.execute("UPDATE keyed SET n = 1.0 WHERE name = 'b'")
        db.execute("DELETE FROM keyed WHERE name = 'c'")
        db.execute("UPDATE keyed SET n = NULL, word = 'set' WHERE name = 'd'")
        db.execute("UPDATE free SET x = 3 WHERE x = 2")
        db.execute("DROP TABLE gone")
        db.execute("CREATE TABLE made(y)")
        db.execute("INSERT INTO made VALUES ('fresh')")
        db.execute("ALTER TABLE other ADD COLUMN more")
        edge.volume("changing").push()


def text_of(url: str, path: str, status: int = 200) -> str:
    answer = httpx.get(f"{url}{path}")
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script" not in policy
    assert "<script" not in answer.text
    assert "<b>" not in answer.text
    return html.unescape(re.sub(r"<[^>]*>", " ", answer.text))


def test_each_view(url: str) -> None:
    volumes = text_of(url, "/ui/")
    assert "shop/orders" in volumes
    assert f"shop/{MARKUP}" in volumes
    volume = text_of(url, "/ui/volume?name=shop/orders")
    assert "LSN 4" in volume
    assert "every LSN, for ever" in volume
    older = text_of(url, "/ui/volume?name=shop/orders&upto=2")
    assert "up to" not in older
    assert "Newest" in older
    pages = text_of(url, "/ui/pages?name=shop/orders")
    assert "at LSN 4" in pages
    assert "logs/main/entries/" in pages
    assert text_of(url, "/ui/pages?name=shop/orders&lsn=1") != pages
    node = text_of(url, "/ui/node")
    assert "main" in node
    assert "creates" in node


def test_rows_of_a_table_at_an_lsn(url: str) -> None:
    tables = text_of(url, "/ui/tables?name=shop/orders")
    assert MARKUP in tables
    early = text_of(url, "/ui/tables?name=shop/orders&lsn=1&table=item")
    assert f"{MARKUP} 1" in early
    assert f"{MARKUP} 2" not in early
    assert "blob of 200 bytes" in early
    late = text_of(url, "/ui/tables?name=shop/orders&table=item&offset=100")
    assert f"{MARKUP} 4" in late
    assert "Before" in late
    odd = text_of(url, f"/ui/tables?name=shop/orders&table={quote(MARKUP)}")
    assert "No rows" in odd


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/ui/volume?name=nothing", 404, "there is no volume 'nothing'"),
        ("/ui/volume", 404, "there is no volume ''"),
        ("/ui/volume?name=%00", 404, "there is no volume"),
        ("/ui/tables?name=shop/orders&table=none", 404, "there is no table 'none' at LSN 4"),
        ("/ui/tables?name=shop/orders&table=item%22--", 404, "there is no table"),
        ("/ui/tables?name=shop/orders&lsn=99", 404, "no LSN 99"),
        ("/ui/tables?name=shop/orders&lsn=x", 400, "lsn is a number"),
        ("/ui/tables?name=shop/orders&offset=-1", 400, "offset is a number"),
        ("/ui/tables?name=plain", 400, "not a database"),
    ],
)
def test_what_can_not_be_shown_is_said(url: str, path: str, status: int, words: str) -> None:
    assert words in text_of(url, path, status)


def test_pages_change_nothing_and_are_asked_for_by_get_alone(url: str) -> None:
    for path in VIEWS:
        if "login" not in path:
            assert httpx.post(f"{url}{path}").status_code == 405
    assert httpx.get(f"{url}/ui").headers["location"] == "/ui/"


def test_a_browser_shows_the_token_by_a_cookie_and_sees_nothing_without(tmp_path: Path) -> None:
    with serving(tmp_path / "store", "--token", TOKEN) as url:
        fill(tmp_path / "home", url, TOKEN)
        for path in VIEWS:
            if "login" not in path:
                answer = httpx.get(f"{url}{path}")
                assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
        with httpx.Client(base_url=url) as browser:
            for wrong in ("open", "", "x" * 20_000):
                said = browser.post("/ui/login", data={"key": wrong})
                assert said.status_code in (400, 401)
                assert "set-cookie" not in said.headers
            foreign = browser.post("/ui/login", data={"key": TOKEN}, headers={"origin": "https://evil.example"})
            assert foreign.status_code == 403
            let_in = browser.post("/ui/login", data={"key": TOKEN})
            assert (let_in.status_code, let_in.headers["location"]) == (303, "/ui/")
            for word in ("HttpOnly", "SameSite=Strict", "Path=/ui/"):
                assert word in let_in.headers["set-cookie"]
            assert TOKEN not in let_in.headers["set-cookie"]
            assert "shop/orders" in browser.get("/ui/").text
            # It is for pages alone: a call made by a page of somebody else's would carry it.
            cookie = let_in.headers["set-cookie"].partition(";")[0]
            calls = browser.post("/v1/hello", json={}, headers={"cookie": cookie})
            assert calls.status_code == 401


def test_rows_that_changed_between_two_lsns(url: str) -> None:
    told = " ".join(text_of(url, "/ui/changes?name=changing&lsn=2").split())
    assert "updated a word WORD 1" in told
    assert "updated b word 1 1.0" in told
    assert "deleted c left NULL" in told
    assert "updated d NULL set 5 NULL" in told
    assert "updated two 2 3" in told
    assert "gone removed Row x deleted in gone" in told
    assert "made made Row y inserted fresh" in told
    assert "other defined anew" in told
    assert " same " not in told
    first = " ".join(text_of(url, "/ui/changes?name=changing&lsn=1").split())
    assert "keyed made" in first
    assert "inserted a word 1" in first
    many = text_of(url, "/ui/changes?name=shop/orders&after=0&lsn=4")
    assert "There are more" in many
    assert MARKUP in many


def twice(*values: object) -> str:
    return 2 * str(values[0])


def by_length(one: str, other: str) -> int:
    return len(one) - len(other)


def test_a_table_that_can_not_be_compared_spoils_no_other(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "store") as url,
        open_edge(home=tmp_path / "home", remote=url) as edge,
        closing(budwood.connect("own", home=tmp_path / "home", remote=url)) as db,
    ):
        db.create_scalar_function("twice", twice, 1, deterministic=True)
        db.create_collation("by_length", by_length)
        db.execute("CREATE TABLE a(x TEXT COLLATE by_length PRIMARY KEY, y); CREATE TABLE b(x, y AS (twice(x)))")
        db.execute("CREATE TABLE c(x); INSERT INTO a VALUES ('one', 1); INSERT INTO b VALUES ('two')")
        edge.volume("own").push()
        db.execute("UPDATE a SET y = 2; UPDATE b SET x = 'three'; INSERT INTO c VALUES ('four')")
        edge.volume("own").push()
        told = " ".join(text_of(url, "/ui/changes?name=own&lsn=2").split())
        assert "a can't be compared here: no such collation sequence: by_length" in told
        assert "b can't be compared here: unknown function: twice()" in told
        assert "inserted four" in told


def test_rows_of_very_many_columns_that_changed(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "store") as url,
        open_edge(home=tmp_path / "home", remote=url) as edge,
        closing(budwood.connect("wide", home=tmp_path / "home", remote=url)) as db,
    ):
        db.execute(f"CREATE TABLE t(id INTEGER PRIMARY KEY, {', '.join(f'c{n}' for n in range(900))})")
        db.execute("INSERT INTO t(id, c0, c899) VALUES (1, 'first', 'last'), (2, 'same', 1)")
        edge.volume("wide").push()
        db.execute("UPDATE t SET c899 = 'changed' WHERE id = 1; UPDATE t SET c899 = 1.0 WHERE id = 2")
        edge.volume("wide").push()
        told = text_of(url, "/ui/changes?name=wide&lsn=2")
        assert told.count("updated") == 2
        assert "changed" in told


@pytest.mark.parametrize(
    ("encoding", "invalid", "shown"),
    [
        ("UTF-8", "61ff", r"a\xff"),
        ("UTF-16le", "610000d8", r"a\x00\xd8"),
        ("UTF-16be", "0061d800", r"a\xd8\x00"),
    ],
)
def test_a_text_that_is_none_is_shown_byte_by_byte(tmp_path: Path, encoding: str, invalid: str, shown: str) -> None:
    """SQLite takes any bytes for one, and so do programs that know of no encodings."""
    with (
        serving(tmp_path / "store") as url,
        open_edge(home=tmp_path / "home", remote=url) as edge,
        closing(budwood.connect("odd", home=tmp_path / "home", remote=url)) as db,
    ):
        db.execute(f"PRAGMA encoding = '{encoding}'; CREATE TABLE t(a, b)")
        db.execute(f"INSERT INTO t VALUES ('Größe', x'{invalid}'), (CAST(x'{invalid}' AS TEXT), 1.5), (NULL, 'last')")
        edge.volume("odd").push()
        db.execute(f"UPDATE t SET a = CAST(x'{invalid}' AS TEXT) WHERE b = 'last'")
        edge.volume("odd").push()
        rows = " ".join(text_of(url, "/ui/tables?name=odd&lsn=1&table=t").split())
        assert f"Größe blob of {len(invalid) // 2} bytes {shown} 1.5 NULL last" in rows
        assert f"updated NULL {shown}" in " ".join(text_of(url, "/ui/changes?name=odd&lsn=2").split())


def test_changes_that_can_t_be_shown(url: str) -> None:
    assert "the other way round" in text_of(url, "/ui/changes?name=changing&after=2&lsn=1", 400)
    assert "has no LSN 9" in text_of(url, "/ui/changes?name=changing&lsn=9", 404)
    assert "can't be run" in text_of(url, "/ui/changes?name=plain&lsn=1", 400)
    assert "is a number" in text_of(url, "/ui/changes?name=changing&after=x", 400)


def test_how_often_pages_are_asked_for(url: str, tmp_path: Path) -> None:
    never = text_of(url, "/ui/pages?name=other&by=heat", 404)
    assert "there is no volume" in never
    with closing(budwood.connect("shop/orders", home=tmp_path / "home", remote=url)) as db:
        db.execute("SELECT count(*) FROM item").fetchall()
    told = text_of(url, "/ui/pages?name=shop/orders&by=heat")
    assert "page 1: asked for" in told
    assert "LSN 4" in told
    assert "page 1: LSN" in text_of(url, "/ui/pages?name=shop/orders")


def test_what_the_store_holds_and_how_it_grows(url: str) -> None:
    told = " ".join(text_of(url, "/ui/costs").split())
    assert "Growth" in told
    assert "shop/orders" in told
    assert "USD a month" in told
    assert re.search(r"Holds [0-9.]+ [KM]i?B in [0-9]+ objects", told), told


@pytest.mark.anyio
async def test_what_is_about_to_be_deleted() -> None:
    vid, console = VolumeId.new(), Console()
    async with Node.open(MemoryStore(), name="main", patience=hasty()) as node:
        empty = html.unescape((await console.store(node, lambda name: "")).text)
        assert "None stands." in empty
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=512))
        for lsn in range(40):
            await node.commit(*commit_of(vid, lsn, {1: bytes([lsn]) * 512}, client=CLIENT, page_size=512))
        await node.ask(ADVANCE, SinceRequest(vid.raw, since=40))
        await node.folder.fold(vid)
        waiting = await node.collector.collect("main")
        assert waiting.stage is Stage.WAITING
        text = (await console.store(node, lambda name: "")).text
        row = " ".join(re.sub(r"<[^>]*>", " ", text.partition("Collection plans")[2]).split())
        assert moment_of(waiting.due_ms) in row
        assert f" {waiting.planned - 1:,} 1 0 0 0 " in row, row
