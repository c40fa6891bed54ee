"""Relocations: a volume that forgets nothing holds no log back. What reads as it did: tests/property/
test_fold_machine.py; crashes: tests/fault/test_fold_killed.py."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from budwood.server.metastore.folded import Folded
from budwood.server.node import Node
from budwood.server.store.tree_nodes import loading
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import CREATE, CreateRequest
from budwood.volume.ids import ClientId, VolumeId

from ..reread import reread
from ..rolling import hasty, memory

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
WIDTH = 16
ANN = ClientId.new()


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture
async def node(store: RiggedStore) -> AsyncIterator[Node]:
    async with Node.open(store, patience=hasty()) as node:
        yield node


async def born(node: Node) -> VolumeId:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


async def write(node: Node, vid: VolumeId, head: int, number: int) -> int:
    """So many commits of two pages; the new head."""
    for lsn in range(head + 1, head + number + 1):
        pages = {page: b"%8d" % (100 * lsn + page) * (PAGE // 8) for page in (1, lsn * 5 % WIDTH + 2)}
        request, segment = commit_of(vid, lsn - 1, pages, client=ANN, page_size=PAGE, length=(WIDTH + 2) * PAGE)
        assert (await node.commit(request, segment)).lsn == lsn
    return head + number


async def relocated(node: Node, vid: VolumeId) -> list[int]:
    """How many commits each segment has."""
    folded = (await node.volumes.get(vid)).history.folding
    assert isinstance(folded, Folded)
    found = [relocated.count for _, relocated in await loading(folded.relocations)]
    return found


async def test_every_lsn_reads_as_it_did_once_its_entry_is_not_asked(store: RiggedStore, node: Node) -> None:
    vid = await born(node)
    head = await write(node, vid, 0, 5)
    before = [await pages_at(node, vid, lsn) for lsn in range(1, head + 1)]
    done = await node.folder.fold(vid, relocate=True)
    assert done is not None
    assert done.whole
    head = await write(node, vid, head, 2)
    log = f"logs/{vid}/entries/"
    gone = [key for key in memory(store).objects if key.startswith(log)]
    await reread(dict(memory(store).objects))
    async with Node.open(store, patience=hasty()) as fresh:
        for reader in (node, fresh):
            assert [await pages_at(reader, vid, lsn) for lsn in range(1, 6)] == before
    assert gone
