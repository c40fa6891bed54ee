"""Push: local commits become one remote commit.

Order, and why: the pending record captures the end before a page is read, so that commits made meanwhile leave the
captured versions alone; its token is durable BEFORE a commit is sent, so that a lost answer can be settled by asking
for the token; the sync point moves AFTER the remote acknowledged, and to the end that was captured, not to the local
head, since commits go on meanwhile (B1).

    lost answer, or a crash    the token is asked for: it landed → success · the head is elsewhere → diverged · neither
                               → sent again, same token (S2.29)
    cut off among its pages    the next push of the same end sends those that are missing (docs/design/0120)
    Conflict                   diverged: the commits stay, unpushed, until someone chooses
    PagesNotHere               the pages are sent again
    a head below the base      the remote has lost commits that it acknowledged: Corrupt, and the push stays pending

Each of success, rejection and giving up is one LMDB transaction, and does nothing unless the pending record is still
the one it speaks of. The caller of each function holds the volume's sync lock; no function holds the write lock or an
LMDB write transaction while it talks to the remote.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from types import TracebackType
from typing import Self

import msgspec

from ..volume import faults
from ..volume.calls import OUTCOME, OutcomeRequest
from ..volume.errors import (
    BadInput,
    Conflict,
    Corrupt,
    Diverged,
    Fenced,
    Full,
    NotFound,
    PagesNotHere,
    ReadOnly,
    Unavailable,
)
from ..volume.fragments import term_of
from ..volume.pack import Packer, Parcel, inline_or_streamed
from ..volume.pageset import PageSet, decode_pages, page_count
from ..volume.records import Location
from .connection import Connection
from .lmdb_errors import translated
from .local_volume import Local, SyncState
from .publish import bind_name, create_on_remote, find_name, lacks_name, publish
from .rollup import Rollup
from .rows import known_after
from .tables import DIVERGED, HERE, CommitRecord, Head, PushRecord, Txn, VolumeRecord
from .upload import upload
from .volume_keys import packing_keys

INLINE_BYTES = 1024 * 1024
"""A commit whose pages fit one segment of this size carries it along."""

NOTED_BYTES = 64 * 1024 * 1024
"""After so many bytes of segments it is noted which were sent: what a crash may cost."""

DELAYS_SECONDS = (0.1, 0.4, 1.0)

CAPTURED = faults.point("push: end captured, nothing sent")
RECORDED = faults.point("push: token durable, commit not sent")
STREAMED = faults.point("push: some pages sent, token not recorded")
NOTED = faults.point("push: what was sent is noted, some pages not sent")
ANSWERED = faults.point("push: committed, answer not recorded")
SUCCEEDED = faults.point("push: success recorded, caller not told")
UNNAMED = faults.point("push: committed, its name not bound")

Sleep = Callable[[float], None]
Progress = Callable[[int, int], None]
"""Pages done, pages in all."""


def push(
    local: Local,
    connection: Connection,
    state: SyncState,
    *,
    as_name: str | None = None,
    progress: Progress | None = None,
    sleep: Sleep = time.sleep,
) -> Head:
    """The head afterwards. A push of nothing succeeds, and asks nothing of the remote unless a name is lacking there.
    `state` was looked at under the sync lock; it isn't looked at again unless a push is settled first.

    Raises Diverged when someone committed first, AlreadyExists when the name is another volume's, Unavailable with the
    push still pending when its outcome can't be known yet.
    """
    if state.pending is not None and not state.is_under_way:
        settle(local, connection, state, sleep=sleep)
        state = local.sync_state()
    head, record, under_way = state
    if not head.unpushed:
        if lacks_name(record, head, as_name):
            publish(local, connection, record, head, as_name)
        return head
    if head.state == DIVERGED:
        raise diverged(local.name, head)
    remote_name = find_name(local, connection, record, head, as_name)
    record = create_on_remote(local, connection, record, head)
    pending = under_way or _capture(local, record.synced_ms)
    CAPTURED()
    after = _deliver(local, connection, pending, head.page_size, record, progress, sleep)
    if remote_name is not None:
        # Only now: a name leads to content from the moment at which it is there.
        UNNAMED()
        bind_name(local, connection, remote_name, after)
    if under_way is not None and after.unpushed:
        # What was committed since goes after it.
        return push(local, connection, local.sync_state(), progress=progress, sleep=sleep)
    return after


def settle(local: Local, connection: Connection, state: SyncState, *, sleep: Sleep = time.sleep) -> Head:
    """Learn what became of a push whose outcome isn't known, and finish it. One of which no commit was sent ends,
    whatever was sent of its pages. Nothing to do is the usual case.
    """
    head, record, pending = state
    if pending is None:
        return head
    if not pending.token:
        # No commit was sent under it.
        return _end(local, pending, lambda _txn, head, _later: head)
    learned = _ask(local, connection, pending)
    return learned or _deliver(local, connection, pending, head.page_size, record, None, sleep)


def diverged(name: str, head: Head, *, is_forgotten: bool = False) -> Diverged:
    lost = (
        f"; it has forgotten LSN {head.sync_remote}, so such a fork has the pages that are here, and can't be pushed"
        if is_forgotten
        else ""
    )
    return Diverged(
        f"volume {name!r} has {head.in_words}, and the remote has newer ones: apply yours to them with "
        f"`budwood replay {name}` (`merge`, if it is no database), take the remote's with "
        f"`budwood reset {name} --keep-as NEW` (or --discard), or keep both with `budwood fork {name} NEW`{lost}"
    )


def _capture(local: Local, base_ms: int) -> PushRecord:
    def capture(txn: Txn) -> PushRecord:
        head = local.head(txn)
        pending = PushRecord(
            end=head.lsn,
            base=head.sync_remote,
            start=head.sync_local,
            length=head.length,
            floor=head.floor,
            nonce=os.urandom(16),
            base_ms=base_ms if head.sync_remote else 0,
        )
        local.put_push(txn, pending)
        return pending

    return local.environment.update(capture)


def _deliver(
    local: Local,
    connection: Connection,
    pending: PushRecord,
    page_size: int,
    record: VolumeRecord,
    progress: Progress | None,
    sleep: Sleep,
) -> Head:
    """Send what was captured until its outcome is known, or can't be for now."""
    parcel: Parcel | None = None
    for delay in (*DELAYS_SECONDS, None):
        try:
            if parcel is None:
                parcel, pending = _pack(local, connection, pending, page_size, record, progress)
            RECORDED()
            committed = connection.remote.commit(parcel.request, parcel.segment)
        except PagesNotHere:
            if delay is None:
                raise
            parcel, pending = None, _noted(local, pending, forget=True)
        except BadInput:
            # Should what was sent be at fault, the next push is not.
            _noted(local, pending, forget=True)
            raise
        except Conflict as error:
            if error.head <= pending.base:
                _check_seen(local, connection, pending)
            raise _reject(local, pending) from None
        except NotFound as error:
            raise connection.mend(local.record(), error, seen=pending.base) from None
        except (Fenced, Unavailable) as error:
            if parcel is None:
                if isinstance(error, Unavailable):
                    # No commit was sent, and each segment often enough.
                    raise
                pending = _noted(local, pending)
            if not error.determinate:
                head = _ask(local, connection, pending)
                if head is not None:
                    return head
            if delay is None:
                raise
        else:
            ANSWERED()
            return _succeed(local, pending, committed.lsn, committed.time)
        sleep(delay or 0)
    raise AssertionError("the last round returns or raises")


