"""Plain check: what the entries of a plain log carry (docs/log.md), verified from the bytes.

A plain log carries no volumes, so that nothing of what is asked of theirs can be asked of it. Its records have
positions that only grow, lie where the entry's head says, and are those that were appended, by their checksums.
"""

from __future__ import annotations

from ...volume.entry import Entry
from ...volume.envelope import checksum
from ...volume.errors import Corrupt, Unsupported
from ...volume.plain_records import Appended, Described, decode_plain, is_plain
from ...volume.records import StreamRecords
from .findings import Span, Wrong, words_of


def is_plain_entry(entry: Entry) -> bool:
    return any(is_plain(carried) for carried in entry.header.streams.values())


class PlainCheck:
    """Of one log, whose entries come in their order."""

    def __init__(self) -> None:
        self._last = 0
        """The highest position that was met."""

    def check(self, entry: Entry, data: bytes, wrong: Wrong) -> None:
        """Adds to `wrong` what is wrong with the records. `data` is all of the entry."""
        last = self._last
        for stream, carried in entry.header.streams.items():
            for record in self._records(entry.key, carried, wrong):
                if isinstance(record, Appended):
                    if record.first <= self._last:
                        wrong.add(f"it gives position {record.first} to a record, which was given before")
                    last = max(last, record.first + len(record.sizes) - 1)
                    _check_bytes(entry, data, stream, record, wrong)
        self._last = last

    def _records(self, key: str, carried: StreamRecords, wrong: Wrong) -> list[Appended | Described]:
        try:
            return [decode_plain(key, raw) for raw in carried.records] if is_plain(carried) else _foreign(key)
        except (Corrupt, Unsupported) as error:
            wrong.add(words_of(key, error))
            return []


def _foreign(key: str) -> list[Appended | Described]:
    raise Corrupt(key, "it carries records of a volume beside those of a plain log")


def _check_bytes(entry: Entry, data: bytes, stream: str, record: Appended, wrong: Wrong) -> None:
    at = entry.size - record.back
    if at < 0:
        wrong.add("it says of records of a stream what can't be")
        return
    for index, (size, wanted) in enumerate(zip(record.sizes, record.sums, strict=True)):
        if checksum(data[at : at + size]) != wanted:
            position = record.first + index
            lost = Span(stream, position, position, plain=True)
            wrong.add(f"the record at position {position} is not the one that was appended", [lost])
        at += size
