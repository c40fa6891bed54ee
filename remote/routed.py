"""Routed: a remote that sends each call on to the node that owns the volume's log (DESIGN §4, §6).

`home` is asked first: a node over HTTP, or one in this process. Where it answers NotOwner with an address, the call
goes there, if that address may be followed (token.py), and later calls of the same sort for that volume go there at
once. An address that can't be reached is forgotten: another node may have taken the log over meanwhile, and home
knows. Reading and changing are remembered apart, since a process reads from the store itself what it may not append to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

from ..volume.errors import NotOwner, Unavailable
from ..volume.ids import PinId, VolumeId
from ..volume.pageset import PageSet
from ..volume.pins import Pin
from ..volume.protocols import PagesRead, Remote
from ..volume.records import Location
from ..volume.wire import (
    Changes,
    CommitInfo,
    CommitRequest,
    Committed,
    Located,
    NameEntry,
    NameList,
    NameRequest,
    Outcome,
    SnapshotInfo,
    StoreInfo,
)

__all__ = ["Routed"]

HOPS: Final = 5
"""Addresses that one call may be sent to: a log may move while it is looked for, but not for ever."""
REMEMBERED: Final = 4096

T = TypeVar("T")


class Routed:
    """See volume.protocols.Remote. `owner_of` tells the URL of the owner that a refusal names, or raises; `connect`
    makes the client of another node; what it made is closed with this, and home by `close`."""

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
        self._connect = connect
        self._nodes: dict[str, Remote] = {}
        self._owners: OrderedDict[tuple[bytes, bool], str] = OrderedDict()

    @property
    def url(self) -> str:
        return self.home.url

    async def hello(self) -> StoreInfo:
        return await self.home.hello()

    async def create(self, vid: VolumeId, page_size: int) -> None:
        await self._change(vid.raw, lambda remote: remote.create(vid, page_size))

    async def snapshot(
        self, vid: VolumeId, *, lsn: int | None = None, at_ms: int | None = None, confirm: bool = False
    ) -> SnapshotInfo:
        return await self._read(vid.raw, lambda remote: remote.snapshot(vid, lsn=lsn, at_ms=at_ms, confirm=confirm))

    async def pull_changes(self, vid: VolumeId, after: int, to: int | None = None) -> Changes:
        return await self._read(vid.raw, lambda remote: remote.pull_changes(vid, after, to))

    async def pull_commits(self, vid: VolumeId, after: int, to: int | None = None) -> list[CommitInfo]:
        return await self._read(vid.raw, lambda remote: remote.pull_commits(vid, after, to))

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        return await self._change(vid.raw, lambda remote: remote.write_pages(vid, segment))

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        return await self._change(request.vid, lambda remote: remote.commit(request, segment))

    async def outcome(self, vid: VolumeId, client: bytes, token: bytes) -> Outcome:
        # Whoever commits knows first what became of it.
        return await self._change(vid.raw, lambda remote: remote.outcome(vid, client, token))

    def read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0
    ) -> AbstractAsyncContextManager[PagesRead]:
        return self._read_pages(vid, lsn, pages, extra_bytes)

    async def locate(self, vid: VolumeId, lsn: int, pages: PageSet, *, measure: bool = False) -> Located:
        return await self._read(vid.raw, lambda remote: remote.locate(vid, lsn, pages, measure=measure))

    async def wait(self, vid: VolumeId, after: int, timeout_seconds: float) -> int:
        return await self._read(vid.raw, lambda remote: remote.wait(vid, after, timeout_seconds))

    async def fork(self, vid: VolumeId, child: VolumeId, lsn: int) -> SnapshotInfo:
        return await self._change(vid.raw, lambda remote: remote.fork(vid, child, lsn))

    async def pin(
        self,
        vid: VolumeId,
        lsn: int | None = None,
        *,
        seconds: float,
        owner: str = "",
        kind: str = "lease",
        pin: PinId | None = None,
    ) -> Pin:
        # Whoever reads may pin: that appends to no log. One id for all that are asked, so that there is one pin.
        pin = pin or PinId.new()
        return await self._read(
            vid.raw, lambda remote: remote.pin(vid, lsn, seconds=seconds, owner=owner, kind=kind, pin=pin)
        )

    async def renew(self, vid: VolumeId, pin: PinId, seconds: float) -> Pin:
        return await self._read(vid.raw, lambda remote: remote.renew(vid, pin, seconds))

    async def unpin(self, vid: VolumeId, pin: PinId) -> None:
        await self._read(vid.raw, lambda remote: remote.unpin(vid, pin))

    async def pins(self, vid: VolumeId) -> list[Pin]:
        return await self._read(vid.raw, lambda remote: remote.pins(vid))

    async def advance(self, vid: VolumeId, since: int) -> int:
        return await self._change(vid.raw, lambda remote: remote.advance(vid, since))

    async def lookup(self, name: str) -> NameEntry | None:
        return await self._read(b"", lambda remote: remote.lookup(name))

    async def list_names(self, prefix: str = "", after: str = "", limit: int = 1000) -> NameList:
        return await self._read(b"", lambda remote: remote.list_names(prefix, after, limit))

    async def wait_names(self, after: int, timeout_seconds: float) -> int:
        return await self._read(b"", lambda remote: remote.wait_names(after, timeout_seconds))

    async def change_name(self, request: NameRequest) -> int:
        return await self._change(b"", lambda remote: remote.change_name(request))

    async def move_log(self, vid: VolumeId, to: str, *, takeover: bool = False) -> str:
        log = await self._change(vid.raw, lambda remote: remote.move_log(vid, to, takeover=takeover))
        self._owners.pop((vid.raw, True), None)
        self._owners.pop((vid.raw, False), None)
        return log

    async def aclose(self) -> None:
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            await node.aclose()
        await self._close()

    async def _read(self, vid: bytes, call: Callable[[Remote], Awaitable[T]]) -> T:
        return await self._route((vid, False), call)

    async def _change(self, vid: bytes, call: Callable[[Remote], Awaitable[T]]) -> T:
        return await self._route((vid, True), call)

    @asynccontextmanager
    async def _read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, extra_bytes: int
    ) -> AsyncGenerator[PagesRead, None]:
        async with AsyncExitStack() as stack:

            async def enter(remote: Remote) -> PagesRead:
                return await stack.enter_async_context(remote.read_pages(vid, lsn, pages, extra_bytes=extra_bytes))

            yield await self._read(vid.raw, enter)

    async def _route(self, key: tuple[bytes, bool], call: Callable[[Remote], Awaitable[T]]) -> T:
        """The call's answer, from home or from the owner."""
        address = self._owners.get(key, "")
        silent: dict[str, Unavailable] = {}
        for _ in range(HOPS):
            try:
                return await call(self._node(address))
            except NotOwner as refused:
                self._owners.pop(key, None)
                owner = self._owner_of(refused) if refused.owner else ""
                if owner in {"", address} or owner in silent:
                    raise _unreachable(refused, silent[owner]) if owner in silent else refused from None
                address = owner
                self._remember(key, owner)
            except Unavailable as failed:
                # Only where it certainly did not happen may it be tried elsewhere.
                if not address or not failed.determinate:
                    raise
                self._owners.pop(key, None)
                silent[address] = failed
                address = ""
        raise Unavailable("the volume's log went from node to node while it was looked for: try again")

    def _remember(self, key: tuple[bytes, bool], owner: str) -> None:
        self._owners[key] = owner
        self._owners.move_to_end(key)
        if len(self._owners) > REMEMBERED:
            self._owners.popitem(last=False)

    def _node(self, address: str) -> Remote:
        if not address:
            return self.home
        if address not in self._nodes:
            self._nodes[address] = self._connect(address)
        return self._nodes[address]


def _unreachable(refused: NotOwner, failed: Unavailable) -> Unavailable:
    return Unavailable(
        f"log {refused.log!r} is owned by a node that can't be reached ({failed}); start it, or take the volume out of "
        "its log: budwood move NAME --log private --takeover"
    )
