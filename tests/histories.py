"""Volumes and forks that two processes write, fold and let go of, beside a plain model of every snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from budwood.server.node import Node
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import RiggedStore
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FORK,
    MOVE_LOG,
    PIN,
    PULL_CHANGES,
    PULL_COMMITS,
    REMOVE,
    SNAPSHOT,
    UNPIN,
    CreateRequest,
    ForkRequest,
    MoveRequest,
    PinRequest,
    RangeRequest,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
    VolumeRequest,
)
from budwood.volume.errors import Forgotten
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.pageset import decode_pages
from budwood.volume.records import settled_by

from .rolling import memory

PAGE = 512
WIDTH = 9
ANN = ClientId.new()


@dataclass
class Snapshot:
    pages: dict[int, bytes]
    length: int
    """In pages."""
    touched: set[int] = field(default_factory=set[int])
    """What its commit wrote or cut."""


@dataclass
class Model:
    vid: VolumeId
    start: int
    snapshots: dict[int, Snapshot]
    since: int
    private: bool
    """Whether every process may append to its log; only the first one may, otherwise."""
    parent: Model | None = None
    removed: bool = False
    pins: dict[PinId, int] = field(default_factory=dict[PinId, int])
    forks: dict[VolumeId, int] = field(default_factory=dict[VolumeId, int])
    """Those that live, and begin with one of its own LSNs, whatever they were made from."""
    released: set[int] = field(default_factory=set[int])
    """LSNs of pins and forks that were: whoever knew of one believes in it for a little longer."""

    @property
    def head(self) -> int:
        return max(self.snapshots)

    def readable(self) -> list[int]:
        held = {*self.pins.values(), *self.forks.values()}
        return [lsn for lsn in self.snapshots if lsn > self.start and (lsn >= self.since or lsn in held)]

    def readable_by_forks(self) -> list[tuple[Model, int]]:
        """The LSNs that a fork can be made from, and whose own they are."""
        found = list[tuple[Model, int]]()
        volume: Model | None = self
        upto = self.head
        while volume is not None:
            found += [(volume, lsn) for lsn in volume.readable() if lsn <= upto]
            upto = min(upto, volume.start)
            volume = volume.parent
        return found


class World:
    def __init__(self, store: RiggedStore, nodes: list[Node]) -> None:
        self.store = store
        self.nodes = nodes
        self.volumes: list[Model] = []
        self.count = 0

    async def born(self) -> None:
        vid = VolumeId.new()
        await self.nodes[0].ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        self.volumes.append(Model(vid, 0, {0: Snapshot({}, 0)}, 1, private=False))

    async def commit(self, node: Node, volume: Model, pages: set[int], length: int, apart: bool) -> None:
        self.count += 1
        head = volume.snapshots[volume.head]
        wrote = {page: b"%8d" % (1000 * self.count + page) * (PAGE // 8) for page in pages if page <= length}
        floor = min(head.length, length)
        request, segment = commit_of(
            volume.vid, volume.head, wrote, client=ANN, page_size=PAGE, length=length * PAGE, floor=floor * PAGE
        )
        if apart and segment:
            location = await node.write_pages(volume.vid, segment)
            request, segment = commit_of(
                volume.vid,
                volume.head,
                wrote,
                client=ANN,
                page_size=PAGE,
                length=length * PAGE,
                floor=floor * PAGE,
                locations=(location,),
            )
        lsn = (await node.commit(request, segment)).lsn
        kept = {page: data for page, data in head.pages.items() if page <= length}
        cut = set(range(floor + 1, head.length + 1))
        volume.snapshots[lsn] = Snapshot(kept | wrote, length, {*wrote, *cut})

    async def advance(self, node: Node, volume: Model, back: int) -> None:
        since = max(volume.head - back, volume.start + 1)
        if since <= volume.head:
            # One that has not looked for a while answers with what it knew.
            volume.since = max(volume.since, (await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=since))).since)

    async def pin(self, node: Node, volume: Model, choice: int) -> None:
        if lsns := volume.readable():
            pin, lsn = PinId.new(), lsns[choice % len(lsns)]
            await node.ask(PIN, PinRequest(volume.vid.raw, lsn=lsn, pin=pin.raw, seconds=0.0))
            volume.pins[pin] = lsn

    async def unpin(self, node: Node, volume: Model, choice: int) -> None:
        if volume.pins:
            pin = sorted(volume.pins)[choice % len(volume.pins)]
            await node.ask(UNPIN, UnpinRequest(volume.vid.raw, pin=pin.raw))
            volume.released.add(volume.pins.pop(pin))

    async def fork(self, node: Node, volume: Model, choice: int) -> None:
        if places := volume.readable_by_forks():
            owner, lsn = places[choice % len(places)]
            child = VolumeId.new()
            await node.ask(FORK, ForkRequest(volume.vid.raw, child=child.raw, lsn=lsn))
            owner.forks[child] = lsn
            own = owner.snapshots[lsn]
            snapshots = {lsn: Snapshot(dict(own.pages), own.length)}
            self.volumes.append(Model(child, lsn, snapshots, lsn, node is not self.nodes[0], volume))

    async def remove(self, node: Node, volume: Model, _: int) -> None:
        """Unless it is the last."""
        if sum(not each.removed for each in self.volumes) > 1:
            await node.ask(REMOVE, VolumeRequest(volume.vid.raw))
            volume.removed, volume.since = True, volume.head + 1
            volume.released.update(volume.pins.values())
            volume.pins.clear()
            for each in self.volumes:
                if volume.vid in each.forks:
                    each.released.add(each.forks.pop(volume.vid))

    async def move(self, node: Node, volume: Model, _: int) -> None:
        if node is self.nodes[0]:
            to = "main" if volume.private else "private"
            await node.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to=to))
            volume.private = not volume.private

    async def fold(self, node: Node, volume: Model, *, relocate: bool = False) -> None:
        done = await node.folder.fold(volume.vid, relocate=relocate)
        if done is None or volume.removed:
            return
        while not done.whole:
            done = await node.folder.fold(volume.vid, relocate=relocate)
            assert done is not None
        since = min(volume.since, volume.head)
        assert done.fold.lsn == since or (relocate and done.fold.lsn == 0 and since <= max(volume.start, 1))
        assert not relocate or settled_by(done.fold) == volume.head
        # Nothing is left to be done, and that costs no write.
        before = self.transactions()
        assert before
        assert await node.folder.fold(volume.vid, relocate=relocate) is None
        assert self.transactions() == before

    def transactions(self) -> set[str]:
        """The keys of what folds wrote: rollups come and go by themselves."""
        return {key for key in memory(self.store).objects if "/epochs/" in key or "/t/" in key}

    async def check(self, fresh: Node) -> None:
        for node in [*self.nodes, fresh]:
            for volume in self.volumes:
                if not volume.removed:
                    await check(node, volume)


async def check(node: Node, volume: Model) -> None:
    vid, readable = volume.vid, volume.readable()
    # Who asks for an LSN that is known is not told what others have forgotten meanwhile: this looks.
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == volume.head
    for lsn in volume.snapshots:
        if lsn <= volume.start:
            continue
        if lsn not in readable:
            if lsn in volume.released:
                continue
            with pytest.raises(Forgotten):
                await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=lsn))
            continue
        assert await pages_at(node, vid, lsn) == volume.snapshots[lsn].pages
        assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=lsn))).length == volume.snapshots[
            lsn
        ].length * PAGE
        (info,) = (await node.ask(PULL_COMMITS, RangeRequest(vid.raw, after=lsn - 1, to=lsn))).commits
        assert info.lsn == lsn
    for after in [volume.start, *readable]:
        for to in readable:
            if after < to and (after or volume.since <= 1):
                await check_changes(node, volume, after, to)


async def check_changes(node: Node, volume: Model, after: int, to: int) -> None:
    changes = await node.ask(PULL_CHANGES, RangeRequest(volume.vid.raw, after=after, to=to))
    told = set(decode_pages("", changes.pages))
    lsns = range(after + 1, to + 1)
    touched = set[int]().union(*(volume.snapshots[lsn].touched for lsn in lsns))
    before, now = volume.snapshots[after].pages, volume.snapshots[to].pages
    assert {page for page in before.keys() | now.keys() if before.get(page) != now.get(page)} <= told
    # Cuts are told as one, from the lowest to the highest page.
    assert told <= touched | set(range(min(touched, default=0), max(touched, default=0)))
