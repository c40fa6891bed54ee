"""Collections of many volumes, as the second reader sees them: what is live stands, nothing else stays, and every page
reads as it did, from the oldest rollup that must stand and from the newest (docs/formats.md, What is live)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from budwood.server.node import Node
from budwood.server.upkeep.collector import Stage
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    CHANGE_NAME,
    FORK,
    LOOKUP,
    MOVE_LOG,
    PIN,
    UNPIN,
    ForkRequest,
    LookupRequest,
    MoveRequest,
    PinRequest,
    UnpinRequest,
)
from budwood.volume.errors import Forgotten
from budwood.volume.ids import PinId, VolumeId
from budwood.volume.wire import NameRequest

from ..damage import Objects
from ..reread import reread
from ..rolling import memory
from ..second_reader import Damaged, Store, TooNew
from ..second_reader.live import Liveness
from .test_collection import INTERVAL_MS, Filled, Scene

pytestmark = pytest.mark.anyio


@dataclass
class Holdings:
    """Volumes in a shared log and in their own, a fork, a pin, and what each of their LSNs read when it was made."""

    scene: Scene
    node: Node
    shared: Filled
    private: Filled
    moved: Filled
    child: Filled
    kept: Filled
    """Forgets nothing."""
    pin: PinId

    @classmethod
    async def made(cls, scene: Scene, node: Node) -> Holdings:
        shared, private, moved, kept = [await Filled.born(node) for _ in range(4)]
        for volume in (private, moved):
            await volume.write(3)
        await node.ask(MOVE_LOG, MoveRequest(private.vid.raw, to="private"))
        await kept.write(4)
        for volume in (shared, private, moved):
            await volume.write(20)
            await volume.write(2, apart=True)
        child = Filled(node, VolumeId.new(), dict(shared.pages), shared.head)
        await node.ask(FORK, ForkRequest(shared.vid.raw, child=child.vid.raw, lsn=shared.head))
        await child.write(5)
        pin = PinId.new()
        await node.ask(PIN, PinRequest(shared.vid.raw, lsn=shared.head, pin=pin.raw, seconds=0.0))
        await node.ask(CHANGE_NAME, NameRequest(op="bind", name="a/b", target=shared.vid.raw))
        await node.ask(CHANGE_NAME, NameRequest(op="bind", name="a/c", target=child.vid.raw))
        return cls(scene, node, shared, private, moved, child, kept, pin)

    @property
    def volumes(self) -> list[Filled]:
        return [self.shared, self.private, self.moved, self.child, self.kept]

    async def use(self) -> None:
        for volume in self.volumes:
            await volume.write(4)
            await volume.write(1, apart=True)

    async def fold(self) -> None:
        for volume in self.volumes:
            if volume is self.kept:
                await self.node.folder.fold(volume.vid, relocate=True)
            else:
                await volume.forget()
            # The entry of such a commit may go before the commit is folded.
            await volume.write(1, apart=True)

    def logs(self) -> list[str]:
        return sorted({key.split("/")[1] for key in self.scene.keys("logs/")})

    async def collect(self) -> None:
        """All that can be, of all logs."""
        for log in self.logs():
            while (await self.node.collector.collect(log)).stage is not Stage.NOTHING:
                self.scene.now_ms += INTERVAL_MS

    async def check(self) -> Liveness:
        """By both readers, and however the second begins."""
        objects = dict(memory(self.scene.store).objects)
        liveness = (await reread(objects)).liveness()
        newest = Store(objects, newest=True)
        for volume in self.volumes:
            assert newest.volume(volume.vid.raw).pages_at(volume.head) == await pages_at(self.node, volume.vid)
            await volume.check()
        assert newest.liveness().live == liveness.live
        assert newest.liveness().garbage == liveness.garbage
        return liveness

    async def planned(self) -> set[str]:
        """What the plans take out that stand, or would be made now."""
        keys = set[str]()

        async def take(batch: list[str], _why: str) -> None:
            keys.update(batch)

        for log in self.logs():
            plan = await self.node.collector.planned(log)
            if plan is not None:
                await self.node.collector.garbage.each(plan, take)
        return {key for key in keys if "/gc/" not in key}

    @property
    def stands(self) -> set[str]:
        return set(memory(self.scene.store).objects)


@pytest.fixture
def scene() -> Scene:
    return Scene(RiggedStore(MemoryStore()))


@pytest.fixture
async def node(scene: Scene) -> AsyncIterator[Node]:
    async with scene.node("main") as node:
        yield node


@pytest.fixture
async def holdings(scene: Scene, node: Node) -> Holdings:
    return await Holdings.made(scene, node)


async def test_nothing_is_garbage_before_a_fold(holdings: Holdings) -> None:
    liveness = await holdings.check()
    assert not liveness.garbage
    assert not liveness.leftovers


async def test_nothing_dead_is_left_behind_collections(holdings: Holdings) -> None:
    for _ in range(3):
        await holdings.use()
        await holdings.fold()
        assert (await holdings.check()).garbage
        await holdings.collect()
        liveness = await holdings.check()
        assert not liveness.garbage
        assert not liveness.leftovers
        await holdings.use()
        await holdings.check()


async def test_of_garbage_no_more_is_kept_than_came_while_a_plan_waited(holdings: Holdings) -> None:
    """S4.18: a node that only part of is needed is made anew without the rest, so nothing need end where an interval
    does; what was garbage when a plan was made is gone when it was carried out, and the next is made at once."""
    was = set[str]()
    for _ in range(4):
        await holdings.use()
        await holdings.fold()
        holdings.scene.now_ms += INTERVAL_MS
        for log in holdings.logs():
            await holdings.node.collector.collect(log)
        garbage = set((await holdings.check()).garbage)
        assert not was & garbage, "it was garbage when the plan before was made"
        for log in holdings.logs():
            await holdings.node.collector.collect(log)
        was = set((await holdings.check()).garbage)
        assert was


async def test_a_pin_in_a_log_that_many_share_holds_its_lsn_and_nothing_of_the_log(holdings: Holdings) -> None:
    """S4.20: what is pinned is read for as long as it is, collections of all others go on, and it goes with the first
    after its end."""
    scene, node, shared, moved = holdings.scene, holdings.node, holdings.shared, holdings.moved
    pinned, seen = shared.head - 5, await pages_at(node, shared.vid, shared.head - 5)
    pin = PinId.new()
    await node.ask(PIN, PinRequest(shared.vid.raw, lsn=pinned, pin=pin.raw, seconds=0.0))
    for _ in range(3):
        await shared.write(40)
        await moved.write(40)
        await holdings.fold()
        await holdings.collect()
        assert len(scene.keys("logs/main/entries/")) < 20, "of some hundred: no entry stays for it"
        assert await pages_at(node, shared.vid, pinned) == seen
    async with scene.node() as reader:
        assert await pages_at(reader, shared.vid, pinned) == seen
    stood = set(scene.keys("logs/main/t/"))
    await node.ask(UNPIN, UnpinRequest(shared.vid.raw, pin=pin.raw))
    await shared.forget()
    await holdings.collect()
    assert stood - set(scene.keys("logs/main/t/"))
    with pytest.raises(Forgotten):
        await pages_at(node, shared.vid, pinned)
    await holdings.check()


async def test_what_a_plan_takes_out_is_not_live(holdings: Holdings) -> None:
    """And all that isn't is in the plan that is made next."""
    await holdings.fold()
    before = await holdings.check()
    assert not before.leftovers
    for log in holdings.logs():
        await holdings.node.collector.collect(log)
    assert before.garbage.keys() <= await holdings.planned()
    for _ in range(2):
        liveness = await holdings.check()
        planned = await holdings.planned()
        assert len(planned & holdings.stands) > 50
        assert planned & holdings.stands <= liveness.garbage.keys()
        await holdings.use()
        await holdings.fold()


