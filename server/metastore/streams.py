"""Streams: what the entries of one log say, sorted by volume (DESIGN §4, §5).

A log may carry many thousands of volumes, of which a process wants a few. So records wait here, in order and not
decoded, until their volume is opened. They are handed to it a few at a time, so that opening one of many commits holds
nobody up, and from then on at once. Each comes with the place it stands in, which is what a fork, a move and a page's
location name.

A stream stops, alone, where its records can't be followed: at one of a kind that nobody here knows, one that is damaged
or that its state refuses, or one that its taker fails at. Whoever reads or writes that volume is told in words; the log
goes on for all others. What is unknown or damaged stays so for as long as this log is read; a failure that nobody
foresaw may pass, so that after a pause the stream is opened anew.

Who opens a stream must have all of it. What was handed out is not kept, so where another has had some of it already,
who is no more, the log is read once more for it (logs.py), and `restore` has it wait here again.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from anyio.lowlevel import checkpoint

from ...volume.errors import BudwoodError, Corrupt, Unavailable, Unsupported
from ...volume.records import Record, StreamRecords
from ..log.reader import Canonical
from .single_flight import Backoff

_AT_ONCE: Final = 64
"""Records handed out before others have their turn: a few milliseconds."""

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

    @classmethod
    def of(cls, entry: Canonical, stream: str) -> Part:
        return cls(entry.key, entry.size, entry.slot, entry.streams[stream], entry.decoded.get(stream))

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

    def check(self) -> None:
        """Raises the error, unless the stream may be opened anew."""
        if not self.lifted and (self._pauses is None or self._pauses.left_seconds()):
            raise self.error.with_traceback(None)


class Taker(Protocol):
    """A volume or namespace that is open."""

    def take(self, placed: Placed) -> bool:
        """Apply the next record of its stream in this log; false when the stream ends here with it. Raises Corrupt."""
        ...

    def end(self, stop: Stop | None = None) -> None:
        """Nothing more comes, though the stream goes on: what was applied can't be relied upon, and whoever wants the
        stream opens it anew, or is told why it stopped."""
        ...


class Streams:
    """The sink of one log's reader."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._waiting: dict[str, deque[Part]] = {}
        self._takers: dict[str, Taker] = {}
        self._attaching: set[str] = set()
        """Of these what has waited is still being handed out, and what comes meanwhile waits behind it."""
        self._taken: dict[str, int] = {}
        """The slot up to which a stream was handed out."""
        self._stops: dict[str, Stop] = {}
        self._pauses: dict[str, Backoff] = {}

    def sink(self, entry: Canonical) -> None:
        for stream in entry.streams:
            if stream in self._stops:
                continue
            self._waiting.setdefault(stream, deque()).append(Part.of(entry, stream))
            if stream in self._takers and stream not in self._attaching:
                self._hand_out(stream, self._takers[stream])

    def first(self, stream: str) -> Placed | None:
        """The first of the stream's records that nobody has taken. Raises what stops the stream."""
        self._check(stream)
        waiting = self._waiting.get(stream)
        if not waiting:
            return None
        try:
            part = waiting[0]
            return Placed(part.read()[0], part.key, part.size, part.slot)
        except Exception as error:
            raise self._stop(stream, error).error from error

    def goes_on_behind(self, stream: str, slot: int) -> bool:
        """Whether all that the log carries for the stream behind that slot waits here; then nothing else does. False
        where it is to be read once more. Raises what stops the stream."""
        stop = self._stops.get(stream)
        if stop is not None:
            stop.check()
            return False
        if self._taken.get(stream, -1) > slot:
            return False
        waiting = self._waiting.get(stream)
        while waiting and waiting[0].slot <= slot:
            waiting.popleft()
        return True

    def restore(self, stream: str, parts: Iterable[Part]) -> None:
        """Have these wait, which are all that this log carries for the stream, as far as it was read."""
        assert stream not in self._takers, f"{stream} is open"
        self._waiting[stream] = deque(parts)
        self._taken.pop(stream, None)
        self._stops.pop(stream, None)

    async def attach(self, stream: str, taker: Taker) -> bool:
        """Give `taker` what waits, and from then on what comes; false when the stream ends in this log before its tip,
        or the reading of the log meanwhile: then nothing more will come. Raises what stops the stream; after that, or
        if this is cancelled, the taker has ended."""
        assert stream not in self._takers, f"{stream} is open already"
        self._check(stream)
        self._takers[stream] = taker
        self._attaching.add(stream)
        try:
            while not self._hand_out(stream, taker, _AT_ONCE):
                await checkpoint()
        except BaseException:
            if self._takers.pop(stream, None) is not None:
                taker.end()
            raise
        finally:
            self._attaching.remove(stream)
        self._check(stream)
        return stream in self._takers

    def end(self) -> None:
        """The reading of this log has ended (reader.py): so do all who took its records."""
        for stop in self._stops.values():
            stop.lifted = True
        takers, self._takers = self._takers, {}
        for taker in takers.values():
            taker.end()

    def _check(self, stream: str) -> None:
        if stream in self._stops:
            raise self._stops[stream].error.with_traceback(None)

    def _hand_out(self, stream: str, taker: Taker, most: int = sys.maxsize) -> bool:
        """Of what waits, that many records; true once `taker` is to be given no more of it."""
        waiting = self._waiting.get(stream)
        try:
            while waiting and self._takers.get(stream) is taker:
                if most <= 0:
                    return False
                part = waiting.popleft()
                self._taken[stream] = part.slot
                records = part.read()
                for at, record in enumerate(records[:most], 1):
                    goes_on = taker.take(Placed(record, part.key, part.size, part.slot))
                    if not goes_on:
                        del self._takers[stream]
                    if records[at:] and (at == most or not goes_on):
                        waiting.appendleft(part._replace(decoded=records[at:]))
                    if not goes_on:
                        return True
                most -= len(records)
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
        self._waiting.pop(stream, None)
        taker = self._takers.pop(stream, None)
        if taker is not None:
            taker.end(stop)
        return stop
