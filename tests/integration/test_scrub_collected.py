"""Scrub of a store that was collected: logs that were cut off, checkpoints, deadlists and plans (see test_scrub.py)."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.node import Node
from budwood.server.upkeep.position import Position
from budwood.server.upkeep.scrub import open_scrub
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.errors import BudwoodError
from budwood.volume.ids import VolumeId

from ..damage import (
    Heard,
    Interrupted,
    Objects,
    Old,
    copy_of,
    cut,
    flip,
    names_in,
    read_all,
    scrubbed,
    spoilt,
    stopped,
    swapped,
    without,
)
from ..rolling import memory, small_nodes
from ..second_reader import Store as SecondReader
from ..second_reader.checkpoints import row_of
from ..second_reader.live import Liveness
from .test_collection import INTERVAL_MS, Scene
from .test_live import Cut, CutOff, Holdings
from .test_scrub import DAMAGES, chosen, damaged

pytestmark = pytest.mark.anyio

STAGES = ["done", "waiting", "folded", "half", "held"]
KINDS = [
    "deadlists",
    "checkpoint nodes",
    "segments",
    "relocated",
    "entries",
    "rollups",
    "nodes",
    "plans",
    "dues",
    "boundary",
    "epochs",
]


@dataclass(repr=False)
class Collected:
    """A store at a moment, and what of it is live."""

    stage: str
    old: Old
    liveness: Liveness
    forgotten: set[tuple[VolumeId, int]]

    @property
    def objects(self) -> dict[str, bytes]:
        return self.old.objects

    def of_kind(self, kind: str) -> list[str]:
        return self._kinds.get(kind, [])

    @cached_property
    def _kinds(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for key in sorted(self.liveness.live.keys() & self.objects.keys()):
            found.setdefault("relocated" if key in self.relocated else kind_of(key), []).append(key)
        return found

    @cached_property
    def relocated(self) -> set[str]:
        """The segments that have pages of commits one by one."""
        second = SecondReader(self.objects)
        checkpoints = [second.volume(vid).checkpoint for vid in second.volumes]
        return {row.key for each in checkpoints if each is not None for row in each.rows.values()}


def kind_of(key: str) -> str:
    folder, _, name = key.rpartition("/")
    if "/t/" in key:
        return "deadlists" if name == "deadlist" else "checkpoint nodes" if len(name) == 32 else "segments"
    if "/gc/" in key:
        return f"{name}s"
    return folder.split("/")[2] if key.startswith("logs/") else folder.split("/")[0]


async def collect(stage: str) -> Collected:
    """`done`: nothing is left to be deleted; `waiting`: the plans are acknowledged, and not due; `folded`: and more was
    folded since; `half`: they are due, and carried out in part; `held`: so too, and
    of the entries none goes, since their pages are still read."""
    scene = Scene(RiggedStore(MemoryStore()))
    with pytest.MonkeyPatch.context() as patched:
        small_nodes(patched)
        async with scene.node("main") as node:
            holdings = await Holdings.made(scene, node)
            for _ in range(2):
                await holdings.use()
                await holdings.fold()
                await holdings.collect()
            await holdings.use()
            if stage == "held":
                await holdings.collect()
                await holdings.use()
            if stage not in {"done", "held"}:
                await holdings.fold()
                await holdings.use()
                for log in holdings.logs():
                    await node.collector.collect(log)
            if stage == "folded":
                await holdings.fold()
            if stage == "held":
                for log in holdings.logs():
                    await node.collector.collect(log)
            if stage in {"half", "held"}:
                scene.now_ms += INTERVAL_MS
                for at, log in enumerate(holdings.logs()):
                    await _in_part(node, log, 2 + 3 * at)
            objects = dict(memory(scene.store).objects)
            liveness = await holdings.check()
            old = Old(objects, {}, {})
            forgotten: set[tuple[VolumeId, int]] = set()
            for volume in holdings.volumes:
                vid, head = volume.vid, volume.head
                own = await node.volumes.get(vid)
                old.logs[vid] = {own.log, *(close.log for close in own.closes)}
                old.history[vid] = [{}]
                for lsn in range(1, head + 1):
                    try:
                        old.history[vid].append(await pages_at(node, vid, lsn))
                    except BudwoodError:
                        old.history[vid].append({})
                        forgotten.add((vid, lsn))
            old.logs[holdings.child.vid] |= old.logs[holdings.shared.vid]
    names = await names_in(objects)
    assert names is not None
    old.names.update(names)
    return Collected(stage, old, liveness, forgotten)


async def _in_part(node: Node, log: str, batches: int) -> None:
    with suppress(CutOff):
        await node.collector.collect(log, on_deleted=Cut(batches))


@pytest.fixture(scope="module", params=STAGES)
def store(request: pytest.FixtureRequest) -> Collected:
    stage: str = request.param
    return anyio.run(collect, stage)


async def test_a_collected_store_is_whole(store: Collected) -> None:
    assert [str(each) for each in (await scrubbed(store.objects)).values()] == []


async def check(before: Collected, after: Objects) -> None:
    """As in test_scrub.py, of what is live."""
    differ = {key for key in {*before.objects, *after} if before.objects.get(key) != after.get(key)}
    found = await scrubbed(after)
    unknowable = {key for key in differ if (key not in after and key in unmissed(before)) or key in about_to_go(before)}
    assert differ - unknowable <= set(found) <= differ, [str(each) for each in found.values()]
    if not any(key not in after and key in newest(before) for key in differ):
        failed = await read_all(after, before.old) - before.forgotten
        untold = {each for each in failed - spoilt(found, before.old) if each[0] not in stopped(found, before.old)}
        assert not untold, [str(each) for each in found.values()]


def newest(store: Collected) -> set[str]:
    """Of each log the newest entry."""
    entries = [key for key in store.objects if "/entries/" in key]
    return {min(key for key in entries if key.startswith(folder)) for folder in {e.rpartition("/")[0] for e in entries}}


def about_to_go(store: Collected) -> set[str]:
    """Deadlists that only the plan needs that takes them out: they may be gone, and so may what leads to them."""
    second, found = SecondReader(store.objects), set[str]()
    for log in map(second.log, second.logs):
        for vid, checkpoint, _ in log.plan.folds if log.plan else ():
            found |= {deadlist.key for deadlist in row_of(store.objects, vid, checkpoint)[1:]}
    return found


def unmissed(store: Collected) -> set[str]:
    """What nothing that stands speaks of."""
    return {
        *newest(store),
        *store.of_kind("plans"),
        *store.of_kind("dues"),
        *(key for key in store.of_kind("epochs") if "transaction" in store.objects[key].decode("latin-1")),
    }


async def test_every_kind_of_object_is_live(store: Collected) -> None:
    assert {kind for kind in KINDS if store.of_kind(kind)} >= set(KINDS) - {"plans", "dues"}


@pytest.mark.slow
@pytest.mark.parametrize("two", [DAMAGES[:2], DAMAGES[2:4], DAMAGES[4:]], ids=" or ".join)
@pytest.mark.parametrize("kind", KINDS)
async def test_one_damaged_object_is_named_and_no_other(store: Collected, kind: str, two: list[str]) -> None:
    """Each kind meets each damage, in every second store."""
    how, keys = two[(STAGES.index(store.stage) + KINDS.index(kind)) % 2], store.of_kind(kind)
    if not keys:
        return
    key = chosen(keys, how)
    if how != "swapped":
        await check(store, damaged(store.objects, key, how))
        return
    others = [each for each in keys if store.objects[each] != store.objects[key]]
    if others:
        await check(store, swapped(store.objects, key, others[len(others) // 2]))


async def test_a_fragment_whose_entry_is_gone_is_looked_at(store: Collected) -> None:
    """Nothing but the commit in a rollup leads to it."""
    second, found = SecondReader(store.objects), 0
    for volume in map(second.volume, second.volumes):
        for lsn in range(volume.folded_to + 1, volume.head + 1):
            commit = volume.commits[lsn]
            if commit.slot < second.log(commit.log).boundary:
                for key in commit.objects:
                    found += 1
                    await check(store, flip(store.objects, key, 3) if found % 2 else without(store.objects, key))
    assert found or store.stage == "folded"


async def test_a_birth_that_is_lost_is_missed_though_no_entry_stands_that_follows_from_it(store: Collected) -> None:
    births = [key for key in store.of_kind("volumes") if key.endswith("/birth")]
    assert births
    for key in births:
        await check(store, without(store.objects, key))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_emptied_object_is_named(store: Collected, kind: str) -> None:
    for key in store.of_kind(kind)[:1]:
        await check(store, cut(store.objects, key, 0))


@pytest.mark.slow
@given(st.integers(0, 1 << 62), st.sampled_from(KINDS))
@settings(max_examples=25)
def test_whatever_live_object_is_damaged_is_named(store: Collected, seed: int, kind: str) -> None:
    rng = random.Random(seed)
    keys = store.of_kind(kind)
    if keys:
        key = rng.choice(keys)
        after = flip(store.objects, key, rng.randrange(8 * len(store.objects[key])))
        anyio.run(check, store, after)


@pytest.mark.slow
async def test_whoever_goes_on_looks_at_what_is_left(store: Collected) -> None:
    """A scrub that was interrupted, and one that goes on there, find all that one finds alone."""
    rng = random.Random(7)
    after: Objects = store.objects
    for kind in KINDS:
        if keys := store.of_kind(kind):
            after = flip(after, rng.choice(keys), rng.randrange(1 << 20))
    whole = set((await scrubbed(after)).values())
    heard = Heard()
    async with open_scrub(await copy_of(after), heard) as scrub:
        await scrub.run()
    for at in range(1, len(heard.positions), 2):
        first, second = Heard(stop_behind=at), Heard()
        with pytest.raises(ExceptionGroup) as stop:
            async with open_scrub(await copy_of(after), first) as scrub:
                await scrub.run()
        assert stop.group_contains(Interrupted)
        async with open_scrub(await copy_of(after), second) as scrub:
            await scrub.run(Position.parse(str(first.positions[-1])))
        told = {each.key for each in (*first.findings, *second.findings)}
        assert told == {each.key for each in whole}
