"""Admission: what is written for a request, judged on a stream's state (DESIGN §5; rule 7).

Each function here makes a judge: pure, called with the tentative state and the time of the entry in the making, and
called again when that entry was lost. It answers with a record to write, with what stands already, or with a refusal;
a record is then put to `apply` like any other.

A record must never reach a log that its stream has left: `change_in` makes a change for one log, and refuses it once
the volume has moved to another.

A commit's base decides the LSN at which it can have landed, base + 1. So whether it did is one comparison of tokens
with the commit that stands there, however long ago: not only with the client's last.

A commit that names a fragment which is too old for its log (volume/garbage.py) is refused with PagesNotHere: a plan
that the log has acknowledged may take it out. That is judged like all the rest, on what every earlier entry says; so
whoever slept loses the slot, and is judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ...volume.checkpoint import number_of_transaction
from ...volume.encryption import EncryptionHeader
from ...volume.entry import Fragment, digest_of
from ...volume.errors import BadInput, Conflict, Forgotten, NotOwner, PagesNotHere
from ...volume.garbage import number_of_plan, time_of_fragment
from ...volume.ids import VolumeId
from ...volume.limits import MOST_SOURCES
from ...volume.records import (
    Close,
    Collect,
    Collected,
    Commit,
    CommitBound,
    Fold,
    FoldRelocating,
    Fork,
    Mode,
    Open,
    OpenRelocated,
    OpenRetained,
    OpenRuled,
    Rekey,
    Retain,
    Since,
    Tombstone,
    WriterEpoch,
)
from ...volume.retention_policy import RetentionPolicy
from ...volume.rules import REPLICATED, Offset
from ...volume.wire import CommitRequest, Committed
from ..log import transaction
from .content import Checked, Content
from .entry_draft import AlreadyStands, Change, Drafted
from .logs import Log
from .open_volume import LogPosition, Volume
from .open_volumes import continues
from .state import Refusal, StreamState, folded_by_another

Judge = Callable[[StreamState, int], Drafted | AlreadyStands | Refusal]


def change_in(
    log: str, volume: Volume, judge: Judge, *, inline: Checked | None = None, fragments: Sequence[Fragment] = ()
) -> Change[StreamState]:
    """For that log's writer. Once the volume was followed to another, its state speaks of that one."""

    def judged(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        answer = judge(state, now_ms)
        if volume.log != log and not isinstance(answer, AlreadyStands):
            words = f"volume {volume.id} has moved to log {volume.log}"
            return Refusal(NotOwner(words, log=volume.log), final=True)
        return answer

    return Change(volume, judged, inline=inline, fragments=fragments)


def twin(volume: Volume, state: StreamState, client: bytes, token: bytes) -> Committed | None:
    """The answer of this very commit, if it is the client's newest: whatever was folded since. Raises NotLoaded."""
    last = state.twin(client, token)
    return None if last is None else Committed(lsn=last.lsn, time=last.time or _time_of(volume, last.lsn))


def landed(volume: Volume, request: CommitRequest) -> Committed | None:
    """The answer of this very commit, if it stands among the acknowledged ones. Raises NotLoaded."""
    history, lsn = volume.history, request.base + 1
    if history.folded_to < lsn <= history.head:
        commit = history.at(lsn)
        if (commit.client, commit.token) == (request.client, request.token):
            return Committed(lsn=lsn, time=commit.time)
    return None


def judge_commit(volume: Volume, request: CommitRequest, content: Content, fragments_since: Callable[[], int]) -> Judge:
    """For a log that says of fragments since when they can be named."""
    # All of one epoch, so that their keys sort by the time of their ids; there may be thousands.
    first = min((fragment.key for fragment in content.fragments), default="")
    oldest = time_of_fragment(first) if first else None

    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        stands = twin(volume, state, request.client, request.token) or landed(volume, request)
        if stands is not None:
            return AlreadyStands(stands)
        stands = same_content(volume, state, request) or bound_before(volume, state, request.sources)
        if stands is not None:
            return AlreadyStands(stands)
        if request.sources and len(state.ruled.bound(request.sources, 0).sources) > MOST_SOURCES:
            return Refusal(BadInput(f"volume {volume.id} has {MOST_SOURCES} sources already: bind to another volume"))
        own = request.base > volume.history.start
        if own and request.base == state.head and request.base_time not in (0, state.time):
            words = f"LSN {request.base} of volume {volume.id} is another commit here than the one that was seen"
            return Refusal(Conflict(f"{words}: the newest was lost, and made again", head=state.head))
        if oldest is not None and oldest < fragments_since():
            words = f"pages for volume {volume.id} were sent too long ago, and never committed: send them again"
            return Refusal(PagesNotHere(words), final=True)
        time = max(state.time + 1, now_ms)
        record = _commit_of(request)(
            vid=request.vid,
            lsn=request.base + 1,
            base=request.base,
            length=request.length,
            floor=request.floor,
            pages=request.pages,
            locations=content.locations,
            client=request.client,
            token=request.token,
            nonce=request.nonce,
            content=request.content,
            setsum=request.setsum,
            time=time,
            writer_epoch=request.writer_epoch,
            bindings=request.bindings,
        )
        return Drafted(record, Committed(lsn=record.lsn, time=time))

    return judge


def _commit_of(request: CommitRequest) -> Callable[..., Commit]:
    return partial(CommitBound, sources=request.sources) if request.sources else Commit


def same_content(volume: Volume, state: StreamState, request: CommitRequest) -> Committed | None:
    """Of a replicated volume: the commit that stands where this one would, if another writer has made the same (S3.12).
    What it binds must be bound by then. One in flight is refused, and judged again when that is acknowledged
    (entry_draft.py). Raises NotLoaded."""
    lsn, history = request.base + 1, volume.history
    if state.ruled.mode != REPLICATED or not history.folded_to < lsn <= history.head:
        return None
    if not all(map(state.ruled.has, request.sources)):
        return None
    stands = history.at(lsn)
    if (stands.floor, stands.length, stands.content) != (request.floor, request.length, request.content):
        return None
    return Committed(lsn=lsn, time=stands.time)


def bound_before(volume: Volume, state: StreamState, offsets: Sequence[Offset]) -> Committed | None:
    """The commit that has bound just these offsets, the newest of their sources (S3.34). Raises NotLoaded."""
    if not offsets:
        return None
    held = [bound for bound in map(state.ruled.binding, (each.source for each in offsets)) if bound is not None]
    lsns = {bound.lsn for bound in held}
    if len(lsns) != 1 or [(bound.source, bound.offset) for bound in held] != [(o.source, o.offset) for o in offsets]:
        return None
    lsn = lsns.pop()
    return Committed(lsn=lsn, time=state.time if lsn == state.head else _time_of(volume, lsn), repeated=True)


def _time_of(volume: Volume, lsn: int) -> int:
    """0 where that is forgotten, or not acknowledged yet."""
    if lsn > volume.history.head:
        return 0
    try:
        return volume.history.at(lsn).time
    except Forgotten:
        return 0


def judge_fork(child: VolumeId, lsn: int, pin: bytes = b"") -> Judge:
    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        if state.forks.get(child.raw) == lsn:
            return AlreadyStands(None)
        return Drafted(Fork(vid=state.vid, child=child.raw, lsn=lsn, pin=pin, time=now_ms), None)

    return judge


def judge_since(since: int) -> Judge:
    """Answers with the since that stands then: it never goes back."""

    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        if since <= state.since:
            return AlreadyStands(state.since)
        return Drafted(Since(vid=state.vid, since=since, time=now_ms), since)

    return judge


def judge_since_by(policy: RetentionPolicy | None, since: int) -> Judge:
    """As `judge_since`, and nothing changes once the volume's own policy is another: who was told that it stands must
    not see the one before enforced."""
    forget = judge_since(since)

    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        return forget(state, now_ms) if state.policy == policy else AlreadyStands(state.since)

    return judge


def judge_removal(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
    return AlreadyStands(None) if state.finished else Drafted(Tombstone(vid=state.vid, time=now_ms), None)


def judge_collect(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
    """Announce that what is below `since` is about to go; answers with that since."""
    if state.since == max(state.collect, 1):
        return AlreadyStands(state.collect)
    return Drafted(Collect(vid=state.vid, since=state.since, time=now_ms), state.since)


def judge_collected(since: int) -> Judge:
    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        if since <= state.collected:
            return AlreadyStands(None)
        return Drafted(Collected(vid=state.vid, since=since, time=now_ms), None)

    return judge


def judge_retain(policy: RetentionPolicy | None) -> Judge:
    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        if policy == state.policy and not state.finished:
            return AlreadyStands(None)
        return Drafted(Retain(vid=state.vid, policy=policy, time=now_ms), None)

    return judge


def judge_mode(mode: str) -> Judge:
    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        if mode == state.ruled.mode and not state.finished:
            return AlreadyStands(None)
        return Drafted(Mode(vid=state.vid, mode=mode, time=now_ms), None)

    return judge


def judge_rekey(volume: Volume, encryption: bytes, before: bytes) -> Judge:
    """Another header of the same secret, in the place of the one that has this digest."""

    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        stands = state.ruled.encryption or volume.birth.encryption
        if stands == encryption and not state.finished:
            return AlreadyStands(None)
        if not stands:
            return Refusal(BadInput(f"volume {volume.id} isn't encrypted, and its pages stay as they are"), final=True)
        if digest_of(stands) != before:
            return Refusal(Conflict(f"volume {volume.id} has other keys by now: look at them again", head=state.head))
        wanted, held = EncryptionHeader.parse(encryption), EncryptionHeader.parse(stands)
        if wanted.id != held.id or wanted.newest < held.newest:
            return Refusal(BadInput(f"that header is not of volume {volume.id}'s own secret"), final=True)
        return Drafted(Rekey(vid=state.vid, encryption=encryption, time=now_ms), None)

    return judge


def judge_writer_epoch(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
    """Answers with the next, which is the caller's alone."""
    epoch = state.ruled.writer_epoch + 1
    return Drafted(WriterEpoch(vid=state.vid, epoch=epoch, time=now_ms), epoch)


def fate_of_fold(state: StreamState, log: str, checkpoint: str, base: str, plan: str) -> transaction.State:
    """How the transaction of a fold stands, by what its volume and its log say: `base` is the checkpoint that it began
    with, `plan` the newest garbage plan that the log has acknowledged (S1.8)."""
    number, stands = number_of_transaction(log, checkpoint), state.fold.checkpoint if state.fold else ""
    events = list[transaction.Event]()
    if stands == checkpoint:
        events.append(transaction.Event.GRANT)
    elif stands != base:
        events.append(transaction.Event.OVERTAKE)
    if number is None or (plan and number <= number_of_plan(plan)):
        # Numbers of another log say nothing in this one.
        events.append(transaction.Event.ACKNOWLEDGE)
    return transaction.after(*events)


def rejected(state: StreamState, fate: transaction.State) -> Conflict | None:
    """What to say to a fold that never will be granted; None if it was, or may be."""
    if transaction.is_grantable(fate):
        return None
    if fate is transaction.State.REJECT_PENDING:
        return folded_by_another(state)
    return Conflict(f"the fold of volume {VolumeId(state.vid)} took too long, and is rejected: begin anew")


def judge_fold(record: Fold, log: str, newest_plan: Callable[[], str]) -> Judge:
    """A fold that is to be granted in that log, whose newest garbage plan is asked for. Every transaction that took a
    number below the plan's, and isn't granted yet, is rejected with it (S1.8)."""

    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        fate = fate_of_fold(state, log, record.checkpoint, record.base, newest_plan())
        if fate is transaction.State.COMMITTED:
            return AlreadyStands(state.fold)
        refusal = rejected(state, fate)
        if refusal is not None:
            return Refusal(refusal, final=True)
        stands = msgspec.structs.replace(record, time=now_ms)
        return Drafted(stands, stands)

    return judge


def judge_close(to: str) -> Judge:
    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        if state.closed is not None and state.closed.to == to:
            return AlreadyStands(None)
        return Drafted(Close(vid=state.vid, to=to, head=state.head, length=state.length, time=now_ms), None)

    return judge


def judge_open(volume: Volume, close: LogPosition, log: Log) -> Judge:
    """The `open` in `log` that continues `close`, which the volume has taken."""

    def judge(state: StreamState, now_ms: int) -> Drafted | AlreadyStands | Refusal:
        if volume.closed_at != close or continues(log, volume, close):
            return AlreadyStands(None)
        return Drafted(_opened(volume, state, close, now_ms), None)

    return judge


def opening(volume: Volume, log: Log) -> None:
    """Look at all that `judge_open` would, if the volume were closed as it stands. Raises NotLoaded, and what stops
    it."""
    close = volume.closed_at or LogPosition(volume.log, -1)
    if volume.log != log.name:
        continues(log, volume, close)
    _opened(volume, volume.state, close, 0)


def _opened(volume: Volume, state: StreamState, close: LogPosition, now_ms: int) -> Open:
    return _open_of(state)(
        vid=state.vid,
        log=close.log,
        slot=close.slot,
        head=state.head,
        length=state.length,
        clients=tuple((client, *last[:3]) for client, last in state.clients.items()),
        history=tuple((place.log, place.slot) for place in volume.closes),
        since=state.since,
        collect=state.collect,
        collected=state.collected,
        forks=tuple(state.forks.items()),
        newest=state.time,
        fold=state.fold,
        time=now_ms,
    )


def _open_of(state: StreamState) -> Callable[..., Open]:
    """Of the kind that says what its reader must know."""
    if state.rules is not None:
        return partial(OpenRuled, policy=state.policy, rules=state.rules)
    if isinstance(state.fold, FoldRelocating):
        return partial(OpenRelocated, policy=state.policy)
    return Open if state.policy is None else partial(OpenRetained, policy=state.policy)
