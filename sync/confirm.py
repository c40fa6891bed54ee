"""Confirm: a transaction that the remote acknowledges before it is committed here (`synchronous_commit`).

Until it is acknowledged the transaction is in its writer alone, who holds the volume's write lock, and from here on the
sync lock too. What was unpushed before it is pushed first, as a commit of its own. Then the transaction is sent, made
on the sync point. Acknowledged, it is committed here, and the sync point moves to it, in one LMDB transaction.

**Invariants.** Nothing that the remote hasn't acknowledged is ever in the local store, so there is nothing to take
back. The remote takes the commit only if its head is the sync point, and one token once: so whatever becomes of the
answer or of this process, the commit is there once or not at all, and whoever commits on the state before it, this home
included, is told that the remote has moved on.

Crash windows: about to be sent (it is nowhere) · acknowledged, nothing committed here (the remote has it, the next
pull brings it) · committed here, the writer not told. No record is kept of what is under way: the remote's answer to
the next pull or commit says all that it could say.

    lost answer                the token is asked for: it landed · the head is elsewhere, so it never can: Conflict ·
                               neither: sent again, same token
    no answer in the end       Unavailable: `determinate` unless a try may have landed, or land yet
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from ..volume import faults
from ..volume.calls import OUTCOME, OutcomeRequest
from ..volume.errors import BudwoodError, Busy, Conflict, Fenced, NotFound, PagesNotHere, Unavailable, restored
from ..volume.pack import Packer, Parcel, inline_or_streamed
from ..volume.records import Location
from ..volume.wire import CommitRequest, Committed
from .connection import Connection
from .file_locks import FileLock
from .local_volume import Local, SyncState
from .overlay import Overlay
from .publish import RemoteName, bind_name, create_on_remote, find_name
from .push import DELAYS_SECONDS, INLINE_BYTES, Sleep, push
from .tables import Head, Txn, VolumeRecord
from .upload import upload
from .volume_keys import packing_keys

ABOUT = faults.point("confirm: about to be sent")
ACKNOWLEDGED = faults.point("confirm: acknowledged, nothing committed here")
LANDED = faults.point("confirm: committed here, its name not looked at")

LOCK_SECONDS: Final = 10.0
"""How long a push or pull of the volume that is under way is waited for."""
_TRY_SECONDS: Final = 0.02


@dataclass(slots=True)
class Confirmed:
    """A transaction that the remote has acknowledged. It holds the volume's sync lock until it is closed."""

    local: Local
    connection: Connection
    lock: FileLock
    committed: Committed
    remote_name: RemoteName | None
    """That the volume gets on the remote by its first commit."""
    landed: Callable[[VolumeRecord, Head], object]
    """Is told where the sync point is now."""

    def land(self, txn: Txn) -> None:
        """In the LMDB transaction of its local commit: the sync point is that commit."""
        local = self.local
        head, record = local.head(txn), local.record(txn)
        local.drop_commits(txn, head.sync_local, head.lsn)
        attributes = record.attributes.sized(head.length)
        local.put_record(txn, msgspec.structs.replace(record, attributes=attributes, synced_ms=self.committed.time))
        local.put_head(
            txn,
            head._replace(sync_remote=self.committed.lsn, sync_local=head.lsn, floor=head.length, unpushed=0, state=0),
        )

    def finish(self) -> None:
        """After the local commit. That stands, whatever goes wrong here: a name that doesn't lead to it is bound by the
        next commit or push, which also says what is in its way."""
        LANDED()
        local = self.local
        with suppress(BudwoodError):
            if self.remote_name is not None:
                bind_name(local, self.connection, self.remote_name, local.peek())
        with suppress(BudwoodError):
            self.landed(local.record(), local.peek())

    def told(self, error: BudwoodError) -> BudwoodError:
        """The error by which it couldn't be committed here."""
        words = (
            f"the remote has acknowledged this commit, as LSN {self.committed.lsn} of volume {self.local.name!r}, and "
            f"this home could not take it ({error}): pull when that is mended, and don't make it again"
        )
        return restored(type(error), (words,), vars(error))

    def close(self) -> None:
        self.lock.release()


