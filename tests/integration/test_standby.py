"""A stand-by takes over the logs of nodes that can't be reached, and an operator gives a log to a node."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.log.listing import shared_logs
from budwood.server.metastore.standby import MISSES, Standby
from budwood.server.node import Node
from budwood.server.store.retrying import PATIENT, Patience
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    CREATE,
    HELLO,
    MOVE_LOG,
    SNAPSHOT,
    TAKE_LOG,
    CreateRequest,
    Done,
    LogName,
    MoveRequest,
    SnapshotRequest,
)
from budwood.volume.entry import EpochRecord
from budwood.volume.errors import BadInput, NotFound, NotOwner
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.owner import Liveness

from ..waits import LIMIT_SECONDS
from .standbys import look

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()
ONE, TWO = "http://one", "http://two"


class Lives:
    """What owners are taken to be, by their address."""

    def __init__(self, **lives: Liveness) -> None:
        self.lives = lives
        self.asked = 0

    async def __call__(self, owner: EpochRecord) -> Liveness:
        self.asked += 1
        return self.lives.get(owner.node, Liveness.ANSWERS)


async def born(node: Node) -> VolumeId:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


async def put(node: Node, vid: VolumeId, base: int, letter: bytes) -> int:
    return (await node.commit(*commit_of(vid, base, {1: letter * PAGE}, client=ANN, page_size=PAGE))).lsn


async def test_a_log_is_taken_over_once_its_owner_has_not_answered_for_some_time() -> None:
    """S1.21: no clock, and no election; whoever was deposed and lives says so, and where to go."""
    store, lives = MemoryStore(), Lives(one=Liveness.GONE)
    async with (
        Node.open(store, name="one", address=ONE, probe_owner=lives) as one,
        Node.open(store, name="two", address=TWO, probe_owner=lives) as two,
    ):
        vid = await born(one)
        assert await put(one, vid, 0, b"a") == 1
        standby = Standby(two.logs)
        for _ in range(MISSES):
            await look(standby)
            with pytest.raises(NotOwner):
                await put(two, vid, 1, b"b")
        await look(standby)
        assert await put(two, vid, 1, b"b") == 2
        with pytest.raises(NotOwner) as lost:
            await put(one, vid, 2, b"c")
        assert (lost.value.owner, lost.value.log) == (TWO, "one")
        assert await pages_at(one, vid) == {1: b"b" * PAGE}
        assert [own.log for own in (await two.ask(HELLO, Done())).logs] == ["one", "two"]
        asked = lives.asked
        await look(standby)
        assert lives.asked == asked, "it is its own by now"


async def test_a_log_that_was_let_go_of_while_it_was_taken_stays_owned() -> None:
    """Else the stand-by takes it anew from its own epoch, again and again."""
    store = MemoryStore()
    async with (
        Node.open(store, name="one", address=ONE) as one,
        Node.open(store, name="two", address=TWO, memory_bytes=0) as two,
    ):
        vid = await born(one)
        await put(one, vid, 0, b"a")
        standby = Standby(two.logs)
        for _ in range(MISSES + 1):
            await look(standby)
        assert [own.log for own in (await two.ask(HELLO, Done())).logs] == ["one", "two"]
        for _ in range(MISSES + 1):
            await look(standby)
        assert await put(two, vid, 1, b"b") == 2
        assert {own.log: own.epoch for own in (await two.ask(HELLO, Done())).logs} == {"one": 2, "two": 1}


async def test_silence_now_and_then_is_no_reason_to_take_a_log() -> None:
    store, lives = MemoryStore(), Lives()
    async with (
        Node.open(store, name="one", address=ONE, probe_owner=lives) as one,
        Node.open(store, name="two", address=TWO, probe_owner=lives) as two,
    ):
        vid, standby = await born(one), Standby(two.logs)
        for life in [*[Liveness.GONE] * (MISSES - 1), Liveness.ANSWERS, Liveness.GONE, *[Liveness.UNKNOWN] * 9]:
            lives.lives["one"] = life
            await look(standby)
        assert await put(one, vid, 0, b"a") == 1


async def test_an_error_that_nobody_foresaw_ends_no_stand_by_and_deposes_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A connection that breaks in the wrong moment raises what it likes."""
    store, answers = MemoryStore(), list[Liveness]()

    async def breaks(_owner: EpochRecord) -> Liveness:
        return answers.pop()

    async with (
        Node.open(store, name="one", address=ONE) as one,
        Node.open(store, name="two", address=TWO, probe_owner=breaks) as two,
    ):
        vid, standby = await born(one), Standby(two.logs)
        for _ in range(3 * MISSES):
            await look(standby)
        assert await put(one, vid, 0, b"a") == 1
        assert "whether one lives can't be found out just now" in caplog.text
        assert "IndexError" in caplog.text
        answers += [Liveness.GONE] * MISSES
        for _ in range(MISSES + 1):
            await look(standby)
        assert await put(two, vid, 1, b"b") == 2


