"""Lines: how clients reach processes, and follow what they are told, by the product's own Routed (remote/routed.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar, cast

import trio

from ...remote.deadline import seconds_left
from ...remote.routed import CALL_SECONDS, Routed
from ...server.node import Node
from ...volume.calls import A, Call, Q
from ...volume.errors import NotOwner, Unavailable
from ...volume.ids import VolumeId
from ...volume.protocols import Remote
from ...volume.records import Location
from ...volume.wire import CommitRequest, Committed
from .process import ASKED_SECONDS, Process

T = TypeVar("T")

CONNECT_SECONDS: Final = 5.0

_heard: Final = ContextVar[Callable[[Any], None]]("heard", default=lambda _: None)


class Line:
    """A process as one client reaches it, who may live in it. See volume.protocols.Remote; pages are read by
    reading.py."""

    def __init__(self, process: Process, *, here: bool) -> None:
        self._process = process
        self._here = here

    @property
    def url(self) -> str:
        return self._process.address

    async def ask(self, call: Call[Q, A], request: Q) -> A:
        return await self._sent(lambda node: node.ask(call, request))

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        return await self._sent(lambda node: node.write_pages(vid, segment), tells=False)

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        return await self._sent(lambda node: node.commit(request, segment))

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _sent(self, work: Callable[[Node], Awaitable[T]], *, tells: bool = True) -> T:
        process, told = self._process, _heard.get()

        def heard(answer: T) -> None:
            if tells and (self._here or not process.is_apart):
                told(answer)

        if self._here:
            return await process.ask(work, heard, seconds=ASKED_SECONDS)
        if process.is_apart:
            await trio.sleep(CONNECT_SECONDS)
            raise Unavailable(f"{process.name} can't be reached")
        answer = await process.ask(work, heard, seconds=seconds_left(CALL_SECONDS))
        if process.is_apart:
            raise Unavailable(f"{process.name} did not answer", determinate=False)
        return answer


class Lines:
    """Of one client: it remembers who owns what."""

    def __init__(self, by_address: Callable[[str], Process | None]) -> None:
        self._by_address = by_address
        self._routed: dict[str, Routed] = {}

    async def ask(
        self, home: Process, work: Callable[[Remote], Awaitable[T]], heard: Callable[[T], None] = lambda _: None
    ) -> T:
        """What `work` comes to, asked of that process first. `heard` is told of each call's answer."""
        token = _heard.set(heard)
        try:
            return await work(self._remote(home))
        finally:
            _heard.reset(token)

    def _remote(self, home: Process) -> Remote:
        if home.name not in self._routed:
            # Who has a process of its own asks that without a network.
            here = home.log is None
            line = Line(home, here=here)
            close = line.aclose if here else None
            self._routed[home.name] = Routed(cast("Remote", line), self._connect, _owner_of, close)
        return self._routed[home.name]

    def _connect(self, address: str) -> Remote:
        process = self._by_address(address)
        if process is None:
            raise Unavailable(f"nobody is at {address}")
        return cast("Remote", Line(process, here=False))


def _owner_of(refused: NotOwner) -> str:
    return refused.owner
