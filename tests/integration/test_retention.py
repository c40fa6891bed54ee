"""Pins, since and collections over a store, by several processes at once (DESIGN §5). Crashes: tests/fault, and
tests/property/test_retention_machine.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import msgspec
import pytest

from budwood.server.metastore.pin_store import BELIEVED_SECONDS, PINS_PAGE
from budwood.server.metastore.retention import Collecting
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FORK,
    MOVE_LOG,
    PIN,
    PINS,
    PULL_CHANGES,
    PULL_COMMITS,
    RENEW,
    SNAPSHOT,
    UNPIN,
    CreateRequest,
    ForkRequest,
    MoveRequest,
    PinRequest,
    RangeRequest,
    RenewRequest,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
    VolumeRequest,
)
from budwood.volume.errors import AlreadyExists, BadInput, Forgotten, NotFound, Unavailable
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.pageset import PageSet, decode_pages
from budwood.volume.pins import ASKED_MS, Pin, PinState, parse_pin, pin_key, pins_prefix, seal_pin
from budwood.volume.protocols import Remote

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()
SKEW = 10.0


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture
def clock() -> ManualClock:
    """Of every node here; requests take no time on it."""
    return ManualClock(1_000_000.0, jumps=True)


@asynccontextmanager
async def opened(store: RiggedStore, clock: ManualClock, name: str | None = None) -> AsyncGenerator[Node, None]:
    patience = Patience(deadline_seconds=5, now=clock.now, sleep=clock.sleep)
    async with Node.open(store, name=name, patience=patience, now_ms=clock.now_ms, skew_seconds=SKEW) as node:
        yield node


@pytest.fixture
async def node(store: RiggedStore, clock: ManualClock) -> AsyncIterator[Node]:
    async with opened(store, clock) as node:
        yield node


def revision(number: int) -> str:
    """The keys of any pin's revision of that number."""
    return f"volumes/*/pins/*/{2**64 - 1 - number:016x}"


def content(lsn: int) -> dict[int, bytes]:
    return {1: bytes([lsn]) * PAGE, lsn + 1: bytes([100 + lsn]) * PAGE}


@pytest.fixture
async def vid(node: Node) -> VolumeId:
    """At LSN 6; each commit writes page 1 and one more."""
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    await commits(node, vid, 0, 6)
    return vid


async def commits(remote: Remote, vid: VolumeId, after: int, to: int) -> None:
    for lsn in range(after + 1, to + 1):
        # Each page is the last when it comes, so that no commit cuts anything.
        floor = lsn * PAGE if lsn > 1 else 0
        request, segment = commit_of(vid, lsn - 1, content(lsn), client=ANN, page_size=PAGE, floor=floor)
        assert (await remote.commit(request, segment)).lsn == lsn


async def readable(remote: Remote, vid: VolumeId, newest: int = 6) -> list[int]:
    """The LSNs that can be read; of each, every way to ask must agree, and the pages be right."""
    found: list[int] = []
    for lsn in range(1, newest + 1):
        try:
            assert (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=lsn))).lsn == lsn
        except Forgotten:
            for ask in (
                lambda lsn=lsn: pages_at(remote, vid, lsn),
                lambda lsn=lsn: remote.ask(PULL_CHANGES, RangeRequest(vid.raw, after=lsn)),
                lambda lsn=lsn: remote.ask(PULL_CHANGES, RangeRequest(vid.raw, to=lsn)),
                lambda lsn=lsn: remote.ask(PULL_COMMITS, RangeRequest(vid.raw, after=lsn - 1, to=lsn)),
            ):
                with pytest.raises(Forgotten):
                    await ask()
            continue
        pages = await pages_at(remote, vid, lsn)
        assert pages[1] == content(lsn)[1]
        assert set(pages) == set(range(1, lsn + 2))
        assert decode_pages("", (await remote.ask(PULL_CHANGES, RangeRequest(vid.raw, to=lsn))).pages) >= PageSet(pages)
        assert [
            info.lsn for info in (await remote.ask(PULL_COMMITS, RangeRequest(vid.raw, after=lsn - 1, to=lsn))).commits
        ] == [lsn]
        found.append(lsn)
    return found


