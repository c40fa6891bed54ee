"""State: a volume's stream as a pure function of its records (DESIGN §5; S3.24).

`apply(state, record)` answers with the next state, or with a Refusal and nothing changed. No clock, no I/O, no
randomness: the same function runs in a node that owns the log, in a process that appends to a private one, and in a
reader that only follows.

    record      wants                                           what stands then
    commit      open; base = head; lsn = base + 1; time grows;  head, length, the client's last token
                in mode exclusive of the newest writer epoch
    commit-     as a commit; each offset that it binds grows    the same, and how far those sources were read
    bound
    close       open; head and length as they stand             closed: nothing but `open` is accepted
    open        closed; head and length as they stand           open again
    fork        open; lsn <= head; nothing collected it         the child is known
    since       open; grows, up to the head                     LSNs below it are forgotten
    collect     open; grows, up to since                        no LSN below it may be pinned any more
    collected   open; grows, up to collect                      that was done
    retain      open                                            the volume's own policy, or the store's default
    mode        open; a mode                                    who may commit
    rekey       open                                            its encryption header
    writer-     open, in mode exclusive; the next               older writers commit no more
    epoch
    fold        open; made from the checkpoint that stands;     the volume is the checkpoint, up to its LSN
                LSN doesn't go back, up to collect; nor does
                how far pages have left entries, up to the head
    tombstone   open                                            finished: only since, collect, collected and fold are
                                                                accepted

A volume that is finished may forget its head, too; any other keeps it.

Page sets and locations are not looked at here: admission checks them once (content.py), and history.py keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ...volume.errors import (
    AlreadyExists,
    BadInput,
    Conflict,
    Forgotten,
    NotFound,
    NotOwner,
    ReadOnly,
    Unsupported,
    UsageError,
)
from ...volume.ids import VolumeId, is_ephemeral
from ...volume.records import (
    Birth,
    Close,
    Collect,
    Collected,
    Commit,
    Fold,
    Fork,
    Mode,
    Open,
    Record,
    Rekey,
    Retain,
    Since,
    Tombstone,
    WriterEpoch,
    policy_of,
    rules_of,
    settled_by,
    sources_of,
)
from ...volume.retention_policy import RetentionPolicy
from ...volume.rules import EXCLUSIVE, MODES, NO_RULES, Offset, Rules
from .layered_map import LayeredMap


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


class StreamState(msgspec.Struct, frozen=True):
    """A struct, since each commit makes one: `replace` takes a tenth of a dataclass's time."""

    vid: bytes
    head: int
    """The newest LSN; where it begins, 0 or the LSN that it was forked from."""
    length: int
    """In bytes, at the head."""
    time: int
    """Of the newest commit; the next one's is later."""
    clients: LayeredMap[bytes, Last] = msgspec.field(default_factory=LayeredMap[bytes, Last])
    """Of those that aren't ephemeral."""
    forks: LayeredMap[bytes, int] = msgspec.field(default_factory=LayeredMap[bytes, int])
    """Child → the LSN it starts from."""
    since: int = 1
    """The oldest LSN that is readable whoever holds it; of a fork's LSNs those up to its first are its parent's."""
    collect: int = 0
    """What is below it may be deleted, but for what was held when it came to stand."""
    collected: int = 0
    """What is below it was deleted, but for that."""
    closed: Close | None = None
    finished: bool = False
    fold: Fold | None = None
    """The newest: its checkpoint stands for every commit up to its LSN."""
    policy: RetentionPolicy | None = None
    """Its own; None: the store's default."""
    rules: Rules | None = None
    """None: NO_RULES."""

    @property
    def ruled(self) -> Rules:
        return self.rules or NO_RULES

    def twin(self, client: bytes, token: bytes) -> Last | None:
        """The client's newest commit, if it is the one with this token (B3: the client alone proves nothing)."""
        last = self.clients.get(client)
        return last if last is not None and last.token == token else None

    @property
    def is_forgotten(self) -> bool:
        """Whether it was removed, and its head is forgotten, too."""
        return self.finished and self.since > self.head

    def forked_at(self, lsn: int) -> bool:
        """Whether a fork starts from that LSN, which that holds."""
        return any(at == lsn for _, at in self.forks.items())


def born(birth: Birth) -> StreamState:
    """The state of a volume that has no records yet. A fork's LSNs go on from its parent's."""
    since = max(1, birth.parent_lsn)
    return StreamState(birth.vid, birth.parent_lsn, birth.parent_length, birth.time, since=since)


