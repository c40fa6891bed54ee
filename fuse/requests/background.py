"""Background: the tasks that a mount runs beside its requests. None of them ends the mount.

An error that a task didn't foresee is logged with its traceback, and that task is over; one that is to last as long as
the mount (`start_lasting`) begins anew after a pause.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVarTuple, cast

import trio

from ...volume.errors import BudwoodError
from .guarded import log

PAUSE_SECONDS: Final = 5.0

A = TypeVarTuple("A")


class Background:
    """A nursery whose tasks fail alone."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def start_soon(self, work: Callable[[*A], Awaitable[object]], *args: *A) -> None:
        self._nursery.start_soon(_survived, work, *args, name=work)

    def start_lasting(self, work: Callable[[], Awaitable[object]]) -> None:
        async def run() -> None:
            done = False
            while not done:
                done = await _survived(work)
                if not done:
                    await trio.sleep(PAUSE_SECONDS)

        self._nursery.start_soon(run, name=work)


async def _survived(work: Callable[[*A], Awaitable[object]], *args: *A) -> bool:
    """Whether it came to its end."""
    name = getattr(work, "__qualname__", repr(work))
    try:
        await work(*args)
    except* (BudwoodError, OSError) as group:
        for error in leaves(group):
            log.warning("%s: %s", name, error)
    except* Exception:
        log.exception("%s: a defect", name)
    else:
        return True
    return False


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors of a group, and of the groups in it."""
    found: list[BaseException] = []
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            found += leaves(cast("BaseExceptionGroup[BaseException]", each))
        else:
            found.append(each)
    return found
