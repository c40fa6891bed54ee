"""Naming: the store's namespace as a node asks and changes it, opened anew when its log is, and let go
of when nobody uses it (kept_open.py)."""

from __future__ import annotations

from weakref import WeakValueDictionary

import anyio

from ...volume.errors import Unavailable
from ...volume.ids import VolumeId
from ...volume.retention_policy import RetentionPolicy, check_policy
from ...volume.wire import NameRequest
from ..store.tree_nodes import loading
from .entry_draft import Change
from .logs import Log, Logs
from .namespace_state import Namespace, NamesState, check_names, judge_default, names_behind
from .rolled_names import NamesBehind
from .rolled_stream import RolledStream
from .streams import Part


class Naming:
    def __init__(self, logs: Logs, vid: VolumeId) -> None:
        self._logs = logs
        self._vid = vid
        self._names = WeakValueDictionary[VolumeId, Namespace]()
        """One, while somebody uses it or it is kept open."""
        self._opening = anyio.Lock()

    async def get(self, *, fresh: bool = False, glance: bool = False) -> Namespace:
        """The names; `fresh`: with everything that stood when this was called. Raises Corrupt, Unavailable."""
        while True:
            log, names = await self._open()
            try:
                if fresh:
                    await self._logs.refresh(log, glance=glance)
                await self._logs.make_sure(log)
            except Unavailable:
                if not names.ended:
                    raise
            try:
                await names.catch_up()
            except Unavailable:
                if not names.ended:
                    raise
            if not names.ended:
                self._logs.kept.use(names)
                return names

    async def _open(self) -> tuple[Log, Namespace]:
        """What this process has read of them. Raises what stops them."""
        async with self._opening:
            log, names = await self._logs.get(str(self._vid)), self._names.get(self._vid)
            if names is not None and not names.ended:
                return log, names
            if names is not None and names.stop is not None:
                names.stop.check()
            names = Namespace(self._vid)
            names.streams, names.keeps = log.streams, log

            def standing() -> tuple[NamesBehind, NamesState, list[Part]]:
                rolled = NamesBehind(log.rolled, names.id)
                return rolled, names_behind(names.vid.raw, rolled), RolledStream(log.rolled, names.id).parts()

            rolled, state, parts = await loading(standing)
            names.enter(log.rolled, rolled, state)
            await log.streams.attach(names.id, names, before=parts)
            self._names[self._vid] = names
            return log, names

    async def wait(self, after: int, timeout_seconds: float) -> int:
        """The newest revision, once it is past `after`, or when the time is up."""
        names = await self.get()
        with anyio.move_on_after(timeout_seconds):
            names = await self.get(fresh=True)
            # From here to `changed` nothing else runs, so that no change is missed.
            while names.ended or names.state.head <= after:
                if not names.ended:
                    await self._logs.watches.changed(names.id, names)
                if names.ended or names.state.head <= after:
                    names = await self.get(fresh=True, glance=True)
        return names.state.head

    async def default_policy(self, *, glance: bool = False) -> RetentionPolicy | None:
        """Of volumes that have no policy of their own. `glance`: asked again and again."""
        return (await self.get(fresh=True, glance=glance)).state.policy

    async def retain(self, policy: RetentionPolicy | None) -> None:
        """That is the default from here on. Raises BadInput."""
        if policy is not None:
            check_policy(policy)
        names = await self.get(fresh=True)
        writer = await self._logs.writer(await self._logs.get(names.id))
        await writer.submit(Change(names, judge_default(policy)))

    async def change(self, request: NameRequest) -> int:
        """The revision that it made. Raises what it was refused with."""
        check_names(request)
        names = await self.get()
        writer = await self._logs.writer(await self._logs.get(names.id))
        revision = await writer.submit(Change(names, await names.rehearsed(request, self._logs.now_ms())))
        assert isinstance(revision, int)
        return revision
