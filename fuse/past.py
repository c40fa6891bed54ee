"""Past: a mount that shows each volume as it was, at an LSN or at a time.

What was then is asked of the remote once, when the mount starts, a few volumes at a time: a volume that didn't exist
isn't there, and neither is one that was never pushed, since the past is the remote's. The names are today's. Nothing
here changes any more: pages come when they are read, and stay in memory up to a limit. Where the volume stands in this
home as it stood then, its pages are read from there, and kept there.

A database that was in WAL mode is shown as one that isn't (File): there is nowhere to put a -shm.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import msgspec

from ..sync.attributes import Attributes
from ..sync.edge import Edge
from ..sync.namespace import Entry, Namespace
from ..sync.remote_snapshot import CACHE_BYTES, RemoteMisses, RemoteSnapshot, View
from ..sync.snapshot import LocalSnapshot, Misses
from ..sync.volume import Volume
from ..volume.as_of import Time, moment_of, snapshot_request
from ..volume.calls import SNAPSHOT
from ..volume.errors import BadInput, Forgotten, NotFound, Unavailable
from ..volume.ids import VolumeId
from ..volume.page_cache import PageCache
from ..volume.pageset import PageSet
from ..volume.wire import SnapshotInfo
from .files.fetch import NEVER_WAIT
from .files.image import Image, ImageServices
from .files.regular import File, Services
from .names.nametree import MakeFile

_THREADS: Final = 16


class Past:
    """One volume at one moment, for the views of its file."""

    def __init__(self, info: SnapshotInfo, misses: Misses, volume: Volume | None) -> None:
        self.info = info
        self.volume = volume
        """None if it isn't in this home."""
        self.misses = misses
        self._cache = PageCache(CACHE_BYTES)

    def view(self) -> tuple[View, Misses]:
        """What to read from, and where what is missing comes from."""
        if self.volume is not None:
            here = LocalSnapshot(self.volume.local, NEVER_WAIT)
            if here.head.sync_remote == self.info.lsn and not here.head.unpushed:
                return here, self.volume.misses
            here.close()
        return RemoteSnapshot(self.info, NEVER_WAIT, cache=self._cache), self.misses


class PastImage(Image):
    """For a mount whose files the kernel refuses to open for writing."""

    __slots__ = ("_misses", "_past")

    def __init__(self, services: ImageServices, past: Past) -> None:
        super().__init__(services, past.info.length)
        self._past = past
        self._misses = past.misses

    @property
    def misses(self) -> Misses:
        return self._misses

    def look(self) -> bool:
        self.view, self._misses = self._past.view()
        return False


def files_of(past: dict[str, Past]) -> MakeFile:
    """How the tree makes its files."""

    def make(ino: int, attributes: Attributes, services: Services, entry: Entry) -> File:
        then = past[entry.name]
        if then.info.time:
            nanoseconds = then.info.time * 1_000_000
            attributes = msgspec.structs.replace(attributes, mtime_ns=nanoseconds, ctime_ns=nanoseconds)
        return File(ino, attributes, services, then.info.vid, PastImage(services, then))

    return make


def look_back(
    edge: Edge, namespace: Namespace, entries: Iterable[Entry], *, lsn: int | None, at: Time | None
) -> dict[str, Past]:
    """By name, the volumes that there were; of an @LABEL those that have it. Blocks. Raises Unavailable, BadInput for
    what is no time.
    """
    # What is no time is so before anything is asked.
    moment_of(at)

    def look(entry: Entry) -> tuple[str, Past | None]:
        try:
            return entry.name, _there(edge, namespace, entry, lsn, at)
        except (NotFound, Forgotten):
            return entry.name, None

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="budwood-past") as pool:
        found = list(pool.map(look, [entry for entry in entries if entry.kind == "file"]))
    return {name: past for name, past in found if past is not None}


def _there(edge: Edge, namespace: Namespace, entry: Entry, lsn: int | None, at: Time | None) -> Past | None:
    if entry.here:
        volume = edge.volume_here(entry.name)
        if not volume.local.record().remote and not edge.remote:
            return None
        then = volume.snapshot_at(lsn=lsn, at=at)
        then.close()
        info = then.info
        if not info.time:
            # This home knows the LSN, but not when it was made. The name has the time of its last change.
            with suppress(Unavailable):
                info = volume.moment(info.lsn)
        past = Past(info, then.misses, volume)
    else:
        url = namespace.url()
        if not url:
            raise BadInput("the past is the remote's, and no remote is known: give one with --remote URL")
        connection, vid = edge.connection(url), VolumeId(entry.vid)
        info = connection.remote.ask(SNAPSHOT, snapshot_request(vid, lsn=lsn, at=at))

        def fetch(pages: PageSet, extra_bytes: int) -> dict[int, bytes]:
            return connection.pages(vid, info.lsn, pages, info.page_size, extra_bytes=extra_bytes)[1]

        past = Past(info, RemoteMisses(fetch), None)
    return past if past.info.lsn else None
