"""Records that can't be followed stop their own stream, in words: all other volumes of the log, the names, and the log
itself go on, through restarts, takeovers and moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest

from budwood.server.metastore.namespace_state import Namespace
from budwood.server.metastore.open_volume import Volume
from budwood.server.metastore.single_flight import LONGEST_SECONDS
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.store.tree_nodes import loading
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    ADVANCE,
    CHANGE_NAME,
    CREATE,
    FORK,
    HELLO,
    LIST_NAMES,
    MOVE_LOG,
    PIN,
    PULL_COMMITS,
    SNAPSHOT,
    WAIT,
    CreateRequest,
    Done,
    ForkRequest,
    MoveRequest,
    NamesRequest,
    PinRequest,
    RangeRequest,
    SinceRequest,
    SnapshotRequest,
    WaitRequest,
)
from budwood.volume.entry import entry_key, seal_entry
from budwood.volume.errors import BudwoodError, Corrupt, Unavailable, Unsupported
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.records import Commit, Fork, Record, StreamRecords, Tombstone, encode_records
from budwood.volume.wire import Committed, NameRequest

from ..waits import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()
CHILD = VolumeId.new()


def page(letter: str) -> bytes:
    return letter.encode() * PAGE


def carried(*records: Any) -> StreamRecords:
    return StreamRecords(records=tuple(msgspec.msgpack.encode(record) for record in records))


def commit(vid: VolumeId, **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "lsn": 2,
        "base": 1,
        "length": 0,
        "floor": 0,
        "pages": b"",
        "token": b"",
        "nonce": b"",
        "time": 1 << 50,
    }
    fields |= {"client": ANN.raw, "content": bytes(32), "setsum": bytes(32)}
    return Commit(vid=vid.raw, **(fields | changes))


UNFOLLOWED: dict[str, Callable[[VolumeId], tuple[StreamRecords, type[BudwoodError], str]]] = {
    "unknown": lambda _: (carried({"k": "melt"}), Unsupported, "unknown kind 'melt': upgrade"),
    "unreadable": lambda _: (StreamRecords(records=(b"\xc1",)), Corrupt, "can't be read"),
    "refused": lambda vid: (encode_records([commit(vid, lsn=9, base=8)]), Corrupt, "what can't be"),
    "a wrong sum": lambda vid: (
        carried(commit(vid, setsum=b"\x01" + bytes(31))),
        Corrupt,
        "don't add up",
    ),
    "behind a good one": lambda vid: (carried(Tombstone(vid=vid.raw), {"k": "melt"}), Unsupported, "'melt'"),
}


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(jumps=True)


@pytest.fixture
async def node(store: RiggedStore, clock: ManualClock) -> AsyncIterator[Node]:
    async with opened(store, clock, "main") as node:
        yield node


def opened(store: RiggedStore, clock: ManualClock, name: str | None = None) -> Any:
    patience = Patience(deadline_seconds=5, now=clock.now, sleep=clock.sleep)
    return Node.open(store, name=name, address=f"http://{name}", patience=patience)


async def born(node: Node) -> VolumeId:
    await node.ask(CREATE, CreateRequest((vid := VolumeId.new()).raw, page_size=PAGE))
    return vid


async def put(node: Node, vid: VolumeId, base: int, letter: str) -> Committed:
    return await node.commit(*commit_of(vid, base, {1: page(letter)}, client=ANN, page_size=PAGE, nonce=b"fixed"))


async def append(node: Node, log: str, streams: dict[str, StreamRecords]) -> None:
    """An entry of the log's owner, as a newer program of it, or a broken one, would write it."""
    reader = (await node.logs.get(log)).reader
    header = reader.chain.header(epoch=reader.chain.epoch, writer=reader.chain.writer, kind="data", streams=streams)
    await node.logs.store.create(entry_key(log, header.i), seal_entry(header))


CALLS: dict[str, Callable[[Node, VolumeId], Awaitable[Any]]] = {
    "snapshot": lambda node, vid: node.ask(SNAPSHOT, SnapshotRequest(vid.raw)),
    "read": lambda node, vid: pages_at(node, vid, 1),
    "pull": lambda node, vid: node.ask(PULL_COMMITS, RangeRequest(vid.raw, after=0)),
    "wait": lambda node, vid: node.ask(WAIT, WaitRequest(vid.raw, after=9, timeout_seconds=LIMIT_SECONDS)),
    "commit": lambda node, vid: put(node, vid, 1, "!"),
    "fork": lambda node, vid: node.ask(FORK, ForkRequest(vid.raw, child=VolumeId.new().raw, lsn=1)),
    "advance": lambda node, vid: node.ask(ADVANCE, SinceRequest(vid.raw, since=1)),
    "pin": lambda node, vid: node.ask(PIN, PinRequest(vid.raw, lsn=1, seconds=60, pin=PinId.new().raw)),
    "move": lambda node, vid: node.ask(MOVE_LOG, MoveRequest(vid.raw, to="private")),
}


