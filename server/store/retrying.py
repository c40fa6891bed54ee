"""Retrying: repeat what failed in passing, and find out what became of a `create` whose answer was lost (DESIGN §3).

A create that is sent twice meets itself: the second try finds the first one's object and says AlreadyExists. So
AlreadyExists is never taken at its word; what stands there is read. Bytes carry their writer and number (rule 5), so
the same bytes are ours. Nothing is ever concluded from a missing key: after a lost answer it may still arrive.

Time, sleep and randomness come with a `Patience`, so that tests wait for nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import anyio

from ...volume.errors import AlreadyExists, Full, NotFound, Unauthorized, Unavailable
from .protocol import Data, Store, buffers, length_of

T = TypeVar("T")


def _boot_seconds() -> float:
    # Where there is no CLOCK_BOOTTIME, CLOCK_MONOTONIC goes on in sleep, too.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long and how often. Pauses double from `first` to `longest`, each drawn between nothing and all of it, so
    that many clients that failed together don't come back together."""

    deadline_seconds: float = 30.0
    try_seconds: float = 60.0
    """One try that takes longer counts as failed, its outcome unknown."""
    first_pause_seconds: float = 0.05
    longest_pause_seconds: float = 2.0
    now: Callable[[], float] = anyio.current_time
    boot: Callable[[], float] = _boot_seconds
    """Goes on while the machine sleeps."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    draw: Callable[[], float] = random.random


PATIENT: Final = Patience()


class _Tries:
    """Counts the pauses of one call that is repeated."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._end = patience.now() + patience.deadline_seconds
        self._pause_seconds = patience.first_pause_seconds

    async def pause(self) -> bool:
        """Wait before the next try; false when the deadline would pass meanwhile."""
        seconds = self._pause_seconds * self._patience.draw()
        if self._patience.now() + seconds >= self._end:
            return False
        await self._patience.sleep(seconds)
        self._pause_seconds = min(2 * self._pause_seconds, self._patience.longest_pause_seconds)
        return True


async def retried(what: str, call: Callable[[], Awaitable[T]], patience: Patience = PATIENT) -> T:
    """The answer of a call that changes nothing, or may be repeated as it is (get, list, delete).

    Raises the last Unavailable when the deadline has passed, and every other error at once, as one without hope.
    """
    tries = _Tries(patience)
    while True:
        try:
            with anyio.fail_after(patience.try_seconds):
                return await call()
        except Unavailable as error:
            if error.hopeless:
                raise
            failure = error
        except TimeoutError:
            failure = Unavailable(f"no answer to {what} within {patience.try_seconds:g} s", determinate=False)
        if not await tries.pause():
            raise failure


async def get_retried(
    store: Store, key: str, *, start: int = 0, end: int | None = None, patience: Patience = PATIENT
) -> bytes:
    """`store.get`, repeated while the store is unavailable."""
    return await retried(f"get {key}", partial(store.get, key, start=start, end=end), patience)


async def create_settled(store: Store, key: str, data: Data, patience: Patience = PATIENT) -> bytes | None:
    """Create `key`; the outcome is certain when this returns: None says that `data` stands there, bytes are another's
    that do.

    Raises Unavailable when the deadline passes, not `determinate` if any of the tries may have reached the store;
    Full and Unauthorized if no try before may have reached it; and NotFound if the object was deleted while this
    looked, so that nobody can tell.
    """
    tries = _Tries(patience)
    determinate = True
    while True:
        try:
            with anyio.fail_after(patience.try_seconds):
                await store.create(key, data)
            return None
        except AlreadyExists:
            return await _other_than(store, key, data, patience)
        except Unavailable as error:
            determinate = determinate and error.determinate
            failure = str(error)
            if error.hopeless:
                raise Unavailable(f"can't create {key}: {failure}", determinate=determinate, hopeless=True) from error
        except (Full, Unauthorized) as error:
            if determinate:
                raise
            # This try was refused, but an earlier one may have happened.
            raise Unavailable(f"can't create {key}: {error}", determinate=False) from error
        except TimeoutError:
            determinate = False
            failure = f"no answer within {patience.try_seconds:g} s"
        if not await tries.pause():
            raise Unavailable(f"can't create {key}: {failure}", determinate=determinate)


async def _other_than(store: Store, key: str, data: Data, patience: Patience) -> bytes | None:
    try:
        found = await get_retried(store, key, patience=patience)
    except Unavailable as error:
        raise Unavailable(f"{key} exists, but can't be read: {error}", determinate=False) from error
    except NotFound as error:
        raise NotFound(f"{key} stood a moment ago and was deleted: whose it was can't be told") from error
    return None if same_bytes(found, data) else found


def same_bytes(found: bytes, data: Data) -> bool:
    """Whether these are the object's bytes, pieces or not."""
    if len(found) != length_of(data):
        return False
    view = memoryview(found)
    for piece in buffers(data):
        part = memoryview(piece).cast("B")
        if view[: len(part)] != part:
            return False
        view = view[len(part) :]
    return True
