"""Retention policies of volumes, from the record to what can be read (server/upkeep/retainer.py). What follows from a
policy: tests/property/test_retention_schedule.py; crashes: tests/fault/test_retainer_killed.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.upkeep.retainer import Enforced
from budwood.server.upkeep.retention_schedule import DAY_MS, HOUR_MS, MOST_HOLDS
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FORK,
    MOVE_LOG,
    PIN,
    PINS,
    REMOVE,
    RENEW,
    RETAIN,
    RETAIN_DEFAULT,
    RETAINED,
    RETAINED_DEFAULT,
    SNAPSHOT,
    UNPIN,
    CreateRequest,
    Done,
    ForkRequest,
    MoveRequest,
    PinRequest,
    RenewRequest,
    RetainDefaultRequest,
    RetainRequest,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
    VolumeRequest,
)
from budwood.volume.errors import AlreadyExists, BadInput, Corrupt, Forgotten, NotFound, NotOwner
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.pins import DAILY, HOURLY, OF_POLICIES, PinState, ids_of_policy
from budwood.volume.retention_policy import EVERYTHING, RetentionPolicy
from budwood.volume.rollup import POLICIES, parse_rollup

from ..reread import reread
from ..rolling import check_all, memory, only_when_told, roll_up

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()
START = 20_000 * DAY_MS
"""A midnight."""
WEEK = RetentionPolicy(all_ms=2 * HOUR_MS, hourly_ms=12 * HOUR_MS, daily_ms=7 * DAY_MS)


@pytest.fixture(autouse=True)
def no_rollup_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    only_when_told(monkeypatch)


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START / 1000, jumps=True)


@asynccontextmanager
async def opened(store: RiggedStore, clock: ManualClock, name: str | None = None) -> AsyncGenerator[Node, None]:
    patience = Patience(deadline_seconds=5, now=clock.now, sleep=clock.sleep)
    async with Node.open(store, name=name, patience=patience, now_ms=clock.now_ms, skew_seconds=30.0) as node:
        yield node


@pytest.fixture
async def node(store: RiggedStore, clock: ManualClock) -> AsyncIterator[Node]:
    async with opened(store, clock) as node:
        yield node


@pytest.fixture
async def vid(node: Node) -> VolumeId:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


def at(hours: float) -> int:
    return START + round(hours * HOUR_MS)


async def commit(node: Node, vid: VolumeId, clock: ManualClock, hours: float) -> int:
    """At that time."""
    clock.advance((at(hours) - clock.now_ms()) / 1000)
    head = (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn
    request, segment = commit_of(vid, head, {1: bytes([head % 256]) * PAGE}, client=ANN, page_size=PAGE)
    committed = await node.commit(request, segment)
    assert committed.time == at(hours)
    return committed.lsn


async def two_days(node: Node, vid: VolumeId, clock: ManualClock) -> int:
    """A commit every 40 minutes, so that LSN n is of minute 40 n; the newest."""
    for lsn in range(1, 73):
        assert await commit(node, vid, clock, lsn * 2 / 3) == lsn
    return 72


async def retain(node: Node, vid: VolumeId, policy: RetentionPolicy | None) -> None:
    await node.ask(RETAIN, RetainRequest(vid.raw, policy=policy))


async def held(node: Node, vid: VolumeId) -> dict[tuple[int, str], int]:
    """By policies: until when."""
    pins = (await node.ask(PINS, VolumeRequest(vid.raw))).pins
    return {(pin.lsn, pin.kind): pin.expiry for pin in pins if pin.kind in OF_POLICIES and pin.state is PinState.LIVE}


async def readable(node: Node, vid: VolumeId) -> set[int]:
    found: set[int] = set()
    for lsn in range(1, (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn + 1):
        try:
            assert await pages_at(node, vid, lsn) == {1: bytes([(lsn - 1) % 256]) * PAGE} or lsn == 1
            found.add(lsn)
        except Forgotten as error:
            assert error.oldest == (await node.ask(RETAINED, VolumeRequest(vid.raw))).oldest  # noqa: PT017
    return found


async def test_what_a_policy_keeps_can_be_read_and_nothing_else(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    head = await two_days(node, vid, clock)
    await retain(node, vid, WEEK)
    done = await node.retainer.enforce(vid)
    # It is 48:00. All since 46:00, each hour's since 36:00, each day's of a week.
    hours = {hour * 3 // 2 for hour in range(37, 46)}
    assert done == Enforced(69, len(hours) + 1)
    assert await readable(node, vid) == {36, *hours, *range(69, head + 1)}
    until = {(hour * 3 // 2, HOURLY): at(hour + 12) for hour in range(37, 46)}
    assert await held(node, vid) == until | {(36, DAILY): at(24) + 7 * DAY_MS}
    for hour in (24, *range(37, 49)):
        snapshot = await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=at(hour)))
        assert (snapshot.lsn, snapshot.since) == (hour * 3 // 2, 69)
    async with opened(store, clock) as other:
        assert await readable(other, vid) == await readable(node, vid)
    clock.advance(2 * 3600 + 60)
    await node.retainer.enforce(vid)
    assert set(await held(node, vid)) == {(36, DAILY)} | {(hour * 3 // 2, HOURLY) for hour in range(39, 48)}
    await reread(dict(memory(store).objects))


async def test_with_nothing_to_do_nothing_is_written(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    await two_days(node, vid, clock)
    assert await node.retainer.enforce(vid) is None
    await retain(node, vid, WEEK)
    assert await node.retainer.enforce(vid)
    for fresh in (False, True):
        async with opened(store, clock) as other:
            store.forget()
            asked = other if fresh else node
            assert await asked.retainer.enforce(vid) is None
            assert store.count("create") == 0
    store.forget()
    assert await node.retainer.enforce(vid) is None
    assert store.count() <= 2, "a look at the volume's log, and no listing of its pins"


async def test_since_moves_in_steps(store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId) -> None:
    """A volume that is always written to has few records of it, and none that it doesn't need."""
    await retain(node, vid, RetentionPolicy(all_ms=32 * 60_000))
    moved = 0
    for second in range(0, 3 * 3600, 20):
        await commit(node, vid, clock, (second + 20) / 3600)
        moved += await node.retainer.enforce(vid) is not None
    assert 60 < moved <= 3 * 60
    assert await held(node, vid) == {}


