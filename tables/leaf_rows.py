"""Leaf rows: those of many table leaves at once, as arrays: where each payload lies, how long it is, its rowid.

The pages lie back to back in one buffer. Every position that a page names is checked against that page before anything
is read through it, so damage is Corrupt and never another row's bytes. A payload that overflows lies in its page only
in part; `complete` appends whole payloads to the buffer and points their rows there, after which all rows are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..sqlite.btree import Kind
from ..sqlite.header import DATABASE, Header
from ..volume.errors import Corrupt
from .overflow_chains import read_chains
from .page_source import PageSource

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_LEAF_HEAD: Final = 8
_CHAIN: Final = 4
_PAD: Final = bytes(16)
"""So that eight bytes may be read wherever one may."""

MAX_PAYLOAD: Final = (1 << 31) - 1


class Buffer:
    """Bytes, and a view of them as little-endian words that begin at every byte."""

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        self.data = np.frombuffer(b"".join((*parts, _PAD)), np.uint8)
        self.size = len(self.data) - len(_PAD)
        self._words: npt.NDArray[np.uint64] = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))
        self._halves: npt.NDArray[np.uint16] = np.ndarray((len(self.data) - 1,), ">u2", self.data, strides=(1,))
        self._even_halves: npt.NDArray[np.uint16] = self.data[: len(self.data) & ~1].view("<u2")

    def words(self, at: Ints) -> Ints:
        """The eight bytes at each place, as big-endian numbers."""
        return self._words[at].byteswap(inplace=True).view(np.int64)

    def halves(self, at: Ints) -> Ints:
        """The two bytes at each place, as big-endian numbers."""
        return self._halves[at].astype(np.int64)

    def even_halves(self, at: Ints) -> Ints:
        """The same of places that are even: what is aligned is fetched several times as fast."""
        found: npt.NDArray[np.uint16] = self._even_halves[at >> 1].byteswap(inplace=True)
        return found.astype(np.int64)

    def bytes(self, at: Ints) -> Ints:
        """The byte at each place, as a signed number."""
        return self.data[at].view(np.int8).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Row i's payload has `size[i]` bytes; `local[i]` of them lie in the buffer at `at[i]`, the rest in a chain.

    Where `local` < `size`, the chain's first page is told by the four bytes after the local part.
    """

    buffer: Buffer
    page: Ints
    rowid: Ints
    at: Ints
    size: Ints
    local: Ints

    def __len__(self) -> int:
        return len(self.at)

    @property
    def whole(self) -> bool:
        """Whether it is known that none overflows: then `local` is `size` itself."""
        return self.local is self.size

    def select(self, which: Bools | slice | Ints) -> Rows:
        size = self.size[which]
        local = size if self.whole else self.local[which]
        return Rows(self.buffer, self.page[which], self.rowid[which], self.at[which], size, local)

    def compact(self) -> Rows:
        """The same rows in a buffer of their own that holds nothing else."""
        length = self.local if self.whole else self.local + _CHAIN * (self.local < self.size)
        at = np.cumsum(length) - length
        places = np.repeat(self.at - at, length)
        places += np.arange(len(places))
        return Rows(Buffer([self.buffer.data[places].data]), self.page, self.rowid, at, self.size, self.local)

    def chains(self, which: Ints) -> list[tuple[int, int]]:
        """The first page of each row's chain, and how many bytes lie in it; the rows' payloads must overflow."""
        first = self.buffer.words(self.at[which] + self.local[which]) >> 32 & 0xFFFFFFFF
        return list(zip(first.tolist(), (self.size - self.local)[which].tolist(), strict=True))

    def complete(self, which: Ints, source: PageSource, header: Header) -> Rows:
        """The same rows, those of `which` with their whole payload in the buffer."""
        local, size, at = self.local[which], self.size[which], self.at[which]
        rests, _ = read_chains(source, self.chains(which), header.usable_bytes)
        data = self.buffer.data
        parts: list[bytes | memoryview] = [data[: self.buffer.size].data]
        for begin, end, rest in zip(at.tolist(), (at + local).tolist(), rests, strict=True):
            parts += (data[begin:end].data, rest)
        moved, whole = self.at.copy(), self.local.copy()
        moved[which] = self.buffer.size + np.cumsum(size) - size
        whole[which] = size
        return Rows(Buffer(parts), self.page, self.rowid, moved, self.size, whole)


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of all, in one buffer."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(one.buffer.size for one in parts)])
    size = np.concatenate([one.size for one in parts])
    return Rows(
        Buffer([one.buffer.data[: one.buffer.size].data for one in parts]),
        np.concatenate([one.page for one in parts]),
        np.concatenate([one.rowid for one in parts]),
        np.concatenate([one.at + start for one, start in zip(parts, starts, strict=False)]),
        size,
        size if all(one.whole for one in parts) else np.concatenate([one.local for one in parts]),
    )


