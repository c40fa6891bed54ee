"""Fetch: pages that aren't here, without holding up those that are.

A view of the mount (over NEVER_WAIT) never waits: where a page is missing it raises `NeedsFetch`, the handler awaits
the pages in a thread (`Fetcher.fetch`) and begins again. Threads that want the same page share one request
(sync/prefetch.py).

`Readahead` belongs to one open handle. A reader whose misses follow one another gets chunks of growing size fetched
ahead of it, several at a time, so that it waits for the link and not for its delay.
"""

from __future__ import annotations

from typing import Final, Protocol

import trio

from ...sync.remote_snapshot import View
from ...sync.snapshot import Misses
from ...sync.tables import Head
from ...volume.errors import BudwoodError
from ...volume.pageset import PageSet, page_count, span
from ..requests.background import Background
from ..requests.guarded import log
from ..requests.in_thread import in_thread

THREADS: Final = 24
_CHUNK_BYTES: Final = 2 * 1024 * 1024
_MOST_AHEAD_BYTES: Final = 24 * 1024 * 1024
_REORDER_BYTES: Final = 512 * 1024
"""The kernel's own read-ahead sends requests that may overtake one another."""


class NeedsFetch(Exception):
    """`missing` are pages that lie beside `page` and are missing too."""

    def __init__(self, head: Head, page: int, missing: PageSet) -> None:
        super().__init__(f"page {page} is not here")
        self.head = head
        self.page = page
        self.missing = missing


class Fetching(Protocol):
    """A file with pages that aren't here."""

    @property
    def view(self) -> View | None: ...

    @property
    def misses(self) -> Misses: ...

    async def settled(self) -> None:
        """Returns when no thread works on the view."""
        ...


class _NeverWait:
    """For LocalSnapshot: raises where it would fetch."""

    def fetch(self, head: Head, page: int, missing: PageSet) -> dict[int, bytes]:
        raise NeedsFetch(head, page, missing)

    def ahead(self, head: Head, missing: PageSet) -> None:
        """A mount reads on by itself (Readahead)."""


NEVER_WAIT: Final = _NeverWait()


class Fetcher:
    """What the files of a mount share: its threads, and the background in which pages are fetched ahead."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._threads = trio.CapacityLimiter(THREADS)
        self.fetched = 0
        """Pages."""

    async def fetch(self, file: Fetching, need: NeedsFetch) -> None:
        """Get the pages and show them to the file's view, if it is the same then.

        Raises Unavailable, Forgotten, Corrupt.
        """
        before = file.view
        if before is None:
            return

        def work() -> tuple[dict[int, bytes], bool]:
            pages = file.misses.fetch(need.head, need.page, need.missing)
            return pages, before.save(pages)

        pages, saved = await in_thread(work, limiter=self._threads)
        self.fetched += len(pages)
        await file.settled()
        if file.view is before:
            before.adopt(pages, saved)

    def ahead(self, file: Fetching, need: NeedsFetch) -> None:
        """The same in the background. Nobody waits for it, so that its failure is only logged: whoever needs the page
        will ask again, and hear of it.
        """

        async def run() -> None:
            try:
                await self.fetch(file, need)
            except BudwoodError as error:
                log.info("reading ahead: %s", error)

        self._background.start_soon(run)


class Readahead:
    """How one handle reads on. Offsets in bytes, pages counted from 1."""

    __slots__ = ("_next", "_streak", "_upto")

    def __init__(self) -> None:
        self._next = 0
        self._streak = 0
        self._upto = 0
        """The last page that was asked for ahead of the reader."""

    def read(self, offset: int, size: int) -> None:
        """Told of every read of a file that isn't here as a whole."""
        if -_REORDER_BYTES <= offset - self._next <= _REORDER_BYTES:
            self._streak += size
            self._next = max(self._next, offset + size)
        else:
            self._streak, self._next, self._upto = 0, offset + size, 0

    def wanted(self, page_size: int, length: int) -> PageSet:
        """The pages worth asking for beyond the one that is missing; each is named once."""
        if self._streak < _REORDER_BYTES // 2:
            return PageSet()
        ahead = min(_MOST_AHEAD_BYTES, self._streak * 4)
        here, last = self._next // page_size + 1, page_count(length, page_size)
        first = max(self._upto + 1, here)
        upto = min(last, here + ahead // page_size)
        # Small steps would cost a request each.
        if upto - first + 1 < min(_CHUNK_BYTES // page_size, last - first + 1):
            return PageSet()
        self._upto = upto
        return span(first, upto)


def chunks(pages: PageSet, page_size: int) -> list[PageSet]:
    """Pages in requests of a size that keeps several of them under way."""
    step, numbers = max(1, _CHUNK_BYTES // page_size), list(pages)
    return [PageSet(numbers[at : at + step]) for at in range(0, len(numbers), step)]
