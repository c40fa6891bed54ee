"""A quiet volume costs nothing (DESIGN §9.7): what one volume asks of the store, and its edge of the remote, is as much
whether it is alone or among hundreds that nobody touches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from budwood.remote.portal import BlockingRemote
from budwood.server.node import Node
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.namespace import Namespace
from budwood.sync.volume import Volume
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import CREATE, SNAPSHOT, CreateRequest, SnapshotRequest
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.protocols import Durability

PAGE = 512
QUIET = 300
ANN = ClientId.new()


async def busy(node: Node, vid: VolumeId, base: int) -> None:
    for lsn in range(base, base + 5):
        request, segment = commit_of(vid, lsn, {1: bytes([lsn + 1]) * PAGE}, client=ANN, page_size=PAGE)
        await node.commit(request, segment)


def asked(store: RiggedStore) -> tuple[Counter[str], int]:
    return Counter(request.op for request in store.requests), store.sent_bytes() + store.received_bytes()


async def costs(quiet: int) -> list[tuple[Counter[str], int]]:
    """Of commits, of a reader that follows them, and of what that reader reads."""
    store, found = RiggedStore(MemoryStore()), list[tuple[Counter[str], int]]()
    vids = [VolumeId.new() for _ in range(quiet + 1)]
    async with Node.open(store, name="main") as node, Node.open(store) as reader:
        for vid in vids:
            await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
            request, segment = commit_of(vid, 0, {1: b"x" * PAGE}, client=ANN, page_size=PAGE)
            await node.commit(request, segment)
        await reader.ask(SNAPSHOT, SnapshotRequest(vids[0].raw))
        store.forget()
        await busy(node, vids[0], 1)
        found.append(asked(store))
        store.forget()
        assert (await reader.ask(SNAPSHOT, SnapshotRequest(vids[0].raw))).lsn == 6
        found.append(asked(store))
        store.forget()
        assert await pages_at(reader, vids[0]) == {1: bytes([6]) * PAGE}
        found.append(asked(store))
    return found


@pytest.mark.anyio
async def test_a_node_asks_the_store_no_more_for_one_volume_among_many() -> None:
    for (alone, alone_bytes), (among, among_bytes) in zip(await costs(0), await costs(QUIET), strict=True):
        assert among == alone
        assert among_bytes <= alone_bytes * 1.1 + 200


def write(volume: Volume) -> None:
    writer = volume.writer(page_size=PAGE)
    writer.write(1, b"x" * PAGE)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def sync(edge: Edge) -> None:
    volume = edge.volume("busy")
    volume.pull()
    write(volume)
    volume.push()
    Namespace(edge).pull()


def test_an_edge_asks_the_remote_no_more_for_one_volume_among_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, counts = Counter[str](), list[Counter[str]]()
    for name in ("ask", "commit", "write_pages", "read_pages"):
        method = getattr(BlockingRemote, name)

        def counted(self: Any, *given: Any, _name: str = name, _method: Any = method, **options: Any) -> Any:
            calls[getattr(given[0], "name", _name) if _name == "ask" else _name] += 1
            return _method(self, *given, **options)

        monkeypatch.setattr(BlockingRemote, name, counted)
    for quiet in (0, QUIET // 3):
        url = (tmp_path / f"store {quiet}").as_uri()
        with open_edge(home=tmp_path / f"home {quiet}", remote=url) as edge:
            for at in range(quiet):
                edge.create(f"quiet {at}")
                write(edge.volume(f"quiet {at}"))
                edge.volume(f"quiet {at}").push()
            edge.create("busy")
            write(edge.volume("busy"))
            edge.volume("busy").push()
            sync(edge)
            calls.clear()
            sync(edge)
            counts.append(calls.copy())
    assert counts[0] == counts[1]
    assert counts[0]
