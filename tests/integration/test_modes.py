"""Modes of volumes and bindings of sources, from the record to who may commit (volume/rules.py). A source
that is read by a process that is killed: tests/fault/test_ingest_killed.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.testing.clock import ManualClock
from budwood.testing.commits import altered, commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    CREATE,
    FORK,
    MOVE_LOG,
    OUTCOME,
    REMOVE,
    RETAIN,
    RULES,
    SET_MODE,
    TAKE_EPOCH,
    CreateRequest,
    ForkRequest,
    ModeRequest,
    MoveRequest,
    OutcomeRequest,
    RetainRequest,
    Ruled,
    VolumeRequest,
)
from budwood.volume.errors import BadInput, Conflict, NotFound, ReadOnly
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.limits import MOST_SOURCES
from budwood.volume.retention_policy import EVERYTHING
from budwood.volume.rollup import RULES as RULES_FEATURE
from budwood.volume.rollup import parse_rollup
from budwood.volume.rules import Binding, Offset
from budwood.volume.wire import Committed

from ..reread import reread
from ..rolling import check_all, memory, only_when_told, roll_up

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN, BOB = ClientId.new(), ClientId.new()


@pytest.fixture(autouse=True)
def no_rollup_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    only_when_told(monkeypatch)


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1e9, jumps=True)


@asynccontextmanager
async def opened(store: RiggedStore, clock: ManualClock, name: str | None = None) -> AsyncGenerator[Node, None]:
    patience = Patience(deadline_seconds=5, now=clock.now, sleep=clock.sleep)
    async with Node.open(store, name=name, patience=patience, now_ms=clock.now_ms, skew_seconds=30.0) as node:
        yield node


@pytest.fixture
async def node(store: RiggedStore, clock: ManualClock) -> AsyncIterator[Node]:
    async with opened(store, clock, "main") as node:
        yield node


@pytest.fixture
async def vid(node: Node) -> VolumeId:
    return await created(node)


async def created(node: Node) -> VolumeId:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


async def commit(
    node: Node, vid: VolumeId, base: int, *, fill: int = 1, client: ClientId = ANN, **fields: Any
) -> Committed:
    request, segment = commit_of(vid, base, {1: bytes([fill]) * PAGE}, client=client, page_size=PAGE)
    return await node.commit(altered(request, **fields), segment)


def offsets(**sources: int) -> tuple[Offset, ...]:
    return tuple(Offset(source, offset) for source, offset in sources.items())


async def rules(node: Node, vid: VolumeId) -> Ruled:
    return await node.ask(RULES, VolumeRequest(vid.raw))


async def set_mode(node: Node, vid: VolumeId, mode: str) -> None:
    await node.ask(SET_MODE, ModeRequest(vid.raw, mode=mode))


async def take_epoch(node: Node, vid: VolumeId) -> int:
    return (await node.ask(TAKE_EPOCH, VolumeRequest(vid.raw))).epoch


async def test_an_offset_is_bound_with_the_commit_and_told_with_its_lsn(node: Node, vid: VolumeId) -> None:
    """S3.34: a source's offset by LSN."""
    assert (await rules(node, vid)).sources == ()
    await commit(node, vid, 0)
    await commit(node, vid, 1, sources=offsets(orders=10, clicks=3))
    await commit(node, vid, 2, sources=offsets(orders=20))
    assert (await rules(node, vid)).sources == (Binding("clicks", 3, 2), Binding("orders", 20, 3))


async def test_the_same_offset_again_is_the_lsn_that_it_landed_at_and_changes_nothing(
    node: Node, vid: VolumeId
) -> None:
    """S3.34. By whoever, on whatever base; a commit that binds more than that is refused."""
    first = await commit(node, vid, 0, sources=offsets(orders=10))
    assert (first.lsn, first.repeated) == (1, False)
    for client in (ANN, BOB):
        for base in (0, 1):
            again = await commit(node, vid, base, fill=7, client=client, sources=offsets(orders=10))
            assert again == Committed(lsn=1, time=first.time, repeated=True)
    await commit(node, vid, 1, fill=2, sources=offsets(clicks=1))
    again = await commit(node, vid, 2, fill=7, sources=offsets(orders=10))
    assert again == Committed(lsn=1, time=first.time, repeated=True)
    with pytest.raises(BadInput, match="is at 10 since LSN 1, and doesn't go back to 10: read on from there"):
        await commit(node, vid, 2, fill=7, sources=offsets(orders=10, clicks=2))
    assert await pages_at(node, vid) == {1: bytes([2]) * PAGE}
    assert (await rules(node, vid)).head == 2


