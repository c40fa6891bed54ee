"""Bulk fetch: more pages of a volume than should be held together, from its remote, part by part.

While its reader keeps one part, a thread of its own receives and unpacks the next: what a local store waits for its
disk, a link goes on, and so does zstd, which needs no GIL. At most `_PARTS_AHEAD` parts wait to be read.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from contextvars import copy_context
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from ..volume.errors import Unavailable
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet
from ..volume.thread_limit import start_thread
from .page_fetch import Asked, Fetched, unpacked

if TYPE_CHECKING:
    from types import TracebackType

    from .portal import BlockingRead, BlockingRemote

REQUEST_BYTES: Final = 64 * 1024 * 1024
"""Of pages that are asked for at once."""
PART_BYTES: Final = 4 * 1024 * 1024
_PARTS_AHEAD: Final = 2


def fetch_in_parts(
    remote: BlockingRemote, vid: VolumeId, lsn: int, pages: PageSet, page_size: int
) -> Generator[Fetched]:
    """As page_fetch.fetch_pages, some `PART_BYTES` of pages at a time. To be closed by the thread that reads it. An
    answer that breaks off is asked for again, as long as each try brings something.
    """
    left, most = PageSet(pages), max(1, REQUEST_BYTES // page_size)
    while left:
        some, before = PageSet(islice(left, most)), len(left)
        asked = Asked(f"the answer of {remote.url}", vid, lsn, some, page_size)
        try:
            with _Ahead(remote.read_pages(vid, lsn, some).begin(), asked) as parts:
                for part in parts:
                    left -= PageSet(part.pages)
                    yield part
        except Unavailable:
            if len(left) == before:
                raise


class _Ahead:
    """The thread that unpacks an answer. A context manager: what isn't read then is left."""

    def __init__(self, reading: BlockingRead, asked: Asked) -> None:
        self._reading = reading
        self._asked = asked
        self._parts: SimpleQueue[Fetched | BaseException | None] = SimpleQueue()
        self._room = threading.Semaphore(_PARTS_AHEAD)
        self._is_left = False
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._unpack,), name="budwood-unpack", daemon=True
        )

    def __enter__(self) -> Iterator[Fetched]:
        try:
            start_thread(self._thread)
        except BaseException:
            self._reading.leave()
            raise
        return self._read()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_left = True
        self._reading.leave()
        self._room.release()
        self._thread.join()

    def _read(self) -> Iterator[Fetched]:
        while (part := self._parts.get()) is not None:
            if isinstance(part, BaseException):
                raise part
            yield part
            self._room.release()

    def _unpack(self) -> None:
        try:
            with closing(unpacked(self._reading, self._asked, part_bytes=PART_BYTES)) as parts:
                for part in parts:
                    self._room.acquire()
                    if self._is_left:
                        return
                    self._parts.put(part)
            self._parts.put(None)
        except BaseException as error:
            self._parts.put(error)