async def test_two_at_once_come_to_the_same(store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId) -> None:
    await two_days(node, vid, clock)
    await retain(node, vid, WEEK)
    async with opened(store, clock) as other, anyio.create_task_group() as tasks:
        for each in (node, other, node):
            tasks.start_soon(each.retainer.enforce, vid)
    assert len(await held(node, vid)) == 10
    prefixes = {key.rpartition("/")[0] for key in memory(store).objects if "/pins/" in key}
    assert len(prefixes) == 10, "no second pin stands for anything"
    assert (await node.ask(RETAINED, VolumeRequest(vid.raw))).since == 69
    check_all(store)


async def test_it_goes_on_where_one_was_cut_off(clock: ManualClock, node: Node, vid: VolumeId) -> None:
    """Whose pins were asked for and have ended since; and where somebody released one, that is meant."""
    await two_days(node, vid, clock)
    await retain(node, vid, WEEK)
    asked = next(ids_of_policy(vid, 60, HOURLY, at(40)))
    await node.ask(PIN, PinRequest(vid.raw, lsn=60, pin=asked.raw, seconds=1))
    volume = await node.volumes.get(vid)
    for pin in (ids_of_policy(vid, 57, HOURLY, at(38)), ids_of_policy(vid, 58, HOURLY, at(39))):
        assert await node.retention.hold_by_policy(volume, 58, HOURLY, at(39), at(39) + 1), pin
    clock.advance(60)
    assert await held(node, vid) == {}, "both have ended"
    released = next(ids_of_policy(vid, 61, HOURLY, at(41)))
    assert await node.retention.hold_by_policy(volume, 61, HOURLY, at(41), at(60))
    await node.ask(UNPIN, UnpinRequest(vid.raw, pin=released.raw))
    done = await node.retainer.enforce(vid)
    assert done is not None
    assert {lsn for lsn, _ in await held(node, vid)} == {36, 55, 57, 58, 60, 63, 64, 66, 67}
    assert done.held == 9


