"""Routed: a remote that sends each call on to the node that owns the volume's log (DESIGN §4, §6).

`home` is asked first: a node over HTTP, or one in this process. Where it answers NotOwner with an address, the call
goes there, if that address may be followed (token.py), and later calls of the same sort for that volume go there at
once. An address that can't be reached is forgotten: another node may have taken the log over meanwhile, and home
knows. Reading and changing are remembered apart, since a process reads from the store itself what it may not append to.

To however many nodes a call is sent, it has one deadline (deadline.py). A node of this process isn't told of it: what
it begins goes on for others, and must not inherit it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

import anyio

from ..volume.calls import A, Call, OfVolume, Poll, Q, To
from ..volume.errors import NotOwner, Unavailable
from ..volume.ids import VolumeId
from ..volume.lru_cache import LruCache
from ..volume.pageset import PageSet
from ..volume.protocols import PagesRead, Remote
from ..volume.records import Location
from ..volume.wire import CommitRequest, Committed
from .deadline import within

HOPS: Final = 5
"""Addresses that one call may be sent to: a log may move while it is looked for, but not for ever."""
REMEMBERED: Final = 4096
CALL_SECONDS: Final = 30.0
_SLOWEST_BYTES_A_SECOND: Final = 32 * 1024

T = TypeVar("T")


class Routed:
    """See volume.protocols.Remote. `owner_of` tells the URL of the owner that a refusal names, or raises; `connect`
    makes the client of another node; what it made is closed with this. Home, if it is a node of this process, by
    `close`."""

    def __init__(
        self,
        home: Remote,
        connect: Callable[[str], Remote],
        owner_of: Callable[[NotOwner], str],
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.home = home
        self._owner_of = owner_of
        self._close = close or home.aclose
        self._home_is_here = close is not None
        self._connect = connect
        self._nodes: dict[str, Remote] = {}
        self._owners = LruCache[tuple[bytes, To], str](REMEMBERED)

    @property
    def url(self) -> str:
        return self.home.url

    async def ask(self, call: Call[Q, A], request: Q) -> A:
        if call.to is To.HOME:
            return await self.home.ask(call, request)
        vid = request.vid if isinstance(request, OfVolume) else b""
        seconds = CALL_SECONDS + (request.timeout_seconds if isinstance(request, Poll) else 0.0)
        answer = await self._route((vid, call.to), lambda remote: remote.ask(call, request), seconds=seconds)
        if call.moves:
            self._owners.drop((vid, To.OWNER))
            self._owners.drop((vid, To.READER))
        return answer

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        return await self._route(
            (vid.raw, To.OWNER), lambda remote: remote.write_pages(vid, segment), seconds=_sending(segment)
        )

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        return await self._route(
            (request.vid, To.OWNER), lambda remote: remote.commit(request, segment), seconds=_sending(segment)
        )

    @asynccontextmanager
    async def read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0
    ) -> AsyncGenerator[PagesRead, None]:
        async with AsyncExitStack() as stack:

            async def enter(remote: Remote) -> PagesRead:
                return await stack.enter_async_context(remote.read_pages(vid, lsn, pages, extra_bytes=extra_bytes))

            yield await self._route((vid.raw, To.READER), enter)

    async def aclose(self) -> None:
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            await node.aclose()
        await self._close()

    async def _route(
        self, key: tuple[bytes, To], call: Callable[[Remote], Awaitable[T]], *, seconds: float = CALL_SECONDS
    ) -> T:
        """The call's answer, from home or from the owner."""
        end = anyio.current_time() + seconds
        address = self._owners.get(key) or ""
        silent: dict[str, Unavailable] = {}
        for _ in range(HOPS):
            try:
                if self._home_is_here and not address:
                    return await call(self.home)
                with within(max(0.0, end - anyio.current_time())):
                    return await call(self._node(address))
            except NotOwner as refused:
                self._owners.drop(key)
                owner = self._owner_of(refused) if refused.owner else ""
                if owner in {"", address} or owner in silent:
                    raise _unreachable(refused, silent[owner]) if owner in silent else refused from None
                address = owner
                self._owners.put(key, owner)
            except Unavailable as failed:
                # Whoever hangs may be replaced by now: the next call asks home. This one may be tried elsewhere only if
                # it certainly did not happen.
                self._owners.drop(key)
                if not address or not failed.determinate:
                    raise
                silent[address] = failed
                address = ""
        raise Unavailable("the volume's log went from node to node while it was looked for: try again")

    def _node(self, address: str) -> Remote:
        if not address:
            return self.home
        if address not in self._nodes:
            self._nodes[address] = self._connect(address)
        return self._nodes[address]


def _sending(segment: bytes) -> float:
    """For a call that may take long to be sent, and be refused then."""
    return CALL_SECONDS + 2 * len(segment) / _SLOWEST_BYTES_A_SECOND


def _unreachable(refused: NotOwner, failed: Unavailable) -> Unavailable:
    return Unavailable(
        f"log {refused.log!r} is owned by a node that can't be reached ({failed}); start it, or take the volume out of "
        "its log: budwood move NAME --log private --takeover"
    )