def leaf_rows(indexes: Sequence[int], pages: Sequence[bytes], header: Header, key: str = DATABASE) -> Rows:
    """The rows of these table leaves, in order. Raises Corrupt for a page that is no table's leaf."""
    page_size, usable = header.page_size, header.usable_bytes
    numbers = np.array(indexes, np.int64)
    assert len(numbers) == len(pages)
    if set(map(len, pages)) - {page_size}:
        index, found = next((i, len(raw)) for i, raw in zip(indexes, pages, strict=True) if len(raw) != page_size)
        raise Corrupt(key, f"page {index} has {found} bytes instead of {page_size}")
    buffer = Buffer(pages)
    data = buffer.data
    base = np.arange(len(numbers), dtype=np.int64) * page_size
    check_pages(data[base] == Kind.LEAF_TABLE, numbers, key, "is no table's leaf")
    counts = buffer.halves(base + 3)
    content = _LEAF_HEAD + 2 * counts
    check_pages(content <= usable, numbers, key, "can't hold its cells")

    starts = np.cumsum(counts) - counts
    pointers = np.repeat(base + _LEAF_HEAD - 2 * starts, counts)
    pointers += np.arange(0, 2 * len(pointers), 2)
    at = buffer.even_halves(pointers)
    page: Ints = np.repeat(numbers, counts)
    base, content = np.repeat(base, counts), np.repeat(content, counts)
    check_pages((at >= content) & (at < usable), page, key, "has a cell outside its content")
    at += base
    size, at = varints(buffer, at)
    rowid, at = varints(buffer, at)
    least_size, greatest_size = (int(size.min()), int(size.max())) if len(size) else (0, 0)
    if least_size < 0 or greatest_size > MAX_PAYLOAD:
        check_pages((size >= 0) & (size <= MAX_PAYLOAD), page, key, "has a payload that is too long")
    local = needed = size
    if greatest_size > usable - 35:
        over = size > usable - 35
        least = (usable - 12) * 32 // 255 - 23
        kept = least + (size - least) % (usable - 4)
        local = np.where(over, np.where(kept <= usable - 35, kept, least), size)
        needed = local + 4 * over
    check_pages(at + needed <= base + usable, page, key, "has a payload that ends beyond it")
    return Rows(buffer, page, rowid, at, size, local)


def varints(buffer: Buffer, at: Ints) -> tuple[Ints, Ints]:
    """The varint at each place, as a signed 64-bit number, and the place after it."""
    data = buffer.data
    byte = data[at]
    value = byte.astype(np.int64)
    after = at + 1
    if byte.max(initial=0) < 0x80:
        return value, after
    rows: Any = slice(None) if byte.min() >= 0x80 else np.flatnonzero(byte >= 0x80)
    place, part = after[rows], value[rows] & 0x7F
    for last in range(1, 9):
        byte = data.take(place, mode="clip")
        place = place + 1
        if last == 8:
            part = part << 8 | byte
            value[rows], after[rows] = part, place
            break
        part = part << 7 | byte & 0x7F
        more = byte >= 0x80
        if not more.any():
            value[rows], after[rows] = part, place
            break
        if more.all():
            continue
        done = ~more
        all_rows = np.arange(len(at)) if isinstance(rows, slice) else rows
        value[all_rows[done]], after[all_rows[done]] = part[done], place[done]
        rows, place, part = all_rows[more], place[more], part[more]
    return value, after


def check_pages(right: Bools, page: Ints, key: str, what: str) -> None:
    """Raises Corrupt, naming the first page of those that aren't."""
    if not right.all():
        raise Corrupt(key, f"page {page[np.argmin(right)]} {what}")