async def hold(remote: Remote, vid: VolumeId, lsn: int | None, seconds: float = 60.0) -> Pin:
    return await remote.ask(PIN, PinRequest(vid.raw, lsn=lsn, seconds=seconds, owner="a test", pin=PinId.new().raw))


async def test_below_since_an_lsn_is_forgotten_unless_a_pin_holds_it(store: RiggedStore, clock: ManualClock, node: Node,
    vid: VolumeId) -> None:  # fmt: skip
    """S2.14, S3.1: the same for everyone, at once; the snapshot says from where on all can be read."""
    pin = await hold(node, vid, 2)
    assert (pin.lsn, pin.state, pin.vid, pin.owner, pin.kind) == (2, PinState.LIVE, vid.raw, "a test", "lease")
    assert pin.expiry == clock.now_ms() + 60_000
    assert (await node.ask(ADVANCE, SinceRequest(vid.raw, since=4))).since == 4
    async with opened(store, clock) as other:
        for remote in (node, other):
            assert await readable(remote, vid) == [2, 4, 5, 6]
            info = await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))
            assert (info.since, info.upper) == (4, 7)
            assert (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=2))).since == 4
            assert (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=0))).length == 0
            assert [info.lsn for info in (await remote.ask(PULL_COMMITS, RangeRequest(vid.raw))).commits] == [
                4,
                5,
                6,
            ]
            assert [info.lsn for info in (await remote.ask(PULL_COMMITS, RangeRequest(vid.raw, after=3))).commits] == [
                4,
                5,
                6,
            ]
            with pytest.raises(Forgotten):
                await remote.ask(PULL_COMMITS, RangeRequest(vid.raw, after=2))
            assert decode_pages("", (await remote.ask(PULL_CHANGES, RangeRequest(vid.raw, after=2))).pages) == PageSet(
                [1, 4, 5, 6, 7]
            )
    with pytest.raises(Forgotten, match=f"LSN 1 of volume {vid} is forgotten, and no pin holds it: read one of 4 to 6"):
        await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=1))


async def test_a_time_that_is_forgotten_says_so(node: Node, clock: ManualClock, vid: VolumeId) -> None:
    clock.advance(100)
    then = clock.now_ms() - 50_000
    await commits(node, vid, 6, 7)
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=then))).lsn == 6
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=7))
    with pytest.raises(Forgotten):
        await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=then))


async def test_since_never_goes_back_nor_beyond_the_head(node: Node, vid: VolumeId) -> None:
    """S3.15."""
    assert (await node.ask(ADVANCE, SinceRequest(vid.raw, since=3))).since == 3
    assert (await node.ask(ADVANCE, SinceRequest(vid.raw, since=2))).since == 3
    with pytest.raises(NotFound):
        await node.ask(ADVANCE, SinceRequest(vid.raw, since=7))
    with pytest.raises(BadInput):
        await node.ask(ADVANCE, SinceRequest(vid.raw, since=0))
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).since == 3


async def test_reads_from_since_on_ask_for_no_pins_and_others_do_once_in_a_while(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    await hold(node, vid, 2)
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=4))
    store.forget()
    await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=4))
    await pages_at(node, vid, 5)
    assert store.count("list") == 0
    clock.advance(BELIEVED_SECONDS + 1)
    for _ in range(5):
        await pages_at(node, vid, 2)
    assert store.count("list") == 1
    assert store.count("get", "volumes/*") <= 1, "a revision that was read never changes"
    clock.advance(BELIEVED_SECONDS + 1)
    await pages_at(node, vid, 2)
    assert store.count("list") == 2
    assert store.count("get", "volumes/*") <= 1


async def test_that_nobody_holds_an_lsn_is_asked_anew(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    """A pin that was made through another process counts from the moment when it stands."""
    await hold(node, vid, 1)
    async with opened(store, clock) as other:
        await other.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        await node.ask(ADVANCE, SinceRequest(vid.raw, since=4))
        with pytest.raises(Forgotten):
            await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=3))
        await hold(other, vid, 3)
        assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=3))).lsn == 3


