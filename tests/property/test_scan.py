"""Reading in order, ahead of what is asked, gives what reading page by page gives."""

# These tests look inside: whether something was read ahead can't be seen from outside.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budwood
from budwood.sync import readahead
from budwood.sync.edge import Edge
from budwood.sync.snapshot import LocalSnapshot
from budwood.sync.volume import Volume
from budwood.volume.errors import Corrupt
from budwood.volume.protocols import Durability

if TYPE_CHECKING:
    from budwood.sync.tables import Txn

PAGES = 200


def content(page: int, version: int, size: int) -> bytes:
    return (b"%d.%d " % (page, version) * size)[:size]


def commit(volume: Volume, pages: set[int], version: int, size: int) -> None:
    snapshot = volume.snapshot()
    writer = volume.writer(snapshot, page_size=size)
    for page in pages:
        writer.write(page, content(page, version, size))
    made = writer.commit(Durability.ORDERED)
    if made is not None:
        made.close()
    snapshot.close()


@contextmanager
def edge() -> Generator[Edge]:
    with TemporaryDirectory() as home:
        opened = budwood.open(home=Path(home))
        try:
            yield opened
        finally:
            opened.close()


page_sets = st.sets(st.integers(1, PAGES), max_size=40)
walks = st.lists(st.tuples(st.integers(1, PAGES), st.integers(1, 60), st.sampled_from([1, 1, 1, 2, 3])), max_size=6)


@settings(max_examples=30)
@given(st.sampled_from([512, 4096]), st.lists(page_sets, max_size=4), walks)
def test_every_walk_reads_what_was_written(
    size: int, updates: list[set[int]], walks: list[tuple[int, int, int]]
) -> None:
    with edge() as home:
        volume = home.create("v")
        model = {page: content(page, 0, size) for page in range(1, PAGES + 1)}
        commit(volume, set(model), 0, size)
        for version, pages in enumerate(updates, 1):
            commit(volume, pages, version, size)
            model |= {page: content(page, version, size) for page in pages}
        view = volume.snapshot()
        # Twice: what a walk has found whole, another one takes.
        for start, steps, step in [(1, PAGES, 1), *walks, *walks, (1, PAGES, 1)]:
            for page in range(start, min(start + steps * step, PAGES + 1), step):
                assert view.read(page) == model[page]
        view.close()


def test_a_walk_really_reads_ahead() -> None:
    with edge() as home:
        volume = home.create("v")
        commit(volume, set(range(1, PAGES + 1)), 0, 4096)
        view = volume.snapshot()
        for page in range(1, 20):
            view.read(page)
        assert isinstance(view, LocalSnapshot)
        held = view._scan.held
        assert min(held) == 20
        assert len(held) <= readahead.BATCH_BYTES // 4096
        view.close()


def test_what_was_found_whole_is_not_checked_twice_until_the_store_is_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[int] = []
    digest = readahead._digest

    def counted(data: bytes, seed: int) -> bytes:
        checked.append(seed)
        return digest(data, seed)

    monkeypatch.setattr(readahead, "_digest", counted)
    with edge() as home:
        volume = home.create("v")
        commit(volume, set(range(1, PAGES + 1)), 0, 4096)

        def walk(start: int) -> int:
            """How many pages it checked."""
            checked.clear()
            view = volume.snapshot()
            for page in range(start, PAGES + 1):
                assert view.read(page) == content(page, 0, 4096)
            view.close()
            return len(checked)

        assert walk(1) > PAGES * 3 // 4
        assert walk(1) == 0
        assert walk(7) <= readahead.BATCH_BYTES // 4096
        home.create("w")
        assert walk(1) > PAGES * 3 // 4


def test_a_walk_sees_what_the_journal_has_newer() -> None:
    with edge() as home:
        volume = home.create("v")
        commit(volume, set(range(1, PAGES + 1)), 0, 4096)
        commit(volume, {30, 31}, 1, 4096)
        for _ in range(2):
            view = volume.snapshot()
            for page in range(1, 30):
                assert view.read(page) == content(page, 0, 4096)
            assert not {30, 31} & view.ahead.keys()
            assert view.ahead
            assert [view.read(page) for page in (30, 31, 32)] == [
                content(page, page < 32, 4096) for page in (30, 31, 32)
            ]
            view.close()


def test_what_a_later_commit_writes_is_not_seen_by_a_walk_that_goes_on() -> None:
    with edge() as home:
        volume = home.create("v")
        commit(volume, set(range(1, PAGES + 1)), 0, 4096)
        view = volume.snapshot()
        for page in range(1, 50):
            assert view.read(page) == content(page, 0, 4096)
        commit(volume, set(range(1, PAGES + 1)), 1, 4096)
        for page in range(50, PAGES + 1):
            assert view.read(page) == content(page, 0, 4096)
        view.close()


def test_damage_ahead_is_told_when_it_is_read_and_not_before() -> None:
    with edge() as home:
        volume = home.create("v")
        commit(volume, set(range(1, PAGES + 1)), 0, 4096)
        local = volume._local
        environment, key = local.environment, local.rows(4096).key(30, 1)

        def damage(txn: Txn) -> None:
            body = bytearray(txn.get(key, db=environment.tables.bodies) or b"")
            body[77] ^= 1
            txn.put(key, bytes(body), db=environment.tables.bodies)

        environment.update(damage)
        view = volume.snapshot()
        for page in range(1, 30):
            assert view.read(page) == content(page, 0, 4096)
        with pytest.raises(Corrupt, match="page 30 "):
            view.read(30)
        assert view.read(31) == content(31, 0, 4096)
        view.close()
