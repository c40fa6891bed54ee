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
from budwood.lite.writer import LiteWriter
from budwood.remote.portal import open_remote
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.volume import Volume
from budwood.volume.errors import Corrupt
from budwood.volume.protocols import Durability

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
    assert seen.connection().remote.snapshot(volume.id).lsn == 2


def test_a_lite_client_that_has_seen_more_says_so(tmp_path: Path) -> None:
    remote = f"file://{tmp_path}/store"
    with open_edge(home=tmp_path / "home", remote=remote) as edge:
        volume = edge.create("v", page_size=SIZE)
        for lsn in range(1, COMMITS + 1):
            put(volume, lsn, lsn)
            volume.push()
    with closing(open_remote(remote)) as before:
        source = Source(before, volume.id, lsn=None, memory_bytes=1 << 20)
        pages = LitePages(source, "v", read_only=False, pinned=False, refresh_seconds=None)
        writer = LiteWriter(pages, pages.snapshot())
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
        assert source.remote.snapshot(volume.id).lsn == 2