async def test_of_many_at_once_with_the_same_offset_one_lands(node: Node, vid: VolumeId) -> None:
    answers: list[Committed] = []

    async def one(fill: int) -> None:
        answers.append(await commit(node, vid, 0, fill=fill, client=ClientId.new(), sources=offsets(orders=10)))

    async with anyio.create_task_group() as group:
        for fill in range(8):
            group.start_soon(one, fill)
    assert sorted((answer.lsn, answer.repeated) for answer in answers) == [(1, False)] + [(1, True)] * 7


async def test_a_source_never_goes_back(node: Node, vid: VolumeId) -> None:
    """S3.34."""
    await commit(node, vid, 0, sources=offsets(orders=10))
    for offset in (9, 0):
        with pytest.raises(BadInput, match=f"source 'orders' .* is at 10 since LSN 1, and doesn't go back to {offset}"):
            await commit(node, vid, 1, sources=offsets(orders=offset))
    with pytest.raises(Conflict):
        await commit(node, vid, 0, sources=offsets(orders=11))
    assert (await commit(node, vid, 1, sources=offsets(orders=11))).lsn == 2


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ((Offset("", 1),), "a source's name has 1 to 255 bytes"),
        ((Offset("ä" * 128, 1),), "a source's name has 1 to 255 bytes"),
        ((Offset("a\nb", 1),), "of printable text"),
        ((Offset("a", 2), Offset("a", 3)), "binds each source once"),
        ((Offset("a", -1),), "from 0 to 2\\*\\*64 - 1, not -1"),
        ((Offset("a", 1 << 64),), "from 0 to 2\\*\\*64 - 1"),
        (tuple(Offset(f"s{at}", 1) for at in range(MOST_SOURCES + 1)), "256 at most"),
    ],
)
async def test_what_no_commit_may_bind_is_refused_in_words(
    node: Node, vid: VolumeId, sources: tuple[Offset, ...], words: str
) -> None:
    request, segment = commit_of(vid, 0, {1: bytes([1]) * PAGE}, client=ANN, page_size=PAGE)
    with pytest.raises(BadInput, match=words):
        await node.commit(msgspec.structs.replace(request, sources=sources), segment)
    assert (await commit(node, vid, 0)).lsn == 1


async def test_a_volume_has_only_so_many_sources(node: Node, vid: VolumeId) -> None:
    await commit(node, vid, 0, sources=tuple(Offset(f"s{at}", 1) for at in range(MOST_SOURCES)))
    with pytest.raises(BadInput, match="256 sources already: bind to another volume"):
        await commit(node, vid, 1, sources=offsets(more=1))
    assert (await commit(node, vid, 1, sources=offsets(s0=2))).lsn == 2


async def test_a_binding_belongs_to_the_token(node: Node, vid: VolumeId) -> None:
    """So that what was damaged on the way is not taken."""
    request, segment = commit_of(vid, 0, {1: bytes([1]) * PAGE}, client=ANN, page_size=PAGE)
    bound = altered(request, sources=offsets(orders=10))
    with pytest.raises(BadInput, match="a token that is not its own"):
        await node.commit(msgspec.structs.replace(bound, sources=offsets(orders=11)), segment)


