"""Guarded: a node as one caller may use it: a `Remote` that asks before each call whether he may.

- Whoever operates the store is asked nothing, here as at its bucket.
- What a call needs stands in its row (volume/calls.py, `needs`).
- A volume is its organisation's. One of another's is answered as if it weren't there, in the same words and after the
  same look at the store, so that nobody learns of an id what he can't use.
- Names are those of the caller's organisation: the node is told whose, whatever the request says.
- A grant for a prefix is one of the volumes that have such a name. A volume that has none yet is its maker's.

What is looked at is looked at before the call is made, and not again while it is answered: a stream of pages, or a long
poll, goes on when the key is revoked meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from ...volume.access import Right
from ...volume.calls import (
    CHANGE_NAME,
    COMMIT,
    CREATE,
    FORK,
    READ_PAGES,
    WRITE_PAGES,
    A,
    Call,
    CreateRequest,
    ForkRequest,
    LookupRequest,
    OfNames,
    OfVolume,
    Opened,
    OpenRequest,
    PinRequest,
    Q,
    RenewRequest,
    Row,
)
from ...volume.errors import BadInput, NotFound
from ...volume.ids import VolumeId
from ...volume.lru_cache import LruCache
from ...volume.pageset import PageSet
from ...volume.protocols import PagesRead, Remote
from ...volume.records import Birth, Location
from ...volume.wire import CommitRequest, Committed, NameDelta, NameList, NameRequest
from ..metastore.births import read_birth
from ..store.protocol import Store
from ..store.retrying import Patience
from .names_of_volumes import NamesOfVolumes
from .principal import Principal

REMEMBERED: Final = 65_536
MOST_LEASE_SECONDS: Final = 30 * 86_400
"""That a reader may hold an LSN for at once."""


class Guards:
    """What a node's callers share: what is known of volumes. Belongs to one event loop."""

    def __init__(self, remote: Remote, store: Store, patience: Patience) -> None:
        self.remote = remote
        self.store = store
        self.patience = patience
        self._births = LruCache[tuple[str, bytes], Birth](REMEMBERED)
        """By whose they are."""
        self._names: dict[str, NamesOfVolumes] = {}

    def of(self, principal: Principal) -> Guarded:
        return Guarded(self, principal)

    async def birth(self, vid: VolumeId, org: str) -> Birth:
        """Raises NotFound, of another's too; Corrupt, Unavailable."""
        birth = self._births.get((org, vid.raw))
        if birth is None:
            birth = await read_birth(self.store, vid, self.patience)
            if birth.org != org:
                raise NotFound(f"there is no volume {vid} in this store")
            self._births.put((org, vid.raw), birth)
        return birth

    async def names(self, vid: VolumeId, org: str, *, fresh: bool) -> frozenset[str]:
        known = self._names.get(org)
        if known is None:
            known = self._names[org] = NamesOfVolumes(self.remote, org, self.patience.now)
        return await known.of(vid.raw, fresh=fresh)


