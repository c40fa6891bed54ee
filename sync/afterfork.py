"""After `os.fork`: what the child must let go of before it does anything else.

A child has the memory of its parent and only one of its threads. Locks that another thread held stay locked for ever in
it, and what the parent shares with the system (LMDB's transactions, file locks, connections) isn't the child's to end.
Whatever has such things is registered here, and its `forget` is called in the child, once, before any other code of
ours runs there.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Protocol


class Forgetful(Protocol):
    def forget(self) -> None:
        """Drop what was inherited without ending it, and make fresh locks."""
        ...


_ALL: Final[weakref.WeakSet[Forgetful]] = weakref.WeakSet()


def forgets(one: Forgetful) -> None:
    """Call `one.forget()` in every child, for as long as `one` lives."""
    _ALL.add(one)


class ForkSafeLock:
    """A lock that is free in every child. Its holder may take it again: the garbage collector closes what it finds in
    whatever thread it runs in.

    `with lock.held:` enters and leaves by C, so that no exception (Ctrl-C, the time limit of a task) comes to a thread
    that has the lock and isn't in its block.
    """

    def __init__(self) -> None:
        self.held = threading.RLock()
        forgets(self)

    def forget(self) -> None:
        self.held = threading.RLock()


def _forget_all() -> None:
    for one in list(_ALL):
        one.forget()


os.register_at_fork(after_in_child=_forget_all)
