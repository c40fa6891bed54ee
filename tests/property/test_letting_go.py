"""What nobody uses is let go of, and nobody can tell: nodes that keep nothing open, against one that keeps everything
and against a model (server/metastore/kept_open.py).

A script is a list of steps; in each, up to four calls run together, on volumes of a shared log and of logs of their
own, by a node that owns the shared log, by an embedded one, and by one that keeps all that it has opened. The store
may fail meanwhile, or lose answers; logs are rolled up in between. Where a node keeps nothing, everything is let go of
after each call, and in the midst of those that run beside it.

After each step, by every node: each commit that was acknowledged stands where its caller was told, and is known by its
token; one that was said to be absent stays so; every LSN that is looked at reads as it was; pins, forks and `since` are
as the others have them.
"""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.node import Node
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FORK,
    MOVE_LOG,
    OUTCOME,
    PINS,
    PULL_COMMITS,
    SNAPSHOT,
    WAIT,
    CreateRequest,
    ForkRequest,
    MoveRequest,
    OutcomeRequest,
    RangeRequest,
    SinceRequest,
    SnapshotRequest,
    VolumeRequest,
    WaitRequest,
)
from budwood.volume.errors import Conflict, Forgotten, NotFound, NotOwner, StoreError, Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import CommitRequest

from ..reread import reread
from ..rolling import after_every, hasty, small_nodes
from ..waits import LIMIT_SECONDS

PAGE = 512
WIDTH = 3
CLIENTS = [ClientId.new() for _ in range(2)]
EVERYTHING = 1 << 40

OWNER, EMBEDDED, KEEPER = range(3)


class Call(NamedTuple):
    what: str
    volume: int
    node: int
    choice: int


class Fault(NamedTuple):
    op: str
    key: str
    nth: int
    times: int
    arrives: bool


class Step(NamedTuple):
    together: list[Call]
    fault: Fault | None


@dataclass
class Asked:
    """A commit that somebody asked for."""

    request: CommitRequest
    segment: bytes
    pages: dict[int, bytes]
    by: Node
    lsn: int = 0
    """As its caller was told; 0 while nobody knows."""


@dataclass
class Volume:
    vid: VolumeId
    start: int = 0
    pages: list[dict[int, bytes]] = field(default_factory=lambda: [{}])
    """At each LSN, from `start` on."""
    asked: list[Asked] = field(default_factory=list[Asked])
    """Those of which nobody knows yet."""
    made: list[Asked] = field(default_factory=list[Asked])
    absent: list[Asked] = field(default_factory=list[Asked])
    since: int = 1

    @property
    def head(self) -> int:
        return self.start + len(self.pages) - 1