async def test_a_pin_ends_when_it_is_released_or_has_expired(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    lease, forever = await hold(node, vid, 1, 60), await hold(node, vid, 2, 0)
    assert forever.expiry == 0
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=6))
    clock.advance(60 + SKEW)
    assert await readable(node, vid) == [1, 2, 6]
    clock.advance(BELIEVED_SECONDS + 0.1)
    assert await readable(node, vid) == [2, 6]
    assert [pin.state for pin in await chain(store, lease)] == [PinState.ASKED, PinState.LIVE, PinState.EXPIRED]
    with pytest.raises(NotFound, match="has expired"):
        await node.ask(RENEW, RenewRequest(vid.raw, pin=lease.pin_id.raw, seconds=60))
    await node.ask(UNPIN, UnpinRequest(vid.raw, pin=lease.pin_id.raw))
    assert [pin.id for pin in (await node.ask(PINS, VolumeRequest(vid.raw))).pins] == [forever.id]
    await node.ask(UNPIN, UnpinRequest(vid.raw, pin=forever.pin_id.raw))
    await node.ask(UNPIN, UnpinRequest(vid.raw, pin=forever.pin_id.raw))
    assert [pin.state for pin in await chain(store, forever)] == [PinState.ASKED, PinState.LIVE, PinState.RELEASED]
    clock.advance(BELIEVED_SECONDS + 0.1)
    assert await readable(node, vid) == [6]
    assert (await node.ask(PINS, VolumeRequest(vid.raw))).pins == ()
    with pytest.raises(NotFound, match="was released"):
        await node.ask(RENEW, RenewRequest(vid.raw, pin=forever.pin_id.raw, seconds=60))
    for unknown in (
        node.ask(RENEW, RenewRequest(vid.raw, pin=PinId.new().raw, seconds=60)),
        node.ask(UNPIN, UnpinRequest(vid.raw, pin=PinId.new().raw)),
    ):
        with pytest.raises(NotFound, match="has no pin"):
            await unknown


async def test_an_expiry_is_only_proposed_until_someone_enacts_it(
    node: Node, clock: ManualClock, vid: VolumeId
) -> None:
    """S3.22: the holder's clock decides nothing; a renewal that comes before the end of it counts."""
    pin = await hold(node, vid, 1, 1)
    clock.advance(3600)
    again = await node.ask(RENEW, RenewRequest(vid.raw, pin=pin.pin_id.raw, seconds=60))
    assert (again.state, again.expiry, again.rev) == (PinState.LIVE, clock.now_ms() + 60_000, pin.rev + 1)
    assert await node.ask(RENEW, RenewRequest(vid.raw, pin=pin.pin_id.raw, seconds=30)) == again, (
        "a lease never gets shorter, nor a revision longer for that"
    )
    assert (await node.ask(RENEW, RenewRequest(vid.raw, pin=pin.pin_id.raw, seconds=0))).expiry == 0
    assert (await node.ask(RENEW, RenewRequest(vid.raw, pin=pin.pin_id.raw, seconds=60))).expiry == 0


@pytest.mark.parametrize("skew", [-SKEW, 0, SKEW])
async def test_clocks_that_lie_apart_by_no_more_than_the_skew_end_no_lease_that_is_renewed_in_time(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId, skew: float
) -> None:
    """S0.27."""
    pin = await hold(node, vid, 1, 20)
    other_clock = ManualClock(clock.now() + skew, jumps=True)
    async with opened(store, other_clock) as other:
        for _ in range(4):
            clock.advance(19)
            other_clock.advance(19)
            assert [found.id for found in (await other.ask(PINS, VolumeRequest(vid.raw))).pins] == [pin.id]
            await node.ask(RENEW, RenewRequest(vid.raw, pin=pin.pin_id.raw, seconds=20))
        clock.advance(20 + 2 * SKEW + 1)
        other_clock.advance(20 + 2 * SKEW + 1)
        assert (await other.ask(PINS, VolumeRequest(vid.raw))).pins == ()


