"""A volume: its birth, its stream through the logs it was in, and its pages at each LSN."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from .basics import EMPTY_SUM, VOLUME, Damaged, Fields, add, base58, check_id, log_item, page_count, page_set, sum_of
from .checkpoints import Checkpoint
from .envelopes import object_of, unseal
from .log import Entry, Placed
from .segments import Segment

if TYPE_CHECKING:
    from .store import Store


class Commit(NamedTuple):
    lsn: int
    length: int
    floor: int
    time: int
    pages: dict[int, bytes]
    """As it brought them."""
    bindings: bytes


class Volume:
    def __init__(self, store: Store, vid: bytes) -> None:
        self.vid = check_id(f"volumes/{vid.hex()}", vid, VOLUME)
        self.id = base58(vid)
        key = f"volumes/{self.id}/birth"
        birth = unseal(key, b"BWVB", object_of(store.objects, key)).fields
        if birth.data("vid") != vid or birth.text("kind", "pages") != "pages":
            raise Damaged(key, "it is the birth of something else")
        self.page_size = birth.number("page_size")
        if self.page_size not in {512 << shift for shift in range(8)}:
            raise Damaged(key, f"pages of {self.page_size} bytes")
        parent = birth.data("parent", b"")
        self.parent = store.volume(parent) if parent else None
        self.start = birth.number("parent_lsn", 0)
        self.start_length = birth.number("parent_length", 0)
        self.time = birth.number("time", 0)
        if self.parent is not None and self.parent.length_at(self.start) != self.start_length:
            raise Damaged(key, "its parent has another length there")
        self.commits: list[Commit] = []
        self.since, self.collect, self.collected = max(1, self.start), 0, 0
        self.forks: dict[bytes, int] = {}
        self.finished = False
        self.fold: dict[str, Any] = {}
        """The newest record of one."""
        self._sums: list[bytes] = []
        """Of each commit."""
        self.log = birth.text("log")
        self.moving_to = ""
        self._clients: dict[bytes, list[object]] = {}
        self._follow(store)

    @property
    def head(self) -> int:
        return self.start + len(self.commits)

    def length_at(self, lsn: int) -> int:
        if lsn < self.start:
            assert self.parent is not None
            return self.parent.length_at(lsn)
        return self.commits[lsn - self.start - 1].length if lsn > self.start else self.start_length

    def pages_at(self, lsn: int) -> dict[int, bytes]:
        """Every page that is not all zeros."""
        if lsn < self.start or (lsn == self.start and self.parent is not None):
            assert self.parent is not None
            return self.parent.pages_at(lsn)
        pages = self.parent.pages_at(self.start) if self.parent is not None else {}
        for commit in self.commits[: lsn - self.start]:
            last = page_count(commit.floor, self.page_size)
            pages = {page: data for page, data in pages.items() if page <= last} | commit.pages
        return {page: data for page, data in pages.items() if any(data)}

    def page(self, number: int, lsn: int) -> bytes:
        return self.pages_at(lsn).get(number, bytes(self.page_size))

    def _follow(self, store: Store) -> None:
        """From its birth through every log that it was in."""
        waiting = iter(store.log(self.log).stream(self.id))
        while True:
            closed = next((slot for placed in waiting if (slot := self._apply(store, placed)) is not None), None)
            if closed is None:
                return
            origin = (self.log, closed)
            for number, placed in enumerate(stream := store.log(self.moving_to).stream(self.id)):
                if _origin(placed.record) == origin:
                    waiting = iter(stream[number:])
                    self.log = self.moving_to
                    break
            else:
                # A move that was cut off: whoever goes on with it writes the `open`.
                return

    def _apply(self, store: Store, placed: Placed) -> int | None:
        """The entry's slot where this record closed the stream."""
        record, entry = placed
        kind = record.text("k")
        if record.data("vid") != self.vid:
            raise Damaged(entry.key, "a record stands under another volume's id")
        if self.finished and kind not in {"since", "collect", "collected", "fold"}:
            raise Damaged(entry.key, "it changes a volume that was finished")
        if (kind == "open") != bool(self.moving_to):
            raise Damaged(entry.key, f"volume {self.id} can't {kind} there")
        match kind:
            case "commit":
                self._commit(store.objects, record, entry)
            case "open":
                self._check_open(record, entry)
                self.moving_to = ""
            case "close":
                self._check_head(record, entry)
                self.moving_to = record.text("to")
                return entry.slot
            case "fork":
                self._fork(record, entry)
            case "since" | "collect" | "collected":
                self._retain(kind, record.number("since"), entry)
            case "fold":
                self._take_fold(store.objects, record, entry)
            case "tombstone":
                self.finished = True
            case _:
                raise Damaged(entry.key, f"a volume's stream has no {kind}")
        return None

    def _commit(self, objects: Mapping[str, bytes], record: Fields, entry: Entry) -> None:
        lsn, length, floor = record.number("lsn"), record.number("length"), record.number("floor")
        time = record.number("time", 0)
        before = self.length_at(self.head)
        newest = self.commits[-1].time if self.commits else self.time
        if record.number("base") != self.head or lsn != self.head + 1 or time <= newest:
            raise Damaged(entry.key, f"LSN {lsn} can't follow LSN {self.head}")
        if floor > min(before, length):
            raise Damaged(entry.key, f"LSN {lsn} has a floor above its length, or the one before")
        named = page_set(entry.key, record.data("pages"))
        if named and max(named) > page_count(length, self.page_size):
            raise Damaged(entry.key, f"LSN {lsn} has a page beyond its length")
        pages, items = self._located(objects, record, entry, named)
        if set(pages) != named:
            raise Damaged(entry.key, f"LSN {lsn} names other pages than its locations hold")
        if add(*items.values()) != sum_of(entry.key, record.data("content")):
            raise Damaged(entry.key, f"the content of LSN {lsn} is another")
        logged = (log_item(self.vid, lsn, page, item) for page, item in items.items())
        if add(*logged) != sum_of(entry.key, record.data("setsum")):
            raise Damaged(entry.key, f"the setsum of LSN {lsn} is another")
        if record.data("token") != _token(record):
            raise Damaged(entry.key, f"the token of LSN {lsn} is another commit's")
        self._sums.append(record.data("setsum"))
        self.commits.append(Commit(lsn, length, floor, time, pages, record.data("bindings", b"")))
        self._clients[record.data("client")] = [record.data("client"), record.data("token"), lsn - 1, lsn]

    def _located(
        self, objects: Mapping[str, bytes], record: Fields, entry: Entry, named: set[int]
    ) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Pages and their item hashes."""
        pages: dict[int, bytes] = {}
        items: dict[int, bytes] = {}
        places = record.maps("locations")
        for place in places:
            key = place.text("object")
            wanted = page_set(entry.key, place.data("pages", b"")) if place.data("pages", b"") else named
            if (wanted is named and len(places) > 1) or wanted & set(pages):
                raise Damaged(entry.key, "a commit's locations are not disjoint")
            data = object_of(objects, key) if key else entry.body
            if key and len(data) != place.number("size"):
                raise Damaged(key, f"it has {len(data)} bytes, and its commit names {place.number('size')}")
            segment, slot = Segment(key or entry.key, data), place.number("slot")
            if slot >= len(segment.parts) or segment.parts[slot].vid != self.vid:
                raise Damaged(entry.key, f"volume {self.id} has no slot {slot} in its segment")
            if segment.parts[slot].page_size != self.page_size:
                raise Damaged(segment.key, "its pages are of another size")
            pages |= segment.pages(slot, wanted)
            items |= {page: item for page, item in segment.parts[slot].hashes.items() if page in wanted}
        return pages, items

    def _check_open(self, record: Fields, entry: Entry) -> None:
        self._check_head(record, entry)
        told = record.number("since", 1), record.number("collect", 0), record.number("collected", 0)
        if told != (self.since, self.collect, self.collected):
            raise Damaged(entry.key, "a stream goes on with another since than it had")
        if Fields.of(entry.key, record.map("fold")).all() != self.fold:
            raise Damaged(entry.key, "a stream goes on with another checkpoint than it had")
        if record.number("newest", 0) not in {0, self.commits[-1].time if self.commits else self.time}:
            raise Damaged(entry.key, "a stream goes on with another newest commit than it had")
        if record.items("forks") != sorted([child, lsn] for child, lsn in self.forks.items()):
            raise Damaged(entry.key, "a stream goes on with other forks than it had")
        if record.items("clients") != [self._clients[client] for client in sorted(self._clients)]:
            raise Damaged(entry.key, "a stream goes on with other clients than it had")

    def _check_head(self, record: Fields, entry: Entry) -> None:
        if (record.number("head"), record.number("length")) != (self.head, self.length_at(self.head)):
            raise Damaged(entry.key, "a stream goes on from where it never was")

    def _fork(self, record: Fields, entry: Entry) -> None:
        lsn, child = record.number("lsn"), record.data("child")
        if lsn > self.head or self.forks.get(child, lsn) != lsn:
            raise Damaged(entry.key, f"a fork at LSN {lsn} can't be")
        if lsn < self.collect and not record.data("pin", b"") and lsn not in self.forks.values():
            raise Damaged(entry.key, f"a fork at LSN {lsn}, which was collected")
        self.forks[child] = lsn

    def _take_fold(self, objects: Mapping[str, bytes], record: Fields, entry: Entry) -> None:
        """All commits are still there: what the checkpoint says of every LSN that it has is what they come to."""
        lsn, before = record.number("lsn"), Fields.of(entry.key, self.fold)
        if record.text("base", "") != before.text("checkpoint", ""):
            raise Damaged(entry.key, "it was folded from another checkpoint than the one that stands")
        if not before.number("lsn", 0) <= lsn <= min(self.collect, self.head):
            raise Damaged(entry.key, f"it can't be folded up to LSN {lsn}")
        checkpoint = Checkpoint(objects, self.vid, record)
        if checkpoint.regions[-1].lsn != lsn or checkpoint.regions[0].after != self.start:
            raise Damaged(checkpoint.key, "it has other commits than were folded")
        for region in checkpoint.regions:
            shared = self.parent.pages_at(self.start) if self.parent is not None else {}
            pages = {page: data for page, data in checkpoint.pages_at(region.lsn, shared).items() if any(data)}
            if (pages, region.length) != (self.pages_at(region.lsn), self.length_at(region.lsn)):
                raise Damaged(checkpoint.key, f"LSN {region.lsn} reads otherwise than its commits")
        sums = (sum_of(entry.key, each) for each in self._sums[: lsn - self.start])
        if add(checkpoint.setsum, sum_of(entry.key, record.data("superseded", EMPTY_SUM))) != add(*sums):
            raise Damaged(checkpoint.key, "what it keeps and what it leaves out is not what was folded")
        self.fold = record.all()

    def _retain(self, kind: str, since: int, entry: Entry) -> None:
        most = {"since": self.head + self.finished, "collect": self.since, "collected": self.collect}[kind]
        if not getattr(self, kind) < since <= most:
            raise Damaged(entry.key, f"{kind} can't be {since}")
        setattr(self, kind, since)


def _origin(record: Fields) -> tuple[str, int] | None:
    return (record.text("log"), record.number("slot")) if record.text("k") == "open" else None


def _token(record: Fields) -> bytes:
    made = blake2b(record.data("client"), digest_size=32, person=b"budwood.token")
    for name in ("base", "length", "floor"):
        made.update(record.number(name).to_bytes(8, "little"))
    for name in ("pages", "setsum", "nonce"):
        part = record.data(name)
        made.update(len(part).to_bytes(4, "little") + part)
    return made.digest()