class World:
    def __init__(self) -> None:
        self.store = RiggedStore(MemoryStore())
        self.nodes: list[Node] = []
        self.volumes: list[Volume] = []
        self.draws = random.Random(0)

    async def open(self, stack: AsyncExitStack) -> None:
        for name, memory_bytes in (("main", 0), (None, 0), (None, EVERYTHING)):
            opening = Node.open(self.store, name=name, memory_bytes=memory_bytes, patience=hasty())
            self.nodes.append(await stack.enter_async_context(opening))
        for number in (OWNER, OWNER, EMBEDDED, KEEPER):
            volume = Volume(VolumeId.new())
            await self.nodes[number].ask(CREATE, CreateRequest(volume.vid.raw, page_size=PAGE))
            self.volumes.append(volume)

    async def commit(self, call: Call) -> None:
        volume, node = self.volumes[call.volume], self.nodes[call.node]
        head = volume.head
        client, length = CLIENTS[call.choice % 2], WIDTH * PAGE
        pages = {call.choice % WIDTH + 1: self.draws.randbytes(16) * (PAGE // 16)}
        floor = length if head else 0
        made = commit_of(volume.vid, head, pages, client=client, page_size=PAGE, length=length, floor=floor)
        asked = Asked(*made, pages, node)
        volume.asked.append(asked)
        try:
            asked.lsn = (await node.commit(asked.request, asked.segment)).lsn
        except (Conflict, NotOwner):
            volume.asked.remove(asked)
        except StoreError as error:
            if error.determinate:
                volume.asked.remove(asked)

    async def again(self, call: Call) -> None:
        """What was made is made once."""
        volume = self.volumes[call.volume]
        if volume.made:
            made = volume.made[call.choice % len(volume.made)]
            assert (await self.nodes[call.node].commit(made.request, made.segment)).lsn == made.lsn

    async def outcome(self, call: Call) -> None:
        volume = self.volumes[call.volume]
        if volume.made:
            made = volume.made[call.choice % len(volume.made)]
            node, told_base = self.nodes[call.node], call.choice % 3 > 0
            assert await self.outcome_at(node, volume, made, told_base=told_base) == made.lsn

    async def read(self, call: Call) -> None:
        volume = self.volumes[call.volume]
        lsn = max(volume.start + call.choice % len(volume.pages), volume.since)
        if not volume.start < lsn <= volume.head:
            return
        expected = volume.pages[lsn - volume.start]
        try:
            assert await pages_at(self.nodes[call.node], volume.vid, lsn) == expected
        except Forgotten:
            assert lsn < volume.since, "nobody asked for that"

    async def fork(self, call: Call) -> None:
        volume = self.volumes[call.volume]
        lsn = max(volume.since, volume.start, volume.head - call.choice % 3)
        if lsn > volume.head or len(self.volumes) > 6:
            return
        child = Volume(VolumeId.new(), lsn, [volume.pages[lsn - volume.start]], since=max(1, lsn))
        try:
            await self.nodes[call.node].ask(FORK, ForkRequest(volume.vid.raw, child=child.vid.raw, lsn=lsn))
        except (Forgotten, NotOwner, NotFound):
            return
        self.volumes.append(child)

    async def advance(self, call: Call) -> None:
        volume = self.volumes[call.volume]
        since = max(1, volume.start, volume.head - call.choice)
        if since <= volume.head:
            volume.since = max(volume.since, since)
            await self.nodes[call.node].ask(ADVANCE, SinceRequest(volume.vid.raw, since=since))

    async def move(self, call: Call) -> None:
        to = "private" if call.choice % 2 else "main"
        await self.nodes[OWNER].ask(MOVE_LOG, MoveRequest(self.volumes[call.volume].vid.raw, to=to))

    async def wait(self, call: Call) -> None:
        """Somebody waits while the volume is let go of by everybody else; a commit ends it."""
        volume, node, head = self.volumes[call.volume], self.nodes[OWNER], 0

        async def told() -> None:
            nonlocal head
            try:
                request = WaitRequest(volume.vid.raw, after=after, timeout_seconds=LIMIT_SECONDS)
                head = (await node.ask(WAIT, request)).lsn
            except StoreError:
                head = after + 1

        after = (await node.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw))).lsn
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(told)
            for _ in range(call.choice):
                await anyio.lowlevel.checkpoint()
            try:
                await self.commit(call._replace(node=OWNER))
                stands = (await node.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw, confirm=True))).lsn
            except (StoreError, NotOwner):
                stands = after
            if stands == after:
                # It was refused, or isn't known to be made.
                head = after + 1
                tasks.cancel_scope.cancel()
        assert head > after

    async def run(self, step: Step) -> None:
        rule = self._rule(step.fault)
        failures: list[Exception] = []

        async def one(call: Call) -> None:
            try:
                await getattr(self, call.what)(call._replace(volume=call.volume % len(self.volumes)))
            except (StoreError, NotOwner):
                # The store failed, or the volume is in another's log: nothing was told.
                return
            except Exception as error:
                failures.append(error)

        try:
            async with anyio.create_task_group() as tasks:
                for call in step.together:
                    tasks.start_soon(one, call)
        finally:
            if rule is not None:
                self.store.rules.remove(rule)
        if failures:
            raise failures[0]
        for volume in self.volumes:
            await self.settle(volume)
            await self.check(volume)

    def _rule(self, fault: Fault | None) -> Rule | None:
        if fault is None:
            return None
        lost = Unavailable("no answer", determinate=False)
        rule = Rule(op=fault.op, key=fault.key, nth=fault.nth, times=fault.times)  # type: ignore[arg-type]
        rule.before, rule.after = (None, lost) if fault.arrives else (lost, None)
        return self.store.add(rule)

    async def settle(self, volume: Volume) -> None:
        """What became of the commits whose callers were not told: whoever is asked says the same, once whoever was to
        commit it was asked, who may have the very entry still to send."""
        for asked in volume.asked:
            found = {await self.outcome_at(node, volume, asked) for node in (asked.by, *self.nodes)}
            assert len(found) == 1
            assert asked.lsn in (0, *found)
            asked.lsn = found.pop()
            (volume.made if asked.lsn else volume.absent).append(asked)
        volume.asked.clear()
        volume.made.sort(key=lambda made: made.lsn)
        assert [made.lsn for made in volume.made] == list(range(volume.start + 1, volume.start + 1 + len(volume.made)))
        for made in volume.made[len(volume.pages) - 1 :]:
            volume.pages.append(volume.pages[-1] | made.pages)

    async def outcome_at(self, node: Node, volume: Volume, asked: Asked, *, told_base: bool = True) -> int:
        """The LSN, or 0."""
        by = asked.request
        base = by.base if told_base else None
        found = await node.ask(OUTCOME, OutcomeRequest(volume.vid.raw, client=by.client, token=by.token, base=base))
        return found.lsn or 0

    async def check(self, volume: Volume) -> None:
        answers = [await self.answers(node, volume) for node in self.nodes]
        assert answers[OWNER] == answers[KEEPER]
        assert answers[EMBEDDED] == answers[KEEPER]
        head, commits = answers[KEEPER][:2]
        assert head == volume.head
        made = {made.lsn: made for made in volume.made}
        assert all(made[lsn].request.client == client for lsn, client in commits)
        for node in self.nodes:
            for asked in volume.made[-2:] + volume.absent[-1:]:
                assert await self.outcome_at(node, volume, asked) == asked.lsn

    async def answers(self, node: Node, volume: Volume) -> tuple[Any, ...]:
        info = await node.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw, confirm=True))
        after = max(info.since - 1, volume.start)
        commits = (await node.ask(PULL_COMMITS, RangeRequest(volume.vid.raw, after=after))).commits
        pins = (await node.ask(PINS, VolumeRequest(volume.vid.raw))).pins
        told = [(commit.lsn, commit.client) for commit in commits]
        if volume.head:
            assert await pages_at(node, volume.vid, volume.head) == volume.pages[-1]
        return info.lsn, told, info.since, info.length, info.time, info.log, [(pin.id, pin.lsn) for pin in pins]


