"""Page reader: a volume on its remote, and the pages of its snapshots as the decoders want them.

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
from .remotes import connected, shared_folder
from .snapshot_cache import Cache
from .volume_ref import VolumeRef

if TYPE_CHECKING:
    from ...remote.portal import BlockingRemote

REQUEST_BYTES: Final = 8 * 1024 * 1024
"""Pages of one request."""

DISK_SHARE: Final = 16
"""What an executor keeps on disk of a remote's pages, for what a worker keeps in memory."""

SKELETON_BYTES: Final = 64 * 1024
"""Stored bytes that page 1 may bring along: the interior pages lie beside it (DESIGN §4)."""

_cache: Final = Cache()
_volumes: Final[dict[VolumeRef, RemoteVolume]] = {}
_disks: Final[dict[str, DiskPages]] = {}
"""By remote."""
_lock = threading.Lock()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()
    # Their locks may have been held.
    _volumes.clear()
    _disks.clear()


os.register_at_fork(after_in_child=_in_child)


class RemoteVolume:
    """A volume as this process reads it, for any thread.

    `requests` counts what was asked of the remote, `fetched_bytes` the stored bytes that came.
    """

    def __init__(self, ref: VolumeRef) -> None:
        self.ref = ref
        self.remote: BlockingRemote = connected(ref.remote, ref.token)
        self.requests = 0
        self.fetched_bytes = 0
        self.disk = _disk_of(ref)
        _cache.limit_bytes = max(_cache.limit_bytes, ref.cache_bytes)

    def snapshot(self, *, lsn: int | None = None, at_ms: int | None = None, label: str = "") -> SnapshotInfo:
        """The newest snapshot, the one at `lsn`, the last not later than `at_ms`, or the one that is called `label`.
        Raises NotFound, Forgotten.
        """
        self.requests += 1
        request = SnapshotRequest(self.ref.vid.raw, lsn=lsn, at_ms=at_ms, label=label, confirm=lsn is None)
        return self.remote.ask(SNAPSHOT, request)

    def pages(self, view: SnapshotInfo) -> PageSource:
        return RemotePages(self, view)

    def changed(self, after: int, to: int) -> PageSet:
        """The pages that may differ between two LSNs, those that were cut off or added included. Raises Forgotten."""
        self.requests += 1
        changes = self.remote.ask(PULL_CHANGES, RangeRequest(self.ref.vid.raw, after=after, to=to))
        pages = decode_pages(f"the answer of {self.remote.url}", changes.pages)
        self.link(after, to, pages)
        return pages

    def link(self, after: int, to: int, changed: PageSet) -> None:
        """Learn that between two LSNs no other pages changed: the rest that is held of one is good for the other."""
        remote, vid = self.ref.remote, self.ref.vid.raw
        _cache.link((remote, vid, after), (remote, vid, to), changed)


def _disk_of(ref: VolumeRef) -> DiskPages | None:
    """Pages that came over the network are shared by the workers of an executor: see disk.py."""
    folder = shared_folder()
    if folder is None or not ref.remote.startswith("http"):
        return None
    with _lock:
        disk = _disks.get(ref.remote)
        if disk is None:
            remote = hashlib.sha256(ref.remote.encode()).hexdigest()[:16]
            disk = _disks[ref.remote] = DiskPages(folder / "pages" / remote, 0)
        disk.limit_bytes = max(disk.limit_bytes, DISK_SHARE * ref.cache_bytes)
        return disk


def open_volume(ref: VolumeRef) -> RemoteVolume:
    """The volume, opened once in a process: later tasks of a worker find it open."""
    volume = _volumes.get(ref)
    return volume if volume is not None else _volumes.setdefault(ref, RemoteVolume(ref))


def forget() -> None:
    """Begin as a process that has read nothing yet; connections stay."""
    with _lock:
        for disk in _disks.values():
            disk.close()
        _disks.clear()
    _volumes.clear()
    _cache.clear()


def held_bytes() -> int:
    """What is kept of pages."""
    return _cache.bytes


class RemotePages:
    """One snapshot's pages. Answers the protocol tables.page_source.PageSource."""

    def __init__(self, volume: RemoteVolume, view: SnapshotInfo) -> None:
        self._volume = volume
        self._view = view
        self._vid = VolumeId(view.vid)
        self._key = (volume.ref.remote, view.vid, view.lsn)
        self.page_size = view.page_size
        self.page_count = page_count(view.length, view.page_size)

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
            got = self._read_disk(some)
            rest = some - PageSet(got)
            if rest:
                got |= self._read_remote(rest)
            found.update((page, got[page]) for page in some)
        return found

    def _read_disk(self, wanted: PageSet) -> dict[int, bytes]:
        """What another worker of this executor has fetched."""
        if self._volume.disk is None:
            return {}
        got = self._volume.disk.get(self._view, wanted)
        _cache.put(self._key, got)
        return got

    def _read_remote(self, wanted: PageSet) -> dict[int, bytes]:
        got = self._fetch(wanted, SKELETON_BYTES if 1 in wanted else 0)
        _cache.put(self._key, got)
        if self._volume.disk is not None:
            self._volume.disk.put(self._view, got)
        return got

    def _fetch(self, wanted: PageSet, extra_bytes: int) -> dict[int, bytes]:
        """These pages, and the neighbours that came along."""
        volume, view = self._volume, self._view
        volume.requests += 1
        got = fetch_pages(volume.remote, self._vid, view.lsn, wanted, view.page_size, extra_bytes=extra_bytes)
        volume.fetched_bytes += got.stored_bytes
        return got.pages
