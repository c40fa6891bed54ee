"""Collections of one log: what goes, when, and what stays (DESIGN §4, rule 6; §5). Crashes: tests/fault/
test_collection_killed.py; what reads as it did: tests/property/test_collection_machine.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
import pytest

from budwood.server.node import Node
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.server.upkeep.checkpoint_builder import CheckpointBuilder, Next
from budwood.server.upkeep.collector import Stage
from budwood.server.upkeep.garbage_check import Refused
from budwood.server.upkeep.garbage_plan import Planner
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FORK,
    MOVE_LOG,
    PIN,
    SNAPSHOT,
    CreateRequest,
    ForkRequest,
    MoveRequest,
    PinRequest,
    SinceRequest,
    SnapshotRequest,
)
from budwood.volume.checkpoint import Deadlist, deadlist_key, seal_deadlist
from budwood.volume.errors import Conflict, Forgotten, Unavailable
from budwood.volume.garbage import GarbagePlan, plan_key, plan_name
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.setsum import Setsum

from ..rolling import hasty, memory, roll_up

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
WIDTH = 16
ANN = ClientId.new()
DIGEST_DIGITS = 32
INTERVAL_MS = 1000 * (GC_INTERVAL_SECONDS + 60)


@dataclass
class Scene:
    store: RiggedStore
    now_ms: int = 1_700_000_000_000

    @asynccontextmanager
    async def node(self, name: str | None = None) -> AsyncGenerator[Node]:
        async with Node.open(self.store, name=name, patience=hasty(), now_ms=lambda: self.now_ms) as node:
            yield node

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in memory(self.store).objects if key.startswith(prefix))


@dataclass
class Filled:
    """A volume, and what its pages are."""

    node: Node
    vid: VolumeId
    pages: dict[int, bytes]
    head: int = 0

    @classmethod
    async def born(cls, node: Node) -> Filled:
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        return cls(node, vid, {})

    async def write(self, number: int, *, apart: bool = False) -> None:
        """So many commits, of one page each."""
        for _ in range(number):
            page = self.head * 37 % WIDTH + 1
            wrote = {page: b"%8d" % self.head * (PAGE // 8)}
            request, segment = commit_of(self.vid, self.head, wrote, client=ANN, page_size=PAGE, length=WIDTH * PAGE)
            if apart:
                locations = (await self.node.write_pages(self.vid, segment),)
                request, segment = commit_of(
                    self.vid, self.head, wrote, client=ANN, page_size=PAGE, length=WIDTH * PAGE, locations=locations
                )
            self.head = (await self.node.commit(request, segment)).lsn
            self.pages |= wrote

    async def forget(self) -> None:
        """All but the newest."""
        await self.node.ask(ADVANCE, SinceRequest(self.vid.raw, since=self.head))
        await self.node.folder.fold(self.vid)

    async def check(self, node: Node | None = None) -> None:
        node = node or self.node
        snapshot = await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))
        assert snapshot.lsn == self.head
        assert await pages_at(node, self.vid) == self.pages


@pytest.fixture
def scene() -> Scene:
    return Scene(RiggedStore(MemoryStore()))


@pytest.fixture
async def node(scene: Scene) -> AsyncIterator[Node]:
    async with scene.node() as node:
        yield node


async def collected(scene: Scene, node: Node, log: str) -> int:
    """All that a collection deletes that has waited long enough."""
    assert (await node.collector.collect(log)).stage is Stage.WAITING
    scene.now_ms += INTERVAL_MS
    done = await node.collector.collect(log)
    assert done.stage is Stage.DONE
    return done.deleted


async def test_what_was_folded_goes_once_it_has_waited(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(200)
    await volume.forget()
    before = scene.keys(f"logs/{log}/entries/")
    assert await node.collector.standing(log) is None
    waiting = await node.collector.collect(log)
    assert waiting.stage is Stage.WAITING
    standing = await node.collector.standing(log)
    assert standing is not None
    assert (standing[0].slot, standing[1]) == (waiting.planned, waiting.due_ms)
    assert (await node.collector.collect(log)).stage is Stage.WAITING
    assert set(before) <= set(scene.keys(f"logs/{log}/entries/")), "something went before its time"
    scene.now_ms += INTERVAL_MS
    assert (await node.collector.collect(log)).stage is Stage.DONE
    assert len(scene.keys(f"logs/{log}/entries/")) < 10
    assert len(scene.keys(f"logs/{log}/")) < 25
    await volume.check()
    async with scene.node() as fresh:
        await volume.check(fresh)
    assert (await node.collector.collect(log)).stage is Stage.NOTHING
    await volume.write(10)
    await volume.check()


async def test_what_came_while_a_rollup_was_written_goes_with_the_rest(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(20)
    slow = scene.store.add(Rule(op="create", key=f"logs/{log}/rollups/*", gate=anyio.Event()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon((await node.logs.get(log)).rollup.write)
        await slow.reached.wait()
        await volume.write(30)
        await volume.forget()
        assert slow.gate is not None
        slow.gate.set()
    await collected(scene, node, log)
    assert len(scene.keys(f"logs/{log}/entries/")) < 10
    await volume.check()


async def test_a_log_that_got_nothing_is_not_written_to(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(80)
    await volume.forget()
    await collected(scene, node, log)
    while (await node.collector.collect(log)).stage is not Stage.NOTHING:
        scene.now_ms += INTERVAL_MS
    stood = scene.keys("")
    scene.store.forget()
    scene.now_ms += INTERVAL_MS
    assert (await node.collector.collect(log)).stage is Stage.NOTHING
    assert scene.keys("") == stood
    assert not scene.store.count("create")


async def test_of_what_was_granted_nothing_is_listed(scene: Scene, node: Node) -> None:
    """S1.16: a deadlist names what one transaction left out."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    for _ in range(3):
        await volume.write(40)
        await volume.forget()
    assert (await node.collector.collect(log)).stage is Stage.WAITING
    dead = len(scene.keys(f"logs/{log}/t/"))
    scene.now_ms += INTERVAL_MS
    scene.store.forget()
    assert (await node.collector.collect(log)).stage is Stage.DONE
    assert not list(scene.store.matching("list", f"logs/{log}/t/*"))
    assert len(scene.keys(f"logs/{log}/t/")) < dead
    await volume.check()


