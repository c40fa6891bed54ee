"""Logs that are over: of a removed volume's own log one object stays, whatever that was cut off in, whoever slept
meanwhile writes nothing that counts, and nobody who lists logs pays for it."""

from __future__ import annotations

import pytest

from budwood.server.log.boundary import OVER, LogIsOver, boundary_key
from budwood.server.log.listing import Over, check_log, next_log
from budwood.server.node import Node
from budwood.server.store.retrying import PATIENT
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.server.upkeep.rounds import Rounds
from budwood.server.upkeep.upkeep import DAY_SECONDS, Extent
from budwood.testing.stores import Rule
from budwood.volume.calls import (
    CHANGE_NAME,
    MOVE_LOG,
    PIN,
    REMOVE,
    SNAPSHOT,
    MoveRequest,
    PinRequest,
    SnapshotRequest,
    VolumeRequest,
)
from budwood.volume.entry import entry_key
from budwood.volume.errors import Corrupt, NotFound, Unauthorized
from budwood.volume.ids import PinId, VolumeId
from budwood.volume.wire import NameRequest

from ..damage import scrubbed
from ..reread import reread
from ..rolling import memory
from .test_rounds import Told
from .test_upkeep import WAIT, Filled, Scene

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def last_of(vid: VolumeId) -> str:
    return boundary_key(str(vid), OVER)


def left_of(scene: Scene, vid: VolumeId) -> list[str]:
    return [key for key in scene.keys("") if str(vid) in key]


async def remove(volume: Filled) -> None:
    await volume.node.ask(REMOVE, VolumeRequest(volume.vid.raw))


async def turn(scene: Scene, node: Node, vid: VolumeId) -> None:
    assert not (await node.upkeep.tend(str(vid), Extent.ALL)).failures
    scene.clock.advance(WAIT)


async def until_over(scene: Scene, node: Node, vid: VolumeId) -> None:
    """All of it is there yet, but for what plans have taken out."""
    for _ in range(8):
        assert not (await node.upkeep.tend(str(vid), Extent.ALL)).failures
        if last_of(vid) in scene.keys(""):
            return
        scene.clock.advance(WAIT)
    pytest.fail("the log isn't over")


async def is_right(scene: Scene) -> None:
    objects = dict(memory(scene.store).objects)
    assert not await scrubbed(objects)
    liveness = (await reread(objects)).liveness()
    assert not liveness.garbage
    assert not liveness.leftovers


@pytest.mark.parametrize("commits", [0, 1, 40])
@pytest.mark.parametrize("moves", [False, True])
async def test_one_object_stays(scene: Scene, *, commits: int, moves: bool) -> None:
    """Of a volume that was only born, too, and of one that moved into a node's log and was removed there."""
    async with scene.node(upkeep=False) as node, scene.node("main", upkeep=False) as main:
        volume, other = await Filled.born(node), await Filled.born(node)
        await other.write(3)
        await volume.write(commits)
        if moves:
            await main.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to="main"))
            volume.node = main
            await volume.write(2)
        await remove(volume)
        for _ in range(8):
            assert not (await main.upkeep.tend("main", Extent.ALL)).failures
            await turn(scene, node, volume.vid)
        assert left_of(scene, volume.vid) == [last_of(volume.vid)]
        assert len(memory(scene.store).objects[last_of(volume.vid)]) < 128
        await is_right(scene)
        await turn(scene, node, other.vid)
        await other.check()


@pytest.mark.parametrize("what", ["lives", "is held", "is held, missing", "has a fork", "is missing"])
async def test_no_log_is_over_that_somebody_needs(scene: Scene, what: str) -> None:
    async with scene.node(upkeep=False) as node:
        volume = await Filled.born(node)
        await volume.write(20)
        child = await volume.forked() if what == "has a fork" else None
        if what.startswith("is held"):
            await node.ask(PIN, PinRequest(volume.vid.raw, lsn=10, pin=PinId.new().raw, seconds=10 * DAY_SECONDS))
        if what not in {"lives", "is missing"}:
            await remove(volume)
        if what.endswith(", missing"):
            for _ in range(6):
                await turn(scene, node, volume.vid)
        if what.endswith("missing"):
            memory(scene.store).objects.pop(f"volumes/{volume.vid}/birth")
        await node.ask(CHANGE_NAME, NameRequest(op="bind", name="here", target=volume.vid.raw))
        for _ in range(6):
            # With that of the names, which have no birth.
            await Rounds(node.logs, node.upkeep, Told(), Extent.ALL).once()
            scene.clock.advance(WAIT)
        assert not [key for key in scene.keys("logs/") if key == boundary_key(key.split("/")[1], OVER)]
        if child is not None:
            await child.write(1)
            await child.check()


async def test_whoever_slept_writes_nothing_that_counts(scene: Scene) -> None:
    async with scene.node(upkeep=False) as sleeper, scene.node(upkeep=False) as node:
        volume = await Filled.born(sleeper)
        await volume.write(3)
        await node.ask(REMOVE, VolumeRequest(volume.vid.raw))
        await until_over(scene, node, volume.vid)
        scene.clock.advance(WAIT)
        await turn(scene, node, volume.vid)
        assert left_of(scene, volume.vid) == [last_of(volume.vid)]
        for _ in range(2):
            with pytest.raises(NotFound):
                await volume.write(1)
            with pytest.raises(NotFound, match="there is no volume"):
                await sleeper.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw))
        await turn(scene, node, volume.vid)
        assert left_of(scene, volume.vid) == [last_of(volume.vid)]


