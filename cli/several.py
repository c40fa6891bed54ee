"""Several: the same for many volumes, as many at once as wait for the network anyway. One that fails is named and stops
no other; what the others would meet as well (the remote is away, the disk is full) ends it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ..volume.errors import BudwoodError, Full, Unavailable
from .output import count_of, printable
from .progress import Step, progress

_AT_ONCE: Final = 8

T = TypeVar("T")


def for_each(
    doing: str, names: Sequence[str], work: Callable[[str, Step], T], tell: Callable[[T], object] = lambda _: None
) -> list[T]:
    """What came of each that didn't fail, in order; `tell` hears of it in that order, too. `work` tells its second
    argument how far it has come, as it would tell a bar: there it ends when the command is interrupted. `doing` is what
    the bar of all says.

    Raises what ended it; or, after all of them, an error that says how many failed.
    """
    # A command of one volume doesn't wait for it to be loaded.
    from ..volume.thread_pool import ThreadPool

    ended = threading.Event()
    done: list[T] = []
    failed = 0

    def go_on(_done: int, _total: int) -> None:
        if ended.is_set():
            raise KeyboardInterrupt

    with (
        progress(doing, unit="volumes") as step,
        ThreadPool(_AT_ONCE, thread_name_prefix="budwood-volumes") as pool,
    ):
        results = [pool.submit(work, name, go_on) for name in names]
        try:
            for number, (name, result) in enumerate(zip(names, results, strict=True), 1):
                try:
                    came_to = result.result()
                    done.append(came_to)
                    tell(came_to)
                except (Unavailable, Full):
                    raise
                except BudwoodError as error:
                    if len(names) == 1:
                        raise
                    failed += 1
                    print(f"budwood: {printable(f'{name}: {error}')}", file=sys.stderr, flush=True)
                if step is not None:
                    step(number, len(names))
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if failed:
        raise BudwoodError(f"{failed} of {count_of(len(names), 'volume')} failed, as said above; the others are done")
    return done