async def test_a_half_carried_out_plan_leaves_all_that_is_live(holdings: Holdings) -> None:
    await holdings.use()
    await holdings.fold()
    await holdings.use()
    await holdings.fold()
    for log in holdings.logs():
        await holdings.node.collector.collect(log)
    holdings.scene.now_ms += INTERVAL_MS
    cuts = 0
    for log in holdings.logs():
        for after in range(1, 30, 3):
            cut = Cut(after)
            try:
                await holdings.node.collector.collect(log, on_deleted=cut)
            except CutOff:
                cuts += 1
                assert not (await holdings.check()).leftovers
            else:
                break
    assert cuts > 3
    await holdings.collect()
    liveness = await holdings.check()
    assert not liveness.garbage


async def test_what_a_pin_held_goes_once_it_has_ended(holdings: Holdings) -> None:
    await holdings.use()
    await holdings.fold()
    await holdings.collect()
    before = await holdings.check()
    await holdings.node.ask(UNPIN, UnpinRequest(holdings.shared.vid.raw, pin=holdings.pin.raw))
    await holdings.use()
    await holdings.fold()
    await holdings.collect()
    after = await holdings.check()
    assert before.live.keys() - after.live.keys()
    assert not after.garbage


async def test_a_volume_that_moved_takes_its_folds_along(holdings: Holdings) -> None:
    await holdings.fold()
    for to in ("private", "main"):
        await holdings.node.ask(MOVE_LOG, MoveRequest(holdings.moved.vid.raw, to=to))
        await holdings.use()
        await holdings.check()
        await holdings.fold()
        await holdings.check()
    await holdings.collect()
    liveness = await holdings.check()
    assert not liveness.garbage
    assert not liveness.leftovers


