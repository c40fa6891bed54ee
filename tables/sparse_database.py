"""Sparse database: some of a snapshot's pages as a local file that stock SQLite opens.

The file has the database's whole length and holes where pages are missing. A hole reads as zeros, and SQLite would take
zeros for the content of an overflow page, so whoever asks it a question first adds every page that the answer may lie
in. `immutable=1` keeps SQLite from looking for a -journal or a -wal, and from locking. Page 1 is written as header.show
has it: not marked WAL, and its page count either right or absent; and not marked auto-vacuum, for in such a database
SQLite follows chains by the pointer map, whose pages aren't here.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Final
from urllib.parse import quote

from ..sqlite.header import Header, show
from ..sqlite.tree import table_rows
from ..volume.errors import Full
from ..volume.pageset import PageSet, span
from .page_source import PageSource, read_pages
from .trees import leaves_with_chains, parts_of_tree, walk, whole_tree

_AT_ONCE: Final = 2048
_LARGEST_ROOT: Final = slice(52, 56)
_INCREMENTAL: Final = slice(64, 68)
_READ_WITH_THE_SCHEMA: Final = frozenset(("sqlite_stat1", "sqlite_stat3", "sqlite_stat4"))


def schema_pages(source: PageSource, header: Header) -> dict[int, bytes]:
    """What SQLite reads before any statement: the schema's tree, and the statistics of ANALYZE."""
    pages = whole_tree(source, 1, header)
    for _, (kind, name, _, root, *_) in table_rows(pages.__getitem__, 1, header):
        if kind == "table" and name in _READ_WITH_THE_SCHEMA and isinstance(root, int):
            pages |= whole_tree(source, root, header)
    return pages


class SparseDatabase:
    """The file; removed by `close`. `directory` is where it lies, else where temporary files do."""

    def __init__(self, source: PageSource, header: Header, directory: Path | None = None) -> None:
        self.source = source
        self.header = header
        self.have = PageSet()
        self._file, name = mkstemp(prefix="budwood-", suffix=".db", dir=directory)
        self.path = Path(name)
        try:
            os.ftruncate(self._file, source.page_count * source.page_size)
        except BaseException:
            self.close()
            raise

    @property
    def uri(self) -> str:
        return f"file:{quote(str(self.path))}?mode=ro&immutable=1"

    def __enter__(self) -> SparseDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with suppress(FileNotFoundError):
                self.path.unlink()

    def add(self, pages: dict[int, bytes]) -> None:
        """Raises Full."""
        for index, page in pages.items():
            if index not in self.have:
                self._write(index, _page1(page, self.header) if index == 1 else page)
        self.have |= PageSet(pages)

    def add_tree(self, root: int, ranges: Sequence[tuple[int, int]] = ()) -> None:
        """A tree with its chains; with ranges of rowids, of a table what SQLite comes to when it reads their rows: the
        leaves of each range, and the next one, by which it sees that the range has ended."""
        if not ranges:
            for part in parts_of_tree(self.source, root, self.header):
                self.add(part)
            return
        tree = walk(self.source, root, self.header, lambda number, page: self.add({number: page}))
        leaves: dict[int, None] = {}
        for first, last in ranges:
            begin, end = bisect_left(tree.bounds, first), bisect_left(tree.bounds, last) + 2
            leaves |= dict.fromkeys(tree.leaves[begin:end])
        numbers = list(leaves)
        for start in range(0, len(numbers), _AT_ONCE):
            self.add(leaves_with_chains(self.source, numbers[start : start + _AT_ONCE], self.header))

    def _write(self, index: int, page: bytes) -> None:
        try:
            os.pwrite(self._file, page, (index - 1) * self.source.page_size)
        except OSError as error:
            raise Full(f"the temporary file {self.path} can't be written: {error.strerror}") from error

    def add_all(self) -> None:
        """The whole snapshot: for what may read any page."""
        missing = span(1, self.source.page_count) - self.have
        while missing:
            some = PageSet(missing[:_AT_ONCE])
            self.add(read_pages(self.source, some))
            missing -= some
        # Now the pointer map is here too, and a page of it that nobody expects would be one too many.
        first = read_pages(self.source, PageSet((1,)))[1]
        self._write(1, show(first, self.header.change_counter))


def _page1(page: bytes, header: Header) -> bytes:
    shown = bytearray(show(page, header.change_counter))
    shown[_LARGEST_ROOT], shown[_INCREMENTAL] = bytes(4), bytes(4)
    return bytes(shown)
