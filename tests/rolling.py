"""Logs that are rolled up when a test says so, and volumes whose every commit is remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

import anyio
import pytest

from budwood.server.metastore.entry_draft import RollupNaming
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.store.tree import Tree
from budwood.server.store.tree_change import Bounds
from budwood.server.store.tree_nodes import loading
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    CREATE,
    FORK,
    MOVE_LOG,
    PULL_CHANGES,
    PULL_COMMITS,
    SNAPSHOT,
    CreateRequest,
    ForkRequest,
    MoveRequest,
    RangeRequest,
    SnapshotRequest,
)
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import decode_pages
from budwood.volume.rollup import slot_of_rollup
from budwood.volume.wire import CommitRequest, Committed

from .second_reader import Store as SecondReader
from .second_reader.rollups import check_rollups
from .waits import LIMIT_SECONDS

PAGE = 512
WIDTH = 8
ANN, BOB, CAT, DAN = clients = [ClientId.new() for _ in range(4)]

_ROLLUPS = "budwood.server.metastore.rollups"


def only_when_told(patched: pytest.MonkeyPatch) -> None:
    """Rollups are never due: `roll_up` writes them."""
    patched.setattr(f"{_ROLLUPS}.FEWEST", 1 << 30)
    patched.setattr(f"{_ROLLUPS}.MOST", 1 << 30)


def after_every(entries: int, patched: pytest.MonkeyPatch) -> None:
    """Rollups are due after so many entries, whatever they cost."""
    patched.setattr(f"{_ROLLUPS}.FEWEST", entries)
    patched.setattr(f"{_ROLLUPS}.A_NODE", 0)
    patched.setattr("budwood.server.log.reader.LONG_TAIL", 2 * entries)


def small_nodes(patched: pytest.MonkeyPatch, *, kept_bytes: int = 2000) -> None:
    """A rollup's tree has many, of which few fit into memory."""
    bounds = Bounds(most_bytes=1000, most_children=4)
    patched.setattr("budwood.server.metastore.rolled_stream.Tree", partial(Tree, bounds=bounds))
    patched.setattr(f"{_ROLLUPS}.NODE_BYTES", kept_bytes)


def hasty() -> Patience:
    """Retries for 5 s of a clock that jumps."""
    clock = ManualClock(jumps=True)
    return Patience(deadline_seconds=5, now=clock.now, sleep=clock.sleep)


def memory(store: RiggedStore) -> MemoryStore:
    assert isinstance(store.inner, MemoryStore)
    return store.inner


async def comes_true(condition: Callable[[], object]) -> None:
    """Let the others run until it holds. Rollups are made in threads, so that no number of turns is enough."""
    with anyio.fail_after(LIMIT_SECONDS):
        for _ in count():
            if condition():
                return
            await anyio.sleep(0.001)


async def roll_up(node: Node, name: str) -> None:
    """All that the node has read of that log. Nothing names it before the node's next entry; in a private log, where
    nobody goes by one that isn't named, that is another, which carries nothing else."""
    log = await node.logs.get(name)
    tip = log.reader.chain.next - 1
    await log.rollup.write()
    if log.private:
        assert log.writer is not None
        await log.writer.submit(RollupNaming(lambda: False))
    assert log.rolled.slot == tip


async def goes_by(node: Node, name: str, slot: int) -> None:
    """Wait until the node goes by a rollup of that log which covers the slot."""
    log = await node.logs.get(name)
    await comes_true(lambda: log.rolled.slot >= slot)


def rollups(store: RiggedStore, log: str) -> list[int]:
    """The slots that those cover which stand, oldest first."""
    prefix = f"logs/{log}/rollups/"
    return sorted(slot_of_rollup(key[len(prefix) :]) for key in memory(store).objects if key.startswith(prefix))


def check_logs(store: RiggedStore) -> None:
    """By the second reader: every rollup is what its log comes to."""
    second = SecondReader(memory(store).objects)
    for name in second.logs:
        second.log(name).check_objects()
        check_rollups(second.objects, second.log(name))


