"""A collector killed at every fault point of a collection, and others that go on: nothing that can be read is gone, and
whoever comes next finishes what the dead one began (S4.10).
"""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import msgspec
import pytest

from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.server.upkeep.unnamed import OLD_MS
from budwood.testing.commits import commit_of, pages_at
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FORK,
    PIN,
    UNPIN,
    CreateRequest,
    ForkRequest,
    PinRequest,
    SinceRequest,
    UnpinRequest,
)
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.pins import ended_prefix, pins_prefix

from ..reread import reread
from ..second_reader.store import directory
from .crash_harness import cut, finish

PAGE = 512
COMMITS = 90
PINNED, FORKED = 20, 40
ANN = ClientId.new()
AGO_MS = OLD_MS + 3_600_000
LATER = "10000"
"""Seconds, more than the store's gc interval."""

FIRST = (
    "gc: plan written, not acknowledged",
    "gc: acknowledged, boundary not published",
    "gc: boundary published, not due",
)
LATER_ON = (
    "gc: a pin's end kept, the pin not deleted",
    "gc: some of it deleted",
    "gc: some of it deleted#2",
    "gc: some of it deleted#4",
    "gc: all deleted but the plan",
)
CUTS = (FIRST, LATER_ON)

COLLECT = """
import sys, time, anyio
from budwood.server.node import Node
from budwood.server.store.open_store import open_store

async def collect(url, log, later):
    now_ms = lambda: int(1000 * (time.time() + float(later)))
    async with Node.open(await open_store(url), now_ms=now_ms) as node:
        print((await node.collector.collect(log)).stage.value)

anyio.run(collect, *sys.argv[1:])
"""


class Told:
    """What was written, by LSN."""

    def __init__(self, folder: Path) -> None:
        self.url = (folder / "store").as_uri()
        self.folder = folder
        self.vid, self.child = VolumeId.new(), VolumeId.new()
        self.log = str(self.vid)
        self.left: list[str] = []
        """What nothing leads to: a fragment, and a pin that has ended."""
        self.seen: dict[int, dict[int, bytes]] = {0: {}}

    async def make(self) -> None:
        # Days ago, so that what a push has left by now is old.
        async with Node.open(await open_store(self.url), now_ms=lambda: int(1000 * time.time()) - AGO_MS) as node:
            await node.ask(CREATE, CreateRequest(self.vid.raw, page_size=PAGE))
            _, cut_off = commit_of(self.vid, 0, {1: bytes(PAGE)}, client=ANN, page_size=PAGE)
            self.left.append((await node.write_pages(self.vid, cut_off)).object)
            for head in range(COMMITS):
                pages = {page: b"%8d" % (10 * head + page) * (PAGE // 8) for page in (1, 2 + head % 3)}
                request, segment = commit_of(self.vid, head, pages, client=ANN, page_size=PAGE, length=5 * PAGE)
                await node.commit(request, segment)
                self.seen[head + 1] = self.seen[head] | pages
                if head + 1 == PINNED:
                    pin = PinRequest(self.vid.raw, lsn=PINNED, pin=PinId.new().raw, seconds=0.0)
                    await node.ask(PIN, pin)
                    ended = msgspec.structs.replace(pin, pin=PinId.new().raw)
                    await node.ask(PIN, ended)
                    await node.ask(UNPIN, UnpinRequest(self.vid.raw, pin=ended.pin))
                    self.left.append(pins_prefix(self.vid, PinId(ended.pin))[:-1])
                if head + 1 == FORKED:
                    await node.ask(FORK, ForkRequest(self.vid.raw, child=self.child.raw, lsn=FORKED))
                if head % 40 == 39:
                    await self.forget(node)
            await self.forget(node)

    async def forget(self, node: Node) -> None:
        await node.ask(ADVANCE, SinceRequest(self.vid.raw, since=max(self.seen)))
        await node.folder.fold(self.vid)

    async def check(self) -> None:
        async with Node.open(await open_store(self.url)) as node:
            for lsn in (PINNED, FORKED, COMMITS):
                assert await pages_at(node, self.vid, lsn) == self.seen[lsn]
            assert await pages_at(node, self.child) == self.seen[FORKED]

    def collect(self, later: str = "0") -> str:
        (stage,) = finish(COLLECT, self.url, self.log, later)
        return stage

    def standing(self) -> list[Path]:
        return [path for path in (self.folder / "store" / "logs" / self.log).rglob("*") if path.is_file()]


@pytest.mark.parametrize("point", [*FIRST, *LATER_ON])
def test_a_collector_that_was_killed_has_lost_nothing_and_the_next_one_finishes(tmp_path: Path, point: str) -> None:
    told = Told(tmp_path)
    anyio.run(told.make)
    before = len(told.standing())
    if point in LATER_ON:
        assert told.collect() == "waiting"
        assert cut(point, COLLECT, told.url, told.log, LATER) == []
    else:
        assert cut(point, COLLECT, told.url, told.log, "0") == []
    anyio.run(told.check)
    anyio.run(reread, directory(tmp_path / "store"))
    while (stage := told.collect(LATER)) == "waiting":
        assert told.collect(str(2 * int(LATER))) == "done"
    assert stage in {"done", "nothing"}
    anyio.run(told.check)
    assert len([key for key in told.standing() if key.parent.name == "entries"]) < COMMITS // 4
    assert len(told.standing()) < before // 3
    assert not [key for key in told.standing() if key.name in {"plan", "due"}]
    stands = directory(tmp_path / "store")
    assert not [key for key in stands if key.startswith(tuple(told.left))]
    assert len([key for key in stands if key.startswith(ended_prefix(told.vid))]) == 1
