"""The pages that a query touches, found by a node that runs it; and what it refuses to run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import budwood
from budwood.remote.portal import BlockingRemote, open_remote
from budwood.server.query_plan import Limits
from budwood.volume.calls import LOOKUP, PLAN_QUERY, LookupRequest, PlanRequest
from budwood.volume.errors import BadInput, Unsupported
from budwood.volume.pageset import PageSet, decode_pages

from ..cold_nodes import ROWS, Heard, fill, forget, node_in_a_thread
from .cli import Command

SOME = f"SELECT sum(length(v)) FROM t WHERE id IN (3, {ROWS // 2}, {ROWS - 5})"
WHOLE = "SELECT sum(length(v)) FROM t"
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT sum(n) FROM c"

FEW_PAGES = Limits(seconds=60.0, pages=900)
LITTLE_TIME = Limits(seconds=0.5, pages=900)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with node_in_a_thread(tmp_path / "store") as url:
        fill(tmp_path / "first", url)
        yield url


@pytest.fixture
def remote(url: str) -> Iterator[BlockingRemote]:
    remote = open_remote(url)
    try:
        yield remote
    finally:
        remote.close()


def touched(remote: BlockingRemote, sql: str) -> PageSet:
    entry = remote.ask(LOOKUP, LookupRequest("deep")).entry
    assert entry is not None
    return decode_pages("the answer", remote.ask(PLAN_QUERY, PlanRequest(entry.target, lsn=0, sql=sql)).pages)


def test_what_a_query_touches_is_fetched_in_two_requests_and_read_with_no_more(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with budwood.open(home=tmp_path / "cold", remote=url) as edge:
        volume = edge.volume("deep")
        heard = Heard(monkeypatch)
        assert 4 < volume.fetch_query(SOME) < 20
        assert heard.taken() == {"plan_query": 1, "read_pages": 1}
        assert volume.fetch_query(SOME) == 0
        heard.taken()
    with closing(budwood.connect("deep", home=tmp_path / "cold", remote=url)) as db:
        assert db.execute(SOME).fetchall() == [(1200,)]
        assert heard.taken() == {}
        assert db.execute("SELECT length(v) FROM t WHERE id = 9000").fetchall() == [(400,)]
        assert heard.taken() == {"read_pages": 1}, "what was not planned is fetched as ever"


def test_a_whole_scan_is_planned_too(remote: BlockingRemote) -> None:
    some, whole = touched(remote, SOME), touched(remote, WHOLE)
    assert some < whole
    assert len(whole) > ROWS // 10


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DELETE FROM t", "not authorized"),
        ("CREATE TEMP TABLE x(a)", "not authorized"),
        ("ATTACH '/etc/passwd' AS x", "not authorized"),
        ("PRAGMA journal_mode", "not authorized"),
        ("SELECT * FROM pragma_table_info('t')", "not authorized"),
        ("SELECT load_extension('x')", "not authorized|no such function"),
        ("VACUUM INTO 'file:x?vfs=unix'", "authorization denied"),
        ("SELECT 1; COMMIT", "not authorized"),
        ("SELECT zeroblob(100000000)", "too big"),
        (f"SELECT 1 -- {'long' * 20_000}", "too big"),
        ("SELECT lacking FROM t", "no such column"),
        ("SELECT ?", "bindings"),
        ("", ""),
        (ENDLESS, "longer than 0.5 s"),
        ("WITH RECURSIVE c(n, b) AS (SELECT 1, randomblob(500000) UNION SELECT n + 1, randomblob(500000) FROM c) "
         "SELECT count(*) FROM c", "more than 64 MiB of memory"),
        (WHOLE, "more than 900 pages"),
        ("SELECT a.v FROM t a, t b, t c ORDER BY random()", "more than"),
        ("SELECT 1" + "+1" * 5000, "too large|depth"),
    ],
)  # fmt: skip
def test_what_takes_too_much_or_does_more_than_read_is_refused_and_the_node_lives(
    remote: BlockingRemote, monkeypatch: pytest.MonkeyPatch, sql: str, words: str
) -> None:
    monkeypatch.setattr("budwood.server.query_plan.LIMITS", LITTLE_TIME if "longer" in words else FEW_PAGES)
    if sql:
        with pytest.raises(BadInput, match=words):
            touched(remote, sql)
    else:
        assert touched(remote, sql) <= PageSet([1])
    assert len(touched(remote, SOME)) > 4


def test_a_text_that_is_none_is_read_like_any(url: str, tmp_path: Path) -> None:
    with closing(budwood.connect("odd", home=tmp_path / "odd", remote=url)) as db:
        db.execute(
            "CREATE TABLE t(a); INSERT INTO t VALUES (CAST(x'ff' AS TEXT)), (zeroblob(20000)), (CAST(x'fe' AS TEXT))"
        )
        db.execute("PRAGMA budwood_push").fetchall()
    with budwood.open(home=tmp_path / "cold", remote=url) as edge:
        volume = edge.volume("odd")
        assert volume.fetch_query("SELECT * FROM t") > 5
        assert volume.fetch_query("SELECT * FROM t") == 0


def test_an_older_node_says_so_in_words(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch, PLAN_QUERY)
    with budwood.open(home=tmp_path / "cold", remote=url) as edge:
        volume = edge.volume("deep")
        with pytest.raises(Unsupported, match="an older node"):
            volume.fetch_query(SOME)


def test_the_command_fetches_what_a_query_touches(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user = Command(capsys, tmp_path / "cold", url)
    assert user.ok("fetch", "deep", "--sql", SOME).startswith("fetched ")
    assert user.ok("fetch", "deep", "--sql", SOME) == "nothing to fetch: all that this query touches of deep is here\n"
    assert "not authorized" in user("fetch", "deep", "--sql", "DELETE FROM t").err
    assert "without --all" in user("fetch", "--all", "--sql", SOME).err


def test_what_was_not_pushed_needs_nothing_fetched(url: str, tmp_path: Path) -> None:
    with budwood.open(home=tmp_path / "other", remote=url) as edge:
        assert edge.create("new").fetch_query("SELECT 1") == 0
