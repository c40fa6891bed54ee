"""Upkeep in a node: policies, folds and collections come by themselves, and whoever is quiet costs nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.store.protocol import Data, length_of
from budwood.server.store.retrying import Patience
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.server.upkeep import upkeep
from budwood.server.upkeep.upkeep import COMMITS, DAY_SECONDS, ENTRIES, NEW_ENTRIES, RETAIN_SECONDS, Extent, Pace
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    ADVANCE,
    CHANGE_NAME,
    CREATE,
    FORK,
    MOVE_LOG,
    PIN,
    REMOVE,
    RENEW,
    RETAIN,
    SNAPSHOT,
    UNPIN,
    CreateRequest,
    ForkRequest,
    MoveRequest,
    PinRequest,
    RenewRequest,
    RetainRequest,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
    VolumeRequest,
)
from budwood.volume.errors import Unavailable
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.retention_policy import RetentionPolicy
from budwood.volume.wire import NameRequest

from ..reread import reread
from ..rolling import comes_true, memory, roll_up
from ..waits import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

PAGE = 512
WIDTH = 8
ANN = ClientId.new()
EVERY = 60.0
WAIT = GC_INTERVAL_SECONDS + 61.0


@dataclass
class Scene:
    store: RiggedStore = field(default_factory=lambda: RiggedStore(MemoryStore()))
    clock: ManualClock = field(default_factory=lambda: ManualClock(1000.0))

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.clock.now_ms()

    @asynccontextmanager
    async def node(self, name: str | None = None, *, upkeep: bool = True) -> AsyncGenerator[Node]:
        clock = self.clock
        patience = Patience(deadline_seconds=5, now=clock.now, boot=clock.now, sleep=clock.sleep)
        pace = Pace(every_seconds=EVERY, rest=0.0, deletes_a_second=0.0)
        async with Node.open(
            self.store, name=name, patience=patience, now_ms=self.now_ms, upkeep=upkeep, pace=pace
        ) as node:
            yield node

    async def until(self, condition: Callable[[], object], *, step: float = EVERY) -> None:
        """Time goes on until that is so."""
        with anyio.fail_after(LIMIT_SECONDS):
            await self.settled()
            while not condition():
                self.clock.advance(step)
                await self.settled()

    async def settled(self) -> None:
        """Until upkeep sleeps again."""
        await comes_true(lambda: self.clock.sleepers)

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in memory(self.store).objects if key.startswith(prefix))


@dataclass
class Filled:
    node: Node
    vid: VolumeId
    head: int = 0
    pages: dict[int, bytes] = field(default_factory=dict[int, bytes])
    seen: dict[int, dict[int, bytes]] = field(default_factory=dict[int, dict[int, bytes]])

    @classmethod
    async def born(cls, node: Node) -> Filled:
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        return cls(node, vid)

    @property
    def log(self) -> str:
        return self.node.name or str(self.vid)

    async def forked(self) -> Filled:
        child = VolumeId.new()
        await self.node.ask(FORK, ForkRequest(self.vid.raw, child=child.raw, lsn=self.head))
        return Filled(self.node, child, self.head, dict(self.pages))

    async def write(self, number: int, *, apart: bool = False) -> None:
        for _ in range(number):
            wrote = {self.head * 37 % WIDTH + 1: b"%8d" % self.head * (PAGE // 8)}
            commit = partial(commit_of, self.vid, self.head, wrote, client=ANN, page_size=PAGE, length=WIDTH * PAGE)
            request, segment = commit()
            if apart:
                request, segment = commit(locations=(await self.node.write_pages(self.vid, segment),))
            self.head = (await self.node.commit(request, segment)).lsn
            self.pages |= wrote
            self.seen[self.head] = dict(self.pages)

    async def advance(self) -> None:
        await self.node.ask(ADVANCE, SinceRequest(self.vid.raw, since=self.head))

    async def since(self) -> int:
        return (await self.node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))).since

    async def check(self) -> None:
        assert await pages_at(self.node, self.vid) == self.pages


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture(params=["main", None], ids=["shared", "private"])
async def node(scene: Scene, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    async with scene.node(request.param) as node:
        yield node


async def test_what_is_forgotten_is_folded_and_collected_without_being_asked_for(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(COMMITS + 20)
    await volume.advance()
    assert not scene.keys(f"logs/{volume.log}/t/")
    await scene.until(lambda: scene.keys(f"logs/{volume.log}/t/"))
    entries = f"logs/{volume.log}/entries/"
    assert len(scene.keys(entries)) > COMMITS
    await scene.until(lambda: len(scene.keys(entries)) < 20)
    await scene.until(lambda: not scene.keys(f"logs/{volume.log}/gc/"))
    assert len(scene.keys(f"logs/{volume.log}/")) < 40
    await volume.check()
    async with scene.node() as fresh:
        assert await pages_at(fresh, volume.vid) == volume.pages


async def test_what_came_while_a_plan_waited_goes_though_the_volume_rests_since(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    entries, plans = f"logs/{volume.log}/entries/", f"logs/{volume.log}/gc/"
    await volume.write(COMMITS)
    await volume.advance()
    await scene.until(lambda: scene.keys(plans))
    await volume.write(COMMITS)
    await volume.advance()
    await scene.until(lambda: not scene.keys(plans))
    assert len(scene.keys(entries)) > COMMITS, "the plan was made before"
    await scene.until(lambda: len(scene.keys(entries)) < 20)
    await volume.check()


async def test_names_are_looked_after_as_a_log_and_not_as_a_volume(
    scene: Scene, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    volume = await Filled.born(node)
    log = str(node.root.names_id)
    for number in range(100):
        await node.ask(CHANGE_NAME, NameRequest(op="bind", name=f"d/{number}", target=volume.vid.raw))
    entries = f"logs/{log}/entries/"
    assert len(scene.keys(entries)) > 100 > NEW_ENTRIES
    await scene.until(lambda: len(scene.keys(entries)) < NEW_ENTRIES)
    assert not caplog.records


async def test_a_node_that_ends_as_its_turn_begins_says_nothing(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async with scene.node("main") as node:
        volume = await Filled.born(node)
        await volume.write(1)
        await scene.settled()
        scene.clock.advance(EVERY)
    assert not caplog.records


async def test_a_fault_of_its_own_does_not_take_the_node_down(
    scene: Scene, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    volume = await Filled.born(node)
    await volume.write(COMMITS)
    await volume.advance()
    rule = scene.store.add(Rule(op="create", key=f"logs/{volume.log}/t/*", before=AssertionError("a fault")))
    await scene.until(lambda: rule.fired)
    await comes_true(lambda: caplog.records)
    await volume.write(1)
    assert [record.exc_info is not None for record in caplog.records] == [True]
    await scene.until(lambda: scene.keys(f"logs/{volume.log}/t/"), step=DAY_SECONDS)
    await volume.check()


async def test_a_volume_that_rests_costs_no_request(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(COMMITS)
    await volume.advance()
    await scene.until(lambda: len(scene.keys(f"logs/{volume.log}/entries/")) < 20)
    for _ in range(5):
        scene.clock.advance(WAIT)
        await scene.settled()
    scene.store.forget()
    for _ in range(10):
        scene.clock.advance(EVERY)
        await scene.settled()
    assert scene.store.count() == 0


async def test_little_is_left_where_it_lies(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(10)
    await volume.advance()
    for _ in range(5):
        scene.clock.advance(EVERY)
        await scene.settled()
    assert not scene.keys(f"logs/{volume.log}/t/")
    await volume.check()


async def test_one_that_holds_a_log_back_is_folded_though_it_is_little(scene: Scene) -> None:
    """DESIGN §5: a small stream that holds a log back is folded too."""
    async with scene.node("main") as node:
        small, busy = await Filled.born(node), await Filled.born(node)
        await small.write(3)
        await small.advance()
        await busy.write(1100)
        await busy.advance()
        await scene.until(lambda: len(scene.keys("logs/main/entries/")) < 50, step=WAIT)
        await small.check()
        await busy.check()


async def test_one_that_forgets_nothing_holds_no_log_back(scene: Scene) -> None:
    """DESIGN §4, rule 8: its pages leave the log, and every LSN stays."""
    async with scene.node("main") as node:
        small, busy = await Filled.born(node), await Filled.born(node)
        await small.write(3)
        # All were looked at, and will be again a day later: until then it is none of those that have changed.
        for _ in range(2):
            scene.clock.advance(WAIT)
            await scene.settled()
        await busy.write(1100)
        await busy.advance()
        for _ in range(8):
            scene.clock.advance(WAIT)
            await scene.settled()
        assert len(scene.keys("logs/main/entries/")) < 50
        for lsn, pages in small.seen.items():
            assert await pages_at(node, small.vid, lsn) == pages
        await busy.check()
        async with scene.node() as fresh:
            for lsn, pages in small.seen.items():
                assert await pages_at(fresh, small.vid, lsn) == pages
        await reread(dict(memory(scene.store).objects))


async def test_a_volume_that_forgets_nothing_lies_in_few_objects(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(ENTRIES + 10)
    await scene.until(lambda: len(scene.keys(f"logs/{volume.log}/entries/")) < 100, step=WAIT)
    assert len(scene.keys(f"logs/{volume.log}/")) < 140
    for lsn in range(1, volume.head + 1, 50):
        assert await pages_at(node, volume.vid, lsn) == volume.seen[lsn]
    scene.store.forget()
    for _ in range(5):
        scene.clock.advance(EVERY)
        await scene.settled()
    assert scene.store.count() == 0


async def test_commits_without_pages_in_entries_are_looked_through_once(
    scene: Scene, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("budwood.server.upkeep.upkeep.ENTRIES", 20)
    volume = await Filled.born(node)
    for head in range(30):
        wrote = {head % WIDTH + 1: b"%8d" % head * (PAGE // 8)}
        _, segment = commit_of(volume.vid, head, wrote, client=ANN, page_size=PAGE, length=WIDTH * PAGE)
        place = await node.write_pages(volume.vid, segment)
        request, _ = commit_of(
            volume.vid, head, wrote, client=ANN, page_size=PAGE, length=WIDTH * PAGE, locations=(place,)
        )
        await node.commit(request)
    await scene.until(lambda: any(key.endswith("/deadlist") for key in scene.keys(f"logs/{volume.log}/t/")))
    opened = await node.volumes.get(volume.vid, fresh=True)
    assert opened.history.settled_to == 30
    assert opened.history.folded_to == 0
    async with scene.node() as fresh:
        assert len(await pages_at(fresh, volume.vid, 5)) == 5
    await reread(dict(memory(scene.store).objects))


class Counting(MemoryStore):
    """Counts the bytes that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0
        self.others = 0

    async def create(self, key: str, data: Data) -> None:
        await super().create(key, data)
        if "/entries/" in key:
            self.entries += length_of(data)
        else:
            self.others += length_of(data)


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("commits", [1, 2, 5])
@pytest.mark.parametrize("kind", ["volume", "fork", "its other commits lie apart"])
async def test_whoever_was_quiet_ever_since_holds_no_shared_log_back(
    monkeypatch: pytest.MonkeyPatch, scene: Scene, kind: str, commits: int, *, forgets: bool
) -> None:
    monkeypatch.setattr(upkeep, "ENTRIES", 64)
    async with scene.node("main") as node:
        quiet, busy = await Filled.born(node), await Filled.born(node)
        await quiet.write(1)
        if kind == "fork":
            quiet = await quiet.forked()
            await quiet.write(1)
        await quiet.write(commits - 1, apart="apart" in kind)
        if forgets:
            await quiet.advance()
        for _ in range(5):
            await busy.write(64)
            await busy.advance()
            await scene.until(lambda: len(scene.keys("logs/main/entries/")) < 150, step=WAIT)
        await quiet.check()
        await busy.check()