async def test_of_replicas_that_send_the_same_one_lands_and_the_rest_are_told_of_it(node: Node, vid: VolumeId) -> None:
    """S3.12. However far they lag; other content on that base conflicts, as ever."""
    await set_mode(node, vid, "replicated")
    first = [await commit(node, vid, base, fill=base + 1) for base in range(3)]
    assert [await commit(node, vid, base, fill=base + 1, client=BOB) for base in range(3)] == first
    for base in range(3):
        with pytest.raises(Conflict):
            await commit(node, vid, base, fill=9, client=BOB)
        with pytest.raises(Conflict):
            await commit(node, vid, base, fill=base + 1, length=2 * PAGE, client=BOB)
    assert (await rules(node, vid)).head == 3
    assert (await commit(node, vid, 3, fill=4, client=BOB)).lsn == 4


async def test_replicas_at_once_are_one_commit(node: Node, vid: VolumeId) -> None:
    """S3.12. Of those in flight, too; and so it is for whoever opens the volume anew."""
    await set_mode(node, vid, "replicated")
    answers: list[Committed] = []

    async def replica() -> None:
        client = ClientId.new()
        for base in range(5):
            answers.append(await commit(node, vid, base, fill=base + 1, client=client))

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(replica)
    assert sorted(answer.lsn for answer in answers) == sorted([1, 2, 3, 4, 5] * 6)
    assert len({(answer.lsn, answer.time) for answer in answers}) == 5
    assert (await rules(node, vid)).head == 5


async def test_replicas_bind_the_same_offsets(node: Node, vid: VolumeId) -> None:
    """S3.12, S3.34: one that lags is told of the commit that it has made again, though the source is farther by now."""
    await set_mode(node, vid, "replicated")
    first = [await commit(node, vid, at, fill=at + 1, sources=offsets(orders=at + 1)) for at in range(3)]
    second = [await commit(node, vid, at, fill=at + 1, sources=offsets(orders=at + 1), client=BOB) for at in range(3)]
    assert second == first
    assert not any(answer.repeated for answer in second)


async def test_in_any_other_mode_the_same_content_conflicts(node: Node, vid: VolumeId) -> None:
    await commit(node, vid, 0)
    with pytest.raises(Conflict):
        await commit(node, vid, 0, client=BOB)
    await set_mode(node, vid, "replicated")
    assert (await commit(node, vid, 0, client=BOB)).lsn == 1
    await set_mode(node, vid, "optimistic")
    with pytest.raises(Conflict):
        await commit(node, vid, 0, client=BOB)


async def test_an_older_writer_epoch_is_refused(node: Node, vid: VolumeId) -> None:
    """DESIGN §5: whoever took the newest commits, and nobody else; what had landed before is still told."""
    with pytest.raises(BadInput, match="is optimistic: only an exclusive one has writer epochs"):
        await take_epoch(node, vid)
    await set_mode(node, vid, "exclusive")
    ann = await take_epoch(node, vid)
    request, segment = commit_of(vid, 0, {1: bytes([1]) * PAGE}, client=ANN, page_size=PAGE)
    landed = await node.commit(altered(request, writer_epoch=ann), segment)
    bob = await take_epoch(node, vid)
    assert (ann, bob) == (1, 2)
    for epoch in (0, ann, bob + 1):
        with pytest.raises(ReadOnly, match=f"is exclusive, and writer epoch 2 stands, not {epoch}: take the next one"):
            await commit(node, vid, 1, writer_epoch=epoch)
    assert await node.commit(altered(request, writer_epoch=ann), segment) == landed
    asked = OutcomeRequest(vid.raw, client=request.client, token=request.token, base=0)
    assert (await node.ask(OUTCOME, asked)).lsn == 1
    assert (await commit(node, vid, 1, client=BOB, writer_epoch=bob)).lsn == 2
    await set_mode(node, vid, "optimistic")
    assert (await commit(node, vid, 2)).lsn == 3
    await set_mode(node, vid, "exclusive")
    assert await take_epoch(node, vid) == 3


async def test_of_many_that_take_an_epoch_each_has_its_own(node: Node, vid: VolumeId) -> None:
    await set_mode(node, vid, "exclusive")
    taken: list[int] = []

    async def one() -> None:
        taken.append(await take_epoch(node, vid))

    async with anyio.create_task_group() as group:
        for _ in range(9):
            group.start_soon(one)
    assert sorted(taken) == list(range(1, 10))


