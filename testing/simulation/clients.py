"""Clients: whoever commits, and whoever reads, each going by what it was told.

Who commits asks a process that it knows, and follows what that says about who owns the volume (lines.py). Who is told
nothing asks again, elsewhere, with the same token, until it is told or gives up.
"""

from __future__ import annotations

from random import Random
from typing import Final

import trio

from ...volume.calls import TAKE_EPOCH, Epoch, VolumeRequest
from ...volume.errors import BadInput, Conflict, NotOwner, OutcomeUnknown, PagesNotHere, ReadOnly, Unavailable
from ...volume.ids import ClientId
from ...volume.protocols import Remote
from ...volume.rules import EXCLUSIVE, OPTIMISTIC, REPLICATED, Offset
from ...volume.wire import Committed
from ..commits import altered, commit_of
from .actor import Actor
from .model import PAGE_SIZE, Attempt, Volume
from .reading import changes_between, commits_of, newest, read_at, rules_of
from .world import World

WIDTH: Final = 6
"""Pages."""
TRIES: Final = 4
SOURCES: Final = ("orders", "clicks")


class Client(Actor):
    """Makes commits, and sends them."""

    def attempt(
        self,
        volume: Volume,
        base: int,
        *,
        client: ClientId,
        length_before: int,
        epoch: int = 0,
        sources: tuple[Offset, ...] = (),
    ) -> Attempt:
        """A commit that nobody else makes, but for replicas. The length before is in pages."""
        random, number = self.random, self.world.number()
        if volume.mode == REPLICATED:
            random, number = Random(f"{volume.id} {base}"), base
        length = random.randint(1, WIDTH)
        chosen = {random.randint(1, length) for _ in range(random.randint(1, 3))}
        pages = {page: b"%8d" % (100 * number + page) * (PAGE_SIZE // 8) for page in sorted(chosen)}
        floor = min(length_before, length)
        request, segment = commit_of(
            volume.vid,
            base,
            pages,
            client=client,
            page_size=PAGE_SIZE,
            length=length * PAGE_SIZE,
            floor=floor * PAGE_SIZE,
            nonce=self.random.randbytes(16),
        )
        if epoch or sources:
            request = altered(request, writer_epoch=epoch, sources=sources)
        attempt = Attempt(request, segment, pages, length, floor, promised_epoch=volume.epoch)
        volume.attempts.setdefault(attempt.lsn, []).append(attempt)
        self.note(f"commits {number} as LSN {attempt.lsn} of volume {volume.number}")
        return attempt

    async def send(self, volume: Volume, attempt: Attempt, *, apart: bool = False) -> None:
        """Raises what it is told."""

        async def send(remote: Remote) -> Committed:
            if not apart:
                return await remote.commit(attempt.request, attempt.segment)
            location = await remote.write_pages(volume.vid, attempt.segment)
            return await remote.commit(altered(attempt.request, locations=(location,)), b"")

        def heard(committed: Committed) -> None:
            self.world.trace.count("repeated" if committed.repeated else "commits")
            self.note(f"was told LSN {committed.lsn} of volume {volume.number}")
            volume.acknowledge(attempt, committed)

        try:
            await self.routed(send, heard)
        except (Conflict, ReadOnly, BadInput) as error:
            if (
                isinstance(error, BadInput)
                and "doesn't go back" not in str(error)
                and "a commit's floor" not in str(error)
            ):
                raise
            # What was sent too early may still land: from where it waits, once what it was made on has.
            if not isinstance(error, Conflict) or error.head > attempt.request.base:
                volume.refuse(attempt)
            raise

    def free(self) -> list[Volume]:
        """Volumes that anybody may commit to."""
        found = [volume for volume in self.world.volumes if volume.mode == OPTIMISTIC]
        self.random.shuffle(found)
        return found

    async def rush(self, volume: Volume, tasks: trio.Nursery) -> None:
        """Several commits at once. Some build on what isn't acknowledged yet, and some want the same LSN."""
        try:
            if not self.up():
                return
            info = await newest(self.up()[0], volume)
            for depth in range(self.random.choice((1, 2, 3))):
                for _ in range(self.random.choice((1, 1, 2))):
                    # Whatever it lands on, no page of that is kept but the first.
                    before = min(info.length // PAGE_SIZE, 1)
                    attempt = self.attempt(volume, info.lsn + depth, client=ClientId.new(), length_before=before)
                    tasks.start_soon(self._push, volume, attempt)
                await trio.sleep(self.random.choice((0.0, 0.005, 0.03)))
        except Exception as error:
            self.excuse(error)

    async def _push(self, volume: Volume, attempt: Attempt) -> None:
        try:
            for _ in range(TRIES):
                try:
                    await self.send(volume, attempt)
                except (Unavailable, NotOwner, PagesNotHere):
                    await trio.sleep(self.random.choice((1.0, 60.0, 400.0)) * self.random.random())
                else:
                    return
        except (Conflict, BadInput) as error:
            self.note(f"is told {type(error).__name__}: {error}")
        except Exception as error:
            self.excuse(error)


class Committer(Client):
    """One client, with one commit after another."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._client = ClientId.new()
        self._pending: tuple[Volume, Attempt, int] | None = None
        self._epochs: dict[Volume, int] = {}
        """That it was given."""
        self._last: dict[Volume, Offset] = {}

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
        if tries >= TRIES:
            self.note(f"gives up LSN {attempt.lsn} of volume {volume.number}")
            self._pending, self._client = None, ClientId.new()
            return
        await self._send(volume, attempt)

    async def _commit(self, volume: Volume) -> None:
        if volume.mode == EXCLUSIVE and (volume not in self._epochs or self.random.random() < 0.15):
            await self._take_epoch(volume)
        base, sources = 0, tuple[Offset, ...]()
        if volume.mode != REPLICATED and self.random.random() < 0.4:
            base, sources = await self._read_on(volume)
        info = await newest(self.up()[0], volume)
        attempt = self.attempt(
            volume,
            base or info.lsn,
            client=self._client,
            length_before=info.length // PAGE_SIZE if base in (0, info.lsn) else 0,
            epoch=self._epochs.get(volume, 0),
            sources=sources,
        )
        self._pending = volume, attempt, 0
        await self._send(volume, attempt, apart=self.random.random() < 0.3)

    async def _take_epoch(self, volume: Volume) -> None:
        def heard(epoch: Epoch) -> None:
            self.note(f"is writer {epoch.epoch} of volume {volume.number}")
            self.world.trace.count("writer epochs")
            volume.promise_epoch(epoch.epoch)
            self._epochs[volume] = epoch.epoch

        async def take(remote: Remote) -> Epoch:
            return await remote.ask(TAKE_EPOCH, VolumeRequest(volume.vid.raw))

        await self.routed(take, heard)

    async def _read_on(self, volume: Volume) -> tuple[int, tuple[Offset, ...]]:
        """The head that a source was read at, and what is bound next; or what was bound last once more."""
        if volume in self._last and self.random.random() < 0.2:
            return 0, (self._last[volume],)
        ruled, source = await rules_of(self.up()[0], volume), self.random.choice(SOURCES)
        come = next((each.offset for each in ruled.sources if each.source == source), 0)
        offset = self._last[volume] = Offset(source, come + self.random.randint(1, 3))
        self.world.trace.count("bindings")
        return ruled.head, (offset,)

    async def _send(self, volume: Volume, attempt: Attempt, *, apart: bool = False) -> None:
        try:
            await self.send(volume, attempt, apart=apart)
        except (Unavailable, NotOwner, PagesNotHere, OutcomeUnknown):
            # It is sent again.
            raise
        except (Conflict, ReadOnly, BadInput) as error:
            self.note(f"is told {type(error).__name__}: {error}")
            if isinstance(error, ReadOnly):
                self._epochs.pop(volume, None)
        self._pending = None


class Rush(Client):
    """Many clients at once."""

    async def step(self) -> None:
        self.world.trace.count("rushes")
        async with trio.open_nursery() as tasks:
            for volume in self.free()[:2]:
                tasks.start_soon(self.rush, volume, tasks)


class Reader(Actor):
    """Reads whatever was ever there."""

    async def step(self) -> None:
        up = self.up()
        if not up:
            return
        process, volume = up[0], self.volume()
        match self.random.randrange(7):
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
            case 3:
                await rules_of(process, volume)
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
