"""What nothing in a log leads to, and goes all the same: fragments that no commit ever named, and what pins have been
(docs/design/0088-leftovers.md). Sleepers: here, and tests/property/test_spent_pins_machine.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import msgspec
import pytest

from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.server.upkeep import unnamed
from budwood.server.upkeep.collector import Progress, Stage
from budwood.server.upkeep.garbage_check import Refused
from budwood.server.upkeep.garbage_plan import Planner
from budwood.server.upkeep.unnamed import OLD_MS
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    MOVE_LOG,
    PIN,
    PINS,
    RENEW,
    SNAPSHOT,
    UNPIN,
    CreateRequest,
    MoveRequest,
    PinRequest,
    RenewRequest,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
    VolumeRequest,
)
from budwood.volume.errors import AlreadyExists, Conflict, NotFound, PagesNotHere
from budwood.volume.fragments import fragment_key, fragment_name
from budwood.volume.garbage import GarbagePlan, PlannedPin
from budwood.volume.ids import ClientId, PinId, SegmentId, VolumeId
from budwood.volume.pins import Pin, PinState, ended_prefix, pins_prefix
from budwood.volume.records import Location
from budwood.volume.segment import SegmentIndex, SegmentWriter

from ..reread import reread
from ..rolling import memory

pytestmark = pytest.mark.anyio

PAGE = 512
ANN = ClientId.new()
INTERVAL = GC_INTERVAL_SECONDS + 60.0
DAY = 86_400.0
OLD = OLD_MS / 1000


@dataclass
class Scene:
    store: RiggedStore = field(default_factory=lambda: RiggedStore(MemoryStore()))
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_700_000_000.0, jumps=True))
    shards: int = 1

    @asynccontextmanager
    async def node(self, name: str | None = None) -> AsyncGenerator[Node]:
        clock = self.clock
        patience = Patience(deadline_seconds=5, now=clock.now, boot=clock.now, sleep=clock.sleep)
        async with Node.open(self.store, name=name, patience=patience, now_ms=clock.now_ms, shards=self.shards) as node:
            yield node

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in memory(self.store).objects if key.startswith(prefix))

    def fragments(self, log: str) -> list[str]:
        return [key for folder in ("t", "shards") for key in self.keys(f"logs/{log}/{folder}/")]

    async def collect(self, node: Node, log: str) -> None:
        """All that can be."""
        while (await node.collector.collect(log)).stage is not Stage.NOTHING:
            self.clock.advance(INTERVAL)

    async def check(self) -> None:
        """By the second reader: nothing live is missing, and nothing else stands."""
        liveness = (await reread(dict(memory(self.store).objects))).liveness()
        liveness.check()
        assert not liveness.garbage
        assert not liveness.leftovers


@dataclass
class Volume:
    node: Node
    vid: VolumeId
    head: int = 0
    pages: dict[int, bytes] = field(default_factory=dict[int, bytes])

    @classmethod
    async def born(cls, node: Node) -> Volume:
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        return cls(node, vid)

    @property
    def log(self) -> str:
        return self.node.name or str(self.vid)

    async def send(self, page: int, segment: SegmentId | None = None) -> tuple[Location, dict[int, bytes]]:
        """A fragment, and what is in it."""
        wrote = {page: b"%8d" % (self.head + page) * (PAGE // 8)}
        _, data = commit_of(self.vid, self.head, wrote, client=ANN, page_size=PAGE, length=16 * PAGE)
        if segment is not None:
            writer = SegmentWriter(segment)
            writer.merge(SegmentIndex.of_segment("", data), data)
            data = writer.finish()
        return await self.node.write_pages(self.vid, data), wrote

    async def name(self, *sent: tuple[Location, dict[int, bytes]], node: Node | None = None) -> None:
        wrote = {page: data for _, pages in sent for page, data in pages.items()}
        locations = tuple(location for location, _ in sent)
        request, segment = commit_of(
            self.vid, self.head, wrote, client=ANN, page_size=PAGE, length=16 * PAGE, locations=locations
        )
        self.head = (await (node or self.node).commit(request, segment)).lsn
        self.pages |= wrote

    async def write(self, number: int = 1) -> None:
        for _ in range(number):
            wrote = {self.head % 16 + 1: b"%8d" % self.head * (PAGE // 8)}
            request, segment = commit_of(self.vid, self.head, wrote, client=ANN, page_size=PAGE, length=16 * PAGE)
            self.head = (await self.node.commit(request, segment)).lsn
            self.pages |= wrote

    async def check(self, node: Node | None = None) -> None:
        node = node or self.node
        assert (await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))).lsn == self.head
        assert await pages_at(node, self.vid) == self.pages

    async def forget(self) -> None:
        await self.node.ask(ADVANCE, SinceRequest(self.vid.raw, since=self.head))
        await self.node.folder.fold(self.vid)

    async def pin(self, seconds: float = 0.0, *, label: str = "", lsn: int | None = None) -> Pin:
        request = PinRequest(self.vid.raw, lsn=lsn, pin=PinId.new().raw, seconds=seconds, label=label)
        return await self.node.ask(PIN, request)

    async def unpin(self, pin: Pin) -> None:
        await self.node.ask(UNPIN, UnpinRequest(self.vid.raw, pin=pin.id))

    async def held(self, node: Node | None = None) -> list[Pin]:
        return list((await (node or self.node).ask(PINS, VolumeRequest(self.vid.raw))).pins)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture(params=["", "main", "main-sharded"])
async def node(scene: Scene, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    """Of a private log, of a shared one, and of one whose fragments are spread over prefixes."""
    name, spread, _ = request.param.partition("-")
    scene.shards = 12 if spread else 1
    async with scene.node(name or None) as node:
        yield node


@pytest.fixture
async def volume(node: Node) -> Volume:
    volume = await Volume.born(node)
    await volume.write(3)
    return volume


async def waiting(scene: Scene, volume: Volume) -> GarbagePlan:
    """A plan that is acknowledged."""
    assert (await volume.node.collector.collect(volume.log)).stage is Stage.WAITING
    plan = await volume.node.collector.planned(volume.log)
    assert plan is not None
    return plan


async def carried_out(scene: Scene, volume: Volume) -> Progress:
    scene.clock.advance(INTERVAL)
    done = await volume.node.collector.collect(volume.log)
    assert done.stage is Stage.DONE
    return done


async def test_what_a_push_left_that_was_cut_off_goes_and_what_was_named_stays(scene: Scene, volume: Volume) -> None:
    named, cut_off = await volume.send(4), await volume.send(5)
    await volume.name(named)
    scene.clock.advance(OLD + 1)
    await scene.collect(volume.node, volume.log)
    stands = scene.keys("logs/")
    assert named[0].object in stands
    assert cut_off[0].object not in stands
    await volume.check()
    await scene.check()


async def test_a_young_fragment_stays_until_it_is_old(scene: Scene, volume: Volume) -> None:
    old = await volume.send(4)
    scene.clock.advance(OLD - DAY / 2)
    young = await volume.send(5)
    await scene.collect(volume.node, volume.log)
    assert old[0].object in scene.keys("logs/")
    scene.clock.advance(DAY)
    await scene.collect(volume.node, volume.log)
    assert old[0].object not in scene.keys("logs/")
    await volume.name(young)
    await scene.collect(volume.node, volume.log)
    await volume.check()
    await scene.check()


async def test_what_is_left_of_an_epoch_that_is_over_goes(scene: Scene) -> None:
    async with scene.node("main") as node:
        volume = await Volume.born(node)
        named, cut_off = await volume.send(4), await volume.send(5)
        await volume.name(named)
    async with scene.node("main") as volume.node:
        with pytest.raises(PagesNotHere):
            await volume.name(cut_off)
        scene.clock.advance(OLD + 1)
        await scene.collect(volume.node, "main")
        assert named[0].object in scene.keys("logs/")
        assert cut_off[0].object not in scene.keys("logs/")
        await volume.check()
    await scene.check()


async def test_what_was_named_and_folded_is_left_to_its_deadlist(scene: Scene, volume: Volume) -> None:
    """Whoever read it may read on for an interval."""
    sent = [await volume.send(page) for page in (4, 5)]
    cut_off = await volume.send(6)
    await volume.name(*sent)
    await volume.write(20)
    scene.clock.advance(OLD + 1)
    plan = await waiting(scene, volume)
    assert [len(each.segments) for each in plan.fragments] == [1]
    await volume.forget()
    await carried_out(scene, volume)
    stands = scene.keys("logs/")
    assert cut_off[0].object not in stands
    assert {location.object for location, _ in sent} <= set(stands)
    await scene.collect(volume.node, volume.log)
    await volume.check()
    await scene.check()


async def test_fragments_of_a_volume_that_moved_stay_with_what_they_are_needed_for(scene: Scene) -> None:
    async with scene.node("main") as node:
        volume = await Volume.born(node)
        named, cut_off = await volume.send(4), await volume.send(5)
        await volume.name(named)
        await node.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to="private"))
        await volume.write(3)
        scene.clock.advance(OLD + 1)
        await scene.collect(node, "main")
        assert named[0].object in scene.keys("logs/main/")
        assert cut_off[0].object not in scene.keys("logs/main/")
        await volume.check()
    await scene.check()


@pytest.mark.parametrize("folded", [False, True])
async def test_who_names_a_fragment_before_that_is_forbidden_keeps_it(scene: Scene, folded: bool) -> None:
    """Between the plan's verification and the entry that acknowledges it: asked again before it goes."""
    async with scene.node() as node, scene.node() as other:
        volume = await Volume.born(node)
        await volume.write(3)
        late, cut_off = await volume.send(4), await volume.send(5)
        scene.clock.advance(OLD + 1)
        await volume.check(other)
        written = scene.store.add(Rule(op="create", key="logs/*/gc/*/plan", gate=anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(node.collector.collect, volume.log)
            await written.reached.wait()
            await volume.name(late, node=other)
            assert written.gate is not None
            written.gate.set()
        plan = await node.collector.planned(volume.log)
        assert plan is not None
        assert [len(each.segments) for each in plan.fragments] == [2]
        if folded:
            # Then it is left to its deadlist, whose time comes later.
            await volume.write(20)
            await volume.forget()
        await carried_out(scene, volume)
        assert late[0].object in scene.keys("logs/")
        assert cut_off[0].object not in scene.keys("logs/")
        for each in (node, other):
            await volume.check(each)


async def test_who_slept_and_names_it_afterwards_is_told_to_send_it_again(scene: Scene) -> None:
    """Its commit was judged, and its entry made, before anybody thought of a plan."""
    async with scene.node() as node, scene.node() as other:
        volume = await Volume.born(node)
        await volume.write(3)
        sent = await volume.send(4)
        scene.clock.advance(OLD + 1)
        await volume.check(other)
        asleep = scene.store.add(Rule(op="create", key=f"logs/{volume.log}/entries/*", gate=anyio.Event()))

        async def late() -> None:
            with pytest.raises(PagesNotHere, match="send them again"):
                await volume.name(sent, node=other)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late)
            await asleep.reached.wait()
            await waiting(scene, volume)
            await carried_out(scene, volume)
            assert sent[0].object not in scene.keys("logs/")
            assert asleep.gate is not None
            asleep.gate.set()
        await volume.name(await volume.send(4))
        await volume.check(other)


async def test_who_slept_in_a_shared_log_is_deposed_or_told(scene: Scene) -> None:
    async with scene.node("main") as node:
        volume = await Volume.born(node)
        await volume.write(3)
        sent = await volume.send(4)
        scene.clock.advance(OLD + 1)
        await waiting(scene, volume)
        with pytest.raises(PagesNotHere):
            await volume.name(sent)
        await carried_out(scene, volume)
        await volume.name(await volume.send(4))
        await volume.check()


async def test_what_a_log_says_of_fragments_is_known_behind_its_rollup(scene: Scene, volume: Volume) -> None:
    sent = await volume.send(4)
    scene.clock.advance(OLD + 1)
    await waiting(scene, volume)
    await volume.write(80)
    await volume.node.collector.collect(volume.log)
    log = await volume.node.logs.get(volume.log)
    said = log.reader.chain.fragments_since
    assert said > 0
    await log.rollup.write_newest()
    await volume.write(1)
    async with scene.node() as fresh:
        assert (await fresh.logs.get(volume.log)).reader.chain.fragments_since == said
        if not volume.node.name:
            with pytest.raises(PagesNotHere):
                await volume.name(sent, node=fresh)


@pytest.mark.parametrize("off_ms", [-40 * 86_400_000, 40 * 86_400_000])
async def test_the_clock_of_a_client_decides_nothing(scene: Scene, volume: Volume, off_ms: int) -> None:
    """Neither that its pages can never be committed, nor that they are never collected."""
    cut_off = await volume.send(5, SegmentId.new(at_ms=scene.clock.now_ms() + off_ms))
    for turn in range(3):
        sent = await volume.send(4, SegmentId.new(at_ms=scene.clock.now_ms() + off_ms))
        await volume.name(sent)
        scene.clock.advance(OLD + 1)
        await scene.collect(volume.node, volume.log)
        assert (cut_off[0].object in scene.keys("logs/")) is (turn < 0)
        await volume.check()
    await scene.check()


async def test_a_clock_that_ran_ahead_stops_nobody(scene: Scene, volume: Volume) -> None:
    """Fragments are stored under ids that can be named, whatever was said."""
    cut_off = await volume.send(4)
    scene.clock.advance(400 * DAY)
    await scene.collect(volume.node, volume.log)
    assert cut_off[0].object not in scene.keys("logs/")
    said = (await volume.node.logs.get(volume.log)).reader.chain.fragments_since
    behind = ManualClock(1_700_000_000.0, jumps=True)
    async with Node.open(scene.store, patience=Patience(now=behind.now), now_ms=behind.now_ms) as other:
        if not volume.node.name:
            volume.node = other
            await volume.name(await volume.send(4))
            await volume.check()
            assert SegmentId.parse((await volume.send(5))[0].object.rpartition("/")[2]).time_ms >= said


async def test_a_log_with_more_than_a_plan_holds_is_done_by_and_by(
    scene: Scene, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"MOST": 4, "_FEW": 3, "_LISTED": 2}.items():
        monkeypatch.setattr(unnamed, name, value)
    at_ms = scene.clock.now_ms()
    for turn in range(24):
        sent = await volume.send(4, SegmentId.new(at_ms=at_ms + turn // 8))
        if turn % 6 == 0:
            await volume.name(sent)
    scene.clock.advance(OLD + 1)
    await scene.collect(volume.node, volume.log)
    assert len(scene.fragments(volume.log)) == 4
    await volume.check()
    await scene.check()


async def test_what_was_all_named_is_not_looked_at_again(
    scene: Scene, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unnamed, "WORTH_IT", 8)
    await volume.name(*[await volume.send(page) for page in range(1, 11)])
    scene.clock.advance(OLD + 1)
    await volume.write(1)
    await scene.collect(volume.node, volume.log)
    scene.clock.advance(OLD + 1)
    await volume.write(1)
    await scene.collect(volume.node, volume.log)
    scene.store.forget()
    await volume.write(1)
    await scene.collect(volume.node, volume.log)
    for folder in ("t", "shards"):
        assert not list(scene.store.matching("get", f"logs/{volume.log}/{folder}/*"))
    assert (await volume.node.logs.get(volume.log)).reader.chain.fragments_since > 0


@pytest.mark.parametrize("what", ["young", "named", "volume", "transaction"])
async def test_a_plan_that_takes_out_what_is_needed_is_refused(
    scene: Scene, volume: Volume, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, cut_off = await volume.send(4), await volume.send(5)
    await volume.name(named)
    other = await Volume.born(volume.node)
    await other.write(1)
    await volume.write(80)
    await volume.forget()
    scene.clock.advance(OLD + 1)
    plan_of = Planner.plan

    async def wrong(*args: object, **others: object) -> GarbagePlan | None:
        plan = await plan_of(*args, **others)  # type: ignore[arg-type]
        assert plan is not None
        (fragments,) = plan.fragments
        match what:
            case "young":
                return msgspec.structs.replace(plan, fragments_since=plan.time)
            case "named":
                shard, _, segment = fragment_name(volume.log, named[0].object)
                replaced = msgspec.structs.replace(fragments, ids=segment.raw, shard=shard)
                return msgspec.structs.replace(plan, fragments=(replaced,))
            case "volume":
                return msgspec.structs.replace(plan, fragments=(msgspec.structs.replace(fragments, vid=other.vid.raw),))
            case _:
                epoch = max(plan.settled or (plan.number,))
                return msgspec.structs.replace(plan, fragments=(msgspec.structs.replace(fragments, epoch=epoch),))

    monkeypatch.setattr(Planner, "plan", wrong)
    before = scene.keys("logs/")
    with pytest.raises(Refused):
        await volume.node.collector.collect(volume.log)
    assert set(before) <= set(scene.keys("logs/"))
    assert cut_off[0].object in before


async def test_a_lease_that_was_renewed_often_leaves_two_revisions(scene: Scene, volume: Volume) -> None:
    pin = await volume.pin(60.0)
    for _ in range(200):
        scene.clock.advance(30)
        await volume.node.ask(RENEW, RenewRequest(volume.vid.raw, pin=pin.id, seconds=60.0))
    named = await volume.pin()
    assert len(scene.keys(pins_prefix(volume.vid))) > 200
    await waiting(scene, volume)
    for _ in range(150):
        scene.clock.advance(30)
        await volume.node.ask(RENEW, RenewRequest(volume.vid.raw, pin=pin.id, seconds=60.0))
    assert (await volume.node.collector.collect(volume.log)).stage is Stage.DONE
    before = len(scene.keys(pins_prefix(volume.vid, pin.pin_id)))
    assert 150 <= before <= 153
    assert {each.pin_id for each in await volume.held()} == {pin.pin_id, named.pin_id}
    await scene.collect(volume.node, volume.log)
    assert {each.pin_id for each in await volume.held()} == {named.pin_id}
    await scene.collect(volume.node, volume.log)
    assert len(scene.keys(pins_prefix(volume.vid))) == 2
    await scene.check()


async def test_a_pin_that_has_ended_is_found_by_its_id_alone(scene: Scene, volume: Volume) -> None:
    released, expired, holds = await volume.pin(), await volume.pin(60.0), await volume.pin()
    await volume.unpin(released)
    scene.clock.advance(DAY)
    await scene.collect(volume.node, volume.log)
    assert scene.keys(pins_prefix(volume.vid)) == scene.keys(pins_prefix(volume.vid, holds.pin_id))
    assert len(scene.keys(ended_prefix(volume.vid))) == 2
    async with scene.node() as fresh:
        for pin, how in ((released, "was released"), (expired, "has expired")):
            with pytest.raises(NotFound, match=how):
                await fresh.ask(RENEW, RenewRequest(volume.vid.raw, pin=pin.id, seconds=60.0))
            with pytest.raises(NotFound, match=how):
                await fresh.ask(PIN, PinRequest(volume.vid.raw, pin=pin.id, lsn=pin.lsn, seconds=0.0))
            await fresh.ask(UNPIN, UnpinRequest(volume.vid.raw, pin=pin.id))
    assert [pin.pin_id for pin in await volume.held()] == [holds.pin_id]
    await scene.check()


async def test_what_listing_pins_costs_does_not_follow_those_that_ended(scene: Scene, volume: Volume) -> None:
    holds = [await volume.pin() for _ in range(3)]

    async def asked() -> list[str]:
        async with scene.node() as fresh:
            await fresh.volumes.get(volume.vid)
            scene.store.forget()
            assert {pin.pin_id for pin in await volume.held(fresh)} >= {pin.pin_id for pin in holds}
            return [request.op for request in scene.store.requests if "/pins/" in request.key]

    before = await asked()
    for _ in range(60):
        await volume.pin(60.0)
    scene.clock.advance(DAY)
    assert len(await asked()) > len(before) + 60
    await scene.collect(volume.node, volume.log)
    assert await asked() == before


async def test_a_label_that_moves_stands_once_and_leaves_its_newest_pin(scene: Scene, volume: Volume) -> None:
    for turn in range(5):
        pin = await volume.pin(label="latest")
        with pytest.raises(AlreadyExists):
            await volume.pin(label="latest", lsn=1)
        await scene.collect(volume.node, volume.log)
        assert [each.id for each in await volume.held()] == [pin.id]
        if turn % 2:
            await volume.unpin(pin)
            await scene.collect(volume.node, volume.log)
        else:
            await volume.unpin(pin)
        await volume.write(1)
        assert not await volume.held()
    async with scene.node() as fresh:
        pin = await fresh.ask(PIN, PinRequest(volume.vid.raw, lsn=1, seconds=0.0, label="latest"))
        assert [each.id for each in await volume.held()] == [pin.id]
    await scene.collect(volume.node, volume.log)
    assert len({key.split("/")[3] for key in scene.keys(pins_prefix(volume.vid))}) == 1
    await scene.check()


async def asleep_over(scene: Scene, volume: Volume, rule: Rule, work: object, meanwhile: object) -> None:
    """Work that sleeps over its first request that the rule is of, while the others do something."""
    asleep = scene.store.add(rule)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)  # type: ignore[arg-type]
        await asleep.reached.wait()
        await meanwhile()  # type: ignore[operator]
        assert asleep.gate is not None
        asleep.gate.set()


@pytest.mark.parametrize("what", [RENEW, UNPIN])
async def test_who_slept_over_a_revision_is_told_how_the_pin_ended(scene: Scene, what: object) -> None:
    """Its revision is made anew, and is none."""
    async with scene.node() as node, scene.node() as other:
        volume = await Volume.born(node)
        await volume.write(3)
        pin = await volume.pin(3600.0)

        async def late() -> None:
            if what is RENEW:
                with pytest.raises(NotFound, match="has expired"):
                    await other.ask(RENEW, RenewRequest(volume.vid.raw, pin=pin.id, seconds=7 * DAY))
            else:
                await other.ask(UNPIN, UnpinRequest(volume.vid.raw, pin=pin.id))

        async def meanwhile() -> None:
            scene.clock.advance(DAY)
            assert not await volume.held()
            await scene.collect(node, volume.log)
            assert not scene.keys(pins_prefix(volume.vid))

        await asleep_over(scene, volume, Rule(op="create", key="volumes/*/pins/*", gate=anyio.Event()), late, meanwhile)
        assert scene.keys(pins_prefix(volume.vid)), "it was made anew"
        for each in (node, other):
            assert not await volume.held(each)
            assert not await each.retention.pins.held(volume.vid, pin.lsn)
        await volume.write(1)
        await scene.collect(node, volume.log)
        assert not scene.keys(pins_prefix(volume.vid))
        await scene.check()


async def test_who_slept_over_a_revision_that_others_went_past_goes_on_from_theirs(scene: Scene) -> None:
    async with scene.node() as node, scene.node() as other:
        volume = await Volume.born(node)
        await volume.write(3)
        pin = await volume.pin(60.0)

        async def late() -> None:
            renewed = await other.ask(RENEW, RenewRequest(volume.vid.raw, pin=pin.id, seconds=30.0))
            assert renewed.expiry == (await volume.held())[0].expiry

        async def meanwhile() -> None:
            for seconds in (DAY, 2 * DAY, 3 * DAY):
                await node.ask(RENEW, RenewRequest(volume.vid.raw, pin=pin.id, seconds=seconds))
            await scene.collect(node, volume.log)
            assert len(scene.keys(pins_prefix(volume.vid))) == 2

        scene.clock.advance(59)
        await asleep_over(scene, volume, Rule(op="create", key="volumes/*/pins/*", gate=anyio.Event()), late, meanwhile)
        assert [each.rev for each in await volume.held(other)] == [4]
        await volume.write(1)
        await scene.collect(node, volume.log)
        await scene.check()


async def test_who_slept_before_asking_does_not_bring_back_what_has_ended(scene: Scene) -> None:
    async with scene.node() as node, scene.node() as other:
        volume = await Volume.born(node)
        await volume.write(3)
        request = PinRequest(volume.vid.raw, lsn=2, seconds=0.0, pin=PinId.new().raw)

        async def late() -> None:
            with pytest.raises(NotFound, match="was released"):
                await other.ask(PIN, request)

        async def meanwhile() -> None:
            pin = await node.ask(PIN, request)
            await volume.unpin(pin)
            await scene.collect(node, volume.log)
            assert not scene.keys(pins_prefix(volume.vid))

        await asleep_over(scene, volume, Rule(op="create", key="volumes/*/pins/*", gate=anyio.Event()), late, meanwhile)
        for each in (node, other):
            assert not [pin for pin in await volume.held(each) if pin.state is PinState.LIVE]


async def test_what_was_asked_for_anew_by_who_slept_and_died_is_not_confirmed(scene: Scene) -> None:
    async with scene.node() as node, scene.node() as other:
        volume = await Volume.born(node)
        await volume.write(3)
        pin = await volume.pin(lsn=2)
        first = scene.keys(pins_prefix(volume.vid))[-1]
        asked = memory(scene.store).objects[first]
        await volume.unpin(pin)
        await scene.collect(node, volume.log)
        await scene.store.create(first, asked)
        for each in (other, node):
            with pytest.raises(NotFound, match="was released"):
                await each.ask(PIN, PinRequest(volume.vid.raw, lsn=2, seconds=0.0, pin=pin.id))
            assert not await volume.held(each)
        await volume.write(1)
        await scene.collect(node, volume.log)
        assert not scene.keys(pins_prefix(volume.vid))


async def test_who_slept_before_taking_a_label_does_not_take_it_twice(scene: Scene) -> None:
    async with scene.node() as node, scene.node() as other:
        volume = await Volume.born(node)
        await volume.write(3)
        request = PinRequest(volume.vid.raw, lsn=2, seconds=0.0, label="best")

        async def late() -> None:
            with pytest.raises(AlreadyExists):
                await other.ask(PIN, request)

        async def meanwhile() -> None:
            await volume.unpin(await volume.pin(label="best"))
            await volume.pin(label="best")
            await scene.collect(node, volume.log)
            assert len({key.split("/")[3] for key in scene.keys(pins_prefix(volume.vid))}) == 1

        await asleep_over(scene, volume, Rule(op="create", key="volumes/*/pins/*", gate=anyio.Event()), late, meanwhile)
        for each in (node, other):
            assert len([pin for pin in await volume.held(each) if pin.label == "best" and pin.holds]) == 1


@pytest.mark.parametrize("what", ["newest", "holds", "label"])
async def test_a_plan_that_takes_out_how_a_pin_stands_is_refused(
    scene: Scene, volume: Volume, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = await volume.pin()
    ended = await volume.pin(label="ended")
    await volume.unpin(ended)
    planned = {
        "newest": PlannedPin(vid=volume.vid.raw, pin=holds.id, upto=1),
        "holds": PlannedPin(vid=volume.vid.raw, pin=holds.id, upto=1, ended=True),
        "label": PlannedPin(vid=volume.vid.raw, pin=ended.id, upto=2, ended=True),
    }[what]
    plan_of = Planner.plan

    async def wrong(*args: object, **others: object) -> GarbagePlan | None:
        plan = await plan_of(*args, **others)  # type: ignore[arg-type]
        assert plan is not None
        return msgspec.structs.replace(plan, pins=(planned,), fragments_since=plan.time - OLD_MS)

    monkeypatch.setattr(Planner, "plan", wrong)
    await volume.write(80)
    await volume.forget()
    before = scene.keys("volumes/")
    with pytest.raises(Refused):
        await volume.node.collector.collect(volume.log)
    assert scene.keys("volumes/") == before


async def test_two_that_carry_out_one_plan_leave_what_one_would(scene: Scene) -> None:
    async with scene.node() as node, scene.node() as other:
        volume = await Volume.born(node)
        await volume.write(3)
        for _ in range(5):
            await volume.unpin(await volume.pin())
            await volume.send(4)
        scene.clock.advance(OLD + 1)
        await waiting(scene, volume)
        scene.clock.advance(INTERVAL)

        async def collect(each: Node) -> None:
            with suppress(Conflict):
                await each.collector.collect(volume.log)

        for _ in range(4):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(collect, node)
                tasks.start_soon(collect, other)
            scene.clock.advance(INTERVAL)
        await scene.collect(node, volume.log)
        assert not scene.keys(pins_prefix(volume.vid))
        assert not scene.keys(fragment_key(volume.log, 0, ""))
        await volume.check(other)
        await scene.check()
