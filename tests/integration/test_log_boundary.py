"""Slots that were deleted while somebody slept: nothing is acknowledged in one, none is taken for new, and it is said
in words. The collector is played here, as DESIGN §4, rule 6, has it: the boundary, the interval, then from the lowest
slot up."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from budwood.server.log.boundary import Boundary, boundary_key
from budwood.server.log.log_writer import SHARED_TIP_SECONDS
from budwood.server.metastore.entry_draft import RollupNaming
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import CREATE, SNAPSHOT, CreateRequest, SnapshotRequest
from budwood.volume.entry import entry_key
from budwood.volume.envelope import BOUNDARY, encode, seal
from budwood.volume.errors import Corrupt, Unavailable, Unsupported
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import Committed

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
HALF = GC_INTERVAL_SECONDS / 2


def page(letter: str) -> bytes:
    return letter.encode() * PAGE


async def put(node: Node, vid: VolumeId, base: int, letter: str) -> Committed:
    return await node.commit(*commit_of(vid, base, {1: page(letter)}, client=ClientId.new(), page_size=PAGE))


@dataclass
class Sleeper:
    """A process whose machine sleeps: its clock stands still meanwhile, and the time since it booted goes on."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(1000.0, jumps=True))
    slept_seconds: float = 0.0

    def boot(self) -> float:
        return self.clock.now() + self.slept_seconds

    @property
    def patience(self) -> Patience:
        return Patience(deadline_seconds=0.12, now=self.clock.now, boot=self.boot, sleep=self.clock.sleep)


@dataclass
class Scene:
    inner: MemoryStore
    store: RiggedStore
    """The sleeper's way to it."""
    sleeper: Sleeper
    node: Node
    vid: VolumeId
    """At LSN 2; its newest entry, in slot `next` - 1, was made by the sleeper."""
    next: int

    @property
    def log(self) -> str:
        return self.node.name or str(self.vid)

    async def go_on(self) -> int:
        """Others append four entries; the slot that the next one will have."""
        name = self.node.name or None
        async with Node.open(self.inner, name=name) as other:
            for lsn in range(2, 6):
                await put(other, self.vid, lsn, "o")
            return (await other.logs.get(self.log)).reader.chain.next

    async def collect(self, first: int) -> None:
        boundary = seal(BOUNDARY, encode(Boundary(log=self.log, slot=first)))
        await self.inner.create(boundary_key(self.log, first), boundary)
        self.sleeper.slept_seconds += GC_INTERVAL_SECONDS
        for slot in range(1, first):
            await self.inner.delete(entry_key(self.log, slot))

    def standing(self) -> set[str]:
        return {key for key in self.inner.objects if key.startswith(f"logs/{self.log}/entries/")}

    async def refused(self) -> None:
        """Whatever is asked for now is refused, in words, and writes nothing."""
        stood = dict(self.inner.objects)
        for _ in range(2):
            for ask in (
                self.node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw, confirm=True)),
                put(self.node, self.vid, 2, "!"),
            ):
                with pytest.raises(Unsupported, match=r"begins at slot \d+, .* upgrade"):
                    await ask
        assert self.inner.objects == stood


@asynccontextmanager
async def opened(name: str | None) -> AsyncGenerator[Scene, None]:
    inner, sleeper = MemoryStore(), Sleeper()
    store = RiggedStore(inner)
    async with Node.open(store, name=name, patience=sleeper.patience) as node:
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for lsn, letter in enumerate("ab"):
            await put(node, vid, lsn, letter)
        tip = (await node.logs.get(node.name or str(vid))).reader.chain.next
        yield Scene(inner, store, sleeper, node, vid, tip)


both = pytest.mark.parametrize("name", ["main", None], ids=["shared", "private"])


@both
async def test_whoever_slept_appends_nothing_where_others_were_collected(name: str | None) -> None:
    async with opened(name) as scene:
        last, writer = await scene.go_on(), (await scene.node.logs.get(scene.log)).writer
        await scene.collect(last - 1)
        stood = scene.standing()
        assert entry_key(scene.log, scene.next) not in stood, "the slot looks as if nobody had ever written it"
        assert writer is not None
        with pytest.raises(Unavailable, match=f"collected up to slot {last - 1}") as told:
            await writer.submit(RollupNaming(lambda: False))
        assert told.value.determinate
        assert scene.standing() == stood
        await scene.refused()


