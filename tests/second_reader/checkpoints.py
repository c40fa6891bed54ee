"""Checkpoints: what a volume is up to an LSN, once its commits were folded."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from .basics import EMPTY_SUM, Damaged, Fields, add, digest, log_item, page_set, sum_of, unpack_map
from .envelopes import features_of, object_of, unseal
from .segments import Segment
from .trees import Pointer, items_of, keys_of

NO_FLOOR = 2**32
RANGE = 4096


class Region(NamedTuple):
    lsn: int
    number: int
    after: int
    length: int
    floor: int
    setsum: bytes
    time: int
    """Of its last commit."""


class Row(NamedTuple):
    """Of a relocated segment: a commit's pages."""

    key: str
    number: int


class Checkpoint:
    """Everything is checked: each segment's part, the counts, the sums, and that nothing is there twice."""

    def __init__(self, objects: Mapping[str, bytes], vid: bytes, fold: Fields) -> None:
        self.key = fold.text("checkpoint")
        self._objects, self._vid = objects, vid
        self.lsn = fold.number("lsn")
        self.relocated = fold.number("relocated", 0)
        # None where nothing is left that anybody could read.
        self._tree = tree = Pointer.of(Fields.of(self.key, fold.map("tree"))) if fold.is_set("tree") else None
        self.setsum = EMPTY_SUM if tree is None else tree.setsum
        folder = self.key.rpartition("/")[0]
        items = {} if tree is None else dict(items_of(objects, folder, tree, _weight))
        self.regions = [_region(self.key, at, value) for at, value in sorted(items.items()) if at[:1] == b"b"]
        self._segments = {_number(at[1:]): Fields(self.key, unpack_map(self.key, value)) for at, value in items.items()
                          if at[:1] == b"s"}  # fmt: skip
        self._ranges: dict[int, list[tuple[int, set[int]]]] = defaultdict(list)
        """By region: which segment has which pages."""
        for at, value in sorted(items.items()):
            if at[:1] == b"p":
                self._take_range(_number(at[1:9]), _number(at[9:17]), value)
        self.rows: dict[int, Row] = {}
        """By LSN: where the pages of commits lie that were in entries."""
        self._relocated: set[str] = set()
        for at, value in sorted(items.items()):
            if at[:1] == b"r":
                self._take_relocated(_number(at[1:]), Fields(self.key, unpack_map(self.key, value)))
        if {at[:1] for at in items} - {b"b", b"p", b"s", b"r"}:
            raise Damaged(self.key, "it has items of no kind")
        if set(self._ranges) - {region.number for region in self.regions}:
            raise Damaged(self.key, "it has pages of no region")
        if len({region.number for region in self.regions}) != len(self.regions):
            raise Damaged(self.key, "two regions have one number")
        ends = [region.lsn for region in self.regions]
        if [region.after for region in self.regions][1:] != ends[:-1]:
            raise Damaged(self.key, "its regions do not follow one another")
        self._pages = {region.number: self._read(region) for region in self.regions}
        self._check_live()
        self._check_deadlist(fold)

    @property
    def nodes(self) -> set[str]:
        """The keys of its tree's."""
        return set() if self._tree is None else keys_of(self._objects, self.key.rpartition("/")[0], self._tree)

    @property
    def segments(self) -> set[str]:
        return {fields.text("object") for fields in self._segments.values()} | self._relocated

    def newest_parts(self) -> list[tuple[str, Fields, set[int]]]:
        """Where the pages of its newest region lie: an object, what the tree says of it, and which of them."""
        found = [(self._segments[number], own) for number, own in self._ranges[self.regions[-1].number]]
        return [(fields.text("object"), fields, own) for fields, own in found]

    def region(self, lsn: int) -> Region:
        return next(region for region in self.regions if region.lsn == lsn)

    def pages_at(self, lsn: int, shared: Mapping[int, bytes]) -> dict[int, bytes]:
        pages = dict(shared)
        for region in self.regions:
            if region.lsn <= lsn:
                pages = {page: data for page, data in pages.items() if page <= region.floor}
                pages |= self._pages[region.number]
        return pages

    def _take_relocated(self, last: int, fields: Fields) -> None:
        key, after = fields.text("object"), fields.number("after")
        lsns = sorted(after + place for place in page_set(self.key, fields.data("commits")))
        if not lsns or lsns[-1] != last or after < max(self.rows, default=0) or last > max(self.relocated, self.lsn):
            raise Damaged(self.key, f"{key} has other commits than its place says")
        data = object_of(self._objects, key)
        segment = Segment(key, data)
        if len(data) != fields.number("size") or len(segment.parts) != len(lsns):
            raise Damaged(key, "it is another segment than its checkpoint names")
        if sum(len(part.hashes) for part in segment.parts) != fields.number("pages"):
            raise Damaged(key, "it has another number of pages than its checkpoint says")
        self.rows |= {lsn: Row(key, number) for number, lsn in enumerate(lsns)}
        self._relocated.add(key)

    def _take_range(self, region: int, place: int, value: bytes) -> None:
        (parts,) = msgspec.msgpack.decode(value, type=list[list[tuple[int, bytes]]])
        taken: set[int] = set()
        for segment, stored in parts:
            pages = page_set(self.key, stored)
            if taken & pages or not pages or not all((page - 1) // RANGE == place for page in pages):
                raise Damaged(self.key, f"range {place} of region {region} is none")
            taken |= pages
            self._ranges[region].append((segment, pages))

    def _read(self, region: Region) -> dict[int, bytes]:
        pages: dict[int, bytes] = {}
        items: list[bytes] = []
        for number, own in self._ranges[region.number]:
            fields = self._segments[number]
            key, slot = fields.text("object"), fields.number("slot", 0)
            data = object_of(self._objects, key)
            if len(data) != fields.number("size"):
                raise Damaged(key, f"it has {len(data)} bytes, and its checkpoint names {fields.number('size')}")
            segment = Segment(key, data)
            part = segment.parts[slot]
            if part.vid != self._vid:
                raise Damaged(key, "it holds another volume's pages")
            pages |= segment.pages(slot, own)
            for frame in part.frames:
                for page, item, lsn in zip(frame.pages, frame.hashes, frame.lsns, strict=True):
                    if page in own:
                        items.append(log_item(self._vid, fields.number("lsn", 0) or lsn, page, item))
        if add(*items) != region.setsum:
            raise Damaged(self.key, f"the sum of its region up to LSN {region.lsn} is another")
        return pages

    def _check_live(self) -> None:
        live: dict[int, int] = defaultdict(int)
        for parts in self._ranges.values():
            for segment, pages in parts:
                live[segment] += len(pages)
        if dict(live) != {number: fields.number("live") for number, fields in self._segments.items()}:
            raise Damaged(self.key, "its segments have other pages than it counts")

    def _check_deadlist(self, fold: Fields) -> None:
        key = f"{self.key}/deadlist"
        data = object_of(self._objects, key)
        fields = unseal(key, b"BWDL", data).fields
        told = fields.data("vid"), fields.text("checkpoint"), fields.text("base", ""), digest(data)
        if told != (self._vid, self.key, fold.text("base", ""), fold.data("deadlist")):
            raise Damaged(key, "it is another fold's")
        if set(fields.items("objects")) & (self.nodes | self.segments | {key}):
            raise Damaged(key, "it names what its own checkpoint has")


class Deadlist(NamedTuple):
    key: str
    checkpoint: str
    objects: list[str]


_A_FOLD_HAS = re.compile("logs/[^/]+/(t|shards/[0-9]{2})/[0-9a-f]{16}/[^/]+")


def row_of(objects: Mapping[str, bytes], vid: bytes, checkpoint: str) -> list[Deadlist]:
    """The deadlists that stand, of a volume's folds from that one back."""
    row: list[Deadlist] = []
    while checkpoint and f"{checkpoint}/deadlist" in objects:
        key = f"{checkpoint}/deadlist"
        fields = unseal(key, b"BWDL", objects[key]).fields
        if (fields.data("vid"), fields.text("checkpoint")) != (vid, checkpoint):
            raise Damaged(key, "it is another fold's")
        dead: list[str] = fields.items("objects")
        if dead != sorted(set(dead)) or not all(map(_A_FOLD_HAS.fullmatch, dead)):
            raise Damaged(key, "it names what no fold has")
        if any("/shards/" in each for each in dead) and not features_of(objects[key]) & 1:
            raise Damaged(key, "fragments of its lie in shards, and it has no bit that says so")
        row.append(Deadlist(key, checkpoint, dead))
        checkpoint = fields.text("base", "")
    return row


def _region(key: str, at: bytes, value: bytes) -> Region:
    fields = Fields(key, unpack_map(key, value))
    return Region(
        _number(at[1:]),
        fields.number("number"),
        fields.number("after"),
        fields.number("length"),
        fields.number("floor", NO_FLOOR),
        sum_of(key, fields.data("setsum", EMPTY_SUM)),
        Fields.of(key, fields.map("commit")).number("time"),
    )


def _weight(key: str, at: bytes, value: bytes) -> bytes:
    """What an item adds to its leaf's sum."""
    return _region(key, at, value).setsum if at[:1] == b"b" else EMPTY_SUM


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")