@pytest.mark.parametrize("commits", [1, 3])
async def test_whoever_moved_away_and_was_removed_holds_no_shared_log_back(
    monkeypatch: pytest.MonkeyPatch, scene: Scene, commits: int
) -> None:
    monkeypatch.setattr(upkeep, "ENTRIES", 64)
    async with scene.node("main") as node:
        gone, busy = await Filled.born(node), await Filled.born(node)
        await gone.write(commits)
        await node.ask(MOVE_LOG, MoveRequest(gone.vid.raw, to="private"))
        await gone.write(commits)
        await node.ask(REMOVE, VolumeRequest(gone.vid.raw))
        await scene.until(lambda: not scene.keys(f"volumes/{gone.vid}/"), step=WAIT)
    async with scene.node("main") as node:
        busy.node = node
        for _ in range(3):
            await busy.write(64)
            await busy.advance()
            await scene.until(lambda: len(scene.keys("logs/main/entries/")) < 150, step=WAIT)
        await busy.check()


@pytest.mark.parametrize("commits", [1, 3])
async def test_whoever_came_unseen_holds_back_the_log_that_it_came_from_for_a_day_at_most(
    monkeypatch: pytest.MonkeyPatch, scene: Scene, commits: int
) -> None:
    monkeypatch.setattr(upkeep, "ENTRIES", 64)
    async with scene.node("main") as node:
        quiet, busy = await Filled.born(node), await Filled.born(node)
        await quiet.write(commits)
    async with scene.node("other", upkeep=False) as other:
        await other.ask(MOVE_LOG, MoveRequest(quiet.vid.raw, to="other", takeover=True))
        others = await Filled.born(other)
        for _ in range(2):
            await others.write(1)
            await roll_up(other, "other")
        await others.write(1)
    async with scene.node("main") as node, scene.node("other"):
        busy.node = quiet.node = node
        for _ in range(3):
            await busy.write(64)
            await busy.advance()
            await scene.until(lambda: len(scene.keys("logs/main/entries/")) < 150, step=WAIT)
        await quiet.check()
        await busy.check()


