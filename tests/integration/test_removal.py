"""A volume that is removed: nobody commits to it, forks or reads it any more, its forks live on, and all that only it
had is collected, its birth and its pins with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from budwood.server.log.boundary import OVER, LogIsOver, boundary_key
from budwood.server.log.listing import next_log
from budwood.server.metastore.births import birth_key
from budwood.server.node import Node
from budwood.server.store.retrying import PATIENT
from budwood.server.upkeep.collector import Stage
from budwood.server.upkeep.ended_forks import EndedForks
from budwood.server.upkeep.garbage_check import Refused
from budwood.server.upkeep.upkeep import Extent
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    ADVANCE,
    FORK,
    MOVE_LOG,
    OUTCOME,
    PIN,
    PINS,
    PULL_CHANGES,
    PULL_COMMITS,
    REMOVE,
    RETAIN,
    SNAPSHOT,
    ForkRequest,
    MoveRequest,
    OutcomeRequest,
    PinRequest,
    RangeRequest,
    RetainRequest,
    SinceRequest,
    SnapshotRequest,
    VolumeRequest,
)
from budwood.volume.errors import Forgotten, NotFound
from budwood.volume.ids import PinId, VolumeId
from budwood.volume.pins import PinEvent
from budwood.volume.retention_policy import RetentionPolicy

from ..damage import scrubbed
from ..reread import reread
from ..rolling import memory, roll_up
from .test_collection import ANN, INTERVAL_MS, Filled, Scene

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


@pytest.fixture
def scene() -> Scene:
    return Scene(RiggedStore(MemoryStore()))


@pytest.fixture(params=["main", None], ids=["shared", "private"])
async def node(scene: Scene, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    async with scene.node(request.param) as node:
        yield node


async def remove(volume: Filled) -> None:
    await volume.node.ask(REMOVE, VolumeRequest(volume.vid.raw))


def log_of(volume: Filled) -> str:
    return volume.node.name or str(volume.vid)


async def tend(scene: Scene, node: Node, *logs: str) -> None:
    """Until there is nothing more to do."""
    for log in logs:
        for _ in range(4):
            turn = await node.upkeep.tend(log, Extent.ALL)
            assert not turn.failures
            scene.now_ms += INTERVAL_MS
        with suppress(LogIsOver):
            while (await node.collector.collect(log)).stage is not Stage.NOTHING:
                scene.now_ms += INTERVAL_MS


async def check(scene: Scene) -> None:
    """By the second reader."""
    liveness = (await reread(dict(memory(scene.store).objects))).liveness()
    assert not liveness.garbage
    assert not liveness.leftovers


async def test_nobody_reads_or_changes_it_any_more(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(20)
    await remove(volume)
    await remove(volume)
    vid = volume.vid.raw
    with pytest.raises(NotFound, match="was removed"):
        await volume.write(1)
    for asked in (
        node.ask(SNAPSHOT, SnapshotRequest(vid)),
        node.ask(SNAPSHOT, SnapshotRequest(vid, lsn=3)),
        node.ask(PULL_CHANGES, RangeRequest(vid, after=3)),
        node.ask(PULL_COMMITS, RangeRequest(vid, after=3)),
        node.ask(FORK, ForkRequest(vid, child=VolumeId.new().raw, lsn=20)),
        node.ask(PIN, PinRequest(vid, lsn=20, pin=PinId.new().raw, seconds=60)),
        node.ask(RETAIN, RetainRequest(vid, policy=RetentionPolicy(all_ms=1000))),
        node.ask(OUTCOME, OutcomeRequest(vid, client=ANN.raw, token=bytes(32), base=20)),
    ):
        with pytest.raises(NotFound, match="was removed"):
            await asked
    async with scene.node() as fresh:
        with pytest.raises(NotFound, match="was removed"):
            await fresh.ask(SNAPSHOT, SnapshotRequest(vid))


async def test_all_of_it_goes(scene: Scene, node: Node) -> None:
    other = await Filled.born(node)
    await other.write(5)
    before = {key for key in scene.keys("") if "/entries/" not in key and "/epochs/" not in key}
    volumes = [await Filled.born(node) for _ in range(5)]
    for volume in volumes:
        await volume.write(30)
        await volume.write(5, apart=True)
        await node.ask(PIN, PinRequest(volume.vid.raw, lsn=12, pin=PinId.new().raw, seconds=0.0))
        await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=20))
    await node.folder.fold(volumes[0].vid)
    await volumes[0].write(5, apart=True)
    for volume in volumes:
        await remove(volume)
        await node.folder.fold(volume.vid)
    garbage = (await reread(dict(memory(scene.store).objects))).liveness().garbage
    assert {f"volumes/{volume.vid}/birth" for volume in volumes} <= garbage.keys()
    await tend(scene, node, *{log_of(volume) for volume in volumes})
    await check(scene)
    for volume in volumes:
        assert not scene.keys(f"volumes/{volume.vid}/")
        with pytest.raises(NotFound):
            await node.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw))
        over = [] if node.name else [boundary_key(log_of(volume), OVER)]
        assert scene.keys(f"logs/{volume.vid}/") == over
    assert before <= set(scene.keys(""))
    assert not [key for key in scene.keys("logs/") if "/t/" in key]
    await other.check()
    async with scene.node() as fresh:
        await other.check(fresh)
        for volume in volumes:
            with pytest.raises(NotFound):
                await fresh.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw))


@pytest.mark.parametrize("name", ["main", None])
async def test_of_what_is_gone_there_is_nothing_to_look_after(scene: Scene, name: str | None) -> None:
    """And nothing to complain of: whoever came later did at each turn, and looked no further in that log."""
    async with scene.node(name) as node:
        volumes = [await Filled.born(node) for _ in range(3)]
        for volume in volumes:
            await volume.write(20)
        await remove(volumes[0])
        await remove(volumes[1])
        logs = {log_of(each) for each in volumes}
        await tend(scene, node, *logs)
    async with scene.node(name) as fresh:
        for log in logs:
            if name or log == log_of(volumes[2]):
                assert not await fresh.upkeep.has_work(log, Extent.FREED)
            assert not (await fresh.upkeep.tend(log, Extent.ALL)).failures
        assert await next_log(scene.store, "", PATIENT) == (name or str(volumes[2].vid))
        await fresh.ask(ADVANCE, SinceRequest(volumes[2].vid.raw, since=20))
        assert await fresh.upkeep.has_work(log_of(volumes[2]), Extent.ALL)


async def test_what_others_hold_back_goes_with_them(scene: Scene, node: Node) -> None:
    """In a shared log: entries that have pages of the removed volume too are deleted when those of others go."""
    other, volume = await Filled.born(node), await Filled.born(node)
    for _ in range(10):
        await other.write(1)
        await volume.write(1)
    await remove(volume)
    logs = {log_of(volume), log_of(other)}
    await tend(scene, node, *logs)
    assert not scene.keys(f"volumes/{volume.vid}/")
    *entries, _anchor = scene.keys(f"logs/{log_of(other)}/entries/")
    await other.forget()
    await tend(scene, node, *logs)
    assert not set(scene.keys(f"logs/{log_of(other)}/entries/")) & set(entries[-8:])
    await check(scene)
    await other.check()


@pytest.mark.parametrize("rolled", [False, True])
async def test_a_birth_that_only_went_missing_keeps_what_there_is(scene: Scene, *, rolled: bool) -> None:
    """Nobody deletes what might still be put together."""
    async with scene.node("main") as node:
        volume, other = await Filled.born(node), await Filled.born(node)
        await volume.write(5)
        if rolled:
            await volume.forget()
            await roll_up(node, "main")
        entries = scene.keys("logs/main/entries/")
        await memory(scene.store).delete(f"volumes/{volume.vid}/birth")
        await other.write(5)
        await other.forget()
        if rolled:
            with pytest.raises(Refused, match=f"there is no volume {volume.vid}"):
                await node.collector.collect("main")
        else:
            while (await node.collector.collect("main")).stage is not Stage.NOTHING:
                scene.now_ms += INTERVAL_MS
        assert set(entries[:5]) <= set(scene.keys("logs/main/entries/"))


async def test_its_forks_live_on(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(20)
    child = Filled(node, VolumeId.new(), dict(volume.pages), volume.head)
    await node.ask(FORK, ForkRequest(volume.vid.raw, child=child.vid.raw, lsn=volume.head))
    await volume.write(20)
    size = sum(map(len, memory(scene.store).objects.values()))
    await remove(volume)
    await child.write(3)
    await tend(scene, node, *{log_of(volume), log_of(child)})
    await check(scene)
    await child.check()
    assert sum(map(len, memory(scene.store).objects.values())) < size
    assert scene.keys(f"volumes/{volume.vid}/birth")
    async with scene.node() as fresh:
        await child.check(fresh)
        with pytest.raises(NotFound, match="was removed"):
            await fresh.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw))


@pytest.mark.parametrize("parents", ["shared", "shared and written", "forgotten", "both"])
async def test_a_fork_s_fork_lives_on_with_what_it_shares(scene: Scene, node: Node, *, parents: str) -> None:
    """What a pin alone holds for it, in a volume that it wasn't forked from, or below what that remembers."""
    volume = await Filled.born(node)
    await volume.write(4)
    early = Filled(node, VolumeId.new(), dict(volume.pages), volume.head)
    await volume.write(6)
    parent = volume
    if parents != "forgotten":
        parent = Filled(node, VolumeId.new(), dict(volume.pages), volume.head)
        await node.ask(FORK, ForkRequest(volume.vid.raw, child=parent.vid.raw, lsn=volume.head))
    if parents == "shared and written":
        await parent.write(5)
    elif parents != "shared":
        await node.ask(PIN, PinRequest(volume.vid.raw, lsn=early.head, pin=PinId.new().raw, seconds=0))
        await volume.write(1)
        await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=volume.head))
    await node.ask(FORK, ForkRequest(parent.vid.raw, child=early.vid.raw, lsn=early.head))
    await early.write(1)
    for removed in {volume.vid: volume, parent.vid: parent}.values():
        await remove(removed)
        await tend(scene, node, *{log_of(volume), log_of(parent), log_of(early)})
        garbage = (await reread(dict(memory(scene.store).objects))).liveness().garbage
        assert set(garbage.values()) <= {"what a pin has been"}, "which is looked for once a day"
        await early.check()
        assert not await scrubbed(dict(memory(scene.store).objects))
    async with scene.node() as fresh:
        await early.check(fresh)


