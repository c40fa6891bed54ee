"""HttpRemote: the client of one node (DESIGN §6): MessagePack, and pages as parts. exchange.py has its rules."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import msgspec

from ..volume.calls import (
    MSGPACK,
    PARTS,
    SEGMENT,
    CommitList,
    Done,
    Head,
    LogName,
    LookupRequest,
    NameAnswer,
    NamesRequest,
    OutcomeRequest,
    PinList,
    PinRequest,
    RangeRequest,
    RenewRequest,
    Revision,
    Since,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
    VolumeRequest,
    WaitNamesRequest,
    WaitRequest,
)
from ..volume.errors import Corrupt
from ..volume.ids import PinId, VolumeId
from ..volume.name_attributes import check_attributes, is_readable
from ..volume.pageset import PageSet, encode_pages
from ..volume.pins import Pin
from ..volume.protocols import PagesRead
from ..volume.records import Location
from ..volume.wire import (
    Changes,
    CommitInfo,
    CommitRequest,
    Committed,
    CreateRequest,
    ForkRequest,
    Located,
    LocateRequest,
    MoveRequest,
    NameEntry,
    NameList,
    NameRequest,
    Outcome,
    ReadRequest,
    SnapshotInfo,
    StoreInfo,
    check_view,
    pack_part,
)
from .exchange import Exchange, Timing
from .pages import Asked

__all__ = ["HttpRemote", "Timing"]

T = TypeVar("T", bound=msgspec.Struct)


class HttpRemote:
    """See volume.protocols.Remote. Belongs to one event loop; connects at the first call."""

    def __init__(self, url: str, *, token: str = "", hint: str = "", timing: Timing | None = None) -> None:
        self._exchange = Exchange(url, token, timing or Timing(), hint)

    @property
    def url(self) -> str:
        return self._exchange.url

    @property
    def _source(self) -> str:
        return f"the answer of {self.url}"

    async def hello(self) -> StoreInfo:
        return await self._call("hello", Done(), StoreInfo)

    async def health(self) -> StoreInfo:
        """What `hello` says, which needs no token here."""
        return await self._exchange.ask("hello", "/healthz", "", b"", StoreInfo, method="GET")

    async def create(self, vid: VolumeId, page_size: int) -> None:
        await self._call("create", CreateRequest(vid=vid.raw, page_size=page_size), Done)

    async def snapshot(
        self, vid: VolumeId, *, lsn: int | None = None, at_ms: int | None = None, confirm: bool = False
    ) -> SnapshotInfo:
        request = SnapshotRequest(vid=vid.raw, lsn=lsn, at_ms=at_ms, confirm=confirm)
        return check_view(self._source, await self._call("snapshot", request, SnapshotInfo))

    async def pull_changes(self, vid: VolumeId, after: int, to: int | None = None) -> Changes:
        changes = await self._call("pull_changes", RangeRequest(vid=vid.raw, after=after, to=to), Changes)
        check_view(self._source, changes.snapshot)
        return changes

    async def pull_commits(self, vid: VolumeId, after: int, to: int | None = None) -> list[CommitInfo]:
        answer = await self._call("pull_commits", RangeRequest(vid=vid.raw, after=after, to=to), CommitList)
        return list(answer.commits)

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        return await self._exchange.ask("write_pages", f"/v1/write_pages?vid={vid}", SEGMENT, segment, Location)

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        return await self._exchange.ask("commit", "/v1/commit", PARTS, pack_part(request, segment), Committed)

    async def outcome(self, vid: VolumeId, client: bytes, token: bytes) -> Outcome:
        return await self._call("outcome", OutcomeRequest(vid=vid.raw, client=client, token=token), Outcome)

    def read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0
    ) -> AbstractAsyncContextManager[PagesRead]:
        request = ReadRequest(vid=vid.raw, lsn=lsn, pages=encode_pages(pages), extra_bytes=extra_bytes)
        return self._exchange.read_pages(msgspec.msgpack.encode(request), Asked(pages, extra_bytes))

    async def locate(self, vid: VolumeId, lsn: int, pages: PageSet, *, measure: bool = False) -> Located:
        request = LocateRequest(vid=vid.raw, lsn=lsn, pages=encode_pages(pages), measure=measure)
        located = await self._call("locate", request, Located)
        check_view(self._source, located.snapshot)
        return located

    async def wait(self, vid: VolumeId, after: int, timeout_seconds: float) -> int:
        request = WaitRequest(vid=vid.raw, after=after, timeout_seconds=timeout_seconds)
        return (await self._call("wait", request, Head, patience_seconds=timeout_seconds)).lsn

    async def fork(self, vid: VolumeId, child: VolumeId, lsn: int) -> SnapshotInfo:
        return await self._call("fork", ForkRequest(vid=vid.raw, child=child.raw, lsn=lsn), SnapshotInfo)

    async def pin(
        self,
        vid: VolumeId,
        lsn: int | None = None,
        *,
        seconds: float,
        owner: str = "",
        kind: str = "lease",
        pin: PinId | None = None,
    ) -> Pin:
        request = PinRequest(
            vid=vid.raw, pin=(pin or PinId.new()).raw, lsn=lsn, seconds=seconds, owner=owner, kind=kind
        )
        return await self._call("pin", request, Pin)

    async def renew(self, vid: VolumeId, pin: PinId, seconds: float) -> Pin:
        return await self._call("renew", RenewRequest(vid=vid.raw, pin=pin.raw, seconds=seconds), Pin)

    async def unpin(self, vid: VolumeId, pin: PinId) -> None:
        await self._call("unpin", UnpinRequest(vid=vid.raw, pin=pin.raw), Done)

    async def pins(self, vid: VolumeId) -> list[Pin]:
        return list((await self._call("pins", VolumeRequest(vid=vid.raw), PinList)).pins)

    async def advance(self, vid: VolumeId, since: int) -> int:
        return (await self._call("advance", SinceRequest(vid=vid.raw, since=since), Since)).since

    async def lookup(self, name: str) -> NameEntry | None:
        entry = (await self._call("lookup", LookupRequest(name=name), NameAnswer)).entry
        return None if entry is None else self._checked(entry)

    async def list_names(self, prefix: str = "", after: str = "", limit: int = 1000) -> NameList:
        listed = await self._call("list_names", NamesRequest(prefix=prefix, after=after, limit=limit), NameList)
        for entry in listed.entries:
            self._checked(entry)
        return listed

    async def wait_names(self, after: int, timeout_seconds: float) -> int:
        request = WaitNamesRequest(after=after, timeout_seconds=timeout_seconds)
        return (await self._call("wait_names", request, Head, patience_seconds=timeout_seconds)).lsn

    async def change_name(self, request: NameRequest) -> int:
        check_attributes(request.attributes)
        return (await self._call("change_name", request, Revision)).lsn

    async def move_log(self, vid: VolumeId, to: str, *, takeover: bool = False) -> str:
        return (await self._call("move_log", MoveRequest(vid=vid.raw, to=to, takeover=takeover), LogName)).log

    async def aclose(self) -> None:
        await self._exchange.aclose()

    def _checked(self, entry: NameEntry) -> NameEntry:
        """What this process could not encode again must not get any further."""
        if not is_readable(entry.attributes):
            raise Corrupt(self._source, f"the attributes of {entry.name!r} are nested too deep")
        return entry

    async def _call(self, name: str, request: msgspec.Struct, kind: type[T], *, patience_seconds: float = 0.0) -> T:
        body = msgspec.msgpack.encode(request)
        return await self._exchange.ask(name, f"/v1/{name}", MSGPACK, body, kind, patience_seconds=patience_seconds)
