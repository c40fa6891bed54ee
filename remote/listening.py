"""Listening: every commit of a volume after an LSN, once and in order, with its pages on request (S3.16, S3.17).

    remote = await open_remote("https://node")                  # or a Node in this process
    async for commit in await listen(remote, vid, after=7):
        async for page, data in commit.read(): …                # what it changed, as it was at that LSN

A snapshot at LSN s, and what `listen` tells after s, are the volume at every later LSN: of each commit, what lay beyond
`floor` is gone, then `changed` was written, then the length is `length`.

Between two commits nothing is held but the LSN that was told last, so that whatever happens on the way, a connection
that breaks, a node that gives way to another, a log that the volume moves to, it goes on from there. What can't be gone
on from ends it in one error:

    Forgotten    a commit that was still to be told can't be read any more; `.oldest` can
    NotFound     the volume was removed, and all its commits were told; or there never was such a volume, or LSN
    Corrupt      the log gives the LSNs that were told to other commits, or an answer is none
    Unavailable  nobody answered for `patience_seconds`; for ever, if that is None

`blocking_listening.py` is the same for callers without a loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from itertools import islice
from random import SystemRandom
from typing import Final, Self, TypedDict

import anyio

from ..volume.calls import SNAPSHOT, WAIT, Head, SnapshotRequest, WaitRequest
from ..volume.errors import BadInput, Corrupt, NotFound, Unavailable, Unsupported
from ..volume.ids import ClientId, VolumeId
from ..volume.page import zeros
from ..volume.pageset import PageSet, decode_pages
from ..volume.protocols import Remote
from ..volume.wire import CommitInfo, SnapshotInfo
from .page_fetch import unpack_valid

WAIT_SECONDS: Final = 50.0
"""Of one request: less than what a proxy on the way allows, as a rule."""
MOST_COMMITS: Final = 256
"""Held at once."""
READ_BYTES: Final = 8 * 1024 * 1024
"""Of pages, in one request."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0

_chance: Final = SystemRandom()
"""Processes that were forked from one draw each their own."""

