"""LMDB salvage: what the trees of LMDB's file still hold, read without LMDB.

LMDB follows whatever a page says, and a damaged page may end the process. Here a page that isn't what it should be is
noted and passed over, with all that lies below it; what is reached otherwise is given out. Nothing is judged but
structure: whoever reads checks the values.

`strays` are the entries of leaves that no tree leads to: those of a branch that is damaged, and old ones, whose pages
were freed and not used again. An entry proves by its own checksum what it is, and not that it is the newest.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from ..volume.errors import Corrupt, Unavailable
from .lmdb_tree_check import (
    BIG,
    BRANCH,
    DEEPEST,
    FIRST_PAGE,
    HEAD_BYTES,
    LEAF,
    NODE,
    NODE_BYTES,
    NOWHERE,
    OVERFLOW,
    OVERFLOW_HEAD,
    PAGE_BYTES,
    PAGE_HEAD,
    PAGE_NUMBER,
    TABLE,
    TREE,
    Meta,
    Tree,
    read_metas,
)
from .tables import HERE

Entry = tuple[bytes, bytes]

_MAGIC: Final = 0xBEEFC0DE


class Salvage(AbstractContextManager["Salvage"]):
    """Of one file, as of the newest of its transactions that can be had. Raises Corrupt where there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.broken: dict[str, None] = {}
        """What was passed over, in words, each once."""
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"the local store at {path} can't be read: {error.strerror}") from error
        self._reached: set[int] = set()
        try:
            self._end = os.fstat(self._fd).st_size // PAGE_BYTES
            self._meta, self._tables = self._choose()
        except BaseException:
            os.close(self._fd)
            raise

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)

    @property
    def transaction(self) -> int:
        return self._meta.transaction

    def entries(self, table: str) -> Iterator[Entry]:
        """In the order of their keys, but where damage has mixed them."""
        tree = self._tables.get(table)
        if tree is None:
            if self._tables:
                self.broken[f"the table {table!r} is gone"] = None
            return
        yield from self._walk(table, tree.root)

    def strays(self) -> Iterator[Entry]:
        """Of every leaf that `entries` did not reach, once all tables were read."""
        for number in range(FIRST_PAGE, self._end):
            if number in self._reached:
                continue
            page = os.pread(self._fd, PAGE_BYTES, number * PAGE_BYTES)
            if len(page) == PAGE_BYTES and self._kind(number, page) == LEAF:
                found: list[tuple[bytes, int, bytes]] = []
                if self._leaf("", number, page, found):
                    yield from ((key, value) for key, flags, value in found if flags != TABLE)

    def _choose(self) -> tuple[Meta, dict[str, Tree]]:
        """The newest transaction, or the one before it where the newest leads nowhere. Only then: what the newest has
        freed may have been given back to the disk.
        """
        head = os.pread(self._fd, 2 * PAGE_BYTES, 0)
        if len(head) < 2 * PAGE_BYTES:
            raise Corrupt(f"{HERE} {self.path}", f"it is cut short: {len(head)} bytes")
        metas = [meta for meta in read_metas(head) if (meta.magic, meta.page_bytes) == (_MAGIC, PAGE_BYTES)]
        if not metas:
            raise Corrupt(f"{HERE} {self.path}", "neither of its first two pages is LMDB's")
        if len(metas) == 1:
            self.broken["one of its first two pages is damaged: its last transaction may be missing"] = None
        metas.sort(key=lambda meta: meta.transaction, reverse=True)
        newest = metas[0], self._find_tables(metas[0])
        for meta in () if newest[1] else metas[1:]:
            if tables := self._find_tables(meta):
                self.broken["its last transaction leads nowhere: it is read as of the one before"] = None
                return meta, tables
        return newest

    def _find_tables(self, meta: Meta) -> dict[str, Tree]:
        root, found = Tree(*TREE.unpack(meta.main)).root, list[tuple[bytes, int, bytes]]()
        tables: dict[str, Tree] = {}
        for leaf in self._leaves("main", root):
            self._leaf("main", *leaf, found)
        for key, flags, value in found:
            if flags == TABLE and len(value) == TREE.size:
                tables[key.decode("ascii", "replace")] = Tree(*TREE.unpack(value))
        return tables

    def _walk(self, table: str, root: int) -> Iterator[Entry]:
        for number, page in self._leaves(table, root):
            found: list[tuple[bytes, int, bytes]] = []
            self._leaf(table, number, page, found)
            yield from ((key, value) for key, _, value in found)

    def _leaves(
        self, table: str, root: int, depth: int = 1, seen: set[int] | None = None
    ) -> Iterator[tuple[int, bytes]]:
        if root == NOWHERE:
            return
        seen = set() if seen is None else seen
        page = b""
        if FIRST_PAGE <= root < self._end and root not in seen and depth <= DEEPEST:
            page = os.pread(self._fd, PAGE_BYTES, root * PAGE_BYTES)
        kind = self._kind(root, page) if len(page) == PAGE_BYTES else 0
        seen.add(root)
        self._reached.add(root)
        if kind == LEAF:
            yield root, page
        elif kind == BRANCH:
            for child in self._children(page):
                yield from self._leaves(table, child, depth + 1, seen)
        else:
            self._pass_over(table, root)

    def _kind(self, number: int, page: bytes) -> int:
        """Of a page whose head makes sense; else 0."""
        own, _, flags, lower, upper = PAGE_HEAD.unpack_from(page)
        sound = own == number and HEAD_BYTES < lower <= upper <= PAGE_BYTES and not lower & 1
        return int(flags) if sound and flags in (BRANCH, LEAF) else 0

    def _offsets(self, page: bytes) -> list[int]:
        lower = PAGE_HEAD.unpack_from(page)[3]
        found: tuple[int, ...] = struct.unpack_from(f"<{(lower - HEAD_BYTES) // 2}H", page, HEAD_BYTES)
        return [at for at in found if lower <= at <= PAGE_BYTES - NODE_BYTES]

    def _children(self, page: bytes) -> list[int]:
        nodes = (NODE.unpack_from(page, at) for at in self._offsets(page))
        return [size | high << 16 | flags << 32 for size, high, flags, _ in nodes]

    def _leaf(self, table: str, number: int, page: bytes, found: list[tuple[bytes, int, bytes]]) -> bool:
        """Add its entries: key, flags and value; whether all of it was sound."""
        sound = True
        for at in self._offsets(page):
            size, high, flags, key_bytes = NODE.unpack_from(page, at)
            data, length = at + NODE_BYTES + key_bytes, size | high << 16
            if flags == BIG and data + PAGE_NUMBER.size <= PAGE_BYTES:
                value = self._outside(int.from_bytes(page[data : data + PAGE_NUMBER.size], "little"), length)
            else:
                value = page[data : data + length] if flags != BIG and data + length <= PAGE_BYTES else None
            if value is None:
                sound = False
            else:
                found.append((page[at + NODE_BYTES : data], flags, value))
        if not sound and table:
            self._pass_over(table, number)
        return sound

    def _outside(self, start: int, size: int) -> bytes | None:
        """A value that lies in pages of its own."""
        count = (HEAD_BYTES - 1 + size) // PAGE_BYTES + 1
        if not FIRST_PAGE <= start <= self._end - count:
            return None
        data = os.pread(self._fd, HEAD_BYTES + size, start * PAGE_BYTES)
        if len(data) != HEAD_BYTES + size:
            return None
        own, _, flags, pages = OVERFLOW_HEAD.unpack_from(data)
        self._reached.update(range(start, start + count))
        return data[HEAD_BYTES:] if (own, flags, pages) == (start, OVERFLOW, count) else None

    def _pass_over(self, table: str, number: int) -> None:
        self.broken[f"page {number} of its file, in the table {table!r}, is not as it was written"] = None
