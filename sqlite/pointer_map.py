"""Pointer map: in an auto-vacuum database, what each page belongs to (sqlite.org/fileformat2, section 1.8).

From page 2 on, every (U/5 + 1)-th page is a map of the U/5 pages after it (U: usable size); it steps aside for the page
at 2^30 bytes, which is never used, since SQLite's locks lie there. An entry is a byte and a page number:

    1 a B-tree's root · 2 free · 3 first of a chain: the page with its cell · 4 further in a chain: the page before
    5 in a B-tree: its parent

A map may be wrong in a damaged database. What it says of chains is looked at: the page before must name the page, and
the page that is to hold the chain's cell must hold it; else `owners` gives None, and the chains themselves are asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..volume.errors import Corrupt
from ..volume.pageset import PageSet
from .btree import cells, parse_page
from .header import Header

_FIRST: Final = 3
_FURTHER: Final = 4
_LOCK_BYTE: Final = 1 << 30
_ENTRY: Final = 5


def lock_page(page_size: int) -> int:
    """The page that holds SQLite's lock bytes; a database that is smaller hasn't got it."""
    return _LOCK_BYTE // page_size + 1


def map_page(page: int, header: Header) -> tuple[int, int]:
    """The map that tells of `page`, and which of its entries; of a map itself, -1."""
    span = header.usable_bytes // _ENTRY + 1
    found = (page - 2) // span * span + 2
    found += found == lock_page(header.page_size)
    return found, page - found - 1


def pointer_map_pages(header: Header, page_count: int) -> PageSet:
    """Those of a database with so many pages, if it keeps maps."""
    starts = range(2, page_count + 1, header.usable_bytes // _ENTRY + 1)
    return PageSet(found for found in (map_page(page, header)[0] for page in starts) if found <= page_count)


def owners(
    read: Callable[[PageSet], dict[int, bytes]], page_count: int, header: Header, pages: PageSet
) -> dict[int, int] | None:
    """The B-tree page in which the chain of each page begins; None if the map is wrong, or says that one is in none."""
    maps: dict[int, bytes] = {}
    heads: dict[int, tuple[int, int]] = {}
    before: dict[int, int] = {}
    going = {page: page for page in pages}
    steps = 0
    while going:
        maps |= read(PageSet(map_page(at, header)[0] for at in going.values()) - PageSet(maps))
        further: dict[int, int] = {}
        for page, at in going.items():
            number, entry = map_page(at, header)
            if entry < 0:
                return None
            kind = maps[number][_ENTRY * entry]
            parent = int.from_bytes(maps[number][_ENTRY * entry + 1 : _ENTRY * entry + _ENTRY], "big")
            if kind in (_FIRST, _FURTHER) and not 2 <= parent <= page_count:
                return None
            if kind == _FIRST:
                heads[page] = (at, parent)
            elif kind == _FURTHER:
                further[page] = parent
                before.setdefault(page, parent)
            else:
                return None
        going = further
        steps += 1
        if steps > page_count:
            return None
    holders = {parent for _, parent in heads.values()}
    got = read(PageSet(holders) | PageSet(before.values()))
    if any(int.from_bytes(got[parent][:4], "big") != page for page, parent in before.items()):
        return None
    held = _held({number: got[number] for number in holders}, header)
    return {page: parent for page, (_, parent) in heads.items()} if set(heads.values()) <= held else None


def _held(pages: dict[int, bytes], header: Header) -> set[tuple[int, int]]:
    """The first page of each chain whose cell these pages hold, and which page that is."""
    held: set[tuple[int, int]] = set()
    for number, page in pages.items():
        try:
            found = cells(page, parse_page(page, number), header.usable_bytes)
            held |= {(cell.overflow, number) for cell in found if cell.overflow}
        except Corrupt:
            continue  # It is no B-tree page.
    return held
