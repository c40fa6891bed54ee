"""Logs: those that a process has open, each read once, and the right to append to them (DESIGN §4).

- Opening one costs the rollup that its newest entry names and what came since (rollups.py); a volume's part of that is
  read when the volume is opened.
- Any process appends to a private log, which is named by its volume.
- A shared log is named by its node. It is appended to by whoever holds its newest epoch: this process after it took one
  (log_ownership.py), until a newer epoch shows up in it. For everyone else it is a log to read, and `writer` says who
  owns it.
- Opening a log belongs to the node. Whoever needs it joins and may leave; where the store fails, what was read stays
  read, and the next one goes on from there.
- A log whose reading has ended (log/reader.py) is opened anew at its next use, at once, and after a pause if that ends
  soon again. All who took its records end with it. A node's own log is taken anew, under a new epoch, when it is
  opened anew.
- A log that nobody uses is let go of in its turn (kept_open.py), and opened anew when it is asked for again. Whoever
  takes its records holds it, and so does its writer while it works. The node's own stays, and one whose newest entry
  may be on its way still: that is found out by the same bytes.

A log that this process owns needs no look before it is read: nobody else appends to it, or has deposed this process,
which then learns so at its next entry. Any other is looked at first, where the newest is asked for.

What was read of a log leads to objects that a collector may have planned to delete since. It waits the store's gc
interval before it does. So what is older than half of that is not gone by until the log was looked at once more, and
the rollup is followed that it names then (`make_sure`). Whoever reads or writes at all within that time pays nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final
from weakref import WeakValueDictionary, ref

from anyio.abc import TaskGroup

from ...volume.entry import EpochRecord
from ...volume.errors import BadInput, Full, NotOwner, Unauthorized, Unavailable
from ...volume.ids import VolumeId
from ...volume.owner import Liveness
from ...volume.records import Birth
from ..log.in_flight import Landed, Load
from ..log.listing import shared_logs
from ..log.log_writer import LogWriter
from ..log.reader import LogReader
from ..log.term import PRIVATE, Claim, Term, not_owner
from ..log.waiting import Batching
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience
from ..store.root import GC_INTERVAL_SECONDS
from ..store.tree_nodes import Nodes
from .entry_draft import EntryDraft
from .kept_open import MEMORY_BYTES, KeptOpen
from .log_ownership import LivenessProbe, LogOwnership, Takeover, assume_gone
from .polling import LogWatches
from .rolled_stream import RolledLog
from .rollups import LogRollup, Rollups
from .single_flight import Backoff, SingleFlight
from .streams import Streams

LOOK_SECONDS: Final = 10.0
"""How often `look_behind` looks."""

_LOG_BYTES: Final = 8_000
"""Of memory, about: of a log that is open, but for what it carries."""

_NOTHING: Final = Claim()
_BATCHING: Final = Batching()
_logger: Final = logging.getLogger(__name__)


@lru_cache(maxsize=1024)
def is_private(log: str) -> bool:
    """Whether the name is a volume's: a node's never is (ids.check_node)."""
    try:
        VolumeId.parse(log)
    except BadInput:
        return False
    return True


@dataclass(slots=True, weakref_slot=True, eq=False)
class Log:
    name: str
    reader: LogReader
    streams: Streams
    rolled: RolledLog
    rollup: LogRollup
    writer: LogWriter | None = None
    """None for a shared log that this process never owned."""
    stays: bool = False
    """Whether it is the node's own."""
    sure_at: float = -math.inf
    """By the clock of the boundary: what was read of it led nowhere then that a collector would delete."""

    @property
    def private(self) -> bool:
        return is_private(self.name)

    @property
    def owned(self) -> bool:
        """Whether this process holds the newest epoch that it knows of, so that what it has read is all there is."""
        writer = self.writer
        return not self.private and writer is not None and not writer.deposed and self.reader.ended is None

    @property
    def weight(self) -> int:
        """See kept_open.Openable."""
        return _LOG_BYTES + self.streams.tail_bytes + self.rolled.decoded_bytes

    @property
    def busy(self) -> bool:
        """See kept_open.Openable."""
        if self.reader.ended is not None:
            return False
        return self.stays or self.owned or (self.writer is not None and self.writer.unsettled)


