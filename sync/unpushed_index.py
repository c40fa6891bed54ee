"""Unpushed index: which unpushed commit wrote each page last, so that a row is read back only as that commit's.
No I/O.

An unpushed page can be had nowhere else. Its row must stand at exactly the LSN of the newest commit whose record names
it: an older version that damage brought back to light, or a row that no record names, is refused like a missing one.

Commits are added oldest first. A page beyond the least length within a later commit is nobody's any more. LSNs lie in
blocks of 64 pages, 8 bytes each; a commit of many pages (an import) is kept as its page set, at most a few of them.
"""

from __future__ import annotations

from array import array
from typing import Final

from ..volume.errors import Corrupt
from ..volume.pageset import PageSet, beyond, decode_pages, page_count
from .tables import HERE, CommitRecord

_BLOCK: Final = 64
_LARGE: Final = 4096
"""Pages from which on a commit is kept as a set."""
_SETS: Final = 8


class UnpushedIndex:
    """The commits (start, end] of one volume."""

    def __init__(self, start: int, page_size: int) -> None:
        self.start = start
        self.end = start
        self._page_size = page_size
        self._blocks: dict[int, array[int]] = {}
        self._sets: list[tuple[int, PageSet]] = []
        """Newest first."""
        self._last = 0
        """No page after it was written."""

    def add(self, lsn: int, commit: CommitRecord) -> PageSet:
        """The successor of `end`; gives its pages."""
        if lsn != self.end + 1:
            raise Corrupt(HERE, f"the record of the unpushed commit {self.end + 1} is gone")
        last = page_count(commit.floor, self._page_size)
        if last < self._last:
            self._cut(last)
        pages = decode_pages(HERE, commit.pages)
        if len(pages) > _LARGE:
            self._sets.insert(0, (lsn, pages))
            if len(self._sets) > _SETS:
                self._pour(*self._sets.pop())
        else:
            for page in pages:
                self._put(page, lsn)
        if pages:
            self._last = max(self._last, pages.max())
        self.end = lsn
        return pages

    def lsn(self, page: int) -> int:
        """Of the newest commit that wrote the page and left it within the volume; 0 if none did."""
        block = self._blocks.get(page >> 6)
        found = 0 if block is None else block[page & 63]
        for lsn, pages in self._sets:
            if lsn < found:
                break
            if page in pages:
                return lsn
        return found

    @property
    def pages(self) -> PageSet:
        """Those that have an LSN."""
        found = PageSet()
        for number, block in self._blocks.items():
            found |= PageSet([number * _BLOCK + at for at, lsn in enumerate(block) if lsn])
        for _, pages in self._sets:
            found |= pages
        return found

    def _put(self, page: int, lsn: int) -> None:
        block = self._blocks.get(page >> 6)
        if block is None:
            block = self._blocks[page >> 6] = array("Q", bytes(8 * _BLOCK))
        block[page & 63] = lsn

    def _pour(self, lsn: int, pages: PageSet) -> None:
        for page in pages:
            block = self._blocks.get(page >> 6)
            if block is None or block[page & 63] < lsn:
                self._put(page, lsn)

    def _cut(self, last: int) -> None:
        for number in [number for number in self._blocks if number * _BLOCK > last]:
            del self._blocks[number]
        block = self._blocks.get(last >> 6)
        if block is not None:
            for at in range((last & 63) + 1, _BLOCK):
                block[at] = 0
        self._sets = [(lsn, pages - beyond(pages, last)) for lsn, pages in self._sets]
        self._last = last