async def cut_off(scene: Scene, volume: Filled) -> list[str]:
    """What a fold has written that got no further than its deadlist."""
    before = set(scene.keys(""))
    scene.store.add(Rule(op="create", key="logs/*/t/*/deadlist", times=None, before=Unavailable("no answer")))
    with pytest.raises(Unavailable):
        await volume.forget()
    scene.store.rules.clear()
    return [key for key in scene.keys("") if key not in before and "/t/" in key]


async def test_what_was_rejected_goes_by_its_prefix(scene: Scene, node: Node) -> None:
    """S1.17, and the states of S1.8: open, committed, rejected with the plan, ceased, and collected."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(40)
    left = await cut_off(scene, volume)
    assert left
    await volume.write(40)
    await volume.forget()
    assert (await node.collector.collect(log)).stage is Stage.WAITING
    plan = await node.collector.planned(log)
    assert plan is not None
    assert (plan.rejected, plan.settled) == ((1,), (2,))
    assert set(left) <= set(scene.keys("")), "the interval is not over"
    scene.now_ms += INTERVAL_MS
    assert (await node.collector.collect(log)).stage is Stage.DONE
    assert not set(left) & set(scene.keys(""))
    await volume.check()


async def test_what_a_rejected_one_writes_on_goes_with_the_next_plan(scene: Scene, node: Node) -> None:
    """Whoever slept doesn't know yet that it was rejected: an operator forces it, by not waiting (S1.8)."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(40)
    (late, *_) = await cut_off(scene, volume)
    await volume.forget()
    await collected(scene, node, log)
    await scene.store.create(late, b"late")
    await volume.write(40)
    await volume.forget()
    await collected(scene, node, log)
    assert late not in scene.keys("")
    await volume.write(80)
    await volume.forget()
    await collected(scene, node, log)
    assert f"logs/{log}/epochs/0000000000000001" not in scene.keys(""), "nothing more was found of it"
    await volume.check()


