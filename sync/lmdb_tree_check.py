"""LMDB tree check: LMDB's trees, walked page by page before LMDB itself follows them.

LMDB trusts what a page says of itself: a pointer that leads astray is followed, a row that is put into a damaged leaf
may go where no reader looks, a page that the list of free pages names by mistake is written over; or an assertion ends
the process. So a home that may have been damaged (clean_shutdown.py) is walked first, by reads that can't fail
otherwise than with an error:

  - the meta pages, and what each page says of its own number and kind;
  - nodes lie within their page, end to end, in the order of their keys, and within the keys of the branch above;
  - leaves are equally deep, and there are as many pages and entries as the table says;
  - no page is reached twice, or reached and free.

What values hold is no matter of structure: rows and records have checksums. The heads of the pages that hold the bulk
of the rows' bytes are looked at up to HEADS_BYTES of file: LMDB looks at one only when it frees the page.
"""

from __future__ import annotations

import os
import struct
from operator import ge
from pathlib import Path
from typing import Final, NamedTuple

from ..volume.errors import Corrupt
from .tables import HERE

PAGE_BYTES: Final = 4096
HEADS_BYTES: Final = 1 << 30

FIRST_PAGE: Final = 2
"""The first page that is no meta page."""
NOWHERE: Final = 2**64 - 1
DEEPEST: Final = 32

BRANCH: Final = 1
LEAF: Final = 2
OVERFLOW: Final = 4
BIG: Final = 1
TABLE: Final = 2
_INTEGER_KEYS: Final = 8
_IN_MEMORY: Final = 0x8000

_META: Final = struct.Struct("<8x2xH4xII8xQ48s48sQQ")
"""Flags, magic, version, map size, the free pages' tree, the main tree, last page, transaction."""
TREE: Final = struct.Struct("<IHHQQQQQ")
PAGE_HEAD: Final = struct.Struct("<QHHHH")
OVERFLOW_HEAD: Final = struct.Struct("<QHHI")
NODE: Final = struct.Struct("<HHHH")
PAGE_NUMBER: Final = struct.Struct("<Q")
HEAD_BYTES: Final = 16
NODE_BYTES: Final = 8


class Meta(NamedTuple):
    flags: int
    magic: int
    version: int
    map_bytes: int
    free: bytes
    main: bytes
    last_page: int
    transaction: int

    @property
    def page_bytes(self) -> int:
        # LMDB keeps it in a field of the free pages' tree.
        return int.from_bytes(self.free[:4], "little")


class Tree(NamedTuple):
    pad: int
    flags: int
    depth: int
    branches: int
    leaves: int
    overflow: int
    entries: int
    root: int


def read_metas(head: bytes) -> tuple[Meta, Meta]:
    """From the first two pages of the file."""
    return Meta(*_META.unpack_from(head)), Meta(*_META.unpack_from(head, PAGE_BYTES))


def check_trees(path: Path) -> int:
    """Raises Corrupt unless every tree of the file is sound, as of the transaction that it returns. Others may write
    meanwhile: then it is walked again.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            meta = newest_meta(fd)
            try:
                _Walk(fd, path, meta).check()
            except Corrupt:
                if newest_meta(fd).transaction == meta.transaction:
                    raise
            else:
                return meta.transaction
    finally:
        os.close(fd)


def free_lists(path: Path) -> tuple[Meta, list[tuple[int, tuple[int, ...]]]]:
    """The newest transaction's meta page, and which pages each transaction set free, descending. Within LMDB's write
    lock. Raises Corrupt, OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        meta = newest_meta(fd)
        return meta, _Walk(fd, path, meta).free_lists()
    finally:
        os.close(fd)


def newest_meta(fd: int) -> Meta:
    first, second = read_metas(os.pread(fd, 2 * PAGE_BYTES, 0))
    return first if first.transaction > second.transaction else second


