"""Blocking listening: what listening.py does, for callers without a loop.

    for commit in edge.volume("inventory").listen(after=7):
        for page, data in commit.read(): …

The iterator waits in the process's one loop (loop.py), so that it holds no thread but its caller's. `close`, from any
thread, ends the iteration, and Ctrl-C the wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from ..volume.errors import Unavailable
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet
from ..volume.wire import CommitInfo
from .listening import HeardCommit, OnSilence, Progress, in_parts
from .loop import Begun
from .page_fetch import fetch_pages
from .portal import BlockingRemote


class BlockingListener(AbstractContextManager["BlockingListener"]):
    """An iterator over commits, for one thread; see listening.Listener and listening.listen. `done` is called when it
    is closed."""

    def __init__(
        self,
        remote: BlockingRemote,
        vid: VolumeId,
        *,
        after: int | None = None,
        patience_seconds: float | None = None,
        on_silence: OnSilence | None = None,
        done: Callable[[], object] = lambda: None,
    ) -> None:
        self._remote = remote
        self._done = done
        self._lock = threading.Lock()
        self._closed = False
        self._begun: Begun[list[CommitInfo]] | None = None
        self._waiting: list[CommitInfo] = []
        self._progress = remote.call(
            lambda opened: Progress.begin(
                opened, vid, after=after, patience_seconds=patience_seconds, on_silence=on_silence
            )
        )

    @property
    def after(self) -> int:
        """The LSN of the last commit that it gave: where to listen from to go on."""
        return self._progress.after

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BlockingCommit:
        if not self._waiting:
            self._waiting = self._ask_more()[::-1]
        if self._closed:
            raise StopIteration
        fields = self._progress.told(f"the answer of {self._remote.url}", self._waiting[-1])
        self._waiting.pop()
        return BlockingCommit(remote=self._remote, **fields)

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration, in whatever thread it waits."""
        with self._lock:
            closed, self._closed = self._closed, True
            begun = self._begun
        if begun is not None:
            begun.abandon()
        if not closed:
            self._done()

    def _ask_more(self) -> list[CommitInfo]:
        with self._lock:
            if self._closed:
                return []
            begun = self._begun = self._remote.begin(self._progress.ask_more, lambda: None)
        try:
            return begun.result()
        except Unavailable:
            # What was abandoned ends so, too.
            if self._closed:
                return []
            raise
        except BaseException:
            begun.abandon()
            raise
        finally:
            self._begun = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingCommit(HeardCommit):
    """With its pages, from this remote."""

    remote: BlockingRemote

    def read(self, pages: PageSet | None = None) -> Iterator[tuple[int, bytes]]:
        """See listening.Commit.read."""
        wanted = self.changed if pages is None else pages
        for some in in_parts(wanted, self.page_size):
            fetched = fetch_pages(self.remote, self.vid, self.lsn, some, self.page_size).pages
            yield from ((page, data) for page, data in fetched.items() if page in some)
