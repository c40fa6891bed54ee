"""Autosync: what goes on underneath: commits and names are pushed, and what others pushed is pulled.

**Who.** One process of the home syncs its volumes (sync/autosync_election.py), and while it is mounted that is the
mount; what a `budwood autosync` had under way is waited for. Names are the mount's in any case.

**Push.** A volume is pushed a second after its last commit, and within half a minute of the first where commits never
pause; whoever committed it, this mount or another process of the home. So are names. A name that is gone by then never
reaches the remote.

**Pull.** The volumes that programs have open, and those used lately, are watched: a long poll each, which needs no
thread, returns when the remote moves (`RemoteWatch`). A file that wasn't watched is looked after before it is opened,
which waits for a moment at the most. What a pull does to those who have the file open is settled in moving.py. Where it
can't be now, it is tried again.

**Trouble.** No network is no error (uplink.py). Whatever else keeps a volume from syncing is told in its `status`, and
in the log once. A diverged volume stays as it is until someone chooses.

One of push, pull and reset of a volume runs at a time. What a person asked for raises its errors.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import trio

from ...sync.autosync_election import Leadership, claim, lead_for_mount
from ...sync.autosync_pace import BUSY_SECONDS, OFFLINE, Pace
from ...sync.edge import Edge
from ...sync.local_volume import Local
from ...sync.name_table import is_reserved
from ...sync.pull import Move
from ...sync.tables import DIVERGED, Head
from ...sync.volume import Volume
from ...volume.errors import BudwoodError, Busy, NotFound
from ...volume.ids import VolumeId
from ..names.nameops import Naming
from ..requests.guarded import log
from .moving import Moving
from .swap import PATIENCE_SECONDS, QUIET_PATIENCE_SECONDS
from .uplink import Uplink

LEAD_SECONDS: Final = 0.1
"""Between two tries to lead."""
_THREADS: Final = 16
_PUSHES: Final = 4
_STEP_SECONDS: Final = 0.1

T = TypeVar("T")


@dataclass(slots=True)
class State:
    """How one volume syncs. Times are trio's."""

    gate: trio.Lock = field(default_factory=trio.Lock)
    pace: Pace = field(default_factory=lambda: Pace(random.random))
    pushing: bool = False

    def stir(self) -> None:
        self.pace.committed(trio.current_time())

    def failed(self, what: str, error: BudwoodError) -> None:
        if self.pace.failed(trio.current_time(), error):
            log.warning("%s: %s", what, error)

    def put_off(self, first: float | None, link: Uplink, what: str, error: BudwoodError, began: float) -> None:
        """What was to be pushed since `first` is tried again: `error` ended the try that was begun at `began`."""
        self.pace.first = first
        if isinstance(error, OFFLINE):
            link.fails(error, since=began)
            self.pace.retry = trio.current_time() + link.pause_seconds
        elif isinstance(error, Busy):
            self.pace.retry = trio.current_time() + BUSY_SECONDS
        else:
            self.failed(what, error)