async def stands_still(node: Node, vid: VolumeId, kind: type[BudwoodError], words: str) -> None:
    for call in CALLS.values():
        with anyio.fail_after(LIMIT_SECONDS), pytest.raises(kind, match=words):
            await call(node, vid)


@pytest.mark.parametrize("case", UNFOLLOWED)
async def test_a_record_that_can_not_be_followed_stops_its_own_volume_alone(
    store: RiggedStore, clock: ManualClock, node: Node, case: str
) -> None:
    a, b, c = [await born(node) for _ in range(3)]
    for vid in (a, b, c):
        await put(node, vid, 0, "a")
    stream, kind, words = UNFOLLOWED[case](a)
    fork = encode_records([Fork(vid=b.raw, child=CHILD.raw, lsn=1)])
    await append(node, "main", {str(a): stream, str(b): fork})
    log = await node.logs.get("main")
    assert (await put(node, c, 1, "b")).lsn == 2
    assert (await node.volumes.get(b)).state.forked_at(1)
    await stands_still(node, a, kind, words)
    assert (await put(node, b, 1, "b")).lsn == 2
    await node.ask(CHANGE_NAME, NameRequest(op="bind", name="c", target=c.raw, client=ANN.raw))
    assert await node.logs.get("main") is log, "the log goes on"
    async with opened(store, clock) as reader:
        await stands_still(reader, a, kind, words)
        assert await pages_at(reader, c) == await pages_at(reader, b) == {1: page("b")}
        assert [entry.name for entry in (await reader.ask(LIST_NAMES, NamesRequest())).entries] == ["c"]
    assert (await node.ask(MOVE_LOG, MoveRequest(b.raw, to="private"))).log == str(b)
    assert (await put(node, b, 2, "c")).lsn == 3
    async with opened(store, clock, "main") as again:
        assert (await again.ask(HELLO, Done())).epoch == 2
        await stands_still(again, a, kind, words)
        assert (await again.ask(MOVE_LOG, MoveRequest(b.raw, to="main"))).log == "main"
        for vid, base in ((b, 3), (c, 2)):
            assert (await put(again, vid, base, "d")).lsn == base + 1
    async with opened(store, clock, "other") as other:
        assert (await other.ask(MOVE_LOG, MoveRequest(c.raw, to="other", takeover=True))).log == "other"
        assert (await put(other, c, 3, "e")).lsn == 4
        await stands_still(other, a, kind, words)


async def test_a_namespace_stops_alone_too(store: RiggedStore, clock: ManualClock, node: Node) -> None:
    vid = await born(node)
    await node.ask(CHANGE_NAME, NameRequest(op="bind", name="a", target=vid.raw, client=ANN.raw))
    names = str(node.root.names_id)
    await append(node, names, {names: carried({"k": "melt"})})
    async with opened(store, clock) as other:
        for each in (node, other):
            for _ in range(2):
                with pytest.raises(Unsupported, match="'melt'"):
                    await each.ask(LIST_NAMES, NamesRequest())
                with pytest.raises(Unsupported, match="'melt'"):
                    await each.ask(CHANGE_NAME, NameRequest(op="bind", name="b", target=vid.raw, client=ANN.raw))
    assert (await put(node, vid, 0, "a")).lsn == 1


