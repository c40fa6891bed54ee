"""Remote watch: what others push comes here.

A watched volume has a task of its own, which waits for the remote to move, by a long poll that needs no thread, and has
it pulled. The volumes that programs have open are watched, and those used lately, up to a limit. So are the names.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Final

import trio

from ...sync.autosync_pace import OFFLINE
from ...sync.connection import Connection
from ...sync.namespace import Namespace
from ...sync.tables import DIVERGED
from ...sync.volume import Volume
from ...volume.calls import WAIT, WAIT_NAMES, WaitNamesRequest, WaitRequest
from ...volume.errors import BudwoodError, Busy, NotFound, WrongStore
from ..files.regular import File
from ..names.nameops import Naming
from ..requests.background import Background
from ..requests.guarded import log
from .autosync import Syncing
from .uplink import Uplink, ask_in_background

MOST_WATCHED: Final = 64
WAIT_SECONDS: Final = 25.0
LOOK_SECONDS: Final = 0.3
MOST_LOOKS: Final = 16
LOOKS_PER_SECOND: Final = 4.0
_SHORTEST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 15.0
_NO_STORE_SECONDS: Final = 2.0


class RemoteWatch:
    """For the mount's event loop."""

    def __init__(self, syncing: Syncing, naming: Naming, background: Background) -> None:
        self._syncing = syncing
        self._naming = naming
        self._background = background
        self._watched: OrderedDict[bytes, tuple[File, trio.CancelScope]] = OrderedDict()
        self._looks = float(MOST_LOOKS)
        self._looked = trio.current_time()

    def __len__(self) -> int:
        return len(self._watched)

    def used(self, file: File) -> None:
        """A program has opened the file, or it was pushed for the first time."""
        if not self._syncing.background or file.volume is None:
            return
        vid = file.vid
        if vid in self._watched:
            scope = self._watched[vid][1]
            self._watched[vid] = file, scope
            self._watched.move_to_end(vid)
            return
        scope = trio.CancelScope()
        self._watched[vid] = file, scope
        self._background.start_soon(self._follow, vid, scope)
        while len(self._watched) > MOST_WATCHED:
            spare = next((each for each, (known, _) in self._watched.items() if not known.open_handles), None)
            if spare is None:
                spare = next(iter(self._watched))
            self._watched.pop(spare)[1].cancel()

    async def look_first(self, file: File) -> None:
        """Of a file that isn't watched: see whether the remote has newer content before a program gets the old. It is
        waited for only so long, and only so often: a program that opens thousands of files doesn't wait for each.
        """
        volume = file.volume
        if volume is None or file.vid in self._watched or not self._may_look():
            return
        record = volume.local.record()
        if record.mode not in ("pull", "both") or not record.created or self._syncing.link(record.remote).error:
            return
        done = trio.Event()
        self._background.start_soon(self._look, volume, done)
        with trio.move_on_after(LOOK_SECONDS):
            await done.wait()

    async def _look(self, volume: Volume, done: trio.Event) -> None:
        try:
            await self._syncing.pull(volume)
        except BudwoodError as error:
            # Whoever watches it from now on meets the same, and says so.
            log.info("%s was not looked after: %s", volume.name, error)
        finally:
            done.set()

    def _may_look(self) -> bool:
        now = trio.current_time()
        self._looks = min(MOST_LOOKS, self._looks + (now - self._looked) * LOOKS_PER_SECOND)
        self._looked = now
        if self._looks < 1:
            return False
        self._looks -= 1
        return True

    def forget(self, vid: bytes) -> None:
        found = self._watched.pop(vid, None)
        if found is not None:
            found[1].cancel()

    async def _follow(self, vid: bytes, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await self._follow_until_gone(vid)
            except NotFound:
                # It was removed meanwhile.
                pass
            finally:
                if vid in self._watched and self._watched[vid][1] is scope:
                    del self._watched[vid]

    async def _follow_until_gone(self, vid: bytes) -> None:
        pause = 0.0
        await self._syncing.leads.wait()
        while True:
            volume = self._syncing.volume(vid)
            if volume is None:
                return
            record = volume.local.record()
            # What was never pushed comes back here once it is.
            if record.mode not in ("pull", "both") or not record.created:
                return
            link = self._syncing.link(record.remote)
            stays = await self._pulled(volume, self._syncing.edge.connection(record.remote), link)
            pause = longer(pause) if stays else 0.0
            await trio.sleep(pause * random.uniform(0.5, 1.0))

    async def _pulled(self, volume: Volume, connection: Connection, link: Uplink) -> bool:
        """Wait until the remote moves, and pull; whether that led nowhere: it moved and the volume could not follow, or
        it answered at once, with nothing."""
        after = volume.local.peek().sync_remote
        request = WaitRequest(volume.id.raw, after=after, timeout_seconds=WAIT_SECONDS)
        state, since = self._syncing.state(volume.id.raw), trio.current_time()
        began = since
        try:
            newest = (await ask_in_background(connection, WAIT, request)).lsn
            since = link.works()
            head = volume.local.peek()
            if newest > head.sync_remote:
                await self._syncing.pull(volume, newest=newest)
            elif newest < head.sync_remote:
                # It lags behind, or has lost commits, which the pull tells apart.
                await self._syncing.pull(volume)
            elif head.state != DIVERGED and state.pace.first is None:
                # Whatever kept it from pulling has passed.
                state.pace.error = ""
            if newest == after:
                return led_nowhere(began)
            return newest < after or volume.local.peek().sync_remote < newest
        except OFFLINE as error:
            link.fails(error, since=since)
            await link.pause()
        except Busy as error:
            # Somebody uses it; it is pulled when they pause.
            state.pace.error = str(error)
            return True
        except BudwoodError as error:
            state.failed(f"pulling {volume.name!r}", error)
            self._syncing.note_trouble(volume.name, state)
            return True
        return False

    async def follow_names(self) -> None:
        """For as long as the mount lives."""
        names, link = self._naming.namespace, self._syncing.link(self._naming.namespace.url())
        pause = 0.0
        while link.url:
            after, began = names.head(), trio.current_time()
            request, since = WaitNamesRequest(after=after, timeout_seconds=WAIT_SECONDS), began
            try:
                connection = self._syncing.edge.connection(link.url)
                newest = (await ask_in_background(connection, WAIT_NAMES, request)).lsn
                since = link.works()
                if newest > names.head():
                    await self._syncing.pull_names()
                pause = longer(pause) if names.head() == after and led_nowhere(began) else 0.0
                await trio.sleep(pause)
            except OFFLINE as error:
                link.fails(error, since=since)
                await link.pause()
            except (NotFound, Busy):
                # There is no store yet, or another process syncs the names right now.
                await trio.sleep(_NO_STORE_SECONDS)
            except BudwoodError as error:
                self._syncing.names.failed("pulling names", error)
                await trio.sleep(_LONGEST_PAUSE_SECONDS)


def longer(pause_seconds: float) -> float:
    return min(_LONGEST_PAUSE_SECONDS, max(_SHORTEST_PAUSE_SECONDS, 2 * pause_seconds))


def led_nowhere(began: float) -> bool:
    """Whether an answer that tells nothing new, to what was asked at `began` by trio's clock, came at once, instead of
    when there is something new."""
    return trio.current_time() - began < WAIT_SECONDS / 2


async def first_names(names: Namespace, seconds: float) -> None:
    """What the remote has by now, before a program can make a file of a name that is taken there: unless it takes too
    long to learn. Raises WrongStore if another store was named than the one that the home's names belong to.
    """
    try:
        with trio.move_on_after(seconds):
            await trio.to_thread.run_sync(names.pull, abandon_on_cancel=True)
    except WrongStore:
        raise
    except BudwoodError as error:
        log.info("the remote's names are not known yet: %s", error)