@pytest.mark.parametrize("commits", [0, 3])
@pytest.mark.parametrize("first", ["fork", "parent"])
async def test_what_a_fork_held_goes_with_it(scene: Scene, node: Node, *, commits: int, first: str) -> None:
    """Branches that come and go leave nothing of what they were made from."""
    volume = await Filled.born(node)
    await volume.write(20)
    child = Filled(node, VolumeId.new(), dict(volume.pages), volume.head)
    grandchild = Filled(node, VolumeId.new(), dict(volume.pages), volume.head)
    await node.ask(FORK, ForkRequest(volume.vid.raw, child=child.vid.raw, lsn=20))
    await child.write(commits)
    await node.ask(FORK, ForkRequest(child.vid.raw, child=grandchild.vid.raw, lsn=20))
    await volume.write(20)
    if first == "parent":
        await remove(volume)
    else:
        await volume.forget()
    logs = {log_of(volume), log_of(child), log_of(grandchild)}
    await remove(child)
    await tend(scene, node, *logs)
    await grandchild.check()
    assert await held_by(node, volume) == {child.vid.raw, grandchild.vid.raw}
    await remove(grandchild)
    # Each goes once those that were made from it have gone.
    await tend(scene, node, *logs, *logs, *logs)
    if first == "parent":
        assert not scene.keys(f"volumes/{volume.vid}/")
    else:
        assert await held_by(node, volume) == set()
        await volume.check()
    assert not await scrubbed(dict(memory(scene.store).objects))
    garbage = (await reread(dict(memory(scene.store).objects))).liveness().garbage
    assert set(garbage.values()) <= {"what a pin has been"}
    if first == "fork":
        await volume.write(1)
        await roll_up(node, log_of(volume))
        assert not list((await node.volumes.get(volume.vid)).state.forks.changed()), "the rollup says so"


