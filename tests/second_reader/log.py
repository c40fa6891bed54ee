"""Logs: which entries of a chain count, and what they carry for their streams."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .basics import EMPTY_SUM, Damaged, Fields, TooNew, add, digest, log_item, page_set, sum_of, unpack_map
from .envelopes import object_of, unseal
from .segments import Segment

KINDS = {
    "commit",
    "open",
    "close",
    "fork",
    "since",
    "collect",
    "collected",
    "fold",
    "tombstone",
    "names",
}


ROLLUP = re.compile("[0-9a-f]{16}/[0-9a-f]{64}")


class Entry(NamedTuple):
    key: str
    fields: Fields
    body: bytes
    digest: bytes
    """Of its head: by this the next canonical entry names it."""

    @property
    def slot(self) -> int:
        return self.fields.number("i")

    @property
    def epoch(self) -> int:
        return self.fields.number("epoch")

    @property
    def streams(self) -> dict[str, Fields]:
        """What it carries for each stream, its records not decoded."""
        return {stream: Fields.of(self.key, part) for stream, part in self.fields.map("streams").items()}

    def records(self, stream: str) -> list[Fields]:
        """Raises what stops the stream."""
        part = self.streams.get(stream)
        if part is None:
            return []
        records = [self._record(raw) for raw in part.items("records")]
        sums = [sum_of(self.key, record.data("setsum")) for record in records if record.text("k") == "commit"]
        if not records or part.data("setsum", EMPTY_SUM) != add(*sums):
            raise Damaged(self.key, f"the commits of stream {stream} have another sum than it says")
        return records

    def _record(self, raw: Any) -> Fields:
        if not isinstance(raw, bytes):
            raise Damaged(self.key, "a record is no bytes")
        record = Fields(self.key, unpack_map(self.key, raw))
        if record.text("k") not in KINDS:
            raise TooNew(f"{self.key}: a record of kind {record.text('k')!r}")
        return record


class Position(NamedTuple):
    """How a log's chain goes on behind one of its slots."""

    epoch: int
    n: int
    writer: bytes
    canonical: int
    digest: bytes
    total: bytes
    collected: bytes
    named: str
    """The newest rollup that an entry up to there names."""


class Placed(NamedTuple):
    """A record and the entry that carries it."""

    record: Fields
    entry: Entry


