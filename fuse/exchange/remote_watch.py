"""Remote watch: what others push comes here before a program sees what is old; and the names do.

The volumes that programs have open are watched (autosync.py). Of any other one it is looked whether the remote has
something newer when a program opens it.
"""

from __future__ import annotations

from typing import Final

import trio

from ...sync.autosync_pace import OFFLINE
from ...sync.namespace import Namespace
from ...sync.volume import Volume
from ...volume.calls import WAIT_NAMES, WaitNamesRequest
from ...volume.errors import BudwoodError, Busy, NotFound, WrongStore
from ..files.regular import File
from ..requests.background import Background
from ..requests.guarded import log
from ..requests.in_thread import in_thread
from .autosync import Syncing
from .uplink import ask_in_background

WAIT_SECONDS: Final = 25.0
LOOK_SECONDS: Final = 0.3
MOST_LOOKS: Final = 16
LOOKS_PER_SECOND: Final = 4.0
_SHORTEST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 15.0
_NO_STORE_SECONDS: Final = 2.0
_NOTING_STEPS: Final = 15
_NOTING_STEP_SECONDS: Final = 0.02


class RemoteWatch:
    """For the mount's event loop."""

    def __init__(self, syncing: Syncing, names: Namespace, background: Background) -> None:
        self._syncing = syncing
        self._names = names
        self._background = background
        self._looks = float(MOST_LOOKS)
        self._looked = trio.current_time()

    async def look_first(self, file: File) -> None:
        """Of a file that isn't watched: see whether the remote has newer content before a program gets the old. It is
        waited for only so long, and only so often: a program that opens thousands of files doesn't wait for each.
        """
        volume, engine = file.volume, self._syncing.engine
        if volume is None or engine is None or engine.hears_of(file.vid) or not self._may_look():
            return
        record = volume.local.record()
        if record.mode not in ("pull", "both") or not record.created:
            return
        if engine.is_offline(file.vid) or self._syncing.link().error:
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

    async def follow_names(self) -> None:
        """For as long as the mount lives."""
        names, link, pause = self._names, self._syncing.link(), 0.0
        while link.url:
            after, began = names.head(), trio.current_time()
            request, since = WaitNamesRequest(after=after, timeout_seconds=WAIT_SECONDS), began
            try:
                connection = self._syncing.edge.connection(link.url)
                newest = (await ask_in_background(connection, WAIT_NAMES, request)).lsn
                since = link.works()
                if newest > names.head() and not await self._is_own(newest):
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
                self._syncing.names_failed("pulling names", error)
                await trio.sleep(_LONGEST_PAUSE_SECONDS)

    async def _is_own(self, newest: int) -> bool:
        """Whether all that is new was made by this home, which notes it a moment after the remote tells of it."""
        for _ in range(_NOTING_STEPS):
            if newest <= self._names.head() or not self._names.is_changing():
                break
            await trio.sleep(_NOTING_STEP_SECONDS)
        return newest <= self._names.head()


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
            await in_thread(names.pull, abandon_on_cancel=True)
    except WrongStore:
        raise
    except BudwoodError as error:
        log.info("the remote's names are not known yet: %s", error)
