"""Change: what a transaction did to a volume, as a commit is made of it. No I/O."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from ..volume.pageset import PageSet, encode_pages
from .tables import CommitRecord

_NO_PAGES: Final = encode_pages(PageSet())


class Change(NamedTuple):
    """What a transaction did. Lengths in bytes."""

    items: Iterable[tuple[int, bytes]]
    """Whole pages, ascending."""
    pages: PageSet
    skeleton: PageSet
    length: int
    floor: int
    page_size: int

    @property
    def record(self) -> CommitRecord:
        return record_of(self.pages, self.skeleton, self.length, self.floor)


def record_of(pages: PageSet, skeleton: PageSet, length: int, floor: int) -> CommitRecord:
    """The record of a commit that is made now. Lengths in bytes."""
    packed, laid_first = encode_pages(pages), encode_pages(skeleton) if skeleton else _NO_PAGES
    now = time.time_ns() // 1_000_000
    return CommitRecord(pages=packed, length=length, floor=floor, skeleton=laid_first, time_ms=now)