def waited_sync_lock(local: Local, *, sleep: Sleep = time.sleep) -> FileLock:
    """Raises Busy if whoever pushes or pulls the volume doesn't end."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return local.sync_lock()
        except Busy:
            if time.monotonic() >= until:
                raise
        sleep(_TRY_SECONDS)


def confirm(
    local: Local,
    connection: Connection,
    state: SyncState,
    overlay: Overlay,
    lock: FileLock,
    landed: Callable[[VolumeRecord, Head], object],
    *,
    sleep: Sleep = time.sleep,
) -> Confirmed:
    """What the overlay holds is the remote's next commit, on the head as it stands here. The caller holds the volume's
    write lock, and its sync lock, `lock`, under which `state` was looked at.

    Raises Conflict where the remote has moved on, Diverged where it has and commits before this one are unpushed,
    AlreadyExists when the name is another volume's, Unavailable: `determinate` says whether it may have happened.
    """
    try:
        push(local, connection, state, sleep=sleep)
        head, record, _ = local.sync_state()
        assert not head.unpushed, "somebody committed under this writer's lock"
        first = head._replace(page_size=overlay.page_size, length=overlay.length, unpushed=1)
        remote_name = find_name(local, connection, record, first)
        create_on_remote(local, connection, record, first)
    except (Fenced, Unavailable) as error:
        raise _not_taken(local, error) from error
    delivery = _Delivery(local, connection, local.record(), head, overlay)
    ABOUT()
    committed = delivery.run(sleep)
    ACKNOWLEDGED()
    return Confirmed(local, connection, lock, committed, remote_name, landed)


class _Delivery:
    """One transaction on its way."""

    def __init__(
        self, local: Local, connection: Connection, record: VolumeRecord, head: Head, overlay: Overlay
    ) -> None:
        self._local = local
        self._connection = connection
        self._record = record
        self._head = head
        self._overlay = overlay
        self._nonce = os.urandom(16)
        self._may_have_landed = False

    def run(self, sleep: Sleep) -> Committed:
        parcel: Parcel | None = None
        for delay in (*DELAYS_SECONDS, None):
            try:
                parcel = parcel or self._pack()
                return self._connection.remote.commit(parcel.request, parcel.segment)
            except PagesNotHere:
                if delay is None:
                    raise
                parcel = None
            except Conflict as error:
                if error.head <= self._head.sync_remote:
                    self._connection.check_seen(self._record, self._head.sync_remote)
                raise self._moved_on(error.head) from None
            except NotFound as error:
                raise self._connection.mend(self._record, error, seen=self._head.sync_remote) from None
            except (Fenced, Unavailable) as error:
                landed = self._after(error, parcel)
                if landed is not None:
                    return landed
                if delay is None or (parcel is None and isinstance(error, Unavailable)):
                    raise self._unknown(error) from error
            sleep(delay)
        raise AssertionError("the last round returns or raises")

    def _after(self, error: Fenced | Unavailable, parcel: Parcel | None) -> Committed | None:
        """What became of a try that failed; None if it is to be tried again."""
        if parcel is None or error.determinate:
            return None
        self._may_have_landed = True
        try:
            return self._ask(parcel.request)
        except (Fenced, Unavailable):
            return None

    def _ask(self, request: CommitRequest) -> Committed | None:
        asked = OutcomeRequest(request.vid, client=request.client, token=request.token, base=request.base)
        try:
            outcome = self._connection.remote.ask(OUTCOME, asked)
        except NotFound as error:
            raise self._connection.mend(self._record, error, seen=request.base) from None
        if outcome.lsn:
            return Committed(lsn=outcome.lsn, time=outcome.time)
        if outcome.head < request.base:
            self._connection.check_seen(self._record, request.base)
        elif outcome.head > request.base:
            raise self._moved_on(outcome.head)
        return None

    def _pack(self) -> Parcel:
        local, change = self._local, self._overlay.change()
        lsn = self._head.sync_remote + 1
        packer = Packer(
            local.vid, lsn, change.page_size, self._overlay.read, packing_keys(local, self._connection, self._record)
        )
        segments = packer.segments(change.skeleton, change.pages - change.skeleton)
        inline, streamed = inline_or_streamed(segments, INLINE_BYTES)
        locations = list[Location]()
        if not inline:
            upload(local.vid, self._connection, streamed, locations.append)
        request = packer.request(
            change.pages,
            client=local.environment.client,
            length=change.length,
            floor=change.floor,
            nonce=self._nonce,
            locations=tuple(locations),
            base_time=self._record.synced_ms if self._head.sync_remote else 0,
            writer_epoch=self._record.writer_epoch,
        )
        return Parcel(request, inline)

    def _moved_on(self, newest: int) -> Conflict:
        return Conflict(
            f"volume {self._local.name!r} has moved on at the remote, from LSN {self._head.sync_remote} to {newest}: "
            "this transaction was rolled back; pull, and begin it again",
            head=newest,
        )

    def _unknown(self, error: Fenced | Unavailable) -> BudwoodError:
        name = self._local.name
        if self._may_have_landed:
            return Unavailable(
                f"whether the remote has this commit of volume {name!r} is unknown ({error}): here it was rolled back; "
                "pull before you make it again, which brings it if it is there",
                determinate=False,
            )
        return _not_taken(self._local, error)


def _not_taken(local: Local, error: BudwoodError) -> Unavailable:
    return Unavailable(
        f"this commit of volume {local.name!r} was rolled back, since the remote has not acknowledged it: {error}",
        determinate=True,
    )


Confirm = Callable[[Overlay], Confirmed]
