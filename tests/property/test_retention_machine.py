"""Pins, since and collections by two processes at once, against a model (DESIGN §5, §9.4; B11).

A script is a list of steps; in each, up to three calls run together, one request at a time. Whose request comes next is
drawn: one call goes on until it ends, or until it is put behind the others, so that each may be held up anywhere while
the others do all they want. A process may be cut at a fault point, and has then forgotten all it knew. A collector
does what upkeep will do: announces, waits, deletes what nobody holds, says that it is done. Clocks move between steps.

After each step, whatever the order was:

- an LSN that a pin or fork was told to hold can be read until its end, by everyone, and was never deleted
- what can be read was never deleted, and everything from `since` on can be read
- below `since` only what something may hold can be read
- nobody was refused a pin on an LSN that was held all the while
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.metastore.pin_store import BELIEVED_SECONDS
from budwood.server.node import Node
from budwood.server.store.protocol import Data, Keys, Sizes
from budwood.server.store.retrying import Patience
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume import faults
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FORK,
    PIN,
    PINS,
    RENEW,
    SNAPSHOT,
    UNPIN,
    CreateRequest,
    ForkRequest,
    PinRequest,
    RenewRequest,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
    VolumeRequest,
)
from budwood.volume.errors import Conflict, Forgotten, NotFound
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.pins import Pin, PinState

from ..reread import reread

PAGE = 512
SKEW = 10.0
ANN = ClientId.new()
POINTS = [
    "pin: asked, stream not read",
    "pin: checked, not confirmed",
    "pin: confirmed, caller not told",
    "collect: announced, pins not listed",
    "node: fork born, parent not told",
]
SETTLED = 25
"""Turns of the event loop after which everyone who can send a request has."""

CALLER: ContextVar[int] = ContextVar("CALLER", default=0)
"""A task that a call starts inherits it."""
MOST_TURNS = 2_000
"""Requests of one step."""


class Turns:
    """A store whose requests wait until it is their turn."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.url = inner.url
        self.free = True
        self.waiting: list[tuple[int, anyio.Event]] = []
        """Whose request, by the caller's place in the step."""

    async def turn(self) -> None:
        if not self.free:
            mine = anyio.Event()
            self.waiting.append((CALLER.get(), mine))
            await mine.wait()

    def release(self) -> None:
        self.free = True
        while self.waiting:
            self.waiting.pop()[1].set()

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        await self.turn()
        return await self.inner.get(key, start=start, end=end)

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        await self.turn()
        return await self.inner.get_tail(key, size)

    async def create(self, key: str, data: Data) -> None:
        await self.turn()
        await self.inner.create(key, data)

    async def delete(self, key: str) -> None:
        await self.turn()
        await self.inner.delete(key)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        await self.turn()
        return await self.inner.list(prefix, start=start, limit=limit)

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        await self.turn()
        return await self.inner.sizes(prefix, start=start, limit=limit)

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass
class Asked:
    """A pin as the model knows it."""

    lsn: int
    seconds: float
    until: float = 0.0
    """Until when someone was told that it holds."""
    maybe_until: float = math.inf
    """It may hold until then, whatever anyone was told."""
    released: bool = False

    def promised(self, now: float) -> bool:
        return not self.released and now <= self.until


