"""Rollups: written in the background by whoever appends to a log, and followed by whoever reads it (DESIGN §4, rule 9).

One is due when as many entries have come since the last as are worth the nodes that it will write: `FEWEST` at least,
`A_NODE` for each node that the last one wrote, and `MOST` at most, or so many that they take `TAIL_BYTES` of memory. So
the tail that opening a log reads is bounded, and so is what is written over and over.

    nodes → rollup → the next entry names it → whoever reads the log goes by it

Each is made from the one that was named last, and named only while that still is the last: so a rollup has no node of
an older one that those in between did without, and whoever collects these goes by one rollup alone. Who is cut off, or
was not the first, leaves nodes, or a rollup, that nobody names.

Crash windows (each a fault point): rollup: nodes written, rollup not · rollup: written, not named.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from anyio.abc import TaskGroup

from ...volume import faults
from ...volume.errors import BadInput, BudwoodError, Corrupt, NotFound, Unavailable, Unsupported
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

    def __init__(
        self, reader: LogReader, streams: Streams, rolled: RolledLog, rollups: Rollups, *, others_write: bool
    ) -> None:
        self._reader = reader
        self._others_write = others_write
        """Whether others may name one at any time: then this process goes by its own only once that was named, since it
        can't go back to what it has let go of."""
        self._written: dict[str, Rollup] = {}
        """The one that it has written last, and doesn't go by yet."""
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
        return due and not self._reader.to_name and not self._damaged and not self._pauses.left_seconds()

    def begin(self) -> None:
        """Write one in the background, if it is due."""
        if self.is_due:
            self._rollups.begin(self._reader.log, self._write)

    def named(self, name: str) -> None:
        """An entry has named a rollup. If it is another's, go by it, in the background."""
        if name in self._written:
            self._go_by(name, self._written.pop(name))
        elif slot_of_rollup(name) > self._rolled.slot:
            self._rollups.begin(self._reader.log, partial(self._try_to_follow, name))

    async def follow_named(self) -> None:
        """Go by the one that was named last, or by one that may be named next. Raises Corrupt, Unsupported, and
        Unavailable, where this reading of the log has ended too."""
        while self._reader.ended is None and not self._goes_by_named:
            await self._rollups.join(self._reader.log, self._follow_named)
        if self._reader.ended is not None:
            raise self._reader.ended.with_traceback(None)

    @property
    def _goes_by_named(self) -> bool:
        return self._rolled.name in {self._reader.chain.rollup, self._reader.to_name}

    async def _follow_named(self) -> None:
        named = self._reader.chain.rollup
        if slot_covered_by(named) > self._rolled.slot:
            await self._follow(named)
        else:
            self._end_unless_named()

    async def _write(self) -> None:
        if slot_covered_by(self._reader.rollup) > self._rolled.slot:
            # Another's was named while something else was under way.
            await self._try_to_follow(self._reader.rollup)
        try:
            if self.is_due and self._end_unless_named():
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

    async def write_newest(self) -> bool:
        """Write one if any stream got more since the last; whether there is one that no entry names yet. Raises
        Corrupt, Unsupported, Unavailable."""
        await self._rollups.join(self._reader.log, self._write_newest)
        return bool(self._reader.to_name)

    async def _write_newest(self) -> None:
        if slot_covered_by(self._reader.rollup) > self._rolled.slot:
            await self._follow(self._reader.rollup)
        came = self._streams.tails(self._reader.chain.next - 1)
        if came and not self._reader.to_name and self._end_unless_named():
            await self.write()

    def _end_unless_named(self) -> bool:
        """Whether this process goes by the rollup that was named last. If it went on by one that others were quicker
        than, and nobody names a newer one, this reading of the log ends: it can't go back."""
        named = self._reader.chain.rollup
        if not self._goes_by_named and slot_covered_by(named) <= self._rolled.slot:
            self._reader.end(Unavailable(f"rollup {named} was named, and this process went by {self._rolled.name}"))
        return self._rolled.name == named

    async def write(self) -> None:
        """Write one that covers everything that was read, from the one that was named last, which this process goes
        by. Raises Corrupt, Unavailable."""
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
        self._reader.propose(built.name, built.rollup.previous)
        if self._others_write:
            self._written = {built.name: built.rollup}
        else:
            self._go_by(built.name, built.rollup)

    async def _try_to_follow(self, name: str) -> None:
        try:
            await self._follow(name)
        except BudwoodError as error:
            _logger.warning("log %s: what came before its newest rollup stays in memory: %s", self._reader.log, error)

    async def _follow(self, name: str) -> None:
        rollup = await read_rollup(self._rollups.store, self._reader.log, name, self._rollups.patience)
        await self._load_ahead(name, rollup)
        self._go_by(name, rollup)

    async def _load_ahead(self, name: str, rollup: Rollup) -> None:
        """What those who are open ask it for when it moves on: else they let go of nothing."""
        ahead = RolledLog(self._rollups.nodes, self._reader.log)
        ahead.move_on(name, rollup)
        await several_at_once([partial(loading, partial(_state_of, ahead, stream)) for stream in self._streams.taken()])

    def _go_by(self, name: str, rollup: Rollup) -> None:
        if self._reader.ended is None and self._rolled.slot < rollup.slot < self._reader.chain.next:
            self._rolled.move_on(name, rollup)
            self._streams.rebase(rollup.slot)

    async def _births(self, streams: list[str]) -> dict[str, Birth]:
        """Of those that the rollup doesn't know yet."""

        unknown: list[VolumeId] = []

        async def look(stream: str) -> None:
            vid = volume_of(stream)
            if vid is not None and await loading(RolledStream(self._rolled, stream).state) is None:
                unknown.append(vid)

        await several_at_once([partial(look, stream) for stream in streams])
        return {str(vid): birth for vid, birth in (await self._rollups.births(unknown)).items()}


def _state_of(rolled: RolledLog, stream: str) -> object:
    return RolledStream(rolled, stream).state() or NamesBehind(rolled, stream).state()


def volume_of(stream: str) -> VolumeId | None:
    """None where it is the names'."""
    try:
        return VolumeId.parse(stream)
    except BadInput:
        return None


class Rollups:
    """What the rollups of all logs of a process share."""

    def __init__(
        self,
        store: Store,
        tasks: TaskGroup,
        patience: Patience,
        birth_of: Callable[[VolumeId], Birth | None] = lambda _: None,
    ) -> None:
        """`birth_of` gives those of volumes that are open."""
        self.store = store
        self.patience = patience
        self._birth_of = birth_of
        self.nodes = Nodes(store, limit_bytes=NODE_BYTES, patience=patience)
        self._writing = SingleFlight[None](tasks, "rolling up log")
        self._closed = False

    def begin(self, log: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """What is under way for that log already goes on, and nothing else begins."""
        if not self._closed:
            self._writing.begin(log, work)

    async def join(self, log: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """As `begin`, and wait for it."""
        await self._writing.join(log, work)

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
                birth = self._birth_of(vid) or await read_birth(self.store, vid, self.patience)
            except (NotFound, Corrupt, Unsupported):
                # Nobody can open it: what it has is kept as it stands.
                return
            if birth.kind == "pages":
                births[vid] = birth

        await several_at_once([partial(read, vid) for vid in vids])
        return births
