"""Chain: the snapshots of LSNs in a row, in which a page that two of them share is fetched once.

A commit says which pages it wrote or cut off; all others read as they did before it. So each page of each LSN has one
LSN of the chain at which it last changed, and is read there: what stands between two changes is not fetched again, and
a row of small commits costs their pages, not their trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...volume.pageset import PageSet, decode_pages, encode_pages, page_count, span
from ...volume.wire import CommitInfo, SnapshotInfo
from ..tables.pages import PageSource
from .reach import Reached

__all__ = ["Chain", "Link", "links"]

EAGER_BYTES: Final = 256 * 1024
"""Where a commit changed no more than this, its pages are fetched at once, in one request."""


@dataclass(frozen=True, slots=True)
class Link:
    """A step from the LSN before it in the chain; it pickles. `pages`: what it may have changed, as a page set's
    bytes."""

    view: SnapshotInfo
    pages: bytes

    @property
    def changed(self) -> PageSet:
        return decode_pages("the changes of a step", self.pages)


def links(base: SnapshotInfo, commits: Sequence[CommitInfo]) -> list[Link]:
    """The steps of commits that follow one another, from the snapshot before them."""
    made: list[Link] = []
    length, size = base.length, base.page_size
    for commit in commits:
        written = decode_pages(f"commit {commit.lsn}", commit.pages)
        # What was cut off reads as zeros, even if the volume grew back over it.
        cut = span(page_count(commit.floor, size) + 1, page_count(length, size))
        length = commit.length
        view = SnapshotInfo(
            vid=base.vid, lsn=commit.lsn, length=length, page_size=size, time=commit.time, since=base.since
        )
        made.append(Link(view, encode_pages(written | cut)))
    return made


class Chain:
    """For one thread. `base` is the snapshot before the first link."""

    def __init__(self, reached: Reached, base: SnapshotInfo, made: Sequence[Link]) -> None:
        self._views = [base, *(link.view for link in made)]
        self._changed = [link.changed for link in made]
        self._sources = [reached.pages(view) for view in self._views]
        for before, view, changed in zip(self._views, self._views[1:], self._changed, strict=False):
            reached.link(before.lsn, view.lsn, changed)

    def at(self, place: int) -> PageSource:
        """The snapshot at a place in the chain, 0 being the base."""
        return _Linked(self, place)

    def changed(self, place: int) -> PageSet:
        """What the step to this place may have changed."""
        return self._changed[place - 1]

    def view(self, place: int) -> SnapshotInfo:
        return self._views[place]

    def read(self, place: int, pages: PageSet) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        wanted = PageSet(pages)
        for at in range(place, 0, -1):
            last = wanted & self._changed[at - 1]
            if last:
                found.update(self._sources[at].read(last))
                wanted -= last
        if wanted:
            found.update(self._sources[0].read(wanted))
        return found

    def fetch(self) -> None:
        """What small steps changed, before and after, in a request or two for each."""
        size = self._views[0].page_size
        small = [at for at, pages in enumerate(self._changed, 1) if len(pages) * size <= EAGER_BYTES]
        before = PageSet()
        for at in small:
            before |= self._changed[at - 1]
        if len(before) * size <= EAGER_BYTES:
            self._sources[0].read(_within(before, self._views[0]))
        for at in small:
            self._sources[at].read(_within(self._changed[at - 1], self._views[at]))


def _within(pages: PageSet, view: SnapshotInfo) -> PageSet:
    return pages & span(1, page_count(view.length, view.page_size))


class _Linked:
    """Answers the protocol tables.pages.PageSource."""

    def __init__(self, chain: Chain, place: int) -> None:
        view = chain.view(place)
        self._chain = chain
        self._place = place
        self.page_size = view.page_size
        self.page_count = page_count(view.length, view.page_size)
        self.lsn = view.lsn

    def read(self, pages: PageSet) -> dict[int, bytes]:
        return self._chain.read(self._place, pages)