async def test_who_was_rejected_says_so_and_stops(scene: Scene, node: Node) -> None:
    """S1.7: a plan is acknowledged between a fold's number and its grant."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(40)
    await volume.forget()
    await volume.write(40)
    gate = scene.store.add(Rule(op="create", key="logs/*/t/*/deadlist", gate=anyio.Event()))
    told = list[str]()

    async def fold() -> None:
        with pytest.raises(Conflict) as error:
            await volume.forget()
        told.append(str(error.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fold)
        await gate.reached.wait()
        assert (await node.collector.collect(log)).stage is Stage.WAITING
        assert gate.gate is not None
        gate.gate.set()
    assert "rejected" in told[0]
    await volume.check()
    assert await node.folder.fold(volume.vid) is not None
    scene.now_ms += INTERVAL_MS
    await node.collector.collect(log)
    await volume.check()


async def test_a_volume_that_moved_after_a_fold_holds_its_old_log_back_no_longer_than_it_must(scene: Scene) -> None:
    async with scene.node("main") as node:
        volume = await Filled.born(node)
        await volume.write(40)
        await volume.forget()
        await node.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to="private"))
        for _ in range(2):
            await volume.write(1)
            await volume.forget()
        for log in (str(volume.vid), "main"):
            await collected(scene, node, log)
            await volume.check()
        assert len(scene.keys("logs/main/entries/")) < 10
    async with scene.node() as fresh:
        await volume.check(fresh)


async def test_a_fold_that_was_elsewhere_while_a_plan_was_made_is_collected_when_it_is_back(scene: Scene) -> None:
    """Neither log's plan saw it: in one the volume was closed, the other was not looked at while it was there."""
    async with scene.node("main") as node:
        volume = await Filled.born(node)
        log = str(volume.vid)
        await node.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to="private"))
        await volume.write(40)
        await volume.write(3, apart=True)
        fragments = scene.keys(f"logs/{log}/t/")
        await volume.write(70)
        await node.collector.collect(log)
        scene.now_ms += INTERVAL_MS
        await node.collector.collect(log)
        await volume.forget()
        await node.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to="main"))
        await collected(scene, node, log)
        assert set(fragments) <= set(scene.keys(f"logs/{log}/t/"))
        await node.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to="private"))
        await volume.write(1)
        await collected(scene, node, log)
        assert not set(fragments) & set(scene.keys(f"logs/{log}/t/"))
        await volume.check()


async def test_what_a_pin_and_a_fork_hold_stays(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    log, seen = str(volume.vid), dict[int, dict[int, bytes]]()
    for _ in range(4):
        await volume.write(20)
        seen[volume.head] = dict(volume.pages)
    await node.ask(PIN, PinRequest(volume.vid.raw, lsn=20, pin=PinId.new().raw, seconds=0.0))
    child = VolumeId.new()
    await node.ask(FORK, ForkRequest(volume.vid.raw, child=child.raw, lsn=60))
    await volume.forget()
    await collected(scene, node, log)
    async with scene.node() as fresh:
        for each in (node, fresh):
            await volume.check(each)
            assert await pages_at(each, volume.vid, 20) == seen[20]
            assert await pages_at(each, child) == seen[60]


@pytest.mark.parametrize("apart", [False, True])
async def test_a_reader_without_a_pin_finds_elsewhere_what_was_deleted_under_it(
    scene: Scene, node: Node, apart: bool
) -> None:
    """S0.36: it knows where its pages lay, sleeps, and meanwhile they were folded and what they lay in is gone."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(60, apart=apart)
    await node.ask(PIN, PinRequest(volume.vid.raw, lsn=volume.head, pin=PinId.new().raw, seconds=0.0))
    lsn, seen = volume.head, dict(volume.pages)
    read = dict[int, bytes]()
    async with scene.node() as reader:
        await volume.check(reader)

    async with scene.node() as reader, anyio.create_task_group() as tasks:

        async def slow() -> None:
            read.update(await pages_at(reader, volume.vid, lsn))

        await reader.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw))
        where = f"logs/{log}/t/*" if apart else f"logs/{log}/entries/*"
        asleep = scene.store.add(Rule(op="get", key=where, gate=anyio.Event(), nth=3))
        tasks.start_soon(slow)
        await asleep.reached.wait()
        stood = set(scene.keys(""))
        for _ in range(3):
            await volume.write(60)
            await volume.forget()
            await node.collector.collect(log)
            scene.now_ms += INTERVAL_MS
            await node.collector.collect(log)
        assert len(stood - set(scene.keys(""))) >= 60
        assert asleep.gate is not None
        asleep.gate.set()
    assert read == seen


async def test_a_read_beside_a_fold_has_all_its_pages(scene: Scene, node: Node) -> None:
    """S0.36: a page lies where it lay, and by now a region has it, and no more the commit that was planned for."""
    volume = await Filled.born(node)
    await volume.write(40, apart=True)
    lsn, seen = volume.head, dict(volume.pages)
    await node.ask(PIN, PinRequest(volume.vid.raw, lsn=lsn, pin=PinId.new().raw, seconds=0.0))
    await volume.write(1)
    read = dict[int, bytes]()
    async with scene.node() as reader, anyio.create_task_group() as tasks:

        async def slow() -> None:
            read.update(await pages_at(reader, volume.vid, lsn))

        await reader.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw))
        asleep = scene.store.add(Rule(op="get", key=f"logs/{volume.vid}/t/*", gate=anyio.Event(), nth=3))
        tasks.start_soon(slow)
        await asleep.reached.wait()
        await volume.forget()
        await volume.check(reader)
        assert (await reader.volumes.get(volume.vid)).history.folded_to == volume.head
        assert asleep.gate is not None
        asleep.gate.set()
    assert read == seen


async def test_a_reader_without_a_pin_is_told_that_its_lsn_is_forgotten_and_not_that_it_is_damaged(
    scene: Scene, node: Node
) -> None:
    """S0.36: nobody holds what it reads."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(60)
    lsn = volume.head
    async with scene.node() as reader, anyio.create_task_group() as tasks:

        async def slow() -> None:
            with pytest.raises(Forgotten):
                await pages_at(reader, volume.vid, lsn)

        await reader.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw))
        asleep = scene.store.add(Rule(op="get", key=f"logs/{log}/entries/*", gate=anyio.Event(), nth=3))
        tasks.start_soon(slow)
        await asleep.reached.wait()
        await volume.write(60)
        await volume.forget()
        await node.collector.collect(log)
        scene.now_ms += INTERVAL_MS
        await node.collector.collect(log)
        assert asleep.gate is not None
        asleep.gate.set()


