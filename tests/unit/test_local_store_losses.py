"""Rows that are gone from the local store: what was not pushed can be had nowhere else, so nothing stands in for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import budwood.sync.stage
from budwood.sync import commit_journal
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.tables import CommitRecord, commit_key
from budwood.sync.unpushed_index import UnpushedIndex
from budwood.volume.calls import SNAPSHOT, SnapshotRequest
from budwood.volume.errors import Corrupt
from budwood.volume.pageset import PageSet, encode_pages
from budwood.volume.protocols import Durability

PAGE = 4096


def write(edge: Edge, pages: dict[int, bytes]) -> None:
    writer = edge.volume("v").writer(page_size=PAGE)
    for page, data in pages.items():
        writer.write(page, data * PAGE)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def lose(edge: Edge, page: int) -> None:
    """Every row of the page."""
    tables, prefix = edge.environment.tables, edge.volume("v").id.raw + page.to_bytes(4)

    def drop(txn: Any) -> None:
        for table in (tables.tails, tables.bodies):
            cursor = txn.cursor(table)
            more = cursor.set_range(prefix)
            while more and cursor.key().startswith(prefix):
                more = cursor.delete()

    edge.environment.update(drop)


@pytest.mark.parametrize("page", [2, 3, 4])
def test_a_view_reads_what_it_saw_though_later_commits_wrote_the_same_pages(tmp_path: Path, page: int) -> None:
    """It has unpushed pages itself (3), and pages that were pushed (2), and both are written again before it reads."""
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(edge, {1: b"a", 2: b"a", 4: b"a"})
        volume.push()
        write(edge, {3: b"b"})
        with closing(volume.snapshot()) as view:
            assert view.read(1) == b"a" * PAGE
            for data in (b"c", b"d"):
                write(edge, {2: data, 3: data, 4: data})
                with closing(volume.snapshot()) as newer:
                    assert newer.read(page) == data * PAGE
                assert view.read(page) == (b"b" if page == 3 else b"a") * PAGE


@pytest.mark.parametrize("pushed", [False, True])
def test_an_unpushed_page_that_is_gone_is_damage_and_neither_zeros_nor_the_remotes(
    tmp_path: Path, pushed: bool
) -> None:
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(edge, {1: b"a", 2: b"a"})
        if pushed:
            volume.push()
            write(edge, {1: b"b", 2: b"b"})
        lose(edge, 2)
        with closing(volume.snapshot()) as snapshot:
            assert snapshot.read(1)[:1] == (b"b" if pushed else b"a")
            with pytest.raises(Corrupt, match=r"page 2 .* not pushed yet"):
                snapshot.read(2)
        with pytest.raises(Corrupt, match=r"page 2 .* not pushed yet"):
            volume.push()
        with pytest.raises(Corrupt, match="page 2"):
            volume.export(tmp_path / "file")
        assert not (tmp_path / "file").exists()


def test_a_page_that_was_pushed_and_is_gone_is_fetched_again(tmp_path: Path) -> None:
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(edge, {1: b"a", 2: b"a"})
        volume.push()
        lose(edge, 2)
        with closing(volume.snapshot()) as snapshot:
            assert snapshot.read(2) == b"a" * PAGE


def older(edge: Edge, page: int, data: bytes, lsn: int) -> None:
    """What damage to a tree may do: the page's newest row is gone, and an older one stands, sound in itself."""
    local = edge.volume("v").local
    lose(edge, page)
    edge.environment.update(lambda txn: local.editor(txn, PAGE).put([(page, data * PAGE)], lsn))


@pytest.mark.parametrize("pushed", [False, True])
@pytest.mark.parametrize("in_order", [False, True])
def test_an_older_version_is_not_taken_for_the_one_that_an_unpushed_commit_names(
    tmp_path: Path, pushed: bool, in_order: bool
) -> None:
    """Nor is it pushed, forked or exported; read alone, and as part of a scan (readahead.py)."""
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(edge, dict.fromkeys(range(1, 31), b"a"))
        if pushed:
            volume.push()
        write(edge, {20: b"b"})
        write(edge, {21: b"c"})
        older(edge, 20, b"a", 1)
        with closing(volume.snapshot()) as snapshot:
            if in_order:
                assert {snapshot.read(page)[:1] for page in range(1, 20)} == {b"a"}
            with pytest.raises(Corrupt, match=rf"{edge.home}.*page 20 of volume {volume.id}"):
                snapshot.read(20)
            assert snapshot.read(21)[:1] == b"c"
        with pytest.raises(Corrupt, match=rf"{edge.home}.*page 20 of volume {volume.id}"):
            volume.push()
        with pytest.raises(Corrupt, match="page 20"):
            edge.fork("v", "w")
        assert volume.status()["unpushed"] == (2 if pushed else 3)
        if pushed:
            assert edge.connection().remote.ask(SNAPSHOT, SnapshotRequest(volume.id.raw)).lsn == 1