OnSilence = Callable[[Unavailable], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardCommit:
    """One commit of the remote's."""

    vid: VolumeId
    lsn: int
    time_ms: int
    """Since 1970, as the node said that made it."""
    length: int
    """In bytes, from then on."""
    floor: int
    """In bytes: whatever older pages held beyond it reads as zeros from then on."""
    changed: PageSet
    """The pages that it wrote."""
    page_size: int
    client: ClientId
    """Whose it is."""
    bindings: bytes
    """What its writer added; opaque."""


class Fields(TypedDict):
    """Of a HeardCommit."""

    vid: VolumeId
    lsn: int
    time_ms: int
    length: int
    floor: int
    changed: PageSet
    page_size: int
    client: ClientId
    bindings: bytes


class Progress:
    """How far a listener has come, and what it has been told of the remote. `ask_more` is one step of it."""

    def __init__(
        self,
        vid: VolumeId,
        newest: SnapshotInfo,
        after: int,
        patience_seconds: float | None,
        on_silence: OnSilence | None,
    ) -> None:
        self.vid = vid
        self.page_size = newest.page_size
        self.after = after
        """The LSN that was told last."""
        self._time = newest.time if after == newest.lsn else 0
        """Of the commit that made it; 0 while it isn't known."""
        self._patience_seconds = patience_seconds
        self._on_silence = on_silence
        self._silent_since = 0.0
        self._pause_seconds = 0.0

    @classmethod
    async def begin(
        cls,
        remote: Remote,
        vid: VolumeId,
        *,
        after: int | None,
        patience_seconds: float | None = None,
        on_silence: OnSilence | None = None,
    ) -> Self:
        """Raises BadInput, NotFound, Unavailable."""
        if after is not None and after < 0:
            raise BadInput(f"{after} is not an LSN to listen after: they count from 1, and 0 is before them")
        newest = await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        if after is not None and after > newest.lsn:
            newest = await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, confirm=True))
            if after > newest.lsn:
                raise NotFound(f"volume {vid} has no LSN {after} to listen from; its newest is {newest.lsn}")
        return cls(vid, newest, newest.lsn if after is None else after, patience_seconds, on_silence)

    async def ask_more(self, remote: Remote) -> list[CommitInfo]:
        """The next commits, once there are any. They are told with `told`, one after the other."""
        while True:
            request = WaitRequest(self.vid.raw, after=self.after, timeout_seconds=WAIT_SECONDS, commits=MOST_COMMITS)
            try:
                head = await remote.ask(WAIT, request)
                self._check(remote.url, head)
                if head.lsn < self.after:
                    await self._check_seen(remote)
            except Unavailable as error:
                await anyio.sleep(self._pause(error))
                continue
            self._silent_since = self._pause_seconds = 0.0
            if head.commits:
                return list(head.commits)

    def told(self, source: str, info: CommitInfo) -> Fields:
        """Count one as told; its fields. Raises Corrupt, with nothing counted."""
        try:
            changed, client = decode_pages(source, info.pages), ClientId(info.client)
        except BadInput as error:
            raise Corrupt(source, f"LSN {info.lsn} of volume {self.vid} is nobody's: {error}") from error
        assert info.lsn == self.after + 1
        self.after, self._time = info.lsn, info.time
        return {
            "vid": self.vid,
            "lsn": info.lsn,
            "time_ms": info.time,
            "length": info.length,
            "floor": info.floor,
            "changed": changed,
            "page_size": self.page_size,
            "client": client,
            "bindings": info.bindings,
        }

    def _check(self, url: str, head: Head) -> None:
        """Raises Corrupt unless the answer goes on from what was told."""
        source = f"the answer of {url}"
        if self._time and head.after_time and head.after_time != self._time:
            raise self._lost(url, f"its LSN {self.after} is another commit than the one that was told before")
        self._time = self._time or head.after_time
        lsn, time = self.after, self._time
        for commit in head.commits:
            if (commit.lsn, commit.base) != (lsn + 1, lsn) or commit.time <= time:
                raise Corrupt(source, f"LSN {commit.lsn} of volume {self.vid} does not follow LSN {lsn}")
            lsn, time = commit.lsn, commit.time
        if lsn == self.after < head.lsn:
            raise Unsupported(f"the node at {url} tells no commits to whoever waits for them: it is an older one")

    async def _check_seen(self, remote: Remote) -> None:
        """Whoever answered lags behind, or the log has lost what was told. Raises Corrupt, Unavailable."""
        newest = (await remote.ask(SNAPSHOT, SnapshotRequest(self.vid.raw, confirm=True))).lsn
        if newest < self.after:
            raise self._lost(remote.url, f"it ends at LSN {newest}, and LSN {self.after} was told before")

    def _lost(self, url: str, what: str) -> Corrupt:
        return Corrupt(f"the log of volume {self.vid} at {url}", f"{what}: bring back what it lost")

    def _pause(self, error: Unavailable) -> float:
        """Seconds until it is worth asking again. Raises the error if nobody has answered for too long."""
        now = anyio.current_time()
        if not self._silent_since:
            self._silent_since = now
            if self._on_silence is not None:
                self._on_silence(error)
        if self._patience_seconds is not None and now - self._silent_since >= self._patience_seconds:
            raise error
        self._pause_seconds = min(max(2 * self._pause_seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        # Those who were told at the same moment that their node is gone shall not all come back at once.
        return self._pause_seconds * (0.5 + _chance.random())


class Listener:
    """An async iterator over commits. Hold it as long as you like; nothing needs to be closed, and who cancels it while
    it waits may go on with it. `after` is the LSN of the last commit that it gave."""

    def __init__(self, remote: Remote, progress: Progress) -> None:
        self._remote = remote
        self._progress = progress
        self._waiting: list[CommitInfo] = []

    @property
    def after(self) -> int:
        return self._progress.after

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Commit:
        if not self._waiting:
            self._waiting = (await self._progress.ask_more(self._remote))[::-1]
        fields = self._progress.told(f"the answer of {self._remote.url}", self._waiting[-1])
        self._waiting.pop()
        return Commit(remote=self._remote, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(HeardCommit):
    """With its pages, from this remote."""

    remote: Remote

    async def read(self, pages: PageSet | None = None) -> AsyncGenerator[tuple[int, bytes], None]:
        """Those pages as they were at this LSN, or all that it changed: (index, bytes), in no order, a few MiB at a
        time. Raises Forgotten once this LSN can't be read any more; Corrupt, Unavailable."""
        for some in in_parts(self.changed if pages is None else pages, self.page_size):
            for page, data in (await _fetch(self.remote, self, some)).items():
                yield page, data


async def listen(
    remote: Remote,
    vid: VolumeId,
    *,
    after: int | None = None,
    patience_seconds: float | None = None,
    on_silence: OnSilence | None = None,
) -> Listener:
    """Every commit after that LSN, or from now on. `on_silence` is told when the remote stops to answer, once each
    time. Raises NotFound, Unavailable at once; the module says what the iteration ends in."""
    progress = await Progress.begin(remote, vid, after=after, patience_seconds=patience_seconds, on_silence=on_silence)
    return Listener(remote, progress)


def in_parts(pages: PageSet, page_size: int) -> Generator[PageSet, None, None]:
    """The pages in sets of at most READ_BYTES."""
    most = max(1, READ_BYTES // page_size)
    ordered = iter(pages)
    while some := PageSet(islice(ordered, most)):
        yield some


async def _fetch(remote: Remote, commit: HeardCommit, pages: PageSet) -> dict[int, bytes]:
    where = f"the answer of {remote.url}"
    found: dict[int, bytes] = {}
    async with remote.read_pages(commit.vid, commit.lsn, pages) as answer:
        view = answer.snapshot
        if (view.vid, view.lsn, view.page_size) != (commit.vid.raw, commit.lsn, commit.page_size):
            raise Corrupt(where, f"it speaks of another view than LSN {commit.lsn} of volume {commit.vid}")
        found.update(dict.fromkeys(answer.zeros & pages, zeros(view.page_size)))
        async for frame in answer.frames():
            unpacked = unpack_valid(where, frame, view.page_size, view.encryption)
            found.update({page: data for page, data in unpacked.items() if page in pages})
    lacking = pages - PageSet(found)
    if lacking:
        raise Corrupt(where, f"page {lacking.min()} of volume {commit.vid} was asked for and is not in it")
    return found
