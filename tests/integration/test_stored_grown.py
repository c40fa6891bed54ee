"""A store that had grown old when its formats were settled reads as it did then, by Budwood and by the second reader
(tests/stored/); it is folded, collected and written on from there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from budwood.server.node import Node
from budwood.server.upkeep.collector import Stage
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    ADVANCE,
    LIST_NAMES,
    PULL_COMMITS,
    RETAINED,
    RETAINED_DEFAULT,
    SNAPSHOT,
    Done,
    NamesRequest,
    RangeRequest,
    SinceRequest,
    SnapshotRequest,
    VolumeRequest,
)
from budwood.volume.errors import Forgotten, NotFound, NotOwner
from budwood.volume.ids import ClientId, VolumeId

from ..damage import copy_of, scrubbed
from ..grown import DAY_MS, INTERVAL_MS, WIDTH
from ..reread import reread
from ..rolling import hasty
from ..second_reader import Store, base58, directory
from ..second_reader.checkpoints import row_of
from ..stored import HeldGrown, HeldVolume, digest_of, unpack_grown

pytestmark = pytest.mark.anyio

PAGE = 512


@dataclass
class Kept:
    held: HeldGrown
    objects: dict[str, bytes]

    def volume(self, name: str) -> tuple[VolumeId, HeldVolume]:
        return next((VolumeId.parse(vid), each) for vid, each in self.held.volumes.items() if each.name == name)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("grown")
    return Kept(unpack_grown(folder), directory(folder / "store"))


@pytest.fixture
async def store(kept: Kept) -> MemoryStore:
    return await copy_of(kept.objects)


@pytest.fixture
async def node(kept: Kept, store: MemoryStore) -> AsyncIterator[Node]:
    """Another owner of its log, at the time when it was left."""
    async with Node.open(store, name="main", create=False, now_ms=lambda: kept.held.now_ms) as node:
        yield node


def test_everything_that_has_a_format_stands_in_it(kept: Kept) -> None:
    """Else these tests would say little."""
    second = Store(kept.objects)
    main = second.log("main")
    keys = sorted(kept.objects)
    names = second.log(base58(second.namespace))
    assert any(key.startswith("logs/main/boundary/") for key in keys)
    plan = main.plans[main.garbage]
    assert plan.due is not None
    assert plan.folds
    assert plan.rejected
    assert plan.settled
    (rejected, *_) = plan.rejected
    left = [key for key in keys if key.startswith(f"logs/main/t/{rejected:016x}/")]
    assert left
    assert not any(key.endswith("/deadlist") for key in left)
    for log in (main, names):
        assert log.rollup
        assert len([key for key in keys if key.startswith(f"logs/{log.name}/nodes/")]) > 10, "a tree of levels"
    vid, ledger = kept.volume("ledger")
    stream = second.volume(vid.raw)
    assert stream.checkpoint is not None
    assert len(row_of(kept.objects, vid.raw, stream.checkpoint.key)) > 2, "deadlists of deadlists"
    assert {int(lsn) for lsn in ledger.pages if int(lsn) < ledger.since} == {4, 9, 12, 14, 18}
    assert {"named", "lease", "sync"} <= {pin.kind for pin in second.pins(vid.raw) if pin.state == "live"}
    vid, accounts = kept.volume("accounts")
    assert {"hourly", "daily"} <= {pin.kind for pin in second.pins(vid.raw) if pin.state == "live"}
    assert {each.log == "main" for each in kept.held.volumes.values()} == {True, False}
    assert any(each.labels for each in kept.held.volumes.values())
    assert {each.policy for each in kept.held.volumes.values()} == {None, (0, 0, 0), accounts.policy}
    assert second.volume(kept.volume("finished")[0].raw).finished
    liveness = second.liveness()
    assert liveness.garbage
    assert not liveness.leftovers


@pytest.mark.parametrize("newest", [False, True])
def test_the_second_reader_reads_it(kept: Kept, *, newest: bool) -> None:
    store = Store(kept.objects, newest=newest)
    store.check()
    assert {base58(vid) for vid in store.volumes} == kept.held.volumes.keys()
    for vid, held in kept.held.volumes.items():
        raw = VolumeId.parse(vid).raw
        volume = store.volume(raw)
        assert (volume.log, volume.since, volume.head, volume.policy) == (held.log, held.since, held.head, held.policy)
        assert {str(lsn): digest_of(volume.pages_at(lsn)) for lsn in store.readable(raw)} == held.pages
        assert {pin.label: pin.lsn for pin in store.pins(raw) if pin.label} == held.labels
    assert {name: base58(bound.target) for name, bound in store.names().items()} == kept.held.names
    assert store.default_policy() == kept.held.policy


async def check(node: Node, kept: Kept) -> None:
    """Every LSN that could be read reads as it did, and no other can be."""
    for text, held in kept.held.volumes.items():
        vid = VolumeId.parse(text)
        newest = await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        assert (newest.since, newest.lsn, newest.log) == (held.since, held.head, held.log)
        for lsn in range(newest.parent_lsn + 1, held.head + 1):
            if str(lsn) in held.pages:
                assert digest_of(await pages_at(node, vid, lsn)) == held.pages[str(lsn)]
                request = RangeRequest(vid.raw, after=lsn - 1, to=lsn)
                assert [info.lsn for info in (await node.ask(PULL_COMMITS, request)).commits] == [lsn]
            else:
                with pytest.raises(Forgotten):
                    await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=lsn))
        for label, lsn in held.labels.items():
            assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, label=label))).lsn == lsn


async def test_a_node_reads_it(node: Node, kept: Kept) -> None:
    await check(node, kept)
    listed = (await node.ask(LIST_NAMES, NamesRequest(limit=1000))).entries
    assert {entry.name: str(VolumeId(entry.target)) for entry in listed} == kept.held.names
    default = (await node.ask(RETAINED_DEFAULT, Done())).policy
    assert default is not None
    assert (default.all_ms, default.hourly_ms, default.daily_ms) == kept.held.policy
    for vid, held in kept.held.volumes.items():
        policy = (await node.ask(RETAINED, VolumeRequest(VolumeId.parse(vid).raw))).policy
        assert (None if policy is None else (policy.all_ms, policy.hourly_ms, policy.daily_ms)) == held.policy


async def test_scrub_finds_nothing_wrong(kept: Kept) -> None:
    assert not await scrubbed(kept.objects)


async def test_its_collection_is_carried_on(kept: Kept, store: MemoryStore) -> None:
    """The plan that stands is carried out once it has waited, and all that is left is planned then."""
    now_ms, deleted = kept.held.now_ms, 0
    before = Store(kept.objects).liveness()
    async with Node.open(store, name="main", create=False, now_ms=lambda: now_ms) as node:
        # By the clock of before, so that no lease comes to its end meanwhile.
        node.retention.pins.now_ms = lambda: kept.held.now_ms
        first = await node.collector.collect("main")
        assert first.stage is Stage.WAITING
        assert first.due_ms <= now_ms + INTERVAL_MS
        for log in Store(store.objects).logs:
            while (done := await node.collector.collect(log)).stage is not Stage.NOTHING:
                deleted += done.deleted
                now_ms += INTERVAL_MS
    async with Node.open(store, create=False, now_ms=lambda: kept.held.now_ms) as node:
        await check(node, kept)
    assert deleted >= len(before.garbage)
    assert not store.objects.keys() & before.garbage.keys()
    assert not (await reread(store.objects)).liveness().garbage
    assert not await scrubbed(store.objects)


async def test_it_is_written_folded_and_kept_by_its_policies_on_from_there(kept: Kept, store: MemoryStore) -> None:
    now_ms, client = kept.held.now_ms + 2 * DAY_MS, ClientId.new()
    rigged = RiggedStore(store)
    async with Node.open(rigged, name="main", create=False, patience=hasty(), now_ms=lambda: now_ms) as node:
        for text, held in kept.held.volumes.items():
            vid, wrote = VolumeId.parse(text), {3: b"new".ljust(PAGE, b".")}
            if held.name == "finished":
                with pytest.raises(NotFound):
                    await node.commit(*commit_of(vid, held.head, wrote, client=client, page_size=PAGE))
                continue
            pages = await pages_at(node, vid) | wrote
            request = commit_of(vid, held.head, wrote, client=client, page_size=PAGE, length=WIDTH * PAGE)
            assert (await node.commit(*request)).lsn == held.head + 1
            if held.policy is not None and any(held.policy):
                assert await node.retainer.enforce(vid) is not None
            else:
                await node.ask(ADVANCE, SinceRequest(vid.raw, since=held.head + 1))
            assert await node.folder.fold(vid) is not None
            assert await pages_at(node, vid) == pages
    second = await reread(store.objects)
    assert second.liveness().garbage
    assert not await scrubbed(store.objects)


async def test_who_owns_nothing_reads_it_and_appends_to_no_shared_log(
    kept: Kept, store: MemoryStore, tmp_path: Path
) -> None:
    async with Node.open(store, create=False, cache_dir=tmp_path, now_ms=lambda: kept.held.now_ms) as node:
        await check(node, kept)
        own, held = kept.volume("own")
        request = commit_of(own, held.head, {1: b"mine".ljust(PAGE)}, client=ClientId.new(), page_size=PAGE)
        assert (await node.commit(*request)).lsn == held.head + 1
        shared, held = kept.volume("ledger")
        with pytest.raises(NotOwner):
            await node.commit(*commit_of(shared, held.head, {1: b"mine".ljust(PAGE)}, client=ClientId.new()))
