"""Actors: whoever writes, holds, reads and looks after volumes, each going by what it was told.

Edge does over the Remote protocol what sync/lease_keeper.py and sync/lease.py do, in their order, without their LMDB
and threads: pages are read at the sync point; it is pinned some time after that; a pull pins the new one, moves, and
releases the old one; a lease is renewed when less than half of it is left, and made anew where it has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from ...server.node import Node
from ...server.store.root import GC_INTERVAL_SECONDS
from ...server.upkeep.collector import Stage
from ...volume.calls import (
    ADVANCE,
    FORK,
    MOVE_LOG,
    PIN,
    RENEW,
    RETAIN,
    SNAPSHOT,
    UNPIN,
    ForkRequest,
    MoveRequest,
    PinRequest,
    RenewRequest,
    RetainRequest,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
)
from ...volume.errors import Conflict, Forgotten, NotFound, PagesNotHere
from ...volume.ids import ClientId, PinId, VolumeId
from ...volume.pins import Pin
from ...volume.retention_policy import RetentionPolicy
from ...volume.wire import Committed
from ..commits import commit_of
from .determinism import true_ms
from .model import PAGE_SIZE, Attempt, Held, Snapshot, Violation, Volume
from .process import Process, Trap
from .reading import changes_between, commits_of, newest, read_at
from .world import MAIN, Actor, World

WIDTH: Final = 6
"""Pages."""

HOUR_MS: Final = 3_600_000
LEASE_SECONDS: Final = 7 * 86_400.0
"""As sync/lease.py has it."""
PAST_INTERVAL: Final = GC_INTERVAL_SECONDS + 61.0


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
        await self._send(volume, attempt, attempt.request, attempt.segment)

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
            await self._send(volume, attempt, request, segment)

    async def _send(self, volume: Volume, attempt: Attempt, request: object, segment: bytes) -> None:
        async def send(node: Node) -> Committed:
            return await node.commit(attempt.request, segment)

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
        except PagesNotHere:
            # Sent again with its pages.
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


class Holder(Actor):
    """Pins, labels, releases, forks."""

    async def step(self) -> None:
        volume = self.volume()
        readable = volume.readable()
        match self.random.choice(("pin", "pin", "lease", "lease", "renew", "label", "unpin", "unpin", "fork", "fork")):
            case "pin" if readable:
                await self._pin(volume, self.random.choice(readable), 0.0)
            case "lease" if readable:
                await self._pin(volume, self.random.choice(readable), self.random.choice((120.0, 5000.0, 90_000.0)))
            case "label" if readable:
                await self._label(volume, self.random.choice(readable))
            case "renew" if volume.held:
                await self._renew(volume, self.random.choice(list(volume.held)))
            case "unpin" if volume.held:
                await self._unpin(volume, self.random.choice(list(volume.held)))
            case "fork" if readable and len(self.world.volumes) < 5:
                await self._fork(volume, self.random.choice(readable))
            case _:
                pass

    async def _pin(self, volume: Volume, lsn: int, seconds: float) -> None:
        pin = PinId.new()

        def heard(made: Pin) -> None:
            self.world.trace.count("pins")
            volume.held[pin] = Held(lsn, made.expiry)

        async def ask(node: Node) -> Pin:
            return await node.ask(PIN, PinRequest(volume.vid.raw, lsn=lsn, pin=pin.raw, seconds=seconds))

        self.note(f"pins LSN {lsn} of volume {volume.number} for {seconds:.0f} s")
        await self._only_promised(volume, lsn, lambda: self.somewhere(ask, heard))

    async def _only_promised(self, volume: Volume, lsn: int, ask: Callable[[], Awaitable[object]]) -> None:
        """What was promised all the while isn't refused."""
        before = volume.promised(lsn)
        try:
            await ask()
        except Forgotten as error:
            if before and volume.promised(lsn):
                raise Violation(f"{volume}: LSN {lsn} is promised, and can't be held: {error}") from error
            raise

    async def _label(self, volume: Volume, lsn: int) -> None:
        label = f"label {self.random.randrange(3)}"

        def heard(made: Pin) -> None:
            volume.held[made.pin_id] = Held(made.lsn, made.expiry)

        async def ask(node: Node) -> Pin:
            return await node.ask(PIN, PinRequest(volume.vid.raw, lsn=lsn, seconds=0.0, kind="named", label=label))

        made = await self.somewhere(ask, heard)
        if made.pin_id not in volume.held:
            return

        async def by_label(node: Node) -> int:
            return (await node.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw, label=label))).lsn

        found = await self.somewhere(by_label)
        if found != lsn and made.pin_id in volume.held:
            raise Violation(f"{volume}: {label!r} is LSN {lsn}, and {found} is read by it")

    async def _renew(self, volume: Volume, pin: PinId) -> None:
        async def ask(node: Node) -> Pin:
            return await node.ask(RENEW, RenewRequest(volume.vid.raw, pin=pin.raw, seconds=20_000.0))

        def heard(made: Pin) -> None:
            if pin in volume.held:
                volume.held[pin] = Held(made.lsn, made.expiry)

        held = volume.held[pin]
        try:
            await self.somewhere(ask, heard)
        except NotFound as error:
            if pin in volume.held and not 0 < held.expiry_ms < true_ms():
                raise Violation(f"{volume}: pin {pin} has not ended, and: {error}") from error
            volume.held.pop(pin, None)

    async def _unpin(self, volume: Volume, pin: PinId) -> None:
        async def ask(node: Node) -> None:
            await node.ask(UNPIN, UnpinRequest(volume.vid.raw, pin=pin.raw))

        held = volume.held.pop(pin)
        self.note(f"releases LSN {held.lsn} of volume {volume.number}")
        await self.somewhere(ask)

    async def _fork(self, volume: Volume, lsn: int) -> None:
        child = VolumeId.new()
        snapshot = volume.known[lsn]

        def heard(_: object) -> None:
            volume.forks.add(lsn)
            if all(other.vid != child for other in self.world.volumes):
                self.world.trace.count("forks")
                number = len(self.world.volumes) + 1
                known = {lsn: Snapshot(dict(snapshot.pages), snapshot.length)}
                self.world.add(Volume(child, number, volume, lsn, known=known, since=lsn))

        async def ask(node: Node) -> object:
            return await node.ask(FORK, ForkRequest(volume.vid.raw, child=child.raw, lsn=lsn))

        self.note(f"forks volume {volume.number} at LSN {lsn}")
        await self._only_promised(volume, lsn, lambda: self.somewhere(ask, heard))


