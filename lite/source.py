"""Source: where the lite client's pages come from: one volume of one remote, at the view that it holds.

One view is current; the cache holds pages of that view and of no other. It moves on by `refresh` (one request,
which names the changed pages, so that the others stay) and by a commit of its own. The first view costs one
request, which brings page 1 and its neighbours along: the B-tree's skeleton lies beside it (DESIGN §4), so that a
point query misses once or twice more. Misses that follow one another ask for more each time, up to a limit.

The view never moves back: a remote that has less than was seen of it has lost commits, which is Corrupt.

Everything is bounded: the cache by `memory_bytes`, an answer by what was asked for and `extra_bytes`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ..remote.opening import SKELETON_BYTES, Opening
from ..remote.page_fetch import fetch_pages
from ..remote.portal import BlockingRemote
from ..volume.calls import PULL_CHANGES, SNAPSHOT, RangeRequest, SnapshotRequest
from ..volume.errors import Corrupt, Forgotten, NotFound, Unavailable
from ..volume.frame import Frame
from ..volume.ids import VolumeId
from ..volume.page import zeros
from ..volume.page_cache import PageCache
from ..volume.pageset import PageSet, decode_pages, page_count, span
from ..volume.wire import SnapshotInfo
from .frame_cache import FrameCache

if TYPE_CHECKING:
    from ..sqlite.key_order import KeyOrder

SCAN_BYTES: Final = 64 * 1024
MOST_BYTES: Final = 1024 * 1024
_SEEN: Final = 64
_INTERIOR: Final = (2, 5)
"""By their first byte: btree.py, which takes too long to be imported for a point query."""


class _Answer(NamedTuple):
    view: SnapshotInfo
    page: bytes


class Source:
    """For one thread at a time. `requests` counts the requests to the remote."""

    def __init__(
        self,
        remote: BlockingRemote,
        vid: VolumeId,
        *,
        lsn: int | None,
        memory_bytes: int,
        opening: Opening | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.remote = remote
        self.vid = vid
        self.memory_bytes = memory_bytes
        self.requests = 0
        self._now = now
        self._cache = PageCache(memory_bytes - memory_bytes // 4)
        self._frames = FrameCache(memory_bytes // 4)
        self._looked_at_seconds = now()
        self._next = 0
        self._order: KeyOrder | None = None
        self._lone = 0
        """Misses that did not follow one another."""
        self._seen = deque[int](maxlen=_SEEN)
        """Of the pages that were read last those that lie above others in a B-tree, newest last."""
        self._held = False
        """Whether there is a view by now."""
        self._extra_bytes = 0
        self.view: SnapshotInfo = (
            self._read(lsn or 0, 1, 0, SKELETON_BYTES, keep=True).view if opening is None else self._take(opening)
        )
        self._held = True

    @property
    def age_seconds(self) -> float:
        """How long ago it was last known that no newer view stood."""
        return self._now() - self._looked_at_seconds

    @property
    def held_bytes(self) -> int:
        return self._cache.held + self._frames.bytes

    def page(self, view: SnapshotInfo, page: int) -> bytes:
        """One page of a view. Raises Corrupt, Unavailable, Forgotten."""
        current = view is self.view
        if current:
            held = self._cache.get(page) or self.held(page)
            if held is not None:
                if held[0] in _INTERIOR:
                    self._seen.append(page)
                return held
        if page > page_count(view.length, view.page_size):
            return zeros(view.page_size)
        extra_bytes, wanted = 0, PageSet([page])
        if current and page == self._next:
            extra_bytes = min(max(SCAN_BYTES, 2 * self._extra_bytes), MOST_BYTES, self._frames.limit_bytes)
        elif current:
            wanted = self._in_key_order(page)
        self._extra_bytes = extra_bytes
        found = self._read(view.lsn, page, view.page_size, extra_bytes, keep=current, wanted=wanted).page
        if current and found[0] in _INTERIOR:
            self._seen.append(page)
        return found

    def held(self, page: int) -> bytes | None:
        """A page of the current view, if it is held."""
        held = self._cache.get(page)
        if held is None and (unpacked := self._frames.take(page, self.view.page_size, self.view.encryption)):
            self._cache.update(unpacked)
            return unpacked[page]
        return held

    def _in_key_order(self, page: int) -> PageSet:
        self._lone += 1
        if self._lone == 1:
            # A point query ends here.
            return PageSet([page])
        if self._order is None:
            # Imported here: it takes as long as a query.
            from ..sqlite.key_order import MOST_BYTES as ORDER_BYTES
            from ..sqlite.key_order import KeyOrder

            most_bytes = min(ORDER_BYTES, self._frames.limit_bytes)
            self._order = KeyOrder(self.view.page_size, most_bytes)
        return self._order.ask(self, page, reversed(self._seen))

    def missing(self, pages: PageSet) -> PageSet:
        wanted = pages & span(1, page_count(self.view.length, self.view.page_size))
        return PageSet([page for page in wanted if page not in self._frames and self._cache.get(page) is None])

    def forget(self) -> None:
        """Hold nothing."""
        self._cache.clear()
        self._frames.clear()

    def refresh(self) -> bool:
        """Look at the head and make it the current view. Whether it had moved."""
        before = self.view
        self.requests += 1
        try:
            changes = self.remote.ask(PULL_CHANGES, RangeRequest(self.vid.raw, after=before.lsn))
            view, changed = changes.snapshot, decode_pages(f"the answer of {self.remote.url}", changes.pages)
            self._check_same(before, view.time if view.lsn == before.lsn else changes.after_time)
        except Forgotten:
            # What changed since can't be told any more.
            self.requests += 1
            view, changed = self.remote.ask(SNAPSHOT, SnapshotRequest(self.vid.raw)), None
        except NotFound:
            self.check_seen(before.lsn)
            raise
        if view.lsn < before.lsn:
            self.check_seen(before.lsn)
            raise Unavailable(
                f"{self.remote.url} answers with LSN {view.lsn} of volume {self.vid}, and {before.lsn} was seen "
                "before: it lags behind; try again"
            )
        self._looked_at_seconds = self._now()
        if view.lsn == before.lsn:
            return False
        self._move(view, changed)
        return True

    def check_seen(self, seen: int) -> None:
        """Raises Corrupt if the remote, by what its log says now, has less than LSN `seen`: commits that it
        acknowledged are gone, and it would give their LSNs to others.
        """
        self.requests += 1
        newest = self.remote.ask(SNAPSHOT, SnapshotRequest(self.vid.raw, confirm=True)).lsn
        if newest < seen:
            raise Corrupt(
                f"the log of volume {self.vid} at {self.remote.url}",
                f"it ends at LSN {newest}, and LSN {seen} was seen before: bring back what it lost",
            )

    def _check_same(self, view: SnapshotInfo, time_ms: int) -> None:
        """Raises Corrupt if the commit at the view's LSN has another time than the one that was seen there."""
        if view.lsn and view.time and time_ms and time_ms != view.time:
            raise Corrupt(
                f"the log of volume {self.vid} at {self.remote.url}",
                f"its LSN {view.lsn} is another commit than the one that was seen before: bring back what it lost",
            )

    def committed(self, view: SnapshotInfo, pages: dict[int, bytes], floor_bytes: int) -> None:
        """The commit that made `view` wrote `pages`, after a length of no more than `floor_bytes`."""
        self._looked_at_seconds = self._now()
        self._cut(floor_bytes, view.page_size)
        self._move(view, PageSet(pages))
        self._cache.update(pages)

    def _move(self, view: SnapshotInfo, changed: PageSet | None) -> None:
        if changed is None:
            self.forget()
        else:
            self._cache.forget(changed)
            self._frames.drop(changed)
        self._cut(view.length, view.page_size)
        self.view, self._order = view, None

    def _cut(self, length: int, page_size: int) -> None:
        last = page_count(length, page_size)
        self._cache.cut(last)
        self._frames.cut(last)

    def _take(self, opening: Opening) -> SnapshotInfo:
        """The view that a volume was opened with, by one request, and the pages that came with it."""
        self.requests += 1
        came = PageSet(opening.page1)
        for frame in opening.frames:
            came |= frame.valid
            self._frames.put(opening.where, frame)
        self._cache.update(opening.page1)
        self._go_on(1, came)
        return opening.view

    def _go_on(self, page: int, came: PageSet) -> None:
        """Whoever reads on misses after `page` and what came with it."""
        self._next = page + 1
        while self._next in came:
            self._next += 1

    def _read(
        self,
        lsn: int,
        page: int,
        page_size: int,
        extra_bytes: int,
        *,
        keep: bool,
        wanted: PageSet | None = None,
    ) -> _Answer:
        """A page, one of those `wanted`, and, if `keep` says so, the neighbours that come along. `lsn` 0 is the newest,
        `page_size` 0 any."""
        self.requests += 1
        came = PageSet()

        def aside(frame: Frame) -> None:
            nonlocal came
            came |= frame.valid
            if keep:
                self._frames.put(f"the answer of {self.remote.url}", frame)

        asked = wanted or PageSet([page])
        try:
            view, found, _ = fetch_pages(
                self.remote, self.vid, lsn, asked, page_size, extra_bytes=extra_bytes, aside=aside
            )
        except NotFound:
            if self._held:
                self.check_seen(lsn)
            raise
        if keep:
            self._cache.update(found)
            self._go_on(page, came | PageSet(found))
        return _Answer(view, found[page])
