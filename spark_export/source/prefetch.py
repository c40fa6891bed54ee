"""Prefetch: the next run of leaves is fetched while the last one is decoded.

A task that reads one request's worth, as for a LIMIT, has nothing fetched for it in vain: it is only with the second
run that the one after it is begun. One thread a task, which ends with it; at most one run lies waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from ...tables.page_source import PageSource
from ...volume.pageset import PageSet
from ...volume.thread_pool import ThreadPool


class Prefetcher:
    """A source for one reader, who comes to `leaves` in runs of `pages_per_run`; a context manager. What else is asked
    is answered at once."""

    def __init__(self, source: PageSource, leaves: Sequence[int], pages_per_run: int) -> None:
        self.page_size = source.page_size
        self.page_count = source.page_count
        self._source = source
        self._runs = _runs(leaves, pages_per_run)
        self._threads = ThreadPool(1, thread_name_prefix="budwood-ahead")
        self._begun = False
        self._run = next(self._runs, None)
        self._coming: Future[dict[int, bytes]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def read(self, pages: PageSet) -> dict[int, bytes]:
        """Raises what the source raises."""
        if self._run is None or pages != self._run:
            return self._source.read(pages)
        coming, self._coming = self._coming, None
        got = self._source.read(pages) if coming is None else coming.result()
        self._run = next(self._runs, None)
        if self._begun and self._run is not None:
            self._coming = self._threads.submit(self._source.read, self._run)
        self._begun = True
        return got


def _runs(leaves: Sequence[int], pages_per_run: int) -> Iterator[PageSet]:
    for start in range(0, len(leaves), pages_per_run):
        yield PageSet(leaves[start : start + pages_per_run])
