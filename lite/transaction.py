"""Writer: a transaction whose commit is one commit at the remote.

Nothing is locked: the writer begins on the newest view, and whoever commits first wins; the other's COMMIT raises
Conflict, is rolled back, and its next transaction sees the new head. The pages wait in memory up to a limit, since
there is no disk to put them on.

A lost answer is settled by the token: it landed → success · another commit stands there → Conflict · neither → sent
again, same token (S2.29, B3).

What it binds (volume/rules.py) goes along with the commit. Where another commit has bound that before, it is a Conflict
too: what the transaction wrote is nowhere, and what it was to bring is there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

import msgspec

from ..remote.keyring import keys_of
from ..sqlite.btree import is_skeleton
from ..volume.calls import OUTCOME, OutcomeRequest
from ..volume.errors import BadInput, Conflict, Full, PagesNotHere, Unavailable
from ..volume.ids import ClientId
from ..volume.pack import Packed, Packer, Parcel, inline_or_streamed
from ..volume.page import zeros
from ..volume.pageset import PageSet, page_count
from ..volume.protocols import Durability
from ..volume.records import Location
from ..volume.rules import Offset
from ..volume.wire import CommitRequest, Committed
from .view import LiteSnapshot

INLINE_BYTES: Final = 1024 * 1024
"""Pages that fit one segment of this size go along with the commit: one request."""

DELAYS_SECONDS: Final = (0.1, 0.4, 1.0)


class LiteWriter:
    """Answers the protocol Writer."""

    __slots__ = (
        "_client",
        "_dirty",
        "_floor",
        "_name",
        "_offsets",
        "_open",
        "_over",
        "_sleep",
        "_source",
        "_writer_epoch",
        "length",
    )

    def __init__(
        self,
        name: str,
        client: ClientId,
        snapshot: LiteSnapshot,
        *,
        writer_epoch: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._name = name
        self._client = client
        self._source = snapshot.source
        self._over = snapshot
        self._sleep = sleep
        self._writer_epoch = writer_epoch
        self._offsets: dict[str, Offset] = {}
        self._open = True
        self._dirty: dict[int, bytes] = {}
        self._floor: int = snapshot.length
        self.length: int = snapshot.length

    def read(self, page: int) -> bytes:
        data = self._dirty.get(page)
        if data is not None:
            return data
        if page > page_count(self._floor, self._over.page_size):
            return zeros(self._over.page_size)
        return self._over.read(page)

    def write(self, page: int, data: bytes) -> None:
        """Raises Full when the transaction has outgrown its memory."""
        size = self._over.page_size
        if len(data) != size:
            raise BadInput(f"a page of volume {self._name!r} has {size} bytes, not {len(data)}")
        limit_bytes = self._source.memory_bytes
        if (len(self._dirty) + 1) * size > limit_bytes and page not in self._dirty:
            raise Full(
                f"this transaction changes more than {limit_bytes >> 20} MiB, which a lite client holds in memory: "
                "raise memory_bytes, commit more often, or use budwood.connect"
            )
        self._dirty[page] = data
        self.length = max(self.length, page * size)

    def truncate(self, length: int) -> None:
        if length < self.length:
            size = self._over.page_size
            last, rest = page_count(length, size), length % size
            if rest:
                self._dirty[last] = self.read(last)[:rest].ljust(size, b"\0")
            for page in [page for page in self._dirty if page > last]:
                del self._dirty[page]
            self._floor = min(self._floor, length)
        self.length = length

    def bind(self, offset: Offset) -> bool:
        """False where the transaction has ended."""
        if self._open:
            self._offsets[offset.source] = offset
        return self._open

    def confirm(self) -> None:
        """Its commits are the remote's at once."""

    def commit(self, durability: Durability) -> LiteSnapshot | None:
        """`durability` makes no difference: what the remote acknowledged is durable. Raises Conflict."""
        try:
            if not (self._dirty or self._offsets) and self.length == self._over.length == self._floor:
                return None
            committed = self._deliver(os.urandom(16))
            if committed.repeated:
                raise self._brought_before(committed.lsn)
            view = msgspec.structs.replace(
                self._over.view,
                lsn=committed.lsn,
                length=self.length,
                time=committed.time,
                upper=committed.lsn + 1,
            )
            self._source.committed(view, self._dirty, self._floor)
            return self._over.newest()
        finally:
            self.rollback()

    def rollback(self) -> None:
        self._dirty = {}
        self._offsets = {}
        self._open = False

    def _brought_before(self, lsn: int) -> Conflict:
        self._source.refresh()
        sources = ", ".join(f"{each.source!r} up to {each.offset}" for each in self._offsets.values())
        words = f"volume {self._name!r} has {sources} since LSN {lsn}, from another transaction"
        return Conflict(f"{words}: ask PRAGMA budwood_bind, and read on from there", head=self._source.view.lsn)

    def _deliver(self, nonce: bytes) -> Committed:
        """Send it until its outcome is known. Raises Conflict, or Unavailable where it can't be known."""
        source = self._source
        parcel: Parcel | None = None
        for delay in (*DELAYS_SECONDS, None):
            try:
                parcel = parcel or self._pack(nonce)
                source.requests += 1
                return source.remote.commit(parcel.request, parcel.segment)
            except PagesNotHere:
                if delay is None:
                    raise
                parcel = None
            except Unavailable as error:
                landed = None if error.determinate or parcel is None else self._ask(parcel.request)
                if landed is not None:
                    return landed
                if delay is None:
                    raise
            except Conflict as error:
                if error.head < self._over.view.lsn:
                    source.check_seen(self._over.view.lsn)
                elif error.head == self._over.view.lsn:
                    # What stands there isn't what was seen, which a look at it tells.
                    source.refresh()
                raise
            self._sleep(delay)
        raise AssertionError("the last round returns or raises")

    def _ask(self, request: CommitRequest) -> Committed | None:
        """What became of the token; None if it is still to be sent."""
        source = self._source
        source.requests += 1
        asked = OutcomeRequest(source.vid.raw, client=request.client, token=request.token, base=request.base)
        outcome = source.remote.ask(OUTCOME, asked)
        if outcome.lsn:
            return Committed(lsn=outcome.lsn, time=outcome.time)
        if outcome.head < request.base:
            source.check_seen(request.base)
        if outcome.head != request.base:
            raise Conflict(
                f"volume {self._name!r} moved on to LSN {outcome.head} before this transaction was committed: "
                "begin it again",
                head=outcome.head,
            )
        return None

    def _pack(self, nonce: bytes) -> Parcel:
        """Send what doesn't fit the commit, and say what to commit."""
        view, vid = self._over.view, self._source.vid
        pages = PageSet(self._dirty)
        skeleton = PageSet([page for page, data in self._dirty.items() if is_skeleton(data, page)])
        keys = keys_of(view.encryption) if view.encryption else None
        packer = Packer(vid, view.lsn + 1, view.page_size, self._dirty.__getitem__, keys)
        inline, streamed = inline_or_streamed(packer.segments(skeleton, pages - skeleton), INLINE_BYTES)
        locations = tuple(map(self._send, streamed))
        request = packer.request(
            pages,
            client=self._client,
            length=self.length,
            floor=self._floor,
            nonce=nonce,
            locations=locations,
            base_time=view.time if view.lsn else 0,
            writer_epoch=self._writer_epoch,
            sources=tuple(self._offsets.values()),
        )
        return Parcel(request, inline)

    def _send(self, packed: Packed) -> Location:
        self._source.requests += 1
        return self._source.remote.write_pages(self._source.vid, packed.data)