class Guarded:
    """See volume.protocols.Remote. Raises Forbidden, and NotFound of what is another organisation's."""

    def __init__(self, guards: Guards, principal: Principal) -> None:
        self._guards = guards
        self._remote = guards.remote
        self._who = principal

    @property
    def url(self) -> str:
        return self._remote.url

    async def ask(self, call: Call[Q, A], request: Q) -> A:
        who, asked = self._who, request
        if who.prefixes(Right.OPERATE):
            return await self._remote.ask(call, request)
        if call.needs is Right.OPERATE:
            who.check(Right.OPERATE, call.name)
        elif isinstance(asked, CreateRequest):
            self._check_makes(CREATE)
            asked = msgspec.structs.replace(asked, org=who.org, maker=who.key)
        elif isinstance(asked, OfVolume):
            await self._check(VolumeId(asked.vid), _needs(call, asked), call)
            if isinstance(asked, ForkRequest):
                self._check_makes(FORK)
                asked = msgspec.structs.replace(asked, maker=who.key)
        elif isinstance(asked, OfNames | NameRequest):
            self._check_names(call, asked)
            if isinstance(asked, NameRequest) and _is_volume(asked.target):
                # Else a name would give rights that its maker doesn't have.
                await self._check(VolumeId(asked.target), Right.WRITE, call)
            asked = msgspec.structs.replace(asked, org=who.org)
        answer = await self._remote.ask(call, asked)
        if isinstance(asked, CreateRequest):
            # Whoever takes an id that is another's isn't told that he has it now.
            await self._guards.birth(VolumeId(asked.vid), who.org)
        if isinstance(answer, Opened) and answer.snapshot is not None:
            await self._guards.birth(VolumeId(answer.snapshot.vid), who.org)
        return self._shown(answer)

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        await self._check(vid, WRITE_PAGES.needs, WRITE_PAGES)
        return await self._remote.write_pages(vid, segment)

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        await self._check(VolumeId(request.vid), COMMIT.needs, COMMIT)
        return await self._remote.commit(request, segment)

    @asynccontextmanager
    async def read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0
    ) -> AsyncGenerator[PagesRead]:
        await self._check(vid, READ_PAGES.needs, READ_PAGES)
        async with self._remote.read_pages(vid, lsn, pages, extra_bytes=extra_bytes) as answer:
            yield answer

    async def aclose(self) -> None:
        """The node stays open for others."""

    async def _check(self, vid: VolumeId, right: Right, call: Row[Any, Any]) -> None:
        """Raises NotFound, Forbidden."""
        who = self._who
        if who.prefixes(Right.OPERATE):
            return
        birth = await self._guards.birth(vid, who.org)
        prefixes = who.prefixes(right)
        if "" in prefixes:
            return
        for fresh in (False, True):
            names = await self._guards.names(vid, who.org, fresh=fresh)
            if any(name.startswith(prefix) for name in names for prefix in prefixes):
                return
        if names or birth.maker != who.key or not prefixes:
            raise who.refusal(right, f"{call.name} of this volume")

    def _check_makes(self, call: Row[Any, Any]) -> None:
        """A volume has no name when it is made: whoever may write any may make one."""
        if not self._who.prefixes(Right.WRITE):
            raise self._who.refusal(Right.WRITE, call.name)

    def _check_names(self, call: Row[Any, Any], request: msgspec.Struct) -> None:
        who = self._who
        if isinstance(request, NameRequest):
            named = [request.name, *([request.new] if request.new else [])]
            who.check(Right.WRITE, CHANGE_NAME.name, named)
        elif isinstance(request, LookupRequest | OpenRequest):
            who.check(Right.READ, call.name, [request.name])
        elif not who.prefixes(Right.READ):
            raise who.refusal(Right.READ, call.name)

    def _shown(self, answer: A) -> A:
        """Of listings, what he may read."""
        prefixes = self._who.prefixes(Right.READ)
        if "" in prefixes or not isinstance(answer, NameList | NameDelta):
            return answer

        def may(name: str) -> bool:
            return any(name.startswith(prefix) for prefix in prefixes)

        entries = tuple(entry for entry in answer.entries if may(entry.name))
        if isinstance(answer, NameDelta):
            # A range that is gone and holds all of his begins as he knows that his begin.
            gone = tuple(
                name
                for name in answer.gone
                if may(name) or (name.endswith("/") and any(prefix.startswith(name) for prefix in prefixes))
            )
            return msgspec.structs.replace(answer, entries=entries, gone=gone)
        return msgspec.structs.replace(answer, entries=entries)


def _is_volume(target: bytes) -> bool:
    """A name may lead to something else, or be a directory."""
    try:
        VolumeId(target)
    except BadInput:
        return False
    return True


def _needs(call: Row[Any, Any], request: OfVolume) -> Right:
    """A lease holds for a while what its holder reads. What has a name is there for all, and what has no end costs
    whoever pays for the store."""
    if isinstance(request, PinRequest) and (request.kind == "named" or request.label):
        return Right.WRITE
    if isinstance(request, PinRequest | RenewRequest) and not 0 < request.seconds <= MOST_LEASE_SECONDS:
        return Right.WRITE
    return call.needs
