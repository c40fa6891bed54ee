"""The log by itself: streams of bytes in one order, in an object store, under one writer (docs/log.md).

    async with open_log("file:///data/store", "events") as log:
        position = await log.append({"orders": [b"one", b"two"], "audit": [b"two orders"]})
    async with open_reader("file:///data/store", "events") as reader:
        async for record in reader.read("orders", after=0, most=100):
            print(record.position, record.data)

What `append` returned for stands for everybody, whole, at consecutive positions: one object was created, and many
appends at once share one. To open a log for appending deposes whoever did before; that one's appends raise NotOwner.
Reading is of one stream from a position on: heads of entries say where its records lie, and nothing of other streams'
is fetched. Runs under asyncio and trio; everything raises BudwoodError (volume/errors.py).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import anyio
from anyio.abc import TaskGroup

from ...volume.envelope import checksum
from ...volume.errors import BadInput, Corrupt, NotFound, NotOwner, Unavailable
from ...volume.ids import check_node
from ...volume.plain_records import (
    MOST_APPEND_BYTES,
    MOST_METADATA_BYTES,
    MOST_RECORD_BYTES,
    MOST_RECORDS,
    check_stream,
)
from ..log.log_writer import LogWriter
from ..log.reader import LogReader
from ..log.submission import Submission
from ..log.term import PRIVATE, Claim, find_epoch, take_term
from ..log.waiting import Batching, allowed
from ..store.open_store import open_store
from ..store.probe import probed_root
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience, get_retried
from .draft import Append, Describe, PlainDraft
from .streams import Slice, Stream, Streams

__all__ = ["Batching", "Log", "Reader", "Record", "StreamInfo", "open_log", "open_reader"]

EVER: Final = 1 << 62
"""More than there is."""
READ_AHEAD: Final = 8
"""Entries that are asked for at once."""


class Record(NamedTuple):
    position: int
    """Counts the records of the whole log, from 1; so a stream's go up, with gaps."""
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamInfo:
    first: int
    """The positions of its first record and its last; 0 where it has none."""
    last: int
    count: int
    metadata: bytes
    closed: bool


class Reader:
    """A log to read from. Opened by `open_reader`."""

    def __init__(self, reader: LogReader, streams: Streams, patience: Patience) -> None:
        self._reader = reader
        self._streams = streams
        self._patience = patience

    @property
    def name(self) -> str:
        return self._reader.log

    async def streams(self) -> dict[str, StreamInfo]:
        """Every stream that the log has by now, by name. Raises Corrupt, Unavailable."""
        await self._reader.refresh()
        return {name: _info_of(stream) for name, stream in sorted(self._streams.streams.items())}

    async def last(self) -> int:
        """The position of the log's last record by now; 0 where it has none. Raises Corrupt, Unavailable."""
        await self._reader.refresh()
        return self._streams.last

    async def read(
        self, stream: str, *, after: int = 0, most: int = EVER, most_bytes: int = EVER
    ) -> AsyncGenerator[Record]:
        """The stream's records behind that position, up to the last that stands when this begins: so many at most, and
        so many bytes, of which one record may be more. Of a stream that isn't there, none.

        Raises Corrupt, Unsupported where the stream can't be followed any further, after all that stands before;
        Unavailable.
        """
        if after < 0 or most < 0 or most_bytes < 0:
            raise BadInput("positions and limits are 0 or more")
        check_stream(stream)
        await self._reader.refresh()
        found = self._streams.streams.get(stream, Stream())
        slices, stopped, given = list(found.slices(after, most, most_bytes)), found.stopped, 0
        for at in range(0, len(slices), READ_AHEAD):
            ahead = slices[at : at + READ_AHEAD]
            for each, data in zip(ahead, await self._fetched(ahead), strict=True):
                for record in _records_in(each, data):
                    yield record
                    given += len(record.data)
        wanted = most > sum(each.end - each.begin for each in slices) and most_bytes > given
        if stopped is not None and wanted:
            raise stopped.with_traceback(None)

    async def _fetched(self, slices: list[Slice]) -> list[bytes]:
        found, errors = [b""] * len(slices), list[Exception]()

        async def fetch(at: int, each: Slice) -> None:
            try:
                span = each.bytes
                if span:
                    get = partial(get_retried, self._reader.store, each.part.key, patience=self._patience)
                    found[at] = await get(start=span.start, end=span.stop)
            except NotFound:
                errors.append(Corrupt(each.part.key, "it was read here and is gone: put it back"))
            except Exception as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            for at, each in enumerate(slices):
                tasks.start_soon(fetch, at, each)
        if errors:
            raise errors[0]
        return found


