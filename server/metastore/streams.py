"""Streams: what the entries of one log say, sorted by volume (DESIGN §4, §5).

A log may carry many thousands of volumes, of which a process wants a few. What stands up to the newest rollup lies in
that (rolled_stream.py); what came since, the *tail*, is kept here, in order and not decoded. Whoever opens a volume
takes its records out of both: those of the tail a few at a time, so that opening one of many commits holds nobody up,
and from then on at once. Each comes with the place it stands in, which is what a fork, a move and a page's location
name. When the rollup moves on, what it covers is let go of.

Takers are not kept here: one that nobody holds any more is let go of, and the stream may be opened again from the same
places.

A taker that needs something of the rollup that isn't in memory falls *behind*: its records wait, and whoever wants the
stream has it catch up first.

A stream stops, alone, where its records can't be followed: at one of a kind that nobody here knows, one that is damaged
or that its state refuses, or one that its taker fails at. Whoever reads or writes that volume is told in words; the log
goes on for all others. What is unknown or damaged stays so for as long as this log is read; a failure that nobody
foresaw may pass, so that after a pause the stream is opened anew.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import dropwhile
from typing import Final, NamedTuple, Protocol

from anyio import Event
from anyio.lowlevel import checkpoint

from ...volume.errors import BudwoodError, Corrupt, Unavailable, Unsupported
from ...volume.records import Record, StreamRecords
from ..log.reader import Canonical
from ..store.tree_nodes import NotLoaded, loading
from .single_flight import Backoff

_AT_ONCE: Final = 64
"""Records handed out before others have their turn: a few milliseconds."""

_PART_BYTES: Final = 700
"""What a part takes in memory beside its records, about."""

_logger: Final = logging.getLogger(__name__)


class Placed(NamedTuple):
    record: Record
    key: str
    """The entry's."""
    size: int
    """Of the whole entry, in bytes."""
    slot: int


class Part(NamedTuple):
    """What one entry carries for one stream."""

    key: str
    size: int
    slot: int
    carried: StreamRecords
    decoded: tuple[Record, ...] | None

    def read(self) -> tuple[Record, ...]:
        """Raises Corrupt, Unsupported."""
        return self.carried.decode(self.key) if self.decoded is None else self.decoded


class Stop:
    """Why a stream goes no further."""

    def __init__(self, error: BudwoodError, pauses: Backoff | None) -> None:
        self.error = error
        self.lifted = False
        """Whether the log has been opened anew."""
        self._pauses = pauses

    @property
    def stands(self) -> bool:
        """Whether the stream may not be opened anew yet."""
        return not self.lifted and (self._pauses is None or self._pauses.left_seconds() > 0)

    def check(self) -> None:
        """Raises the error, if it stands."""
        if self.stands:
            raise self.error.with_traceback(None)


class Taker(Protocol):
    """A volume or namespace that is open."""

    def take(self, placed: Placed) -> bool:
        """Apply the next record of its stream in this log; false when the stream ends here with it. Raises Corrupt, and
        NotLoaded with nothing applied."""
        ...

    def tell(self) -> None:
        """There is more to take than it could at once."""
        ...

    def rebase(self) -> bool:
        """The rollup has moved on, and covers some of what was taken: that may be let go of. False if it lacks what was
        counted on: whoever made it could not follow the stream as far."""
        ...

    def end(self, stop: Stop | None = None) -> None:
        """Nothing more comes, though the stream goes on: what was applied can't be relied upon, and whoever wants the
        stream opens it anew, or is told why it stopped."""
        ...


class _Taking:
    """What a taker is still to be given."""

    def __init__(self, taker: Taker, waiting: Iterable[Part], let_go: Callable[[object], None]) -> None:
        self._taker = weakref.ref(taker, let_go)
        self.waiting = deque(waiting)
        self.attached = Event()
        """Set when what had waited was handed out; what comes meanwhile waits behind it."""

    @property
    def taker(self) -> Taker | None:
        """None once nobody holds it."""
        return self._taker()


