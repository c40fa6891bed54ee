"""Volume: one volume's state and history, wherever its stream went (DESIGN §4, §5).

A stream begins in the log it was born in. A `close` there names the log where it goes on, and an `open` in that one
says which close it continues: (log, slot). So a volume's records are one sequence over several logs, and a log may
come up in it more than once. This object has taken a prefix of that sequence; `open_volumes.py` feeds it.

Invariant: a record is taken only if `apply` accepts it. One that isn't, in a canonical entry, is Corrupt: whoever
wrote it had judged it on the same state. There the volume stops (streams.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import anyio

from ...volume.errors import Corrupt, NotFound
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet
from ...volume.records import Birth, Close, Commit, Open, Record
from ...volume.wire import SnapshotInfo
from .history import History, Landed
from .open_stream import OpenStream
from .state import Refusal, StreamState, apply, born
from .streams import Placed, Stop, Streams


class LogPosition(NamedTuple):
    """An entry."""

    log: str
    slot: int


class Volume(OpenStream[StreamState]):
    """Has taken everything up to its last record in `log`, unless `closed_at` says that it goes on elsewhere."""

    def __init__(self, birth: Birth) -> None:
        super().__init__(VolumeId(birth.vid), born(birth))
        self.birth = birth
        self.log = birth.log
        """The log that the stream is in, as far as it was followed."""
        self.closed_at: LogPosition | None = None
        """The newest close, if no `open` that continues it was taken."""
        self.closes: tuple[LogPosition, ...] = ()
        """All of them: the logs that hold earlier commits."""
        self.attached = False
        """Whether new records of `log` come here by themselves."""
        self.lock = anyio.Lock()
        """Held while it is followed from log to log."""
        self.history = History(birth.page_size, birth.parent_lsn, birth.parent_length)

    @property
    def page_size(self) -> int:
        return self.birth.page_size

    @property
    def parent(self) -> VolumeId | None:
        return VolumeId(self.birth.parent) if self.birth.parent else None

    def apply(self, state: StreamState, record: Record) -> StreamState | Refusal:
        return apply(state, record)

    async def attach(self, streams: Streams) -> None:
        """Take what waits in the log's streams, and from now on what comes. Raises what stops the volume."""
        self.attached = await streams.attach(self.id, self)

    def take(self, placed: Placed) -> bool:
        """See streams.Taker."""
        record = placed.record
        after = apply(self.state, record)
        if isinstance(after, Refusal):
            raise Corrupt(placed.key, f"it carries what can't be: {after.error}")
        if isinstance(record, Commit):
            self.history.append(Landed.of(record, placed.key, placed.size))
        self.state = after
        if isinstance(record, Open):
            self.closed_at = None
        if isinstance(record, Commit | Close):
            self.tell()
        if isinstance(record, Close):
            self.closed_at = LogPosition(self.log, placed.slot)
            self.closes = (*self.closes, self.closed_at)
            self.attached = False
            return False
        return True

    def end(self, stop: Stop | None = None) -> None:
        self.attached = False
        super().end(stop)

    def snapshot(self, lsn: int) -> SnapshotInfo:
        """Of an LSN of this volume's own. Raises NotFound."""
        if lsn > self.state.head:
            raise NotFound(f"volume {self.id} has no LSN {lsn}; its newest is {self.state.head}")
        own = lsn > self.history.start
        return SnapshotInfo(
            vid=self.vid.raw,
            lsn=lsn,
            length=self.history.length_at(lsn),
            page_size=self.page_size,
            time=self.history.at(lsn).time if own else self.birth.time,
            since=self.state.since,
            upper=self.state.head + 1,
            log=self.log,
            parent=self.birth.parent,
            parent_lsn=self.birth.parent_lsn,
        )

    def newest_in(self, commit_lsn: int, lsn: int) -> Callable[[PageSet], PageSet]:
        """Which pages of that commit are the snapshot's at `lsn`."""
        return lambda pages: self.history.newest_in(commit_lsn, lsn, pages)
