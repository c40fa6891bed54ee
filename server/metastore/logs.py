"""Logs: those that a process has open, each read once, and the right to append to them (DESIGN §4).

- Any process appends to a private log, which is named by its volume.
- A shared log is named by its node. It is appended to by whoever holds its newest epoch: this process after `own`,
  until a newer epoch shows up in it. For everyone else it is a log to read, and `writer` says who owns it.

A log that this process owns needs no look before it is read: nobody else appends to it, or has deposed this process,
which then learns so at its next entry. Any other is looked at first, where the newest is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import TaskGroup

from ...volume.entry import EpochRecord
from ...volume.errors import BadInput, NotOwner, Unavailable
from ...volume.ids import VolumeId
from ..log.reader import LogReader
from ..log.term import PRIVATE, Term, not_owner, read_epoch, take_term
from ..log.writer import LogWriter
from ..store.protocol import Store
from ..store.settle import PATIENT, Patience
from .draft import EntryDraft
from .streams import Streams

__all__ = ["Alive", "Log", "Logs", "is_private"]

Alive = Callable[[str, str, int], Awaitable[bool]]
"""Asked with (address, log, epoch): does a node answer there that owns the log under that epoch?"""


def is_private(log: str) -> bool:
    """Whether the name is a volume's: a node's never is (ids.check_node)."""
    try:
        VolumeId.parse(log)
    except BadInput:
        return False
    return True


@dataclass(slots=True)
class Log:
    name: str
    reader: LogReader
    streams: Streams
    writer: LogWriter | None = None
    """None for a shared log that this process never owned."""

    @property
    def private(self) -> bool:
        return is_private(self.name)

    @property
    def owned(self) -> bool:
        """Whether this process holds the newest epoch that it knows of, so that what it has read is all there is."""
        return not self.private and self.writer is not None and not self.writer.deposed


class Logs:
    def __init__(
        self,
        store: Store,
        *,
        tasks: TaskGroup,
        now_ms: Callable[[], int],
        seed: Callable[[str, bytes], Awaitable[None]],
        patience: Patience = PATIENT,
    ) -> None:
        self.store = store
        self.patience = patience
        self.closed = False
        """Whether nothing may be appended any more, since the process is about to end."""
        self._tasks = tasks
        self._now_ms = now_ms
        self._seed = seed
        self._open: dict[str, Log] = {}
        self._opening: dict[str, anyio.Lock] = {}

    def is_open(self, name: str) -> bool:
        """Whether somebody has opened it, or is about to: then what it holds may be older than this call."""
        return name in self._open or name in self._opening

    async def get(self, name: str) -> Log:
        """The log, read up to its tip when it is opened."""
        log = self._open.get(name)
        if log is not None:
            return log
        async with self._opening.setdefault(name, anyio.Lock()):
            if name not in self._open:
                log = self._new(name)
                await log.reader.open()
                # Another may have made the volume, and with it this log, meanwhile: there is one of each.
                self._open.setdefault(name, log)
            return self._open[name]

    def new_private(self, vid: VolumeId) -> Log:
        """The log of a volume that this process has just made: nothing stands in it that anyone need read."""
        return self._open.setdefault(str(vid), self._new(str(vid)))

    def _new(self, name: str) -> Log:
        streams = Streams()
        log = Log(name, LogReader(self.store, name, streams.sink, patience=self.patience), streams)
        if log.private:
            log.writer = self._writer(log, Term.private())
        return log

    async def refresh(self, log: Log, *, confirm: bool = False) -> None:
        """Read what was appended since, where anyone else may have. `confirm` looks even where this process is the
        owner."""
        if confirm or not log.owned:
            await log.reader.refresh()

    async def writer(self, log: Log) -> LogWriter:
        """Raises NotOwner, with the owner's address, if this process may not append to the log."""
        if self.closed:
            raise Unavailable("this node is shutting down")
        if log.writer is None or log.writer.deposed:
            raise await self._owner_of(log)
        return log.writer

    async def owner(self, log: Log) -> EpochRecord | None:
        """Whoever took the newest epoch that stands in the log; None if nobody ever did."""
        epoch = log.reader.chain.epoch
        return None if epoch == PRIVATE else await read_epoch(self.store, log.name, epoch, patience=self.patience)

    async def own(self, name: str, *, node: str, address: str, is_alive: Alive) -> Log:
        """Take a fresh epoch on a shared log and fence it. Raises NotOwner while its owner is alive."""
        log = await self.get(name)
        await log.reader.refresh()
        owner = await self.owner(log)
        if owner is not None and owner.address and await is_alive(owner.address, name, owner.n):
            message = f"log {name} is served by a living node at {owner.address}: stop that one, or use another name"
            raise NotOwner(message, owner=owner.address, log=name)
        term = await take_term(
            self.store,
            name,
            above=log.reader.chain.epoch,
            node=node,
            address=address,
            now_ms=self._now_ms(),
            patience=self.patience,
        )
        writer = self._writer(log, term)
        await writer.fence()
        log.writer = writer
        return log

    def release(self, log: Log) -> None:
        """Append to a shared log no more, though its newest epoch is ours."""
        assert not log.private
        log.writer = None

    async def _owner_of(self, log: Log) -> NotOwner:
        epoch = log.reader.chain.epoch
        if epoch == PRIVATE:
            message = f"log {log.name} has no owner: start a node of that name, or move the volume with --takeover"
            return NotOwner(message, log=log.name)
        return await not_owner(self.store, log.name, epoch, patience=self.patience)

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.closed:
            raise Unavailable("this node is shutting down")
        self._tasks.start_soon(work)

    def _writer(self, log: Log, term: Term) -> LogWriter:
        return LogWriter(
            log.reader,
            term,
            draft=EntryDraft,
            now_ms=self._now_ms,
            start=self._start,
            seed=self._seed,
            patience=self.patience,
        )
