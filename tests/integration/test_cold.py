"""Cold starts: a volume by its name, its snapshot and first pages in one request; and a node that doesn't know how."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import budwood
import budwood.lite
from budwood.remote.opening import SKELETON_BYTES, Opening, Unopened, open_by_name
from budwood.remote.page_fetch import fetch_pages
from budwood.remote.portal import BlockingRemote, open_remote
from budwood.sync.prefetch import SharedFetches
from budwood.sync.snapshot import LocalSnapshot
from budwood.volume.calls import OPEN, REMOVE, OpenRequest, VolumeRequest
from budwood.volume.errors import Corrupt, NotFound
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import PageSet, encode_pages
from budwood.volume.wire import ALONE

from ..cold_nodes import ROWS, Heard, fill, forget, node_in_a_thread


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with node_in_a_thread(tmp_path / "store") as url:
        fill(tmp_path / "first", url)
        yield url


QUERY = f"SELECT id FROM t WHERE id = {ROWS * 3 // 4}"
FOUND = [(ROWS * 3 // 4,)]


def test_a_cold_edge_opens_in_one_request_and_finds_a_row_in_one_more(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard(monkeypatch)
    with closing(budwood.connect("deep", home=tmp_path / "cold", remote=url)) as db:
        assert heard.taken() == {"open": 1}
        assert db.execute(QUERY).fetchall() == FOUND
        assert heard.taken() == {"read_pages": 1}
        assert db.execute("SELECT count(*), sum(length(v)) FROM t").fetchall() == [(ROWS, ROWS * 400)]
    with closing(budwood.connect("deep", home=tmp_path / "cold", remote="")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_scan_is_asked_ahead_and_one_that_stops_leaves_nothing_behind(url: str, tmp_path: Path) -> None:
    with budwood.open(home=tmp_path / "cold", remote=url) as edge, closing(edge.volume("deep").snapshot()) as view:
        fetches = cast("SharedFetches", cast("LocalSnapshot", view).misses)
        pages = itertools.count(2)
        while not fetches.under_way(1):
            view.read(next(pages))
        # Between one statement and the next.
        view.release()
        assert fetches.under_way(1)
        assert view.renew()
        assert fetches.under_way(1)
        view.close()
        assert not fetches.under_way(1)
    with closing(budwood.connect("deep", home=tmp_path / "cold", remote=url)) as db:
        assert db.execute("SELECT count(*), sum(length(v)) FROM t").fetchall() == [(ROWS, ROWS * 400)]
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_lite_client_opens_in_one_request_and_finds_a_row_in_one_more(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard(monkeypatch)
    for lsn in (None, 1):
        with closing(budwood.lite.connect(url, "deep", lsn)) as db:
            assert heard.taken() == {"open": 1}
            assert db.execute(QUERY).fetchall() == FOUND
            assert heard.taken() == ({"read_pages": 1})
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            heard.taken()


@pytest.mark.parametrize("way", ["edge", "view of an LSN", "lite"])
def test_a_scan_in_an_order_of_keys_that_is_none_of_pages_takes_few_requests(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """S2.25. Its leaves lie in some forty frames of 64 pages: a request for each miss would be many times as many."""
    numbers = random.Random(7)
    with closing(budwood.connect("scattered", home=tmp_path / "first", remote=url)) as db:
        with db:
            db.execute("CREATE TABLE t(k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID")
            rows = ((numbers.randbytes(16).hex(), numbers.randbytes(50).hex()) for _ in range(40_000))
            db.executemany("INSERT INTO t VALUES(?, ?)", rows)
        db.execute("PRAGMA budwood_push")
        db.execute("INSERT INTO t VALUES('later', '')")
        db.execute("PRAGMA budwood_push")
        wanted = db.execute("SELECT count(*), sum(length(v)) FROM t WHERE k != 'later'").fetchall()
    heard = Heard(monkeypatch)
    lsn = 1 if way == "view of an LSN" else None
    with closing(
        budwood.lite.connect(url, "scattered")
        if way == "lite"
        else budwood.connect("scattered", home=tmp_path / "cold", remote=url, lsn=lsn)
    ) as db:
        assert db.execute("SELECT count(*), sum(length(v)) FROM t WHERE k != 'later'").fetchall() == wanted
        assert heard.taken()["read_pages"] <= 12


def test_a_node_that_does_not_know_open_is_asked_step_by_step(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch, OPEN)
    heard = Heard(monkeypatch)
    with closing(budwood.connect("deep", home=tmp_path / "cold", remote=url)) as db:
        assert heard.taken() == {"open": 1, "lookup": 1, "snapshot": 1, "hello": 1, "read_pages": 1}
        assert db.execute(QUERY).fetchall() == FOUND
    with closing(budwood.lite.connect(url, "deep")) as db:
        assert db.execute(QUERY).fetchall() == FOUND
    with pytest.raises(NotFound, match="knows no volume 'nothing'"):
        budwood.lite.connect(url, "nothing")


def test_a_page_that_is_asked_for_alone_comes_alone_and_is_the_same(url: str) -> None:
    remote = open_remote(url)
    try:
        opening = open_by_name(remote, "deep")
        assert isinstance(opening, Opening)
        view, pages = opening.view, PageSet([700, 1500])
        vid = VolumeId(view.vid)
        with_others = fetch_pages(remote, vid, view.lsn, pages, view.page_size)
        alone = fetch_pages(remote, vid, view.lsn, pages, view.page_size, extra_bytes=ALONE)
        assert PageSet(alone.pages) == pages < PageSet(with_others.pages)
        assert alone.pages.items() <= with_others.pages.items()
        assert 10 * alone.stored_bytes < with_others.stored_bytes
    finally:
        remote.close()


def test_names_that_lead_nowhere_say_so(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch)
    with pytest.raises(NotFound, match="knows no volume 'nothing'"):
        budwood.lite.connect(url, "nothing")
    assert heard.taken() == {"open": 1}
    with budwood.open(home=tmp_path / "cold", remote=url) as edge:
        with pytest.raises(NotFound, match=r"there is no volume 'nothing' here, and .* knows none"):
            edge.volume("nothing")
        with pytest.raises(NotFound):
            edge.pages("deep", mode="ro", lsn=9)
    with closing(budwood.connect("empty", home=tmp_path / "first", remote=url)) as db:
        db.execute("PRAGMA budwood_push").fetchall()
    with closing(budwood.lite.connect(url, "deep", 1)), pytest.raises(NotFound):
        budwood.lite.connect(url, "deep", 9)


def test_a_volume_that_was_removed_says_so(url: str, tmp_path: Path) -> None:
    remote = open_remote(url)
    try:
        opening = open_by_name(remote, "deep")
        assert isinstance(opening, Opening)
        remote.ask(REMOVE, VolumeRequest(opening.view.vid))
        assert open_by_name(remote, "deep") is Unopened.UNTOLD
    finally:
        remote.close()
    with pytest.raises(NotFound):
        budwood.connect("deep", home=tmp_path / "cold", remote=url, mode="rw")


def test_an_answer_that_was_not_asked_for_is_not_taken(url: str) -> None:
    """Whoever answers may be anybody."""
    remote = open_remote(url)
    try:
        honest = remote.ask(OPEN, OpenRequest(name="deep", pages=True, extra_bytes=SKELETON_BYTES))
        assert honest.snapshot is not None
        assert honest.entry is not None
        assert len(honest.frames) > 1

        def opened(**changed: Any) -> object:
            lie = msgspec.structs.replace(honest, **changed)
            return open_by_name(cast("BlockingRemote", Answering(lie)), "deep")

        assert isinstance(opened(), Opening)
        lies: list[dict[str, Any]] = [
            {"frames": honest.frames[1:]},
            {"frames": ()},
            {"frames": honest.frames * 40},
            {"entry": msgspec.structs.replace(honest.entry, name="other")},
            {"frames": (msgspec.structs.replace(honest.frames[0], stored=b"\0" * len(honest.frames[0].stored)),)},
            {"frames": (msgspec.structs.replace(honest.frames[0], valid=encode_pages(PageSet([1, 1 << 30]))),)},
        ]
        for lie in lies:
            with pytest.raises(Corrupt):
                opened(**lie)
        lies = [
            {"snapshot": None},
            {"entry": msgspec.structs.replace(honest.entry, target=bytes(16))},
            {"snapshot": msgspec.structs.replace(honest.snapshot, page_size=100)},
        ]
        for lie in lies:
            with pytest.raises(Corrupt):
                OPEN.check("somebody", msgspec.structs.replace(honest, **lie))
    finally:
        remote.close()


class Answering:
    """A remote that says the same to everybody."""

    url = "http://somebody"

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def ask(self, _: object, __: object) -> object:
        return self._answer
