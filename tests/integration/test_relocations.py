"""Relocations: a volume that forgets nothing holds no log back. What reads as it did: tests/property/
test_fold_machine.py and test_collection_machine.py; crashes: tests/fault/test_fold_killed.py; damage:
test_scrub_collected.py."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from budwood.server.metastore.folded import Folded
from budwood.server.node import Node
from budwood.server.store.tree_nodes import loading
from budwood.server.upkeep import fold, relocation
from budwood.server.upkeep.collector import Stage
from budwood.server.upkeep.costs import Wanted, survey, total_of
from budwood.server.upkeep.holders import Holders
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    ADVANCE,
    MOVE_LOG,
    RETAIN,
    RETAINED,
    MoveRequest,
    RetainRequest,
    SinceRequest,
    VolumeRequest,
)
from budwood.volume.checkpoint import Relocated
from budwood.volume.entry import entry_key
from budwood.volume.envelope import ROLLUP, encode, open_head, seal
from budwood.volume.errors import Corrupt, Unsupported
from budwood.volume.ids import VolumeId
from budwood.volume.records import FoldRelocating, Location, settled_by
from budwood.volume.retention_policy import RetentionPolicy
from budwood.volume.rollup import RELOCATIONS, parse_rollup
from budwood.volume.segment import SegmentIndex, parse_footer
from budwood.volume.setsum import EMPTY_SUM, item_hash

from ..damage import flip
from ..reread import reread
from ..rolling import hasty, memory, roll_up
from .test_collection import INTERVAL_MS, PAGE, Filled, Scene

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


@pytest.fixture
def scene() -> Scene:
    return Scene(RiggedStore(MemoryStore()))


@pytest.fixture
async def node(scene: Scene) -> AsyncIterator[Node]:
    async with scene.node("main") as node:
        yield node


async def seen(node: Node, volume: Filled) -> list[dict[int, bytes]]:
    """What each LSN reads as."""
    return [await pages_at(node, volume.vid, lsn) for lsn in range(1, volume.head + 1)]


async def relocated(node: Node, vid: VolumeId) -> list[Relocated]:
    folded = (await node.volumes.get(vid)).history.folding
    assert isinstance(folded, Folded)
    return [each for _, each in await loading(folded.relocations)]


async def collect(scene: Scene, node: Node, log: str) -> None:
    while (await node.collector.collect(log)).stage is not Stage.NOTHING:
        scene.now_ms += INTERVAL_MS


async def test_entries_go_and_every_lsn_stays(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(20)
    before = await seen(node, volume)
    done = await node.folder.fold(volume.vid, relocate=True)
    assert done is not None
    assert (done.fold.lsn, settled_by(done.fold), done.whole) == (0, 20, True)
    assert await node.folder.fold(volume.vid, relocate=True) is None, "there is nothing left to do"
    await collect(scene, node, "main")
    # The anchor, and what the collection itself has written.
    assert len(scene.keys("logs/main/entries/")) < 6
    async with scene.node() as fresh:
        assert await seen(fresh, volume) == before
    await volume.write(1)
    assert await seen(node, volume) == [*before, volume.pages]
    assert not (await reread(dict(memory(scene.store).objects))).liveness().garbage


async def test_segments_are_put_together_as_binary_digits_are(
    scene: Scene, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3.29: of n commits that came one by one there are as many segments as n has ones, and none grows too large."""
    monkeypatch.setattr(relocation, "MOST_ROWS", 8)
    volume, counts = await Filled.born(node), list[list[int]]()
    for _ in range(20):
        await volume.write(1)
        await node.folder.fold(volume.vid, relocate=True)
        counts.append([each.count for each in await relocated(node, volume.vid)])
    assert counts[:8] == [[1], [2], [2, 1], [4], [4, 1], [4, 2], [4, 2, 1], [8]]
    assert counts[-1] == [8, 8, 4]
    await volume.write(20)
    await node.folder.fold(volume.vid, relocate=True)
    assert [each.count for each in await relocated(node, volume.vid)] == [8, 8, 8, 8, 8]
    await reread(dict(memory(scene.store).objects))


