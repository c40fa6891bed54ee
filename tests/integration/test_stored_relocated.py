"""A store whose volumes' pages were relocated, as it was when that format was settled, reads as it did then, by Budwood
and by the second reader (tests/stored/); it is written, folded and collected on from there."""

from __future__ import annotations

import pytest

from budwood.server.node import Node
from budwood.server.upkeep.collector import Stage
from budwood.testing.commits import commit_of, pages_at
from budwood.volume.calls import SNAPSHOT, SnapshotRequest
from budwood.volume.errors import Forgotten
from budwood.volume.garbage import parse_plan
from budwood.volume.ids import ClientId, VolumeId

from ..damage import copy_of, scrubbed
from ..grown import INTERVAL_MS, WIDTH
from ..reread import reread
from ..second_reader import Store, base58, directory
from ..stored import RELOCATED, digest_of, unpack_grown
from .test_stored_grown import PAGE, Kept

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("relocated")
    return Kept(unpack_grown(folder, RELOCATED), directory(folder / "store"))


def test_everything_that_has_a_format_stands_in_it(kept: Kept) -> None:
    """Else these tests would say little."""
    second = Store(kept.objects)
    rows = dict[str, int]()
    for name in ("archive", "branch", "diary", "moved"):
        volume = second.volume(kept.volume(name)[0].raw)
        assert volume.checkpoint is not None
        rows[name] = len(volume.checkpoint.rows)
        inline = [lsn for lsn, commit in volume.commits.items() if commit.inline and lsn > volume.folded_to]
        gone = [lsn for lsn in inline if second.log(volume.commits[lsn].log).boundary > volume.commits[lsn].slot]
        assert gone, f"the entries of {name} stand yet"
    assert all(count > 2 for count in rows.values()), rows
    diary = second.volume(kept.volume("diary")[0].raw)
    assert diary.checkpoint is not None
    assert min(diary.checkpoint.rows) <= diary.checkpoint.lsn < max(diary.checkpoint.rows)
    moved = second.volume(kept.volume("moved")[0].raw)
    assert moved.policy is not None
    plan = second.log("main").plans[second.log("main").garbage]
    assert plan.due is not None
    said = parse_plan("main", f"{plan.number:016x}", kept.objects[plan.key])
    assert said.fragments
    assert said.fragments_since
    assert {pin.ended for pin in said.pins} == {True, False}
    busy, _ = kept.volume("busy")
    assert len([key for key in kept.objects if key.startswith(f"volumes/{busy}/ended/")]) == 1


@pytest.mark.parametrize("newest", [False, True])
def test_the_second_reader_reads_it(kept: Kept, *, newest: bool) -> None:
    store = Store(kept.objects, newest=newest)
    store.check()
    assert {base58(vid) for vid in store.volumes} == kept.held.volumes.keys()
    for vid, held in kept.held.volumes.items():
        volume = store.volume(VolumeId.parse(vid).raw)
        assert (volume.log, volume.since, volume.head, volume.policy) == (held.log, held.since, held.head, held.policy)
        assert {str(lsn): digest_of(volume.pages_at(lsn)) for lsn in store.readable(volume.vid)} == held.pages


async def check(node: Node, kept: Kept) -> None:
    for text, held in kept.held.volumes.items():
        vid = VolumeId.parse(text)
        parent = (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).parent_lsn
        for lsn in range(parent + 1, held.head + 1):
            if str(lsn) in held.pages:
                assert digest_of(await pages_at(node, vid, lsn)) == held.pages[str(lsn)]
            else:
                with pytest.raises(Forgotten):
                    await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=lsn))


async def test_a_node_reads_it_and_goes_on_with_it(kept: Kept) -> None:
    store, now_ms, client = await copy_of(kept.objects), kept.held.now_ms, ClientId.new()
    async with Node.open(store, name="main", create=False, now_ms=lambda: now_ms) as node:
        await check(node, kept)
        for log in Store(store.objects).logs:
            while (await node.collector.collect(log)).stage is not Stage.NOTHING:
                now_ms += INTERVAL_MS
        await check(node, kept)
        for text, held in kept.held.volumes.items():
            vid, wrote = VolumeId.parse(text), {3: b"new".ljust(PAGE, b".")}
            pages = await pages_at(node, vid) | wrote
            request = commit_of(vid, held.head, wrote, client=client, page_size=PAGE, length=WIDTH * PAGE)
            assert (await node.commit(*request)).lsn == held.head + 1
            assert await node.folder.fold(vid, relocate=True) is not None
            assert await pages_at(node, vid) == pages
        await check(node, kept)
    await reread(store.objects)
    assert not await scrubbed(store.objects)


async def test_scrub_finds_nothing_wrong(kept: Kept) -> None:
    assert not await scrubbed(kept.objects)