async def test_a_fork_whose_birth_is_only_missing_has_not_ended(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(20)
    child = VolumeId.new()
    await node.ask(FORK, ForkRequest(volume.vid.raw, child=child.raw, lsn=20))
    await volume.write(20)
    birth = memory(scene.store).objects.pop(birth_key(child))
    await volume.forget()
    await tend(scene, node, log_of(volume))
    assert await held_by(node, volume) == {child.raw}
    memory(scene.store).objects[birth_key(child)] = birth
    async with scene.node() as fresh:
        assert (await fresh.ask(SNAPSHOT, SnapshotRequest(child.raw))).lsn == 20


async def test_a_fold_is_not_believed_that_a_fork_has_ended(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene.node("main") as node:
        volume = await Filled.born(node)
        await volume.write(20)
        child = Filled(node, VolumeId.new(), dict(volume.pages), 20)
        await node.ask(FORK, ForkRequest(volume.vid.raw, child=child.vid.raw, lsn=20))
        await volume.write(20)

        async def ended(*_: object) -> frozenset[bytes]:
            return frozenset([child.vid.raw])

        with monkeypatch.context() as patch:
            patch.setattr(EndedForks, "of", ended)
            await volume.forget()
        await roll_up(node, "main")
        with pytest.raises(Refused, match=f"fork {child.vid} is there"):
            await node.collector.collect("main")


async def test_a_fork_that_ended_elsewhere_has_ended_here(scene: Scene) -> None:
    """While its parent was in another log."""
    async with scene.node("main") as node:
        volume, other = await Filled.born(node), await Filled.born(node)
        await volume.write(20)
        for _ in range(2):
            await node.ask(FORK, ForkRequest(volume.vid.raw, child=VolumeId.new().raw, lsn=volume.head))
            await volume.write(5)
        ended, stays = sorted(await held_by(node, volume))
        await roll_up(node, "main")
        await node.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to="private"))
        await node.ask(REMOVE, VolumeRequest(ended))
        await tend(scene, node, "main")
        await volume.forget()
        assert await held_by(node, volume) == {stays}
        await node.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to="main"))
        await other.write(3)
        await roll_up(node, "main")
    async with scene.node("main") as fresh:
        assert await held_by(fresh, volume) == {stays}
        await volume.check(fresh)
    assert not await scrubbed(dict(memory(scene.store).objects))
    await reread(dict(memory(scene.store).objects))


