"""Systems: the VFS of each set of options that connections are opened with.

What a connection attaches by name is opened as it was itself, by its own VFS. So each set of options has one for as
long as a connection is open by it, which holds it. A program that lives long, and whose tokens or homes change, would
gather them without end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import apsw

from .system import Opened, Request, VolumeVFS

_Options = TypeVar("_Options")


class Systems(Generic[_Options]):
    """For any thread. `open_` is what opens a volume by options."""

    def __init__(self, name: str, open_: Callable[[_Options, Request], Opened]) -> None:
        self._name = name
        self._open = open_
        self._numbers = count(1)
        self._systems: WeakValueDictionary[_Options, VolumeVFS] = WeakValueDictionary()

    def connect(self, options: _Options, request: Request, *, fixed: bool, timeout_seconds: float) -> apsw.Connection:
        """An open connection. What `open_` raises comes out untouched."""
        system = self._systems.get(options)
        if system is None:
            # Of two that threads make at once, either serves.
            system = VolumeVFS(f"{self._name}-{next(self._numbers)}", partial(self._open, options))
            self._systems[options] = system
        opened = self._open(options, request)
        return system.connect_opened(opened, request, fixed=fixed, timeout_seconds=timeout_seconds)