async def test_what_is_written_behind_the_last_boundary_goes_with_the_next_round(scene: Scene) -> None:
    async with scene.node(upkeep=False) as node:
        volume, told = await Filled.born(node), Told()
        await volume.write(3)
        entry = memory(scene.store).objects[entry_key(str(volume.vid), 2)]
        await remove(volume)
        await until_over(scene, node, volume.vid)
        scene.clock.advance(WAIT)
        await turn(scene, node, volume.vid)
        await scene.store.create(entry_key(str(volume.vid), 2), entry)
        await check_log(scene.store, str(volume.vid), PATIENT)
        with pytest.raises(LogIsOver, match="was removed"):
            await node.logs.get(str(volume.vid))
        await Rounds(node.logs, node.upkeep, told, Extent.ALL).once()
        assert (told.objects, told.errors) == (1, [])
        assert left_of(scene, volume.vid) == [last_of(volume.vid)]
        with pytest.raises(NotFound, match="no log"):
            await check_log(scene.store, str(volume.vid), PATIENT)


async def test_whoever_lists_logs_passes_over_many_that_are_over_at_once(scene: Scene) -> None:
    async with scene.node("main", upkeep=False) as main, scene.node(upkeep=False) as node:
        vids = sorted([(await Filled.born(node)).vid for _ in range(40)])
        for vid in vids:
            await node.ask(REMOVE, VolumeRequest(vid.raw))
            await until_over(scene, node, vid)
        await main.ask(SNAPSHOT, SnapshotRequest((await Filled.born(main)).vid.raw))
        assert await next_log(scene.store, "", PATIENT, over=Over.CLEARED_PASSED) == str(vids[0])
        scene.clock.advance(WAIT)
        for vid in vids:
            await turn(scene, node, vid)
        for over in (Over.PASSED, Over.CLEARED_PASSED):
            scene.store.forget()
            assert await next_log(scene.store, "", PATIENT, over=over) == "main"
            assert scene.store.count() <= 5
        assert await next_log(scene.store, "", PATIENT, over=Over.COUNTED) == str(vids[0])
        await scene.store.create(entry_key(str(vids[23]), 5), b"by somebody who slept")
        assert await next_log(scene.store, "", PATIENT, over=Over.CLEARED_PASSED) == str(vids[23])
        assert await next_log(scene.store, "", PATIENT) == "main"
        await turn(scene, node, vids[23])
        await is_right(scene)


async def test_a_store_that_fails_leaves_the_rest_for_the_next_turn(scene: Scene) -> None:
    async with scene.node(upkeep=False) as node:
        volume = await Filled.born(node)
        await volume.write(3)
        await remove(volume)
        await until_over(scene, node, volume.vid)
        scene.clock.advance(WAIT)
        scene.store.add(Rule(op="delete", nth=3, times=None, before=Unauthorized("no more")))
        with pytest.raises(Unauthorized):
            await node.upkeep.tend(str(volume.vid), Extent.ALL)
        assert len(left_of(scene, volume.vid)) > 1
        assert not await scrubbed(dict(memory(scene.store).objects))
        scene.store.rules.clear()
    async with scene.node(upkeep=False) as node:
        await turn(scene, node, volume.vid)
        assert left_of(scene, volume.vid) == [last_of(volume.vid)]


async def test_nothing_goes_before_the_interval_is_over(scene: Scene) -> None:
    async with scene.node(upkeep=False) as node:
        volume = await Filled.born(node)
        await volume.write(3)
        await remove(volume)
        await until_over(scene, node, volume.vid)
        left = set(left_of(scene, volume.vid))
    async with scene.node(upkeep=False) as node:
        scene.clock.advance(GC_INTERVAL_SECONDS)
        assert (await node.upkeep.tend(str(volume.vid), Extent.ALL)).due_ms > scene.now_ms()
        assert set(left_of(scene, volume.vid)) == left


async def test_a_boundary_that_is_another_s_lets_nothing_go(scene: Scene) -> None:
    """Whoever puts a store back together may name an object wrongly."""
    async with scene.node(upkeep=False) as node:
        volume, other = await Filled.born(node), await Filled.born(node)
        await volume.write(3)
        await other.write(3)
        await remove(volume)
        await until_over(scene, node, volume.vid)
        await scene.store.create(last_of(other.vid), memory(scene.store).objects[last_of(volume.vid)])
        scene.clock.advance(WAIT)
        before = left_of(scene, other.vid)
    async with scene.node(upkeep=False) as node:
        with pytest.raises(Corrupt, match="it says that it is boundary"):
            await node.upkeep.tend(str(other.vid), Extent.ALL)
        with pytest.raises(Corrupt, match="it says that it is boundary"):
            await node.collector.over_logs.clear(str(other.vid))
        assert left_of(scene, other.vid) == before
        assert last_of(other.vid) in await scrubbed(dict(memory(scene.store).objects))
        await memory(scene.store).delete(last_of(other.vid))
        other.node = node
        await other.check()


async def test_a_node_s_own_upkeep_ends_the_logs_that_it_looks_after(scene: Scene) -> None:
    async with scene.node() as node:
        volume, other = await Filled.born(node), await Filled.born(node)
        await volume.write(40)
        await other.write(3)
        await remove(volume)
        await scene.until(lambda: left_of(scene, volume.vid) == [last_of(volume.vid)], step=WAIT)
        await other.check()
