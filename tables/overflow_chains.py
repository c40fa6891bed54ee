"""Overflow chains: what many payloads have outside of their pages, and where it lies (sqlite/overflow.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from ..sqlite.header import DATABASE
from ..sqlite.overflow import chain_pages, chains
from ..volume.pageset import PageSet
from .page_source import PageSource, read_pages

_AT_ONCE: Final = 8192
"""Pages of chains that are followed together, where nobody keeps them."""


def read_chains(
    source: PageSource, starts: Sequence[tuple[int, int]], usable_bytes: int, key: str = DATABASE
) -> tuple[list[bytes], dict[int, bytes]]:
    """What each chain holds, given its first page and how many bytes lie in it, and all pages that were read.

    Raises Corrupt where a chain ends early or comes back to itself.
    """
    got: dict[int, bytes] = {}
    counted = [(first, chain_pages(rest, usable_bytes)) for first, rest in starts]
    ways = chains(partial(read_pages, source), source.page_count, counted, got.__setitem__, key)
    held = [
        b"".join(got[page][4:usable_bytes] for page in way)[:rest] for way, (_, rest) in zip(ways, starts, strict=True)
    ]
    return held, got


def follow(
    source: PageSource, starts: Sequence[tuple[int, int]], usable_bytes: int, key: str = DATABASE
) -> Iterator[PageSet]:
    """The pages of each chain, without keeping what they hold. Raises as `read_chains`."""
    some: list[tuple[int, int]] = []
    pages = 0
    for first, rest in starts:
        count = chain_pages(rest, usable_bytes)
        if some and pages + count > _AT_ONCE:
            yield from map(PageSet, chains(partial(read_pages, source), source.page_count, some, key=key))
            some, pages = [], 0
        some.append((first, count))
        pages += count
    yield from map(PageSet, chains(partial(read_pages, source), source.page_count, some, key=key))
