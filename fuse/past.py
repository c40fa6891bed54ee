"""Past: a mount that shows each volume as it was, at an LSN or at a time.

What was then is asked of the remote once, when the mount starts, a few volumes at a time: a volume that didn't exist
isn't there, and neither is one that was never pushed, since the past is the remote's. At a time the names are those of
that time, as far back as the remote remembers them, whatever was removed, renamed or replaced since; at an LSN, of
which each volume has its own, they are today's. Nothing here changes any more: pages come when they are read, and stay
in memory up to a limit. Where the volume stands in this home as it stood then, its pages are read from there, and kept
there.

A database that was in WAL mode is shown as one that isn't (File): there is nowhere to put a -shm.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from ..sync.attributes import Attributes
from ..sync.connection import Connection
from ..sync.edge import Edge
from ..sync.namespace import Entry, Namespace
from ..sync.remote_snapshot import CACHE_BYTES, RemoteMisses, RemoteSnapshot, View
from ..sync.snapshot import LocalSnapshot, Misses
from ..sync.volume import Volume
from ..volume.as_of import Time, moment_of, snapshot_request
from ..volume.calls import SNAPSHOT
from ..volume.errors import BadInput, Forbidden, Forgotten, NotFound, Unavailable
from ..volume.ids import VolumeId
from ..volume.page_cache import PageCache
from ..volume.pageset import PageSet
from ..volume.thread_pool import ThreadPool
from ..volume.wire import SnapshotInfo
from .files.fetch import NEVER_WAIT
from .files.image import Image, ImageServices
from .files.regular import File, Services
from .names.nametree import MakeFile

_THREADS: Final = 16


class Past:
    """One volume at one moment, for the views of its file."""

    def __init__(self, info: SnapshotInfo, connection: Connection, volume: Volume | None) -> None:
        self.info = info
        self._connection = connection
        self._volume = volume
        """None if it isn't in this home, or isn't any more."""
        self._cache = PageCache(CACHE_BYTES)

    def view(self) -> tuple[View, Misses]:
        """What to read from, and where what is missing comes from."""
        return self._here() or (
            RemoteSnapshot(self.info, NEVER_WAIT, cache=self._cache),
            RemoteMisses(self._fetch),
        )

    def _here(self) -> tuple[View, Misses] | None:
        """Where the volume is in this home, and stands as it stood then."""
        if self._volume is None:
            return None
        try:
            here = LocalSnapshot(self._volume.local, NEVER_WAIT)
        except NotFound:
            self._volume = None
            return None
        if here.head.sync_remote == self.info.lsn and not here.head.unpushed:
            return here, self._volume.misses
        here.close()
        return None

    def _fetch(self, pages: PageSet, extra_bytes: int) -> dict[int, bytes]:
        info = self.info
        told = self._connection.pages(VolumeId(info.vid), info.lsn, pages, info.page_size, extra_bytes=extra_bytes)
        return told[1]


class PastImage(Image):
    """For a mount whose files the kernel refuses to open for writing."""

    __slots__ = ("_misses", "_past")

    def __init__(self, services: ImageServices, past: Past) -> None:
        super().__init__(services, past.info.length)
        self._past = past
        self._misses: Misses = NEVER_WAIT

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


class LookedBack(NamedTuple):
    entries: list[Entry]
    files: dict[str, Past]
    """By name."""
    notice: str
    """What is shown otherwise than was asked for; "" for nothing."""


def look_back(
    edge: Edge, namespace: Namespace, entries: Sequence[Entry], *, lsn: int | None, at: Time | None
) -> LookedBack:
    """What there was of `entries`, today's, or of the names at that time; of an @LABEL the volumes that have it.
    Blocks. Raises Unavailable, BadInput for what is no time.
    """
    # What is no time is so before anything is asked.
    moment, _ = moment_of(at)
    notice = ""
    if moment is not None and namespace.url():
        entries, told = namespace.entries_at(moment)
        notice = _notice(moment, told)

    def look(entry: Entry) -> tuple[str, Past | None]:
        try:
            return entry.name, _there(edge, namespace, entry, lsn, at)
        except (NotFound, Forgotten, Forbidden):
            # Who may read by some names alone may not by one that leads nowhere now.
            return entry.name, None

    with ThreadPool(_THREADS, thread_name_prefix="budwood-past") as pool:
        found = dict(pool.map(look, [entry for entry in entries if entry.kind == "file"]))
    files = {name: past for name, past in found.items() if past is not None}
    return LookedBack([entry for entry in entries if entry.kind != "file" or entry.name in files], files, notice)


def _notice(asked: int, told: int) -> str:
    if not told:
        return "the names are today's: the remote's node is of an older release, and remembers no others"
    if told <= asked:
        return ""
    since = datetime.fromtimestamp(told / 1000).isoformat(" ", "seconds")
    return f"the names are those of {since}: what they were before isn't remembered"


def _there(edge: Edge, namespace: Namespace, entry: Entry, lsn: int | None, at: Time | None) -> Past | None:
    volume = edge.volume_of(entry.vid)
    if volume is not None:
        url = volume.local.record().remote
        if not url and not edge.remote:
            return None
        then = volume.snapshot_at(lsn=lsn, at=at)
        then.close()
        info = then.info
        if not info.time:
            # This home knows the LSN, but not when it was made. The name has the time of its last change.
            with suppress(Unavailable):
                info = volume.moment(info.lsn)
        connection = edge.connection(url)
    else:
        if not namespace.url():
            raise BadInput("the past is the remote's, and no remote is known: give one with --remote URL")
        connection = edge.connection(namespace.url())
        info = connection.remote.ask(SNAPSHOT, snapshot_request(VolumeId(entry.vid), lsn=lsn, at=at))
    # What had a name then, and no commit yet, was an empty file.
    return Past(info, connection, volume) if info.lsn or at is not None else None