def test_a_view_older_than_the_newest_commit_reads_on(tmp_path: Path) -> None:
    with open_edge(home=tmp_path / "home", remote="") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(edge, {1: b"a", 2: b"a"})
        with closing(volume.snapshot()) as before:
            assert before.read(2)[:1] == b"a"
            write(edge, {1: b"b"})
            with closing(volume.snapshot()) as after:
                assert after.read(1)[:1] == b"b"
            assert before.read(1)[:1] == b"a"


def test_a_record_of_an_unpushed_commit_that_is_gone_stops_reads_and_the_push(tmp_path: Path) -> None:
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v", page_size=PAGE)
        for data in (b"a", b"b", b"c"):
            write(edge, {1: data})
        edge.environment.update(
            lambda txn: txn.delete(commit_key(volume.id.raw, 2), db=edge.environment.tables.commits)
        )
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.volume("v")
        with closing(volume.snapshot()) as snapshot, pytest.raises(Corrupt, match=r"commit 2 .* is gone"):
            snapshot.read(1)
        with pytest.raises(Corrupt, match=r"commit 2 .* is gone"):
            volume.push()
        edge.rm("v", discard=True)
        assert edge.ls() == []


def test_which_commit_wrote_a_page_last_is_known_whatever_the_commits_are_like() -> None:
    """Against a dict: small ones, ones of thousands of pages, and cuts."""
    randomness, model = random.Random(7), dict[int, int]()
    written = UnpushedIndex(0, PAGE)
    for lsn in range(1, 120):
        pages = PageSet(randomness.sample(range(1, 9000), randomness.choice((1, 3, 60))))
        if randomness.random() < 0.3:
            first = randomness.randrange(1, 3000)
            pages |= PageSet(range(first, first + 5000))
        last = randomness.choice((9000, 9000, 9000, randomness.randrange(9000)))
        written.add(lsn, CommitRecord(pages=encode_pages(pages), length=9000 * PAGE, floor=last * PAGE))
        model = {page: at for page, at in model.items() if page <= last} | dict.fromkeys(pages, lsn)
        for page in randomness.sample(range(1, 9000), 200):
            assert written.lsn(page) == model.get(page, 0)
    assert written.pages == PageSet(model)


@pytest.mark.parametrize("pages", [1, 2000], ids=["journaled", "not journaled"])
def test_a_head_that_fell_behind_its_commits_is_damage(tmp_path: Path, pages: int) -> None:
    with open_edge(home=tmp_path / "home", remote="") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(edge, {1: b"a", 2: b"a"})
        before = volume.local.peek()
        write(edge, {1: b"b"})
        edge.environment.update(lambda txn: volume.local.put_head(txn, before))
        with pytest.raises(Corrupt, match="later commit"):
            write(edge, dict.fromkeys(range(2, 2 + pages), b"c"))
        with closing(volume.snapshot()) as snapshot, pytest.raises(Corrupt, match=r"later commit"):
            snapshot.read(2)


class Misplaced:
    """A transaction in whose damaged leaves a row that is put isn't found again."""

    def __init__(self, txn: Any, lost: object) -> None:
        self._txn, self._lost = txn, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)

    def put(self, key: bytes, value: bytes, *, db: object) -> bool:
        return db is self._lost or self._txn.put(key, value, db=db)

    def cursor(self, db: object) -> Any:
        cursor = self._txn.cursor(db)
        return MisplacedRow(cursor) if db is self._lost else cursor


class MisplacedRow:
    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def put(self, *_: object, **__: object) -> bool:
        return True


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("table", ["tails", "bodies", "heads", "commits"])
def test_a_commit_whose_rows_are_not_found_again_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, large: bool
) -> None:
    with open_edge(home=tmp_path / "home", remote="") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(edge, {1: b"a", 2: b"a"})
        head, environment = volume.local.peek(), edge.environment
        update, lost = environment.update, getattr(environment.tables, table)
        with monkeypatch.context() as patch:
            patch.setattr(budwood.sync.stage, "BATCH_BYTES", PAGE if large else 1 << 20)
            patch.setattr(commit_journal, "MAX_COMMIT_BYTES", 0)

            def misplacing(action: Callable[[Any], object], **how: bool) -> object:
                return update(lambda txn: action(Misplaced(txn, lost)), **how)

            patch.setattr(environment, "update", misplacing)
            with pytest.raises(Corrupt, match=f"{edge.home}.*is not found again"):
                write(edge, {1: b"b", 2: b"b"})
        assert volume.local.peek() == head
        with closing(volume.snapshot()) as snapshot:
            assert [snapshot.read(page)[:1] for page in (1, 2)] == [b"a", b"a"]
