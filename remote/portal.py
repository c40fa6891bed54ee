"""Portal: how blocking callers (the edge, the VFS, the command) meet the async remotes.

Every call runs in the process's one loop (loop.py). A small read of pages, head and frames together, costs one hop
there and back like any other call. In a forked child every BlockingRemote opens its remote anew, since connections
can't be shared.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from ..volume.calls import A, Call, Q
from ..volume.errors import Unavailable
from ..volume.frame import Frame
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet
from ..volume.protocols import PagesRead, Remote
from ..volume.records import Location
from ..volume.tracebacks import strip_traceback
from ..volume.wire import CommitRequest, Committed, SnapshotInfo
from .loop import Begun, Job, Portal, portal, standing
from .token import Tokens

if TYPE_CHECKING:
    import asyncio

BATCH_BYTES: Final = 1 << 20
"""Frames cross from the loop's thread in batches of about this size."""
BATCHES: Final = 4
"""So many batches may wait for a slow reader."""

T = TypeVar("T")

_lock = threading.RLock()
"""One that its holder may take again: the garbage collector closes remotes in whatever thread it runs in."""
_inherited: Final[list[object]] = []
"""What a forked child must neither use nor let be collected: collecting it would close it, and it is the parent's."""


def _in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_in_child)


def open_remote(
    url: str,
    *,
    token: str | Tokens | None = None,
    cache_dir: Path | None = None,
    create: Callable[[], bool] = lambda: True,
) -> BlockingRemote:
    """The remote at `url` for blocking callers; see remote.open.open_remote. It connects at the first call, but a URL
    that can't be one raises BadInput at once. `create` is asked at each try to open a store."""
    from .open import check_url
    from .open import open_remote as open_async

    url = check_url(url)
    tokens = token if isinstance(token, Tokens) else Tokens.of(token or "")
    tokens.for_remote(url)
    return BlockingRemote(url, lambda: open_async(url, token=tokens, cache_dir=cache_dir, create=create()))


class _Session:
    """A remote opened in one portal's loop."""

    def __init__(self, host: Portal, opener: Callable[[], Awaitable[Remote]]) -> None:
        self.portal = host
        self._opener = opener
        self._lock: asyncio.Lock | None = None
        self._remote: Remote | None = None

    async def remote(self) -> Remote:
        if self._remote is None:
            import asyncio

            self._lock = self._lock or asyncio.Lock()
            async with self._lock:
                if self._remote is None:
                    self._remote = await self._opener()
        return self._remote

    async def do(self, work: Callable[[Remote], Awaitable[T]]) -> T:
        return await work(await self.remote())

    async def aclose(self) -> None:
        remote, self._remote = self._remote, None
        if remote is not None:
            await remote.aclose()


class BlockingRemote:
    """volume.protocols.Remote without the async; for any thread, and across forks."""

    def __init__(self, url: str, opener: Callable[[], Awaitable[Remote]]) -> None:
        self.url = url
        self._opener = opener
        self._session: _Session | None = None

    def ask(self, call: Call[Q, A], request: Q) -> A:
        return self.call(lambda remote: remote.ask(call, request))

    def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        return self.call(lambda remote: remote.write_pages(vid, segment))

    def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        return self.call(lambda remote: remote.commit(request, segment))

    def read_pages(self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0) -> BlockingRead:
        """`with remote.read_pages(…) as answer: for frame in answer.frames(): …`"""
        return BlockingRead(self._current(), lambda remote: remote.read_pages(vid, lsn, pages, extra_bytes=extra_bytes))

    def call(self, work: Callable[[Remote], Awaitable[T]]) -> T:
        """Do `work` in the loop and wait for it."""
        session = self._current()
        return session.portal.call(session.do, work)

    def begin(self, work: Callable[[Remote], Awaitable[T]], done: Callable[[], None]) -> Begun[T]:
        """Do `work` in the loop without waiting for it; `done` is called from the loop's thread when it has ended."""
        session = self._current()
        return Begun(session.portal, Job(session.do, work), done)

    def close(self) -> None:
        """Give back what the remote holds; from any thread, the loop's own too. A later call opens it anew."""
        with _lock:
            session, self._session = self._session, None
        if session is not None and session.portal is standing():
            session.portal.give_back(session.aclose)

    def _current(self) -> _Session:
        host = portal()
        with _lock:
            session = self._session
            if session is None or session.portal is not host:
                if session is not None:
                    _inherited.append(session)
                session = self._session = _Session(host, self._opener)
            return session


class _Batch(NamedTuple):
    snapshot: SnapshotInfo
    zeros: PageSet
    frames: list[Frame]
    last: bool


class BlockingRead:
    """An answer to read_pages; a context manager, to be read by one thread. `begin` has it asked for before that."""

    snapshot: SnapshotInfo
    zeros: PageSet

    def __init__(self, session: _Session, read: Callable[[Remote], AbstractAsyncContextManager[PagesRead]]) -> None:
        self._session = session
        self._read = read
        self._batches: queue.SimpleQueue[_Batch | BaseException] = queue.SimpleQueue()
        self._room: asyncio.Semaphore | None = None
        self._job: Job[None] | None = None
        self._next: _Batch | None = None

    def begin(self) -> Self:
        """Ask now. What comes waits to be read, up to some `BATCHES` of it; whoever won't read it calls `leave`."""
        self._session.portal.refuse_own_thread()
        job = Job(self._pump)
        self._session.portal.start(job)
        self._job = job
        return self

    def leave(self) -> None:
        """What was begun isn't read any more; waits for nothing."""
        if self._job is not None and not self._job.has_ended:
            self._session.portal.abandon(self._job)

    def __enter__(self) -> Self:
        try:
            if self._job is None:
                self.begin()
            self._next = self._take()
        except BaseException:
            self._close()
            raise
        self.snapshot, self.zeros = self._next.snapshot, self._next.zeros
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def frames(self) -> Iterator[Frame]:
        """The frames as they come; once."""
        batch, self._next = self._next, None
        while batch is not None:
            yield from batch.frames
            batch = None if batch.last else self._take()

    def _take(self) -> _Batch:
        taken = self._batches.get()
        if isinstance(taken, Exception):
            raise strip_traceback(taken)
        if isinstance(taken, BaseException):
            raise Unavailable("the process is ending", hopeless=True) from taken
        if self._room is not None:
            self._session.portal.loop.call_soon_threadsafe(self._room.release)
        return taken

    def _close(self) -> None:
        self.leave()
        if self._job is not None and not self._session.portal.is_here:
            self._job.wait()

    async def _pump(self) -> None:
        """Runs in the loop: the whole read in one task, since it may not be left by another than entered it."""
        import asyncio

        self._room = asyncio.Semaphore(BATCHES)
        held: _Batch | None = None
        try:
            async with self._read(await self._session.remote()) as answer:
                held = _Batch(answer.snapshot, answer.zeros, [], last=False)
                size = 0
                async for frame in answer.frames():
                    held.frames.append(frame)
                    size += len(frame.stored)
                    if size >= BATCH_BYTES:
                        await self._room.acquire()
                        self._batches.put(held)
                        held, size = held._replace(frames=[]), 0
            self._batches.put(held._replace(last=True))
        except BaseException as error:
            if held is not None:
                # What came before it is whole.
                self._batches.put(held)
            self._batches.put(error)
            if not isinstance(error, Exception):
                raise
