"""A store that has grown old, for tests of the formats: what of it is folded, forgotten, held and about to be deleted.

    shared log    `main`, rolled up in trees of several levels, cut off once, with a boundary; a plan of it stands,
                  which waits for its time and rejects a fold that got as far as its segments
    accounts      has a policy, by which LSNs are held for hours and midnights; folded three times, each with a deadlist
    ledger        forgotten in part: a label, a lease, an edge's sync lease and two forks hold regions of its checkpoint
    books, copy   forks of it, of which one was folded itself
    moved         folded in `main`, then in a log of its own
    own           in a log of its own from the first; came in fragments in part
    finished      ended by a tombstone
    names         many, in a rollup's tree; moved and removed, and some since; the default policy

Time is a clock's of its own, so that hours pass where the story wants it. Page bytes and ids are drawn anew each time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from budwood.server.metastore.admission import change_in
from budwood.server.metastore.entry_draft import Drafted
from budwood.server.node import Node
from budwood.server.store.protocol import Store
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.server.upkeep.collector import Stage
from budwood.testing.stores import RiggedStore, Rule
from budwood.volume.calls import (
    ADVANCE,
    CHANGE_NAME,
    LOOKUP,
    MOVE_LOG,
    PIN,
    RETAIN,
    RETAIN_DEFAULT,
    LookupRequest,
    MoveRequest,
    PinRequest,
    RetainDefaultRequest,
    RetainRequest,
    SinceRequest,
)
from budwood.volume.errors import Unavailable
from budwood.volume.ids import PinId, VolumeId
from budwood.volume.records import Tombstone
from budwood.volume.retention_policy import EVERYTHING, RetentionPolicy
from budwood.volume.wire import NameRequest

from .estate import Estate, fill
from .rolling import hasty, only_when_told, roll_up, small_nodes

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
INTERVAL_MS = 1000 * (GC_INTERVAL_SECONDS + 60)
WIDTH = 12
"""Pages of each volume."""

WEEK = RetentionPolicy(all_ms=6 * HOUR_MS, hourly_ms=2 * DAY_MS, daily_ms=30 * DAY_MS)
MONTH = RetentionPolicy(all_ms=30 * DAY_MS)


@dataclass
class Grown:
    """What the store holds, and how it came to."""

    store: RiggedStore
    now_ms: int = 1_700_000_000_000
    estate: Estate = field(default_factory=Estate)
    volumes: dict[str, VolumeId] = field(default_factory=dict[str, VolumeId])
    labels: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """By label: whose, and which LSN."""

    @asynccontextmanager
    async def node(self, name: str | None, address: str = "") -> AsyncGenerator[Node]:
        async with Node.open(
            self.store, name=name, address=address, patience=hasty(), now_ms=lambda: self.now_ms
        ) as node:
            yield node

    def head(self, name: str) -> int:
        return len(self.estate.history[self.volumes[name]]) - 1

    async def born(self, node: Node, name: str) -> None:
        self.volumes[name] = await self.estate.born(node)
        await self.estate.bind(node, f"books/{name}", self.volumes[name])

    async def write(self, node: Node, name: str, number: int, *, every_ms: int = MINUTE_MS) -> None:
        """So many commits of one page or two; each tenth cuts the volume, each eighth comes as fragments."""
        vid = self.volumes[name]
        for _ in range(number):
            self.now_ms += every_ms
            lsn = self.head(name) + 1
            pages = {at % WIDTH + 1: fill(chr(ord("a") + lsn % 26)) for at in (lsn * 5, lsn * 7)}
            if lsn % 8 == 0:
                await self.estate.commit_fragments(node, vid, [pages], length=WIDTH)
            else:
                floor = 0 if lsn == 1 else WIDTH // 2 if lsn % 10 == 0 else WIDTH
                await self.estate.commit(node, vid, pages, length=WIDTH, floor=floor)

    async def hold(self, node: Node, name: str, lsn: int, *, kind: str, label: str = "", seconds: float = 0) -> None:
        vid, pin = self.volumes[name].raw, b"" if label else PinId.new().raw
        request = PinRequest(vid, lsn=lsn, seconds=seconds, kind=kind, owner="a person", label=label, pin=pin)
        await node.ask(PIN, request)
        if label:
            self.labels[label] = name, lsn

    async def fork(self, node: Node, name: str, lsn: int, child: str) -> None:
        self.volumes[child] = await self.estate.fork(node, self.volumes[name], lsn)

    async def fold(self, node: Node, name: str, *, back: int = 0) -> None:
        """Forget all but the newest LSNs, and fold the others."""
        vid = self.volumes[name]
        await node.ask(ADVANCE, SinceRequest(vid.raw, since=self.head(name) - back))
        assert await node.folder.fold(vid) is not None, name

    async def fold_cut_off(self, node: Node, name: str) -> None:
        """Its segments are written, and its deadlist is not."""
        cut = self.store.add(
            Rule(op="create", key="logs/main/t/*/deadlist", times=None, before=Unavailable("no answer"))
        )
        with pytest.raises(Unavailable):
            await self.fold(node, name)
        assert cut.fired
        self.store.rules.remove(cut)

    async def collect(self, node: Node, log: str) -> None:
        """All of it."""
        while (await node.collector.collect(log)).stage is not Stage.NOTHING:
            self.now_ms += INTERVAL_MS

    async def finish(self, node: Node, name: str) -> None:
        volume, writer = await node.retention.appender.writable(self.volumes[name])
        removal = change_in(writer.log, volume, lambda state, now: Drafted(Tombstone(vid=state.vid, time=now), None))
        await writer.submit(removal)


async def grow_old(store: Store) -> Grown:
    with pytest.MonkeyPatch.context() as patched:
        only_when_told(patched)
        small_nodes(patched)
        grown = Grown(RiggedStore(store))
        async with grown.node("main", "http://first") as node:
            await _use(grown, node)
        async with grown.node(None) as node:
            await grown.born(node, "own")
            await grown.write(node, "own", 20)
            await grown.fold(node, "own", back=6)
            await roll_up(node, str(grown.volumes["own"]))
            await grown.write(node, "own", 3)
        async with grown.node("main", "http://second") as node:
            await _age(grown, node)
    return grown


async def _use(grown: Grown, node: Node) -> None:
    for name in ("accounts", "ledger", "moved", "finished"):
        await grown.born(node, name)
    for name in ("ledger", "moved", "finished"):
        await grown.write(node, name, 24)
    await node.ask(RETAIN, RetainRequest(grown.volumes["accounts"].raw, policy=WEEK))
    await node.ask(RETAIN, RetainRequest(grown.volumes["moved"].raw, policy=EVERYTHING))
    await node.ask(RETAIN_DEFAULT, RetainDefaultRequest(policy=MONTH))
    await grown.hold(node, "ledger", 4, kind="named", label="opening")
    await grown.hold(node, "ledger", 9, kind="sync", seconds=365 * 86_400)
    await grown.hold(node, "ledger", 12, kind="lease", seconds=365 * 86_400)
    await grown.fork(node, "ledger", 14, "books")
    await grown.fork(node, "ledger", 18, "copy")
    await grown.write(node, "books", 12)
    await grown.write(node, "copy", 5)
    for at in range(60):
        await grown.estate.bind(node, f"many/{at // 10}/{at}", grown.volumes["books"], size=at)
    await grown.estate.move_name(node, "many/1", "more")
    found = (await node.ask(LOOKUP, LookupRequest("many/2/20"))).entry
    assert found is not None
    await node.ask(CHANGE_NAME, NameRequest(op="unbind", name="many/2/20", revision=found.revision))
    del grown.estate.names["many/2/20"]
    await roll_up(node, str(node.root.names_id))
    await grown.estate.bind(node, "late", grown.volumes["copy"])
    await roll_up(node, "main")
    await grown.write(node, "accounts", 40, every_ms=37 * MINUTE_MS)
    assert await node.retainer.enforce(grown.volumes["accounts"]) is not None
    assert await node.folder.fold(grown.volumes["accounts"]) is not None
    await grown.fold(node, "ledger", back=3)
    await grown.fold(node, "books", back=2)
    await grown.fold(node, "moved")
    await grown.finish(node, "finished")
    await grown.fold(node, "finished")
    await grown.collect(node, "main")
    await node.ask(MOVE_LOG, MoveRequest(grown.volumes["moved"].raw, to="private"))
    await grown.write(node, "moved", 10)
    await grown.fold(node, "moved", back=4)


async def _age(grown: Grown, node: Node) -> None:
    """Twice more, so that there are deadlists of deadlists; then a plan, and what came since."""
    for _ in range(2):
        await grown.write(node, "accounts", 16, every_ms=41 * MINUTE_MS)
        assert await node.retainer.enforce(grown.volumes["accounts"]) is not None
        assert await node.folder.fold(grown.volumes["accounts"]) is not None
        await grown.write(node, "ledger", 9)
        await grown.fold(node, "ledger", back=2)
        await roll_up(node, "main")
    await grown.write(node, "copy", 6)
    await grown.fold_cut_off(node, "copy")
    assert (await node.collector.collect("main")).stage is Stage.WAITING
    await grown.write(node, "ledger", 3)
    await grown.write(node, "books", 2)
    await grown.fork(node, "books", grown.head("books"), "late")
    await grown.write(node, "late", 1)
