"""Autosync: what goes on underneath: commits and names are pushed, and what others pushed is pulled.

**Volumes** are synced by the engine that syncs any home (sync/autosync.py), in threads of its own. Of all processes of
the home the mount comes first; what a `budwood autosync` had under way is waited for. What programs have open is waited
for by a long poll each, and so is what was used lately, up to a limit; beyond that they are asked about in turn. A pull
moves heads by the event loop, which settles what that does to those who have the file open (moving.py); where it can't
be now, it is tried again.

**Names** are the mount's, whoever syncs the volumes: nobody else pushes them unasked. They are pushed as volumes are, a
second after the last change. A name that is gone by then never reaches the remote.

**Trouble.** No network is no error (uplink.py). Whatever else keeps a volume from syncing is told in its `status`, and
in the log once.

What a person asked for goes first: the engine begins nothing of that volume meanwhile. It raises its errors.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Final, TypeVar

import trio

from ...sync.autosync import Autosync
from ...sync.autosync_pace import BUSY_SECONDS, OFFLINE, Pace
from ...sync.divergence import OnDiverged
from ...sync.edge import Edge
from ...sync.poll_slots import PollSlots
from ...sync.pull import Move
from ...sync.tables import Head
from ...sync.volume import Volume
from ...volume.errors import BudwoodError, Busy
from ...volume.ids import VolumeId
from ..names.nameops import Naming
from ..requests.guarded import counters, log
from ..requests.in_thread import in_thread
from .moving import Moving
from .swap import PATIENCE_SECONDS, QUIET_PATIENCE_SECONDS
from .uplink import Uplink

MOST_WATCHED: Final = 64
TURNS_PER_SECOND: Final = 4.0
"""Of those that are open, or were used lately, and have no long poll."""
LATELY_SECONDS: Final = 60.0
_THREADS: Final = 16
_STEP_SECONDS: Final = 0.1

T = TypeVar("T")


class Syncing:
    """For the mount's event loop. `on_diverged`: what is done about volumes, or None where nothing is done unasked."""

    def __init__(self, edge: Edge, naming: Naming, moving: Moving, *, on_diverged: OnDiverged | None) -> None:
        self.edge = edge
        self.engine: Autosync | None = None
        """While it runs, which is not before `run`, and not where nothing is done unasked."""
        self.slots = PollSlots(MOST_WATCHED, TURNS_PER_SECOND, LATELY_SECONDS)
        self.names = Pace(random.random)
        self.on_pushed: Callable[[bytes], None] = lambda _vid: None
        self._on_diverged = on_diverged
        self._naming = naming
        self._moving = moving
        self._pushes = self._pulls = 0
        """That a person asked for."""
        self._links: dict[str, Uplink] = {}
        self._asked: dict[bytes, trio.Lock] = {}
        self._asked_names = trio.Lock()
        self._stirred = trio.Event()
        self._threads = trio.CapacityLimiter(_THREADS)

    @property
    def background(self) -> bool:
        """Whether anything is done unasked."""
        return self._on_diverged is not None

    @property
    def pushes(self) -> int:
        return self._pushes + (sum(self.engine.counts.pushes.counts) if self.engine is not None else 0)

    @property
    def pulls(self) -> int:
        return self._pulls + (sum(self.engine.counts.pulls.counts) if self.engine is not None else 0)

    def error_of(self, vid: bytes) -> str:
        return "" if self.engine is None else self.engine.error_of(vid)

    def forget(self, vid: bytes) -> None:
        """The volume is gone."""
        self._asked.pop(vid, None)

    def opened(self, vid: bytes) -> None:
        """Someone will want to see what changes, until it is `closed`."""
        self.slots.open(vid, time.monotonic())
        if self.engine is not None:
            self.engine.stir(vid)

    def closed(self, vid: bytes) -> None:
        self.slots.close(vid)

    def stir_names(self) -> None:
        if self.background:
            self.names.committed(trio.current_time())
            self._stirred.set()

    def link(self) -> Uplink:
        """To where the names are."""
        url = self._naming.namespace.url()
        if url not in self._links:
            self._links[url] = Uplink(url, self._try_again)
        return self._links[url]

    def _try_again(self) -> None:
        """The remote of the names answers again: what waited for that is due."""
        if not self.names.error:
            self.names.retry = 0.0
        if self.engine is not None:
            self.engine.wake()

    # What a person may ask for

    async def push(self, volume: Volume, as_name: str | None = None) -> str:
        label = await self._apart(volume, lambda: volume.push(as_name=as_name))
        self._pushes += 1
        self.on_pushed(volume.id.raw)
        return label

    async def pull(self, volume: Volume) -> str:
        move = self._mover(volume.id, apart=False, patience_seconds=PATIENCE_SECONDS)
        label = await self._apart(volume, lambda: volume.pull(move=move))
        self._pulls += 1
        return label

    async def reset(self, volume: Volume, *, keep_as: str | None, discard: bool) -> str:
        move = self._mover(volume.id, apart=True, patience_seconds=PATIENCE_SECONDS)
        label = await self._apart(volume, lambda: volume.reset(keep_as=keep_as, discard=discard, move=move))
        await self._naming.refresh()
        return label

    async def push_names(self) -> list[str]:
        """What had to take another name."""
        async with self._asked_names:
            said = await self.in_thread(self._naming.namespace.push)
        self.names.worked()
        await self._naming.refresh()
        return said

    async def pull_names(self) -> list[str]:
        """The names that changed here."""
        before = {file.vid for file in self._naming.tree.files() if file.parent is not None}
        async with self._asked_names:
            changed = await self.in_thread(self._naming.namespace.pull)
        self.names.worked()
        await self._naming.refresh()
        await self._sweep(before)
        return sorted(changed)

    async def _sweep(self, before: set[bytes]) -> None:
        """Of what had a name before and has none now: what is open goes with its last handle, the rest at once."""
        files = list(self._naming.tree.files())
        kept = {file.vid for file in files if file.parent is not None or file.open_handles}
        for vid in before - kept:
            await self._naming.sweeping.drop(vid)

    async def _apart(self, volume: Volume, work: Callable[[], T]) -> T:
        """What was asked for, in a thread: one at a time of each volume, and nothing of the engine's meanwhile."""
        engine = self.engine

        def run() -> T:
            with nullcontext() if engine is None else engine.apart(volume.id.raw):
                return work()

        async with self._asked.setdefault(volume.id.raw, trio.Lock()):
            return await self.in_thread(run)

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await in_thread(work, limiter=self._threads)

    def _mover(
        self, vid: VolumeId, *, apart: bool, patience_seconds: float, token: trio.lowlevel.TrioToken | None = None
    ) -> Move:
        """Has the head moved by the event loop, for a thread that pulls or resets; with its `token` for any thread."""

        async def work(step: Callable[[], Head]) -> Head:
            moved: list[Head] = []
            await self._moving.move(
                vid.raw, lambda: moved.append(step()), apart=apart, patience_seconds=patience_seconds
            )
            return moved[0]

        return lambda step: trio.from_thread.run(work, step, trio_token=token)

    # The background

    async def run(self) -> None:
        """For as long as the mount lives, or until the engine ends by a mistake. Raises that: begin it anew then."""
        assert self._on_diverged is not None
        token, broken = trio.lowlevel.current_trio_token(), trio.Event()
        self.edge.mover = lambda vid, apart: self._mover(
            vid, apart=apart, patience_seconds=QUIET_PATIENCE_SECONDS, token=token
        )

        def pushed(volume: Volume) -> None:
            if self._naming.namespace.owes_attributes(volume.id.raw):
                _soon(token, self.stir_names)

        def mistaken(error: BaseException, ends: bool) -> None:
            log.error("autosync: a defect", exc_info=error)
            if ends:
                _soon(token, broken.set)

        engine = self.engine = Autosync(
            self.edge,
            on_diverged=self._on_diverged,
            say=log.warning,
            is_mount=True,
            slots=self.slots,
            on_answer=partial(_soon, token, lambda: self.link().nudge()),
            on_pushed=pushed,
            on_mistake=mistaken,
            served=counters.requests.total,
        )
        try:
            self.stir_names()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._push_names_when_due)
                await broken.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.engine = None
            # What it has under way may need this loop to end.
            with trio.CancelScope(shield=True):
                await in_thread(engine.close)

    async def _push_names_when_due(self) -> None:
        while True:
            await self._stirred.wait()
            if self.names.first is None:
                self._stirred = trio.Event()
            elif self.names.may_push(trio.current_time()):
                await self._push_names_quietly()
            else:
                await trio.sleep(_STEP_SECONDS)

    async def _push_names_quietly(self) -> None:
        pace, link, began = self.names, self.link(), trio.current_time()
        since, pace.first = pace.first, None
        if not link.url:
            return
        try:
            for line in await self.push_names():
                log.warning("names: %s", line)
            link.works()
        except BudwoodError as error:
            pace.first = since
            if isinstance(error, OFFLINE):
                link.fails(error, since=began)
                pace.retry = trio.current_time() + link.pause_seconds
            elif isinstance(error, Busy):
                pace.retry = trio.current_time() + BUSY_SECONDS
            else:
                self.names_failed("pushing names", error)

    def names_failed(self, what: str, error: BudwoodError) -> None:
        if self.names.failed(trio.current_time(), error):
            log.warning("%s: %s", what, error)


def _soon(token: trio.lowlevel.TrioToken, work: Callable[[], object]) -> None:
    """In the mount's event loop, unless that has ended."""
    try:
        token.run_sync_soon(work)
    except trio.RunFinishedError:
        return