async def test_two_who_renew_at_once_both_have_their_time(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    pin = await hold(node, vid, 1, 10)
    answers: list[Pin] = []
    async with opened(store, clock) as other:

        async def renew(remote: Remote, seconds: float) -> None:
            found = await remote.ask(RENEW, RenewRequest(vid.raw, pin=pin.pin_id.raw, seconds=seconds))
            assert found.expiry >= clock.now_ms() + seconds * 1000
            answers.append(found)

        async with anyio.create_task_group() as tasks:
            for seconds in range(20, 30):
                tasks.start_soon(renew, (node, other)[seconds % 2], seconds)
    revisions = await chain(store, pin)
    assert max(found.expiry for found in answers) == revisions[-1].expiry == clock.now_ms() + 29_000
    assert all(a.expiry <= b.expiry for a, b in pairwise(revisions[1:]))
    assert all(found in revisions for found in answers)


async def test_of_a_renewal_and_a_release_at_once_the_release_counts(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    pin = await hold(node, vid, 1)
    async with opened(store, clock) as other:

        async def renew() -> None:
            try:
                await other.ask(RENEW, RenewRequest(vid.raw, pin=pin.pin_id.raw, seconds=600))
            except NotFound as error:
                assert "was released" in str(error)  # noqa: PT017  (both outcomes are right)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(renew)
            tasks.start_soon(node.unpin, UnpinRequest(vid.raw, pin=pin.id))
    assert (await chain(store, pin))[-1].state is PinState.RELEASED


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("nth", [1, 2])
async def test_a_lost_answer_is_settled_by_what_stands(
    store: RiggedStore, node: Node, vid: VolumeId, nth: int, arrives: bool
) -> None:
    lost = Unavailable("no answer", determinate=False)
    rule = store.add(Rule(op="create", key="volumes/*/pins/*", nth=nth))
    rule.before, rule.after = (None, lost) if arrives else (lost, None)
    pin = await hold(node, vid, 2)
    assert rule.fired == 1
    assert [found.state for found in await chain(store, pin)] == [PinState.ASKED, PinState.LIVE]
    rule = store.add(Rule(op="create", key="volumes/*/pins/*"))
    rule.before, rule.after = (None, lost) if arrives else (lost, None)
    assert (await node.ask(RENEW, RenewRequest(vid.raw, pin=pin.pin_id.raw, seconds=600))).rev == 2
    assert rule.fired == 1


async def test_a_pin_that_is_asked_for_again_by_its_id_is_one_pin(node: Node, vid: VolumeId) -> None:
    one = PinId.new()
    first = await node.ask(PIN, PinRequest(vid.raw, lsn=2, seconds=60, pin=one.raw))
    assert await node.ask(PIN, PinRequest(vid.raw, lsn=2, seconds=60, pin=one.raw)) == first
    with pytest.raises(AlreadyExists, match="for LSN 2"):
        await node.ask(PIN, PinRequest(vid.raw, lsn=3, seconds=60, pin=one.raw))
    await node.ask(UNPIN, UnpinRequest(vid.raw, pin=one.raw))
    with pytest.raises(NotFound, match="was released"):
        await node.ask(PIN, PinRequest(vid.raw, lsn=2, seconds=60, pin=one.raw))


async def test_the_newest_is_found_and_pinned_in_one_call(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    async with opened(store, clock) as other:
        await other.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        await commits(node, vid, 6, 7)
        assert (await hold(other, vid, None)).lsn == 7
        with pytest.raises(NotFound):
            await hold(other, vid, 8)


async def test_what_nothing_holds_below_since_can_not_be_pinned_and_what_a_pin_holds_can(
    node: Node, vid: VolumeId
) -> None:
    """S0.25, S0.24: a target must be current, or pinned already; two may share it."""
    first = await hold(node, vid, 2)
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=4))
    with pytest.raises(Forgotten):
        await hold(node, vid, 3)
    for _ in range(2):
        collecting = await node.retention.begin_collect(vid)
        assert collecting == Collecting(4, frozenset({2}))
        second = await hold(node, vid, 2)
        await node.ask(UNPIN, UnpinRequest(vid.raw, pin=first.pin_id.raw))
        first = second
    await node.ask(UNPIN, UnpinRequest(vid.raw, pin=first.pin_id.raw))
    assert await node.retention.begin_collect(vid) == Collecting(4, frozenset())
    await node.retention.end_collect(vid, 4)


async def test_a_collect_that_comes_between_a_pin_and_its_check_refuses_it(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    """B11: the collector has listed before the pin stood, so it doesn't know of it."""
    listed = store.add(Rule(op="create", key="volumes/*/pins/*", gate=anyio.Event()))
    refusals: list[Forgotten] = []

    async def pin() -> None:
        with pytest.raises(Forgotten) as refused:
            await hold(node, vid, 2)
        refusals.append(refused.value)

    async with opened(store, clock) as other, anyio.create_task_group() as tasks:
        tasks.start_soon(pin)
        await listed.reached.wait()
        await other.ask(ADVANCE, SinceRequest(vid.raw, since=4))
        assert await other.retention.begin_collect(vid) == Collecting(4, frozenset())
        assert listed.gate is not None
        listed.gate.set()
    assert len(refusals) == 1
    assert (await node.ask(PINS, VolumeRequest(vid.raw))).pins == ()


async def test_a_collect_that_comes_after_a_pin_is_asked_for_keeps_its_lsn(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    """Also before it is live: a collector can't know how that ends. And it lets nobody read until then."""
    asked = store.add(Rule(op="create", key=revision(1), gate=anyio.Event()))
    async with opened(store, clock) as other, anyio.create_task_group() as tasks:
        tasks.start_soon(hold, node, vid, 2)
        await asked.reached.wait()
        await other.ask(ADVANCE, SinceRequest(vid.raw, since=4))
        assert await other.retention.begin_collect(vid) == Collecting(4, frozenset({2}))
        assert await readable(other, vid) == [4, 5, 6]
        assert asked.gate is not None
        asked.gate.set()
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).since == 4
    assert await readable(node, vid) == [2, 4, 5, 6]


async def test_another_pin_that_is_only_asked_for_proves_nothing(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    """Two pins that both came after the collector's list must not vouch for each other."""
    await hold(node, vid, 1)
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=4))
    pins = (await node.ask(PINS, VolumeRequest(vid.raw))).pins
    async with opened(store, clock) as other:
        gates = [store.add(Rule(op="create", key=revision(0), gate=anyio.Event()))]
        gates.append(store.add(Rule(op="create", key=revision(0), nth=2, gate=anyio.Event())))
        refused: list[object] = []

        async def pin(remote: Remote) -> None:
            try:
                await hold(remote, vid, 1)
            except Forgotten as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            for remote, gate in zip((node, other), gates, strict=True):
                tasks.start_soon(pin, remote)
                await gate.reached.wait()
            # Both have seen the LSN held; now it is released, and collected.
            await node.ask(UNPIN, UnpinRequest(vid.raw, pin=pins[0].pin_id.raw))
            assert await other.retention.begin_collect(vid) == Collecting(4, frozenset())
            for gate in gates:
                assert gate.gate is not None
                gate.gate.set()
        assert len(refused) == 2
        assert (await node.ask(PINS, VolumeRequest(vid.raw))).pins == ()


async def test_a_pin_whose_maker_died_before_it_was_live_ends_by_itself_or_by_a_repetition(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    ids = PinId.new(), PinId.new()
    rule = store.add(Rule(op="create", key=revision(1), times=None))
    rule.before = Unavailable("gone", determinate=True)
    for one in ids:
        with pytest.raises(Unavailable):
            await node.ask(PIN, PinRequest(vid.raw, lsn=2, seconds=0, pin=one.raw))
    store.rules.remove(rule)
    assert (await node.ask(RENEW, RenewRequest(vid.raw, pin=ids[0].raw, seconds=60))).state is PinState.LIVE
    clock.advance((ASKED_MS / 1000) + SKEW + 1)
    # The other was asked for, for ever; but it was never live.
    assert ids[1] not in [pin.pin_id for pin in (await node.ask(PINS, VolumeRequest(vid.raw))).pins]
    with pytest.raises(NotFound, match="has expired"):
        await node.ask(PIN, PinRequest(vid.raw, lsn=2, seconds=0, pin=ids[1].raw))


async def test_a_fork_holds_its_lsn_and_a_pin_on_a_shared_one_lies_with_the_parent(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    child = VolumeId.new()
    await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=3))
    await commits(node, child, 3, 6)
    assert (await node.ask(SNAPSHOT, SnapshotRequest(child.raw))).since == 3
    pin = await hold(node, child, 2)
    assert pin.vid == vid.raw
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=5))
    assert await node.retention.begin_collect(vid) == Collecting(5, frozenset({2, 3}))
    async with opened(store, clock) as other:
        for remote in (node, other):
            assert await readable(remote, vid) == [2, 3, 5, 6]
            assert await readable(remote, child) == [2, 3, 4, 5, 6]
            assert [info.lsn for info in (await remote.ask(PULL_COMMITS, RangeRequest(child.raw))).commits] == [
                3,
                4,
                5,
                6,
            ]
    assert (await node.ask(RENEW, RenewRequest(child.raw, pin=pin.pin_id.raw, seconds=600))).vid == vid.raw
    await node.ask(UNPIN, UnpinRequest(child.raw, pin=pin.pin_id.raw))
    clock.advance(BELIEVED_SECONDS + 0.1)
    assert await readable(node, child) == [3, 4, 5, 6]
    await node.ask(ADVANCE, SinceRequest(child.raw, since=5))
    assert await readable(node, child) == [3, 5, 6]
    assert (await node.ask(SNAPSHOT, SnapshotRequest(child.raw))).since == 5


