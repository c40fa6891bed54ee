"""Listening: every commit once and in order, whatever happens to who tells of it (S3.16, S3.17). The machine is
tests/property/test_listening_machine.py; how many may wait, test_waiters.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, cast

import anyio
import msgspec
import pytest

from budwood.remote import awaited, listening
from budwood.remote.awaited import snapshot_when
from budwood.remote.listening import Commit, Listener, listen
from budwood.server.metastore.admission import change_in
from budwood.server.metastore.entry_draft import Change, Drafted
from budwood.server.metastore.open_volume import Volume
from budwood.server.metastore.state import StreamState
from budwood.server.node import Node
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FORK,
    MOVE_LOG,
    WAIT,
    CreateRequest,
    ForkRequest,
    Head,
    MoveRequest,
    SinceRequest,
)
from budwood.volume.errors import BadInput, Corrupt, Forgotten, NotFound, Unavailable, Unsupported
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import PageSet, page_count, span
from budwood.volume.protocols import Remote
from budwood.volume.records import Tombstone
from budwood.volume.wire import SnapshotInfo

from ..rolling import comes_true
from ..waits import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(listening, "_LONGEST_PAUSE_SECONDS", 0.01)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with Node.open(MemoryStore(), name="main") as node:
        yield node


@pytest.fixture
async def vid(node: Node) -> VolumeId:
    return await made(node)


async def made(remote: Remote) -> VolumeId:
    vid = VolumeId.new()
    await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


def page(number: int) -> bytes:
    return number.to_bytes(2, "little") * (PAGE // 2)


async def put(remote: Remote, vid: VolumeId, lsn: int, *, length: int = 4 * PAGE, floor: int | None = None) -> None:
    """A commit that makes that LSN: two pages of its own number, page 1 among them."""
    if floor is None:
        floor = min(length, 4 * PAGE) if lsn > 1 else 0
    pages = {at: page(lsn) for at in (1, 1 + lsn % 3) if at <= page_count(length, PAGE)}
    request, segment = commit_of(vid, lsn - 1, pages, client=ANN, page_size=PAGE, length=length, floor=floor)
    await remote.commit(request, segment)


async def heard(listener: Listener, count: int) -> list[Commit]:
    return [await anext(listener) for _ in range(count)]


async def image_behind(commits: list[Commit], image: Mapping[int, bytes]) -> dict[int, bytes]:
    """What a snapshot becomes by these."""
    pages = dict(image)
    for commit in commits:
        kept = page_count(commit.floor, PAGE)
        pages = {at: data for at, data in pages.items() if at <= kept}
        read = {at: data async for at, data in commit.read()}
        assert PageSet(read) == commit.changed
        pages |= read
    return {at: data for at, data in pages.items() if any(data)}


class Meddled:
    """A remote whose answers to `wait` are what `answer` makes of them."""

    def __init__(self, inner: Remote, answer: Callable[[Head], Head]) -> None:
        self.inner = inner
        self.url = "test://meddled"
        self.answer = answer
        self.asked: list[str] = []

    async def ask(self, call: Any, request: Any) -> Any:
        self.asked.append(call.name)
        told = await self.inner.ask(call, request)
        return self.answer(told) if call is WAIT else told


def meddled(inner: Remote, answer: Callable[[Head], Head] = lambda head: head) -> tuple[Remote, Meddled]:
    made = Meddled(inner, answer)
    return cast("Remote", made), made


async def removed(node: Node, vid: VolumeId) -> None:
    """As whoever removes it for good will do."""

    async def change(volume: Volume, writer: Any) -> Change[StreamState]:
        return change_in(writer.log, volume, lambda state, _: Drafted(Tombstone(vid=state.vid), None))

    await node._appender.change(vid, change)  # pyright: ignore[reportPrivateUsage]


async def test_a_snapshot_and_what_is_heard_after_it_are_the_volume(node: Node, vid: VolumeId) -> None:
    """S3.16, S3.17, at each LSN that one may begin from; what was cut off and grown again (B9) among it."""
    await put(node, vid, 1)
    await put(node, vid, 2, length=6 * PAGE)
    await put(node, vid, 3, length=PAGE)
    await put(node, vid, 4, length=6 * PAGE, floor=PAGE)
    await put(node, vid, 5, length=6 * PAGE, floor=0)
    newest = await pages_at(node, vid)
    for after in range(6):
        listener = await listen(node, vid, after=after)
        commits = await heard(listener, 5 - after)
        assert [commit.lsn for commit in commits] == [*range(after + 1, 6)]
        assert listener.after == 5
        assert all((commit.client, commit.page_size, commit.bindings) == (ANN, PAGE, b"") for commit in commits)
        assert await image_behind(commits, await pages_at(node, vid, after) if after else {}) == newest


async def test_a_snapshot_of_an_lsn_that_is_to_come_is_awaited(node: Node, vid: VolumeId) -> None:
    """S3.17: upper passes it, and not a commit before; one that stands is answered at once."""
    await put(node, vid, 1)
    told = dict[int, SnapshotInfo]()
    remote, asked = meddled(node)

    async def wait(lsn: int) -> None:
        told[lsn] = await snapshot_when(remote, vid, lsn, wait_seconds=LIMIT_SECONDS)

    async with anyio.create_task_group() as tasks:
        for lsn in (1, 2, 4):
            tasks.start_soon(wait, lsn)
        await comes_true(lambda: 1 in told)
        for lsn in range(2, 5):
            assert max(told) < lsn
            await put(node, vid, lsn, length=(4 + lsn) * PAGE)
            await comes_true(partial(_has, told, {2: 2, 3: 2, 4: 4}[lsn]))
    assert {lsn: info.lsn for lsn, info in told.items()} == {1: 1, 2: 2, 4: 4}
    assert told[2].length == 6 * PAGE, "it is that LSN's, whatever came since"
    assert told[4].length == 8 * PAGE
    assert len(asked.asked) < 12, "it is told, and doesn't ask again and again"


async def test_an_lsn_that_does_not_come_in_time_is_not_there(node: Node, vid: VolumeId) -> None:
    """S3.17: and not silence, or another LSN."""
    await put(node, vid, 1)
    for seconds in (0.0, 0.05):
        with pytest.raises(NotFound, match="has no LSN 2; its newest is 1"):
            await snapshot_when(node, vid, 2, wait_seconds=seconds)


async def test_who_waits_for_an_lsn_asks_again_when_nobody_answered(
    node: Node, vid: VolumeId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited, "_PAUSE_SECONDS", 0.001)
    await put(node, vid, 1)
    silent = iter([True, True, False])

    def answer(head: Head) -> Head:
        if next(silent):
            raise Unavailable("no answer")
        return head

    remote, _ = meddled(node, answer)
    assert (await snapshot_when(remote, vid, 1, wait_seconds=LIMIT_SECONDS)).lsn == 1
    remote, _ = meddled(node, lambda _: answer_never())
    with pytest.raises(Unavailable):
        await snapshot_when(remote, vid, 2, wait_seconds=0.05)


async def test_who_waits_for_an_lsn_waits_for_longer_than_a_poll(
    node: Node, vid: VolumeId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited, "WAIT_SECONDS", 0.001)
    await put(node, vid, 1)
    remote, asked = meddled(node)
    told = list[SnapshotInfo]()

    async def wait() -> None:
        told.append(await snapshot_when(remote, vid, 2, wait_seconds=LIMIT_SECONDS))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await comes_true(lambda: len(asked.asked) > 2)
        await put(node, vid, 2)
    assert [info.lsn for info in told] == [2]


def _has(told: dict[int, SnapshotInfo], lsn: int) -> bool:
    return lsn in told


def answer_never() -> Head:
    raise Unavailable("no answer")


async def test_pages_are_those_of_the_commit_whatever_came_since(node: Node, vid: VolumeId) -> None:
    for lsn in range(1, 4):
        await put(node, vid, lsn)
    first, *_ = await heard(await listen(node, vid, after=0), 3)
    assert {at: data async for at, data in first.read()} == {1: page(1), 2: page(1)}
    assert {at: data async for at, data in first.read(PageSet([2, 3]))} == {2: page(1), 3: bytes(PAGE)}


async def test_a_large_commit_is_read_in_parts(node: Node, vid: VolumeId, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "READ_BYTES", 3 * PAGE)
    pages = {at: page(at) for at in range(1, 12)}
    await node.commit(*commit_of(vid, 0, pages, client=ANN, page_size=PAGE))
    assert [len(part) for part in listening.in_parts(span(1, 11), PAGE)] == [3, 3, 3, 2]
    (commit,) = await heard(await listen(node, vid, after=0), 1)
    read = [found async for found in commit.read()]
    assert len(read) == len(pages)
    assert dict(read) == pages


async def test_it_begins_with_what_comes_unless_told_otherwise_and_is_one_request_a_batch(
    node: Node, vid: VolumeId
) -> None:
    await put(node, vid, 1)
    remote, asked = meddled(node)
    listener = await listen(remote, vid)
    assert listener.after == 1
    commits: list[int] = []

    async def hear() -> None:
        commits.extend([commit.lsn for commit in await heard(listener, 2)])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hear)
        await anyio.wait_all_tasks_blocked()
        await put(node, vid, 2)
        await put(node, vid, 3)
    assert commits == [2, 3]
    assert asked.asked[0] == "snapshot"
    assert set(asked.asked[1:]) == {"wait"}
    assert len(asked.asked) <= 3


async def test_what_is_held_is_bounded(node: Node, vid: VolumeId, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MOST_COMMITS", 3)
    for lsn in range(1, 9):
        await put(node, vid, lsn)
    sizes: list[int] = []

    def note(head: Head) -> Head:
        sizes.append(len(head.commits))
        return head

    remote, _ = meddled(node, note)
    assert [commit.lsn for commit in await heard(await listen(remote, vid, after=0), 8)] == [*range(1, 9)]
    assert sizes == [3, 3, 2]


async def test_an_lsn_that_is_not_there_yet_is_refused(node: Node, vid: VolumeId) -> None:
    await put(node, vid, 1)
    with pytest.raises(BadInput, match="-1 is not an LSN to listen after"):
        await listen(node, vid, after=-1)
    with pytest.raises(NotFound, match="newest is 1"):
        await listen(node, vid, after=2)
    with pytest.raises(NotFound):
        await listen(node, VolumeId.new())


async def test_what_is_forgotten_ends_it_with_the_oldest_that_is_left(node: Node, vid: VolumeId) -> None:
    for lsn in range(1, 6):
        await put(node, vid, lsn)
    late = await listen(node, vid, after=1)
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=4))
    for listener in (late, await listen(node, vid, after=0), await listen(node, vid, after=2)):
        for _ in range(2):
            with pytest.raises(Forgotten) as caught:
                await anext(listener)
            assert caught.value.oldest == 4
    assert [commit.lsn for commit in await heard(await listen(node, vid, after=3), 2)] == [4, 5]


async def test_the_oldest_that_is_left_comes_over_http(vid: VolumeId, node: Node) -> None:
    for lsn in range(1, 4):
        await put(node, vid, lsn)
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=3))
    with pytest.raises(Forgotten) as caught:
        await anext(await listen(node, vid, after=0))
    from budwood.volume.wire import from_wire, to_wire

    told = from_wire(*to_wire(caught.value))
    assert isinstance(told, Forgotten)
    assert told.oldest == 3


async def test_a_volume_that_is_removed_tells_its_commits_and_then_ends(node: Node, vid: VolumeId) -> None:
    await put(node, vid, 1)
    behind, waiting = await listen(node, vid, after=0), await listen(node, vid, after=1)
    ended: list[str] = []

    async def hear() -> None:
        with pytest.raises(NotFound, match="was removed"):
            await anext(waiting)
        ended.append("")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hear)
        await anyio.wait_all_tasks_blocked()
        await removed(node, vid)
    assert ended
    assert [commit.lsn for commit in await heard(behind, 1)] == [1]
    with pytest.raises(NotFound, match="was removed"):
        await anext(behind)


async def test_a_fork_tells_of_its_parents_commits_too(
    node: Node, vid: VolumeId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MOST_COMMITS", 1)
    for lsn in range(1, 4):
        await put(node, vid, lsn)
    child = VolumeId.new()
    await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=2))
    await put(node, child, 3)
    listener = await listen(node, child)
    for after in range(3):
        behind = await listen(node, child, after=after)
        commits = await heard(behind, 3 - after)
        assert await image_behind(commits, await pages_at(node, child, after) if after else {}) == await pages_at(
            node, child
        )
    await put(node, child, 4)
    assert [commit.lsn for commit in await heard(listener, 1)] == [4]


async def test_a_volume_that_moves_takes_its_listeners_along(node: Node, vid: VolumeId) -> None:
    listener = await listen(node, vid, after=0)
    commits: list[int] = []

    async def hear() -> None:
        async for commit in listener:
            commits.append(commit.lsn)
            if commit.lsn == 4:
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hear)
        for lsn, log in enumerate(("private", "main", "private"), 1):
            await put(node, vid, lsn)
            await anyio.wait_all_tasks_blocked()
            await node.ask(MOVE_LOG, MoveRequest(vid.raw, to=log))
            await anyio.wait_all_tasks_blocked()
        await put(node, vid, 4)
    assert commits == [1, 2, 3, 4]


async def test_one_that_is_cancelled_goes_on_where_it_was(node: Node, vid: VolumeId) -> None:
    listener = await listen(node, vid, after=0)
    with anyio.move_on_after(0.01) as scope:
        await anext(listener)
    assert scope.cancelled_caught
    await put(node, vid, 1)
    await put(node, vid, 2)
    assert [commit.lsn for commit in await heard(listener, 2)] == [1, 2]


async def test_a_log_that_gives_an_lsn_to_another_commit_is_told_of(node: Node, vid: VolumeId) -> None:
    await put(node, vid, 1)
    remote, fault = meddled(node)
    listener = await listen(remote, vid, after=0)
    await anext(listener)
    await put(node, vid, 2)

    def another(head: Head) -> Head:
        return msgspec.structs.replace(head, after_time=head.after_time + 1)

    fault.answer = another
    for _ in range(2):
        with pytest.raises(Corrupt, match="LSN 1 is another commit"):
            await anext(listener)


async def test_a_log_that_lost_what_was_told_is_told_of() -> None:
    """As in test_log_rollback.py, for whoever holds nothing of the volume."""
    store = MemoryStore()
    async with Node.open(store, name="main") as node:
        vid = await made(node)
        await put(node, vid, 1)
        before = dict(store.objects)
        await put(node, vid, 2)
        newest = await listen(node, vid)
    for key in [key for key in store.objects if key not in before]:
        await store.delete(key)
    async with Node.open(store, name="main") as node:
        newest._remote = node  # pyright: ignore[reportPrivateUsage]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listening, "WAIT_SECONDS", 0.01)
            with pytest.raises(Corrupt, match="ends at LSN 1"):
                await anext(newest)
        await put(node, vid, 2, length=7 * PAGE)
        await put(node, vid, 3)
        with pytest.raises(Corrupt, match="another commit"):
            await anext(newest)


class Clock:
    """Goes on while somebody pauses, and at no other time."""

    def __init__(self) -> None:
        self._now = 1.0

    def current_time(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds


@pytest.mark.parametrize("which", ["skips", "repeats", "backwards", "page set"])
async def test_an_answer_that_does_not_follow_is_none(node: Node, vid: VolumeId, which: str) -> None:
    for lsn in range(1, 4):
        await put(node, vid, lsn)

    def tampered(head: Head) -> Head:
        one, two, three = head.commits
        commits = {
            "skips": (one, three),
            "repeats": (one, one, two),
            "backwards": (one, msgspec.structs.replace(two, time=one.time), three),
            "page set": (msgspec.structs.replace(one, pages=b"none"), two, three),
        }[which]
        return msgspec.structs.replace(head, commits=commits)

    remote, _ = meddled(node, tampered)
    listener = await listen(remote, vid, after=0)
    for _ in range(2):
        with pytest.raises(Corrupt):
            await anext(listener)
        assert listener.after == 0


async def test_a_node_that_tells_no_commits_is_told_of(node: Node, vid: VolumeId) -> None:
    await put(node, vid, 1)
    remote, _ = meddled(node, lambda head: Head(lsn=head.lsn))
    with pytest.raises(Unsupported, match="older"):
        await anext(await listen(remote, vid, after=0))


async def test_silence_is_told_once_each_time_and_ends_it_when_patience_does(
    node: Node, vid: VolumeId, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Unavailable] = []
    answers = iter([False, False, True, False, True])

    def lose(head: Head) -> Head:
        if not next(answers, False):
            raise Unavailable("nobody answers", determinate=False)
        return head

    await put(node, vid, 1)
    await put(node, vid, 2)
    remote, _ = meddled(node, lose)
    # Longer than the first pause may be.
    listener = await listen(remote, vid, after=0, patience_seconds=0.3, on_silence=told.append)
    monkeypatch.setattr(listening, "anyio", Clock())
    monkeypatch.setattr(listening, "MOST_COMMITS", 1)
    monkeypatch.setattr(listening, "WAIT_SECONDS", 0.01)
    assert [commit.lsn for commit in await heard(listener, 2)] == [1, 2]
    assert len(told) == 2
    with pytest.raises(Unavailable, match="nobody answers"):
        await anext(listener)
    assert len(told) == 3