async def test_a_mode_that_is_none_and_a_volume_that_is_gone_are_refused(node: Node, vid: VolumeId) -> None:
    with pytest.raises(BadInput, match="'both' is no mode of a volume: it is optimistic, exclusive or replicated"):
        await set_mode(node, vid, "both")
    await node.ask(REMOVE, VolumeRequest(vid.raw))
    for mode in ("optimistic", "exclusive"):
        with pytest.raises(NotFound, match="was removed"):
            await set_mode(node, vid, mode)
    with pytest.raises(NotFound, match="was removed"):
        await rules(node, vid)


async def test_rules_are_kept_by_rollups_and_by_moves(store: RiggedStore, clock: ManualClock) -> None:
    """S3.34. And every rollup says that a reader must know of them."""
    async with opened(store, clock, "main") as node:
        vid, other, plain = [await created(node) for _ in range(3)]
        await commit(node, vid, 0, sources=offsets(orders=10))
        await commit(node, plain, 0)
        await node.ask(RETAIN, RetainRequest(vid.raw, policy=EVERYTHING))
        await set_mode(node, other, "exclusive")
        assert await take_epoch(node, other) == 1
        await roll_up(node, "main")
        await commit(node, vid, 1, fill=2, sources=offsets(clicks=5))
        for each in (vid, other):
            await node.ask(MOVE_LOG, MoveRequest(each.raw, to="private"))
            await roll_up(node, str(each))
        await commit(node, other, 0, writer_epoch=1, sources=offsets(orders=1))
        for each in (vid, other):
            await node.ask(MOVE_LOG, MoveRequest(each.raw, to="main"))
        await set_mode(node, vid, "replicated")
        await roll_up(node, "main")
    check_all(store)
    async with opened(store, clock) as fresh:
        told = await rules(fresh, vid)
        assert (told.mode, told.sources) == ("replicated", (Binding("clicks", 5, 2), Binding("orders", 10, 1)))
        told = await rules(fresh, other)
        assert (told.mode, told.writer_epoch, told.sources) == ("exclusive", 1, (Binding("orders", 1, 1),))
        assert await rules(fresh, plain) == Ruled(mode="optimistic", head=1)
    rollups = {key: data for key, data in memory(store).objects.items() if "/rollups/" in key}
    assert {key.split("/")[1] for key in rollups} == {"main", str(vid), str(other)}
    for key, data in rollups.items():
        _, log, _, name = key.split("/", 3)
        assert int.from_bytes(data[8:16], "little") & RULES_FEATURE
        assert parse_rollup(log, name, data).rules
    await reread(dict(memory(store).objects))


async def test_behind_a_rollup_the_same_is_refused(store: RiggedStore, clock: ManualClock) -> None:
    async with opened(store, clock, "main") as node:
        vid, twins = await created(node), await created(node)
        first = await commit(node, vid, 0, sources=offsets(orders=10))
        await set_mode(node, twins, "replicated")
        made = await commit(node, twins, 0)
        await roll_up(node, "main")
        await commit(node, await created(node), 0)
    async with opened(store, clock, "main") as node:
        again = await commit(node, vid, 0, fill=7, client=BOB, sources=offsets(orders=10))
        assert again == Committed(lsn=1, time=first.time, repeated=True)
        with pytest.raises(BadInput, match="doesn't go back to 9"):
            await commit(node, vid, 1, sources=offsets(orders=9))
        assert await commit(node, twins, 0, client=BOB) == made


async def test_a_fork_begins_without_rules(node: Node, vid: VolumeId) -> None:
    await set_mode(node, vid, "exclusive")
    epoch = await take_epoch(node, vid)
    await commit(node, vid, 0, writer_epoch=epoch, sources=offsets(orders=10))
    child = VolumeId.new()
    await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=1))
    assert await rules(node, child) == Ruled(mode="optimistic", head=1)
    assert (await commit(node, child, 1, sources=offsets(orders=1))).lsn == 2