def carried_over(record: Open, clients: LayeredMap[bytes, Last], forks: LayeredMap[bytes, int]) -> StreamState:
    """The state behind an `open`, by its own word, which is what stood at the close that it goes on from. `clients` and
    `forks` are those known here already: of the forks some may have ended elsewhere. Raises NotLoaded."""
    for client, token, base, lsn in record.clients:
        clients = clients.put(client, Last(token, base, lsn, record.newest if lsn == record.head else 0))
    stand = dict(record.forks)
    for child, _ in list(forks.items()):
        if child not in stand:
            forks = forks.without(child)
    for child, lsn in record.forks:
        forks = forks.put(child, lsn)
    return StreamState(
        record.vid,
        record.head,
        record.length,
        record.newest,
        clients,
        forks,
        record.since,
        record.collect,
        record.collected,
        fold=record.fold,
        policy=policy_of(record),
        rules=rules_of(record),
    )


def apply(state: StreamState, record: Record) -> StreamState | Refusal:
    name = VolumeId(state.vid)
    if record.vid != state.vid:
        return Refusal(BadInput(f"a record of another volume than {name}"), final=True)
    if state.finished and not isinstance(record, Since | Collect | Collected | Fold):
        return Refusal(removed(state), final=True)
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
        case Since() | Collect() | Collected():
            return _retain(state, record)
        case Retain():
            return replace(state, policy=record.policy)
        case Mode():
            return _mode(state, record)
        case Rekey():
            return _with_rules(state, replace(state.ruled, encryption=record.encryption))
        case WriterEpoch():
            return _writer_epoch(state, record)
        case Fold():
            return _fold(state, record)
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
    rules = state.ruled
    if rules.mode == EXCLUSIVE and record.writer_epoch != rules.writer_epoch:
        return Refusal(_superseded(state, record.writer_epoch))
    offsets = sources_of(record)
    refused = _backwards(state, offsets)
    if refused is not None:
        return refused
    clients = state.clients
    if not is_ephemeral(record.client):
        clients = clients.put(record.client, Last(record.token, record.base, record.lsn, record.time))
    return replace(
        state,
        head=record.lsn,
        length=record.length,
        time=record.time,
        clients=clients,
        rules=rules.bound(offsets, record.lsn) if offsets else state.rules,
    )


def _backwards(state: StreamState, offsets: tuple[Offset, ...]) -> Refusal | None:
    """Final: what is bound only grows."""
    for each in offsets:
        bound = state.ruled.binding(each.source)
        if bound is not None and state.ruled.has(each):
            words = f"source {each.source!r} of volume {VolumeId(state.vid)} is at {bound.offset} since LSN {bound.lsn}"
            return Refusal(BadInput(f"{words}, and doesn't go back to {each.offset}: read on from there"), final=True)
    return None


def _superseded(state: StreamState, epoch: int) -> ReadOnly:
    newest = state.ruled.writer_epoch
    words = f"volume {VolumeId(state.vid)} is exclusive, and writer epoch {newest} stands, not {epoch}"
    return ReadOnly(f"{words}: take the next one, if its writer is to be replaced")


def _mode(state: StreamState, record: Mode) -> StreamState | Refusal:
    if record.mode not in MODES:
        return Refusal(Unsupported(f"volume {VolumeId(state.vid)} has the unknown mode {record.mode!r}: upgrade"))
    return _with_rules(state, replace(state.ruled, mode=record.mode))


def _writer_epoch(state: StreamState, record: WriterEpoch) -> StreamState | Refusal:
    name, rules = VolumeId(state.vid), state.ruled
    if rules.mode != EXCLUSIVE:
        return Refusal(BadInput(f"volume {name} is {rules.mode}: only an exclusive one has writer epochs"))
    if record.epoch != rules.writer_epoch + 1:
        return Refusal(BadInput(f"writer epoch {record.epoch} of volume {name} can't follow {rules.writer_epoch}"))
    return _with_rules(state, replace(rules, writer_epoch=record.epoch))


def _with_rules(state: StreamState, rules: Rules) -> StreamState:
    return replace(state, rules=None if rules == NO_RULES else rules)


