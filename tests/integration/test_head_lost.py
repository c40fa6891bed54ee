"""A store that has lost a volume's newest entry: whoever has seen a later LSN says Corrupt, and neither moves back nor
builds on what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from budwood.lite.pages import LitePages
from budwood.lite.source import Source
from budwood.lite.transaction import LiteWriter
from budwood.remote.portal import open_remote
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.namespace import Namespace
from budwood.sync.volume import Volume
from budwood.volume import faults
from budwood.volume.calls import SNAPSHOT, SnapshotRequest
from budwood.volume.errors import Corrupt, Unavailable
from budwood.volume.protocols import Durability

from ..lost_answers import unheard
from ..namespaces import DIRECTORY

SIZE = 4096
COMMITS = 3


def put(volume: Volume, page: int, value: int) -> None:
    writer = volume.writer()
    writer.write(page, bytes([value]) * SIZE)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def read(volume: Volume, page: int, lsn: int | None = None) -> int:
    with closing(volume.snapshot(lsn=lsn)) as snapshot:
        return snapshot.read(page)[0]


def lose_newest(store: Path) -> None:
    """The entry of the newest commit, of every log that has commits."""
    for entries in store.glob("logs/*/entries"):
        names = sorted(entries.rglob("*"))
        if len(names) > COMMITS:
            names[0].unlink()


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[Edge]:
    """An edge that has pushed three commits, holds none of their pages but page 9, and can't find the third."""
    remote = f"file://{tmp_path}/store"
    with open_edge(home=tmp_path / "home", remote=remote) as edge:
        volume = edge.create("v", page_size=SIZE)
        for lsn in range(1, COMMITS + 1):
            put(volume, lsn, lsn)
            volume.push()
    with open_edge(home=tmp_path / "other", remote=remote) as edge:
        edge.volume("v")
    lose_newest(tmp_path / "store")
    with open_edge(home=tmp_path / "other", remote=remote) as edge:
        yield edge


CALLS: dict[str, Callable[[Volume], object]] = {
    "pull": lambda volume: volume.pull(),
    "read": lambda volume: read(volume, 1),
    "read at the LSN": lambda volume: read(volume, 1, COMMITS),
    "fetch": lambda volume: volume.fetch(),
    "reset": lambda volume: volume.reset(discard=True),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_edge_that_has_seen_more_than_the_remote_has_says_so(seen: Edge, call: str) -> None:
    volume = seen.volume("v")
    with pytest.raises(Corrupt, match=r"'v' at file://.*ends at LSN 2, and LSN 3 was seen before"):
        CALLS[call](volume)
    assert volume.status()["lsn"] == "3"


def test_a_push_onto_an_lsn_that_is_gone_is_refused_and_keeps_its_commits(seen: Edge) -> None:
    volume = seen.volume("v")
    put(volume, 9, 9)
    for _ in range(2):
        with pytest.raises(Corrupt, match="ends at LSN 2, and LSN 3 was seen before"):
            volume.push()
        status = volume.status()
        assert (status["lsn"], status["diverged"]) == ("3+1", False)
    assert read(volume, 9) == 9
    assert seen.connection().remote.ask(SNAPSHOT, SnapshotRequest(volume.id.raw)).lsn == 2


def test_a_fork_whose_first_push_was_cut_off_has_lost_nothing(tmp_path: Path) -> None:
    """Until the remote has it, what it shares is looked for in its parent, where that was made at another time: of that
    nothing may be remembered."""
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v", page_size=SIZE)
        put(volume, 1, 1)
        volume.push()
        fork = edge.fork("v", "fork")
        put(fork, 2, 9)
        fork.reset(discard=True)
        assert fork.local.record().synced_ms
        put(fork, 2, 2)
        faults.arm("push: token durable, commit not sent", cut)
        try:
            with pytest.raises(faults.Cut):
                fork.push()
        finally:
            faults.disarm()
        there = edge.connection().remote.ask(SNAPSHOT, SnapshotRequest(fork.id.raw))
        assert (there.lsn, fork.local.record().synced_ms) == (1, 0)
        assert fork.push() == "2"


def cut() -> None:
    raise faults.Cut


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Namespace]:
    """The names of a home that has seen three changes of them, of which the remote has lost the last."""
    remote = f"file://{tmp_path}/store"
    with open_edge(home=tmp_path / "home", remote=remote) as edge:
        names = Namespace(edge)
        for name in "abc":
            names.make_directory(name, DIRECTORY)
        names.push()
    with open_edge(home=tmp_path / "other", remote=remote) as edge:
        Namespace(edge).pull()
    lose_newest(tmp_path / "store")
    with open_edge(home=tmp_path / "other", remote=remote) as edge:
        yield Namespace(edge)


def test_names_that_were_seen_do_not_go_back(told: Namespace) -> None:
    for _ in range(2):
        with pytest.raises(Corrupt, match=r"the names at file://.*: they end at revision 2, and 3 was seen before"):
            told.pull()
    assert [entry.name for entry in told.entries()] == ["a", "b", "c"]