def _pack(
    local: Local,
    connection: Connection,
    pending: PushRecord,
    page_size: int,
    record: VolumeRecord,
    progress: Progress | None,
) -> tuple[Parcel, PushRecord]:
    """Roll up, send what doesn't fit the commit, and say what to commit, once its token is durable."""
    with translated(local.environment.data_path), closing(Rollup(local, pending, page_size)) as rollup:
        sent = _Sent(local, pending, len(rollup.pages), progress)
        packer = Packer(local.vid, pending.base + 1, page_size, rollup.read, packing_keys(local, connection, record))
        packer.note(sent.pages)
        segments = packer.segments(rollup.skeleton - sent.pages, rollup.rest - sent.pages)
        inline, streamed = inline_or_streamed(segments, 0 if sent.pages else INLINE_BYTES)
        if not inline:
            with sent:
                upload(local.vid, connection, streamed, sent.landed)
        locations = tuple(sent.locations)
        request = packer.request(
            rollup.pages,
            client=local.environment.client,
            length=pending.length,
            floor=pending.floor,
            nonce=pending.nonce,
            locations=locations,
            base_time=pending.base_ms,
            writer_epoch=record.writer_epoch,
        )
    return Parcel(request, inline), _record_token(local, sent.pending, request.token, locations)


class _Sent:
    """Which pages of a push the remote has. It is noted now and then, and when the push is cut off; in a transaction
    that may be lost, since nothing depends on it."""

    def __init__(self, local: Local, pending: PushRecord, total: int, progress: Progress | None) -> None:
        self.pending = pending
        """As it stands in the store."""
        self.locations = list(pending.sent)
        self.pages = PageSet()
        for location in self.locations:
            self.pages |= decode_pages(location.object, location.pages)
        self._local = local
        self._total = total
        self._progress = progress
        self._done = len(self.pages)
        self._unnoted_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and self._unnoted_bytes:
            self._note()

    def landed(self, location: Location) -> None:
        """Raises PagesNotHere where those before it can't be committed with it: the log's writer is another since."""
        if self.locations and term_of(self.locations[0].object) != term_of(location.object):
            raise PagesNotHere(f"the pages that were sent of {self._local.name!r} can't be committed any more")
        self.locations.append(location)
        STREAMED()
        self._done += len(decode_pages(location.object, location.pages))
        self._unnoted_bytes += location.size
        if self._unnoted_bytes >= NOTED_BYTES:
            self._note()
            NOTED()
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _note(self) -> None:
        local, before = self._local, self.pending
        noted = msgspec.structs.replace(before, sent=tuple(self.locations))

        def note(txn: Txn) -> PushRecord:
            if local.push(txn) != before:
                # Settled by someone else, which whoever sends the commit finds out.
                return before
            local.put_push(txn, noted)
            return noted

        with suppress(Full, ReadOnly):
            self.pending = local.environment.update(note)
        self._unnoted_bytes = 0