async def test_a_fork_is_listed_as_the_pin_that_it_is_and_nobody_releases_it(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    child, lease = VolumeId.new(), await hold(node, vid, 2)
    await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=3))
    snapshot = await node.ask(SNAPSHOT, SnapshotRequest(child.raw, lsn=1))
    assert (snapshot.parent, snapshot.parent_lsn) == (vid.raw, 3)
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).parent == b""
    async with opened(store, clock) as other:
        for remote in (node, other):
            by_owner = {pin.owner: pin for pin in (await remote.ask(PINS, VolumeRequest(vid.raw))).pins}
            fork = by_owner[str(child)]
            assert (fork.kind, fork.lsn, fork.vid, fork.expiry, fork.state) == ("fork", 3, vid.raw, 0, PinState.LIVE)
            assert {pin.pin_id for pin in by_owner.values()} == {fork.pin_id, lease.pin_id}
            for asked in (vid, child):
                with pytest.raises(BadInput, match="belongs to a fork"):
                    await remote.ask(UNPIN, UnpinRequest(asked.raw, pin=fork.pin_id.raw))
            assert (await remote.ask(RENEW, RenewRequest(vid.raw, pin=fork.pin_id.raw, seconds=60))).expiry == 0
            assert (await remote.ask(PINS, VolumeRequest(child.raw))).pins == ()


