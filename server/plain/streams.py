"""Streams of a plain log: what the heads that were read come to, and where each record lies.

A record that can't be followed (damaged, or of a kind that is not known) stops its own stream there; what came before
stays readable, and so do the others. Nobody may append then, since it isn't known how many records it stood for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...volume.errors import Corrupt, Unsupported
from ...volume.plain_records import Appended, Described, Foreign, decode_plain
from ...volume.records import StreamRecords
from ..log.reader import Canonical


class Part(NamedTuple):
    """The records that one entry has of one stream."""

    key: str
    start: int
    """Where the first begins in the entry."""
    first: int
    """Its position."""
    sizes: tuple[int, ...]
    sums: tuple[int, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.sizes) - 1


class Slice(NamedTuple):
    """Some of a part's records: those from `begin` to before `end`, counted from 0."""

    part: Part
    begin: int
    end: int

    @property
    def bytes(self) -> range:
        """Where they lie in the entry."""
        start = self.part.start + sum(self.part.sizes[: self.begin])
        return range(start, start + sum(self.part.sizes[self.begin : self.end]))


@dataclass(slots=True)
class Stream:
    parts: list[Part] = field(default_factory=list[Part])
    count: int = 0
    metadata: bytes = b""
    closed: bool = False
    stopped: Corrupt | Unsupported | None = None

    def slices(self, after: int, most: int, most_bytes: int) -> Iterator[Slice]:
        """The records behind that position: so many at most, and so many bytes, but for the first."""
        left, given = most, False
        for part in self.parts[bisect_right(self.parts, after, key=lambda part: part.last) :]:
            begin = max(after + 1 - part.first, 0)
            end = begin
            while end < len(part.sizes) and left and (not given or part.sizes[end] <= most_bytes):
                most_bytes -= part.sizes[end]
                left, given, end = left - 1, True, end + 1
            if end > begin:
                yield Slice(part, begin, end)
            if end < len(part.sizes):
                return


class Streams:
    """Of one log, as it was read here."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.last = 0
        """The position of the last record."""
        self.foreign = ""
        """The key of an entry that carries a volume's record, if one does."""
        self.stopped: Corrupt | Unsupported | None = None
        """What stopped the first of the streams that were stopped."""

    def sink(self, entry: Canonical) -> None:
        """See log.reader.Sink."""
        last = self.last
        for name, carried in entry.streams.items():
            stream = self.streams.setdefault(name, Stream())
            if stream.stopped is not None:
                continue
            try:
                last = max(last, self._apply(stream, entry, carried))
            except Foreign:
                self.foreign = self.foreign or entry.key
            except (Corrupt, Unsupported) as error:
                stream.stopped = error
                self.stopped = self.stopped or error
        self.last = last

    def _apply(self, stream: Stream, entry: Canonical, carried: StreamRecords) -> int:
        """The last position that it comes to."""
        last = self.last
        for raw in carried.records:
            record = decode_plain(entry.key, raw)
            if isinstance(record, Described):
                stream.metadata, stream.closed = record.metadata, record.closed
                continue
            part = _part_of(entry, record)
            if part.first <= last:
                raise Corrupt(entry.key, f"it gives position {part.first} to a record, which was given before")
            stream.parts.append(part)
            stream.count += len(part.sizes)
            last = part.last
        return last


def _part_of(entry: Canonical, record: Appended) -> Part:
    if record.back > entry.size:
        raise Corrupt(entry.key, "it says of records of a stream what can't be")
    return Part(entry.key, entry.size - record.back, record.first, record.sizes, record.sums)