def _open(state: StreamState, record: Open) -> StreamState | Refusal:
    if state.closed is None:
        return Refusal(AlreadyExists(f"volume {VolumeId(state.vid)} is open already"))
    if (record.head, record.length) != (state.head, state.length):
        return Refusal(_conflict(state, record.head))
    retained = (state.since, state.collect, state.collected, state.fold, state.policy, state.rules)
    told = (record.since, record.collect, record.collected, record.fold, policy_of(record), rules_of(record))
    if told != retained:
        message = (
            f"volume {VolumeId(state.vid)} can't go on with another since, checkpoint, policy or rules than it had"
        )
        return Refusal(BadInput(message), final=True)
    return replace(state, closed=None)


def _fork(state: StreamState, record: Fork) -> StreamState | Refusal:
    if record.lsn > state.head:
        return Refusal(NotFound(f"volume {VolumeId(state.vid)} has no LSN {record.lsn}; its newest is {state.head}"))
    if state.forks.get(record.child) not in (None, record.lsn):
        return Refusal(AlreadyExists(f"{VolumeId(record.child)} is a fork of another LSN"), final=True)
    if record.lsn < state.collect and not record.pin and not state.forked_at(record.lsn):
        return Refusal(forgotten(state, record.lsn), final=True)
    return replace(state, forks=state.forks.put(record.child, record.lsn))


def _retain(state: StreamState, record: Since | Collect | Collected) -> StreamState | Refusal:
    match record:
        case Since():
            name, now, most = "since", state.since, state.head + state.finished
        case Collect():
            name, now, most = "collect", state.collect, state.since
        case Collected():
            name, now, most = "collected", state.collected, state.collect
    if record.since > most:
        message = f"the {name} of volume {VolumeId(state.vid)} can't be {record.since}: {most} is the most"
        return Refusal(NotFound(message))
    if record.since <= now:
        message = f"the {name} of volume {VolumeId(state.vid)} is {now} already: it doesn't go back to {record.since}"
        return Refusal(BadInput(message), final=True)
    match record:
        case Since():
            return replace(state, since=record.since)
        case Collect():
            return replace(state, collect=record.since)
        case Collected():
            return replace(state, collected=record.since)


def _fold(state: StreamState, record: Fold) -> StreamState | Refusal:
    stands, name = state.fold, VolumeId(state.vid)
    if record.base != (stands.checkpoint if stands else ""):
        return Refusal(folded_by_another(state), final=True)
    least, most = stands.lsn if stands else 0, min(state.collect, state.head)
    if not least <= record.lsn <= most:
        message = f"volume {name} can be folded up to an LSN from {least} to {most}, not {record.lsn}"
        return Refusal(BadInput(message))
    if not settled_by(stands) <= settled_by(record) <= state.head:
        message = f"a fold of volume {name} can't relocate its pages up to LSN {settled_by(record)}"
        return Refusal(BadInput(message))
    forks = state.forks
    for child in record.ended:
        forks = forks.without(child)
    return replace(state, fold=record, forks=forks)


def folded_by_another(state: StreamState) -> Conflict:
    """What to say to whoever has begun a fold with a checkpoint that is not the volume's any more."""
    message = f"volume {VolumeId(state.vid)} was folded by another meanwhile: begin anew, from its checkpoint"
    return Conflict(message, head=state.head)


def forgotten(state: StreamState, lsn: int, oldest: int = 0) -> Forgotten:
    """What to say to whoever asks for that LSN. `oldest` is the first that can be read, if that isn't `since`."""
    name, newest, oldest = VolumeId(state.vid), state.head, oldest or state.since
    return Forgotten(
        f"LSN {lsn} of volume {name} is forgotten, and no pin holds it: read one of {oldest} to {newest}",
        oldest=oldest,
    )


def forgotten_at(state: StreamState, oldest: int) -> Forgotten:
    """What to say to whoever asks for a time, where nobody knows which LSN was the newest then."""
    words = f"which LSN of volume {VolumeId(state.vid)} was the newest at that time is forgotten"
    return Forgotten(f"{words}: read one of {oldest} to {state.head}", oldest=oldest)


def removed(state: StreamState) -> NotFound:
    """What to say to whoever wants more of a volume that is finished."""
    return NotFound(f"volume {VolumeId(state.vid)} was removed")


def _conflict(state: StreamState, base: int) -> Conflict:
    message = f"volume {VolumeId(state.vid)} is at LSN {state.head}, not {base}: pull, then commit again"
    return Conflict(message, head=state.head)