class _Walk:
    def __init__(self, fd: int, path: Path, meta: Meta) -> None:
        self._fd = fd
        self._path = path
        self._meta = meta
        self._end = meta.last_page + 1
        self._heads = self._end * PAGE_BYTES <= HEADS_BYTES
        self._seen = bytearray(self._end)
        # Of the tree that is being walked.
        self._name = ""
        self._branches = self._leaves = self._overflow = self._entries = 0
        self._depth = 0
        self._last: bytes | None = None
        self._values: list[tuple[bytes, int, bytes]] | None = None
        """Where they are wanted: key, flags and value of each node."""

    def check(self) -> None:
        lists = self._free_tree()
        for key, flags, value in self._walk("main", Tree(*TREE.unpack(self._meta.main)), 0, values=True):
            if flags != TABLE or len(value) != TREE.size:
                raise self._damaged(f"{key!r} is no table")
            self._walk(key.decode("ascii", "replace"), Tree(*TREE.unpack(value)), 0)
        for _, _, value in lists:
            self._check_free(value)

    def free_lists(self) -> list[tuple[int, tuple[int, ...]]]:
        return [(int.from_bytes(key, "little"), self._check_free(value)) for key, _, value in self._free_tree()]

    def _free_tree(self) -> list[tuple[bytes, int, bytes]]:
        return self._walk("free", Tree(*TREE.unpack(self._meta.free)), _INTEGER_KEYS, values=True)

    def _walk(self, name: str, tree: Tree, flags: int, *, values: bool = False) -> list[tuple[bytes, int, bytes]]:
        self._name = name
        self._branches = self._leaves = self._overflow = self._entries = 0
        self._depth, self._last = tree.depth, None
        found: list[tuple[bytes, int, bytes]] = []
        self._values = found if values else None
        if tree.flags & ~_IN_MEMORY != flags:
            raise self._damaged(f"the flags of the table {name!r} are wrong")
        if tree.root == NOWHERE:
            if tree[2:7] != (0, 0, 0, 0, 0):
                raise self._damaged(f"the table {name!r} has lost its root")
            return found
        if not 0 < tree.depth <= DEEPEST:
            raise self._damaged(f"the table {name!r} is {tree.depth} deep")
        self._descend(tree.root, 1, None, None)
        if (self._branches, self._leaves, self._overflow, self._entries) != tree[3:7]:
            raise self._damaged(f"the table {name!r} has not the pages or entries that it should")
        return found

    def _descend(self, number: int, depth: int, low: bytes | None, high: bytes | None) -> None:
        """The page and what is below it, whose keys lie from `low` to before `high`."""
        self._reach(number)
        page = self._pread(PAGE_BYTES, number)
        if depth == self._depth:
            self._leaves += 1
            self._check_order(number, self._leaf(number, page), low, high)
            return
        self._branches += 1
        keys, children = self._branch(number, page)
        bounds: list[bytes | None] = [low, *keys[1:], high]
        for at, child in enumerate(children):
            self._descend(child, depth + 1, bounds[at], bounds[at + 1])

    def _offsets(self, number: int, page: bytes, kind: int) -> tuple[tuple[int, ...], int]:
        """Where the nodes lie, and how many bytes they have together."""
        own, _, flags, lower, upper = PAGE_HEAD.unpack_from(page)
        if own != number or flags != kind or not HEAD_BYTES < lower <= upper <= PAGE_BYTES or lower & 1:
            raise self._broken(number)
        offsets: tuple[int, ...] = struct.unpack_from(f"<{(lower - HEAD_BYTES) // 2}H", page, HEAD_BYTES)
        if min(offsets) < upper or max(offsets) > PAGE_BYTES - NODE_BYTES:
            raise self._broken(number)
        return offsets, PAGE_BYTES - upper

    def _branch(self, number: int, page: bytes) -> tuple[list[bytes], list[int]]:
        offsets, room = self._offsets(number, page, BRANCH)
        keys, children = list[bytes](), list[int]()
        for at in offsets:
            size, high, flags, key_bytes = NODE.unpack_from(page, at)
            end = at + NODE_BYTES + key_bytes
            room -= end - at + (end - at & 1)
            keys.append(page[at + NODE_BYTES : end])
            children.append(size | high << 16 | flags << 32)
        if room:
            # They overlap, lie beyond the page, or there is something between them.
            raise self._broken(number)
        return keys, children

    def _leaf(self, number: int, page: bytes) -> list[bytes]:
        """Its keys, once its nodes are found to be sound."""
        offsets, room = self._offsets(number, page, LEAF)
        unpack, values = NODE.unpack_from, self._values
        keys = list[bytes]()
        outside = list[tuple[int, int, bytes]]()
        for at in offsets:
            size, high, flags, key_bytes = unpack(page, at)
            data = at + NODE_BYTES + key_bytes
            if flags == BIG:
                outside.append((data, size | high << 16, page[at + NODE_BYTES : data]))
                end = data + PAGE_NUMBER.size
            else:
                end = data + (size | high << 16)
                if flags and values is None:
                    raise self._broken(number)
            if end > PAGE_BYTES:
                raise self._broken(number)
            room -= end - at + (end - at & 1)
            keys.append(page[at + NODE_BYTES : data])
            if values is not None and flags != BIG:
                values.append((keys[-1], flags, page[data:end]))
        if room:
            raise self._broken(number)
        self._entries += len(keys)
        for data, size, key in outside:
            start = int.from_bytes(page[data : data + PAGE_NUMBER.size], "little")
            self._reach_value(number, start, size)
            if values is not None:
                values.append((key, BIG, self._pread(HEAD_BYTES + size, start)[HEAD_BYTES:]))
        return keys

    def _check_order(self, number: int, keys: list[bytes], low: bytes | None, high: bytes | None) -> None:
        if self._name == "free":
            # These alone are numbers, little-endian.
            keys = [key[::-1] for key in keys]
            low, high = low and low[::-1], high and high[::-1]
        first = keys[0]
        if (self._last is not None and first <= self._last) or (low is not None and first < low):
            raise self._broken(number)
        self._last = keys[-1]
        if high is not None and self._last >= high:
            raise self._broken(number)
        if any(map(ge, keys, keys[1:])):
            raise self._broken(number)

    def _reach_value(self, number: int, start: int, size: int) -> None:
        """The pages of a value that lies outside its leaf."""
        count = (HEAD_BYTES - 1 + size) // PAGE_BYTES + 1
        if start + count > self._end:
            raise self._broken(number)
        for each in range(start, start + count):
            self._reach(each)
        self._overflow += count
        if self._heads:
            own, _, flags, pages = OVERFLOW_HEAD.unpack(self._pread(HEAD_BYTES, start))
            if own != start or flags != OVERFLOW or pages != count:
                raise self._broken(start)

    def _check_free(self, raw: bytes) -> tuple[int, ...]:
        if len(raw) < 8 or len(raw) & 7:
            raise self._damaged("a list of free pages is damaged")
        count, pages = int.from_bytes(raw[:8], "little"), struct.unpack_from(f"<{len(raw) // 8 - 1}Q", raw, 8)
        if count != len(pages):
            raise self._damaged("a list of free pages is damaged")
        for number in pages:
            self._reach(number)
        return pages

    def _reach(self, number: int) -> None:
        if not FIRST_PAGE <= number < self._end:
            raise self._damaged(f"the table {self._name!r} leads to page {number}, of {self._end}")
        if self._seen[number]:
            raise self._damaged(f"page {number} is in use twice, or free and in use")
        self._seen[number] = 1

    def _pread(self, size: int, number: int) -> bytes:
        data = os.pread(self._fd, size, number * PAGE_BYTES)
        if len(data) != size:
            raise self._broken(number)
        return data

    def _broken(self, number: int) -> Corrupt:
        return self._damaged(f"page {number} of its file, in the table {self._name!r}, is not as it was written")

    def _damaged(self, what: str) -> Corrupt:
        return Corrupt(f"{HERE} {self._path}", what)