def _noted(local: Local, pending: PushRecord, *, forget: bool = False) -> PushRecord:
    """The push as it stands in the store, with what was noted since; or `forget` that, where it is gone there, and all
    is to be sent again."""

    def look(txn: Txn) -> PushRecord:
        stands = local.push(txn)
        if stands is None or stands.nonce != pending.nonce:
            # Settled by someone else, which whoever sends the commit finds out.
            return pending
        if forget:
            stands = msgspec.structs.replace(stands, sent=())
            local.put_push(txn, stands)
        return stands

    return local.environment.update(look)


def _record_token(local: Local, pending: PushRecord, token: bytes, sent: tuple[Location, ...]) -> PushRecord:
    """Durable before the commit is sent: else a crash would forget that something may have landed."""
    if pending.token == token:
        return pending
    if pending.token:
        raise Corrupt(HERE, f"what was captured of volume {local.vid} for a push has changed")
    known = msgspec.structs.replace(pending, token=token, sent=sent)

    def record(txn: Txn) -> None:
        if local.push(txn) != pending:
            raise Conflict(f"the push of {local.name!r} was settled by someone else")
        local.put_push(txn, known)

    local.environment.update(record, durable=True)
    return known


def _ask(local: Local, connection: Connection, pending: PushRecord) -> Head | None:
    """What became of the token: the head if it landed, None if it is still to be sent. Raises Diverged if it never can
    be.
    """
    try:
        outcome = connection.remote.ask(
            OUTCOME,
            OutcomeRequest(local.vid.raw, client=local.environment.client.raw, token=pending.token, base=pending.base),
        )
    except NotFound as error:
        raise connection.mend(local.record(), error, seen=pending.base) from None
    if outcome.lsn:
        return _succeed(local, pending, outcome.lsn, outcome.time)
    if outcome.head < pending.base:
        _check_seen(local, connection, pending)
    if outcome.head != pending.base:
        raise _reject(local, pending)
    return None


def _check_seen(local: Local, connection: Connection, pending: PushRecord) -> None:
    """The remote speaks of an older head than the one that this push is made on, or of another commit there, which it
    may not: Corrupt if it has lost what it acknowledged, else Unavailable. The push stays pending.
    """
    connection.check_seen(local.record(), pending.base)
    raise Unavailable(
        f"{connection.url} lags behind LSN {pending.base} of {local.name!r}, which was seen before: try again"
    )


def _succeed(local: Local, pending: PushRecord, lsn: int, time_ms: int) -> Head:
    """The remote has it as `lsn`: the captured end is the sync point now. Commits made since stay unpushed."""

    def succeed(txn: Txn, head: Head, later: list[CommitRecord]) -> Head:
        local.drop_commits(txn, pending.start, pending.end)
        record = local.record(txn)
        # The size is told to others with the name, when that is pushed next.
        attributes = record.attributes.sized(pending.length)
        local.put_record(txn, msgspec.structs.replace(record, attributes=attributes, synced_ms=time_ms))
        floor = min([pending.length, *(commit.floor for commit in later)])
        return head._replace(sync_remote=lsn, sync_local=pending.end, floor=floor, unpushed=len(later), state=0)

    after = _end(local, pending, succeed)
    SUCCEEDED()
    return after


def _reject(local: Local, pending: PushRecord) -> Diverged:
    """Someone else's commit stands where ours was to go. Everything unpushed stays as it is."""
    return diverged(local.name, _end(local, pending, lambda _txn, head, _later: head._replace(state=DIVERGED)))


def _end(local: Local, pending: PushRecord, change: Callable[[Txn, Head, list[CommitRecord]], Head]) -> Head:
    """End the push by what `change` makes of the head, given the commits made since it was captured; nothing if it was
    ended before. The head afterwards.
    """

    def end(txn: Txn) -> Head:
        head = local.head(txn)
        if local.push(txn) != pending:
            return head
        after = change(txn, head, _release(local, txn, head, pending))
        local.put_head(txn, after)
        return after

    return local.environment.update(end, durable=True)


def _release(local: Local, txn: Txn, head: Head, pending: PushRecord) -> list[CommitRecord]:
    """End the push, and with it what was kept for it alone: versions that later commits superseded or cut off. Gives
    those commits.
    """
    local.put_push(txn, None)
    later = [commit for _, commit in local.commits(txn, pending.end, head.lsn)]
    if later:
        editor, tails = local.editor(txn, head.page_size), txn.cursor(local.environment.tables.tails)
        again = known_after(editor.rows, tails, page_count(min(commit.floor for commit in later), head.page_size))
        for commit in later:
            again |= decode_pages(HERE, commit.pages)
        editor.prune(again, head.lsn, None)
    return later