class Log:
    """Read from slot 0 to the first that is missing."""

    def __init__(self, objects: Mapping[str, bytes], name: str) -> None:
        self.name = name
        self.canonical: list[Entry] = []
        self.void: list[Entry] = []
        self.positions: list[Position] = []
        """By slot."""
        self._objects = objects
        self._epoch, self._n = 0, -1
        self._writer: bytes = b""
        self._total: bytes = EMPTY_SUM
        self._collected: bytes = EMPTY_SUM
        self._rollup = ""
        self._check_boundaries()
        slot = 0
        while self.key(slot) in objects:
            self._take(self._parse(slot))
            self.positions.append(self._position())
            slot += 1
        self.end = slot
        self._check_gap()

    def key(self, slot: int) -> str:
        return f"logs/{self.name}/entries/{2**64 - 1 - slot:016x}"

    def stream(self, vid: str) -> list[Placed]:
        return [Placed(record, entry) for entry in self.canonical for record in entry.records(vid)]

    def _parse(self, slot: int) -> Entry:
        key = self.key(slot)
        data = object_of(self._objects, key)
        envelope = unseal(key, b"BWLE", data)
        fields, body = envelope.fields, envelope.body
        if (fields.text("log"), fields.number("i")) != (self.name, slot):
            raise Damaged(key, "it is another entry's")
        _check_kind(key, fields)
        return Entry(key, fields, body, digest(envelope.head))

    def _take(self, entry: Entry) -> None:
        epoch, n, writer = entry.epoch, entry.fields.number("n"), entry.fields.data("writer")
        if epoch == self._epoch > 0 and self._n >= 0 and writer != self._writer:
            raise Damaged(entry.key, f"epoch {epoch} has two writers")
        counts = epoch >= self._epoch and n == (self._n + 1 if epoch == self._epoch else 0)
        if epoch > self._epoch:
            # Of a void entry too: whatever an older epoch has behind it is void.
            self._epoch, self._n = epoch, -1
        if not counts:
            self.void.append(entry)
            return
        self._check(entry)
        self._n, self._writer = n, writer
        self.canonical.append(entry)

    def _position(self) -> Position:
        last, counts = self.canonical[-1], self._n >= 0
        sums = self._total, self._collected
        return Position(
            self._epoch, self._n, self._writer if counts else b"", last.slot, last.digest, *sums, self._rollup
        )

    def _check(self, entry: Entry) -> None:
        key, fields = entry.key, entry.fields
        before = self.canonical[-1] if self.canonical else None
        previous = (before.slot, before.digest) if before else (0, b"")
        if (fields.number("previous", 0), fields.data("previous_digest", b"")) != previous:
            raise Damaged(key, "it does not follow the canonical entry before it")
        added = add(*(sum_of(key, part.data("setsum", EMPTY_SUM)) for part in entry.streams.values()))
        before_it, total = fields.data("prev_sum", EMPTY_SUM), fields.data("total", EMPTY_SUM)
        if before_it != self._total or total != add(self._total, added):
            raise Damaged(key, "its sums don't add up")
        parts = [sum_of(key, each.data("setsum", EMPTY_SUM)) for each in fields.maps("fragments")]
        if not entry.body and added != add(*parts):
            raise Damaged(key, "its fragments' sums don't add up")
        if fields.data("collected", EMPTY_SUM) != self._collected:
            raise Damaged(key, "it takes something out, and doesn't say what")
        self._total = total
        if any(fragment.number("epoch") != entry.epoch for fragment in fields.maps("fragments")):
            raise Damaged(key, "it names a fragment of another epoch")
        self._check_rollup(entry)

    def _check_rollup(self, entry: Entry) -> None:
        name = entry.fields.text("rollup", "")
        if name != self._rollup:
            slot = slot_of_rollup(entry.key, name)
            if slot > entry.fields.number("acked", 0) or slot >= entry.slot:
                raise Damaged(entry.key, f"it names a rollup of slot {slot}, which was not acknowledged")
            if self._rollup and slot <= slot_of_rollup(entry.key, self._rollup):
                raise Damaged(entry.key, "it names a rollup of no more slots than an entry before it")
            self._rollup = name

    def check_objects(self) -> None:
        """What the canonical entries name: their bodies, epochs and fragments, whole; and that the rollups stand that
        entries name, void ones too."""
        for entry in (*self.canonical, *self.void):
            if name := entry.fields.text("rollup", ""):
                object_of(self._objects, f"logs/{self.name}/rollups/{name}")
                if slot_of_rollup(entry.key, name) >= entry.slot:
                    raise Damaged(entry.key, f"it names the rollup {name}, which covers it")
        for entry in self.canonical:
            if entry.fields.data("body_digest", b"") != (digest(entry.body) if entry.body else b""):
                raise Damaged(entry.key, "its body does not match its digest")
            if entry.epoch:
                self._check_epoch(entry)
            for fragment in entry.fields.maps("fragments"):
                self._check_fragment(entry, fragment)

    def _check_fragment(self, entry: Entry, fragment: Fields) -> None:
        key = fragment.text("key")
        data = object_of(self._objects, key)
        if len(data) != fragment.number("length") or digest(data) != fragment.data("digest"):
            raise Damaged(key, f"it is not what entry {entry.slot} names")
        if not key.startswith(f"logs/{self.name}/t/{entry.epoch:016x}/"):
            raise Damaged(entry.key, f"it names {key}, which is of another epoch or log")
        items: list[bytes] = []
        for commit in (record for stream in entry.streams for record in entry.records(stream)):
            for place in commit.maps("locations"):
                if place.text("object") == key:
                    items += _items(commit, place, Segment(key, data))
        if add(*items) != sum_of(entry.key, fragment.data("setsum", EMPTY_SUM)):
            raise Damaged(key, "what its entry's commits take from it is other than that says")

    def _check_epoch(self, entry: Entry) -> None:
        key = f"logs/{self.name}/epochs/{entry.epoch:016x}"
        fields = unseal(key, b"BWEP", object_of(self._objects, key)).fields
        if (fields.text("log"), fields.number("n")) != (self.name, entry.epoch):
            raise Damaged(key, "it is another epoch's")
        if fields.data("writer") != entry.fields.data("writer"):
            raise Damaged(entry.key, f"epoch {entry.epoch} was taken by another writer")

    def _check_boundaries(self) -> None:
        prefix = f"logs/{self.name}/boundary/"
        for key in (key for key in self._objects if key.startswith(prefix)):
            fields = unseal(key, b"BWBO", self._objects[key]).fields
            slot = fields.number("slot")
            if (fields.text("log"), f"{2**64 - 1 - slot:016x}") != (self.name, key[len(prefix) :]):
                raise Damaged(key, "it is another boundary")
            if slot:
                raise TooNew(f"{key}: the log begins with a rollup")

    def _check_gap(self) -> None:
        """Slots behind the first missing one don't count, unless someone had seen that one acknowledged."""
        prefix = f"logs/{self.name}/entries/"
        slots = (2**64 - 1 - int(key[len(prefix) :], 16) for key in self._objects if key.startswith(prefix))
        for slot in sorted(slots):
            if self.end < slot < math.inf and self._parse(slot).fields.number("acked", 0) >= self.end:
                raise Damaged(self.key(self.end), "it is missing, and was acknowledged")


def slot_of_rollup(key: str, name: str) -> int:
    """That it covers, by its name."""
    if not ROLLUP.fullmatch(name):
        raise Damaged(key, f"it names {name!r}, which is no rollup")
    return int(name[:16], 16)


def _check_kind(key: str, fields: Fields) -> None:
    kind, epoch, n = fields.text("kind", "data"), fields.number("epoch"), fields.number("n")
    if kind not in {"anchor", "fence", "data"}:
        raise TooNew(f"{key}: an entry of kind {kind!r}")
    belongs = "anchor" if fields.number("i") == 0 else "fence" if epoch and not n else "data"
    if kind != belongs or (kind == "anchor" and (epoch, n) != (0, 0)):
        raise Damaged(key, f"an entry of kind {kind} stands where one of kind {belongs} belongs")


def _items(commit: Fields, place: Fields, segment: Segment) -> list[bytes]:
    """The log items of what a commit takes from a segment."""
    vid, lsn, slot = commit.data("vid"), commit.number("lsn"), place.number("slot")
    if slot >= len(segment.parts):
        raise Damaged(commit.key, f"{segment.key} has no slot {slot}")
    pages = page_set(commit.key, place.data("pages", b"") or commit.data("pages"))
    return [log_item(vid, lsn, page, item) for page, item in segment.parts[slot].hashes.items() if page in pages]
