"""Clients: whoever commits, and whoever reads, each going by what it was told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from ...server.node import Node
from ...volume.errors import Conflict
from ...volume.ids import ClientId
from ...volume.wire import Committed
from ..commits import commit_of
from .actor import Actor
from .model import PAGE_SIZE, Attempt, Volume
from .reading import changes_between, commits_of, newest, read_at
from .world import World

WIDTH: Final = 6
"""Pages."""


class Committer(Actor):
    """One client. Who was told nothing asks again, elsewhere, until it is told or gives up."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._client = ClientId.new()
        self._pending: tuple[Volume, Attempt, int] | None = None

    async def step(self) -> None:
        if self._pending is not None:
            await self._again()
            return
        volume = self.volume()
        for _ in range(self.random.choice((1, 1, 2, 4))):
            if self._pending is None and self.up():
                await self._commit(volume)

    async def _again(self) -> None:
        assert self._pending is not None
        volume, attempt, tries = self._pending
        self._pending = volume, attempt, tries + 1
        if tries >= 4:
            self.note(f"gives up LSN {attempt.lsn} of volume {volume.number}")
            self._pending, self._client = None, ClientId.new()
            return
        await self._send(volume, attempt)

    async def _commit(self, volume: Volume) -> None:
        info = await newest(self.up()[0], volume)
        number, before = self.world.number(), info.length // PAGE_SIZE
        length = self.random.randint(1, WIDTH)
        chosen = {self.random.randint(1, length) for _ in range(self.random.randint(1, 3))}
        pages = {page: b"%8d" % (100 * number + page) * (PAGE_SIZE // 8) for page in sorted(chosen)}
        floor, nonce = min(before, length), self.random.randbytes(16)
        make = partial(
            commit_of,
            volume.vid,
            info.lsn,
            pages,
            client=self._client,
            page_size=PAGE_SIZE,
            length=length * PAGE_SIZE,
            floor=floor * PAGE_SIZE,
            nonce=nonce,
        )
        request, segment = make()
        attempt = Attempt(request, segment, pages, length, floor)
        volume.attempts.setdefault(attempt.lsn, []).append(attempt)
        self._pending = volume, attempt, 0
        self.note(f"commits {number} as LSN {attempt.lsn} of volume {volume.number}")
        if self.random.random() < 0.3:

            async def apart(node: Node) -> Committed:
                location = await node.write_pages(volume.vid, segment)
                named, _ = make(locations=(location,))
                return await node.commit(named, b"")

            await self._told(volume, attempt, apart)
        else:
            await self._send(volume, attempt)

    async def _send(self, volume: Volume, attempt: Attempt) -> None:
        async def send(node: Node) -> Committed:
            return await node.commit(attempt.request, attempt.segment)

        await self._told(volume, attempt, send)

    async def _told(self, volume: Volume, attempt: Attempt, send: Callable[[Node], Awaitable[Committed]]) -> None:
        def heard(committed: Committed) -> None:
            self.world.trace.count("commits")
            self.note(f"was told LSN {committed.lsn} of volume {volume.number}")
            volume.acknowledge(attempt, committed.lsn)

        try:
            await self.somewhere(send, heard)
        except Conflict:
            volume.refuse(attempt)
            self._pending = None
            raise
        self._pending = None


class Reader(Actor):
    """Reads whatever was ever there."""

    async def step(self) -> None:
        up = self.up()
        if not up:
            return
        process, volume = up[0], self.volume()
        match self.random.randrange(6):
            case 0:
                info = await newest(process, volume)
                if info.lsn:
                    await read_at(process, volume, info.lsn)
            case 1:
                first, last = sorted((self._lsn(volume), self._lsn(volume)))
                if first < last:
                    await changes_between(process, volume, first, self.random.choice((last, None)))
            case 2:
                await commits_of(process, volume)
            case _:
                lsn = self._lsn(volume)
                if lsn:
                    await read_at(process, volume, lsn)
                    self.world.trace.count("reads")

    def _lsn(self, volume: Volume) -> int:
        promised = volume.readable()
        if promised and self.random.random() < 0.7:
            # The oldest are those that somebody holds.
            return promised[self.random.randrange(len(promised)) // self.random.choice((1, 4))]
        return self.random.randint(0, volume.head)