@both
async def test_whoever_slept_while_its_entry_was_on_its_way_acknowledges_nothing(name: str | None) -> None:
    """It lands in a slot that was deleted: so it counts for nobody, and that is found out before anyone is told."""
    async with opened(name) as scene:
        gate = scene.store.add(Rule(op="create", key=entry_key(scene.log, scene.next), gate=anyio.Event()))
        told: list[Unavailable] = []

        async def late() -> None:
            with pytest.raises(Unavailable, match="collected up to slot") as error:
                await put(scene.node, scene.vid, 2, "c")
            told.append(error.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late)
            await gate.reached.wait()
            await scene.collect(await scene.go_on())
            assert gate.gate is not None
            gate.gate.set()
        assert [error.determinate for error in told] == [False]
        assert entry_key(scene.log, scene.next) in scene.standing(), "the test's own premise"
        await scene.refused()


@both
@pytest.mark.parametrize("landed", [True, False])
async def test_an_entry_whose_answer_was_lost_before_the_sleep_is_not_acknowledged_after_it(
    name: str | None, landed: bool
) -> None:
    """Where it landed it counted, and was collected: sent again, it fills its own slot anew."""
    async with opened(name) as scene:
        key, lost = entry_key(scene.log, scene.next), Unavailable("no answer", determinate=False)
        rule = scene.store.add(Rule(op="create", key=key, times=None))
        rule.before, rule.after = (None, lost) if landed else (lost, None)
        away = scene.store.add(Rule(op="get", key=key, times=None, before=Unavailable("away")))
        with pytest.raises(Unavailable) as told:
            await put(scene.node, scene.vid, 2, "c")
        assert not told.value.determinate
        for each in (rule, away):
            scene.store.rules.remove(each)
        async with Node.open(scene.inner, name=name) as other:
            head = (await other.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw))).lsn
            assert head == (3 if landed else 2)
            for lsn in range(head, 6):
                await put(other, scene.vid, lsn, "o")
            last = (await other.logs.get(scene.log)).reader.chain.next
        writer = (await scene.node.logs.get(scene.log)).writer
        await scene.collect(last)
        assert writer is not None
        with pytest.raises(Unavailable, match="collected up to slot"):
            await writer.submit(RollupNaming(lambda: False))
        await scene.refused()


async def test_a_reader_that_slept_takes_no_missing_slot_for_the_tip() -> None:
    async with opened(None) as scene:
        log = await scene.node.logs.get(scene.log)
        await scene.collect(await scene.go_on())
        await scene.refused()
        assert "collected up to slot 7, and was read here up to slot 3" in str(log.reader.ended)


async def test_a_reader_that_slept_takes_no_slot_that_another_sleeper_filled_anew() -> None:
    async with opened(None) as scene, Node.open(scene.inner, patience=Sleeper().patience) as other:
        assert (await other.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw))).lsn == 2
        await scene.collect(await scene.go_on())
        # The other one has a clock that says nothing of the sleep, so that it fills the slot.
        assert (await put(other, scene.vid, 2, "!")).lsn == 3
        assert entry_key(scene.log, scene.next) in scene.standing()
        await scene.refused()


async def test_who_sleeps_goes_by_no_glance_either() -> None:
    async with opened(None) as scene:
        log = await scene.node.logs.get(scene.log)
        await scene.collect(await scene.go_on())
        with pytest.raises(Unavailable, match="collected up to slot 7"):
            await log.reader.refresh(glance=True)
        await scene.refused()


