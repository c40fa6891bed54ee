"""State: a volume's stream as a pure function of its records (DESIGN §5; S3.24).

`apply(state, record)` answers with the next state, or with a Refusal and nothing changed. No clock, no I/O, no
randomness: the same function runs in a node that owns the log, in a process that appends to a private one, and in a
reader that only follows.

    record      wants                                           what stands then
    commit      open; base = head; lsn = base + 1; time grows   head, length, the client's last token
    close       open; head and length as they stand             closed: nothing but `open` is accepted
    open        closed; head and length as they stand           open again
    fork        open; lsn <= head                               the child is known
    tombstone   open                                            finished: nothing is accepted any more

Page sets and locations are not looked at here: admission checks them once (content.py), and history.py keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...volume.errors import AlreadyExists, BadInput, Conflict, NotFound, NotOwner, UsageError
from ...volume.ids import VolumeId
from ...volume.records import Birth, Close, Commit, Fork, Open, Record, Tombstone
from .table import Table

__all__ = ["Last", "Refusal", "StreamState", "apply", "born"]


class Last(NamedTuple):
    """A client's newest commit."""

    token: bytes
    base: int
    lsn: int
    time: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a record is not accepted, as the caller is told."""

    error: UsageError
    final: bool = False
    """No later record of the log could make it acceptable, so that nobody need look whether one stands."""


@dataclass(frozen=True, slots=True)
class StreamState:
    vid: bytes
    head: int
    """The newest LSN; where it begins, 0 or the LSN that it was forked from."""
    length: int
    """In bytes, at the head."""
    time: int
    """Of the newest commit; the next one's is later."""
    clients: Table[bytes, Last] = field(default_factory=Table[bytes, Last])
    forks: Table[bytes, int] = field(default_factory=Table[bytes, int])
    """Child → the LSN it starts from."""
    closed: Close | None = None
    finished: bool = False

    def twin(self, client: bytes, token: bytes) -> Last | None:
        """The client's newest commit, if it is the one with this token (B3: the client alone proves nothing)."""
        last = self.clients.get(client)
        return last if last is not None and last.token == token else None


def born(birth: Birth) -> StreamState:
    """The state of a volume that has no records yet. A fork's LSNs go on from its parent's."""
    return StreamState(birth.vid, birth.parent_lsn, birth.parent_length, birth.time)


def apply(state: StreamState, record: Record) -> StreamState | Refusal:
    name = VolumeId(state.vid)
    if record.vid != state.vid:
        return Refusal(BadInput(f"a record of another volume than {name}"), final=True)
    if state.finished:
        return Refusal(NotFound(f"volume {name} was removed"), final=True)
    if isinstance(record, Open):
        return _open(state, record)
    if state.closed is not None:
        message = f"volume {name} has moved to log {state.closed.to}"
        return Refusal(NotOwner(message, log=state.closed.to))
    match record:
        case Commit():
            return _commit(state, record)
        case Close():
            if (record.head, record.length) != (state.head, state.length):
                return Refusal(_conflict(state, record.head))
            return replace(state, closed=record)
        case Fork():
            return _fork(state, record)
        case Tombstone():
            return replace(state, finished=True)
        case _:
            return Refusal(BadInput(f"volume {name} holds pages; names can't be changed in it"), final=True)


def _commit(state: StreamState, record: Commit) -> StreamState | Refusal:
    if record.base != state.head:
        # A head only grows: below it, the base is too old for ever.
        return Refusal(_conflict(state, record.base), final=record.base < state.head)
    if record.lsn != record.base + 1 or record.time <= state.time:
        return Refusal(BadInput(f"a commit on LSN {record.base} can't be LSN {record.lsn} at {record.time}"))
    if not 0 <= record.floor <= min(state.length, record.length):
        message = f"a commit's floor lies between 0 and the lengths before and after it, {record.floor} does not"
        return Refusal(BadInput(message))
    last = Last(record.token, record.base, record.lsn, record.time)
    clients = state.clients.put(record.client, last)
    return replace(state, head=record.lsn, length=record.length, time=record.time, clients=clients)


def _open(state: StreamState, record: Open) -> StreamState | Refusal:
    if state.closed is None:
        return Refusal(AlreadyExists(f"volume {VolumeId(state.vid)} is open already"))
    if (record.head, record.length) != (state.head, state.length):
        return Refusal(_conflict(state, record.head))
    return replace(state, closed=None)


def _fork(state: StreamState, record: Fork) -> StreamState | Refusal:
    if record.lsn > state.head:
        return Refusal(NotFound(f"volume {VolumeId(state.vid)} has no LSN {record.lsn}; its newest is {state.head}"))
    if state.forks.get(record.child) not in (None, record.lsn):
        return Refusal(AlreadyExists(f"{VolumeId(record.child)} is a fork of another LSN"), final=True)
    return replace(state, forks=state.forks.put(record.child, record.lsn))


def _conflict(state: StreamState, base: int) -> Conflict:
    message = f"volume {VolumeId(state.vid)} is at LSN {state.head}, not {base}: pull, then commit again"
    return Conflict(message, head=state.head)
