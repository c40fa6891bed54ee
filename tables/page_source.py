"""Page source: where the readers get pages, many at a time.

A volume's pages and its database's need not have one size: the volume's is fixed at birth, the database's by whoever
made it, possibly through a mount. `database` shows any source in pages of the database's own size, so that all the rest
of this room knows one size only.
"""

from __future__ import annotations

from typing import Protocol

from ..sqlite.header import HEADER_SIZE, Header, is_sqlite, parse_header
from ..volume.errors import BadInput, Corrupt, Unsupported
from ..volume.pageset import PageSet, rescaled

_NEWEST_VERSION = 2


class PageSource(Protocol):
    """One snapshot's pages. `read` answers all that it is asked for, blocking; it raises StoreErrors.

    Beyond what was ever written, pages are zeros; `page_count` is where the snapshot ends.
    """

    @property
    def page_size(self) -> int: ...

    @property
    def page_count(self) -> int: ...

    def read(self, pages: PageSet) -> dict[int, bytes]: ...


def read_pages(source: PageSource, pages: PageSet) -> dict[int, bytes]:
    """As `source.read`, for page numbers that came out of pages: raises Corrupt for one that the snapshot lacks."""
    if not pages:
        return {}
    if pages.min() < 1 or pages.max() > source.page_count:
        wrong = pages.min() if pages.min() < 1 else pages.max()
        raise Corrupt("a SQLite database", f"it names page {wrong} and has {source.page_count}")
    return source.read(pages)


def database(source: PageSource) -> tuple[PageSource, Header]:
    """The source in pages of the database's size, and the database's header.

    Raises BadInput where there is no SQLite database, Unsupported for one of a newer format.
    """
    if source.page_count == 0:
        raise BadInput("the volume is empty: there is no table to read")
    head = source.read(PageSet((1,)))[1]
    if not is_sqlite(head[:HEADER_SIZE]):
        raise BadInput("the volume holds no SQLite database: only its raw pages can be read")
    header = parse_header(head)
    if header.read_version > _NEWEST_VERSION:
        raise Unsupported(f"the database's read version is {header.read_version}: a newer SQLite wrote it")
    return resized(source, header), header


def resized(source: PageSource, header: Header) -> PageSource:
    """The source in pages of the size that the database's header says, for those who know the header already."""
    if header.page_size == source.page_size:
        return source
    return (_Larger if header.page_size > source.page_size else _Smaller)(source, header.page_size)


class _Larger:
    """Several pages of the volume make one of the database."""

    def __init__(self, source: PageSource, page_size: int) -> None:
        self._source = source
        self._ratio = page_size // source.page_size
        self.page_size = page_size
        self.page_count = source.page_count // self._ratio

    def read(self, pages: PageSet) -> dict[int, bytes]:
        ratio = self._ratio
        got = self._source.read(rescaled(pages, self.page_size, self._source.page_size))
        return {page: b"".join(got[(page - 1) * ratio + 1 + part] for part in range(ratio)) for page in pages}


class _Smaller:
    """One page of the volume holds several of the database."""

    def __init__(self, source: PageSource, page_size: int) -> None:
        self._source = source
        self._ratio = source.page_size // page_size
        self.page_size = page_size
        self.page_count = source.page_count * self._ratio

    def read(self, pages: PageSet) -> dict[int, bytes]:
        ratio, size = self._ratio, self.page_size
        got = self._source.read(rescaled(pages, size, self._source.page_size))
        found: dict[int, bytes] = {}
        for page in pages:
            whole, part = divmod(page - 1, ratio)
            found[page] = got[whole + 1][part * size : (part + 1) * size]
        return found