async def test_a_fork_of_what_a_pin_alone_holds_or_of_a_parents_lsn_holds_it_with_a_pin_of_its_own(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    lease, child, grandchild, late = await hold(node, vid, 2), VolumeId.new(), VolumeId.new(), VolumeId.new()
    await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=4))
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=5))
    await node.ask(FORK, ForkRequest(child.raw, child=grandchild.raw, lsn=2))
    await node.ask(UNPIN, UnpinRequest(vid.raw, pin=lease.pin_id.raw))
    assert await node.retention.begin_collect(vid) == Collecting(5, frozenset({2, 4}))
    await node.ask(FORK, ForkRequest(vid.raw, child=late.raw, lsn=2))
    (own,) = [pin for pin in (await node.ask(PINS, VolumeRequest(vid.raw))).pins if pin.owner == str(late)]
    assert (own.kind, own.owner, own.lsn, own.expiry) == ("fork", str(late), 2, 0)
    clock.advance(10 * 365 * 86_400)
    async with opened(store, clock) as other:
        assert await other.retention.begin_collect(vid) == Collecting(5, frozenset({2, 4}))
        for fork in (grandchild, late):
            assert (await pages_at(other, fork))[1] == content(2)[1]
            assert await readable(other, fork, 2) == [2]
    with pytest.raises(BadInput, match="belongs to a fork"):
        await node.ask(UNPIN, UnpinRequest(vid.raw, pin=own.pin_id.raw))
    with pytest.raises(Forgotten):
        await node.ask(FORK, ForkRequest(vid.raw, child=VolumeId.new().raw, lsn=3))


