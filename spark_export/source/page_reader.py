"""Reach: this process's way to a volume, and its pages as the decoders want them.

What is read is asked for in requests of REQUEST_BYTES; a remote answers with whole frames, which are checked against
their checksums and unpacked once, and their other pages are kept, since whoever reads leaves reads their neighbours
next. A snapshot's pages never change, so nothing that is kept is ever stale.
"""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING, Final

from ...remote.page_fetch import fetch_pages
from ...tables.page_source import PageSource
from ...volume.calls import PULL_CHANGES, SNAPSHOT, RangeRequest, SnapshotRequest
from ...volume.ids import VolumeId
from ...volume.page import zeros
from ...volume.pageset import PageSet, decode_pages, page_count
from ...volume.wire import SnapshotInfo
from .disk import DiskPages
from .place import Place
from .remotes import connected, shared_folder
from .snapshot_cache import Cache

if TYPE_CHECKING:
    from ...remote.portal import BlockingRemote

__all__ = ["REQUEST_BYTES", "Reached", "RemotePages", "forget", "held_bytes", "reach"]

REQUEST_BYTES: Final = 8 * 1024 * 1024
"""Pages of one request."""

DISK_SHARE: Final = 16
"""What an executor keeps on disk of a remote's pages, for what a worker keeps in memory."""

SKELETON_BYTES: Final = 64 * 1024
"""Stored bytes that page 1 may bring along: the interior pages lie beside it (DESIGN §4)."""

_cache: Final = Cache()
_reached: Final[dict[Place, Reached]] = {}
_disks: Final[dict[str, DiskPages]] = {}
"""By remote."""
_lock = threading.Lock()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()
    # Their locks may have been held.
    _reached.clear()
    _disks.clear()


os.register_at_fork(after_in_child=_in_child)


class Reached:
    """For any thread. `requests` counts what was asked of the remote, `fetched_bytes` the stored bytes that came."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.remote: BlockingRemote = connected(place.remote, place.token)
        self.requests = 0
        self.fetched_bytes = 0
        self.disk = _disk_of(place)
        _cache.limit_bytes = max(_cache.limit_bytes, place.cache_bytes)

    def snapshot(self, *, lsn: int | None = None, at_ms: int | None = None) -> SnapshotInfo:
        """The newest snapshot, the one at `lsn`, or the last not later than `at_ms`. Raises NotFound, Forgotten."""
        self.requests += 1
        return self.remote.ask(SNAPSHOT, SnapshotRequest(self.place.vid.raw, lsn=lsn, at_ms=at_ms, confirm=lsn is None))

    def pages(self, view: SnapshotInfo) -> PageSource:
        return RemotePages(self, view)

    def changed(self, after: int, to: int) -> PageSet:
        """The pages that may differ between two LSNs, those that were cut off or added included. Raises Forgotten."""
        self.requests += 1
        changes = self.remote.ask(PULL_CHANGES, RangeRequest(self.place.vid.raw, after=after, to=to))
        pages = decode_pages(f"the answer of {self.remote.url}", changes.pages)
        self.link(after, to, pages)
        return pages

    def link(self, after: int, to: int, changed: PageSet) -> None:
        """Learn that between two LSNs no other pages changed: the rest that is held of one is good for the other."""
        remote, vid = self.place.remote, self.place.vid.raw
        _cache.link((remote, vid, after), (remote, vid, to), changed)


def _disk_of(place: Place) -> DiskPages | None:
    """Pages that came over the network are shared by the workers of an executor: see disk.py."""
    folder = shared_folder()
    if folder is None or not place.remote.startswith("http"):
        return None
    with _lock:
        disk = _disks.get(place.remote)
        if disk is None:
            remote = hashlib.sha256(place.remote.encode()).hexdigest()[:16]
            disk = _disks[place.remote] = DiskPages(folder / "pages" / remote, 0)
        disk.limit_bytes = max(disk.limit_bytes, DISK_SHARE * place.cache_bytes)
        return disk


def reach(place: Place) -> Reached:
    """This process's way to a place: later tasks of a worker find it open."""
    reached = _reached.get(place)
    return reached if reached is not None else _reached.setdefault(place, Reached(place))


def forget() -> None:
    """Begin as a process that has read nothing yet; connections stay."""
    with _lock:
        for disk in _disks.values():
            disk.close()
        _disks.clear()
    _reached.clear()
    _cache.clear()


def held_bytes() -> int:
    """What is kept of pages."""
    return _cache.bytes


class RemotePages:
    """One snapshot's pages. Answers the protocol tables.pages.PageSource."""

    def __init__(self, reached: Reached, view: SnapshotInfo) -> None:
        self._reached = reached
        self._view = view
        self._vid = VolumeId(view.vid)
        self._key = (reached.place.remote, view.vid, view.lsn)
        self.page_size = view.page_size
        self.page_count = page_count(view.length, view.page_size)
        self.lsn = view.lsn

    def read(self, pages: PageSet) -> dict[int, bytes]:
        """Raises Corrupt, Unavailable, Forgotten."""
        found = _cache.get(self._key, pages)
        missing = pages - PageSet(found)
        if missing and missing.max() > self.page_count:
            nothing = zeros(self.page_size)
            found.update((page, nothing) for page in missing if page > self.page_count)
            missing.remove_range(self.page_count + 1, missing.max() + 1)
        most = max(1, REQUEST_BYTES // self.page_size)
        for start in range(0, len(missing), most):
            some = PageSet(missing[start : start + most])
            got = self._near(some)
            rest = some - PageSet(got)
            if rest:
                got |= self._far(rest)
            found.update((page, got[page]) for page in some)
        return found

    def _near(self, wanted: PageSet) -> dict[int, bytes]:
        """What another worker of this executor has fetched."""
        if self._reached.disk is None:
            return {}
        got = self._reached.disk.get(self._view, wanted)
        _cache.put(self._key, got)
        return got

    def _far(self, wanted: PageSet) -> dict[int, bytes]:
        got = self._fetch(wanted, SKELETON_BYTES if 1 in wanted else 0)
        _cache.put(self._key, got)
        if self._reached.disk is not None:
            self._reached.disk.put(self._view, got)
        return got

    def _fetch(self, wanted: PageSet, extra_bytes: int) -> dict[int, bytes]:
        """These pages, and the neighbours that came along."""
        reached, view = self._reached, self._view
        reached.requests += 1
        got = fetch_pages(reached.remote, self._vid, view.lsn, wanted, view.page_size, extra_bytes=extra_bytes)
        reached.fetched_bytes += got.stored_bytes
        return got.pages
