"""Thread limit: what to do where the system gives this process no more threads.

How many there may be is bounded for a user (`ulimit -u`) and for a container (pids.max), and other programs use them up
too. So a thread that can't be started is no defect: whoever has work for one waits for one that is idle again, and is
told so only when none was for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from .errors import Unavailable

T = TypeVar("T")

PAUSES_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, *(0.5 for _ in range(19)))
"""Between the tries; some ten seconds."""
NO_THREAD: Final = (
    "this process may start no more threads: raise the limit of its user (ulimit -u) or container (pids.max)"
)


def is_no_thread(error: BaseException) -> bool:
    """Whether this is what Python says where a thread can't be started."""
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"


def start_thread(thread: threading.Thread) -> None:
    """Raises Unavailable where it can't be."""
    try:
        thread.start()
    except RuntimeError as error:
        if not is_no_thread(error):
            raise
        raise Unavailable(NO_THREAD) from error


async def run_patiently(
    run: Callable[[Callable[[], T]], Awaitable[T]], work: Callable[[], T], sleep: Callable[[float], Awaitable[object]]
) -> T:
    """What `work` comes to in a thread that `run` gives it, which may have to be waited for. Raises Unavailable if none
    was to be had; then `work` wasn't begun."""
    begun = False

    def begin() -> T:
        nonlocal begun
        begun = True
        return work()

    for pause in PAUSES_SECONDS:
        try:
            return await run(begin)
        except RuntimeError as error:
            if begun or not is_no_thread(error):
                raise
        await sleep(pause)
    raise Unavailable(NO_THREAD)