@pytest.mark.parametrize("which", [Volume, Namespace])
async def test_a_taker_that_raises_stops_its_own_stream_until_it_is_tried_anew(
    clock: ManualClock, node: Node, monkeypatch: pytest.MonkeyPatch, which: type[Volume | Namespace]
) -> None:
    """What it comes to then is all there."""
    a, b = await born(node), await born(node)
    bind = NameRequest(op="bind", name="a", target=a.raw, client=ANN.raw)
    await put(node, a, 0, "a")
    await put(node, b, 0, "a")
    await node.ask(CHANGE_NAME, bind)
    later = msgspec.structs.replace(bind, name="b")

    async def fails() -> Any:
        return await (put(node, a, 1, "b") if which is Volume else node.ask(CHANGE_NAME, later))

    real, failing = which.take, [True]

    def take(self: Any, placed: Any) -> bool:
        if failing[0] and self.id in {str(a), str(node.root.names_id)}:
            raise RuntimeError("half-way")
        return real(self, placed)

    monkeypatch.setattr(which, "take", take)
    log = await node.logs.get("main")
    with pytest.raises(Unavailable, match="can't be followed") as told:
        await fails()
    assert not told.value.determinate, "it stands"
    for _ in range(3):
        clock.advance(LONGEST_SECONDS)
        with pytest.raises(Unavailable, match="half-way"):
            await fails()
        assert (await put(node, b, (await node.ask(SNAPSHOT, SnapshotRequest(b.raw))).lsn, "b")).lsn
    assert await node.logs.get("main") is log
    assert log.owned
    failing[0] = False
    if which is Volume:
        with pytest.raises(Unavailable, match="half-way"):
            await node.ask(SNAPSHOT, SnapshotRequest(a.raw))
    clock.advance(LONGEST_SECONDS)
    assert await pages_at(node, a, 1) == {1: page("a")}
    assert (await fails()).lsn == 2
    assert [entry.name for entry in (await node.ask(LIST_NAMES, NamesRequest())).entries] == (
        ["a"] if which is Volume else ["a", "b"]
    )


@pytest.mark.parametrize("back", [False, True])
async def test_a_volume_that_has_moved_is_whole_again_when_one_of_its_logs_is_opened_anew(
    store: RiggedStore, clock: ManualClock, node: Node, back: bool
) -> None:
    """The log that it left had given its records away."""
    vid = await born(node)
    await put(node, vid, 0, "a")
    await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="private"))
    await put(node, vid, 1, "b")
    if back:
        await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))
        await put(node, vid, 2, "c")
    head = 3 if back else 2
    rule = store.add(Rule(op="create", key=f"logs/{'main' if back else vid}/entries/*", before=RuntimeError("boom")))
    with pytest.raises(Unavailable, match="boom"):
        await put(node, vid, head, "d")
    assert rule.fired == 1
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == head
    assert [info.lsn for info in (await node.ask(PULL_COMMITS, RangeRequest(vid.raw, after=0))).commits] == list(
        range(1, head + 1)
    )
    assert (await put(node, vid, head, "d")).lsn == head + 1
    async with opened(store, clock) as fresh:
        assert [await pages_at(fresh, vid, lsn + 1) for lsn in range(head)] == [{1: page(x)} for x in "abc"[:head]]


async def test_a_volume_comes_back_to_a_log_that_was_opened_anew_meanwhile(store: RiggedStore, node: Node) -> None:
    """What it had taken of it waits there once more, and is passed by."""
    vid, other = await born(node), await born(node)
    await put(node, vid, 0, "a")
    await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="private"))
    store.add(Rule(op="create", key="logs/main/entries/*", before=RuntimeError("boom")))
    with pytest.raises(Unavailable, match="boom"):
        await put(node, other, 0, "x")
    assert (await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))).log == "main"
    assert (await put(node, vid, 1, "b")).lsn == 2
    assert [await pages_at(node, vid, lsn) for lsn in (1, 2)] == [{1: page("a")}, {1: page("b")}]


async def test_a_volume_that_ends_while_it_is_followed_takes_nobody_s_place(
    store: RiggedStore, clock: ManualClock, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever else came for it found that one of its logs was to be opened anew."""
    vid = await born(node)
    await put(node, vid, 0, "a")
    await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="private"))
    await put(node, vid, 1, "b")
    ended = list[Volume]()

    async def and_ends(ask: Callable[..., object], *arguments: object) -> object:
        found = await loading(partial(ask, *arguments))
        for volume in list(fresh.volumes._open.values()):
            if not ended and volume.closed_at is not None:
                volume.end()
                ended.append(volume)
        return found

    async with opened(store, clock) as fresh:
        monkeypatch.setattr("budwood.server.metastore.open_volumes.loading", and_ends)
        assert (await fresh.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 2
        assert ended
        assert [await pages_at(fresh, vid, lsn) for lsn in (1, 2)] == [{1: page("a")}, {1: page("b")}]
        assert (await put(fresh, vid, 2, "c")).lsn == 3
