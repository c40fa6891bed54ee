"""The newest entry of a log is deleted, and the slot perhaps written anew, by whoever never saw it: those who had seen
it say Corrupt, name it, and append nothing; once it is put back they go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import anyio
import msgspec
import pytest

from budwood.server.log.log_writer import PRIVATE_TIP_SECONDS, SHARED_TIP_SECONDS
from budwood.server.metastore.polling import POLL_SECONDS
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    CHANGE_NAME,
    CREATE,
    LIST_NAMES,
    PULL_CHANGES,
    SNAPSHOT,
    WAIT,
    CreateRequest,
    NamesRequest,
    RangeRequest,
    SnapshotRequest,
    WaitRequest,
)
from budwood.volume.entry import entry_key, parse_entry, seal_entry
from budwood.volume.envelope import START_BYTES, head_length
from budwood.volume.errors import Corrupt
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import Committed, NameRequest

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()


def page(letter: str) -> bytes:
    return letter.encode() * PAGE


async def put(node: Node, vid: VolumeId, base: int, letter: str) -> Committed:
    return await node.commit(*commit_of(vid, base, {1: page(letter)}, client=ANN, page_size=PAGE))


class Scene(NamedTuple):
    store: RiggedStore
    inner: MemoryStore
    clock: ManualClock
    node: Node
    vid: VolumeId
    """At LSN 2, in the node's own log or in a private one."""
    tip: str
    """The key of the entry that made LSN 2."""

    @property
    def log(self) -> str:
        return self.node.name or str(self.vid)

    def created(self) -> list[str]:
        return [request.key for request in self.store.matching("create")]


@pytest.fixture(params=["main", None], ids=["shared", "private"])
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    inner, clock = MemoryStore(), ManualClock(1000.0, jumps=True)
    store = RiggedStore(inner)
    patience = Patience(deadline_seconds=5, now=clock.now, sleep=clock.sleep)
    async with Node.open(store, name=request.param, patience=patience) as node:
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await put(node, vid, 0, "a")
        await put(node, vid, 1, "b")
        tip = next(iter(sorted(key for key in inner.objects if "/entries/" in key)))
        yield Scene(store, inner, clock, node, vid, tip)


async def corrupt(scene: Scene, node: Node) -> None:
    """Whatever asks for the newest says so, and what was read before can be read on."""
    for ask in (
        node.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw, confirm=True)),
        node.ask(PULL_CHANGES, RangeRequest(scene.vid.raw, after=5)),
    ):
        with pytest.raises(Corrupt) as found:
            await ask
        assert found.value.key == scene.tip
    assert await pages_at(node, scene.vid, 1) == {1: page("a")}


async def test_a_reader_that_had_seen_it_says_so_until_it_is_put_back(scene: Scene) -> None:
    async with Node.open(scene.store) as reader:
        assert (await reader.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw))).lsn == 2
        kept = scene.inner.objects[scene.tip]
        await scene.inner.delete(scene.tip)
        for node in (reader, scene.node):
            await corrupt(scene, node)
        await scene.inner.create(scene.tip, kept)
        for node in (reader, scene.node):
            assert (await node.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw, confirm=True))).lsn == 2
        assert (await put(scene.node, scene.vid, 2, "c")).lsn == 3


async def test_nothing_is_appended_behind_an_entry_that_is_gone(scene: Scene) -> None:
    kept = scene.inner.objects[scene.tip]
    await scene.inner.delete(scene.tip)
    scene.clock.advance(max(PRIVATE_TIP_SECONDS, SHARED_TIP_SECONDS))
    scene.store.forget()
    for _ in range(2):
        with pytest.raises(Corrupt) as found:
            await put(scene.node, scene.vid, 2, "c")
        assert found.value.key == scene.tip
        assert found.value.determinate
    assert not scene.created()
    await scene.inner.create(scene.tip, kept)
    assert (await put(scene.node, scene.vid, 2, "c")).lsn == 3


async def test_a_slot_that_was_written_anew_is_seen_by_those_who_read_the_first(scene: Scene) -> None:
    """The one who never saw it uses its LSN again."""
    if scene.node.name:
        data = scene.inner.objects[scene.tip]
        kept = parse_entry(scene.tip, data)
        await scene.inner.delete(scene.tip)
        again = seal_entry(msgspec.structs.replace(kept.header, time=kept.header.time + 1), data[head_length(data) :])
        await scene.inner.create(scene.tip, again)
    else:
        await scene.inner.delete(scene.tip)
        async with Node.open(scene.store) as other:
            assert (await put(other, scene.vid, 1, "!")).lsn == 2
    await corrupt(scene, scene.node)
    scene.clock.advance(max(PRIVATE_TIP_SECONDS, SHARED_TIP_SECONDS))
    scene.store.forget()
    with pytest.raises(Corrupt) as found:
        await put(scene.node, scene.vid, 2, "c")
    assert found.value.key == scene.tip
    assert not scene.created()


@pytest.mark.parametrize("scene", [None], indirect=True, ids=["private"])
async def test_whoever_goes_on_from_a_slot_written_anew_is_not_followed(scene: Scene) -> None:
    await scene.inner.delete(scene.tip)
    async with Node.open(scene.store) as other:
        await put(other, scene.vid, 1, "!")
        await put(other, scene.vid, 2, "?")
    with pytest.raises(Corrupt) as found:
        await scene.node.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw))
    assert found.value.key == entry_key(scene.log, 3)
    with pytest.raises(Corrupt):
        await put(scene.node, scene.vid, 2, "c")


async def test_names_that_were_seen_are_missed(scene: Scene) -> None:
    names, target = scene.node.root.names_id, VolumeId.new().raw
    for name in ("a", "b"):
        await scene.node.ask(CHANGE_NAME, NameRequest(op="bind", name=name, target=target, client=ANN.raw))
    await scene.inner.delete(entry_key(str(names), 2))
    with pytest.raises(Corrupt):
        await scene.node.ask(LIST_NAMES, NamesRequest())
    async with Node.open(scene.store) as fresh:
        assert [entry.name for entry in (await fresh.ask(LIST_NAMES, NamesRequest())).entries] == ["a"]


async def test_a_commit_in_a_row_with_others_looks_for_nothing(scene: Scene) -> None:
    """DESIGN §4: a durable commit is one PUT and one round trip."""
    scene.store.forget()
    for lsn in range(2, 5):
        await put(scene.node, scene.vid, lsn, "c")
    assert scene.store.count() == 3 == len(scene.created())
    scene.clock.advance(max(PRIVATE_TIP_SECONDS, SHARED_TIP_SECONDS))
    await put(scene.node, scene.vid, 5, "d")
    assert [request.received_bytes for request in scene.store.matching("get")] == [START_BYTES]


async def test_whoever_waits_glances_at_the_log_and_looks_for_its_tip_now_and_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("budwood.server.metastore.polling.POLL_SECONDS", POLL_SECONDS / 1000)
    async with Node.open(scene.store) as reader:
        await reader.ask(SNAPSHOT, SnapshotRequest(scene.vid.raw))
        scene.store.forget()

        async def wait() -> None:
            await reader.ask(WAIT, WaitRequest(scene.vid.raw, after=2, timeout_seconds=3600.0))

        many = scene.store.add(Rule(op="get", nth=20))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await many.reached.wait()
            tasks.cancel_scope.cancel()
        checks = [request for request in scene.store.matching("get") if request.received_bytes == START_BYTES]
        assert len(checks) == 1