class Log(Reader):
    """A log to append to, and to read from. Opened by `open_log`."""

    def __init__(self, reader: LogReader, streams: Streams, patience: Patience, writer: LogWriter) -> None:
        super().__init__(reader, streams, patience)
        self._writer = writer

    async def append(self, records: Mapping[str, Iterable[bytes]]) -> int:
        """Append to one stream or more, all or nothing; returns the position of the last record, once all of them
        stand. In each stream they have consecutive positions. A cancelled call may have happened.

        Raises NotOwner once another has opened the log; BadInput on a stream that was closed; Unavailable, whose
        `determinate` says whether it may have happened.
        """
        return await self._submit(Append(_checked(records)))

    async def describe(self, stream: str, metadata: bytes) -> None:
        """Give the stream metadata, which Budwood only keeps. Raises as `append`."""
        if len(metadata) > MOST_METADATA_BYTES:
            raise BadInput(f"a stream's metadata has at most {MOST_METADATA_BYTES:,} bytes")
        await self._submit(Describe(check_stream(stream), metadata=bytes(metadata)))

    async def open_stream(self, stream: str) -> None:
        """Have the stream, empty, or open it again; the first append to a stream does so, too. Raises as `append`."""
        await self._submit(Describe(check_stream(stream), closed=False))

    async def close_stream(self, stream: str) -> None:
        """Take no more records into the stream; what it has stays readable. Raises as `append`."""
        await self._submit(Describe(check_stream(stream), closed=True))

    async def _submit(self, submission: Submission) -> int:
        try:
            position: int = await self._writer.submit(submission)
        except NotOwner as error:
            words = f"log {self.name} was opened for appending by another since: open it again to take it back"
            raise NotOwner(words, owner=error.owner, log=self.name) from None
        return position


@asynccontextmanager
async def open_log(
    url: str, name: str, *, create: bool = True, batching: Batching | None = None
) -> AsyncGenerator[Log]:
    """Open the log of that name for appending; whoever had it open before is deposed. A store and a log are made where
    there are none, unless `create` is false. What was sent is waited for on the way out.

    Raises NotFound, BadInput, Unsupported, Corrupt, NotOwner (another was quicker), Unavailable, Unauthorized.
    """
    async with (
        aclosing(await open_store(url, create=create)) as store,
        opened_log(store, name, create=create, batching=batching) as log,
    ):
        yield log


@asynccontextmanager
async def open_reader(url: str, name: str) -> AsyncGenerator[Reader]:
    """Open the log of that name for reading, which nobody notices. Raises as `open_log`, but for NotOwner."""
    async with aclosing(await open_store(url, create=False)) as store:
        yield await opened_reader(store, name)


async def opened_reader(store: Store, name: str, *, patience: Patience = PATIENT) -> Reader:
    """The same in a store that is open."""
    root = await probed_root(store, patience, _now_ms, probing=False, create=False)
    reader, streams = await _read(store, name, root.gc_interval_seconds, patience)
    if not reader.chain.next:
        raise NotFound(f"there is no log {name!r} in {store.url}")
    return Reader(reader, streams, patience)


