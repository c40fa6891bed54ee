"""Overlay: what a transaction has written over a view, or a program to a file, before it is committed.

Offsets and lengths are bytes; the pages beneath may have any size. A write that covers part of a page reads the rest of
it first: where the view refuses (NeedsFetch, in a mount), everything is as it was.

Beyond its length a page holds zeros, always: what is cut and grows again reads as zeros there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..sqlite.btree import is_skeleton
from ..volume.page import zeros
from ..volume.pageset import PageSet, page_count, span
from .change import Change
from .dirty_pages import DirtyPages
from .local_volume import Local
from .remote_snapshot import View
from .snapshot import LocalSnapshot, Misses

MAX_PAGE: Final = 2**32 - 2
"""SQLite's own limit."""


class Overlay:
    """Over a view, which stays the caller's. Not for two threads at once."""

    def __init__(self, view: View, page_size: int, folder: Path) -> None:
        self.view = view
        self.page_size = page_size
        self.length = view.length
        self.floor = view.length
        """The least length since the view."""
        self._folder = folder
        self._dirty = DirtyPages(folder, page_size)
        self._skeleton = PageSet()
        """Those of its pages, and maybe others, that look like a B-tree's skeleton."""

    @property
    def pages(self) -> PageSet:
        return self._dirty.pages

    @property
    def is_empty(self) -> bool:
        """Whether it would make no change, as far as that is known without comparing pages."""
        return not self._dirty.pages and self.length == self.view.length == self.floor

    def read(self, page: int) -> bytes:
        data = self._dirty.get(page)
        if data is not None:
            return data
        if page > page_count(self.floor, self.page_size):
            return zeros(self.page_size)
        return self.view.read(page)

    def write(self, offset: int, data: bytes) -> None:
        """Raises NeedsFetch with nothing changed."""
        size, end = self.page_size, offset + len(data)
        first, start = divmod(offset, size)
        if not start and len(data) == size:
            self._put(first + 1, data)
        elif data:
            last = (end - 1) // size
            head = self.read(first + 1)[:start] if start else b""
            # What lies beyond the length is zeros, and needs no look.
            tail = self.read(last + 1)[end - last * size :] if end < self.length and end % size else b""
            whole = b"".join((head, data, tail))
            whole += bytes(-len(whole) % size)
            for number in range(last - first + 1):
                self._put(first + 1 + number, whole[number * size : (number + 1) * size])
        self.length = max(self.length, end)

    def _put(self, page: int, data: bytes) -> None:
        self._dirty.put(page, data)
        if is_skeleton(data, page):
            self._skeleton.add(page)
        else:
            self._skeleton.discard(page)

    def truncate(self, length: int) -> None:
        """Raises NeedsFetch with nothing changed."""
        if length < self.length:
            last, rest = page_count(length, self.page_size), length % self.page_size
            if rest:
                data = self.read(last)
                if data[rest:] != zeros(self.page_size)[rest:]:
                    self._put(last, data[:rest] + zeros(self.page_size)[rest:])
            self._dirty.cut(last)
            self.floor = min(self.floor, length)
        self.length = length

    def drop_unchanged(self) -> None:
        """Forget the pages that hold what the view holds, so that a transaction that undid itself makes no commit.

        A page that would have to be fetched to be compared counts as changed.
        """
        last = page_count(min(self.floor, self.view.length), self.page_size)
        mine = self._dirty.pages & span(1, last)
        for page in mine - self.view.missing(mine):
            if self._dirty.get(page) == self.view.read(page):
                self._dirty.drop(page)
        if self.floor < min(self.length, self.view.length):
            self._raise_floor()

    def move(self, view: View) -> None:
        """The same content over a view that has it all, or a part of it."""
        self.view, self.floor = view, min(self.length, view.length)

    def change(self) -> Change:
        """What a commit is made of."""
        pages = PageSet(self._dirty.pages)
        return Change(self._dirty.items(), pages, self._skeleton & pages, self.length, self.floor, self.page_size)

    def recut(self, page_size: int) -> Overlay:
        """The same content over the same view in pages of another size: of a volume whose size isn't settled yet."""
        other = Overlay(self.view, page_size, self._folder)
        step = max(page_size, self.page_size)
        for start in range(0, self.length, step):
            other.write(start, self._bytes(start, min(step, self.length - start)))
        self.close()
        return other

    def close(self) -> None:
        self._dirty.close()

    def _bytes(self, start: int, size: int) -> bytes:
        pages = range(start // self.page_size, page_count(start + size, self.page_size))
        return b"".join([self.read(page + 1) for page in pages])[:size]

    def _raise_floor(self) -> None:
        """Of a file that was cut and written again, as `cp` over it does: where every page after the floor was written
        again nothing older needs hiding, and a page that came out the same is no change.
        """
        wanted = min(self.length, self.view.length)
        cut = span(page_count(self.floor, self.page_size) + 1, page_count(wanted, self.page_size))
        if cut - self._dirty.pages:
            return
        self.floor = wanted
        for page in cut - self.view.missing(cut):
            if self._dirty.get(page) == self.view.read(page):
                self._dirty.drop(page)


@contextmanager
def written_over(
    local: Local, misses: Misses, page_size: int, length: int, pieces: Iterable[tuple[int, bytes]]
) -> Generator[Overlay]:
    """These (offset, bytes) over what stands in the volume, cut to `length`. In a thread, as what is missing is
    fetched. Raises NeedsFetch where making a piece does.
    """
    view = LocalSnapshot(local, misses)
    overlay = Overlay(view, page_size, local.environment.spill)
    try:
        for offset, data in pieces:
            overlay.write(offset, data)
        overlay.truncate(length)
        yield overlay
    finally:
        overlay.close()
        view.close()