async def test_a_fork_of_what_is_held_is_made_by_a_process_that_did_not_know_of_the_collection(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    await hold(node, vid, 2)
    async with opened(store, clock) as other:
        assert (await other.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 6
        await node.ask(ADVANCE, SinceRequest(vid.raw, since=5))
        assert await node.retention.begin_collect(vid) == Collecting(5, frozenset({2}))
        child = VolumeId.new()
        await other.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=2))
        assert (await pages_at(other, child))[1] == content(2)[1]
        with pytest.raises(Forgotten):
            await other.ask(FORK, ForkRequest(vid.raw, child=VolumeId.new().raw, lsn=3))


async def test_a_renewal_asks_the_store_the_same_however_often_the_pin_was_renewed(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    """The tip of a chain is its first key; of 1,500 revisions none but that and one more is listed."""
    pin = await hold(node, vid, 2)

    async def renewed() -> tuple[list[str], int]:
        store.forget()
        clock.advance(1)
        await node.ask(RENEW, RenewRequest(vid.raw, pin=pin.pin_id.raw, seconds=60))
        listed = store.received_bytes("list", "volumes/*") // len(pin_key(pin))
        return [request.op for request in store.requests], listed

    first = await renewed()
    assert first[1] == 2
    for _ in range(1_500):
        await renewed()
    assert await renewed() == first
    assert (await chain(store, pin))[-1].rev == 1 + 1_502


async def test_the_pins_of_a_volume_are_listed_without_their_old_revisions(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    """One page where there are few; one for each pin whose revisions fill more than that."""
    few = [await hold(node, vid, lsn) for lsn in (2, 3, 4)]
    store.forget()
    # Two of one millisecond come in any order.
    assert {pin.lsn for pin in (await node.ask(PINS, VolumeRequest(vid.raw))).pins} == {2, 3, 4}
    assert store.count("list", pins_prefix(vid)) == 1
    for revision in range(3 * PINS_PAGE):
        for pin in (few[0], few[2]):
            stands = msgspec.structs.replace(pin, rev=pin.rev + 1 + revision, expiry=pin.expiry + revision)
            await store.create(pin_key(stands), seal_pin(stands))
    many = [*few, *[await hold(node, vid, 5) for _ in range(PINS_PAGE // 2)]]
    async with opened(store, clock) as other:
        store.forget()
        found = (await other.ask(PINS, VolumeRequest(vid.raw))).pins
    assert [pin.id for pin in found] == sorted(pin.id for pin in many)
    last = 1 + 3 * PINS_PAGE
    assert {pin.lsn: pin.rev for pin in found if pin.lsn in (2, 3, 4)} == {2: last, 3: 1, 4: last}
    assert store.count("list", pins_prefix(vid)) <= 4
    assert store.received_bytes("list", pins_prefix(vid)) <= 4 * PINS_PAGE * len(pin_key(few[0]))


async def test_since_goes_along_when_a_volume_moves_to_another_log(
    store: RiggedStore, clock: ManualClock, node: Node, vid: VolumeId
) -> None:
    await hold(node, vid, 2, 0)
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=4))
    await node.retention.begin_collect(vid)
    async with opened(store, clock, "main") as owner:
        assert (await owner.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))).log == "main"
        assert (await owner.ask(ADVANCE, SinceRequest(vid.raw, since=5))).since == 5
        assert await owner.retention.begin_collect(vid) == Collecting(5, frozenset({2}))
    async with opened(store, clock) as fresh:
        assert await readable(fresh, vid) == [2, 5, 6]


async def chain(store: RiggedStore, pin: Pin) -> list[Pin]:
    """Its revisions, as they stand in the store."""
    keys = await store.list(pins_prefix(VolumeId(pin.vid), pin.pin_id))
    revisions = [parse_pin(key, await store.get(key)) for key in reversed(keys)]
    assert [found.rev for found in revisions] == list(range(len(revisions)))
    same = {msgspec.structs.replace(found, rev=0, state=PinState.LIVE, expiry=0, time=0) for found in revisions}
    assert len(same) == 1, "a revision changes state, expiry and time alone"
    return revisions
