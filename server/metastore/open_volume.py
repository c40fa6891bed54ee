"""Volume: one volume's state and history, wherever its stream went (DESIGN §4, §5).

A stream begins in the log it was born in. A `close` there names the log where it goes on, and an `open` in that one
says which close it continues: (log, slot). So a volume's records are one sequence over several logs, and a log may
come up in it more than once. This object has taken a prefix of that sequence; `open_volumes.py` feeds it. What lies in
a log's rollup is not taken record by record: the volume enters it as it stands there.

Invariant: a record is taken only if `apply` accepts it. One that isn't, in a canonical entry, is Corrupt: whoever
wrote it had judged it on the same state. There the volume stops (streams.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import anyio
from msgspec.structs import replace

from ...volume.errors import Corrupt, NotFound
from ...volume.ids import VolumeId
from ...volume.records import Birth, Close, Commit, Fold, Open, Record, Tombstone
from ...volume.rollup import RolledState, rollup_key
from ...volume.wire import SnapshotInfo
from ..store.tree_nodes import NotLoaded
from .folded import Folded
from .history import History, Landed
from .open_stream import OpenStream
from .rolled_stream import RolledStream
from .state import Refusal, StreamState, apply, born
from .streams import Placed, Stop

_VOLUME_BYTES: Final = 3_500
_STAY_BYTES: Final = 700
_LEFT_BYTES: Final = 8_000
_RECORD_BYTES: Final = 1_000
_LOCATION_BYTES: Final = 300
"""Of memory, about: of a volume that is open, and of what it has besides."""


def _bytes_of(record: Record) -> int:
    if not isinstance(record, Commit):
        return _RECORD_BYTES
    parts = sum(_LOCATION_BYTES + len(location.pages) for location in record.locations)
    return _RECORD_BYTES + 2 * len(record.pages) + parts


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
        self.left: list[object] = []
        """The logs of `closes`, as they were open when it came through: they stay open too."""
        self.attached = False
        """Whether new records of `log` come here by themselves."""
        self.lock = anyio.Lock()
        """Held while it is followed from log to log."""
        self.history = History(birth.page_size, birth.parent_lsn, birth.parent_length)
        self._rolled: RolledStream | None = None
        """What the rollup of `log` says of it."""
        self._opened: LogPosition | None = None
        """The close that its stay there goes on from."""
        self._judged: tuple[StreamState, bytes, StreamState] | None = None
        """The newest commit that a draft took: the state it was judged on, its token, the state behind it."""
        self._taken_bytes = 0
        """What the records that it has taken, and no rollup has, take in memory, about."""

    @property
    def page_size(self) -> int:
        return self.birth.page_size

    @property
    def encryption(self) -> bytes:
        """Its encryption header; "" of a volume that isn't encrypted."""
        return self.state.ruled.encryption or self.birth.encryption

    @property
    def parent(self) -> VolumeId | None:
        return VolumeId(self.birth.parent) if self.birth.parent else None

    @property
    def weight(self) -> int:
        """See kept_open.Openable."""
        own = _VOLUME_BYTES + _STAY_BYTES * len(self.history.ranges) + self._taken_bytes
        return own + _LEFT_BYTES * len(self.left)

    @property
    def busy(self) -> bool:
        """See kept_open.Openable: all of it can be read again."""
        return False

    def apply(self, state: StreamState, record: Record) -> StreamState | Refusal:
        after = apply(state, record)
        if isinstance(record, Commit) and isinstance(after, StreamState):
            self._judged = state, record.token, after
        return after

    def enter(self, rolled: RolledStream, state: RolledState | None = None, at: int = -1) -> None:
        """Go on in that log; in its rollup's stay `at`, and there as that leaves it, where it is not -1. Raises Corrupt
        where that is not how the volume came."""
        key, start = rollup_key(rolled.log.log, rolled.log.name), self.history.head
        opened = self.closed_at
        if state is None or at < 0:
            self.history.begin_range(rolled.range(self.page_size, start), self.state.length)
        else:
            stay = state.stays[at]
            if (stay.start, stay.start_length, state.page_size) != (start, self.state.length, self.page_size):
                raise Corrupt(key, f"volume {self.id} comes to it otherwise than it was left")
            self.history.begin_range(
                rolled.range(self.page_size, start),
                self.state.length,
                count=stay.head - stay.start,
                length=stay.length,
            )
            last, time = at == len(state.stays) - 1, self.state.time
            restored = rolled.restored(stay, self.vid.raw, finished=last and state.finished)
            # An early `open` doesn't say it, and the volume has brought it along.
            self.state = restored if restored.time else replace(restored, time=time)
            if stay.fold is not None:
                self._fold(rolled, stay.fold)
            self.closed_at = None
            if stay.closed is not None:
                self._leave(LogPosition(rolled.log.log, stay.closed[1]))
        self.log, self._rolled, self._opened = rolled.log.log, rolled, opened

    def take(self, placed: Placed) -> bool:
        """See streams.Taker."""
        record, before = placed.record, self.state.length
        after = self._after(record)
        if isinstance(after, Refusal):
            raise Corrupt(placed.key, f"it carries what can't be: {after.error}")
        if isinstance(record, Commit):
            self.history.append(Landed.of(record, placed.key, placed.size, before))
        self.state = after
        if isinstance(record, Fold):
            assert self._rolled is not None
            self._fold(self._rolled, record)
        self._taken_bytes += _bytes_of(record)
        if isinstance(record, Open):
            self.closed_at = None
        if isinstance(record, Commit | Close | Tombstone):
            self.tell()
        if isinstance(record, Close):
            self._leave(LogPosition(self.log, placed.slot))
            return False
        return True

    def _after(self, record: Record) -> StreamState | Refusal:
        """What a draft came to, if it was judged on this very state and is this very commit: its token is the same
        object then. Only its locations, which `apply` doesn't look at, were settled since."""
        judged, self._judged = self._judged, None
        if judged is not None and isinstance(record, Commit):
            state, token, after = judged
            if state is self.state and token is record.token and after.time == record.time:
                return after
        return apply(self.state, record)

    def rebase(self) -> bool:
        """See streams.Taker. Where the rollup isn't in memory, all stays."""
        if self._rolled is None:
            return True
        try:
            rolled = self._rolled.state()
        except NotLoaded:
            return True
        stays = () if rolled is None else rolled.stays
        stay = next((stay for stay in stays if stay.opened == self._opened), None)
        if (self.history.start if stay is None else stay.head) < self.history.rolled:
            return False
        if stay is not None:
            behind, left = self.history.head - self.history.rolled, self.history.head - stay.head
            # As if all were of one size.
            self._taken_bytes = self._taken_bytes * max(left, 0) // behind if behind else 0
            self.history.rebase(stay.head)
            self.state = self._rolled.rebased(self.state, stay)
        return True

    def end(self, stop: Stop | None = None) -> None:
        self.attached = False
        super().end(stop)

    def snapshot(self, lsn: int) -> SnapshotInfo:
        """Of an LSN of this volume's own. Raises NotFound, NotLoaded."""
        if lsn > self.state.head:
            raise NotFound(f"volume {self.id} has no LSN {lsn}; its newest is {self.state.head}")
        return SnapshotInfo(
            vid=self.vid.raw,
            lsn=lsn,
            length=self.state.length if lsn == self.state.head else self.history.length_at(lsn),
            page_size=self.page_size,
            time=self._time_of(lsn),
            since=self.state.since,
            upper=self.state.head + 1,
            log=self.log,
            parent=self.birth.parent,
            parent_lsn=self.birth.parent_lsn,
            encryption=self.encryption,
        )

    def _time_of(self, lsn: int) -> int:
        if lsn <= self.history.start:
            return self.birth.time
        return self.state.time if lsn == self.state.head else self.history.at(lsn).time

    def _fold(self, rolled: RolledStream, fold: Fold) -> None:
        self.history.folding = Folded(rolled.log.nodes, fold, self.page_size, self.history.start)

    def _leave(self, close: LogPosition) -> None:
        self.closed_at = close
        self.closes = (*self.closes, close)
        self.attached = False
