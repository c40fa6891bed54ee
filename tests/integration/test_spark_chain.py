"""The steps between LSNs: what each may have changed, as commits tell it, and which pages are fetched for that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import budwood
from budwood.remote.portal import open_remote
from budwood.spark_export.source.page_reader import RemoteVolume, forget, open_volume
from budwood.spark_export.source.snapshot_chain import links, open_chain
from budwood.spark_export.source.steps import commits_between
from budwood.spark_export.source.volume_ref import VolumeRef
from budwood.sync.volume import Volume
from budwood.volume.calls import ADVANCE, SNAPSHOT, SinceRequest, SnapshotRequest
from budwood.volume.errors import Forgotten
from budwood.volume.pageset import PageSet, page_count
from budwood.volume.protocols import Durability

SIZE = 4096
LAST = 7


def put(volume: Volume, pages: dict[int, int], *, cut: int | None = None, grow: int | None = None) -> None:
    """One commit: cut to so many pages, write, then grow to so many."""
    writer = volume.writer()
    if cut is not None:
        writer.truncate(cut * SIZE)
    for page, value in pages.items():
        writer.write(page, bytes([value]) * SIZE)
    if grow is not None:
        writer.truncate(grow * SIZE)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()
    volume.push()


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[RemoteVolume]:
    """A volume that grows, is cut, and grows back over what was cut off without writing it."""
    with budwood.open(home=tmp_path / "home", remote=(tmp_path / "store").as_uri()) as edge:
        volume = edge.create("v")
        put(volume, dict.fromkeys(range(1, 41), 1))
        put(volume, {3: 2})
        put(volume, {2: 3}, cut=10)
        put(volume, {4: 4}, grow=30)
        put(volume, {20: 5}, cut=15)
        put(volume, {50: 6})
        put(volume, {1: 7}, cut=5, grow=45)
        yield open_volume(VolumeRef(edge.remote, volume.id, "v"))
        forget()


def test_what_commits_tell_is_what_may_have_changed(volume: RemoteVolume) -> None:
    base = volume.snapshot(lsn=1)
    made = links(base, commits_between(volume, 1, LAST))
    assert [link.view.lsn for link in made] == list(range(2, LAST + 1))
    for link in made:
        lsn, view = link.view.lsn, volume.snapshot(lsn=link.view.lsn)
        assert link.changed == volume.changed(lsn - 1, lsn), f"LSN {lsn}"
        assert (link.view.length, link.view.time, link.view.page_size) == (view.length, view.time, view.page_size)


@pytest.mark.parametrize("start", [1, 3])
def test_each_lsn_of_a_chain_reads_as_it_does_alone(volume: RemoteVolume, start: int) -> None:
    base = volume.snapshot(lsn=start)
    sources = open_chain(volume, base, links(base, commits_between(volume, start, LAST)))
    found = {lsn: source.read(PageSet(range(1, 51))) for lsn, source in enumerate(sources, start)}
    forget()
    with closing(open_remote(volume.ref.remote)) as remote:
        for lsn, pages in found.items():
            view = remote.ask(SNAPSHOT, SnapshotRequest(volume.ref.vid.raw, lsn=lsn))
            alone = open_volume(VolumeRef(volume.ref.remote, volume.ref.vid, "v", cache_bytes=1)).pages(view)
            last = page_count(view.length, SIZE)
            assert pages == alone.read(PageSet(range(1, last + 1))) | dict.fromkeys(range(last + 1, 51), bytes(SIZE))


def test_what_stands_between_two_lsns_is_fetched_once(volume: RemoteVolume) -> None:
    base = volume.snapshot(lsn=1)
    sources = open_chain(volume, base, links(base, commits_between(volume, 1, 2)))
    sources[0].read(PageSet(range(1, 41)))
    before = volume.requests
    assert sources[1].read(PageSet(range(1, 41)))[3] == bytes([2]) * SIZE
    assert volume.requests == before


def test_commits_of_which_some_are_forgotten_are_not_passed_over(volume: RemoteVolume) -> None:
    with closing(open_remote(volume.ref.remote)) as remote:
        remote.ask(ADVANCE, SinceRequest(volume.ref.vid.raw, since=4))
    assert volume.snapshot().since == 4
    for after in (0, 1, 2):
        with pytest.raises(Forgotten):
            commits_between(volume, after, LAST)
    assert [commit.lsn for commit in commits_between(volume, 3, LAST)] == [4, 5, 6, 7]