async def test_another_policy_lets_pins_end_sooner_or_later(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    await two_days(node, vid, clock)
    await retain(node, vid, WEEK)
    await node.retainer.enforce(vid)
    before = await held(node, vid)
    await retain(node, vid, RetentionPolicy(all_ms=2 * HOUR_MS, hourly_ms=DAY_MS, daily_ms=8 * DAY_MS))
    store.forget()
    assert await node.retainer.enforce(vid) is None, "there is nothing to forget"
    assert await held(node, vid) == {
        which: until + (DAY_MS if which[1] == DAILY else 12 * HOUR_MS) for which, until in before.items()
    }
    await retain(node, vid, EVERYTHING)
    await node.retainer.enforce(vid)
    assert set((await held(node, vid)).values()) == {0}
    await retain(node, vid, RetentionPolicy(all_ms=2 * HOUR_MS, hourly_ms=5 * HOUR_MS))
    await node.retainer.enforce(vid)
    clock.advance(60)
    assert set(await held(node, vid)) == {(67, HOURLY), (66, HOURLY)}
    await retain(node, vid, None)
    assert await node.retainer.enforce(vid) is None, "without any policy, they end as they said"
    assert set(await held(node, vid)) == {(67, HOURLY), (66, HOURLY)}


async def test_a_volume_without_a_policy_has_the_store_s(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    await two_days(node, vid, clock)
    assert (await node.ask(RETAINED_DEFAULT, Done())).policy is None
    hour = RetentionPolicy(all_ms=HOUR_MS)
    await node.ask(RETAIN_DEFAULT, RetainDefaultRequest(policy=hour))
    await retain(node, vid, EVERYTHING)
    async with opened(store, clock) as other:
        assert (await other.ask(RETAINED_DEFAULT, Done())).policy == hour
        told = await other.ask(RETAINED, VolumeRequest(vid.raw))
        assert (told.policy, told.default, told.since, told.oldest, told.head) == (EVERYTHING, hour, 1, 1, 72)
        assert await other.retainer.enforce(vid) is None
        await retain(node, vid, None)
        assert await other.retainer.enforce(vid) == Enforced(70, 0)
        assert (await other.ask(RETAINED, VolumeRequest(vid.raw))).policy is None
        store.forget()
        await node.ask(RETAIN_DEFAULT, RetainDefaultRequest(policy=hour))
        assert store.count("create") == 0
        await node.ask(RETAIN_DEFAULT, RetainDefaultRequest())
        await commit(node, vid, clock, 90)
        assert await other.retainer.enforce(vid) is None
    with pytest.raises(BadInput, match="says too little"):
        await node.ask(RETAIN_DEFAULT, RetainDefaultRequest(policy=RetentionPolicy(daily_ms=1)))
    await reread(dict(memory(store).objects))


async def test_a_policy_that_was_changed_meanwhile_is_not_enforced(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    """Whoever was told that everything stays never sees since move."""
    await two_days(node, vid, clock)
    await retain(node, vid, WEEK)
    assert await node.retention.forget_by_policy(vid, 40, WEEK) == 40
    await retain(node, vid, EVERYTHING)
    assert await node.retention.forget_by_policy(vid, 50, WEEK) == 40
    assert (await node.ask(RETAINED, VolumeRequest(vid.raw))).since == 40
    assert await node.retainer.enforce(vid) is None


async def test_of_two_who_say_it_the_later_is_heard(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    """Though the first still believes that its own word stands."""
    async with opened(store, clock) as other:
        for policy in (WEEK, EVERYTHING, WEEK):
            await retain(other, vid, policy)
            await retain(node, vid, None)
            await retain(other, vid, policy)
            assert (await node.ask(RETAINED, VolumeRequest(vid.raw))).policy == policy
            await node.ask(RETAIN_DEFAULT, RetainDefaultRequest(policy=policy))
            await other.ask(RETAIN_DEFAULT, RetainDefaultRequest())
            await node.ask(RETAIN_DEFAULT, RetainDefaultRequest(policy=policy))
            assert (await other.ask(RETAINED_DEFAULT, Done())).policy == policy


async def test_much_is_done_in_parts(store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId) -> None:
    for lsn in range(1, MOST_HOLDS + 40):
        await commit(node, vid, clock, lsn)
    await retain(node, vid, RetentionPolicy(all_ms=HOUR_MS, hourly_ms=90 * DAY_MS))
    done = await node.retainer.enforce(vid)
    assert done == Enforced(MOST_HOLDS + 38, MOST_HOLDS + 37)
    assert len(await held(node, vid)) == MOST_HOLDS + 37


async def test_it_is_kept_by_rollups_and_by_moves(store: RiggedStore, clock: ManualClock) -> None:
    """And every one says that a reader must know of policies."""
    vid, other = VolumeId.new(), VolumeId.new()
    async with opened(store, clock, "main") as node:
        for each in (vid, other):
            await node.ask(CREATE, CreateRequest(each.raw, page_size=PAGE))
            await commit(node, each, clock, 1 if each is vid else 2)
        await retain(node, vid, WEEK)
        await retain(node, other, EVERYTHING)
        await node.ask(RETAIN_DEFAULT, RetainDefaultRequest(policy=WEEK))
        names = str(node.root.names_id)
        for log in ("main", names):
            await roll_up(node, log)
        await commit(node, vid, clock, 3)
        await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="private"))
        await roll_up(node, str(vid))
        await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))
        await retain(node, other, None)
        await roll_up(node, "main")
    check_all(store)
    async with opened(store, clock) as fresh:
        assert (await fresh.ask(RETAINED, VolumeRequest(vid.raw))).policy == WEEK
        assert (await fresh.ask(RETAINED, VolumeRequest(other.raw))).policy is None
        assert (await fresh.ask(RETAINED_DEFAULT, Done())).policy == WEEK
    rollups = {key: data for key, data in memory(store).objects.items() if "/rollups/" in key}
    assert {key.split("/")[1] for key in rollups} == {"main", names, str(vid)}
    for key, data in rollups.items():
        _, log, _, name = key.split("/", 3)
        assert int.from_bytes(data[8:16], "little") & POLICIES
        assert parse_rollup(log, name, data).policies
    await reread(dict(memory(store).objects))


