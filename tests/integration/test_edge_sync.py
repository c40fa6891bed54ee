"""Edges over one store, without SQLite: names, first pushes, clones, forks, pinned views, and what is asked of the
remote when.
"""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import budwood.lite
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.environment import Environment
from budwood.sync.local_volume import Local
from budwood.sync.name_table import NameTable
from budwood.sync.namespace import Namespace
from budwood.sync.tables import VolumeRecord
from budwood.sync.volume import Volume
from budwood.volume import faults
from budwood.volume.calls import CHANGE_NAME, PIN, PinRequest
from budwood.volume.errors import (
    AlreadyExists,
    BadInput,
    Busy,
    Corrupt,
    Diverged,
    NotFound,
    ReadOnly,
    Unavailable,
    WrongStore,
)
from budwood.volume.protocols import Durability

from ..namespaces import DIRECTORY, link
from ..waits import LIMIT_SECONDS
from .cli import Command

SIZE = 4096


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    return f"file://{tmp_path}/store"


@pytest.fixture
def one(tmp_path: Path, store: str) -> Iterator[Edge]:
    with open_edge(home=tmp_path / "one", remote=store) as edge:
        yield edge


@pytest.fixture
def two(tmp_path: Path, store: str) -> Iterator[Edge]:
    with open_edge(home=tmp_path / "two", remote=store) as edge:
        yield edge