def test_a_change_of_names_at_a_revision_that_was_lost_is_told(told: Namespace) -> None:
    told.remove("a")
    with pytest.raises(Corrupt, match="a change made there now is revision 3, which was seen before"):
        told.push()
    assert [entry.name for entry in told.entries()] == ["b", "c"]


def commit_again(store: Path, home: Path, commits: int) -> None:
    """Somebody who never saw what was lost goes on from what is left, under its LSN."""
    with open_edge(home=home, remote=f"file://{store}") as edge:
        volume = edge.volume("v")
        assert volume.status()["lsn"] == "2"
        for number in range(commits):
            put(volume, 5, 50 + number)
            volume.push()


@pytest.mark.parametrize("commits", [1, 2])
def test_an_lsn_that_was_lost_and_made_again_is_not_taken_for_the_one_that_was_seen(
    tmp_path: Path, seen: Edge, commits: int
) -> None:
    commit_again(tmp_path / "store", tmp_path / "third", commits)
    volume = seen.volume("v")
    with pytest.raises(Corrupt, match="its LSN 3 is another commit than the one that was seen"):
        volume.pull()
    assert volume.status()["lsn"] == "3"


def test_nothing_is_pushed_onto_an_lsn_that_was_made_again(tmp_path: Path, seen: Edge) -> None:
    commit_again(tmp_path / "store", tmp_path / "third", 1)
    volume = seen.volume("v")
    put(volume, 9, 9)
    for _ in range(2):
        with pytest.raises(Corrupt, match="its LSN 3 is another commit than the one that was seen"):
            volume.push()
        status = volume.status()
        assert (status["lsn"], status["diverged"]) == ("3+1", False)
    assert seen.connection().remote.ask(SNAPSHOT, SnapshotRequest(volume.id.raw)).lsn == 3


def test_what_is_pushed_pulled_cloned_and_forked_is_known_again(tmp_path: Path) -> None:
    """By the same time at every edge, and none is refused."""
    remote = f"file://{tmp_path}/store"
    with open_edge(home=tmp_path / "one", remote=remote) as one, open_edge(home=tmp_path / "two", remote=remote) as two:
        first = one.create("v", page_size=SIZE)
        put(first, 1, 1)
        first.push()
        second = two.volume("v")
        for number in range(2, 5):
            for writer, reader in ((first, second), (second, first)):
                put(writer, 1, number)
                writer.push()
                reader.pull()
                reader.pull()
                assert read(reader, 1) == number
        for source in ("v", "w"):
            child = one.fork(source, source + "w" if source == "w" else "w")
            put(child, 2, 7)
            child.push()
            child.pull()
            put(child, 2, 8)
            child.push()
        past = two.fork("v", "past", lsn=2)
        put(past, 3, 9)
        past.push()
        past.pull()
        third = one.volume("past")
        third.pull()
        put(third, 3, 10)
        third.push()
        past.pull()
        assert read(past, 3) == 10


def test_a_lite_client_that_has_seen_more_says_so(tmp_path: Path) -> None:
    remote = f"file://{tmp_path}/store"
    with open_edge(home=tmp_path / "home", remote=remote) as edge:
        volume = edge.create("v", page_size=SIZE)
        for lsn in range(1, COMMITS + 1):
            put(volume, lsn, lsn)
            volume.push()
    with closing(open_remote(remote)) as before:
        source = Source(before, volume.id, lsn=None, memory_bytes=1 << 20)
        pages = LitePages(source, "v", read_only=False, fixed=False, refresh_seconds=None)
        writer = LiteWriter(pages.name, pages.client, pages.snapshot())
        writer.write(1, bytes([9]) * SIZE)
    lose_newest(tmp_path / "store")
    with closing(open_remote(remote)) as source.remote:
        source.forget()
        calls: list[Callable[[], object]] = [
            source.refresh,
            lambda: source.page(source.view, 2),
            lambda: writer.commit(Durability.DURABLE),
        ]
        for call in calls:
            with pytest.raises(Corrupt, match=r"at file://.*ends at LSN 2, and LSN 3 was seen before"):
                call()
        assert source.view.lsn == 3
        assert source.remote.ask(SNAPSHOT, SnapshotRequest(volume.id.raw)).lsn == 2
        commit_again(tmp_path / "store", tmp_path / "third", 1)
        source.remote.ask(SNAPSHOT, SnapshotRequest(volume.id.raw, confirm=True))
        writer = LiteWriter(pages.name, pages.client, pages.snapshot())
        writer.write(1, bytes([9]) * SIZE)
        for call in (source.refresh, lambda: writer.commit(Durability.DURABLE)):
            with pytest.raises(Corrupt, match="its LSN 3 is another commit than the one that was seen"):
                call()


def test_a_push_whose_answer_was_lost_and_that_a_pull_settles_is_the_commit_that_is_there(
    tmp_path: Path,
) -> None:
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v", page_size=SIZE)
        put(volume, 1, 1)
        volume.push()
        put(volume, 1, 2)
        with unheard(edge.connection().remote), pytest.raises(Unavailable):
            volume.push()
        assert volume.pull() == "2"
        assert read(volume, 1) == 2
