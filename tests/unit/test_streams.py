"""What waits for a stream is handed out a few records at a time. Whatever happens in between, each comes once and in
its order, or the taker has ended."""

from __future__ import annotations

import anyio
import pytest

from budwood.server.log.reader import Canonical
from budwood.server.metastore.streams import Placed, Stop, Streams
from budwood.volume.errors import Corrupt, Unsupported
from budwood.volume.ids import VolumeId
from budwood.volume.records import Record, StreamRecords, Tombstone, encode_records

pytestmark = pytest.mark.anyio

MANY = 2_000
VID = VolumeId.new()
STREAM = str(VID)


class Taken:
    """A taker that notes what it was given, and fails or ends where it is told."""

    def __init__(self, *, last: int = -1, fails: int = -1) -> None:
        self.slots: list[int] = []
        self.ended = 0
        self.stop: Stop | None = None
        self._last = last
        self._fails = fails

    def take(self, placed: Placed) -> bool:
        if placed.slot == self._fails:
            raise Corrupt(placed.key, "what can't be")
        self.slots.append(placed.slot)
        return placed.slot != self._last

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


async def turns() -> None:
    """A few of others'."""
    for _ in range(3):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("records", [1, 3, MANY])
async def test_others_have_their_turn_and_what_comes_meanwhile_comes_behind(records: int) -> None:
    log, taken, at_once = Log(records), Taken(), list[int]()
    log.grow(MANY // records)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.streams.attach, STREAM, taken)
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
        tasks.start_soon(log.streams.attach, STREAM, taken)
        await turns()
        log.streams.end()
        assert 0 < len(taken.slots) < MANY
        assert taken.ended == 1
    assert len(taken.slots) < MANY
    assert taken.ended == 1


async def test_who_is_cancelled_half_way_has_ended_and_another_is_told_to_read_it_once_more() -> None:
    log, taken = Log(), Taken()
    log.grow(MANY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.streams.attach, STREAM, taken)
        await turns()
        tasks.cancel_scope.cancel()
    assert taken.slots
    assert taken.ended == 1
    log.grow(1)
    assert len(taken.slots) < MANY
    assert not log.streams.goes_on_behind(STREAM, -1)


async def test_a_stream_that_ends_in_its_log_leaves_what_follows_waiting() -> None:
    log, taken, next_one = Log(), Taken(last=700), Taken()
    log.grow(MANY)
    assert not await log.streams.attach(STREAM, taken)
    assert taken.slots == [*range(701)]
    assert log.streams.goes_on_behind(STREAM, 700)
    assert await log.streams.attach(STREAM, next_one)
    assert next_one.slots == [*range(701, MANY)]


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