def put(volume: Volume, pages: dict[int, int], *, cut: int | None = None) -> None:
    writer = volume.writer()
    if cut is not None:
        writer.truncate(cut * SIZE)
    for page, value in pages.items():
        writer.write(page, bytes([value]) * SIZE)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def values(volume: Volume, *, lsn: int | None = None) -> list[int]:
    snapshot = volume.snapshot(lsn=lsn)
    try:
        return [snapshot.read(page)[0] for page in range(1, snapshot.length // SIZE + 1)]
    finally:
        snapshot.close()


class Calls:
    """Notes which calls an edge makes to its remote, but for those that change a name."""

    def __init__(self, edge: Edge, patch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        remote = edge.connection().remote
        for name in ("ask", "commit", "write_pages", "read_pages"):
            patch.setattr(remote, name, self._noting(name, getattr(remote, name)))

    def _noting(self, name: str, call: Any) -> Any:
        def noting(*arguments: Any, **options: Any) -> Any:
            asked = arguments[0].name if name == "ask" else name
            if asked != CHANGE_NAME.name:
                self.names.append(asked)
            return call(*arguments, **options)

        return noting

    def taken(self) -> list[str]:
        names, self.names = self.names, []
        return names


def test_a_push_of_one_row_looks_at_the_local_store_twice(one: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for what stands, once for the pages; and once into the volume's record, beside the one it writes."""
    volume = one.create("v")
    put(volume, {1: 1})
    volume.push()
    put(volume, {1: 2})
    looks: list[str] = []

    def noting(kind: type, name: str) -> None:
        call = getattr(kind, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            looks.append(name)
            return call(*arguments, **options)

        monkeypatch.setattr(kind, name, noted)

    noting(Environment, "view")
    noting(Environment, "read_with_tail")
    noting(Environment, "update")
    noting(Local, "record")
    assert volume.push() == "2"
    # And at the home twice: whether it has room to give back, and whether it may keep so much.
    assert Counter(looks) == {"read_with_tail": 1, "view": 2, "update": 3, "record": 2}
    looks.clear()
    assert volume.push() == "2"
    assert Counter(looks) == {"read_with_tail": 1, "record": 1}
    assert volume.pull() == "2"
    assert Counter(looks) == {"read_with_tail": 2, "record": 2}


def use(home: Path, name: str, remote: str | None, *pragmas: str) -> None:
    with closing(budwood.connect(name, home=home, remote=remote)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS t(a)")
        db.execute("INSERT INTO t VALUES (1)")
        for pragma in pragmas:
            db.execute(f"PRAGMA {pragma}").fetchall()


def test_whoever_uses_one_volume_looks_at_no_other(
    one: Edge, tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home may have a hundred thousand."""
    alone = tmp_path / "alone"
    use(alone, "v", None)
    for name in ("v", "w"):
        use(one.home, name, store, "budwood_push")
    listed = list[NameTable]()

    def volumes(table: NameTable) -> Iterator[VolumeRecord]:
        listed.append(table)
        return iter(())

    monkeypatch.setattr(NameTable, "volumes", volumes)
    use(alone, "v", None)
    for remote in (store, None):
        use(one.home, "v", remote, "budwood_pull", "budwood_push")
    use(one.home, "new", store, "budwood_push")
    with open_edge(home=tmp_path / "two", remote=store) as two:
        two.volume("w").pull()
    one.mv("w", "x")
    one.rm("v")
    assert listed == []


def test_a_volume_goes_round_and_asks_the_remote_no_more_than_it_must(
    one: Edge, two: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2.1, S2.7, S2.27, S2.28: commits ask nothing, a small push is one call, a pull moves no page, a warm read
    none.
    """
    first, calls = one.create("v"), Calls(one, monkeypatch)
    put(first, {1: 1, 2: 2, 200: 3})
    assert calls.taken() == []
    assert first.push() == "1"
    assert calls.taken()[-1] == "commit"
    put(first, {2: 4})
    assert (first.push(), calls.taken()) == ("2", ["commit"])
    assert (first.push(), calls.taken()) == ("2", [])
    second = two.volume("v")
    theirs = Calls(two, monkeypatch)
    assert values(second)[:3] == [1, 4, 0]
    theirs.taken()
    assert values(second)[199] == 3
    assert theirs.taken() == []
    put(first, {1: 5})
    first.push()
    assert (second.pull(), theirs.taken()) == ("3", ["pull_changes"])
    assert values(second)[:2] == [5, 4]
    assert theirs.taken() == ["read_pages"]


def test_what_is_fetched_is_read_without_a_remote(one: Edge, tmp_path: Path, store: str) -> None:
    volume = one.create("v")
    put(volume, dict.fromkeys(range(1, 150), 7))
    volume.push()
    with open_edge(home=tmp_path / "far", remote=store) as far:
        steps: list[tuple[int, int]] = []
        assert far.volume("v").fetch(progress=lambda done, total: steps.append((done, total))) == 149
        assert steps[-1] == (149, 149)
        assert far.volume("v").fetch() == 0
    (tmp_path / "store").rename(tmp_path / "gone")
    with open_edge(home=tmp_path / "far", remote="") as far:
        volume = far.volume("v")
        assert set(values(volume)) == {7}
        assert set(values(volume, lsn=1)) == {7}
        put(volume, {1: 8})
        assert volume.status()["lsn"] == "1+1"
        # At this path a new store would be made, and that is not the volume's.
        with pytest.raises(WrongStore):
            volume.push()
        assert values(volume)[0] == 8


def test_a_name_is_cloned_when_the_remote_knows_it_and_made_only_when_nobody_does(
    one: Edge, two: Edge, tmp_path: Path
) -> None:
    put(one.create("v"), {1: 1})
    one.volume("v").push()
    with pytest.raises(NotFound):
        two.pages("other", "rw")
    assert two.pages("v", "ro").page_size == SIZE
    assert two.pages("fresh", "rwc").page_size is None
    with open_edge(home=tmp_path / "three", remote="http://127.0.0.1:9") as down:
        with pytest.raises(Unavailable):
            down.pages("v", "rwc")
        assert down.ls() == []
        down.create("made offline")
        assert down.pages("made offline", "rwc").page_size is None
    with pytest.raises(AlreadyExists):
        two.clone("v", "w")
    assert [row["name"] for row in two.ls()] == ["fresh", "v"]


def test_a_directory_or_a_link_is_no_volume_to_anybody(
    one: Edge, two: Edge, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have names, which lead to nothing."""
    put(one.create("dir/v"), {1: 1})
    one.volume("dir/v").push()
    names = Namespace(one)
    names.make_directory("dir", DIRECTORY)
    names.make_link("link", link("dir/v"))
    names.push()
    assert [row["name"] for row in two.ls(remote=True)] == ["dir/v"]
    user = Command(capsys, two.home, store)
    for name in ("dir", "link"):
        said = f"'{name}' is a directory or a link at {store}, and no volume"
        with pytest.raises(BadInput, match=said):
            two.clone(name, "here")
        with pytest.raises(BadInput, match=said):
            budwood.lite.connect(store, name)
        for call in (
            ["sql", name, "SELECT 1"],
            ["pins", name],
            ["fingerprint", "dir/v", "--against", f"{store}#{name}"],
        ):
            assert said in user(*call).line(2)


def test_two_edges_that_made_the_same_name_are_told_and_both_are_kept(one: Edge, two: Edge) -> None:
    put(one.create("v"), {1: 1})
    put(two.create("v"), {1: 2})
    one.volume("v").push()
    with pytest.raises(AlreadyExists, match="--as"):
        two.volume("v").push()
    assert two.volume("v").status()["unpushed"] == 1
    assert two.volume("v").push(as_name="w") == "1"
    assert [row["name"] for row in one.ls(remote=True)] == ["v", "w"]
    assert values(one.volume("w")) == [2]
    assert values(two.volume("v")) == [2]


def test_another_store_than_the_volume_s_is_refused_and_the_same_under_another_url_is_not(
    one: Edge, tmp_path: Path
) -> None:
    put(one.create("v"), {1: 1})
    one.volume("v").push()
    put(one.volume("v"), {1: 2})
    with open_edge(home=tmp_path / "third", remote=f"file://{tmp_path}/other") as edge:
        put(edge.create("w"), {1: 3})
        edge.volume("w").push()
    with open_edge(home=tmp_path / "one", remote=f"file://{tmp_path}/other") as edge:
        for act in (Volume.push, Volume.pull):
            with pytest.raises(WrongStore):
                act(edge.volume("v"))
        with pytest.raises(WrongStore):
            edge.volume("v").reset(discard=True)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with open_edge(home=tmp_path / "one", remote=f"file://{tmp_path}/link") as edge:
        assert edge.volume("v").push() == "2"
        assert edge.volume("v").status()["remote"].endswith("/link")


def test_the_remote_needs_to_be_given_once(one: Edge, tmp_path: Path) -> None:
    put(one.create("v"), {1: 1})
    with open_edge(home=tmp_path / "lone", remote="") as lone:
        put(lone.create("w"), {1: 1})
        with pytest.raises(BadInput, match="--remote"):
            lone.volume("w").push()
    one.volume("v").push()
    put(one.volume("v"), {1: 2})
    with open_edge(home=tmp_path / "one", remote="") as again:
        assert again.volume("v").push() == "2"


def test_a_diverged_volume_says_so_and_both_ways_out_lose_nothing(one: Edge, two: Edge) -> None:
    """S2.7: a view of the discarded history is invalidated."""
    first = one.create("v")
    put(first, {1: 1, 2: 1})
    first.push()
    second = two.volume("v")
    put(second, {1: 9})
    put(first, {2: 2})
    first.push()
    for act in (second.push, second.pull):
        with pytest.raises(Diverged, match="reset v"):
            act()
    assert second.status()["diverged"]
    with pytest.raises(Diverged, match="--discard"):
        second.reset()
    assert values(two.fork("v", "kept")) == [9, 1]
    view = second.snapshot()
    assert second.reset(keep_as="also kept") == "2"
    assert (values(second), values(two.volume("also kept"))) == ([1, 2], [9, 1])
    assert not second.status()["diverged"]
    assert view.read(1)[0] == 9
    view.release()
    assert not view.renew()
    view.close()
    assert two.volume("also kept").push() == "2"
    assert values(one.volume("also kept")) == [9, 1]


def test_a_fork_reads_like_its_origin_offline_and_is_made_on_the_remote_by_its_first_push(
    one: Edge, two: Edge, tmp_path: Path
) -> None:
    volume = one.create("v")
    put(volume, {1: 1, 2: 2, 3: 3})
    volume.push()
    put(volume, {2: 9}, cut=2)
    store = tmp_path / "store"
    store.rename(tmp_path / "away")
    fork = one.fork("v", "f")
    assert values(fork) == [1, 9]
    put(fork, {4: 4})
    (tmp_path / "away").rename(store)
    assert fork.status()["lsn"] == "1+2"
    assert fork.push() == "2"
    assert values(two.volume("f")) == [1, 9, 0, 4]
    assert (volume.push(), values(two.volume("v"))) == ("2", [1, 9])


def test_a_fork_of_a_past_lsn_has_no_later_page(one: Edge, two: Edge) -> None:
    volume = one.create("v")
    for value in (1, 2, 3):
        put(volume, {1: value})
        volume.push()
    past = one.fork("v", "past", lsn=2)
    assert (values(past), past.status()["lsn"]) == ([2], "2")
    put(past, {2: 5})
    assert past.push() == "3"
    assert values(two.volume("past")) == [2, 5]
    with pytest.raises(NotFound):
        one.fork("v", "never", lsn=9)
    request = PinRequest(volume.id.raw, lsn=2, seconds=0, kind="named", label="good")
    one.connection().remote.ask(PIN, request)
    for name, at in (("labelled", "@good"), ("dated", volume.moment(2).time)):
        assert (values(one.fork("v", name, at=at)), one.volume(name).status()["lsn"]) == ([2], "2")
    with pytest.raises(NotFound, match="is called 'bad'"):
        one.fork("v", "never", at="@bad")
    with pytest.raises(BadInput, match="not both"):
        one.fork("v", "never", lsn=2, at="@good")
    assert [row["name"] for row in one.ls()] == ["dated", "labelled", "past", "v"]


def test_a_pinned_view_never_moves_and_is_not_written(one: Edge, two: Edge) -> None:
    volume = one.create("v")
    put(volume, dict.fromkeys(range(1, 100), 1))
    volume.push()
    pages = two.pages("v", "rwc", lsn=1)
    held = pages.snapshot()
    put(volume, dict.fromkeys(range(1, 100), 2))
    volume.push()
    two.volume("v").pull()
    assert {held.read(page)[0] for page in range(1, 100)} == {1}
    held.release()
    assert held.renew()
    assert held.identity == 1
    assert pages.snapshot().read(50)[0] == 1
    with pytest.raises(ReadOnly):
        pages.writer(held)
    with pytest.raises(NotFound):
        two.pages("v", lsn=7)
    assert values(two.volume("v"), lsn=2) == [2] * 99
    moment = two.volume("v").log()[1]["time"]
    snapshot = two.volume("v").snapshot(at=moment)
    assert (snapshot.identity, snapshot.read(1)[0]) == (1, 1)
    snapshot.close()
    held.close()


def test_names_move_and_go_on_both_sides(one: Edge, two: Edge) -> None:
    put(one.create("v"), {1: 1})
    put(one.create("w"), {1: 2})
    one.volume("v").push()
    one.volume("w").push()
    one.mv("v", "renamed")
    assert [row["name"] for row in one.ls(remote=True)] == ["renamed", "w"]
    two.clone("renamed", "mine")
    with pytest.raises(AlreadyExists):
        two.clone("renamed", "again")
    two.create("taken here")
    with pytest.raises(AlreadyExists):
        two.mv("mine", "taken here")
    put(two.volume("mine"), {1: 3})
    with pytest.raises(Diverged, match="discard"):
        two.rm("mine")
    two.rm("mine", discard=True)
    assert values(two.clone("renamed")) == [1]
    one.rm("w", remote=True)
    assert [row["name"] for row in two.ls(remote=True)] == ["renamed"]


def test_one_push_at_a_time_and_the_second_is_told(one: Edge) -> None:
    volume = one.create("v")
    put(volume, {1: 1})
    outcome: list[type[Exception]] = []

    def meanwhile() -> None:
        faults.disarm()
        try:
            volume.push()
        except Busy as error:
            outcome.append(type(error))

    faults.arm("push: end captured, nothing sent", meanwhile)
    assert volume.push() == "1"
    assert outcome == [Busy]


def test_threads_that_miss_the_same_page_share_one_request(
    one: Edge, two: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(one.create("v"), dict.fromkeys(range(1, 200), 5))
    one.volume("v").push()
    volume = two.volume("v")
    remote = two.connection().remote
    read, started, all_here = remote.read_pages, threading.Semaphore(0), threading.Event()
    asked: list[int] = []

    def slow(*arguments: Any, **options: Any) -> Any:
        asked.append(1)
        all_here.wait(LIMIT_SECONDS)
        return read(*arguments, **options)

    monkeypatch.setattr(remote, "read_pages", slow)
    found: list[int] = []

    def reader() -> None:
        snapshot = volume.snapshot()
        started.release()
        found.append(snapshot.read(3)[0])
        snapshot.close()

    threads = [threading.Thread(target=reader) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in threads:
        started.acquire()
    all_here.set()
    for thread in threads:
        thread.join()
    assert found == [5] * 6
    # A thread that starts late may find the page in the store; none asks while another does.
    assert len(asked) <= 2


def test_a_scan_asks_for_more_at_each_step(one: Edge, two: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    put(one.create("v"), {page: 1 + page % 200 for page in range(1, 3001)})
    one.volume("v").push()
    volume = two.volume("v")
    calls = Calls(two, monkeypatch)
    assert values(volume) == [1 + page % 200 for page in range(1, 3001)]
    assert len(calls.taken()) < 12


def test_a_remote_page_that_is_not_what_was_written_is_told_and_nothing_is_kept(
    one: Edge, two: Edge, tmp_path: Path
) -> None:
    """DESIGN §9.5: then the next read asks again."""
    put(one.create("v"), {1: 1})
    one.volume("v").push()
    volume = two.volume("v")
    damaged = [path for path in (tmp_path / "store").rglob("*") if path.is_file() and "entries" in str(path)]
    whole = {path: path.read_bytes() for path in damaged}
    volume.snapshot().close()
    remote = two.connection().remote
    remote.close()
    for path, data in whole.items():
        path.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    with open_edge(home=tmp_path / "two", remote="") as again, pytest.raises(Corrupt):
        values(again.volume("v"))
    for path, data in whole.items():
        path.write_bytes(data)
    with open_edge(home=tmp_path / "two", remote="") as again:
        assert values(again.volume("v")) == [1]


def test_sync_modes_are_kept(one: Edge) -> None:
    """S2.30."""
    volume = one.create("v")
    put(volume, {1: 1})
    volume.set_mode("pull")
    with pytest.raises(BadInput, match="'pull'"):
        volume.push()
    volume.set_mode("push")
    assert volume.push() == "1"
    with pytest.raises(BadInput, match="'push'"):
        volume.pull()
    with pytest.raises(BadInput, match="disabled"):
        volume.set_mode("sometimes")


def test_where_a_store_vanished_nothing_is_made_in_its_place(tmp_path: Path) -> None:
    """As when the file system that it lies on isn't mounted: each call says so, and all is well once it is back."""
    store, away = tmp_path / "store", tmp_path / "away"

    def home() -> Edge:
        return open_edge(home=tmp_path / "home", remote=store.as_uri())

    with home() as edge:
        assert edge.pages("v") is not None  # an unknown name is asked for, which makes no store yet
        assert not store.exists()
        put(edge.volume("v"), {1: 1})
        assert edge.volume("v").push() == "1"
        edge.create("new")
        put(edge.volume("new"), {1: 2})
    store.rename(away)
    with home() as edge:
        put(edge.volume("v"), {1: 3})
        for call in (edge.volume("v").pull, edge.volume("v").push):
            with pytest.raises(WrongStore, match="no such directory"):
                call()
        for name in ("new", "unknown"):
            with pytest.raises(Unavailable, match=r"'v' belongs to store .* bring it back"):
                edge.volume("new").push() if name == "new" else edge.pages(name)
        assert not store.exists()
    store.mkdir()
    with home() as edge:
        for call in (edge.volume("v").pull, edge.volume("v").push):
            with pytest.raises(WrongStore, match="no Budwood store"):
                call()
        with (
            pytest.raises(NotFound, match="no Budwood store"),
            open_edge(home=tmp_path / "two", remote=store.as_uri()) as two,
        ):
            two.clone("v")
    store.rmdir()  # nothing was put into it
    away.rename(store)
    with home() as edge:
        assert (edge.volume("v").push(), edge.volume("new").push()) == ("2", "1")


def test_a_fork_without_commits_of_its_own_gets_its_name_by_a_push(one: Edge, two: Edge) -> None:
    """Else nobody else could open it until its first commit."""
    put(one.create("v"), {1: 1})
    one.volume("v").push()
    for child in (one.fork("v", "now"), one.fork("v", "past", lsn=1)):
        assert (child.status()["unpushed"], child.push(), child.push()) == (0, "1", "1")
        assert two.volume(child.name).id == child.id
        assert child.status()["remote_name"] == child.name
    assert one.volume("v").push(as_name="v2") == "1"
    assert two.volume("v2").id == one.volume("v").id
    with pytest.raises(AlreadyExists, match="another volume by the name 'now'"):
        one.volume("v").push(as_name="now")


def test_an_empty_volume_has_nothing_to_fetch(one: Edge) -> None:
    assert one.create("v").fetch() == 0
    assert one.create("sized", page_size=512).fetch() == 0


def test_a_time_that_no_clock_shows_is_refused(one: Edge) -> None:
    volume = one.create("v")
    put(volume, {1: 1})
    volume.push()
    with pytest.raises(BadInput, match="beyond the times"):
        volume.snapshot_at(at="0001-01-01")


def test_volumes_that_nobody_uses_any_more_don_t_gather_in_an_edge(one: Edge) -> None:
    kept = one.create("kept")
    put(kept, {1: 1})
    engine = weakref.ref(one._engine(kept.id, "kept"))  # pyright: ignore[reportPrivateUsage]
    for number in range(40):
        put(one.create(f"v{number}"), {1: number})
    gc.collect()
    assert len(one._engines) == 1  # pyright: ignore[reportPrivateUsage]
    one.mv("kept", "moved")
    assert one.volume("moved").local is kept.local
    assert kept.name == "moved"
    del kept
    gc.collect()
    assert engine() is None
    assert one.volume("v7").status()["lsn"] == "0+1"


def test_what_is_of_another_type_is_refused_in_words(one: Edge) -> None:
    wrong: Any = {"path": Path("w"), "bytes": b"w", "none": None, "list": [], "number": 7, "half": 1.5}
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: one.volume(wrong["number"]), "7 is no name: it isn't text"),
        (lambda: one.rm(wrong["bytes"]), "b'w' is no name: it isn't text"),
        (lambda: one.create(wrong["none"]), "None can't name a volume: it isn't text"),
        (lambda: budwood.connect(wrong["path"], home=one.home), "it isn't text"),
        (lambda: budwood.open(home=one.home, remote=wrong["path"]), "is no remote: it isn't text"),
        (lambda: budwood.open(home=one.home, token=wrong["bytes"]), "printable ASCII characters only"),
        (lambda: budwood.open(home=""), '"" is no home: name a directory'),
        (lambda: budwood.connect("w", home=""), '"" is no home: name a directory'),
        (lambda: budwood.open(home=one.home, cache_bytes=-1), "-1 is no size in bytes"),
        (lambda: budwood.open(home=one.home, cache_bytes=1 << 63), f"{1 << 63} is no size in bytes"),
        (lambda: budwood.open(home=one.home, cache_bytes=wrong["half"]), r"1\.5 is no size in bytes"),
        (lambda: next(budwood.listen(wrong["list"], "w")), r"\[\] is no remote: it isn't text"),
        (lambda: next(budwood.listen(one.remote, wrong["number"])), "7 is no name: it isn't text"),
    ]
    for call, said in refused:
        with pytest.raises(BadInput, match=said):
            call()


def test_an_export_replaces_no_device_or_pipe(one: Edge, tmp_path: Path) -> None:
    volume, pipe = one.create("v"), tmp_path / "pipe"
    put(volume, {1: 1})
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match="no regular file"):
        volume.export(pipe, overwrite=True)
    assert pipe.is_fifo()
    with pytest.raises(BadInput, match="name too long"):
        volume.export(tmp_path / ("x" * 300))
