"""What waits for a stream is handed out a few records at a time. Whatever happens in between, each comes once and in
its order, or the taker has ended."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from budwood.server.log.reader import Canonical
from budwood.server.metastore.streams import Placed, Stop, Streams
from budwood.server.store.tree_nodes import Nodes, NotLoaded
from budwood.testing.stores import MemoryStore
from budwood.volume.errors import Corrupt, Unavailable, Unsupported
from budwood.volume.ids import VolumeId
from budwood.volume.records import Record, StreamRecords, Tombstone, encode_records
from budwood.volume.tree_node import Node, Pointer

pytestmark = pytest.mark.anyio

MANY = 2_000
VID = VolumeId.new()
STREAM = str(VID)


class Taken:
    """A taker that notes what it was given, and fails or ends where it is told."""

    def __init__(self, *, last: int = -1, fails: int = -1) -> None:
        self.slots: list[int] = []
        self.ended = 0
        self.rebased = 0
        self.told = 0
        self.lacks = False
        self.stop: Stop | None = None
        self._last = last
        self._fails = fails

    def take(self, placed: Placed) -> bool:
        if placed.slot == self._fails:
            raise Corrupt(placed.key, "what can't be")
        self.slots.append(placed.slot)
        return placed.slot != self._last

    def tell(self) -> None:
        self.told += 1

    def rebase(self) -> bool:
        self.rebased += 1
        return not self.lacks

    def end(self, stop: Stop | None = None) -> None:
        self.ended += 1
        self.stop = stop


class Log:
    """Entries of which each carries so many records of the stream."""

    def __init__(self, records: int = 1) -> None:
        self.streams = Streams(lambda: 0.0)
        self._next = 0
        self._records: tuple[Record, ...] = (Tombstone(vid=VID.raw),) * records

    def grow(self, entries: int) -> None:
        for _ in range(entries):
            self.carry(encode_records(self._records))

    def carry(self, carried: StreamRecords) -> None:
        self.streams.sink(Canonical(f"entry {self._next}", self._next, 1, {STREAM: carried}, {}))
        self._next += 1


async def attach(log: Log, taken: Taken) -> None:
    await log.streams.attach(STREAM, taken)


async def turns() -> None:
    """A few of others'."""
    for _ in range(3):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("records", [1, 3, MANY])
