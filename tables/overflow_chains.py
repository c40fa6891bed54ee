"""Chains: overflow pages, many chains at once.

They are followed in turns, one request for the next page of each; since SQLite lays a chain down in one run where it
can, the first request asks for the whole run, and what the links then say otherwise is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sqlite.header import DATABASE
from ..sqlite.overflow import chain_pages
from ..volume.errors import Corrupt
from ..volume.pageset import PageSet
from .page_source import PageSource, read_pages

__all__ = ["read_chains"]


def read_chains(
    source: PageSource, starts: Sequence[tuple[int, int]], usable_bytes: int, key: str = DATABASE
) -> tuple[list[bytes], dict[int, bytes]]:
    """What each chain holds, given its first page and how many bytes lie in it, and all pages that were read.

    Raises Corrupt where a chain ends early or comes back to itself.
    """
    got: dict[int, bytes] = {}
    parts: list[list[bytes]] = [[] for _ in starts]
    met: list[set[int]] = [set() for _ in starts]
    going = [(number, first, rest) for number, (first, rest) in enumerate(starts) if rest > 0]
    wanted = PageSet()
    for _, first, rest in going:
        if 1 <= first <= source.page_count:
            wanted.add_range(first, min(first + chain_pages(rest, usable_bytes), source.page_count + 1))
    while going:
        got |= read_pages(source, (wanted | PageSet(at for _, at, _ in going)) - PageSet(got))
        wanted = PageSet()
        left: list[tuple[int, int, int]] = []
        for number, at, rest in going:
            while rest > 0 and at in got:
                if at in met[number]:
                    raise Corrupt(key, f"the overflow chain from page {starts[number][0]} comes back to itself")
                met[number].add(at)
                page = got[at]
                parts[number].append(page[4 : min(usable_bytes, 4 + rest)])
                rest -= usable_bytes - 4
                at = int.from_bytes(page[:4], "big")
            if rest > 0:
                if at == 0:
                    raise Corrupt(key, f"the overflow chain from page {starts[number][0]} ends early")
                left.append((number, at, rest))
        going = left
    return [b"".join(pieces) for pieces in parts], got