@dataclass
class World:
    stack: AsyncExitStack
    clock: ManualClock
    store: Turns
    vid: VolumeId
    nodes: list[Node] = field(default_factory=list[Node])
    pins: dict[PinId, Asked] = field(default_factory=dict[PinId, Asked])
    forks: dict[VolumeId, tuple[int, bool]] = field(default_factory=dict[VolumeId, tuple[int, bool]])
    """Child → its LSN, and whether the call returned."""
    deleted: set[int] = field(default_factory=set[int])
    since: int = 1
    """At least; as some call was told."""

    async def open(self) -> Node:
        patience = Patience(deadline_seconds=5, now=self.clock.now, sleep=self.clock.sleep)
        return await self.stack.enter_async_context(
            Node.open(self.store, patience=patience, now_ms=self.clock.now_ms, skew_seconds=SKEW)
        )

    async def begin(self) -> None:
        """What is to stand before the first step."""

    def held(self) -> set[int]:
        """What was told to be held."""
        now = self.clock.now()
        return {pin.lsn for pin in self.pins.values() if pin.promised(now)} | {
            lsn for lsn, told in self.forks.values() if told
        }

    def maybe_held(self) -> set[int]:
        return {pin.lsn for pin in self.pins.values()} | {lsn for lsn, _ in self.forks.values()}

    def told(self, pin: Pin) -> None:
        assert pin.state is PinState.LIVE
        until = pin.expiry / 1000 if pin.expiry else math.inf
        known = self.pins[pin.pin_id]
        known.until = max(known.until, until)

    async def commit(self, node: Node) -> None:
        head = (await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))).lsn
        request = commit_of(self.vid, head, {1: bytes([head % 256]) * PAGE}, client=ANN, page_size=PAGE)
        try:
            await node.commit(*request)
        except Conflict:
            return

    async def pin(self, node: Node, number: int, seconds: float) -> None:
        head = (await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))).lsn
        one = PinId.new()
        self.pins[one] = Asked(max(1, head - number), seconds)
        await self.ask(node, one)

    async def again(self, node: Node, number: int) -> None:
        if self.pins:
            await self.ask(node, sorted(self.pins)[number % len(self.pins)])

    async def ask(self, node: Node, one: PinId) -> None:
        known = self.pins[one]
        others = self.held() if not known.released else set[int]()
        try:
            self.told(await node.ask(PIN, PinRequest(self.vid.raw, lsn=known.lsn, seconds=known.seconds, pin=one.raw)))
        except Forgotten:
            still = {p.lsn for key, p in self.pins.items() if key != one and p.promised(self.clock.now())}
            still |= {lsn for lsn, told in self.forks.values() if told}
            assert known.lsn not in others & still, "it was held all the while"
        except NotFound as error:
            assert "pin the LSN again" in str(error)  # noqa: PT017  (it had ended)

    async def renew(self, node: Node, number: int, seconds: float) -> None:
        if not self.pins:
            return
        one = sorted(self.pins)[number % len(self.pins)]
        promised = self.pins[one].promised(self.clock.now())
        try:
            self.told(await node.ask(RENEW, RenewRequest(self.vid.raw, pin=one.raw, seconds=seconds)))
        except (NotFound, Forgotten):
            known = self.pins[one]
            assert not (promised and known.promised(self.clock.now())), "what was promised can be renewed"

    async def unpin(self, node: Node, number: int) -> None:
        if not self.pins:
            return
        one = sorted(self.pins)[number % len(self.pins)]
        self.pins[one].released = True
        try:
            await node.ask(UNPIN, UnpinRequest(self.vid.raw, pin=one.raw))
        except NotFound as error:
            assert "has no pin" in str(error)  # noqa: PT017  (its maker was cut)

    async def fork(self, node: Node, number: int) -> None:
        head = (await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))).lsn
        child, lsn = VolumeId.new(), max(1, head - number)
        held = self.held()
        self.forks[child] = (lsn, False)
        try:
            await node.ask(FORK, ForkRequest(self.vid.raw, child=child.raw, lsn=lsn))
            self.forks[child] = (lsn, True)
        except Forgotten:
            assert lsn not in held & self.held(), "it was held all the while"

    async def collect(self, node: Node, number: int) -> None:
        head = (await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))).lsn
        self.since = max(
            self.since, (await node.ask(ADVANCE, SinceRequest(self.vid.raw, since=max(1, head - number)))).since
        )
        since, held = await node.retention.begin_collect(self.vid)
        # The gc interval: what others believe to be held is asked anew meanwhile.
        self.clock.advance(BELIEVED_SECONDS + 1)
        await self.store.turn()
        self.deleted |= set(range(1, since)) - held
        await node.retention.end_collect(self.vid, since)

    async def check(self) -> None:
        now = self.clock.now()
        for node in [*self.nodes, await self.open()]:
            info = await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))
            assert info.since >= self.since
            readable: set[int] = set()
            for lsn in range(1, info.lsn + 1):
                try:
                    await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw, lsn=lsn))
                    readable.add(lsn)
                except Forgotten:
                    continue
            current = set(range(info.since, info.upper))
            assert not readable & self.deleted, "what was deleted can't be read"
            assert current <= readable, "everything from since on can be read"
            assert self.held() <= readable, "what is held can be read"
            assert readable <= current | self.maybe_held(), "nothing holds it"
        for one, known in self.pins.items():
            if known.promised(now):
                assert one in [pin.pin_id for pin in (await self.nodes[0].ask(PINS, VolumeRequest(self.vid.raw))).pins]


Call = tuple[str, int, int, float]
"""What, by whom, a number to choose by, seconds."""

Step = tuple[list[Call], str | None, bool, list[int], list[int], float]
"""Calls together; a point, and whether who comes there is cut or put behind the others; who goes first; when whoever is
first is put behind the others; how long to wait afterwards."""


