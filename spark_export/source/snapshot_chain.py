"""Snapshot chain: the snapshots of LSNs in a row, and which pages each step changed.

A commit says which pages it wrote or cut off; all others read as they did before it. The cache is told so
(page_reader.py): what stands between two LSNs is not fetched again, and a row of small commits costs their pages, not
their trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...tables.page_source import PageSource
from ...volume.pageset import PageSet, decode_pages, encode_pages, page_count, span
from ...volume.wire import CommitInfo, SnapshotInfo
from .page_reader import RemoteVolume

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
            vid=base.vid,
            lsn=commit.lsn,
            length=length,
            page_size=size,
            time=commit.time,
            since=base.since,
            encryption=base.encryption,
        )
        made.append(Link(view, encode_pages(written | cut)))
    return made


def open_chain(volume: RemoteVolume, base: SnapshotInfo, made: Sequence[Link]) -> list[PageSource]:
    """The snapshots of the base and of each link. What small steps changed is fetched: a request or two for each."""
    views = [base, *(link.view for link in made)]
    sources = [volume.pages(view) for view in views]
    before = PageSet()
    for older, link, source in zip(views, made, sources[1:], strict=False):
        changed = link.changed
        volume.link(older.lsn, link.view.lsn, changed)
        if len(changed) * base.page_size <= EAGER_BYTES:
            before |= changed
            source.read(_within(changed, link.view))
    if len(before) * base.page_size <= EAGER_BYTES:
        sources[0].read(_within(before, base))
    return sources


def _within(pages: PageSet, view: SnapshotInfo) -> PageSet:
    return pages & span(1, page_count(view.length, view.page_size))
