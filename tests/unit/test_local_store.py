"""The local store: what is committed is read back whole, by everyone, and damage is told (DESIGN §7; S2.24-S2.26)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budwood.sync.dirty_pages
import budwood.sync.lmdb_open
import budwood.sync.stage
from budwood.sync import mapped_memory
from budwood.sync.change import Change
from budwood.sync.commit import commit, commit_all
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.snapshot import LocalSnapshot
from budwood.sync.volume import Volume
from budwood.volume import faults
from budwood.volume.errors import AlreadyExists, BadInput, Busy, Conflict, Corrupt, NotFound, ReadOnly, Unsupported
from budwood.volume.pageset import PageSet
from budwood.volume.protocols import Durability

from .. import fork_server
from ..waits import LIMIT_SECONDS


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    with open_edge(home=tmp_path / "home", remote="") as edge:
        yield edge


def put(volume: Volume, pages: dict[int, bytes], *, length: int | None = None, page_size: int | None = None) -> None:
    writer = volume.writer(page_size=page_size)
    if length is not None:
        writer.truncate(length)
    for page, data in pages.items():
        writer.write(page, data)
    made = writer.commit(Durability.ORDERED)
    if made is not None:
        made.close()


def fill(number: int, size: int = 4096) -> bytes:
    return bytes([number % 255 + 1]) * size


def first_bytes(volume: Volume) -> list[int]:
    snapshot = volume.snapshot()
    try:
        count = -(-snapshot.length // snapshot.page_size) if snapshot.length else 0
        return [snapshot.read(page)[0] for page in range(1, count + 1)]
    finally:
        snapshot.close()


Step = tuple[int | None, dict[int, int]]
steps = st.lists(
    st.tuples(
        st.none() | st.integers(0, 60_000), st.dictionaries(st.integers(1, 40), st.integers(1, 255), max_size=12)
    ),
    max_size=6,
)


@pytest.mark.parametrize("size", [512, 1024, 4096, 65536])
@settings(max_examples=15)
@given(transactions=steps)
def test_what_is_committed_is_read_back_whatever_its_size(
    tmp_path_factory: pytest.TempPathFactory, size: int, transactions: list[Step]
) -> None:
    """Transactions that spill and that are staged in batches, against a bytearray; lengths need not be whole pages."""
    model = bytearray()
    with pytest.MonkeyPatch.context() as patch, open_edge(home=tmp_path_factory.mktemp("home"), remote="") as edge:
        patch.setattr(budwood.sync.dirty_pages, "MEMORY_BYTES", 3 * size)
        patch.setattr(budwood.sync.stage, "BATCH_BYTES", 5 * size)
        volume = edge.create("v", page_size=size)
        for length, writes in transactions:
            writer = volume.writer()
            if length is not None:
                writer.truncate(length)
                del model[length:]
                model.extend(bytes(length - len(model)))
            for page, value in writes.items():
                writer.write(page, bytes([value]) * size)
                model.extend(bytes(max(0, page * size - len(model))))
                model[(page - 1) * size : page * size] = bytes([value]) * size
            for page in writes:
                assert writer.read(page) == bytes(model[(page - 1) * size : page * size])
            made = writer.commit(Durability.ORDERED)
            if made is not None:
                made.close()
            snapshot = volume.snapshot()
            assert snapshot.length == len(model)
            for page in range(1, 45):
                expected = bytes(model[(page - 1) * size : page * size])
                assert snapshot.read(page) == expected.ljust(size, b"\0")
            snapshot.close()


def test_an_empty_commit_makes_no_lsn(edge: Edge) -> None:
    volume = edge.create("v")
    before = volume.snapshot()
    assert volume.writer(before).commit(Durability.DURABLE) is None
    assert before.renew()
    after = volume.snapshot()
    assert after.identity == before.identity
    before.close()
    after.close()


def test_a_held_view_outlives_every_version_it_reads(edge: Edge) -> None:
    volume = edge.create("v")
    put(volume, {page: fill(1) for page in range(1, 30)})
    held = volume.snapshot()
    for number in range(2, 8):
        put(volume, {page: fill(number) for page in range(1, 30)})
    put(volume, {}, length=0)
    assert {held.read(page)[0] for page in range(1, 30)} == {2}
    held.release()
    assert not held.renew()
    held.close()


def test_a_rested_view_is_renewed_while_nothing_has_changed(edge: Edge) -> None:
    volume = edge.create("v")
    put(volume, {1: fill(1)})
    snapshot = volume.snapshot()
    snapshot.release()
    with pytest.raises(BadInput, match="renew"):
        snapshot.read(1)
    assert snapshot.renew()
    assert snapshot.read(1) == fill(1)
    snapshot.close()


def test_a_refreshed_view_reads_on_and_keeps_no_room_from_being_used_again(edge: Edge) -> None:
    other, volume = edge.create("other"), edge.create("a")
    put(volume, {1: fill(1)})
    view = volume.snapshot()
    assert isinstance(view, LocalSnapshot)
    for number in range(200):
        put(other, {page: fill(number) for page in range(1, 20)})
        assert view.refresh()
    assert view.read(1) == fill(1)
    # Twenty pages, and those that LMDB copied beside them, a few times over; not two hundred times.
    assert edge.environment.data_path.stat().st_size < 2_000_000
    put(volume, {1: fill(2)})
    assert not view.refresh()
    assert view.read(1) == fill(1)
    view.close()


changes = st.lists(
    st.tuples(st.dictionaries(st.integers(1, 12), st.integers(1, 255), max_size=6), st.integers(0, 12)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60)
@given(first=changes, several=changes)
def test_commits_made_at_once_are_as_if_made_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[tuple[dict[int, int], int]],
    several: list[tuple[dict[int, int], int]],
) -> None:
    """Content, length, LSNs and what each commit tells of itself."""
    with open_edge(home=tmp_path_factory.mktemp("home"), remote="") as edge:
        single, batched = edge.create("single", page_size=4096), edge.create("batched", page_size=4096)
        told: list[Any] = []
        for volume in (single, batched):
            for pages, count in first:
                commit(volume.local, volume.local.peek(), change_of(volume, pages, count), Durability.ORDERED)
        for pages, count in several:
            commit(single.local, single.local.peek(), change_of(single, pages, count), Durability.ORDERED)
        length = batched.local.peek().length
        made: list[Change] = []
        for pages, count in several:
            made.append(change_of(batched, pages, count, length))
            length = made[-1].length
        commit_all(batched.local, batched.local.peek(), made, Durability.ORDERED, also=lambda txn: told.append(txn))
        assert len(told) == 1
        assert first_bytes(single) == first_bytes(batched)
        heads = [volume.local.peek() for volume in (single, batched)]
        assert heads[0]._replace(generation=0) == heads[1]._replace(generation=0)
        logs = [[{**row, "time": ""} for row in volume.log()] for volume in (single, batched)]
        assert logs[0] == logs[1]


def change_of(volume: Volume, pages: dict[int, int], count: int, before: int | None = None) -> Change:
    """A transaction that cuts the volume to `count` pages, then writes."""
    before = volume.local.peek().length if before is None else before
    length = max([count * 4096, *(page * 4096 for page in pages)])
    items = [(page, fill(value)) for page, value in sorted(pages.items())]
    return Change(items, PageSet(pages), PageSet(), length, min(before, count * 4096), 4096)


def test_a_large_transaction_that_shrinks_and_grows_keeps_its_pages_apart(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budwood.sync.dirty_pages, "MEMORY_BYTES", 2 * 4096)
    writer = edge.create("a").writer()
    # What is spilled first lies first in the file, and is cut off; what comes then must not take a place in use.
    for page in (9, 8, 1, 2, 3):
        writer.write(page, fill(page))
    writer.truncate(3 * 4096)
    for page in (4, 5, 6, 7):
        writer.write(page, fill(page))
    assert [writer.read(page)[0] for page in range(1, 8)] == [fill(page)[0] for page in range(1, 8)]
    writer.rollback()


def test_the_write_lock_has_one_holder_and_the_late_writer_conflicts(edge: Edge) -> None:
    """S2.26: a writer takes the lock or is told Busy; one whose view is old is told Conflict, and nothing is lost."""
    volume = edge.create("v")
    put(volume, {1: fill(1)})
    old = volume.snapshot()
    first = volume.writer()
    first.write(1, fill(2))
    with pytest.raises(Busy):
        volume.writer(old)
    made = first.commit(Durability.ORDERED)
    assert made is not None
    made.close()
    with pytest.raises(Conflict):
        volume.writer(old)
    assert first_bytes(volume) == [3]
    put(volume, {1: fill(3)})
    old.close()


def test_a_rolled_back_transaction_leaves_nothing(edge: Edge) -> None:
    volume = edge.create("v")
    put(volume, {1: fill(1)})
    writer = volume.writer()
    writer.write(1, fill(2))
    writer.rollback()
    writer.rollback()
    with pytest.raises(BadInput, match="over"):
        writer.commit(Durability.ORDERED)
    assert first_bytes(volume) == [2]


def test_a_page_size_is_settled_once(edge: Edge) -> None:
    volume = edge.create("v")
    assert volume.page_size is None
    put(volume, {1: fill(1, 8192)}, page_size=8192)
    assert volume.page_size == 8192
    with pytest.raises(BadInput, match="8192"):
        volume.writer(page_size=4096)
    with pytest.raises(BadInput, match="8192"):
        put(volume, {1: fill(1, 4096)})


def test_a_growing_map_keeps_views_and_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the address space is short the map starts small; growing it ends LMDB's transactions, not our views."""
    monkeypatch.setattr(budwood.sync.lmdb_open, "MAP_BYTES", 1 << 20)
    with open_edge(home=tmp_path / "home", remote="") as edge:
        volume = edge.create("v")
        other = edge.create("w")
        put(other, {1: fill(7)})
        held = other.snapshot()
        put(volume, {page: os.urandom(4096) for page in range(1, 2000)})
        assert edge.environment.growths > 0
        assert held.read(1) == fill(7)
        held.close()
        assert len(first_bytes(volume)) == 1999


