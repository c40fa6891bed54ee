"""Plain logs against a plain dict of lists: writers that depose each other, readers that came early or come late."""

from __future__ import annotations

from contextlib import ExitStack

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from budwood.server.log.waiting import Batching
from budwood.server.plain.log import EVER, Log, Reader, Record, StreamInfo, opened_log, opened_reader
from budwood.testing.stores import MemoryStore
from budwood.volume.errors import BadInput, NotOwner

names = st.sampled_from(["a", "b", "c/ä"])
appends = st.dictionaries(names, st.lists(st.binary(max_size=40), min_size=1, max_size=3), min_size=1)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.portal = self.stack.enter_context(start_blocking_portal("asyncio"))
        self.store = MemoryStore()
        self.model: dict[str, list[Record]] = {}
        self.metadata: dict[str, bytes] = {}
        self.closed: set[str] = set()
        self.last = 0
        self.writers: list[Log] = []
        self.take_over()
        self.early: Reader = self.portal.call(opened_reader, self.store, "events")

    def teardown(self) -> None:
        self.stack.close()

    @rule()
    def take_over(self) -> None:
        """At the end of the script the last one is closed first."""
        opened = opened_log(self.store, "events", batching=Batching(alpha=4, window_seconds=0.0))
        self.writers.append(self.stack.enter_context(self.portal.wrap_async_context_manager(opened)))

    @rule(records=appends)
    def append(self, records: dict[str, list[bytes]]) -> None:
        if self.closed & records.keys():
            with pytest.raises(BadInput, match="was closed"):
                self.portal.call(self.writers[-1].append, records)
            return
        told = self.portal.call(self.writers[-1].append, records)
        assert told == self.last + sum(map(len, records.values()))
        self._took(records)

    @rule(several=st.lists(appends, min_size=2, max_size=12))
    def append_at_once(self, several: list[dict[str, list[bytes]]]) -> None:
        """In whatever entries they land, it is in the order that they were asked for."""
        several = [each for each in several if not self.closed & each.keys()]
        told = dict[int, int]()

        async def all_at_once() -> None:
            async def one(at: int) -> None:
                told[at] = await self.writers[-1].append(several[at])

            async with anyio.create_task_group() as tasks:
                for at in range(len(several)):
                    tasks.start_soon(one, at)

        self.portal.call(all_at_once)
        for at, records in enumerate(several):
            self._took(records)
            assert told[at] == self.last

    @precondition(lambda self: len(self.writers) > 1)
    @rule(records=appends, which=st.integers(0, 9))
    def append_when_deposed(self, records: dict[str, list[bytes]], which: int) -> None:
        with pytest.raises(NotOwner, match="opened for appending by another"):
            self.portal.call(self.writers[which % (len(self.writers) - 1)].append, records)

    @rule(stream=names, metadata=st.binary(max_size=20))
    def describe(self, stream: str, metadata: bytes) -> None:
        self.portal.call(self.writers[-1].describe, stream, metadata)
        self.metadata[stream] = metadata
        self.model.setdefault(stream, [])

    @rule(stream=names, closed=st.booleans())
    def close(self, stream: str, closed: bool) -> None:
        writer = self.writers[-1]
        self.portal.call(writer.close_stream if closed else writer.open_stream, stream)
        (self.closed.add if closed else self.closed.discard)(stream)
        self.model.setdefault(stream, [])

    @rule(
        stream=names,
        after=st.integers(0, 60),
        most=st.one_of(st.just(EVER), st.integers(0, 9)),
        most_bytes=st.one_of(st.just(EVER), st.integers(0, 90)),
        early=st.booleans(),
    )
    def read(self, stream: str, after: int, most: int, most_bytes: int, early: bool) -> None:
        expected, left = list[Record](), most_bytes
        for record in self.model.get(stream, []):
            if record.position <= after:
                continue
            if len(expected) == most or (expected and len(record.data) > left):
                break
            expected.append(record)
            left -= len(record.data)
        assert self._read(self._reader(early), stream, after, most, most_bytes) == expected

    @invariant()
    def everybody_reads_the_same(self) -> None:
        infos = {
            stream: StreamInfo(
                records[0].position if records else 0,
                records[-1].position if records else 0,
                len(records),
                self.metadata.get(stream, b""),
                stream in self.closed,
            )
            for stream, records in self.model.items()
        }
        for reader in (self.early, self.writers[0], self.writers[-1]):
            assert self.portal.call(reader.streams) == infos
            assert self.portal.call(reader.last) == self.last
            for stream, records in self.model.items():
                assert self._read(reader, stream, 0, EVER, EVER) == records

    def _took(self, records: dict[str, list[bytes]]) -> None:
        for stream, each in records.items():
            for data in each:
                self.last += 1
                self.model.setdefault(stream, []).append(Record(self.last, data))

    def _reader(self, early: bool) -> Reader:
        return self.early if early else self.portal.call(opened_reader, self.store, "events")

    def _read(self, reader: Reader, stream: str, after: int, most: int, most_bytes: int) -> list[Record]:
        async def read() -> list[Record]:
            found = reader.read(stream, after=after, most=most, most_bytes=most_bytes)
            return [record async for record in found]

        return self.portal.call(read)


def test_a_plain_log_is_a_dict_of_lists() -> None:
    """S4.2, S4.3, S4.4."""
    run_state_machine_as_test(Machine)
