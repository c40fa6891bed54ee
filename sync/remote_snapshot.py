"""Remote snapshot: a volume as it was at one remote LSN, for reading.

Pages come from the remote and are kept in memory, to a limit. While the volume's sync point here is that very LSN and
nothing is unpushed, the local view is the same one: then it is read, which needs no network for what is held, and keeps
what it fetches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ..sqlite.btree import INTERIOR
from ..sqlite.key_order import SEEN, KeyOrder
from ..volume.errors import BadInput, Corrupt, ReadOnly
from ..volume.page import DEFAULT_PAGE_SIZE, zeros
from ..volume.page_cache import PageCache
from ..volume.pageset import PageSet, page_count, span
from ..volume.protocols import Pages, Row, Snapshot, Writer
from ..volume.wire import SnapshotInfo
from .prefetch import SKELETON_BYTES, MissRun
from .snapshot import HeadView, LocalSnapshot, Misses
from .tables import NO_HEAD

CACHE_BYTES: Final = 64 * 1024 * 1024

Fetch = Callable[[PageSet, int], dict[int, bytes]]
"""The pages asked for at one LSN, with room for so many stored bytes more."""


class RemoteMisses:
    """Answers `Misses` for one LSN, from the remote. For any thread."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def fetch(self, head: object, page: int, missing: PageSet) -> dict[int, bytes]:
        pages = self._fetch(missing | PageSet([page]), SKELETON_BYTES if page == 1 else 0)
        if page not in pages:
            raise Corrupt("the remote's answer", f"page {page} was asked for and is not in it")
        return pages

    def ahead(self, head: object, missing: PageSet) -> None:
        """Nothing is asked ahead: what came would be kept in memory beside the pages."""


class RemoteSnapshot(HeadView):
    """Answers the protocol `Snapshot`. `view` is a local view of the same content, or None; `cache` may be shared with
    other snapshots of this LSN. Not for two threads at once.
    """

    def __init__(
        self, info: SnapshotInfo, misses: Misses, view: LocalSnapshot | None = None, cache: PageCache | None = None
    ) -> None:
        self.info = info
        self.misses = misses
        self.head = NO_HEAD._replace(
            lsn=info.lsn, length=info.length, sync_remote=info.lsn, floor=info.length, page_size=info.page_size
        )
        self._view = view
        self.ahead = {} if view is None else view.ahead
        self._cache = PageCache(CACHE_BYTES) if cache is None else cache
        self._run = MissRun()
        self._order = KeyOrder(info.page_size or DEFAULT_PAGE_SIZE)
        self._seen = deque[int](maxlen=SEEN)
        """Of the pages that were read last those that lie above others in a B-tree, newest last."""
        self._count = page_count(info.length, info.page_size) if info.page_size else 0

    @property
    def local(self) -> LocalSnapshot | None:
        """The local view of the same content, if this reads that one."""
        return self._view

    def read(self, page: int) -> bytes:
        if self._view is not None:
            return self._view.read(page)
        if page < 1 or not self.info.page_size:
            raise BadInput(
                f"there is no page {page}" if page < 1 else "the volume is empty at this LSN: it has no page"
            )
        if page > self._count:
            return zeros(self.info.page_size)
        data = self._cache.get(page)
        if data is None:
            window = self._run.ask(page, self.info.page_size)
            last = min(self._count, page + window - 1)
            wanted = span(page, last) if window > 1 else self._order.ask(self, page, reversed(self._seen))
            pages = self.misses.fetch(self.head, page, wanted)
            self._run.got(page + window, pages)
            # The page asked for goes in last: whatever came along, it isn't the one that is pushed out.
            data = pages.pop(page)
            self._cache.update(pages)
            self._cache.update({page: data})
        if data[0] in INTERIOR:
            self._seen.append(page)
        return data

    def held(self, page: int) -> bytes | None:
        return self._cache.get(page)

    def missing(self, pages: PageSet) -> PageSet:
        """Those of `pages` that a read would fetch."""
        return PageSet([page for page in pages & span(1, self._count) if self._cache.get(page) is None])

    def save(self, pages: dict[int, bytes]) -> bool:
        """Nothing of another LSN than the sync point's is kept on the disk."""
        return False

    def adopt(self, pages: dict[int, bytes], saved: bool) -> None:
        """Keep what was fetched elsewhere."""
        self._cache.update(pages)

    def release(self) -> None:
        if self._view is not None:
            self._view.release()

    def renew(self) -> bool:
        """Always true: a view of the past never changes."""
        if self._view is not None and not self._view.renew():
            self._view.close()
            self._view = None
        return True

    def close(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.close()


View = LocalSnapshot | RemoteSnapshot


class PagesAtLsn:
    """Answers the protocol `Pages` for one LSN of a volume."""

    def __init__(self, volume: Pages, take: Callable[[], RemoteSnapshot]) -> None:
        self._volume = volume
        self.name = volume.name
        self.read_only = True
        self._take = take
        self._first: RemoteSnapshot | None = take()
        self._info = self._first.info
        self.page_size = self._info.page_size or None

    def snapshot(self) -> RemoteSnapshot:
        first, self._first = self._first, None
        return first or self._take()

    def writer(self, snapshot: object, *, page_size: int | None = None) -> Writer:
        raise ReadOnly(
            f"volume {self.name!r} is open at LSN {self._info.lsn}, which can't be written: open it without one"
        )

    def status(self) -> Row:
        return self._volume.status()

    def view_row(self, view: Snapshot | None) -> Row:
        return {"name": self.name, "lsn": str(self._info.lsn), "length": self._info.length, "read_only": True}

    def log_rows(self, argument: str | None) -> list[Row]:
        return self._volume.log_rows(argument)

    def bind_rows(self, argument: str | None) -> list[Row]:
        raise self._refusal("bind")

    def push_row(self, as_name: str | None) -> Row:
        raise self._refusal("push")

    def pull_row(self) -> Row:
        raise self._refusal("pull")

    def fetch_row(self) -> Row:
        raise self._refusal("fetch")

    def _refusal(self, verb: str) -> ReadOnly:
        return ReadOnly(f"volume {self.name!r} is open at LSN {self._info.lsn}: {verb} it through a view without one")

    def close(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            first.close()