async def test_who_may_not_append_makes_no_pin(store: RiggedStore, clock: ManualClock) -> None:
    async with opened(store, clock, "main") as owner:
        vid = VolumeId.new()
        await owner.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await two_days(owner, vid, clock)
        await retain(owner, vid, WEEK)
        async with opened(store, clock) as reader:
            store.forget()
            with pytest.raises(NotOwner):
                await reader.retainer.enforce(vid)
            assert store.count("create") == 0
        assert await owner.retainer.enforce(vid)


async def test_a_removed_volume_takes_no_policy_and_its_own_keeps_nothing(
    clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    await two_days(node, vid, clock)
    await retain(node, vid, WEEK)
    assert await node.retainer.enforce(vid) is not None
    await node.ask(REMOVE, VolumeRequest(vid.raw))
    for policy in (WEEK, EVERYTHING, None):
        with pytest.raises(NotFound, match="was removed"):
            await retain(node, vid, policy)
    clock.advance(365 * 86_400)
    assert await node.retainer.enforce(vid) is None
    assert not [pin for pin in (await node.ask(PINS, VolumeRequest(vid.raw))).pins if pin.holds]
    for lsn in range(1, 73):
        with pytest.raises(NotFound, match="was removed"):
            await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=lsn))


async def test_a_fork_thins_out_its_own_and_not_its_parent_s(clock: ManualClock, node: Node, vid: VolumeId) -> None:
    await commit(node, vid, clock, 1)
    await commit(node, vid, clock, 1.5)
    child = VolumeId.new()
    await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=2))
    for hours in (2, 2.5, 3.5, 9):
        await commit(node, child, clock, hours)
    await retain(node, child, RetentionPolicy(all_ms=HOUR_MS, hourly_ms=DAY_MS))
    clock.advance(24 * 3600 * 0.5)
    done = await node.retainer.enforce(child)
    assert done is not None
    assert done.since == 6
    assert set(await held(node, child)) == {(3, HOURLY), (4, HOURLY), (5, HOURLY)}
    assert await held(node, vid) == {}
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=1))).lsn == 1
    assert await pages_at(node, child, 2) == await pages_at(node, vid, 2)


async def test_what_a_policy_holds_is_not_for_others_to_renew(clock: ManualClock, node: Node, vid: VolumeId) -> None:
    await two_days(node, vid, clock)
    await retain(node, vid, WEEK)
    await node.retainer.enforce(vid)
    pin = (await node.ask(PINS, VolumeRequest(vid.raw))).pins[0]
    with pytest.raises(BadInput, match="is the policy's"):
        await node.ask(RENEW, RenewRequest(vid.raw, pin=pin.id, seconds=1))
    for kind in OF_POLICIES:
        with pytest.raises(BadInput, match="no kind of pin"):
            await node.ask(PIN, PinRequest(vid.raw, pin=PinId.new().raw, seconds=1, kind=kind))


async def test_what_lies_behind_a_fold_is_found_by_its_hour(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    """And a time of which nobody knows any more what was the newest then is forgotten, with the oldest that is left."""
    await two_days(node, vid, clock)
    await retain(node, vid, WEEK)
    await node.retainer.enforce(vid)
    assert await node.folder.fold(vid)
    async with opened(store, clock) as fresh:
        for each in (node, fresh):
            for hour in (24, *range(37, 49)):
                assert (await each.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=at(hour)))).lsn == hour * 3 // 2
            # LSN 55 is of 36:40, and was the newest until 37:20: as far as is known, until 37:00.
            assert (await each.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=at(36.7)))).lsn == 55
            for hours in (23.9, 36.6, 37.1, 30):
                with pytest.raises(Forgotten) as caught:
                    await each.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=at(hours)))
                assert caught.value.oldest == 69
            with pytest.raises(Forgotten) as caught:
                await each.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=56))
            assert caught.value.oldest == 69


