"""Shown cookie: the schema cookie (page 1, bytes 40 to 43) as SQLite is to see it.

SQLite counts it on with each change of the schema, and reads the schema anew where the number is another than the one
that it has in mind. But where local commits were discarded, the history that took their place may have counted to the
same number by other changes: SQLite would take the one schema for the other, and read and write tables of the one at
places of the other. So from then on another number is shown, until one that was shown has been written. So it is where
the schema's root page is another under the same number: a file was copied over the database.
"""

from __future__ import annotations

import random
from typing import Final

import xxhash

from ..volume.page import MAX_PAGE_SIZE
from .header import HEADER_SIZE, MAGIC

_COOKIE: Final = slice(40, 44)
_MASK: Final = 0xFFFFFFFF
_FAR: Final = 1 << 20
"""No program changes a schema so often between two looks at it."""


def counted_on(page1: bytes, before: bytes) -> bytes:
    """Page 1 of an older snapshot that is to follow `before`: where the schema was changed in between, its cookie is
    one that nobody has seen."""
    last = before[_COOKIE]
    if page1[:16] != MAGIC or before[:16] != MAGIC or page1[_COOKIE] == last:
        return page1
    return b"".join((page1[:40], ((int.from_bytes(last) + 1) & _MASK).to_bytes(4), page1[44:]))


class ShownCookie:
    """Of one database, for one connection or for all that read it as a file."""

    __slots__ = ("_history", "_root", "_shift", "_shown")

    def __init__(self) -> None:
        self._history: int | None = None
        self._shift = 0
        self._shown: int | None = None
        """What was shown last; None for nothing since it jumped."""
        self._root = 0
        """A hash of the schema's root page, as it was shown last."""

    def follow(self, history: int) -> None:
        """What is shown from now on is of this history."""
        if self._history not in {None, history}:
            self._jump()
        self._history = history

    def show(self, page1: bytes, *, committed: bool = True) -> bytes:
        """What was shown and written stays as it is. `committed`: it is not what a transaction has written by now."""
        if page1[:16] != MAGIC:
            return page1
        stored = int.from_bytes(page1[_COOKIE])
        before = self._shown
        written = before is not None and (stored - before) & _MASK < _FAR
        if committed:
            root = _root_of(page1)
            if root != self._root and (stored + self._shift) & _MASK == before:
                self._jump()
                written = False
            self._root = root
        shown = stored if written else (stored + self._shift) & _MASK
        self._shown = shown
        return page1 if shown == stored else b"".join((page1[:40], shown.to_bytes(4), page1[44:]))

    def wrote(self, page1: bytes) -> None:
        """SQLite has written that, and has it in mind."""
        if page1[:16] == MAGIC:
            self._shown, self._root = int.from_bytes(page1[_COOKIE]), _root_of(page1)

    def _jump(self) -> None:
        self._shown, self._shift = None, random.randrange(2 * _FAR, _MASK - 2 * _FAR)


def _root_of(page1: bytes) -> int:
    size = int.from_bytes(page1[16:18])
    return xxhash.xxh3_64_intdigest(page1[HEADER_SIZE : MAX_PAGE_SIZE if size == 1 else size])