@pytest.mark.parametrize("forgets", [True, False])
async def test_what_is_written_follows_what_is_committed(*, forgets: bool) -> None:
    """S3.7: folds, relocations, rollups and plans together take no more than twice what the commits took, and what
    stays is what can be read."""
    store = Counting()
    scene = Scene(RiggedStore(store))
    async with scene.node("main") as node:
        volume = await Filled.born(node)
        for _ in range(48):
            await volume.write(32)
            if forgets:
                await volume.advance()
            scene.clock.advance(EVERY)
            await scene.settled()
        await scene.until(lambda: len(scene.keys("logs/main/entries/")) < 600, step=WAIT)
        assert store.others < 2 * store.entries
        stored = sum(map(len, store.objects.values()))
        assert stored < (store.entries / 3 if forgets else 2 * store.entries)
        await volume.check()


async def test_policies_are_enforced_as_time_goes_on(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    policy = RetentionPolicy(all_ms=3_600_000)
    await node.ask(RETAIN, RetainRequest(volume.vid.raw, policy=policy))
    await volume.write(COMMITS)
    scene.clock.advance(2 * RETAIN_SECONDS)
    await scene.settled()
    await volume.write(1)
    await scene.until(lambda: scene.keys(f"logs/{volume.log}/t/"))
    assert await volume.since() >= COMMITS
    await volume.check()


async def test_what_a_pin_held_goes_within_a_day_of_its_release(scene: Scene, node: Node) -> None:
    volume, pin = await Filled.born(node), PinId.new()
    await volume.write(100)
    await node.ask(PIN, PinRequest(volume.vid.raw, lsn=100, pin=pin.raw, seconds=0.0))
    await volume.write(COMMITS)
    await volume.advance()
    await scene.until(lambda: len(scene.keys(f"logs/{volume.log}/entries/")) < 20)
    assert await pages_at(node, volume.vid, 100) == volume.seen[100]
    before = set(scene.keys(f"logs/{volume.log}/t/"))
    await node.ask(UNPIN, UnpinRequest(volume.vid.raw, pin=pin.raw))
    # The pinned LSN's pages have a segment of their own, which goes, as those of the head stay.
    await scene.until(lambda: len(before - set(scene.keys(""))) == 3, step=DAY_SECONDS / 4)
    await volume.check()


async def test_what_a_push_and_pins_have_left_goes_within_days(scene: Scene, node: Node) -> None:
    """S0.38: once a day it is looked for, where something came; a lease that is renewed is no reason to write more."""
    volume = await Filled.born(node)
    await volume.write(3)
    _, cut_off = commit_of(volume.vid, volume.head, {1: bytes(PAGE)}, client=ANN, page_size=PAGE)
    left = (await node.write_pages(volume.vid, cut_off)).object
    pin = await node.ask(PIN, PinRequest(volume.vid.raw, lsn=2, pin=PinId.new().raw, seconds=0.0))
    lease = PinRequest(volume.vid.raw, lsn=3, pin=PinId.new().raw, seconds=60.0)
    await node.ask(PIN, lease)
    for seconds in range(100, 1000, 100):
        await node.ask(RENEW, RenewRequest(volume.vid.raw, pin=lease.pin, seconds=float(seconds)))
    await node.ask(UNPIN, UnpinRequest(volume.vid.raw, pin=pin.id))
    chains = f"volumes/{volume.vid}/pins/"
    assert len(scene.keys(chains)) == 14
    await scene.until(lambda: len(scene.keys(chains)) <= 3, step=600.0)
    await volume.write(1)
    await scene.until(lambda: left not in scene.keys("logs/"), step=3600.0)
    await volume.check()


async def test_where_the_store_fails_it_goes_on_later(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(COMMITS)
    await volume.advance()
    away = scene.store.add(Rule(op="create", key="logs/*/t/*", times=None, before=Unavailable("away")))
    await scene.until(lambda: away.fired > 3, step=1.0)
    scene.store.rules.clear()
    await scene.until(lambda: scene.keys(f"logs/{volume.log}/t/"))
    await volume.check()


async def test_a_turn_that_is_asked_for_does_all_of_it(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(COMMITS)
    await volume.advance()
    turn = await node.upkeep.tend(volume.log, Extent.WORTH_IT)
    assert (turn.folded, turn.deleted, turn.failures) == (1, 0, ())
    scene.clock.advance(WAIT)
    turn = await node.upkeep.tend(volume.log, Extent.WORTH_IT)
    assert (turn.folded, turn.failures) == (0, ())
    assert turn.deleted > COMMITS
    await volume.check()
