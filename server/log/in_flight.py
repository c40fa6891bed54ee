"""In flight: entries that were sent, until it is known that they stand (DESIGN §4, rules 3 and 5).

    sent → created, or another stands in its slot, or nobody knows → everything before it stands → acknowledged

Each was made from the chain behind the one that was sent before it, so that all of them count, or those that came
before the first that doesn't.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import anyio
from anyio.abc import TaskGroup

from ...volume import tracing
from ...volume.entry import Entry, EntryHeader, entry_key, parse_entry, seal_entry
from ...volume.errors import NotFound, StoreError, Unavailable
from ..store.protocol import Store
from ..store.retrying import Patience, create_settled
from .chain import Chain
from .reader import LogReader
from .submission import Draft, Records, Submission
from .waiting import BATCH_BYTES, Batching, Waiting


class Sent(NamedTuple):
    """An entry whose bytes may be in the store."""

    entry: Entry
    data: bytes
    records: Records

    @classmethod
    def of(cls, header: EntryHeader, body: bytes = b"", records: Records | None = None) -> Sent:
        data = seal_entry(header, body)
        return cls(parse_entry(entry_key(header.log, header.i), data), data, records or {})


@dataclass(slots=True, eq=False)
class Flight:
    """One of them, and whose fate hangs on it."""

    sent: Sent
    draft: Draft
    body: bytes
    streams: list[str]
    taken: list[Submission]
    looking: list[Submission]
    """Refused by what may be stale: once this stands, everything before it was seen."""
    before: Chain
    behind: Chain
    """The chain that it was made from, and the one that it makes."""
    look: int
    asked_at: float
    """Of the look at the log that sending it is; by the clock of the boundary."""
    sent_at: float
    barrier: bool
    """Whether nothing may be judged before it is acknowledged."""
    done: bool = False
    found: bytes | None = None
    """What stands in its slot instead."""
    error: Exception | None = None
    """Nobody knows whether it stands, unless that says so."""

    async def fly(self, store: Store, patience: Patience, ended: Callable[[], None]) -> None:
        """Send it, until its fate is known or patience has ended; then call `ended`."""
        self.error = Unavailable("the writer stopped", determinate=False)
        try:
            spans = [submission.span for submission in self.taken] if tracing.is_on() else []
            with tracing.together("append entry", spans, key=self.sent.entry.key, changes=len(self.taken)):
                self.found = await create_settled(store, self.sent.entry.key, self.sent.data, patience)
        except NotFound as error:
            self.error = Unavailable(str(error), determinate=False)
        except Exception as error:
            self.error = error
        else:
            self.error = None
        finally:
            self.done = True
            ended()


class Landed(NamedTuple):
    """An entry that was acknowledged."""

    changes: int
    """That came to stand with it, commits and others."""
    size_bytes: int
    seconds: float
    """From its being sent on."""


class Load(NamedTuple):
    """What a writer has to do, or several have together."""

    waiting: int = 0
    waiting_bytes: int = 0
    """Inline pages of those that wait."""
    entries_in_flight: int = 0


class InFlight:
    """Those of one writer, oldest first. Nothing more is sent where the oldest has had no answer for `most_seconds`."""

    def __init__(
        self, reader: LogReader, waiting: Waiting, batching: Batching, patience: Patience, *, most_seconds: float
    ) -> None:
        self._reader = reader
        self._waiting = waiting
        self._patience = patience
        self.alpha = batching.alpha
        self._window_seconds = batching.window_seconds
        self._most_seconds = most_seconds
        self.flights: deque[Flight] = deque()
        self.alone = False
        """Whether a slot was lost, and nothing canonical was sent since."""
        self._sent_at = -math.inf
        self._news = anyio.Event()

    @property
    def behind(self) -> Chain:
        """The chain that the next one is made from."""
        return self.flights[-1].behind if self.flights else self._reader.chain

    def tell(self) -> None:
        """Someone came, or an answer."""
        self._news.set()

    def send(self, flight: Flight, tasks: TaskGroup) -> None:
        self.flights.append(flight)
        self._sent_at = anyio.current_time()
        tasks.start_soon(flight.fly, self._reader.store, self._patience, self.tell)

    def may_send(self) -> bool:
        """Whether the next one is due."""
        if not self.flights:
            return bool(self._waiting)
        return self._has_next() and (self._waiting.inline_bytes >= BATCH_BYTES or self._left_seconds() <= 0)

    def _has_next(self) -> bool:
        """Whether one may follow those in flight, and there is something to put into it."""
        return (
            bool(self._waiting)
            and self._waiting.to_judge
            and len(self.flights) < (1 if self.alone else self.alpha)
            and not self.flights[-1].barrier
            and not self._reader.boundary.stale
            and self._patience.now() - self.flights[0].sent_at < self._most_seconds
            and not self._reader.lock.statistics().tasks_waiting
        )

    def _left_seconds(self) -> float:
        """Of the window."""
        return self._sent_at + self._window_seconds - anyio.current_time()

    async def wait(self) -> None:
        """Until the oldest has its answer, or another one may be sent."""
        while not self.flights[0].done and not self.may_send():
            left = self._left_seconds() if self._has_next() else math.inf
            self._news = anyio.Event()
            with anyio.move_on_after(left):
                await self._news.wait()

    async def all_done(self) -> None:
        """Creates that are under way are let finish (S0.32)."""
        while not all(flight.done for flight in self.flights):
            self._news = anyio.Event()
            await self._news.wait()


def may_stand(error: Exception) -> bool:
    """Whether a create that met this may have happened all the same."""
    return isinstance(error, StoreError) and not error.determinate