async def test_of_two_collectors_one_plan_counts_and_both_carry_it_out(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(80)
    await volume.forget()
    async with scene.node() as other:

        async def collect(each: Node) -> None:
            with suppress(Conflict):
                await each.collector.collect(log)

        # Each may meet the other's rollup, or its plan, and leave it at that.
        for _ in range(6):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(collect, node)
                tasks.start_soon(collect, other)
            scene.now_ms += INTERVAL_MS
        await volume.check(other)
    await volume.check()
    assert len(scene.keys(f"logs/{log}/entries/")) < 10


async def test_a_plan_that_stands_is_not_passed_over_by_a_collector_that_slept(scene: Scene, node: Node) -> None:
    """It saw that none stood, and fell asleep; what the other's plan takes out would stay for ever."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(80)
    await volume.forget()
    async with scene.node() as other, anyio.create_task_group() as tasks:

        async def asleep() -> None:
            with pytest.raises(Conflict, match="was acknowledged meanwhile"):
                await other.collector.collect(log)

        asked = scene.store.add(Rule(op="create", key=f"logs/{log}/entries/*", gate=anyio.Event()))
        tasks.start_soon(asleep)
        await asked.reached.wait()
        assert (await node.collector.collect(log)).stage is Stage.WAITING
        await volume.write(1)
        assert asked.gate is not None
        asked.gate.set()
    scene.now_ms += INTERVAL_MS
    assert (await node.collector.collect(log)).stage is Stage.DONE
    assert len(scene.keys(f"logs/{log}/entries/")) < 10


async def test_a_rollup_that_was_collected_and_comes_again_is_collected_again(scene: Scene, node: Node) -> None:
    """Whoever was to write it fell asleep over it: what it leads to is gone."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(80)
    await volume.forget()
    assert (await node.collector.collect(log)).stage is Stage.WAITING
    oldest = scene.keys(f"logs/{log}/rollups/")[0]
    data = memory(scene.store).objects[oldest]
    scene.now_ms += INTERVAL_MS
    await node.collector.collect(log)
    await volume.write(80)
    await volume.forget()
    await collected(scene, node, log)
    assert oldest not in scene.keys(f"logs/{log}/rollups/")
    await scene.store.create(oldest, data)
    async with scene.node() as other:
        volume.node = other
        await volume.write(80)
        await volume.forget()
        await collected(scene, other, log)
        assert oldest not in scene.keys(f"logs/{log}/rollups/")
        await volume.check()


async def test_what_is_left_of_a_plan_goes_with_the_next(scene: Scene, node: Node) -> None:
    """Whoever was cut off behind the plan leaves what says when it was due; one that lost leaves a plan."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(80)
    await volume.forget()
    await node.collector.collect(log)
    (plan, due) = scene.keys(f"logs/{log}/gc/")[::-1]
    kept = memory(scene.store).objects[due], memory(scene.store).objects[plan]
    scene.now_ms += INTERVAL_MS
    await node.collector.collect(log)
    assert not scene.keys(f"logs/{log}/gc/")
    await scene.store.create(due, kept[0])
    lost = plan_key(log, plan_name(1))
    await scene.store.create(lost, kept[1])
    await node.collector.collect(log)
    assert not {due, lost} & set(scene.keys(f"logs/{log}/gc/"))


WRONG = ("an entry that is needed", "a slot that no rollup covers", "a newer rollup", "a granted fold")


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_plan_is_refused_and_nothing_goes(
    scene: Scene, node: Node, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(40)
    await volume.forget()
    await volume.write(40)
    right = Planner.plan

    async def wrong(self: Planner, *args: Any, **kw: Any) -> GarbagePlan | None:
        plan = await right(self, *args, **kw)
        assert plan is not None
        match what:
            case "an entry that is needed":
                return msgspec.structs.replace(plan, slot=plan.slot + 10)
            case "a slot that no rollup covers":
                return msgspec.structs.replace(plan, slot=plan.slot + 1000)
            case "a newer rollup":
                return msgspec.structs.replace(plan, rollup=f"{int(plan.rollup[:16], 16) + 9:016x}{plan.rollup[16:]}")
            case _:
                return msgspec.structs.replace(plan, rejected=plan.settled)

    monkeypatch.setattr(Planner, "plan", wrong)
    with pytest.raises(Refused, match="nothing of it is deleted"):
        await node.collector.collect(log)
    assert not scene.keys(f"logs/{log}/gc/")
    monkeypatch.undo()
    scene.now_ms += INTERVAL_MS
    await volume.check()
    await collected(scene, node, log)
    await volume.check()


@pytest.mark.parametrize("what", ["segments", "nodes", "entries"])
async def test_a_deadlist_that_names_what_is_needed_is_refused(scene: Scene, node: Node, what: str) -> None:
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(40)
    await volume.forget()
    (checkpoint,) = [key.removesuffix("/deadlist") for key in scene.keys(f"logs/{log}/t/") if key.endswith("deadlist")]
    written = [key for key in scene.keys(f"{checkpoint}/") if key != deadlist_key(checkpoint)]
    nodes = [key for key in written if len(key.rpartition("/")[2]) == DIGEST_DIGITS]
    segments = [key for key in written if key not in nodes]
    objects = {"segments": segments, "nodes": nodes, "entries": scene.keys(f"logs/{log}/entries/")}[what]
    assert objects
    lie = Deadlist(vid=volume.vid.raw, checkpoint=checkpoint, objects=tuple(objects))
    memory(scene.store).objects[deadlist_key(checkpoint)] = seal_deadlist(lie)[1]
    stood = scene.keys("")
    with pytest.raises(Refused):
        await node.collector.collect(log)
    assert set(stood) <= set(scene.keys(""))
    await volume.check()


async def test_what_was_folded_wrongly_is_not_deleted_by_its_sums(
    scene: Scene, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.24: what was folded is kept or superseded."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(40)
    build = CheckpointBuilder.build

    async def forgetful(self: CheckpointBuilder, *args: Any, **named: Any) -> Next:
        return (await build(self, *args, **named))._replace(superseded=Setsum())

    monkeypatch.setattr(CheckpointBuilder, "build", forgetful)
    await volume.forget()
    monkeypatch.undo()
    with pytest.raises(Refused, match="neither kept nor superseded"):
        await node.collector.collect(log)
    assert not scene.keys(f"logs/{log}/gc/")
    await volume.check()


async def test_a_verifier_without_an_answer_calls_no_plan_wrong(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(20)
    await volume.forget()
    await roll_up(node, str(volume.vid))
    plan = await node.collector.planned(str(volume.vid))
    assert plan is not None
    away = scene.store.add(Rule(op="get", key=f"volumes/{volume.vid}/birth", times=None, before=Unavailable("away")))
    with pytest.raises(Unavailable):
        await node.collector.check(plan)
    assert away.fired
    scene.store.rules.clear()
    await node.collector.check(plan)


async def test_a_plan_that_another_was_quicker_than_is_not_wrong_either(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(20)
    await volume.forget()
    await roll_up(node, str(volume.vid))
    plan = await node.collector.planned(str(volume.vid))
    assert plan is not None
    assert (await node.collector.collect(str(volume.vid))).stage is Stage.WAITING
    with pytest.raises(Conflict, match="was acknowledged meanwhile: make another") as error:
        await node.collector.check(msgspec.structs.replace(plan, number=plan.number + 5))
    assert not isinstance(error.value, Refused)