async def test_one_transaction_copies_so_much_and_leaves_the_rest_to_the_next(
    scene: Scene, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1.12, S1.24: what is lost with it is bounded by bytes, however long nobody has folded."""
    monkeypatch.setattr(fold, "MOST_BYTES", 4 * PAGE)
    volume = await Filled.born(node)
    await volume.write(10)
    before, settled = await seen(node, volume), list[int]()
    while (done := await node.folder.fold(volume.vid, relocate=True)) is not None:
        settled.append(settled_by(done.fold))
        assert done.whole == (settled[-1] == 10)
        assert await seen(node, volume) == before
    assert settled == [4, 8, 10]
    await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=9))
    await volume.write(5)
    folded = list[tuple[int, int]]()
    while (done := await node.folder.fold(volume.vid, relocate=True)) is not None:
        folded.append((done.fold.lsn, settled_by(done.fold)))
        assert done.whole == (folded[-1] == (9, 15))
    assert folded == [(4, 10), (8, 10), (9, 13), (9, 15)]
    await volume.check()
    await reread(dict(memory(scene.store).objects))


async def test_what_is_forgotten_of_it_goes_with_its_segments(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(12)
    await node.folder.fold(volume.vid, relocate=True)
    (segment,) = await relocated(node, volume.vid)
    await volume.write(3)
    await node.folder.fold(volume.vid, relocate=True)
    await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=6))
    await node.folder.fold(volume.vid)
    assert [each.count for each in await relocated(node, volume.vid)] == [12, 3], "a part of it is of use"
    await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=14))
    await node.folder.fold(volume.vid)
    assert [each.count for each in await relocated(node, volume.vid)] == [3]
    await collect(scene, node, "main")
    assert segment.object not in scene.keys("logs/main/t/")
    await volume.check()
    await volume.forget()
    assert not await relocated(node, volume.vid)
    await collect(scene, node, "main")
    liveness = (await reread(dict(memory(scene.store).objects))).liveness()
    assert not liveness.garbage


@pytest.mark.parametrize("policy", [None, RetentionPolicy(all_ms=1_000_000)])
async def test_a_volume_takes_it_along_to_another_log(scene: Scene, node: Node, policy: RetentionPolicy | None) -> None:
    volume = await Filled.born(node)
    if policy is not None:
        await node.ask(RETAIN, RetainRequest(volume.vid.raw, policy=policy))
    await volume.write(8)
    await node.folder.fold(volume.vid, relocate=True)
    for to in ("private", "main", "private"):
        await node.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to=to))
        await volume.write(3)
        before = await seen(node, volume)
        await reread(dict(memory(scene.store).objects))
        await node.folder.fold(volume.vid, relocate=True)
        for log in ("main", str(volume.vid)):
            await collect(scene, node, log)
        async with scene.node() as fresh:
            assert await seen(fresh, volume) == before
            assert (await fresh.ask(RETAINED, VolumeRequest(volume.vid.raw))).policy == policy
        await reread(dict(memory(scene.store).objects))


@pytest.mark.parametrize("at", ["frame", "hashes"])
async def test_a_damaged_entry_is_not_relocated(scene: Scene, node: Node, at: str) -> None:
    volume = await Filled.born(node)
    await volume.write(5)
    key = entry_key("main", (await node.logs.get("main")).reader.chain.next - 2)
    objects = memory(scene.store).objects
    data = objects[key]
    index = SegmentIndex.of_segment(key, data)
    frame, body = index.volumes[0].frames[0], len(data) - parse_footer(key, data).segment_size
    bit = 8 * (body + (frame.offset if at == "frame" else index.hashes_offset) + 1)
    objects.update(flip(objects, key, bit))
    async with scene.node() as fresh:
        own = await fresh.volumes.get(volume.vid)
        assert own.history.folding is None
    async with scene.node("main") as other:
        with pytest.raises(Corrupt, match=key):
            await other.folder.fold(volume.vid, relocate=True)
        assert (await other.volumes.get(volume.vid)).state.fold is None


async def test_pages_that_are_not_what_was_admitted_are_not_relocated(node: Node) -> None:
    """DESIGN §8: an entry may be whole, and its commit another."""
    volume = await Filled.born(node)
    await volume.write(3)
    (await node.volumes.get(volume.vid)).history.at(2).setsum = EMPTY_SUM
    with pytest.raises(Corrupt, match="don't add up to the sum of the commit that made LSN 2"):
        await node.folder.fold(volume.vid, relocate=True)
    assert (await node.volumes.get(volume.vid)).state.fold is None


async def test_a_page_that_does_not_match_its_hash_is_not_relocated(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frame may be as it was stored: who stored it said which hash it has."""
    volume = await Filled.born(node)
    await volume.write(3)

    def other(page: int, data: bytes) -> bytes:
        return bytes(32) if page == 6 else item_hash(page, data)

    monkeypatch.setattr(relocation, "item_hash", other)
    with pytest.raises(Corrupt, match="page 6 does not match its item hash"):
        await node.folder.fold(volume.vid, relocate=True)
    assert (await node.volumes.get(volume.vid)).state.fold is None


async def test_who_knows_of_none_is_told_to_upgrade(scene: Scene, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records have a kind of their own, rollups and segments a required feature."""
    volume = await Filled.born(node)
    await volume.write(6)
    done = await node.folder.fold(volume.vid, relocate=True)
    assert done is not None
    assert isinstance(done.fold, FoldRelocating)
    await roll_up(node, "main")
    objects = memory(scene.store).objects
    log = await node.logs.get("main")
    key = f"logs/main/rollups/{log.rolled.name}"
    head = open_head(key, ROLLUP, objects[key])
    assert head.features & RELOCATIONS
    rollup = parse_rollup("main", log.rolled.name, objects[key])
    unmarked = seal(ROLLUP, encode(rollup), features=head.features & ~RELOCATIONS)
    with pytest.raises(Corrupt, match="does not say that its reader must know that"):
        parse_rollup("main", log.rolled.name, unmarked)
    (segment,) = await relocated(node, volume.vid)
    data = objects[segment.object]
    assert len(SegmentIndex.of_segment(segment.object, data).volumes) == 6
    with monkeypatch.context() as older:
        older.setattr("budwood.volume.segment.KNOWN_FEATURES", 0)
        with pytest.raises(Unsupported, match="upgrade"):
            SegmentIndex.of_segment(segment.object, data)
    # A volume once more without it: a bit of every rollup from there on, as of policies.
    await volume.forget()
    await roll_up(node, "main")
    assert log.rolled.relocations


async def test_gc_explains_and_costs_count_what_was_relocated(scene: Scene, node: Node) -> None:
    volume, other = await Filled.born(node), await Filled.born(node)
    await volume.write(20)
    await other.write(3)
    await node.folder.fold(volume.vid, relocate=True)
    await collect(scene, node, "main")
    (segment,) = await relocated(node, volume.vid)
    held = await Holders(node.logs, node.volumes, node.retention, node.collector).of(segment.object)
    assert held.what == "a segment"
    assert [f"volume {volume.vid}, at LSN 1 (from since on)" in words for words in held.by] == [True]
    objects = memory(scene.store).objects
    costs = await survey(scene.store, Wanted(scene.now_ms), patience=hasty())
    assert not costs.unread
    assert total_of(costs.usages).bytes == pytest.approx(sum(map(len, objects.values())), abs=0.01)
    (usage,) = [each for each in costs.usages if each.volume == str(volume.vid)]
    nodes = [key for key in objects if key.startswith("logs/main/t/") and len(key.rpartition("/")[2]) == 32]
    assert usage.pages == segment.size + sum(len(objects[key]) for key in nodes)
    tight = RetentionPolicy(all_ms=1)
    scene.now_ms += 86_400_000
    costs = await survey(scene.store, Wanted(scene.now_ms, 7.0, 0, tight), patience=hasty())
    (usage,) = [each for each in costs.usages if each.volume == str(volume.vid)]
    assert 0 < usage.let_go < segment.size
    assert Location(object=segment.object, size=segment.size, slot=2) == segment.location_of(2)