KINDS = ["commit", "commit", "commit", "again", "outcome", "read", "fork", "advance", "move", "wait"]

calls = st.builds(Call, st.sampled_from(KINDS), st.integers(0, 6), st.integers(0, 2), st.integers(0, 11))
rules = st.builds(
    Fault,
    st.sampled_from(["create", "get", "list", "*"]),
    st.sampled_from(["*", "logs/*", "logs/*/entries/*", "logs/*/nodes/*", "logs/*/rollups/*", "volumes/*"]),
    st.integers(1, 6),
    st.sampled_from([1, 2, 1000]),
    st.booleans(),
)
scripts = st.lists(st.builds(Step, st.lists(calls, min_size=1, max_size=4), st.none() | rules), min_size=1, max_size=10)


@pytest.mark.parametrize("kept_bytes", [0, 1 << 20], ids=["few nodes", "all nodes"])
def test_letting_go_changes_no_answer(kept_bytes: int) -> None:
    """With as many nodes of rollups in memory as fit, or with none."""

    async def play(script: list[Step]) -> None:
        world = World()
        async with AsyncExitStack() as stack:
            await world.open(stack)
            for step in script:
                await world.run(step)
        assert isinstance(world.store.inner, MemoryStore)
        await reread(world.store.inner.objects)

    @settings(max_examples=settings().max_examples // 2)
    @given(scripts)
    def run(script: list[Step]) -> None:
        with pytest.MonkeyPatch.context() as patched:
            after_every(4, patched)
            small_nodes(patched, kept_bytes=kept_bytes)
            anyio.run(play, script)

    run()
