"""Where a snapshot's pages lie: what `locate` says is what a read of the same pages would fetch."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from budwood.server.node import Node
from budwood.server.pagestore import locate as locating
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    CREATE,
    FORK,
    LOCATE,
    SNAPSHOT,
    CreateRequest,
    ForkRequest,
    LocateRequest,
    SnapshotRequest,
)
from budwood.volume.errors import Corrupt
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import PageSet, decode_pages, encode_pages, span
from budwood.volume.protocols import Remote
from budwood.volume.segment import SegmentIndex
from budwood.volume.wire import Located

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
CLIENT = ClientId.new()


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture
async def node(store: RiggedStore) -> AsyncIterator[Node]:
    async with Node.open(store) as node:
        yield node


async def put(remote: Remote, vid: VolumeId, base: int, pages: PageSet, *, floor: int | None = None) -> None:
    made = {index: os.urandom(PAGE) for index in pages}
    length = 300 * PAGE
    request, segment = commit_of(vid, base, made, client=CLIENT, page_size=PAGE, length=length, floor=floor)
    await remote.commit(request, segment)


async def born(remote: Remote) -> VolumeId:
    """Page 1 … 200, then 100 … 110 again, then all behind 190 cut off, and 195 written."""
    vid = VolumeId.new()
    await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    await put(remote, vid, 0, span(1, 200))
    await put(remote, vid, 1, span(100, 110))
    await put(remote, vid, 2, PageSet([195]), floor=190 * PAGE)
    return vid


def lsns(located: Located) -> dict[int, int]:
    """The LSN of each page, each of which must be told once."""
    found: dict[int, int] = {}
    for placement in located.placements:
        for page in decode_pages("", placement.pages):
            assert page not in found
            found[page] = placement.lsn
    return found


async def test_every_page_lies_where_its_newest_commit_put_it_or_nowhere(store: RiggedStore, node: Node) -> None:
    vid = await born(node)
    located = await node.ask(LOCATE, LocateRequest(vid.raw, lsn=3, pages=encode_pages(span(1, 250))))
    expected = dict.fromkeys(span(1, 190), 1) | dict.fromkeys(span(100, 110), 2) | {195: 3}
    assert lsns(located) == expected
    assert decode_pages("", located.zeros) == span(1, 250) - PageSet(expected)
    assert located.rest == b""
    assert [placement.lsn for placement in located.placements] == [3, 2, 1], "the newest come first"
    assert lsns(
        await node.ask(LOCATE, LocateRequest(vid.raw, lsn=1, pages=encode_pages(span(1, 250))))
    ) == dict.fromkeys(span(1, 200), 1)
    assert (await node.ask(LOCATE, LocateRequest(vid.raw, lsn=0, pages=encode_pages(PageSet([1]))))).snapshot.lsn == 3
    for placement in located.placements:
        data = await store.get(placement.object)
        index = SegmentIndex.of_segment(placement.object, data)
        assert index.volumes[placement.slot].vid == vid
        assert decode_pages("", placement.pages) <= index.volumes[placement.slot].pages
        assert (placement.frames, placement.stored_bytes) == (0, 0)


async def test_what_is_measured_is_what_a_read_sends(store: RiggedStore, node: Node) -> None:
    vid = await born(node)
    located = await node.ask(LOCATE, LocateRequest(vid.raw, lsn=3, pages=encode_pages(span(50, 120)), measure=True))
    assert [placement.lsn for placement in located.placements] == [2, 1]
    for placement in located.placements:
        async with node.read_pages(vid, 3, decode_pages("", placement.pages)) as answer:
            frames = [frame async for frame in answer.frames()]
        assert placement.frames == len(frames)
        assert placement.stored_bytes == sum(len(frame.stored) for frame in frames) > 0
        assert placement.size == len(await store.get(placement.object))


async def test_a_fork_s_pages_lie_with_the_volume_that_they_were_written_to(node: Node) -> None:
    vid, child = await born(node), VolumeId.new()
    await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=2))
    await put(node, child, 2, PageSet([7]))
    own, shared, first = (
        await node.ask(LOCATE, LocateRequest(child.raw, lsn=3, pages=encode_pages(span(1, 120))))
    ).placements
    assert (own.vid, own.lsn, decode_pages("", own.pages)) == (child.raw, 3, PageSet([7]))
    assert (shared.vid, shared.lsn, decode_pages("", shared.pages)) == (vid.raw, 2, span(100, 110))
    assert (first.vid, first.lsn) == (vid.raw, 1)


async def test_a_long_answer_comes_in_pieces_that_add_up(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    for lsn in range(8):
        await put(node, vid, lsn, PageSet([lsn + 1]))
    monkeypatch.setattr(locating, "MOST_PLACEMENTS", 3)
    found: dict[int, int] = {}
    rest, asked = span(1, 8), 0
    while rest:
        located = await node.ask(LOCATE, LocateRequest(vid.raw, lsn=8, pages=encode_pages(rest), measure=True))
        assert len(located.placements) <= 3
        found |= lsns(located)
        rest, asked = decode_pages("", located.rest) if located.rest else PageSet(), asked + 1
    assert found == {page: page for page in range(1, 9)}
    assert asked == 3


async def test_it_is_known_without_a_look_at_the_store_unless_it_is_measured(store: RiggedStore, node: Node) -> None:
    vid = await born(node)
    async with Node.open(store) as reader:
        await reader.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=3))
        store.forget()
        located = await reader.ask(LOCATE, LocateRequest(vid.raw, lsn=3, pages=encode_pages(span(1, 200))))
        assert store.count() == 0
        lost = located.placements[-1].object
        assert isinstance(store.inner, MemoryStore)
        del store.inner.objects[lost]
        with pytest.raises(Corrupt, match="missing"):
            await reader.ask(LOCATE, LocateRequest(vid.raw, lsn=3, pages=encode_pages(PageSet([1])), measure=True))