async def test_a_tip_that_was_collected_is_no_damage_and_one_that_is_gone_is() -> None:
    async with opened("main") as scene:
        last, log = await scene.go_on(), await scene.node.logs.get(scene.log)
        await scene.collect(last)
        scene.sleeper.slept_seconds = 0
        scene.sleeper.clock.advance(SHARED_TIP_SECONDS)
        with pytest.raises(Unavailable, match="collected up to slot"):
            await log.reader.refresh()
    async with opened("main") as scene:
        await scene.inner.delete(entry_key(scene.log, scene.next - 1))
        scene.sleeper.clock.advance(SHARED_TIP_SECONDS)
        with pytest.raises(Corrupt, match="put it back"):
            await put(scene.node, scene.vid, 2, "c")


@both
async def test_a_log_with_a_boundary_is_refused_in_words_and_nothing_is_written(name: str | None) -> None:
    async with opened(name) as scene:
        await scene.collect(await scene.go_on())
        stood = dict(scene.inner.objects)
        async with Node.open(scene.inner) as reader:
            with pytest.raises(Unsupported, match="upgrade"):
                await reader.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw))
            with pytest.raises(Unsupported, match="upgrade"):
                await put(reader, scene.vid, 6, "!")
        if name is not None:
            with pytest.raises(Unsupported, match="upgrade"):
                async with Node.open(scene.inner, name=name):
                    pass
        assert {key for key in scene.inner.objects if not key.startswith("probe")} == set(stood)


async def test_a_damaged_boundary_is_named() -> None:
    async with opened(None) as scene:
        key = boundary_key(scene.log, 2)
        await scene.inner.create(key, seal(BOUNDARY, encode(Boundary(log=scene.log, slot=3))))
        scene.sleeper.slept_seconds += HALF
        with pytest.raises(Corrupt, match="says that it is boundary 3") as found:
            await scene.node.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw, confirm=True))
        assert found.value.key == key


@both
async def test_who_was_away_for_less_than_half_the_interval_asks_for_no_boundary(name: str | None) -> None:
    """DESIGN §4: a durable commit is one PUT and one round trip."""
    async with opened(name) as scene:
        scene.store.forget()
        for lsn in range(2, 6):
            scene.sleeper.slept_seconds += HALF - 1
            await put(scene.node, scene.vid, lsn, "c")
        assert scene.store.count() == 4 == scene.store.count("create")
        scene.store.forget()
        scene.sleeper.slept_seconds += HALF
        await put(scene.node, scene.vid, 6, "d")
        assert scene.store.count("list") == 1 == scene.store.count("create")
        scene.store.forget()
        for _ in range(3):
            await scene.node.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw, confirm=True))
            scene.sleeper.slept_seconds += HALF - 1
        assert not scene.store.count("list")
        await scene.node.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw, confirm=True))
        scene.sleeper.slept_seconds += HALF
        await scene.node.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw, confirm=True))
        assert scene.store.count("list") == 1
        assert (await put(scene.node, scene.vid, 7, "e")).lsn == 8


async def test_what_counts_is_when_it_was_asked_and_not_when_the_answer_came() -> None:
    async with opened(None) as scene:
        gate = scene.store.add(Rule(op="create", key=entry_key(scene.log, scene.next), gate=anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put, scene.node, scene.vid, 2, "c")
            await gate.reached.wait()
            scene.sleeper.slept_seconds += 0.8 * HALF
            assert gate.gate is not None
            gate.gate.set()
        assert not scene.store.count("list", "*/boundary/")
        scene.sleeper.slept_seconds += 0.8 * HALF
        await put(scene.node, scene.vid, 3, "d")
        assert scene.store.count("list", "*/boundary/") == 1


async def test_a_log_is_opened_with_one_list_of_one_key() -> None:
    async with opened("main") as scene:
        scene.store.forget()
        async with Node.open(scene.store) as fresh:
            assert await pages_at(fresh, scene.vid) == {1: page("b")}
        assert [request.key for request in scene.store.matching("list")] == ["logs/main/"]


async def test_a_clock_that_goes_on_in_sleep_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def clock_gettime(clock: int) -> float:
        asked.append(clock)
        return 5.0

    monkeypatch.setattr(time, "clock_gettime", clock_gettime)
    assert Patience().boot() == 5.0
    assert asked == [time.CLOCK_BOOTTIME]
