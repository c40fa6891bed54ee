"""HttpRemote: the client of one node (DESIGN §6): MessagePack, and pages as parts. exchange.py has its rules."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import msgspec

from ..volume.calls import COMMIT, HELLO, PARTS, SEGMENT, WRITE_PAGES, A, Call, OfVolume, Poll, Q
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet, encode_pages
from ..volume.protocols import PagesRead
from ..volume.records import Location
from ..volume.wire import CommitRequest, Committed, ReadRequest, StoreInfo, pack_part
from .exchange import Exchange, Timing
from .page_answers import PagesRequested


class HttpRemote:
    """See volume.protocols.Remote. Belongs to one event loop; connects at the first call. With `verify` false any
    certificate will do."""

    def __init__(
        self, url: str, *, token: str = "", hint: str = "", timing: Timing | None = None, verify: bool = True
    ) -> None:
        self._exchange = Exchange(url, token, timing or Timing(), hint, verify=verify)

    @property
    def url(self) -> str:
        return self._exchange.url

    async def ask(self, call: Call[Q, A], request: Q) -> A:
        call.sendable(request)
        patience = request.timeout_seconds if isinstance(request, Poll) else 0.0
        volume = request.vid if isinstance(request, OfVolume) else b""
        body = msgspec.msgpack.encode(request)
        answer = await self._exchange.ask(call, body, patience_seconds=patience, volume=volume)
        call.check(f"the answer of {self.url}", answer)
        return answer

    async def health(self) -> StoreInfo:
        """What `hello` says, which needs no token here."""
        return await self._exchange.ask(HELLO, b"", method="GET", path="/healthz")

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        path = f"/v1/write_pages?vid={vid}"
        return await self._exchange.ask(WRITE_PAGES, segment, content=SEGMENT, path=path, volume=vid.raw)

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        return await self._exchange.ask(COMMIT, pack_part(request, segment), content=PARTS, volume=request.vid)

    def read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0
    ) -> AbstractAsyncContextManager[PagesRead]:
        request = ReadRequest(vid=vid.raw, lsn=lsn, pages=encode_pages(pages), extra_bytes=extra_bytes, encrypted=True)
        body = msgspec.msgpack.encode(request)
        return self._exchange.read_pages(body, PagesRequested(pages, extra_bytes), vid.raw)

    async def aclose(self) -> None:
        await self._exchange.aclose()
