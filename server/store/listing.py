"""Listing: the keys below a directory, in the order of the whole key's bytes.

A directory's keys all start with its path and '/', so entries are put in order as names, directories with '/' behind:
"a-b" < "a.b" < "a/b" < "ab", although "a" < "a-b". Only directories that can hold an answer are opened: not those
outside the prefix, not those wholly below `start`, and none once the limit is reached.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from itertools import islice

from .protocol import Keys, is_part


def walk(root: str, prefix: str, start: str, limit: int | None) -> Keys:
    """At most `limit` keys that start with `prefix` and are >= `start`, sorted. Raises OSError."""
    keys = _keys(root, prefix[: prefix.rfind("/") + 1], prefix, start, whole=limit is None)
    return list(keys if limit is None else islice(keys, max(limit, 0)))


def _keys(root: str, below: str, prefix: str, start: str, *, whole: bool) -> Iterator[str]:
    for key in _sorted(_entries(root, below), whole):
        if key[-1] != "/":
            if key >= start and key.startswith(prefix):
                yield key
        elif (key.startswith(prefix) or prefix.startswith(key)) and (key >= start or start.startswith(key)):
            yield from _keys(root, key, prefix, start, whole=whole)


def _sorted(entries: list[str], whole: bool) -> Iterable[str]:
    """All sorted at once, or one after the other where only a few will be asked for."""
    if whole:
        entries.sort()
        return entries
    heapq.heapify(entries)
    return (heapq.heappop(entries) for _ in range(len(entries)))


def _entries(root: str, below: str) -> list[str]:
    try:
        with os.scandir(f"{root}/{below}") as found:
            # Temporary files, and what others left here, have no names of keys.
            return [
                f"{below}{entry.name}/" if entry.is_dir(follow_symlinks=False) else below + entry.name
                for entry in found
                if is_part(entry.name) and (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False))
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []  # Pruned meanwhile, or never there.