def check_all(store: RiggedStore) -> None:
    """As `check_logs`, and everything else that stands: no volume has stopped."""
    SecondReader(memory(store).objects).check()


class Told:
    """A volume, and what it was told."""

    def __init__(
        self, vid: VolumeId, start: int = 0, pages: Mapping[int, bytes] | None = None, length: int = 0
    ) -> None:
        self.vid = vid
        self.id = str(vid)
        self.start = start
        self.pages = [dict(pages or {})]
        """At each LSN, from `start` on."""
        self.made: list[tuple[CommitRequest, bytes, Committed]] = []
        self.changed: list[set[int]] = []
        """The pages that each of them wrote or cut off."""
        self.lengths = [length]
        """At each LSN, in pages."""

    @classmethod
    async def born(cls, node: Node) -> Told:
        told = cls(VolumeId.new())
        await node.ask(CREATE, CreateRequest(told.vid.raw, page_size=PAGE))
        return told

    @property
    def head(self) -> int:
        return self.start + len(self.made)

    async def commit(
        self, node: Node, client: ClientId = ANN, *, pages: Mapping[int, bytes] | None = None, length: int = WIDTH
    ) -> Committed:
        """Of one page that no other commit has, unless told which."""
        head = self.head
        pages = {head % WIDTH + 1: b"%016d" % (head + 1) * (PAGE // 16)} if pages is None else pages
        before = self.lengths[-1]
        floor = min(before, length)
        request, segment = commit_of(
            self.vid, head, pages, client=client, page_size=PAGE, length=length * PAGE, floor=floor * PAGE
        )
        committed = await node.commit(request, segment)
        assert committed.lsn == head + 1
        stays = {page: data for page, data in self.pages[-1].items() if page <= length}
        self.pages.append(stays | dict(pages))
        self.changed.append({*pages, *range(floor + 1, before + 1)})
        self.made.append((request, segment, committed))
        self.lengths.append(length)
        return committed

    async def commit_many(self, node: Node, number: int, client: ClientId = ANN) -> None:
        for _ in range(number):
            await self.commit(node, client)

    async def fork(self, node: Node, lsn: int) -> Told:
        child = Told(VolumeId.new(), lsn, self.pages[lsn - self.start], self.lengths[lsn - self.start])
        await node.ask(FORK, ForkRequest(self.vid.raw, child=child.vid.raw, lsn=lsn))
        return child

    async def move(self, node: Node, to: str) -> None:
        log = self.id if to == "private" else to
        assert (await node.ask(MOVE_LOG, MoveRequest(self.vid.raw, to=to))).log == log

    async def check(self, node: Node) -> None:
        """Every LSN reads as it was."""
        infos = (await node.ask(PULL_COMMITS, RangeRequest(self.vid.raw, after=self.start))).commits
        told = [(made.lsn, made.time, request.client) for request, _, made in self.made]
        assert [(info.lsn, info.time, info.client) for info in infos] == told
        for at, pages in enumerate(self.pages):
            lsn = self.start + at
            if lsn:
                assert await pages_at(node, self.vid, lsn) == pages
            changes = await node.ask(PULL_CHANGES, RangeRequest(self.vid.raw, after=lsn))
            assert set(decode_pages("", changes.pages)) == set[int]().union(*self.changed[at:])
            assert (changes.snapshot.lsn, changes.snapshot.length) == (self.head, self.lengths[-1] * PAGE)
        for _, _, made in self.made:
            assert (await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw, at_ms=made.time))).lsn == made.lsn

    async def check_repeats(self, node: Node) -> None:
        """Each commit that was made is known, and so is every client's last."""
        for request, segment, made in self.made:
            assert await node.commit(request, segment) == made
        await self.check_clients(node)

    async def check_clients(self, node: Node) -> None:
        volume = await node.volumes.get(self.vid)
        newest = {request.client: (request.token, made.lsn) for request, _, made in self.made}
        for client, (token, lsn) in newest.items():
            last = await loading(partial(volume.state.twin, client, token))
            assert last is not None
            assert last.lsn == lsn
