"""Reader: follows a log from its anchor, and hands on what counts (DESIGN §4, rules 1, 4 and 5).

`open` asks for the newest name (one LIST of one key), reads every slot up to it, at most `PARALLEL` at once, and then
looks at the next slots until one is missing: that is the tip. `refresh` looks from where it stands. Canonical entries
go to the sink in order, each once; their bodies are dropped here.

Rules:
- Readers never pass a gap. A slot that is missing below the newest name is a gap only if nobody had acknowledged it:
  an entry behind it that says so (`acked`) makes it a lost object, which is Corrupt, for whoever took it for the tip
  would fill it anew.
- A writer may have several entries in flight (`alpha` says how many), so some may stand behind a gap. Nothing here
  goes by them: who fills the gap decides whether they count.
- `refresh` sees everything that stood when it was called. Callers that come while one is under way share the next, not
  that one: it may have looked before they came.
- All that moves the chain holds `lock`: a refresh, or a writer with an entry in flight. Between two awaits the chain
  and what the sink was given agree, so a cancelled call leaves both as they were after some entry, and `open` goes on
  from there.
- Where they might not agree, since the sink failed half-way or a writer met what should not be, this reading of the log
  `end`s: nothing is read or written through it any more, and the log is opened anew by another reader. That ends no
  other log, and not the process.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import anyio

from ...volume.entry import Entry, entry_key, parse_entry, slot_of
from ...volume.errors import BadInput, BudwoodError, Corrupt, NotFound, Unavailable
from ...volume.records import Record, decode_record
from ..store.protocol import Store
from ..store.settle import PATIENT, Patience, get_retried, retried
from .chain import Chain, Verdict, added_by

__all__ = ["Canonical", "LogReader", "Sink"]

PARALLEL: Final = 16
"""Slots read at once."""

_logger: Final = logging.getLogger(__name__)


class Canonical(NamedTuple):
    """An entry that counts, without its body."""

    key: str
    slot: int
    size: int
    """The whole object's, in bytes."""
    records: dict[str, tuple[Record, ...]]
    """By the id of their stream, in order."""


Sink = Callable[[Canonical], None]


class LogReader:
    """One log, from its anchor to where this process has read it. Belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        log: str,
        sink: Sink,
        *,
        patience: Patience = PATIENT,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.store = store
        self.log = log
        self.chain = Chain(log=log)
        self.lock = anyio.Lock()
        self.ended: Unavailable | None = None
        """What to tell whoever still comes here after the end; `on_end` was called then."""
        self._sink = sink
        self._on_end = on_end
        self._patience = patience
        self._looks = 0
        self._last_good_look = 0

    def end(self, error: Exception) -> None:
        """What was read and written here can't be relied upon any more. Said once, with the cause."""
        if self.ended is None:
            _logger.error("log %s ends here, and is opened anew", self.log, exc_info=error)
            words = str(error) if isinstance(error, BudwoodError) else repr(error)
            self.ended = Unavailable(f"log {self.log} ended ({words}) and is opened anew: try again")
            self._on_end()

    async def open(self) -> None:
        """Read everything that stands; again, if an earlier call was cut off. Raises Corrupt, Unsupported,
        Unavailable."""
        async with self.lock:
            newest = await self._newest()
            while self.chain.next <= newest:
                if not await self._read_span(min(newest + 1 - self.chain.next, PARALLEL), newest):
                    break
            await self.look()

    async def refresh(self) -> None:
        """Read what was appended since; everything that stood when this was called is read when it returns."""
        mine = self._looks + 1
        async with self.lock:
            if self._last_good_look < mine:
                await self.look()

    async def look(self) -> None:
        """`refresh`, for whoever holds the lock."""
        if self.ended is not None:
            raise self.ended.with_traceback(None)
        look, width = self.begin_look(), 1
        while await self._read_span(width):
            width = min(2 * width, PARALLEL)
        self.end_look(look)

    def begin_look(self) -> int:
        """The holder of the lock is about to find out what stands in the next slot: a create does that too."""
        self._looks += 1
        return self._looks

    def end_look(self, look: int) -> None:
        """Everything that stood when `look` began was read."""
        self._last_good_look = look

    def take(self, entry: Entry, records: dict[str, tuple[Record, ...]] | None = None) -> Verdict:
        """The entry in the next slot, which is known to be durable. Needs the lock; `records` saves decoding them."""
        verdict = self.chain.judge(entry)
        if verdict is Verdict.VOID:
            self.chain = self.chain.past_void(entry)
            return verdict
        if records is None:
            records = _decode(entry)
        added = added_by(entry.key, (record for stream in records.values() for record in stream))
        behind = self.chain.past(entry, added)
        try:
            self._sink(Canonical(entry.key, entry.header.i, entry.size, records))
        except Exception as error:
            self.end(error)
            raise
        self.chain = behind
        return verdict

    async def _newest(self) -> int:
        """The slot that the newest name says, or -1."""
        prefix = f"logs/{self.log}/entries/"
        keys = await retried(f"list {prefix}", lambda: self.store.list(prefix, limit=1), self._patience)
        try:
            return slot_of(keys[0]) if keys else -1
        except BadInput as error:
            raise Corrupt(keys[0], "it stands among the entries of a log and is none") from error

    async def _read_span(self, width: int, newest: int = -1) -> bool:
        """Read the next `width` slots at once, up to the first that is missing; whether none was."""
        first = self.chain.next
        found: list[Entry | None] = [None] * width

        async def read(offset: int) -> None:
            found[offset] = await self._read(first + offset)

        if width == 1:
            await read(0)
        else:
            await _all_of([partial(read, offset) for offset in range(width)])
        for entry in found:
            if entry is None:
                await self._check_gap(self.chain.next, [other for other in found if other is not None], newest)
                return False
            self.take(entry)
        return True

    async def _read(self, slot: int) -> Entry | None:
        key = entry_key(self.log, slot)
        try:
            return parse_entry(key, await get_retried(self.store, key, patience=self._patience))
        except NotFound:
            return None

    async def _check_gap(self, missing: int, behind: list[Entry], newest: int) -> None:
        """Raises Corrupt if someone has acknowledged the missing slot, and it still is missing after that was seen."""
        if newest > missing and not behind:
            last = await self._read(newest)
            behind = [] if last is None else [last]
        acknowledged = any(entry.header.i > missing and entry.header.acked >= missing for entry in behind)
        if acknowledged and await self._read(missing) is None:
            raise Corrupt(entry_key(self.log, missing), "the entry is missing, though later ones build on it")


def _decode(entry: Entry) -> dict[str, tuple[Record, ...]]:
    streams = entry.header.streams
    return {stream: tuple(decode_record(entry.key, raw) for raw in records) for stream, records in streams.items()}


async def _all_of(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """All at once. The first error stops the others and is raised as it is, not in a group."""
    errors: list[Exception] = []

    async def run(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except Exception as error:
            errors.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(run, call)
    if errors:
        raise errors[0]
