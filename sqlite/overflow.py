"""Overflow: where a payload that is too long for its B-tree page goes on (sqlite.org/fileformat2, section 1.6).

Of a payload a part stays in the cell; the rest lies in a chain of pages, each with the number of the next in its first
four bytes (0 in the last), then content up to the usable size. How much stays depends on the usable size U alone:

    the most     X = U - 35 in a table's leaf, (U - 12)*64/255 - 23 in an index
    the least    M = (U - 12)*32/255 - 23
    beyond X     K = M + (P - M) mod (U - 4), which leaves no chain page part-filled; if K is above X, M

A chain's length follows from the payload's, so a walk is bounded, and a page that comes twice is damage. What the last
page names as its next is not looked at, as SQLite doesn't either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..volume.errors import Corrupt
from ..volume.pageset import PageSet
from .header import DATABASE

_AT_ONCE: Final = 8192
"""Pages of one request."""


def local_size(payload_bytes: int, usable_bytes: int, *, table: bool) -> int:
    """How many bytes of a payload lie in its cell; equal to `payload_bytes` where nothing overflows."""
    most = usable_bytes - 35 if table else (usable_bytes - 12) * 64 // 255 - 23
    if payload_bytes <= most:
        return payload_bytes
    least = (usable_bytes - 12) * 32 // 255 - 23
    kept = least + (payload_bytes - least) % (usable_bytes - 4)
    return kept if kept <= most else least


def chain_pages(rest_bytes: int, usable_bytes: int) -> int:
    """How many pages hold the rest of a payload."""
    return -(-rest_bytes // (usable_bytes - 4))


def chain(
    read: Callable[[int], bytes], first: int, rest_bytes: int, usable_bytes: int, key: str = DATABASE
) -> Iterator[tuple[int, bytes]]:
    """Each page of a chain and the bytes of the payload in it. `read` gives a page by its number, from 1.

    Raises Corrupt where the chain ends early, meets itself, or `read` gives less than a page.
    """
    seen: set[int] = set()
    index = first
    for _ in range(chain_pages(rest_bytes, usable_bytes)):
        if index == 0 or index in seen:
            how = "comes back to itself" if index else "ends early"
            raise Corrupt(key, f"the overflow chain from page {first} {how}")
        seen.add(index)
        page = read(index)
        if len(page) < usable_bytes:
            raise Corrupt(key, f"page {index} has {len(page)} bytes where at least {usable_bytes} belong")
        yield index, page[4 : min(usable_bytes, 4 + rest_bytes)]
        rest_bytes -= usable_bytes - 4
        index = int.from_bytes(page[:4], "big")


def gather(
    read: Callable[[int], bytes], local: bytes, first: int, payload_bytes: int, usable_bytes: int, key: str = DATABASE
) -> bytes:
    """The whole payload: its local part and, where that is not all, the chain from page `first`. Raises Corrupt."""
    rest_bytes = payload_bytes - len(local)
    if rest_bytes <= 0:
        return local
    return b"".join((local, *(content for _, content in chain(read, first, rest_bytes, usable_bytes, key))))


def chains(
    read: Callable[[PageSet], dict[int, bytes]],
    page_count: int,
    starts: Sequence[tuple[int, int]],
    visit: Callable[[int, bytes], None] | None = None,
    key: str = DATABASE,
) -> list[list[int]]:
    """The pages of many chains at once, each given by its first page and how many it has.

    They are followed in turns, one request for the next page of each; since SQLite lays a chain down in one run where
    it can, the first request asks for the whole run, and what the links then say otherwise is asked again. `visit` is
    shown what is read, be it of a chain or not. Raises Corrupt where a chain ends early or comes back to itself.
    """
    links: dict[int, int] = {}
    ways: list[dict[int, None]] = [{} for _ in starts]
    going = [(number, first) for number, (first, count) in enumerate(starts) if count]
    wanted = PageSet()
    for number, first in going:
        if 1 <= first <= page_count:
            wanted.add_range(first, min(first + starts[number][1], page_count + 1))
    while going:
        wanted = (wanted | PageSet(page for _, page in going)) - PageSet(links)
        for start in range(0, len(wanted), _AT_ONCE):
            for page, data in read(PageSet(wanted[start : start + _AT_ONCE])).items():
                links[page] = int.from_bytes(data[:4], "big")
                if visit:
                    visit(page, data)
        wanted, left = PageSet(), list[tuple[int, int]]()
        for number, page in going:
            (first, count), way = starts[number], ways[number]
            while len(way) < count and page in links:
                if page in way:
                    raise Corrupt(key, f"the overflow chain from page {first} comes back to itself")
                way[page] = None
                page = links[page]
            if len(way) < count:
                if page == 0:
                    raise Corrupt(key, f"the overflow chain from page {first} ends early")
                left.append((number, page))
        going = left
    return [list(way) for way in ways]
