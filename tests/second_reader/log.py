"""Logs: which entries of a chain count, and what they carry for their streams."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .basics import EMPTY_SUM, Damaged, Fields, TooNew, add, digest, log_item, page_set, shard_in, sum_of, unpack_map
from .envelopes import object_of, unseal
from .plans import Plan, plans_of
from .read_rollups import Position, Rollup, slot_of_rollup
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
    "fold-relocating",
    "tombstone",
    "retain",
    "open-retained",
    "open-relocated",
    "names",
    "commit-bound",
    "mode",
    "writer-epoch",
    "open-ruled",
}

COMMITS = {"commit", "commit-bound"}

NUMBER = re.compile("[0-9a-f]{16}")


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
        sums = [sum_of(self.key, record.data("setsum")) for record in records if record.text("k") in COMMITS]
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


class Placed(NamedTuple):
    """A record and the entry that carries it."""

    record: Fields
    entry: Entry


class Log:
    """Read from slot 0 to the first that is missing; or, where it was cut off, from behind the oldest rollup of its row
    that must stand. With `newest` from behind the newest one, as other readers do."""

    def __init__(self, objects: Mapping[str, bytes], name: str, *, newest: bool = False) -> None:
        self.name = name
        self.canonical: list[Entry] = []
        """Those behind the rollup that it is read from."""
        self.void: list[Entry] = []
        self.positions: dict[int, Position] = {}
        """By slot."""
        self.kept: list[Entry] = []
        """Canonical ones before that, which stand."""
        self.base: Rollup | None = None
        self._objects = objects
        self._epoch, self._n = 0, -1
        self._writer: bytes = b""
        self._last, self._digest = 0, b""
        self._total: bytes = EMPTY_SUM
        self._collected: bytes = EMPTY_SUM
        self.rollup = ""
        """The newest that is named."""
        self.garbage = ""
        """The newest plan that is acknowledged."""
        self.fragments_since = 0
        """The time of the oldest fragment that can be named."""
        self.shards = 0
        """The highest that a fragment lies in."""
        self.boundary = boundary_in(objects, name)
        self.plans = plans_of(objects, name)
        if newest or self.boundary:
            self.base = self._newest() if newest else self._oldest()
        if self.base is not None:
            self._begin_behind(self.base)
        slot = self.begin
        while self.key(slot) in objects:
            self._take(self._parse(slot))
            self.positions[slot] = self._position()
            slot += 1
        self.end = slot
        self._check_gap()
        if self.base is not None:
            self._keep(self.base)
        if not newest:
            self._check_plans()

    @property
    def begin(self) -> int:
        """The first slot that is read."""
        return 0 if self.base is None else self.base.slot + 1

    @property
    def plan(self) -> Plan | None:
        """The one that is acknowledged and stands."""
        return self.plans.get(self.garbage)

    def is_of_use(self, rollup: Rollup) -> bool:
        """Whether it is in the row of those that are named, or was made from the newest. Where nothing was collected
        yet all are."""
        return not self.garbage or rollup.previous == self.rollup or rollup.name in {each.name for each in self._row()}

    def _row(self) -> list[Rollup]:
        """The rollups that are named, the newest first: back to one that isn't there."""
        prefix = f"logs/{self.name}/entries/"
        standing = sorted(key for key in self._objects if key.startswith(prefix))[:2]
        row: list[Rollup] = []
        for key in standing:
            try:
                name = unseal(key, b"BWLE", self._objects[key]).fields.text("rollup", "")
            except (Damaged, TooNew):
                continue
            while name and (not row or f"logs/{self.name}/rollups/{name}" in self._objects):
                row.append(Rollup(self._objects, self.name, name))
                name = row[-1].previous
            break
        return row

    def _newest(self) -> Rollup | None:
        row = self._row()
        if self.boundary and (not row or row[0].slot < self.boundary - 1):
            raise TooNew(f"log {self.name} begins at slot {self.boundary}, and no rollup covers what was before")
        return row[0] if row else None

    def _oldest(self) -> Rollup:
        """Of those that stand: it leads to those behind it, which are checked by it."""
        newest = Log(self._objects, self.name, newest=True)
        least = max(self.boundary - 1, slot_of_rollup("", newest.plan.rollup) if newest.plan else 0)
        return [rollup for rollup in self._row() if rollup.slot >= least][-1]

    def _begin_behind(self, base: Rollup) -> None:
        at = base.position
        self._epoch, self._n, self._writer, self._last, self._digest, self._total, self._collected = at[:7]
        self.rollup, self.garbage, self.fragments_since = at.named, at.garbage, at.fragments_since
        self.shards = at.shards
        self.positions[base.slot] = at

    def _keep(self, base: Rollup) -> None:
        """The entries that the rollup covers and that stand: which are canonical follows from it, backwards."""
        self._parse(0)
        parsed = {slot: self._parse(slot) for slot in range(max(self.boundary, 1), base.slot + 1)}
        slot, wanted = base.position.canonical, base.position.digest
        while slot in parsed:
            if parsed[slot].digest != wanted:
                raise Damaged(self.key(slot), "it is another entry than the one behind it names")
            self.kept.insert(0, parsed[slot])
            slot, wanted = self.kept[0].fields.number("previous", 0), self.kept[0].fields.data("previous_digest", b"")

    def _check_plans(self) -> None:
        """That what the acknowledged plan says goes with its log."""
        plan = self.plan
        if plan is None:
            return
        if plan.slot > slot_of_rollup(plan.key, plan.rollup) + 1 or plan.slot > self.end:
            raise Damaged(plan.key, "it takes out entries that its rollup doesn't cover")
        if plan.base and int(plan.base, 16) >= plan.number:
            raise Damaged(plan.key, "it was made before the plan that it says was acknowledged before")
        if plan.due is not None and plan.slot > self.boundary:
            raise Damaged(plan.key, "it is due, and its boundary isn't there")

    def key(self, slot: int) -> str:
        return f"logs/{self.name}/entries/{2**64 - 1 - slot:016x}"

    def stream(self, vid: str) -> list[Placed]:
        return [Placed(record, entry) for entry in self.canonical for record in entry.records(vid)]

    def entry_bytes(self, slot: int) -> bytes:
        return object_of(self._objects, self.key(slot))

    def entry(self, slot: int) -> Entry:
        """One that stands. Raises Damaged."""
        return self._parse(slot)

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
        if entry.fields.text("kind", "data") == "guest":
            counts = epoch == self._epoch and n == self._n
            if counts and (entry.body or len(list(entry.streams)) != 1 or entry.fields.maps("fragments")):
                raise Damaged(entry.key, "a guest's entry does more than it may")
        if epoch > self._epoch:
            # Of a void entry too: whatever an older epoch has behind it is void.
            self._epoch, self._n = epoch, -1
        if not counts:
            self.void.append(entry)
            return
        self._check(entry)
        self._n, self._writer = n, writer
        self._last, self._digest = entry.slot, entry.digest
        self.canonical.append(entry)

    def _position(self) -> Position:
        writer = self._writer if self._n >= 0 else b""
        last = self._last, self._digest, self._total, self._collected
        return Position(
            self._epoch, self._n, writer, *last, self.rollup, self.garbage, self.fragments_since, self.shards
        )

    def _check(self, entry: Entry) -> None:
        acked, alpha = entry.fields.number("acked", 0), entry.fields.number("alpha", 1)
        if entry.slot and not acked < entry.slot <= acked + 2 * alpha:
            raise Damaged(entry.key, f"its writer had acknowledged slot {acked}, with {alpha} in flight")
        key, fields = entry.key, entry.fields
        if (fields.number("previous", 0), fields.data("previous_digest", b"")) != (self._last, self._digest):
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
        shards = [shard_in(self.name, fragment.text("key")) for fragment in fields.maps("fragments")]
        if fields.number("shards", 0) != max(shards, default=0):
            raise Damaged(key, "it doesn't say up to which shard its fragments lie")
        self.shards = max(self.shards, fields.number("shards", 0))
        self._check_rollup(entry)
        self._check_garbage(entry)

    def _check_garbage(self, entry: Entry) -> None:
        names, since = entry.fields.items("garbage"), entry.fields.number("fragments_since", 0)
        if since and (since <= self.fragments_since or not names):
            raise Damaged(entry.key, f"it says that fragments since {since} can be named")
        self.fragments_since = since or self.fragments_since
        if not names:
            return
        if len(names) > 1 or type(names[0]) is not str or not NUMBER.fullmatch(names[0]):
            raise Damaged(entry.key, f"it acknowledges {names}, which is no plan")
        if names[0] <= self.garbage:
            raise Damaged(entry.key, f"it acknowledges plan {names[0]} behind plan {self.garbage}")
        self.garbage = names[0]

    def _check_rollup(self, entry: Entry) -> None:
        name = entry.fields.text("rollup", "")
        if name != self.rollup:
            slot = slot_of_rollup(entry.key, name)
            if slot > entry.fields.number("acked", 0) or slot >= entry.slot:
                raise Damaged(entry.key, f"it names a rollup of slot {slot}, which was not acknowledged")
            if self.rollup and slot <= slot_of_rollup(entry.key, self.rollup):
                raise Damaged(entry.key, "it names a rollup of no more slots than an entry before it")
            self.rollup = name

    def check_objects(self) -> None:
        """What the canonical entries name: their bodies, epochs and fragments, whole; and that the rollups stand that
        entries name, void ones too. Where the log was collected these may be gone, but for the newest rollup."""
        for entry in (*self.canonical, *self.void):
            if name := entry.fields.text("rollup", ""):
                if not self.garbage or name == self.rollup:
                    object_of(self._objects, f"logs/{self.name}/rollups/{name}")
                if slot_of_rollup(entry.key, name) >= entry.slot:
                    raise Damaged(entry.key, f"it names the rollup {name}, which covers it")
        for entry in (*self.kept, *self.canonical):
            if entry.fields.data("body_digest", b"") != (digest(entry.body) if entry.body else b""):
                raise Damaged(entry.key, "its body does not match its digest")
            if entry.epoch:
                self._check_epoch(entry)
            for fragment in entry.fields.maps("fragments"):
                # What isn't there and is needed is missed by whoever reads it.
                if not self.garbage or fragment.text("key") in self._objects:
                    self._check_fragment(entry, fragment)

    def _check_fragment(self, entry: Entry, fragment: Fields) -> None:
        key = fragment.text("key")
        data = object_of(self._objects, key)
        if len(data) != fragment.number("length") or digest(data) != fragment.data("digest"):
            raise Damaged(key, f"it is not what entry {entry.slot} names")
        shard = shard_in(self.name, key)
        folder = f"shards/{shard:02}" if shard else "t"
        if shard > 12 or not key.startswith(f"logs/{self.name}/{folder}/{entry.epoch:016x}/"):
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

    def _check_gap(self) -> None:
        """Slots behind the first missing one don't count, unless someone had seen that one acknowledged."""
        prefix = f"logs/{self.name}/entries/"
        slots = (2**64 - 1 - int(key[len(prefix) :], 16) for key in self._objects if key.startswith(prefix))
        for slot in sorted(slots):
            if self.end < slot < math.inf and self._parse(slot).fields.number("acked", 0) >= self.end:
                raise Damaged(self.key(self.end), "it is missing, and was acknowledged")


def boundary_in(objects: Mapping[str, bytes], log: str) -> int:
    """The highest; 0 where there is none."""
    prefix, highest = f"logs/{log}/boundary/", 0
    for key in (key for key in objects if key.startswith(prefix)):
        fields = unseal(key, b"BWBO", objects[key]).fields
        slot = fields.number("slot")
        if (fields.text("log"), f"{2**64 - 1 - slot:016x}") != (log, key[len(prefix) :]):
            raise Damaged(key, "it is another boundary")
        highest = max(highest, slot)
    return highest


def _check_kind(key: str, fields: Fields) -> None:
    kind, epoch, n = fields.text("kind", "data"), fields.number("epoch"), fields.number("n")
    if kind == "guest" and epoch and fields.number("i"):
        return
    if kind not in {"anchor", "fence", "data", "guest"}:
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