async def test_others_have_their_turn_and_what_comes_meanwhile_comes_behind(records: int) -> None:
    log, taken, at_once = Log(records), Taken(), list[int]()
    log.grow(MANY // records)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attach, log, taken)
        while len(taken.slots) < MANY // records * records:
            await anyio.lowlevel.checkpoint()
            at_once.append(len(taken.slots))
            if len(at_once) == 3:
                log.grow(2)
                assert len(taken.slots) == at_once[-1]
    assert max(after - before for before, after in zip([0, *at_once], at_once, strict=False)) <= 512
    log.grow(1)
    assert taken.slots == sorted([*range(MANY // records + 3)] * records)
    assert not taken.ended


async def test_the_end_of_the_reading_ends_it_half_way() -> None:
    log, taken = Log(), Taken()
    log.grow(MANY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attach, log, taken)
        await turns()
        log.streams.end()
        assert 0 < len(taken.slots) < MANY
        assert taken.ended == 1
    assert len(taken.slots) < MANY
    assert taken.ended == 1


async def test_who_is_cancelled_half_way_has_ended_and_another_is_given_all_of_it() -> None:
    log, taken, next_one = Log(), Taken(), Taken()
    log.grow(MANY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attach, log, taken)
        await turns()
        tasks.cancel_scope.cancel()
    assert taken.slots
    assert taken.ended == 1
    log.grow(1)
    assert len(taken.slots) < MANY
    assert await log.streams.attach(STREAM, next_one)
    assert next_one.slots == [*range(MANY + 1)]


async def test_a_stream_that_ends_in_its_log_leaves_what_follows_to_whoever_comes_to_it_again() -> None:
    log, taken, next_one = Log(), Taken(last=700), Taken()
    log.grow(MANY)
    assert not await log.streams.attach(STREAM, taken)
    assert taken.slots == [*range(701)]
    assert await log.streams.attach(STREAM, next_one, behind=700)
    assert next_one.slots == [*range(701, MANY)]


async def test_a_stream_that_goes_on_in_the_entry_it_ends_in_is_damage() -> None:
    log, taken = Log(records=2), Taken(last=0)
    log.grow(1)
    with pytest.raises(Corrupt, match="ends in it, and goes on"):
        await log.streams.attach(STREAM, taken)


async def test_what_the_rollup_covers_is_let_go_of_and_who_has_taken_it_is_told() -> None:
    log, taken, next_one = Log(), Taken(), Taken()
    log.grow(10)
    assert await log.streams.attach(STREAM, taken)
    log.streams.rebase(6)
    assert taken.rebased == 1
    assert [part.slot for part in log.streams.tail(STREAM)] == [7, 8, 9]
    assert {stream: [part.slot for part in parts] for stream, parts in log.streams.tails(8).items()} == {STREAM: [7, 8]}
    other = Log()
    other.grow(10)
    other.streams.rebase(6)
    assert await other.streams.attach(STREAM, next_one)
    assert next_one.slots == [7, 8, 9]


async def test_who_takes_what_the_rollup_lacks_has_ended() -> None:
    log, taken = Log(), Taken()
    log.grow(10)
    assert await log.streams.attach(STREAM, taken)
    taken.lacks = True
    log.streams.rebase(6)
    assert taken.ended == 1
    log.grow(1)
    assert taken.slots == [*range(10)]


async def test_nothing_is_taken_from_a_reading_that_has_ended() -> None:
    log, taken = Log(), Taken()
    log.grow(10)
    log.streams.end()
    assert not await log.streams.attach(STREAM, taken)
    assert (taken.ended, taken.slots) == (1, [])


class Needs(Taken):
    """Takes a record of that slot only once it was loaded."""

    def __init__(self, slot: int) -> None:
        super().__init__()
        self._needs = slot
        self.loaded = 0
        self.fails: Exception | None = None

    def take(self, placed: Placed) -> bool:
        if placed.slot == self._needs and not self.loaded:
            raise Missing(self)
        return super().take(placed)


class Missing(NotLoaded):
    def __init__(self, taken: Needs) -> None:
        pointer = Pointer(number=0, digest=b"", size=0, first=b"", count=0)
        super().__init__(Loads(taken), "nodes", pointer)


class Loads(Nodes):
    """Loads what a taker needs."""

    def __init__(self, taken: Needs) -> None:
        super().__init__(MemoryStore(), limit_bytes=0)
        self._taken = taken

    async def load_all(self, folder: str, pointers: Sequence[Pointer]) -> list[Node]:
        await anyio.lowlevel.checkpoint()
        if self._taken.fails is not None:
            raise self._taken.fails
        self._taken.loaded += 1
        return [Node() for _ in pointers]


async def test_who_lacks_something_falls_behind_and_takes_it_when_that_is_there() -> None:
    log, taken = Log(records=3), Needs(slot=5)
    log.grow(2)
    assert await log.streams.attach(STREAM, taken)
    log.grow(6)
    assert taken.slots == sorted([*range(5)] * 3)
    assert log.streams.is_behind(STREAM)
    log.streams.rebase(7)
    assert not taken.rebased, "what it lacks is still to be taken"
    taken.fails = Unavailable("no answer")
    with pytest.raises(Unavailable):
        await log.streams.catch_up(STREAM)
    taken.fails = None
    await log.streams.catch_up(STREAM)
    assert taken.loaded == 1
    assert taken.slots == sorted([*range(8)] * 3)
    assert not log.streams.is_behind(STREAM)
    assert not taken.ended


async def test_what_an_open_lacks_is_loaded_on_the_way() -> None:
    log, taken = Log(records=3), Needs(slot=5)
    log.grow(8)
    assert await log.streams.attach(STREAM, taken)
    assert (taken.loaded, taken.slots) == (1, sorted([*range(8)] * 3))


@pytest.mark.parametrize("unknown", [False, True])
async def test_a_record_that_stops_the_stream_stops_it_half_way(unknown: bool) -> None:
    log, taken = Log(), Taken(fails=-1 if unknown else 700)
    log.grow(700)
    log.carry(StreamRecords(records=(b"\x81\xa1k\xa4melt",)) if unknown else encode_records([Tombstone(vid=VID.raw)]))
    log.grow(700)
    with pytest.raises(Unsupported if unknown else Corrupt):
        await log.streams.attach(STREAM, taken)
    assert taken.slots == [*range(700)]
    assert taken.ended == 1
    assert taken.stop is not None