def test_letting_the_mapping_go_changes_no_read(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = edge.create("v")
    put(volume, {page: fill(page) for page in range(1, 100)})
    monkeypatch.setattr(mapped_memory, "FILE_BYTES", 0)
    snapshot = volume.snapshot()
    for page in range(1, 100):
        assert mapped_memory.trim(edge.environment.data_path, 0)
        assert snapshot.read(page) == fill(page)
    snapshot.close()


def test_names_are_unique_and_move(edge: Edge) -> None:
    edge.create("a")
    with pytest.raises(AlreadyExists, match="'a'"):
        edge.create("a")
    long = "/".join(["x" * 200] * 5)
    edge.mv("a", long)
    assert [row["name"] for row in edge.ls()] == [long]
    with pytest.raises(NotFound):
        edge.volume("a")
    edge.rm(long)
    assert edge.ls() == []


CREATE = """
import sys
from budwood.sync.edge import open
from budwood.volume.errors import AlreadyExists

with open(home=sys.argv[1], remote="") as edge:
    try:
        edge.create("same")
        print("made")
    except AlreadyExists:
        print("taken")
"""


def test_of_several_processes_that_make_one_name_one_wins(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", CREATE, str(tmp_path / "home")]
    children = [fork_server.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = sorted(child.communicate(timeout=LIMIT_SECONDS)[0].strip() for child in children)
    assert answers == ["made", "taken", "taken", "taken"]


def test_a_removed_volume_leaves_no_row_and_its_open_views_stay(edge: Edge) -> None:
    volume = edge.create("v")
    put(volume, {page: fill(page) for page in range(1, 50)})
    held = volume.snapshot()
    edge.rm("v", discard=True)
    assert held.read(49) == fill(49)
    held.close()
    with edge.environment.view() as txn:
        for table in edge.environment.tables[1:]:
            assert txn.stat(table)["entries"] == 0
    with pytest.raises(NotFound):
        volume.snapshot()


def test_what_a_dead_maker_left_is_removed_at_the_next_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork of several batches, cut before it is visible."""

    def cut() -> None:
        raise faults.Cut

    monkeypatch.setattr(budwood.sync.stage, "BATCH_BYTES", 8 * 4096)
    with open_edge(home=tmp_path / "home", remote="") as edge:
        put(edge.create("v"), {page: fill(page) for page in range(1, 50)})
        faults.arm("stage: all rows written, head not moved", cut)
        with pytest.raises(faults.Cut):
            edge.fork("v", "w")
        faults.disarm()
        assert [row["name"] for row in edge.ls()] == ["v"]
    with open_edge(home=tmp_path / "home", remote="") as edge:
        with edge.environment.view() as txn:
            assert txn.stat(edge.environment.tables.tails)["entries"] == 49
            assert txn.stat(edge.environment.tables.stages)["entries"] == 0
        assert edge.fork("v", "w").status()["held_pages"] == 49


def test_a_fork_of_the_process_opens_anew(tmp_path: Path) -> None:
    """The child neither uses nor harms what it inherited: the parent's view stays held, its write lock stays locked."""
    with open_edge(home=tmp_path / "home", remote="") as edge:
        volume = edge.create("v")
        put(volume, {1: fill(1)})
        held = volume.snapshot()
        assert held.read(1) == fill(1)
        writer = volume.writer(held)
        child = os.fork()
        if child == 0:
            try:
                assert first_bytes(volume) == [2]
                with pytest.raises(BadInput):
                    held.read(1)
                with pytest.raises(Busy):
                    volume.writer()
                edge.create("from the child")
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert held.read(1) == fill(1)
        with pytest.raises(Busy):
            volume.writer()
        writer.write(1, fill(5))
        made = writer.commit(Durability.ORDERED)
        assert made is not None
        assert made.read(1) == fill(5)
        made.close()
        held.close()
        assert [row["name"] for row in edge.ls()] == ["from the child", "v"]


def test_a_read_only_view_of_a_volume_is_not_written(edge: Edge) -> None:
    put(edge.create("v"), {1: fill(1)})
    pages = edge.pages("v", "ro")
    assert pages.read_only
    snapshot = pages.snapshot()
    with pytest.raises(ReadOnly):
        pages.writer(snapshot)
    snapshot.close()
    with pytest.raises(NotFound):
        edge.pages("nothing", "rw")
    assert edge.pages("something", "rwc").page_size is None


def test_a_newer_home_is_refused_and_a_gutted_one_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    open_edge(home=home, remote="").close()
    monkeypatch.setattr(budwood.sync.lmdb_open, "FORMAT_VERSION", 0)
    with pytest.raises(Unsupported, match="upgrade"):
        open_edge(home=home, remote="")
    monkeypatch.undo()
    (home / "store" / "data.mdb").unlink()
    (home / "store" / "lock.mdb").unlink()
    with pytest.raises(Corrupt, match=r"home\.json"):
        open_edge(home=home, remote="")


FLIP = """
import random, shutil, sys
from pathlib import Path
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import BudwoodError

home, damaged, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
whole = (home / "store" / "data.mdb").read_bytes()
random = random.Random(seed)
for _ in range(40):
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(home, damaged)
    (damaged / "store" / "lock.mdb").unlink()
    data = bytearray(whole)
    if random.random() < 0.2:
        del data[random.randrange(len(data)) :]
    else:
        heads = random.randrange(len(data) // 4096) * 4096 + random.randrange(48)
        at = random.choice([random.randrange(len(data)), heads])
        data[at] ^= random.randrange(1, 256)
    (damaged / "store" / "data.mdb").write_bytes(data)
    try:
        with open_edge(home=damaged, remote="") as edge:
            snapshot = edge.volume("v").snapshot()
            assert snapshot.length == 60 * 4096
            for page in range(1, 61):
                try:
                    assert snapshot.read(page) == bytes([page]) * 4096, "wrong data"
                except BudwoodError:
                    pass
            snapshot.close()
    except BudwoodError:
        pass
print("done")
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_damaged_byte_or_a_cut_file_gives_an_error_and_never_wrong_data(tmp_path: Path, seed: int) -> None:
    """DESIGN §9.5, in a child: whatever the file holds, the process must not die of it."""
    with open_edge(home=tmp_path / "home", remote="") as edge:
        volume = edge.create("v")
        put(volume, {page: fill(9) for page in range(1, 61)})
        for first in range(1, 61, 20):
            put(volume, {page: bytes([page]) * 4096 for page in range(first, first + 20)})
    arguments = [sys.executable, "-P", "-c", FLIP, str(tmp_path / "home"), str(tmp_path / "damaged"), str(seed)]
    child = fork_server.run(arguments, timeout=LIMIT_SECONDS)
    assert (child.returncode, child.stdout) == (0, "done\n"), child.stderr[-2000:]