@asynccontextmanager
async def opened_log(
    store: Store, name: str, *, create: bool = True, batching: Batching | None = None, patience: Patience = PATIENT
) -> AsyncGenerator[Log]:
    """The same in a store that is open."""
    root = await probed_root(store, patience, _now_ms, probing=False, create=create)
    batching = allowed(batching or Batching(), root.max_alpha)
    reader, streams = await _read(store, name, root.gc_interval_seconds, patience)
    if not create and not reader.chain.next:
        raise NotFound(f"there is no log {name!r} in {store.url}")
    if streams.stopped is not None:
        raise streams.stopped
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        work = _Work(tasks, name)
        term = await take_term(store, name, Claim(), above=reader.chain.epoch, now_ms=_now_ms(), patience=patience)
        writer = LogWriter(
            reader,
            term,
            draft=lambda _, before: PlainDraft(streams, before),
            now_ms=_now_ms,
            start=work.start,
            seed=_seed,
            patience=patience,
            batching=batching,
        )
        try:
            await writer.fence()
            yield Log(reader, streams, patience, writer)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            # Kept from the group, which would wrap it in an ExceptionGroup.
            failure = error
        finally:
            work.closed = True
    if failure is not None:
        raise failure


class _Work:
    """What a log's writer does, as long as it is open."""

    def __init__(self, tasks: TaskGroup, log: str) -> None:
        self.closed = False
        self._tasks = tasks
        self._log = log

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.closed:
            raise Unavailable(f"log {self._log} was closed here: open it again")
        self._tasks.start_soon(work)


async def _seed(_key: str, _data: bytes) -> None:
    """Nothing is kept of what was sent."""


async def _read(store: Store, name: str, gc_interval_seconds: int, patience: Patience) -> tuple[LogReader, Streams]:
    """All of the log, which is a plain one."""
    streams = Streams()
    reader = LogReader(
        store, check_node(name), streams.sink, gc_interval_seconds=gc_interval_seconds, patience=patience
    )
    await reader.open()
    if streams.foreign:
        raise BadInput(f"log {name} holds volumes ({streams.foreign}): choose another name")
    await _check_owner(reader, patience)
    return reader, streams


async def _check_owner(reader: LogReader, patience: Patience) -> None:
    """Raises BadInput if it is a node that has the log, which may have no volume yet."""
    epoch = reader.chain.epoch
    taken = None if epoch == PRIVATE else await find_epoch(reader.store, reader.log, epoch, patience=patience)
    if taken is not None and taken.node:
        raise BadInput(f"log {reader.log} is a node's ({taken.node}): choose another name")


def _checked(records: Mapping[str, Iterable[bytes]]) -> dict[str, tuple[bytes, ...]]:
    """Copies of them. Raises BadInput on what can't be appended."""
    checked = {check_stream(name): tuple(map(_bytes_of, each)) for name, each in records.items()}
    sizes = [len(record) for each in checked.values() for record in each]
    if not sizes or not all(checked.values()):
        raise BadInput("append at least one record to each stream that is named")
    if len(sizes) > MOST_RECORDS or max(sizes) > MOST_RECORD_BYTES or sum(sizes) > MOST_APPEND_BYTES:
        raise BadInput(
            f"one append has at most {MOST_RECORDS:,} records of {MOST_RECORD_BYTES:,} bytes, and "
            f"{MOST_APPEND_BYTES:,} bytes of all: append them in several calls"
        )
    return checked


def _bytes_of(record: object) -> bytes:
    if not isinstance(record, bytes):
        raise BadInput(f"a record is bytes, and not {type(record).__name__}")
    return record


def _records_in(each: Slice, data: bytes) -> Iterable[Record]:
    part, at = each.part, 0
    if len(data) != len(each.bytes):
        raise Corrupt(part.key, f"{len(data)} bytes of its records were read, of {len(each.bytes)}")
    for index in range(each.begin, each.end):
        record = data[at : at + part.sizes[index]]
        if checksum(record) != part.sums[index]:
            raise Corrupt(part.key, f"the record at position {part.first + index} is not the one that was appended")
        yield Record(part.first + index, record)
        at += len(record)


def _info_of(stream: Stream) -> StreamInfo:
    first, last = (stream.parts[0].first, stream.parts[-1].last) if stream.parts else (0, 0)
    return StreamInfo(first, last, stream.count, stream.metadata, stream.closed)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
