"""Systems: the VFS of each set of options that connections are opened with.

What a connection attaches by name is opened as it was itself, by its own VFS. So each set of options has one as long as
a volume is open through it. Of those that nobody uses the newest are kept, for who comes again: a program that lives
long, and whose tokens or homes change, would gather them without end.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Final, Generic, TypeVar

import apsw

from .system import Opened, Request, VolumeVFS

_Options = TypeVar("_Options")
_IDLE: Final = 8


class Systems(Generic[_Options]):
    """For any thread. `open_` is what opens a volume by options."""

    def __init__(self, name: str, open_: Callable[[_Options, Request], Opened]) -> None:
        self._name = name
        self._open = open_
        self._numbers = count(1)
        self._systems: dict[_Options, VolumeVFS] = {}
        """What was taken last stands last."""
        self._users: Counter[_Options] = Counter()
        """How many volumes are open by them, or being opened."""
        self._make_lock()
        os.register_at_fork(after_in_child=self._make_lock)

    def connect(self, options: _Options, request: Request, *, fixed: bool, timeout_seconds: float) -> apsw.Connection:
        """An open connection. What `open_` raises comes out untouched."""
        with self._taken(options) as system:
            opened = self._opened(options, request)
            return system.connect_opened(opened, request, fixed=fixed, timeout_seconds=timeout_seconds)

    @contextmanager
    def _taken(self, options: _Options) -> Generator[VolumeVFS]:
        with self._lock:
            self._users[options] += 1
            system = self._systems.pop(options, None)
            if system is None:
                system = VolumeVFS(f"{self._name}-{next(self._numbers)}", partial(self._opened, options))
            self._systems[options] = system
            idle = [each for each in self._systems if each not in self._users]
            for each in idle[:-_IDLE]:
                del self._systems[each]
        try:
            yield system
        finally:
            self._left(options)

    def _opened(self, options: _Options, request: Request) -> Opened:
        opened = self._open(options, request)
        with self._lock:
            self._users[options] += 1

        def close() -> None:
            try:
                opened.close()
            finally:
                self._left(options)

        return opened._replace(close=close)

    def _left(self, options: _Options) -> None:
        # SQLite is still closing the file at this moment, so its VFS goes when another one is taken.
        with self._lock:
            self._users[options] -= 1
            if not self._users[options]:
                del self._users[options]

    def _make_lock(self) -> None:
        # Its holder may take it again: the garbage collector closes what it finds in whatever thread it runs in.
        self._lock = threading.RLock()