async def held_by(node: Node, volume: Filled) -> set[bytes]:
    """The forks that it holds something for."""
    pins = await node.ask(PINS, VolumeRequest(volume.vid.raw))
    return {VolumeId.parse(pin.owner).raw for pin in pins.pins if pin.kind == "fork"}


async def test_what_was_pinned_for_ever_stays_where_a_fork_shares_it(scene: Scene, node: Node) -> None:
    """Nobody can tell for whom it was pinned."""
    volume = await Filled.born(node)
    await volume.write(4)
    shared = dict(volume.pages)
    await volume.write(6)
    child = VolumeId.new()
    await node.ask(FORK, ForkRequest(volume.vid.raw, child=child.raw, lsn=7))
    await node.ask(PIN, PinRequest(child.raw, lsn=4, label="by the fork", seconds=0))
    await node.ask(PIN, PinRequest(volume.vid.raw, lsn=9, label="its own", seconds=0))
    await remove(volume)
    await tend(scene, node, *{log_of(volume), str(child)})
    assert [pin.lsn for pin in await node.retention.pins.all(volume.vid) if pin.holds] == [4]
    assert await pages_at(node, child, lsn=4) == shared
    with pytest.raises((NotFound, Forgotten)):
        await pages_at(node, volume.vid, lsn=9)
    await node.ask(REMOVE, VolumeRequest(child.raw))
    for _ in range(3):
        await node.retainer.enforce(volume.vid)
        await tend(scene, node, *{log_of(volume), node.name or str(child)})
        if not scene.keys(f"volumes/{volume.vid}/"):
            break
    assert not scene.keys(f"volumes/{volume.vid}/")


async def test_a_fork_that_nothing_holds_its_beginning_for_is_found(scene: Scene, node: Node) -> None:
    """As it was left, where earlier releases removed what it shares with the volume that it was forked from."""
    volume = await Filled.born(node)
    await volume.write(10)
    parent, child = VolumeId.new(), VolumeId.new()
    await node.ask(FORK, ForkRequest(volume.vid.raw, child=parent.raw, lsn=10))
    await node.ask(FORK, ForkRequest(parent.raw, child=child.raw, lsn=4))
    assert not await scrubbed(dict(memory(scene.store).objects))
    (pin,) = await node.retention.pins.all(volume.vid)
    await node.retention.pins.change(pin, PinEvent.RELEASE)
    (finding,) = (await scrubbed(dict(memory(scene.store).objects))).values()
    assert finding.key == birth_key(child)
    assert finding.what == f"it was forked at LSN 4, which is {volume.vid}'s, and nothing holds it there"


async def test_whoever_holds_a_lease_reads_on_until_it_ends(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(20)
    seconds = 20 * INTERVAL_MS / 1000
    await node.ask(PIN, PinRequest(volume.vid.raw, lsn=20, pin=PinId.new().raw, seconds=seconds))
    await remove(volume)
    await tend(scene, node, log_of(volume))
    assert await pages_at(node, volume.vid, lsn=20) == volume.pages
    with pytest.raises((NotFound, Forgotten)):
        await pages_at(node, volume.vid, lsn=19)
    await check(scene)
    scene.now_ms += 30 * INTERVAL_MS
    await tend(scene, node, log_of(volume))
    assert not scene.keys(f"volumes/{volume.vid}/")
    await check(scene)