class Logs:
    def __init__(
        self,
        store: Store,
        *,
        tasks: TaskGroup,
        now_ms: Callable[[], int],
        seed: Callable[[str, bytes], Awaitable[None]],
        gc_interval_seconds: float = GC_INTERVAL_SECONDS,
        claim: Claim = _NOTHING,
        probe_owner: LivenessProbe = assume_gone,
        patience: Patience = PATIENT,
        memory_bytes: int = MEMORY_BYTES,
        batching: Batching = _BATCHING,
    ) -> None:
        self.store = store
        self.patience = patience
        self.closed = False
        """Whether nothing may be appended any more, since the process is about to end."""
        self._gc_interval_seconds = gc_interval_seconds
        self._tasks = tasks
        self.claim = claim
        """What this process says of itself in the epochs that it takes."""
        self.now_ms = now_ms
        self._seed = seed
        self._batching = batching
        self._ownership = LogOwnership(claim, probe_owner, writer=self._writer, now_ms=now_ms, patience=patience)
        self.kept = KeptOpen(memory_bytes)
        """What is open, the volumes and names in the logs included."""
        self._open = WeakValueDictionary[str, Log]()
        self._half = WeakValueDictionary[str, Log]()
        """Those whose opening the store cut off, as far as they were read."""
        self.birth_of: Callable[[VolumeId], Birth | None] = lambda _: None
        """Of a volume that is open."""
        self._rollups = Rollups(store, tasks, patience, lambda vid: self.birth_of(vid))
        self._opening = SingleFlight[Log](tasks, "opening log")
        self._taking = SingleFlight[None](tasks, "taking log")
        self._looking = SingleFlight[None](tasks, "looking at log")
        self._look_at = 0.0
        self.watches = LogWatches(tasks, self._look_again, self._is_owned)
        """For whoever waits for a log to grow."""
        self.on_stood: Callable[[str, list[str]], None] = lambda _log, _streams: None
        """Told of each entry of this process that has come to stand, and of the streams in it."""
        self.on_landed: Callable[[Landed], None] = lambda _: None
        """Told what each of them came to."""
        self._ends: dict[str, Backoff] = {}
        self._takes = Backoff(patience.now)
        self._was_owned: Callable[[str], bool] | None = None
        """While this node takes back what it owned when it ended: which logs that may be."""

    def is_open(self, name: str) -> bool:
        """Whether somebody has opened it, or is about to: then what it holds may be older than this call."""
        return name in self._open or name in self._opening

    def load(self) -> Load:
        """Of all that are open."""
        each = [log.writer.load for log in list(self._open.values()) if log.writer is not None]
        return Load(*(sum(figures) for figures in zip(*each, strict=True))) if each else Load()

    @property
    def open_count(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """Append nothing any more, and open nothing. Entries in flight are let finish."""
        self.closed = True
        for shared in (self._opening, self._taking, self._looking):
            shared.stop()
        self.watches.stop()
        self._rollups.close()

    @property
    def nodes(self) -> Nodes:
        """Those of all trees of the store that this process holds in memory."""
        return self._rollups.nodes

    async def get(self, name: str) -> Log:
        """The log, read up to its tip when it is opened, and sure. Raises what opening it met."""
        while True:
            log = self._open.get(name)
            if log is None:
                if self.closed:
                    raise Unavailable("this node is shutting down")
                log = await self._opening.join(name, partial(self._read, name))
            self.kept.use(log)
            try:
                await self.make_sure(log)
            except Unavailable:
                if log.reader.ended is None or self._open.get(name) is log:
                    raise
            else:
                return log

    def new_private(self, vid: VolumeId) -> Log:
        """The log of a volume that this process has just made: nothing stands in it that anyone need read."""
        new = self._new(str(vid))
        new.reader.was_whole(new.reader.boundary.now())
        log = self._open.setdefault(str(vid), new)
        self.kept.use(log)
        return log

    async def _read(self, name: str) -> Log:
        ends = self._ends.get(name)
        if ends is not None and ends.left_seconds():
            await self.patience.sleep(ends.left_seconds())
        log = self._half.pop(name, None) or self._new(name)
        try:
            await log.reader.open()
        except (Unavailable, Full, Unauthorized):
            if log.reader.ended is None:
                self._half[name] = log
                self.kept.use(log)
            raise
        # Another may have made the volume, and with it this log, meanwhile: there is one of each.
        log = self._open.setdefault(name, log)
        if ends is not None and name == self.claim.log:
            await self._take_back(log)
        return log

    def _new(self, name: str) -> Log:
        # Nothing that a log is made of holds the log, so that it goes as soon as nobody uses it.
        def ended() -> None:
            log = own()
            if log is not None:
                self.kept.drop(log)
                if self._open.get(name) is log:
                    del self._open[name]
            self._ends.setdefault(name, Backoff(self.patience.now)).tried()
            streams.end()

        def named(rollup: str) -> None:
            log = own()
            if log is not None:
                log.rollup.named(rollup)

        streams, rolled = Streams(self.patience.now), RolledLog(self._rollups.nodes, name)
        reader = LogReader(
            self.store,
            name,
            streams.sink,
            gc_interval_seconds=self._gc_interval_seconds,
            patience=self.patience,
            on_end=ended,
            on_rollup=rolled.move_on,
            on_named=named,
        )
        rollup = LogRollup(reader, streams, rolled, self._rollups, others_write=is_private(name))
        log = Log(name, reader, streams, rolled, rollup)
        log.stays = name == self.claim.log
        own = ref(log)
        if log.private:
            log.writer = self._writer(reader, Term.private())
        return log

    async def refresh(self, log: Log, *, confirm: bool = False, glance: bool = False) -> None:
        """Read what was appended since, where anyone else may have. `confirm` looks even where this process is the
        owner; a `glance` is for whoever looks again and again."""
        if confirm or not log.owned:
            await log.reader.refresh(glance=glance)

    async def catch_up(self, log: Log, entries: int, size_bytes: int) -> bool:
        """Read some of what was appended since; whether that was all (log/reader.py)."""
        return log.owned or await log.reader.catch_up(entries, size_bytes)

    def is_old(self, at: float) -> bool:
        """Whether what was known at that time, by the clock of the boundaries, may lead to what is deleted by now."""
        return self.patience.boot() - at >= self._gc_interval_seconds / 2

    async def make_sure(self, log: Log) -> None:
        """That nothing it leads to is deleted before long. Raises Corrupt, and Unavailable, where its reading has ended
        too."""
        if not self.is_old(log.sure_at):
            return
        if self.is_old(log.reader.whole_at):
            await log.reader.refresh()
        whole_at = log.reader.whole_at
        await log.rollup.follow_named()
        log.streams.end_behind()
        log.sure_at = whole_at

    async def writer(self, log: Log) -> LogWriter:
        """Raises NotOwner, with the owner's address, if this process may not append to the log."""
        if self.closed:
            raise Unavailable("this node is shutting down")
        self.check_retired()
        if log.reader.ended is not None:
            raise log.reader.ended.with_traceback(None)
        if not log.private and not log.owned:
            await self._taken_back(log)
        if log.writer is None or log.writer.deposed:
            raise await self._owner_of(log)
        return log.writer

    async def owned_again(self, writer: LogWriter) -> bool:
        """Whether the log of a writer that was deposed is this process's again, since it is its own."""
        if not writer.deposed or writer.log != self.claim.log:
            return False
        log = await self.get(writer.log)
        await self._taken_back(log)
        return log.owned

    async def owner(self, log: Log) -> EpochRecord | None:
        """Whoever took the newest epoch that stands in the log; None if nobody ever did."""
        return await self._ownership.owner(log.reader)

    async def own(self, *, takeover: bool = False, yields: bool = False) -> Log:
        """Take the node's own log, as it starts. Raises NotOwner if its owner may be alive, and `takeover` does not
        say that it is to be deposed; with `yields` the log is left to that one, as whoever is deposed leaves it."""
        log = await self.get(self.claim.log)
        try:
            log.writer = await self._ownership.take(log.reader, Takeover.ALWAYS if takeover else Takeover.IF_GONE)
        except NotOwner as error:
            if self.retired or not yields:
                raise
            _logger.warning("%s", error)
        return log

    async def take_over(self, log: Log, takeover: Takeover = Takeover.IF_GONE, *, stays: bool | None = None) -> None:
        """Take a shared log: for a moment, unless it is the node's own or `stays`. Raises NotOwner while its owner
        answers."""
        stays = log.name == self.claim.log if stays is None else stays
        log.writer = await self._ownership.take(log.reader, takeover, stays=stays)
        # It may have been let go of while it was taken, and is owned from now on.
        self.kept.use(log)

    async def guest(self, log: Log) -> LogWriter:
        """To append to a shared log whose owner can't be reached, without deposing it: the records of one stream
        (log_writer.py). Raises NotOwner if the owner answers, or there is none."""
        self.check_retired()
        await log.reader.refresh()
        owner, chain = await self.owner(log), log.reader.chain
        if owner is None or not chain.has_owner or await self.is_alive(owner):
            raise await self._owner_of(log)
        return self._writer(log.reader, Term(owner.n, owner.writer), guest=True)

    async def liveness(self, owner: EpochRecord) -> Liveness:
        """Of whoever took that epoch."""
        return await self._ownership.probe_owner(owner)

    async def is_alive(self, owner: EpochRecord) -> bool:
        """Whether it answers."""
        return await self.liveness(owner) is Liveness.ANSWERS

    def check_retired(self) -> None:
        """Raises NotOwner, with who is to be asked instead, once it was seen that this node was taken out for good."""
        if self._ownership.retired is not None:
            raise self._ownership.retired.with_traceback(None)

    @property
    def retired(self) -> bool:
        return self._ownership.retired is not None

    async def take_back(self, minds: Callable[[str], bool]) -> None:
        """Own again what this node owned when it ended, of the logs that `minds` is true of: what it had taken over of
        others. Whoever has taken one since keeps it. Who wants to write to one meanwhile has it taken at once."""
        self._was_owned = minds
        try:
            for name in filter(minds, await shared_logs(self.store, self.patience)):
                log = await self.get(name)
                await self._taking.join(name, partial(self._own_again, log))
        finally:
            self._was_owned = None

    def held(self) -> list[tuple[str, Term]]:
        """The shared logs that this process owns, as far as it knows, and under which term."""
        owned = ((log.name, log.writer) for log in self._open.values() if log.owned)
        return sorted((name, writer.term) for name, writer in owned if writer is not None)

    def look_behind(self) -> None:
        """Find out in the background whether the node still owns its logs, and take its own back if it may: for whoever
        asks who owns them, and doesn't wait. What goes wrong there is told to those who write."""
        name, now = self.claim.log, self.patience.now()
        if name and not self.closed and now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._looking.begin(name, self._look)

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

    async def _taken_back(self, log: Log) -> None:
        """Try to have the node's own log again, unless that was tried a moment ago, or one that it owned when it
        ended, and has not come to yet."""
        if self.retired:
            return
        if log.name == self.claim.log:
            if log.name in self._taking or not self._takes.left_seconds():
                await self._taking.join(log.name, partial(self._take_back, log))
        elif self._was_owned is not None and self._was_owned(log.name):
            await self._taking.join(log.name, partial(self._own_again, log))

    async def _take_back(self, log: Log) -> None:
        if log.owned:
            return
        self._takes.tried()
        try:
            log.writer = await self._ownership.take(log.reader, Takeover.IF_GONE)
        except NotOwner as error:
            # Its owner lives. Whoever wants to write is sent there.
            _logger.warning("%s", error)
        except (Unavailable, Full, Unauthorized) as error:
            # It can be read, and whoever wants to write tries again.
            _logger.warning("log %s can't be taken back: %s", log.name, error)

    async def _own_again(self, log: Log) -> None:
        owner = await self.owner(log)
        if owner is not None and owner.node == self.claim.name and owner.address and not log.owned:
            try:
                await self.take_over(log, Takeover.IF_GONE, stays=True)
            except NotOwner as error:
                _logger.warning("%s", error)

    async def _look(self) -> None:
        log = await self.get(self.claim.log)
        await log.reader.refresh()
        if not log.owned:
            await self._taken_back(log)
        for log in [log for log in self._open.values() if log.owned and not log.stays]:
            await log.reader.refresh()

    async def _look_again(self, name: str, glance: bool) -> None:
        await self.refresh(await self.get(name), confirm=True, glance=glance)

    def _is_owned(self, name: str) -> bool:
        log = self._open.get(name)
        return log is not None and log.owned

    def _start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.closed:
            raise Unavailable("this node is shutting down")
        self._tasks.start_soon(self._holding, self._open.get(name), work)

    async def _holding(self, log: Log | None, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """What a log's writer does."""
        try:
            await work()
        finally:
            if log is not None:
                # Whoever wanted it may have left, and it is busy now.
                self.kept.use(log)

    def _writer(self, reader: LogReader, term: Term, *, guest: bool = False) -> LogWriter:
        return LogWriter(
            reader,
            term,
            draft=EntryDraft,
            now_ms=self.now_ms,
            start=partial(self._start, reader.log),
            seed=self._seed,
            stood=partial(self._stood, reader.log),
            landed=lambda landed: self.on_landed(landed),
            patience=self.patience,
            batching=self._batching,
            guest=guest,
        )

    def _stood(self, name: str, streams: list[str]) -> None:
        """An entry of ours has come to stand."""
        if streams:
            self.on_stood(name, streams)
        log = self._open.get(name)
        if log is not None:
            log.rollup.begin()