def call_of(*kinds: str) -> st.SearchStrategy[Call]:
    seconds = st.sampled_from([20.0, 90.0, 0.0])
    return st.tuples(st.sampled_from(kinds), st.integers(0, 1), st.integers(0, 2), seconds)


steps = st.lists(
    st.tuples(
        st.tuples(
            call_of("pin", "pin", "again", "fork", "renew"),
            call_of("collect"),
            call_of("unpin", "pin", "collect", "commit", "fork", "again"),
        ).flatmap(lambda three: st.sampled_from([list(three[:2]), list(three[:2]), list(three), list(three[2:])])),
        st.sampled_from([None, None, *POINTS]),
        st.booleans(),
        st.permutations(range(3)),
        st.lists(st.integers(1, 12), max_size=2),
        st.sampled_from([0.0, 0.0, 15.0, 80.0]),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("kind", ["pin", "fork"])
def test_every_way_in_which_a_holder_and_a_collector_can_meet(kind: str) -> None:
    """Either is held up by the other before any of its requests, twice; or once, and at a point; or is cut there."""
    ways: list[tuple[str | None, bool, list[int]]] = [
        (None, False, [*changes]) for changes in combinations(range(1, 13), 2)
    ]
    ways += [(point, cuts, [change]) for point in POINTS for cuts in (False, True) for change in range(1, 13)]
    for (point, cuts, changes), first in product(ways, (0, 1)):
        together: list[Call] = [(kind, 0, 2, 0.0), ("collect", 1, 0, 0.0)]
        script: list[Step] = [(together, point, cuts, [first, 1 - first, 2], changes, 0.0)]
        anyio.run(play, script)


@settings(max_examples=3 * settings().max_examples)
@given(steps)
def test_what_is_held_stays_whatever_the_order(
    script: list[Step],
) -> None:
    async def run() -> None:
        await reread(await play(script))

    anyio.run(run)


async def play(script: list[Step], kind: type[World] = World) -> dict[str, bytes]:
    """What the store holds in the end."""
    async with AsyncExitStack() as stack:
        world = kind(stack, ManualClock(1_000_000.0, jumps=True), Turns(MemoryStore()), VolumeId.new())
        world.nodes = [await world.open(), await world.open()]
        await world.nodes[0].ask(CREATE, CreateRequest(world.vid.raw, page_size=PAGE))
        await world.begin()
        for _ in range(3):
            await world.commit(world.nodes[0])
        for together, point, cuts, order, changes, seconds in script:
            await world.commit(world.nodes[1])
            await step(world, together, point, cuts, list(order), changes)
            world.clock.advance(seconds)
            await world.check()
        return world.store.inner.objects


async def step(
    world: World, together: list[Call], point: str | None, cuts: bool, order: list[int], changes: list[int]
) -> None:
    left = len(together)
    cut: set[int] = set()

    async def run(place: int, number: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        nonlocal left
        CALLER.set(place)
        try:
            await work()
        except faults.Cut:
            cut.add(number)
        finally:
            left -= 1

    def action() -> None:
        if cuts:
            raise faults.Cut
        order.remove(CALLER.get())
        order.append(CALLER.get())

    if point is not None:
        faults.arm(point, action)
    world.store.free = False
    try:
        async with anyio.create_task_group() as tasks:
            for place, (what, number, choice, seconds) in enumerate(together):
                tasks.start_soon(run, place, number, work_of(world, what, world.nodes[number], choice, seconds))
            turns = 0
            while left:
                turns += 1
                assert turns < MOST_TURNS, "a call never ends"
                for _ in range(SETTLED):
                    await checkpoint()
                waiting = world.store.waiting
                if waiting:
                    if turns in changes:
                        first = min((request[0] for request in waiting), key=order.index)
                        order.remove(first)
                        order.append(first)
                    chosen = min(waiting, key=lambda request: order.index(request[0]))
                    waiting.remove(chosen)
                    chosen[1].set()
    finally:
        faults.disarm()
        world.store.release()
    for number in cut:
        world.nodes[number] = await world.open()


def work_of(
    world: World, what: str, node: Node, choice: int, seconds: float
) -> Callable[[], Coroutine[Any, Any, None]]:
    match what:
        case "commit":
            return lambda: world.commit(node)
        case "pin":
            return lambda: world.pin(node, choice, seconds)
        case "renew":
            return lambda: world.renew(node, choice, seconds)
        case _:
            return lambda: getattr(world, what)(node, choice)