async def test_names_are_read_from_a_log_that_was_cut_off(holdings: Holdings) -> None:
    node = holdings.node
    for turn in range(3):
        await node.ask(CHANGE_NAME, NameRequest(op="bind", name=f"d/{turn}", target=holdings.child.vid.raw))
        await holdings.collect()
        found = (await node.ask(LOOKUP, LookupRequest("a/b"))).entry
        revision = found.revision if found else 0
        await node.ask(
            CHANGE_NAME, NameRequest(op="bind", name="a/b", revision=revision, target=holdings.moved.vid.raw)
        )
        await holdings.check()


async def test_whatever_live_object_is_damaged_or_missing_is_found(holdings: Holdings) -> None:
    """By the second reader."""
    await holdings.use()
    await holdings.fold()
    await holdings.collect()
    await holdings.use()
    await holdings.fold()
    objects = dict(memory(holdings.scene.store).objects)
    liveness = await holdings.check()
    unmissed = {key for log in holdings.logs() for key in newest_of(objects, log)}
    for at, key in enumerate(sorted(liveness.live.keys() & objects.keys())):
        data = bytearray(objects[key])
        data[at * 37 % len(data)] ^= 1 << at % 8
        with pytest.raises((Damaged, TooNew)):
            Store({**objects, key: bytes(data)}).check()
        if key not in unmissed and not key.startswith("volumes/"):
            with pytest.raises((Damaged, TooNew)):
                Store({each: objects[each] for each in objects if each != key}).check()


def newest_of(objects: Objects, log: str) -> list[str]:
    """What nothing that stands speaks of, if it is missing: the newest entry, numbers, a boundary, and a plan."""
    entries = sorted(key for key in objects if key.startswith(f"logs/{log}/entries/"))
    folders = tuple(f"logs/{log}/{folder}/" for folder in ("epochs", "boundary", "gc"))
    return [*entries[:1], *(key for key in objects if key.startswith(folders))]


class CutOff(Exception):
    """Of a collection, while it deletes."""


@dataclass
class Cut:
    """After so many batches."""

    left: int

    def __call__(self, _: int) -> None:
        self.left -= 1
        if not self.left:
            raise CutOff
