"""Draft: one entry of a plain log in the making (log/submission.py).

Positions go on from those in flight before it. Who is refused because a stream was closed is told once that stands and
the log was looked at: a deposed owner's state may be stale (DESIGN §4, rule 7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...volume.envelope import checksum, encode
from ...volume.errors import BadInput
from ...volume.plain_records import MOST_RECORDS, Appended, Described
from ...volume.records import StreamRecords
from ..log.submission import Admission, Contents, Submission
from .streams import Stream, Streams


class Append(Submission):
    """Records of one stream or more, in one entry. The answer is the position of the last."""

    def __init__(self, records: Mapping[str, tuple[bytes, ...]]) -> None:
        super().__init__(sum(len(record) for each in records.values() for record in each))
        self.records = records
        self.count = sum(map(len, records.values()))


class Describe(Submission):
    """Metadata for a stream, or whether it is closed; None leaves that as it is."""

    def __init__(self, stream: str, *, metadata: bytes | None = None, closed: bool | None = None) -> None:
        super().__init__(len(metadata or b""))
        self.stream = stream
        self.metadata = metadata
        self.closed = closed


class _Run(NamedTuple):
    """Records of one append that follow each other."""

    first: int
    at: int
    records: tuple[bytes, ...]


class PlainDraft:
    """See log.submission.Draft."""

    def __init__(self, streams: Streams, before: Sequence[PlainDraft]) -> None:
        """`before` are those in flight, oldest first."""
        self._streams = streams
        self._described: dict[str, Described] = {} if not before else dict(before[-1]._described)
        self.last: int = before[-1].last if before else streams.last
        self._own: dict[str, list[_Run | Described]] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._count = 0
        self._answers: list[tuple[Submission, int]] = []

    def admit(self, submission: Any) -> Admission:
        if isinstance(submission, Describe):
            self._describe(submission)
            return Admission.TAKEN
        assert isinstance(submission, Append)
        if self._count and self._count + submission.count > MOST_RECORDS:
            return Admission.LATER
        closed = [name for name in submission.records if self._now(name).closed]
        if not closed:
            self._append(submission)
            return Admission.TAKEN
        if not all(self._streams.streams.get(name, Stream()).closed for name in closed):
            return Admission.LATER
        if not submission.looked:
            return Admission.LOOK
        submission.fail(BadInput(f"stream {closed[0]!r} was closed: open it again with open_stream"))
        return Admission.ANSWERED

    def finish(self) -> Contents:
        streams = {name: StreamRecords(records=tuple(map(self._encoded, own))) for name, own in self._own.items()}
        return Contents(b"".join(self._body), {}, streams, ())

    def acknowledge(self) -> None:
        for submission, last in self._answers:
            submission.answer(last)

    def _now(self, name: str) -> Described:
        """What is known of a stream behind this draft."""
        if name in self._described:
            return self._described[name]
        stream = self._streams.streams.get(name, Stream())
        return Described(metadata=stream.metadata, closed=stream.closed)

    def _describe(self, submission: Describe) -> None:
        name, now = submission.stream, self._now(submission.stream)
        metadata = now.metadata if submission.metadata is None else submission.metadata
        made = Described(metadata=metadata, closed=now.closed if submission.closed is None else submission.closed)
        self._described[name] = made
        self._own.setdefault(name, []).append(made)
        self._answers.append((submission, self.last))

    def _append(self, submission: Append) -> None:
        for name, records in submission.records.items():
            self._own.setdefault(name, []).append(_Run(self.last + 1, self._size, records))
            self._body.extend(records)
            self._size += sum(map(len, records))
            self.last += len(records)
        self._count += submission.count
        self._answers.append((submission, self.last))

    def _encoded(self, own: _Run | Described) -> bytes:
        if isinstance(own, Described):
            return encode(own)
        sizes, sums = tuple(map(len, own.records)), tuple(map(checksum, own.records))
        return encode(Appended(first=own.first, back=self._size - own.at, sizes=sizes, sums=sums))
