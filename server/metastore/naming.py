"""Naming: the store's namespace as a node asks and changes it, opened anew when its log is (names.py, logs.py)."""

from __future__ import annotations

import anyio

from ...volume.errors import Unavailable
from ...volume.ids import VolumeId
from ...volume.wire import NameRequest
from . import waiting
from .draft import Change
from .logs import Logs
from .names import Namespace, check_names, judge_change

__all__ = ["Naming"]


class Naming:
    def __init__(self, logs: Logs, vid: VolumeId) -> None:
        self._logs = logs
        self._vid = vid
        self._names: Namespace | None = None

    async def get(self, *, fresh: bool = False, glance: bool = False) -> Namespace:
        """The names; `fresh`: with everything that stood when this was called. Raises Corrupt, Unavailable."""
        while True:
            log = await self._logs.get(str(self._vid))
            names = self._names
            if names is None or names.ended:
                names = Namespace(self._vid)
                log.streams.attach(names.id, names)
                self._names = names
            try:
                if fresh:
                    await self._logs.refresh(log, glance=glance)
            except Unavailable:
                if not names.ended:
                    raise
            if not names.ended:
                return names

    async def wait(self, after: int, timeout_seconds: float) -> int:
        """The newest revision, once it is past `after`, or when the time is up."""
        names = await self.get()
        looks = waiting.Looks()
        with anyio.move_on_after(timeout_seconds):
            while True:
                names = await self.get(fresh=True, glance=looks.glance())
                # From here to `changed` nothing else runs, so that no change is missed.
                if names.state.head > after:
                    break
                # Others append to its log too.
                with anyio.move_on_after(waiting.POLL_SECONDS):
                    await names.changed().wait()
        return names.state.head

    async def change(self, request: NameRequest) -> int:
        """The revision that it made. Raises what it was refused with."""
        check_names(request)
        names = await self.get()
        writer = await self._logs.writer(await self._logs.get(names.id))
        revision = await writer.submit(Change(names, lambda state, now_ms: judge_change(state, request, now_ms)))
        assert isinstance(revision, int)
        return revision
