"""Chains: the way of many overflow chains at once, without keeping what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ...sqlite.header import DATABASE, Header
from ...sqlite.overflow import chain_pages
from ...volume.errors import Corrupt
from ...volume.pageset import PageSet
from ..leaf_rows import Rows
from ..page_source import PageSource, read_pages

__all__ = ["follow", "rows_meeting"]

_AT_ONCE: Final = 8192
"""Pages of chains that are followed together."""


def follow(
    source: PageSource, starts: Sequence[tuple[int, int]], header: Header, key: str = DATABASE
) -> Iterator[PageSet]:
    """Each chain's pages, given its first and how many bytes lie in it. Raises Corrupt for one that ends early."""
    some: list[tuple[int, int]] = []
    pages = 0
    for first, rest in starts:
        count = chain_pages(rest, header.usable_bytes)
        if some and pages + count > _AT_ONCE:
            yield from _follow(source, some, key)
            some, pages = [], 0
        some.append((first, count))
        pages += count
    yield from _follow(source, some, key)


def _follow(source: PageSource, starts: list[tuple[int, int]], key: str) -> list[PageSet]:
    """In turns, a request for the next page of each. The first asks for whole runs, in which SQLite lays them."""
    met = [PageSet() for _ in starts]
    going = [(number, first) for number, (first, count) in enumerate(starts) if count]
    links: dict[int, int] = {}
    ahead = PageSet()
    for first, count in starts:
        if 1 <= first <= source.page_count:
            ahead.add_range(first, min(first + count, source.page_count + 1))
    while going:
        wanted = ahead | PageSet(page for _, page in going)
        for start in range(0, len(wanted), _AT_ONCE):
            pages = read_pages(source, PageSet(wanted[start : start + _AT_ONCE]))
            links |= {page: int.from_bytes(data[:4], "big") for page, data in pages.items()}
        ahead = PageSet()
        left: list[tuple[int, int]] = []
        for number, page in going:
            first, count = starts[number]
            while len(met[number]) < count and page in links:
                if page in met[number]:
                    raise Corrupt(key, f"the overflow chain from page {first} comes back to itself")
                met[number].add(page)
                page = links[page]
            if len(met[number]) < count:
                if page == 0:
                    raise Corrupt(key, f"the overflow chain from page {first} ends early")
                left.append((number, page))
        going = left
    return met


def rows_meeting(source: PageSource, rows: Rows, header: Header, pages: PageSet) -> npt.NDArray[np.bool_]:
    """Which of these rows have a chain that comes to one of `pages`."""
    meeting = np.zeros(len(rows), np.bool_)
    over = np.flatnonzero(rows.local < rows.size)
    if len(over) and pages:
        ways = follow(source, rows.chains(over), header)
        meeting[over] = [not way.isdisjoint(pages) for way in ways]
    return meeting