async def test_an_owner_that_hangs_is_not_waited_for_and_one_that_answers_late_keeps_its_log() -> None:
    store, hangs = MemoryStore(), anyio.Event()

    async def late(_owner: EpochRecord) -> Liveness:
        await hangs.wait()
        return Liveness.ANSWERS

    async with (
        Node.open(store, name="one", address=ONE) as one,
        Node.open(store, name="two", address=TWO, probe_owner=late) as two,
        anyio.create_task_group() as tasks,
    ):
        vid, standby = await born(one), Standby(two.logs)
        for _ in range(MISSES):
            await standby.look(tasks)
        hangs.set()
        await anyio.wait_all_tasks_blocked()
        hangs = anyio.Event()
        for base in range(MISSES):
            await standby.look(tasks)
            assert await put(one, vid, base, b"a") == base + 1
        await standby.look(tasks)
        assert await put(two, vid, MISSES, b"b") == MISSES + 1
        hangs.set()


async def test_an_owner_who_came_back_meanwhile_is_waited_for_anew() -> None:
    """Under another epoch."""
    store, lives = MemoryStore(), Lives(one=Liveness.GONE)
    async with Node.open(store, name="two", address=TWO, probe_owner=lives) as two:
        async with Node.open(store, name="one", address=ONE):
            standby = Standby(two.logs)
            for _ in range(MISSES):
                await look(standby)
        async with Node.open(store, name="one", address=ONE, probe_owner=lives) as one:
            await look(standby)
            assert await put(one, await born(one), 0, b"a") == 1


async def test_of_two_stand_bys_the_later_one_serves_the_log() -> None:
    store, lives = MemoryStore(), Lives(one=Liveness.GONE)
    async with (
        Node.open(store, name="two", address=TWO, probe_owner=lives) as two,
        Node.open(store, name="three", address="http://three", probe_owner=lives) as three,
    ):
        async with Node.open(store, name="one", address=ONE) as one:
            vid = await born(one)
        first, second = Standby(two.logs), Standby(three.logs)
        async with anyio.create_task_group() as tasks:
            for _ in range(MISSES):
                tasks.start_soon(look, first)
                tasks.start_soon(look, second)
        for _ in range(MISSES + 1):
            await look(first)
            await look(second)
        async with Node.open(store) as reader:
            newest = await reader.logs.owner(await reader.logs.get("one"))
        assert newest is not None
        owner, other = (two, three) if newest.address == TWO else (three, two)
        assert await put(owner, vid, 0, b"a") == 1
        with pytest.raises(NotOwner) as lost:
            await put(other, vid, 1, b"b")
        assert lost.value.owner == owner.address


async def test_a_node_runs_it_and_ends_with_it() -> None:
    store = MemoryStore()
    async with Node.open(store, name="one", address=ONE) as one:
        vid = await born(one)
        await put(one, vid, 0, b"a")
    clock = ManualClock(jumps=True)
    patience = Patience(now=clock.now, sleep=clock.sleep)
    with anyio.fail_after(LIMIT_SECONDS):
        async with Node.open(store, name="two", address=TWO, patience=patience, standby=True) as two:
            while "one" not in [own.log for own in (await two.ask(HELLO, Done())).logs]:
                await checkpoint()
            assert await put(two, vid, 1, b"b") == 2