class Syncing:
    """For the mount's event loop. `background`: whether anything is done unasked."""

    def __init__(self, edge: Edge, naming: Naming, moving: Moving, *, background: bool) -> None:
        self.edge = edge
        self.background = background
        self.pushes = self.pulls = 0
        self.on_pushed: Callable[[bytes], None] = lambda _vid: None
        self.links: dict[str, Uplink] = {}
        self.names = State()
        self._naming = naming
        self._moving = moving
        self._states: dict[bytes, State] = {}
        self._dirty: dict[bytes, State] = {}
        self._stirred = trio.Event()
        self.leads = trio.Event()
        """Whether this mount syncs the home. Its names it syncs in any case: nobody else does."""
        self._leadership: Leadership | None = None
        self._threads = trio.CapacityLimiter(_THREADS)
        self._pushes = trio.CapacityLimiter(_PUSHES)

    # What there is to do

    def state(self, vid: bytes) -> State:
        return self._states.setdefault(vid, State())

    def error_of(self, vid: bytes) -> str:
        state = self._states.get(vid)
        return state.pace.error if state is not None else ""

    def forget(self, vid: bytes) -> None:
        """The volume is gone."""
        self._states.pop(vid, None)
        self._dirty.pop(vid, None)

    def stir(self, vid: bytes) -> None:
        """The volume has a new commit."""
        if self.background:
            state = self._dirty[vid] = self.state(vid)
            state.stir()
            self._stirred.set()

    def stir_unpushed(self, vid: bytes) -> None:
        """The volume was swept. What was written when others had just taken its name away has another one now."""
        volume = self.volume(vid)
        if volume is not None and volume.local.peek().unpushed:
            self.stir(vid)

    def stir_names(self) -> None:
        if self.background:
            self.names.stir()
            self._stirred.set()

    def link(self, url: str = "") -> Uplink:
        url = self.edge.remote or url
        if url not in self.links:
            self.links[url] = Uplink(url, self._try_again)
        return self.links[url]

    def _try_again(self) -> None:
        """A remote answers again: what waited for that is due."""
        for state in (*self._dirty.values(), self.names):
            if not state.pace.error:
                state.pace.retry = 0.0

    def volume(self, vid: bytes) -> Volume | None:
        """None for one that is gone, or that no remote is known for."""
        file = self._moving.find(vid)
        if file is not None and file.volume is not None:
            volume = file.volume
        else:
            try:
                name = Local(self.edge.environment, VolumeId(vid), "").record().name
            except NotFound:
                return None
            if is_reserved(name):
                return None
            volume = self.edge.volume_here(name)
        return volume if self.edge.remote or volume.local.record().remote else None

    # What a person may ask for

    async def push(self, volume: Volume, as_name: str | None = None) -> str:
        state = self.state(volume.id.raw)
        async with state.gate:
            label = await self.in_thread(lambda: volume.push(as_name=as_name))
        state.pace.worked()
        self.pushes += 1
        self.on_pushed(volume.id.raw)
        return label

    async def pull(self, volume: Volume, *, newest: int | None = None) -> str:
        """`newest`: needless if the sync point is that far; of what goes on underneath."""
        state = self.state(volume.id.raw)
        patience = PATIENCE_SECONDS if newest is None else QUIET_PATIENCE_SECONDS
        async with state.gate:
            head = volume.local.peek()
            if newest is not None and head.sync_remote >= newest:
                return head.label
            move = self._mover(volume, apart=False, patience_seconds=patience)
            label = await self.in_thread(lambda: volume.pull(move=move))
        state.pace.worked()
        self.pulls += 1
        return label

    async def reset(self, volume: Volume, *, keep_as: str | None, discard: bool) -> str:
        state = self.state(volume.id.raw)
        async with state.gate:
            move = self._mover(volume, apart=True, patience_seconds=PATIENCE_SECONDS)
            label = await self.in_thread(lambda: volume.reset(keep_as=keep_as, discard=discard, move=move))
        state.pace.worked()
        await self._naming.refresh()
        return label

    async def push_names(self) -> list[str]:
        """What had to take another name."""
        async with self.names.gate:
            said = await self.in_thread(self._naming.namespace.push)
        self.names.pace.worked()
        await self._naming.refresh()
        for file in list(self._naming.tree.files()):
            if not file.length and file.open_handles:
                # The remote may have it by now, and others may write to it.
                self.on_pushed(file.vid)
        return said

    async def pull_names(self) -> list[str]:
        """The names that changed here."""
        before = {file.vid for file in self._naming.tree.files() if file.parent is not None}
        async with self.names.gate:
            changed = await self.in_thread(self._naming.namespace.pull)
        self.names.pace.worked()
        await self._naming.refresh()
        await self._sweep(before)
        return sorted(changed)

    async def _sweep(self, before: set[bytes]) -> None:
        """Of what had a name before and has none now: what is open goes with its last handle, the rest at once."""
        files = list(self._naming.tree.files())
        kept = {file.vid for file in files if file.parent is not None or file.open_handles}
        for vid in before - kept:
            await trio.to_thread.run_sync(self._naming.namespace.sweep, vid)
            self.stir_unpushed(vid)

    def _mover(self, volume: Volume, *, apart: bool, patience_seconds: float) -> Move:
        """Has the head moved by the event loop, for a thread that pulls or resets."""

        async def work(step: Callable[[], Head]) -> Head:
            moved: list[Head] = []
            vid = volume.id.raw
            await self._moving.move(vid, lambda: moved.append(step()), apart=apart, patience_seconds=patience_seconds)
            return moved[0]

        return lambda step: trio.from_thread.run(work, step)

    def note_trouble(self, name: str, state: State, link: Uplink | None = None) -> None:
        """Where others look who syncs this home."""
        error = state.pace.error or (link.error if link is not None else "")
        if self._leadership is None:
            return
        if error:
            self._leadership.failed(f"volume {name!r}: {error}")
        elif not any(each.pace.error for each in self._states.values()):
            self._leadership.worked()

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._threads)

    # The background

    async def run(self) -> None:
        """Push what is due, for as long as the mount lives, once it leads."""
        with ExitStack() as held:
            await self._lead(held)
            await self._push_what_is_due()

    async def _lead(self, held: ExitStack) -> None:
        """The home is this mount's to sync, as soon as whoever did it has ended what was under way."""
        home = self.edge.home
        claimed = await _when_free(lambda: claim(home))
        held.callback(claimed.release)
        leadership = self._leadership = await _when_free(lambda: lead_for_mount(home))
        held.callback(leadership.release)
        self.leads.set()

    async def _push_what_is_due(self) -> None:
        await self._begin()
        async with trio.open_nursery() as nursery:
            while True:
                await self._stirred.wait()
                now, waiting = trio.current_time(), False
                for vid, state in list(self._dirty.items()):
                    waiting |= self._start(nursery, state, now, partial(self._push_quietly, vid))
                waiting |= self._start(nursery, self.names, now, self._push_names_quietly)
                if not waiting:
                    self._stirred = trio.Event()
                await trio.sleep(_STEP_SECONDS)

    async def _begin(self) -> None:
        """What was left unpushed before."""
        for entry in await self.in_thread(lambda: list(self._naming.namespace.entries())):
            if entry.unpushed:
                self.stir(entry.vid)
        self.stir_names()

    def _start(
        self, nursery: trio.Nursery, state: State, now: float, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> bool:
        """Begin what is due; whether anything is left to be waited for."""
        if state.pushing or state.pace.first is None:
            return state.pushing
        if state.pace.may_push(now):
            state.pushing = True
            nursery.start_soon(self._run_once, state, work)
        return True

    async def _run_once(self, state: State, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            async with self._pushes:
                await work()
        finally:
            state.pushing = False

    async def _push_quietly(self, vid: bytes) -> None:
        state, began = self.state(vid), trio.current_time()
        since, state.pace.first = state.pace.first, None
        link, name = self.link(), str(VolumeId(vid))
        try:
            volume = self.volume(vid)
            if volume is None or volume.local.record().mode not in ("push", "both"):
                return
            name, link = volume.name, self.link(volume.local.record().remote)
            if volume.local.peek().state == DIVERGED:
                # Nothing can be pushed before someone chooses; the next commit comes here again.
                state.pace.error = state.pace.error or f"volume {name!r} has diverged from the remote"
                self.note_trouble(name, state)
                return
            await self.push(volume)
            link.works()
            self.note_trouble(name, state)
        except BudwoodError as error:
            if not isinstance(error, NotFound) or self.volume(vid) is not None:
                state.put_off(since, link, f"pushing {name!r}", error, began)
                self.note_trouble(name, state, link)
        finally:
            if state.pace.first is None:
                self._dirty.pop(vid, None)

    async def _push_names_quietly(self) -> None:
        state, link, began = self.names, self.link(self._naming.namespace.url()), trio.current_time()
        since, state.pace.first = state.pace.first, None
        if not link.url:
            return
        try:
            for line in await self.push_names():
                log.warning("names: %s", line)
            link.works()
        except BudwoodError as error:
            state.put_off(since, link, "pushing names", error, began)


async def _when_free(take: Callable[[], T]) -> T:
    while True:
        try:
            return take()
        except Busy:
            await trio.sleep(LEAD_SECONDS)