async def test_a_label_stands_once(store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId) -> None:
    for hours in range(1, 6):
        await commit(node, vid, clock, hours)

    def called(label: str, lsn: int | None = None, owner: str = "") -> PinRequest:
        return PinRequest(vid.raw, lsn=lsn, seconds=0, kind="named", label=label, owner=owner)

    first = await node.ask(PIN, called("v1", 2))
    assert (first.label, first.lsn, first.expiry) == ("v1", 2, 0)
    assert await node.ask(PIN, called("v1", 2)) == first
    assert (await node.ask(PIN, called("v2", 2))).id != first.id
    async with opened(store, clock) as other:
        with pytest.raises(AlreadyExists, match=f"LSN 2 is called 'v1' already: unpin {first.pin_id}"):
            await other.ask(PIN, called("v1", 3))
        for turn in range(3):
            await other.ask(UNPIN, UnpinRequest(vid.raw, pin=first.id))
            made: list[int] = []
            refused: list[AlreadyExists] = []

            async def name(by: Node, lsn: int) -> None:
                try:
                    made.append((await by.ask(PIN, called("v1", lsn))).lsn)  # noqa: B023
                except AlreadyExists as error:
                    refused.append(error)  # noqa: B023

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(name, node, 3)
                tasks.start_soon(name, other, 4 + turn % 2)
            assert (len(made), len(refused)) == (1, 1)
            (first,) = [pin for pin in (await node.ask(PINS, VolumeRequest(vid.raw))).pins if pin.label == "v1"]
            assert first.lsn == made[0]
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=5))
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, label="v2"))).lsn == 2
    with pytest.raises(NotFound, match=r"no LSN of volume .* is called 'v3'"):
        await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, label="v3"))
    for label in ("@a", " a", "a\n", "x" * 256):
        with pytest.raises(BadInput, match="label"):
            await node.ask(PIN, called(label))
    await reread(dict(memory(store).objects))


async def test_a_fork_knows_the_labels_that_it_shares(clock: ManualClock, node: Node, vid: VolumeId) -> None:
    for hours in range(1, 5):
        await commit(node, vid, clock, hours)
    child = VolumeId.new()
    await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=3))
    for label, lsn in (("shared", 2), ("later", 4)):
        await node.ask(PIN, PinRequest(vid.raw, lsn=lsn, seconds=0, kind="named", label=label))
    assert (await node.ask(SNAPSHOT, SnapshotRequest(child.raw, label="shared"))).lsn == 2
    with pytest.raises(NotFound):
        await node.ask(SNAPSHOT, SnapshotRequest(child.raw, label="later"))
    await commit(node, child, clock, 5)
    await node.ask(PIN, PinRequest(child.raw, lsn=4, seconds=0, kind="named", label="shared"))
    assert (await node.ask(SNAPSHOT, SnapshotRequest(child.raw, label="shared"))).lsn == 4
    with pytest.raises(BadInput, match="by LSN, by time or by label"):
        await node.ask(SNAPSHOT, SnapshotRequest(child.raw, label="shared", lsn=1))


async def test_a_fork_s_own_label_goes_first_also_on_an_lsn_that_this_process_has_not_seen(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    await commit(node, vid, clock, 1)
    child = VolumeId.new()
    await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=1))
    await node.ask(PIN, PinRequest(vid.raw, lsn=1, seconds=0, kind="named", label="v1"))
    async with opened(store, clock) as other:
        assert (await other.ask(SNAPSHOT, SnapshotRequest(child.raw, label="v1"))).lsn == 1
        await commit(node, child, clock, 2)
        await node.ask(PIN, PinRequest(child.raw, seconds=0, kind="named", label="v1"))
        assert (await other.ask(SNAPSHOT, SnapshotRequest(child.raw, label="v1"))).lsn == 2


async def test_a_label_that_nobody_must_pass_over_is_damage(store: RiggedStore, node: Node, vid: VolumeId) -> None:
    from budwood.volume.envelope import PIN as MAGIC
    from budwood.volume.envelope import encode, seal
    from budwood.volume.pins import parse_pin, pin_key

    await node.ask(PIN, PinRequest(vid.raw, lsn=0, seconds=0, kind="named", label="empty"))
    pin = (await node.ask(PINS, VolumeRequest(vid.raw))).pins[0]
    with pytest.raises(Corrupt, match="it has a label"):
        parse_pin(pin_key(pin), seal(MAGIC, encode(pin)))
