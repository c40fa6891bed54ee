"""Wal tail: the commits in a database's -wal become commits of its volume.

SQLite appends frames to -wal; a transaction stands once every frame up to one with a commit mark holds its checksum
(sqlite/wal.py). Such a commit is in the sidecar, which is flushed when SQLite says so: with synchronous=FULL it is
durable there before SQLite tells its program. It becomes a local commit, with an LSN of its own, a moment later in a
thread, several at once when they come quickly (`commit_all`), so that a commit costs one flush and not three.

What holds:
  - Whatever was committed and isn't in the local store yet is in the sidecar. Before frames are overwritten, cut off or
    unlinked, and before a checkpoint is answered, everything is in the local store and flushed (`drain`).
  - The local store remembers, in the same LMDB transaction as the commits, up to where the sidecar was taken over
    (watermark.py), so that after a crash the next mount goes on exactly there (recovery.py).
  - A checkpoint writes pages that were committed already: it makes no LSN. See File for what the database's own file
    shows meanwhile. A checkpoint is known by its bytes (`holds`): at their place in a page of a committed frame.

**Parted.** When a program has written to the file itself what no frame holds (a backup is restored beside an idle
service), the volume becomes what the file's own bytes are, as far as it flushed or closed them, and file and -wal are
parted: two files, as on any disk. What SQLite reads in the -wal comes to the file by its next checkpoint, and to the
volume with that. It ends when the -wal starts over, is cut to nothing or removed. Until then the -wal outlives closing,
unmounting and a crash, and stands beside its file again. Only when the volume has moved meanwhile it is set aside.

Crash windows: commits in the sidecar, not taken over · taken over, sidecar still there. Both end in recovery.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from ...sqlite.wal import (
    FRAME_HEADER_SIZE,
    WAL_HEADER_SIZE,
    WalCommit,
    WalHeader,
    WalReader,
    parse_wal_header,
)
from ...sync.overlay import Overlay
from ...sync.tables import Head
from ...sync.volume import Volume
from ...volume import faults
from ...volume.errors import BudwoodError, Busy, Corrupt, Unavailable, Unsupported
from ...volume.pageset import PageSet
from ..requests.background import Background
from ..requests.guarded import log
from ..requests.in_thread import in_thread
from .localfile import LocalFile
from .wal_commit_count import CommitCount, counts_beside, write_count
from .wal_ingest import ingest
from .wal_undo import Beneath, is_beneath, own_bytes, undo
from .watermark import Moment, Watermark, Write, forget, note

_RETRY_SECONDS: Final = 0.2
_GATHER_SECONDS: Final = 0.025
"""How long commits are gathered before they are taken over, unless someone waits for them: each LMDB transaction is a
flush of its own, which would hold up those of the -wal.
"""

QUEUED = faults.point("mount: commits in the -wal, not in the local store")
TAKEN = faults.point("mount: commits of the -wal in the local store, the -wal still there")


class Wal:
    """The -wal of one database while it is open. For the mount's event loop; `_take` alone runs in a thread."""

    def __init__(self, volume: Volume, file: LocalFile, background: Background) -> None:
        self.file = file
        self.pages = PageSet()
        """Every page that was committed since `reset`, as the thread goes."""
        self.error: BudwoodError | None = None
        """Why commits can't be taken over at present; it is tried again all the time."""
        self._volume = volume
        self._local = volume.local
        assert file.path is not None, "a -wal survives a crash"
        self._folder = file.path.parent
        self._background = background
        self._is_over = False
        self._marked = False
        """Whether the local store has a mark of it."""
        self.last: WalCommit | None = None
        """The commit that was taken over last, since `reset`."""
        self._frame_bytes = 0
        self._end = WAL_HEADER_SIZE
        """Where the last frame with a commit mark ends."""
        self._commits = 0
        """How many such frames there are since `reset`."""
        self._awaited = 0
        """Where the one ends whose header was written last, if its page is still to come, or may be; 0 for none."""
        self._written = 0
        """How far the log was written since it began or started over: behind that may be frames of its last round."""
        self._news = False
        self._idle: trio.Event | None = None
        """While commits are being taken over."""
        self._hurry = trio.Event()
        """Someone waits for them."""
        self.parted: Moment | None = None
        """Where file and -wal are parted: what the volume is by the file's own bytes."""
        self._reader = WalReader(file.read)
        self._found: list[WalCommit] = []
        """The thread's: found, and not in the local store yet."""
        self._taken = 0
        """How many commits since `reset` are there."""
        self._places: dict[int, list[int]] = {}
        """Of each page, where its committed frames since `reset` have it, as the thread goes."""
        self._counts: set[int] = set()
        """How many pages the database had after each of those commits."""

    @property
    def in_use(self) -> bool:
        """Whether it holds commits, which SQLite reads here and not in the database's file."""
        return max(self._end, self._rewritten) > WAL_HEADER_SIZE

    @property
    def _rewritten(self) -> int:
        """Where the awaited frame ends if its page may be there already; else 0.

        SQLite writes a header, then its page. But when a transaction has written a frame twice, it writes the headers
        of all later frames again at its end, alone.
        """
        return self._awaited if self._awaited <= self._written else 0

    def holds(self, offset: int, data: bytes) -> bool:
        """Whether these bytes of the database's file are those of committed frames: a checkpoint's."""
        size = self._frame_bytes - FRAME_HEADER_SIZE
        at = 0
        while at < len(data):
            page, start = divmod(offset + at, size)
            piece = data[at : at + size - start]
            places = self._places.get(page + 1, ())
            # A reader may keep a checkpoint from copying the newest.
            if not any(self.file.read(place + start, len(piece)) == piece for place in reversed(places)):
                return False
            at += len(piece)
        return True

    def leaves(self, length: int) -> bool:
        """Whether a commit has left the database so long, in bytes: a checkpoint cuts the file to that."""
        count, rest = divmod(length, self._frame_bytes - FRAME_HEADER_SIZE)
        return not rest and count in self._counts

    def overwrites(self, offset: int) -> bool:
        """Whether a write or a cut there may destroy a commit."""
        if offset < self._end:
            return self.in_use
        return offset < self._rewritten and not self._is_awaited(offset)

    def _is_awaited(self, offset: int) -> bool:
        """Whether a write there brings the page of the frame whose header was written last."""
        return self._awaited - self._frame_bytes + FRAME_HEADER_SIZE <= offset < self._awaited

    def write(self, offset: int, data: bytes) -> None:
        """The caller has drained what it overwrites. Raises OSError."""
        if not self._is_awaited(offset):
            self._advance(self._rewritten)
            self._awaited = 0
        self.file.write(offset, data)
        end = offset + len(data)
        if not offset:
            self._written = 0
        if offset < WAL_HEADER_SIZE:
            self._frame_bytes = self._measured()
        if self._frame_bytes:
            self._find_commit(offset, end)
        self._written = max(self._written, end)

    def _measured(self) -> int:
        """The bytes of a frame; 0 without a header that holds, when SQLite takes the log for empty."""
        try:
            return FRAME_HEADER_SIZE + parse_wal_header(self.file.read(0, WAL_HEADER_SIZE)).page_size
        except (Corrupt, Unsupported):
            return 0

    def _advance(self, end: int) -> None:
        if end > self._end:
            self._end = end
            self._commits += 1

    def commit_count(self) -> CommitCount | None:
        """What to `note_flushed` once what was written by now is flushed."""
        if not self.in_use:
            return None
        header = self.file.read(0, WAL_HEADER_SIZE)
        return CommitCount(header[16:24], int.from_bytes(header[12:16]), self._commits + (self._rewritten > self._end))

    def note_flushed(self, count: CommitCount) -> None:
        """To whoever may find the -wal damaged, or missing."""
        if self.file.path is None:
            return
        try:
            write_count(counts_beside(self._folder) / str(self._volume.id), count)
        except OSError as error:
            # The commits are safe all the same.
            log.warning("the commits in the -wal of %r can't be counted: %s", self._local.name, error)

    def _find_commit(self, offset: int, end: int) -> None:
        """Several frames may come in one write, and one in several."""
        size = self._frame_bytes
        frame = WAL_HEADER_SIZE + max(0, offset - WAL_HEADER_SIZE) // size * size
        while frame + FRAME_HEADER_SIZE <= end:
            if any(self.file.read(frame + 4, 4)):
                self._awaited = frame + size
                # It may be all there: then the thread finds out, and else nothing is lost by looking.
                if self._awaited <= max(end, self._written):
                    self._look()
            frame += size
        if self._awaited and end >= self._awaited:
            self._advance(self._awaited)
            self._awaited = 0
            self._look()

    def _look(self) -> None:
        if self.parted:
            return
        self._news = True
        if self._idle is None:
            self._idle = trio.Event()
            self._background.start_soon(self._work)

    async def drain(self, *, flush: bool = True) -> None:
        """Returns when every commit is in the local store, and flushed there: every one that is to come there, if file
        and -wal are parted. Raises what keeps that from happening.
        """
        if self._is_over or self.parted:
            return
        if self.in_use:
            self._look()
        while self._idle is not None:
            self._hurry.set()
            if self.error is not None:
                raise self.error
            with trio.move_on_after(_RETRY_SECONDS):
                await self._idle.wait()
        if flush:
            await in_thread(self._local.environment.flush)

    async def end(self) -> None:
        """As `drain`; from then on its file isn't looked at any more, whoever asks."""
        while not self._is_over:
            await self.drain()
            # Someone else may have asked while it was flushed.
            self._is_over = self._idle is None

    def spares(self, offset: int) -> bool:
        """After `drain`: whether a write or cut there leaves every commit whole."""
        self._end, self._awaited, self._commits = max(WAL_HEADER_SIZE, self._reader.end_bytes), 0, self._taken
        return offset >= self._end

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """While every commit is in the local store, and no thread takes over more."""
        await self.drain(flush=False)
        done = self._idle = trio.Event()
        try:
            yield
        finally:
            self._idle = None
            done.set()
            if self._news:
                self._look()

    def was_checkpointed(self, beneath: Beneath) -> bool:
        """Whether the database's file has what was committed last. For a thread."""
        last = self.last
        return last is None or is_beneath(last, self._frame_bytes - FRAME_HEADER_SIZE, self.file.read, beneath)

    def undo(self, offset: int, beneath: Beneath) -> None:
        """SQLite goes on without the commits from `offset` on (wal_undo.py). For a thread, while `alone`."""
        kept = undo(self._volume, self.file.read, offset, beneath, self._mark)
        self._reader, self.last, self._taken = kept
        for page in list(self._places):
            self._places[page] = [place for place in self._places[page] if place < offset]
        # Else they would be found once more.
        self.file.write(offset, bytes(FRAME_HEADER_SIZE))
        self._end, self._awaited, self._written = max(WAL_HEADER_SIZE, self._reader.end_bytes), 0, offset
        self._commits = self._taken

    def reset(self) -> None:
        """The file was cut, or starts over; everything was drained."""
        self._reader, self.pages, self.last = WalReader(self.file.read), PageSet(), None
        self._taken, self._commits, self._places, self._counts, self.parted = 0, 0, {}, set(), None
        self._end, self._awaited, self._written, self._frame_bytes = WAL_HEADER_SIZE, 0, 0, 0

    def part(self, head: Head) -> Write:
        """What makes file and -wal parted, in the transaction after which the volume is what the file's own bytes are;
        `head` is that of the volume then. While `alone`, and in use.
        """
        header = self._reader.header
        assert header is not None, "what is in use has a header"
        mark = Watermark.of(header, self._reader.end_bytes, self._taken, (head.lsn, head.generation))
        return note(self._local, mark)

    def hides(self, overlay: Overlay) -> Iterator[tuple[int, bytes]]:
        """What the file's own bytes are (wal_undo.py)."""
        return own_bytes(overlay, self.pages, self._frame_bytes - FRAME_HEADER_SIZE)

    def stand(self, parted: Moment) -> None:
        """File and -wal are parted."""
        self.parted, self._marked, self._news = parted, True, False

    async def forget(self) -> None:
        """The file is gone: what the local store has of it is to go, too."""
        if self._marked:
            await in_thread(forget, self._local, self._folder)

    def resume(self, parted: Moment) -> None:
        """They were parted when an earlier mount ended, or died. Raises Unsupported."""
        self._taken = self._commits = len(list(self._reader.commits()))
        self._end = self.file.size = max(WAL_HEADER_SIZE, self._reader.end_bytes)
        self._frame_bytes = self._measured()
        self._written = self._end
        self.stand(parted)

    def _mark(self, header: WalHeader, end_bytes: int, commits: int) -> Write:
        return note(self._local, Watermark.of(header, end_bytes, commits))

    async def _work(self) -> None:
        idle = self._idle
        try:
            while self._news or self._found:
                with trio.move_on_after(_GATHER_SECONDS):
                    await self._hurry.wait()
                self._news = False
                try:
                    await in_thread(self._take)
                    self.error = None
                except OSError as error:
                    self.error = Unavailable(f"the -wal of {self._local.name!r} can't be read: {error.strerror}")
                    log.error("%s", self.error)
                    await trio.sleep(_RETRY_SECONDS)
                except BudwoodError as error:
                    # A pull holds the lock for a moment, and nothing is wrong.
                    if not isinstance(error, Busy):
                        log.error("commits of %r wait in its -wal: %s", self._local.name, error)
                        self.error = error
                    await trio.sleep(_RETRY_SECONDS)
        finally:
            self._idle, self._hurry = None, trio.Event()
            if idle is not None:
                idle.set()

    def _take(self) -> None:
        QUEUED()
        for commit_found in self._reader.commits():
            self._found.append(commit_found)
            self._counts.add(commit_found.page_count)
            for page, place in commit_found.pages.items():
                self._places.setdefault(page, []).append(place)
        while self._found:
            header = self._reader.header
            assert header is not None, "commits have a header before them"
            done = ingest(self._volume, header, self.file.read, self._found, self._taken)
            self._marked = True
            self._taken += done
            self.pages |= PageSet().union(*(PageSet(each.pages) for each in self._found[:done]))
            self.last = self._found[done - 1]
            del self._found[:done]
        TAKEN()
