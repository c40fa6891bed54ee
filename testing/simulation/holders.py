"""Holders: whoever keeps LSNs from being forgotten.

Edge does over the Remote protocol what sync/lease_keeper.py and sync/lease.py do, in their order, without their LMDB
and threads: pages are read at the sync point; it is pinned some time after that; a pull pins the new one, moves, and
releases the old one; a lease is renewed when less than half of it is left, and made anew where it has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

from ...server.node import Node
from ...volume.calls import (
    FORK,
    PIN,
    RENEW,
    SNAPSHOT,
    UNPIN,
    ForkRequest,
    PinRequest,
    RenewRequest,
    SnapshotRequest,
    UnpinRequest,
)
from ...volume.errors import Forgotten, NotFound
from ...volume.ids import PinId, VolumeId
from ...volume.pins import Pin
from .actor import Actor
from .determinism import true_ms
from .model import Held, Snapshot, Violation, Volume
from .reading import changes_between, read_at
from .world import World

LEASE_SECONDS: Final = 7 * 86_400.0
"""As sync/lease.py has it."""


class Holder(Actor):
    """Pins, labels, releases, forks."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._released = set[PinId]()

    async def step(self) -> None:
        volume = self.volume()
        readable = volume.readable()
        own = [pin for pin, held in volume.held.items() if held.by == self.name]
        match self.random.choice(("pin", "pin", "lease", "lease", "renew", "label", "unpin", "unpin", "fork", "fork")):
            case "pin" if readable:
                await self._pin(volume, self.random.choice(readable), 0.0)
            case "lease" if readable:
                await self._pin(volume, self.random.choice(readable), self.random.choice((120.0, 5000.0, 90_000.0)))
            case "label" if readable:
                await self._label(volume, self.random.choice(readable))
            case "renew" if own:
                await self._renew(volume, self.random.choice(own))
            case "unpin" if own:
                await self._unpin(volume, self.random.choice(own))
            case "fork" if readable and len(self.world.volumes) < 5:
                await self._fork(volume, self.random.choice(readable))
            case _:
                pass

    async def _pin(self, volume: Volume, lsn: int, seconds: float) -> None:
        pin = PinId.new()

        def heard(made: Pin) -> None:
            self.world.trace.count("pins")
            volume.held[pin] = Held(lsn, made.expiry, self.name)

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
            # A label that stands is told again, though its release may be on its way.
            if made.pin_id not in self._released:
                volume.held[made.pin_id] = Held(made.lsn, made.expiry, self.name)

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
                volume.held[pin] = Held(made.lsn, made.expiry, self.name)

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
        self._released.add(pin)
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
        self._released = set[PinId]()
        """Asked to be; whether that was answered or not."""

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
            if pin in self._leases and pin not in self._released:
                self._volume.held[pin] = Held(made.lsn, made.expiry, self.name)

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
            if pin in self._leases and pin not in self._released:
                self.world.trace.count("sync leases")
                volume.held[pin] = Held(lsn, made.expiry, self.name)

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
        self._released.add(pin)
        # NotFound: it was never made.
        with suppress(NotFound):
            await self.somewhere(ask)
        self._drop(pin)

    def _drop(self, pin: PinId) -> None:
        self._leases.pop(pin, None)
        self._volume.held.pop(pin, None)
