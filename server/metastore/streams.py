"""Streams: what the entries of one log say, sorted by volume (DESIGN §4, §5).

A log may carry many thousands of volumes, of which a process wants a few. So records wait here, in order, until their
volume is opened; from then on they go to it at once. Each comes with the place it stands in, which is what a fork, a
move and a page's location name.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ...volume.records import Record
from ..log.reader import Canonical

__all__ = ["Placed", "Streams", "Taker"]


class Placed(NamedTuple):
    record: Record
    key: str
    """The entry's."""
    size: int
    """Of the whole entry, in bytes."""
    slot: int


class Taker(Protocol):
    """A volume or namespace that is open."""

    def take(self, placed: Placed) -> bool:
        """Apply the next record of its stream in this log; false when the stream ends here with it. Raises Corrupt."""
        ...

    def end(self) -> None:
        """Nothing more comes, though the stream goes on: what was applied can't be relied upon, and whoever wants the
        stream opens it anew."""
        ...


class Streams:
    """The sink of one log's reader."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Placed]] = {}
        self._takers: dict[str, Taker] = {}

    def sink(self, entry: Canonical) -> None:
        for stream, records in entry.records.items():
            for record in records:
                placed = Placed(record, entry.key, entry.size, entry.slot)
                taker = self._takers.get(stream)
                if taker is None:
                    self._waiting.setdefault(stream, []).append(placed)
                elif not taker.take(placed):
                    del self._takers[stream]

    def waiting(self, stream: str) -> list[Placed]:
        """The stream's records that nobody has taken."""
        return self._waiting.get(stream, [])

    def end(self) -> None:
        """The reading of this log has ended (reader.py): so do all who took its records."""
        takers, self._takers = self._takers, {}
        for taker in takers.values():
            taker.end()

    def attach(self, stream: str, taker: Taker) -> bool:
        """Give `taker` what waits, and from now on what comes; false when the stream ends in this log before its tip:
        then nothing more will come. Raises Corrupt with everything still waiting."""
        assert stream not in self._takers, f"{stream} is open already"
        waiting = self._waiting.get(stream, [])
        for at, placed in enumerate(waiting):
            if not taker.take(placed):
                self._waiting[stream] = waiting[at + 1 :]
                return False
        self._waiting.pop(stream, None)
        self._takers[stream] = taker
        return True
