"""Stream states: what the streams of one log come to, record by record, by the functions that admitted them.

A stream's state is made when the log first carries something for it: of its birth, of an `open`, or of the rollup that
this reading goes by (`rebase`). So memory holds the streams that came up since that rollup.

Behind an entry that is lost nobody knows what a stream comes to. From there to the next rollup states are `adrift`: a
record that doesn't follow is taken at its word, and nothing is said of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec

from ...volume.errors import BadInput, Corrupt, Unsupported
from ...volume.ids import VolumeId
from ...volume.records import Close, Commit, NameChange, Open, Record, Retain
from ..metastore.namespace_state import NamesState, apply_change, names_behind
from ..metastore.rolled_names import NamesBehind
from ..metastore.rolled_stream import RolledLog, RolledStream
from ..metastore.state import Refusal, StreamState, apply, born, carried_over
from ..metastore.streams import Part
from ..store.tree_nodes import loading
from .births import Births
from .findings import words_of
from .moves import Moves, fingerprint

State: TypeAlias = StreamState | NamesState


class Taken(NamedTuple):
    records: tuple[Record, ...]
    """As far as they can be read."""
    problems: tuple[str, ...]
    """With the entry that carries them."""
    missing_birth: bool = False


class StreamStates:
    def __init__(self, log: str, names: str, births: Births, base: RolledLog, moves: Moves) -> None:
        self._log = log
        self._names = names
        """The id of the store's namespace; "" where the root can't be read."""
        self._births = births
        self._base = base
        self._moves = moves
        self._states: dict[str, State | None] = {}
        """None: the stream can't be followed any more."""
        self.adrift = False

    def rebase(self) -> None:
        """The rollup has moved on, and what it says is what was followed here."""
        self._states = {}
        self.adrift = False

    async def head_of(self, stream: str) -> int:
        """The newest LSN that is known here; -1 where nothing is."""
        state = await self._state(stream)
        if state is not None:
            return state.head
        birth = None if stream in self._states else await self._births.get(stream)
        return birth.parent_lsn if birth is not None and birth.log == self._log else -1

    async def take(self, stream: str, part: Part, *, quiet: bool = False) -> Taken:
        """`quiet` where it was checked before."""
        try:
            records = part.read()
        except (Corrupt, Unsupported) as error:
            self._states[stream] = None
            return Taken((), (words_of(part.key, error),))
        try:
            if await self._is_names(stream, records[0]):
                return Taken(records, await self._take_names(stream, records))
            return await self._take_volume(stream, part, records, quiet=quiet)
        except (Corrupt, Unsupported):
            # A node of the rollup can't be read, which whoever looks at that says.
            self._states[stream] = None
            return Taken(records, ())

    async def _is_names(self, stream: str, record: Record) -> bool:
        if isinstance(record, NameChange) or stream == self._names:
            return True
        # A default policy says nothing of names: where the root can't be read, it is one if no volume has the stream.
        return not self._names and isinstance(record, Retain) and await self._births.get(stream) is None

    async def _take_names(self, stream: str, records: tuple[Record, ...]) -> tuple[str, ...]:
        if self._names and stream != self._names:
            return (f"it changes names in {stream}, which is not the store's namespace",)
        state = await self._state(stream, names=True)
        if state is None:
            if stream in self._states:
                return ()
            state = NamesState(VolumeId.parse(stream).raw)
        for record in records:
            assert isinstance(state, NamesState)
            after = await loading(partial(apply_change, state, record))
            if isinstance(after, Refusal):
                if not (self.adrift and isinstance(record, NameChange)):
                    self._states[stream] = None
                    return (f"it carries what can't be: {after.error}",)
                after = replace(state, head=record.lsn, time=record.time)
            state = after
        self._states[stream] = state
        return ()

    async def _take_volume(self, stream: str, part: Part, records: tuple[Record, ...], *, quiet: bool) -> Taken:
        state = await self._state(stream)
        if state is None and stream in self._states:
            return Taken(records, ())
        birth = None
        if state is None and not isinstance(records[0], Open):
            birth = await self._births.get(stream)
            if birth is None:
                self._states[stream] = None
                return Taken(records, (), missing_birth=True)
            if birth.log != self._log and not self.adrift:
                self._states[stream] = None
                return Taken(records, (f"volume {stream} goes on in it from where it never was",))
        for record in records:
            if state is None and birth is not None:
                state = born(birth)
            assert state is None or isinstance(state, StreamState)
            after = await loading(partial(self._after, state, record))
            if isinstance(after, Refusal):
                if not self.adrift or state is None:
                    self._states[stream] = None
                    return Taken(records, (f"it carries what can't be: {after.error}",))
                after = _by_its_word(state, record)
            if isinstance(record, Open):
                await self._moves.opened(stream, record, self._log, part.key, quiet=quiet)
            if isinstance(record, Close) and not self.adrift:
                await self._moves.closed(stream, self._log, part.slot, await loading(partial(fingerprint, after)))
            state = after
        self._states[stream] = state
        return Taken(records, ())

    def _after(self, state: StreamState | None, record: Record) -> StreamState | Refusal:
        """Raises NotLoaded."""
        if isinstance(record, Open) and (state is None or state.closed is not None or self.adrift):
            if state is None:
                return carried_over(record, _NO_CLIENTS, _NO_FORKS)
            return carried_over(record, state.clients, state.forks)
        if state is None:
            return Refusal(BadInput("it goes on from where it never was"))
        return apply(state, record)

    async def _state(self, stream: str, *, names: bool = False) -> State | None:
        """`names` where it is a namespace, though the root could not say so."""
        if stream in self._states:
            return self._states[stream]
        rolled = RolledStream(self._base, stream)
        try:
            if names or stream == self._names:
                state: State | None = await loading(partial(_rolled_names, self._base, rolled, stream))
            else:
                state = await loading(partial(_rolled_state, rolled, stream))
        except (Corrupt, Unsupported, BadInput):
            # The rollup is damaged there, which whoever looks at it says.
            self._states[stream] = state = None
        if state is not None:
            self._states[stream] = state
        return state


_NO_CLIENTS = StreamState(b"", 0, 0, 0).clients
_NO_FORKS = StreamState(b"", 0, 0, 0).forks


def _rolled_state(rolled: RolledStream, stream: str) -> StreamState | None:
    """Raises NotLoaded, Corrupt; Unsupported where what the rollup has of it can't be followed."""
    state = rolled.state()
    if rolled.unfollowed():
        raise Unsupported(f"{stream} can't be followed")
    if state is None:
        return None
    return rolled.restored(state.stays[-1], VolumeId.parse(stream).raw, finished=state.finished)


def _rolled_names(base: RolledLog, rolled: RolledStream, stream: str) -> NamesState | None:
    """As `_rolled_state`."""
    if rolled.unfollowed():
        raise Unsupported(f"{stream} can't be followed")
    behind = NamesBehind(base, stream)
    return None if behind.state() is None else names_behind(VolumeId.parse(stream).raw, behind)


def _by_its_word(state: StreamState, record: Record) -> StreamState:
    match record:
        case Commit():
            return msgspec.structs.replace(state, head=record.lsn, length=record.length, time=record.time, closed=None)
        case Close():
            return msgspec.structs.replace(state, head=record.head, length=record.length, closed=record)
        case _:
            return state