class Edge(Actor):
    """One home with one volume, which it reads lazily."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._lsn = 0
        self._pin: PinId | None = None
        self._volume = self.volume()
        self._leases: dict[PinId, int] = {}
        """What may stand on the remote, with its LSN."""

    def pause_seconds(self) -> float:
        return self.random.choice((0.1, 10.0, 400.0, 2000.0, 8000.0, 86_400.0)) * self.random.random()

    async def step(self) -> None:
        if not self.up():
            return
        if not self._lsn or self.random.random() < 0.3:
            await self._pull()
        else:
            await self._fetch()

    async def _pull(self) -> None:
        process, volume = self.up()[0], self._volume
        changes = await changes_between(process, volume, self._lsn, None)
        if changes is None:
            changes = await changes_between(process, volume, 0, None)
        if changes is None or changes.snapshot.lsn <= volume.start:
            return
        moved, self._lsn = changes.snapshot.lsn != self._lsn, changes.snapshot.lsn
        if self._leases and moved:
            await trio.sleep(self.random.choice((0.0, 300.0)))
            await self._keep()

    async def _fetch(self) -> None:
        lsn = self._lsn
        if not await read_at(self.up()[0], self._volume, lsn):
            # What it lacks is forgotten: it pulls, and fetches what is there now.
            self._lsn = 0
            return
        self.world.trace.count("lazy reads")
        await trio.sleep(self.random.choice((0.0, 300.0)))
        await self._keep()

    async def _keep(self) -> None:
        """The order of sync/lease.py: the new one, then the others are released."""
        volume, lsn = self._volume, self._lsn
        before = dict(self._leases)
        pin = next((pin for pin, at in self._leases.items() if at == lsn), None)
        if pin is not None:
            held = volume.held.get(pin)
            if held is None or held.expiry_ms - true_ms() < LEASE_SECONDS * 500:
                pin = await self._renewed(pin)
        if pin is None and not await self._made(lsn):
            return
        for other, at in before.items():
            if at != lsn:
                await self._release(other)

    async def _renewed(self, pin: PinId) -> PinId | None:
        """None where it has ended."""

        async def ask(node: Node) -> Pin:
            return await node.ask(RENEW, RenewRequest(self._volume.vid.raw, pin=pin.raw, seconds=LEASE_SECONDS))

        def heard(made: Pin) -> None:
            if pin in self._leases:
                self._volume.held[pin] = Held(made.lsn, made.expiry)

        held = self._volume.held.get(pin)
        try:
            await self.somewhere(ask, heard)
        except NotFound as error:
            if held is not None and held.expiry_ms > true_ms():
                raise Violation(f"{self._volume}: lease {pin} has not ended, and: {error}") from error
            self._drop(pin)
            return None
        return pin

    async def _made(self, lsn: int) -> bool:
        pin, volume = PinId.new(), self._volume
        self._leases[pin] = lsn

        async def ask(node: Node) -> Pin:
            request = PinRequest(volume.vid.raw, pin=pin.raw, lsn=lsn, seconds=LEASE_SECONDS, kind="sync")
            return await node.ask(PIN, request)

        def heard(made: Pin) -> None:
            if pin in self._leases:
                self.world.trace.count("sync leases")
                volume.held[pin] = Held(lsn, made.expiry)

        self.note(f"leases LSN {lsn} of volume {volume.number}")
        try:
            await self.somewhere(ask, heard)
        except Forgotten:
            self._drop(pin)
            self._lsn = 0
            return False
        return True

    async def _release(self, pin: PinId) -> None:
        async def ask(node: Node) -> None:
            await node.ask(UNPIN, UnpinRequest(self._volume.vid.raw, pin=pin.raw))

        self._volume.held.pop(pin, None)
        try:
            await self.somewhere(ask)
        except NotFound:
            # It was never made.
            pass
        self._drop(pin)

    def _drop(self, pin: PinId) -> None:
        self._leases.pop(pin, None)
        self._volume.held.pop(pin, None)


class Keeper(Actor):
    """Lets volumes grow old: moves `since`, folds, collects, enforces policies, moves volumes between logs."""

    def pause_seconds(self) -> float:
        return self.random.choice((0.1, 10.0, 400.0, 2000.0)) * self.random.random()

    async def step(self) -> None:
        volume = self.volume()
        match self.random.choice(("age", "age", "age", "fold", "collect", "tend", "retain", "move")):
            case "age":
                await self._age(volume)
            case "fold":
                await self._fold(volume)
            case "collect":
                await self._collect(self.random.choice(self.world.logs()))
            case "tend":
                await self._tend(self.random.choice(self.world.logs()))
            case "retain":
                await self._retain(volume)
            case _:
                await self._move(volume)

    async def _age(self, volume: Volume) -> None:
        """All of it, one after another, as long as it is let."""
        await self._advance(volume)
        await self._fold(volume)
        logs = self.world.logs()
        log = volume.id if volume.id in logs and self.random.random() < 0.7 else self.random.choice(logs)
        if await self._collect(log) is Stage.WAITING:
            await trio.sleep(PAST_INTERVAL)
            await self._collect(log)

    async def _advance(self, volume: Volume) -> None:
        since = max(volume.head - self.random.choice((0, 0, 1, 2, 5)), volume.start + 1)
        if since > volume.head:
            return
        volume.since = max(volume.since, since)

        async def ask(node: Node) -> None:
            await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=since))

        self.note(f"moves since of volume {volume.number} to {since}")
        await self.somewhere(ask)

    async def _fold(self, volume: Volume) -> None:
        async def fold(node: Node) -> bool:
            return await node.folder.fold(volume.vid) is not None

        if await self.somewhere(fold):
            self.note(f"has folded volume {volume.number}")
            self.world.trace.count("folds")

    async def _collect(self, log: str) -> Stage:
        async def collect(node: Node) -> Stage:
            return (await node.collector.collect(log)).stage

        stage = await self.somewhere(collect)
        self.note(f"collects {log}: {stage.value}")
        self.world.trace.count(f"collections {stage.value}")
        return stage

    async def _tend(self, log: str) -> None:
        async def tend(node: Node) -> None:
            await node.upkeep.tend(log)

        await self.somewhere(tend)
        self.world.trace.count("upkeep turns")

    async def _retain(self, volume: Volume) -> None:
        hours = self.random.choice((1, 6, 30))
        policy = RetentionPolicy(all_ms=hours * HOUR_MS, hourly_ms=self.random.choice((0, 48 * HOUR_MS)))
        volume.all_ms = min(volume.all_ms or policy.all_ms, policy.all_ms)

        async def ask(node: Node) -> None:
            await node.ask(RETAIN, RetainRequest(volume.vid.raw, policy=policy))
            await node.retainer.enforce(volume.vid)

        self.note(f"keeps {hours} h of volume {volume.number}")
        await self.somewhere(ask)
        self.world.trace.count("policies")

    async def _move(self, volume: Volume) -> None:
        to = self.random.choice((MAIN, "private"))

        async def ask(node: Node) -> None:
            await node.ask(MOVE_LOG, MoveRequest(volume.vid.raw, to=to))

        self.note(f"moves volume {volume.number} to {to}")
        await self.somewhere(ask)
        self.world.trace.count("moves")


NAPS: Final = (100.0, 2000.0, 4000.0, 10_000.0, 3 * 86_400.0, 9 * 86_400.0)


class Nemesis(Actor):
    """Crashes processes, puts them to sleep, and starts those that are down."""

    def __init__(self, world: World, number: int, points: list[str]) -> None:
        super().__init__(world, number)
        self._points = points

    def pause_seconds(self) -> float:
        return self.random.choice((1.0, 100.0, 1000.0, 4000.0)) * self.random.random()

    async def step(self) -> None:
        up = self.up()
        if not up:
            return
        process = up[0]
        match self.random.choice(("crash", "trap", "point", "point", "nap", "nap at", "nap at", "sleeper", "sleeper")):
            case "crash":
                process.crash()
            case "trap":
                process.trap = Trap("", self.random.randint(1, 60), 0.0)
            case "point":
                process.fault = self.random.choice(self._points)
            case "nap":
                process.sleep(self._nap())
            case "sleeper":
                # It wakes, and appends, when what stood in that slot may have been collected long ago; or holds what
                # others have let go of.
                logs = [name for name in self.world.logs() if name != MAIN] or [MAIN]
                part = self.random.choice((f"/{self.random.choice(logs)}/entries/", "/pins/"))
                process.trap = Trap(part, self.random.randint(1, 2), self.random.choice(NAPS[-3:]), "create")
            case _:
                part = self.random.choice(("/entries/", "/entries/", "/pins/", "/t/", "/gc/", "/rollups/", ""))
                op = self.random.choice(("create", "create", "get", "delete", ""))
                process.trap = Trap(part, self.random.randint(1, 4), self._nap(), op)

    def _nap(self) -> float:
        return self.random.choice(NAPS) * (0.5 + self.random.random())


async def brought_back(world: World, process: Process) -> None:
    """Starts a process whenever it is down, some time later; one whose log another serves, hardly ever."""
    random = world.random(f"back {process.name}")
    while not world.ended:
        if process.is_up:
            await process.down()
        await trio.sleep(random.choice((5.0, 60.0, 1500.0)) * random.random() + 1)
        if not world.ended and not process.is_up and (not world.is_served(process) or random.random() < 0.02):
            await process.start()
