"""A store whose volumes forget little or nothing, for tests of the formats: what they brought in entries is relocated.

    shared log    `main`, cut off twice; a plan of it stands, which waits for its time. It takes out a fragment that was
                  never named, revisions of a pin, and a pin that has ended
    archive       forgets nothing; relocated in pieces, of which some were put together; commits that came as fragments,
                  and that cut it, among them; the newest are in entries yet
    branch        a fork of it, relocated too
    diary         relocated, and then forgotten and folded in part: a segment of it is of use in part alone
    moved         relocated in `main`, and again in a log of its own, with a policy
    busy          forgets all but its newest LSN; a pin of it has ended, and is gone but for its mark

Page bytes and ids are drawn anew each time.
"""

from __future__ import annotations

import pytest

from budwood.server.node import Node
from budwood.server.store.protocol import Store
from budwood.server.upkeep import relocation
from budwood.server.upkeep.collector import Stage
from budwood.testing.stores import RiggedStore
from budwood.volume.calls import (
    MOVE_LOG,
    PIN,
    RENEW,
    RETAIN,
    UNPIN,
    MoveRequest,
    PinRequest,
    RenewRequest,
    RetainRequest,
    UnpinRequest,
)
from budwood.volume.ids import PinId

from .estate import fill, segment_of
from .grown import DAY_MS, INTERVAL_MS, MONTH, Grown
from .rolling import only_when_told, roll_up, small_nodes


async def relocate(store: Store) -> Grown:
    with pytest.MonkeyPatch.context() as patched:
        only_when_told(patched)
        small_nodes(patched)
        patched.setattr(relocation, "MOST_ROWS", 16)
        grown = Grown(RiggedStore(store))
        async with grown.node("main", "http://first") as node:
            await _use(grown, node)
        async with grown.node("main", "http://second") as node:
            await _age(grown, node)
    return grown


async def _use(grown: Grown, node: Node) -> None:
    for name in ("archive", "diary", "moved", "busy"):
        await grown.born(node, name)
    await node.ask(RETAIN, RetainRequest(grown.volumes["moved"].raw, policy=MONTH))
    for _ in range(3):
        for name in ("archive", "diary", "moved"):
            await grown.write(node, name, 7)
        await grown.write(node, "busy", 5)
        await _relocated(grown, node, "archive")
        await grown.fold(node, "busy")
    await grown.fork(node, "archive", 10, "branch")
    await grown.write(node, "branch", 9)
    for name in ("branch", "diary", "moved"):
        await _relocated(grown, node, name)
    await roll_up(node, "main")
    await grown.collect(node, "main")
    await node.ask(MOVE_LOG, MoveRequest(grown.volumes["moved"].raw, to="private"))
    await grown.write(node, "moved", 6)
    await _relocated(grown, node, "moved")


async def _age(grown: Grown, node: Node) -> None:
    await grown.write(node, "archive", 12)
    await _relocated(grown, node, "archive")
    await grown.write(node, "diary", 9)
    await grown.fold(node, "diary", back=15)
    await grown.write(node, "busy", 3)
    await grown.fold(node, "busy")
    await _leave(grown, node)
    await roll_up(node, "main")
    while (await node.collector.collect("main", leftovers=True)).stage is not Stage.NOTHING:
        grown.now_ms += INTERVAL_MS
    await grown.write(node, "busy", 4)
    await grown.fold(node, "busy")
    await _leave(grown, node)
    await roll_up(node, "main")
    assert (await node.collector.collect("main", leftovers=True)).stage is Stage.WAITING
    await grown.write(node, "archive", 4)
    await grown.write(node, "branch", 2)


async def _leave(grown: Grown, node: Node) -> None:
    """A push that was cut off, a lease that was renewed, and a pin that has ended; and then three days pass."""
    vid = grown.volumes["busy"]
    await node.write_pages(vid, segment_of(vid, {at: fill("x") for at in range(1, 9)}))
    lease, ended = (PinRequest(vid.raw, pin=PinId.new().raw, seconds=10 * 86_400.0, owner="a reader") for _ in range(2))
    for request in (lease, ended):
        await node.ask(PIN, request)
    for _ in range(3):
        grown.now_ms += DAY_MS
        await node.ask(RENEW, RenewRequest(vid.raw, pin=lease.pin, seconds=400 * 86_400.0))
    await node.ask(UNPIN, UnpinRequest(vid.raw, pin=ended.pin))
    grown.now_ms += DAY_MS


async def _relocated(grown: Grown, node: Node, name: str) -> None:
    assert await node.folder.fold(grown.volumes[name], relocate=True) is not None, name