class Streams:
    """The sink of one log's reader."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._tail: dict[str, deque[Part]] = {}
        """Since the rollup."""
        self.tail_bytes = 0
        """What that takes in memory, about."""
        self._takings: dict[str, _Taking] = {}
        self._let_go: deque[str] = deque()
        """Streams whose takers are gone; any thread may have been the last to hold one."""
        self._stops: dict[str, Stop] = {}
        self._pauses: dict[str, Backoff] = {}
        self._ended = False

    def sink(self, entry: Canonical) -> None:
        self._forget()
        for stream, carried in entry.streams.items():
            part = Part(entry.key, entry.size, entry.slot, carried, None)
            self._tail.setdefault(stream, deque()).append(part)
            self.tail_bytes += _bytes_of(part)
            taking = self._taking(stream)
            if taking is not None:
                taking.waiting.append(part._replace(decoded=entry.decoded.get(stream)))
                if taking.attached.is_set():
                    self._give(stream, taking)

    def tail(self, stream: str, behind: int = -1) -> list[Part]:
        """What this log carries for the stream behind that slot, and behind the rollup."""
        return list(dropwhile(lambda part: part.slot <= behind, self._tail.get(stream, ())))

    def taken(self) -> list[str]:
        """The streams that are open."""
        self._forget()
        return list(self._takings)

    def tails(self, upto: int) -> dict[str, list[Part]]:
        """What it carries behind the rollup, up to that slot, by stream."""
        tails = {stream: [part for part in parts if part.slot <= upto] for stream, parts in self._tail.items()}
        return {stream: parts for stream, parts in tails.items() if parts}

    def read_first(self, stream: str, parts: list[Part]) -> Placed | None:
        """The first record of these, which the stream goes on with. Raises what stops the stream."""
        self._check(stream)
        if not parts:
            return None
        try:
            return Placed(parts[0].read()[0], parts[0].key, parts[0].size, parts[0].slot)
        except (Corrupt, Unsupported) as error:
            raise self._stop(stream, error).error from error

    async def attach(self, stream: str, taker: Taker, *, behind: int = -1, before: Iterable[Part] = ()) -> bool:
        """Give `taker` the parts `before`, those of the tail behind that slot, and from then on what comes; false when
        the stream ends in this log before its tip, or the reading of the log meanwhile: then nothing more will come.
        Nothing is awaited before the tail is looked at. Raises what stops the stream; after that, or if this is
        cancelled, the taker has ended."""
        assert self._taking(stream) is None, f"{stream} is open already"
        self._forget()
        self._check(stream)
        if self._ended:
            taker.end()
            return False
        let_go = partial(_note, self._let_go, stream)
        taking = self._takings[stream] = _Taking(taker, [*before, *self.tail(stream, behind)], let_go)
        try:
            await self._catch_up(stream, taking)
        except BaseException:
            if self._takings.pop(stream, None) is not None:
                taker.end()
            raise
        finally:
            taking.attached.set()
        self._check_handed_out(stream)
        return self._takings.get(stream) is taking

    def detach(self, stream: str, taker: Taker) -> None:
        """Give it nothing any more."""
        taking = self._takings.get(stream)
        if taking is not None and taking.taker is taker:
            del self._takings[stream]

    def is_behind(self, stream: str) -> bool:
        """Whether its taker has more to take; `catch_up` has it do so."""
        taking = self._takings.get(stream)
        return taking is not None and bool(taking.waiting)

    async def catch_up(self, stream: str) -> None:
        """Raises what stops the stream, and what loading met."""
        taking = self._takings.get(stream)
        if taking is not None:
            await taking.attached.wait()
            await self._catch_up(stream, taking)
            self._check_handed_out(stream)
        else:
            self._check(stream)

    def rebase(self, slot: int) -> None:
        """The rollup covers everything up to that slot by now."""
        covered = [stream for stream, parts in self._tail.items() if parts[0].slot <= slot]
        for stream in covered:
            parts = self._tail[stream]
            while parts and parts[0].slot <= slot:
                self.tail_bytes -= _bytes_of(parts.popleft())
            if not parts:
                del self._tail[stream]
            taking = self._takings.get(stream)
            taker = None if taking is None else taking.taker
            # Whoever is behind has taken part of what it covers, and counts on the rest.
            if taking is not None and taker is not None and not taking.waiting:
                self._rebase(stream, taker)

    def end_behind(self) -> None:
        """Whoever has more to take goes by the rollup that stood when it was opened, which may be deleted before long:
        it is to be opened anew."""
        for stream in [stream for stream, taking in self._takings.items() if taking.waiting]:
            taker = self._takings.pop(stream).taker
            if taker is not None:
                taker.end()

    def _rebase(self, stream: str, taker: Taker) -> None:
        try:
            stays = taker.rebase()
        except Corrupt as error:
            self._stop(stream, error)
            return
        if not stays:
            del self._takings[stream]
            taker.end()

    def end(self) -> None:
        """The reading of this log has ended (reader.py): so do all who took its records, and whoever comes for them
        still."""
        self._ended = True
        for stop in self._stops.values():
            stop.lifted = True
        takings, self._takings = self._takings, {}
        for taker in [taking.taker for taking in takings.values()]:
            if taker is not None:
                taker.end()

    def _taking(self, stream: str) -> _Taking | None:
        """Of a taker that somebody holds."""
        taking = self._takings.get(stream)
        return None if taking is None or taking.taker is None else taking

    def _forget(self) -> None:
        """Those that are gone."""
        while self._let_go:
            stream = self._let_go.popleft()
            if self._taking(stream) is None:
                self._takings.pop(stream, None)

    async def _catch_up(self, stream: str, taking: _Taking) -> None:
        # What a record needs is kept until it was taken: where two nodes don't fit into memory together, each would
        # drive the other out without end.
        while not await loading(partial(self._hand_out, stream, taking, _AT_ONCE)):
            await checkpoint()

    def _check_handed_out(self, stream: str) -> None:
        """Raises what stopped the stream just now, though it may be opened anew at once."""
        if stream in self._stops:
            raise self._stops[stream].error.with_traceback(None)

    def _check(self, stream: str) -> None:
        """Raises what stops the stream, if that stands."""
        stop = self._stops.get(stream)
        if stop is not None:
            stop.check()
            del self._stops[stream]

    def _give(self, stream: str, taking: _Taking) -> None:
        try:
            self._hand_out(stream, taking)
        except NotLoaded:
            # It catches up when somebody wants it, as those do who wait for it.
            if taking.taker is not None:
                taking.taker.tell()

    def _hand_out(self, stream: str, taking: _Taking, most: int = sys.maxsize) -> bool:
        """Of what waits, that many records; true once nothing does. Raises NotLoaded."""
        waiting, taker = taking.waiting, taking.taker
        try:
            while taker is not None and waiting and self._takings.get(stream) is taking:
                if most <= 0:
                    return False
                part = waiting[0]
                records = part.read()
                for at, record in enumerate(records[:most], 1):
                    try:
                        goes_on = taker.take(Placed(record, part.key, part.size, part.slot))
                    except NotLoaded:
                        waiting[0] = part._replace(decoded=records[at - 1 :])
                        raise
                    if not goes_on:
                        if records[at:]:
                            raise Corrupt(part.key, f"stream {stream} ends in it, and goes on")
                        del self._takings[stream]
                        return True
                if records[most:]:
                    waiting[0] = part._replace(decoded=records[most:])
                else:
                    waiting.popleft()
                most -= len(records)
        except NotLoaded:
            raise
        except Exception as error:
            self._stop(stream, error)
        return True

    def _stop(self, stream: str, error: Exception) -> Stop:
        if isinstance(error, Corrupt | Unsupported):
            stop = Stop(error, None)
        else:
            pauses = self._pauses.setdefault(stream, Backoff(self._now))
            pauses.tried()
            words = f"{stream} stopped, since its records could not be applied ({error!r}): try again"
            stop = Stop(Unavailable(words), pauses)
        _logger.error("%s stops, and nothing else of its log", stream, exc_info=error)
        self._stops[stream] = stop
        taking = self._takings.pop(stream, None)
        taker = None if taking is None else taking.taker
        if taker is not None:
            taker.end(stop)
        return stop


def _bytes_of(part: Part) -> int:
    """What it takes in memory, about."""
    return _PART_BYTES + sum(map(len, part.carried.records))


def _note(let_go: deque[str], stream: str, _: object) -> None:
    let_go.append(stream)
