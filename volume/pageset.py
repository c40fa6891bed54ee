"""Page sets: sets of page indexes as roaring bitmaps (the seeds' *graft*; S2.5).

Values are u32, from 1. `PageSet` is pyroaring's BitMap: unions, intersections and membership are C calls.
"""

from __future__ import annotations

from typing import TypeAlias

from pyroaring import BitMap

from .errors import BadInput, Corrupt

PageSet: TypeAlias = BitMap


def encode_pages(pages: PageSet) -> bytes:
    """Portable roaring bytes; runs are compressed, so that a whole import takes a few bytes."""
    packed = PageSet(pages)
    packed.run_optimize()
    return packed.serialize()


def decode_pages(key: str, data: bytes) -> PageSet:
    """Raises Corrupt unless these are a page set's bytes."""
    try:
        pages = PageSet.deserialize(data)
        if 0 in pages:
            raise Corrupt(key, "a page set can't hold page 0")
    except (ValueError, IndexError) as error:
        raise Corrupt(key, "not a page set") from error
    return pages


def span(first: int, last: int) -> PageSet:
    """The pages first … last, both included; empty when last < first."""
    return PageSet(range(first, last + 1)) if last >= first else PageSet()


def beyond(pages: PageSet, last: int) -> PageSet:
    """Those of `pages` that lie after page `last`."""
    return pages & span(last + 1, pages.max()) if pages and pages.max() > last else PageSet()


def page_count(length: int, page_size: int) -> int:
    """How many pages hold `length` bytes."""
    return -(-length // page_size)


def rescaled(pages: PageSet, page_size: int, other_size: int) -> PageSet:
    """The pages of another size that hold these."""
    if page_size == other_size:
        return pages
    found = PageSet()
    if page_size < other_size:
        found.update((page - 1) * page_size // other_size + 1 for page in pages)
        return found
    ratio = page_size // other_size
    for page in pages:
        found.add_range((page - 1) * ratio + 1, page * ratio + 1)
    return found


def pages_asked_for(data: bytes) -> PageSet:
    """The page set of a request. Raises BadInput."""
    try:
        return decode_pages("the request", data)
    except Corrupt as error:
        raise BadInput("the pages asked for are no page set: send a portable roaring bitmap") from error