async def test_a_log_that_was_taken_over_stays_when_a_volume_leaves_it() -> None:
    store, lives = MemoryStore(), Lives()
    async with Node.open(store, name="one", address=ONE, probe_owner=lives) as one:
        stays, leaves = await born(one), await born(one)
    async with Node.open(store, name="two", address=TWO, probe_owner=lives) as two:
        await two.ask(TAKE_LOG, LogName(log="one"))
        assert (await two.ask(MOVE_LOG, MoveRequest(leaves.raw, to="two"))).log == "two"
        assert [own.log for own in (await two.ask(HELLO, Done())).logs] == ["one", "two"]
        assert await put(two, stays, 0, b"a") == 1
        assert await put(two, leaves, 0, b"a") == 1


async def test_an_operator_gives_a_log_to_a_node_whoever_lives() -> None:
    """S1.23."""
    store = MemoryStore()
    lives = Lives()
    async with (
        Node.open(store, name="one", address=ONE, probe_owner=lives) as one,
        Node.open(store, name="two", address=TWO, probe_owner=lives) as two,
    ):
        vid = await born(one)
        await put(one, vid, 0, b"a")
        taken = await two.ask(TAKE_LOG, LogName(log="one"))
        assert (taken.log, taken.epoch) == ("one", 2)
        assert await put(two, vid, 1, b"b") == 2
        assert (await two.ask(TAKE_LOG, LogName(log="one"))).epoch == 2, "again changes nothing"
        assert (await one.ask(TAKE_LOG, LogName(log="one"))).epoch == 3, "though it had not noticed that it was deposed"
        with pytest.raises(NotOwner) as lost:
            await put(two, vid, 2, b"c")
        assert lost.value.owner == ONE
        assert await put(one, vid, 2, b"c") == 3
        for name, error in (("nobody", NotFound), ("No Such Name", BadInput)):
            with pytest.raises(error):
                await two.ask(TAKE_LOG, LogName(log=name))
        async with Node.open(store) as embedded:
            with pytest.raises(BadInput, match="ask one with --remote"):
                await embedded.ask(TAKE_LOG, LogName(log="one"))


async def test_shared_logs_are_found_however_many_private_ones_there_are() -> None:
    memory = MemoryStore()
    async with Node.open(memory, name="one", address=ONE), Node.open(memory, name="9", address=TWO):
        async with Node.open(memory) as embedded:
            for _ in range(20):
                await put(embedded, await born(embedded), 0, b"a")
        store = RiggedStore(memory)
        assert await shared_logs(store, PATIENT) == ["9", "one"]
        assert store.count("list") <= 5


async def test_following_a_log_has_a_limit_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S1.27: entries at a look, or bytes; none for whoever asks for the newest, or takes the log over."""
    monkeypatch.setattr("budwood.server.metastore.standby.CATCH_UP_ENTRIES", 5)
    monkeypatch.setattr("budwood.server.metastore.standby.FOLLOW_SECONDS", 0.0)
    store, lives = MemoryStore(), Lives()
    async with (
        Node.open(store, name="one", address=ONE, probe_owner=lives) as one,
        Node.open(store, name="two", address=TWO, probe_owner=lives) as two,
    ):
        vid, standby = await born(one), Standby(two.logs)
        await look(standby)
        log, base = await two.logs.get("one"), 0
        first = log.reader.chain.next
        for base in range(12):
            await put(one, vid, base, b"a")
        seen = list[int]()
        for _ in range(4):
            await look(standby)
            seen.append(log.reader.chain.next - first)
        assert seen == [5, 10, 12, 12]
        said = [record.getMessage() for record in caplog.records if "at a look" in record.getMessage()]
        assert said == ["log one is followed by 5 entries or 8 MiB at a look, and isn't caught up with yet"]
        assert [record.getMessage() for record in caplog.records][-1] == "log one is caught up with"
        monkeypatch.setattr("budwood.server.metastore.standby.CATCH_UP_BYTES", 1)
        for base in range(12, 20):
            await put(one, vid, base, b"a")
        await look(standby)
        assert log.reader.chain.next - first == 13, "one head was as much as it may take"
        assert await pages_at(two, vid) == {1: b"a" * PAGE}
        assert (await two.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 20, "whoever asks is told the newest"
        for base in range(20, 40):
            await put(one, vid, base, b"b")
        lives.lives["one"] = Liveness.GONE
        for _ in range(MISSES + 1):
            await look(standby)
        assert await put(two, vid, 40, b"c") == 41, "it has read all before it took the log"
