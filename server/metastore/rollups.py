"""Rollups: written in the background by whoever appends to a log, and followed by whoever reads it (DESIGN §4, rule 9).

One is due when as many entries have come since the last as are worth the nodes that it will write: `FEWEST` at least,
`A_NODE` for each node that the last one wrote, and `MOST` at most, or so many that they take `TAIL_BYTES` of memory. So
the tail that opening a log reads is bounded, and so is what is written over and over.

    nodes → rollup → this process goes by it → the next entry names it

Who is cut off leaves nodes, or a rollup, that nobody names.

Crash windows (each a fault point): rollup: nodes written, rollup not · rollup: written, not named.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from anyio.abc import TaskGroup

from ...volume import faults
from ...volume.errors import BadInput, BudwoodError, Corrupt, NotFound, Unsupported
from ...volume.ids import VolumeId
from ...volume.records import Birth
from ...volume.rollup import Rollup, nodes_folder, rollup_key, slot_of_rollup
from ..log.chain import slot_covered_by
from ..log.reader import LogReader, read_rollup
from ..store.protocol import Store
from ..store.retrying import Patience, create_settled
from ..store.tree_nodes import Nodes, loading, several_at_once
from .births import read_birth
from .rolled_names import NamesBehind
from .rolled_stream import RolledLog, RolledStream
from .rollup_builder import build_rollup
from .single_flight import Backoff, SingleFlight
from .streams import Streams

FEWEST: Final = 64
A_NODE: Final = 8
MOST: Final = 1024
"""Entries."""

TAIL_BYTES: Final = 16 << 20
"""Of memory, that what came since the last rollup may take."""

NODE_BYTES: Final = 32 << 20
"""Nodes of all logs' rollups that are kept in memory."""

_CLOSING_SECONDS: Final = 5.0

_NODES_WRITTEN: Final = faults.point("rollup: nodes written, rollup not")
_WRITTEN: Final = faults.point("rollup: written, not named")

_logger: Final = logging.getLogger(__name__)


class LogRollup:
    """The newest rollup that one reading of a log goes by, and when the next is due. Belongs to one event loop."""

    def __init__(self, reader: LogReader, streams: Streams, rolled: RolledLog, rollups: Rollups) -> None:
        self._reader = reader
        self._streams = streams
        self._rolled = rolled
        self._rollups = rollups
        self._due = FEWEST
        """So many entries after the last."""
        self._pauses = Backoff(rollups.patience.now)
        self._damaged = False

    @property
    def is_due(self) -> bool:
        behind = self._reader.chain.next - 1 - self._rolled.slot
        due = behind >= self._due or (behind >= FEWEST and self._streams.tail_bytes >= TAIL_BYTES)
        return due and not self._damaged and not self._pauses.left_seconds()

    def begin(self) -> None:
        """Write one in the background, if it is due."""
        if self.is_due:
            self._rollups.begin(self._reader.log, self._write)

    def named(self, name: str) -> None:
        """An entry has named a rollup. If it is another's, go by it, in the background."""
        if slot_of_rollup(name) > self._rolled.slot:
            self._rollups.begin(self._reader.log, partial(self._follow, name))

    async def _write(self) -> None:
        if slot_covered_by(self._reader.rollup) > self._rolled.slot:
            # Another's was named while something else was under way.
            await self._follow(self._reader.rollup)
        try:
            if self.is_due:
                await self.write()
        except (Corrupt, Unsupported):
            self._damaged = True
            _logger.exception("log %s can't be rolled up", self._reader.log)
        except BudwoodError as error:
            self._pauses.tried()
            _logger.warning("log %s is not rolled up now: %s", self._reader.log, error)
        except Exception:
            self._damaged = True
            raise

    async def write(self) -> None:
        """Write one that covers everything that was read. Raises Corrupt, Unavailable."""
        store, patience, log = self._rollups.store, self._rollups.patience, self._reader.log
        chain = self._reader.chain
        tails = self._streams.tails(chain.next - 1)
        births = await self._births(list(tails))
        built = await build_rollup(self._rolled, chain, tails, births)
        await self._rollups.nodes.save(nodes_folder(log), built.made)
        _NODES_WRITTEN()
        key = rollup_key(log, built.name)
        if await create_settled(store, key, built.data, patience) is not None:
            raise Corrupt(key, "other bytes stand there than its name says")
        _WRITTEN()
        self._due = min(max(FEWEST, A_NODE * len(built.made)), MOST)
        self._go_by(built.name, built.rollup)

    async def _follow(self, name: str) -> None:
        try:
            rollup = await read_rollup(self._rollups.store, self._reader.log, name, self._rollups.patience)
            await self._load_ahead(name, rollup)
        except BudwoodError as error:
            _logger.warning("log %s: what came before its newest rollup stays in memory: %s", self._reader.log, error)
            return
        self._go_by(name, rollup)

    async def _load_ahead(self, name: str, rollup: Rollup) -> None:
        """What those who are open ask it for when it moves on: else they let go of nothing."""
        ahead = RolledLog(self._rollups.nodes, self._reader.log)
        ahead.move_on(name, rollup)
        await several_at_once([partial(loading, partial(_state_of, ahead, stream)) for stream in self._streams.taken()])

    def _go_by(self, name: str, rollup: Rollup) -> None:
        if self._reader.ended is None and self._rolled.slot < rollup.slot < self._reader.chain.next:
            self._reader.rollup = name
            self._rolled.move_on(name, rollup)
            self._streams.rebase(rollup.slot)

    async def _births(self, streams: list[str]) -> dict[str, Birth]:
        """Of those that the rollup doesn't know yet."""

        unknown: list[VolumeId] = []

        async def look(stream: str) -> None:
            vid = _volume_of(stream)
            if vid is not None and await loading(RolledStream(self._rolled, stream).state) is None:
                unknown.append(vid)

        await several_at_once([partial(look, stream) for stream in streams])
        return {str(vid): birth for vid, birth in (await self._rollups.births(unknown)).items()}


def _state_of(rolled: RolledLog, stream: str) -> object:
    return RolledStream(rolled, stream).state() or NamesBehind(rolled, stream).state()


def _volume_of(stream: str) -> VolumeId | None:
    try:
        return VolumeId.parse(stream)
    except BadInput:
        return None


class Rollups:
    """What the rollups of all logs of a process share."""

    def __init__(self, store: Store, tasks: TaskGroup, patience: Patience) -> None:
        self.store = store
        self.patience = patience
        self.nodes = Nodes(store, limit_bytes=NODE_BYTES, patience=patience)
        self._writing = SingleFlight[None](tasks, "rolling up log")
        self._closed = False

    def begin(self, log: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """What is under way for that log already goes on, and nothing else begins."""
        if not self._closed:
            self._writing.begin(log, work)

    def close(self) -> None:
        """Begin nothing any more. What is being written has a little time left, so that processes which live shortly
        get it done."""
        self._closed = True
        self._writing.stop(after_seconds=_CLOSING_SECONDS)

    async def births(self, vids: Iterable[VolumeId]) -> dict[VolumeId, Birth]:
        """Those that can be read, of volumes that hold pages. Raises Unavailable."""
        births: dict[VolumeId, Birth] = {}

        async def read(vid: VolumeId) -> None:
            try:
                birth = await read_birth(self.store, vid, self.patience)
            except (NotFound, Corrupt, Unsupported):
                # Nobody can open it: what it has is kept as it stands.
                return
            if birth.kind == "pages":
                births[vid] = birth

        await several_at_once([partial(read, vid) for vid in vids])
        return births
