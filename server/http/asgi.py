"""ASGI: a request as the endpoints read it, and an answer that is whole.

Of a request nothing is parsed but what somebody asks for. A framework's own (starlette's: middlewares, routes tried one
after the other, URLs and headers as objects) took as long as everything else that HTTP costs here (docs/design/0093).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote

if TYPE_CHECKING:
    from ..access.principal import Principal

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

WHOLE: Final = "budwood.whole"
"""In a scope: the body, which whoever hands the request on has read."""
_PIECES: Final = "http.request"


PRINCIPAL: Final = "budwood.principal"
"""In a scope: the name of whoever calls, once somebody has found out."""
CALLER: Final = "budwood.caller"
"""In a scope: what he may do, where callers have keys (server/access/principal.py)."""
REASON: Final = "budwood.reason"
"""In a scope: why it was answered with an error, as the answer says it."""
ADMITS: Final = "budwood.admits"
"""In a scope: what tells why a text that somebody shows is not let in."""


class CutShort(Exception):
    """The caller went away in the middle of the body."""


class Request:
    __slots__ = ("_headers", "content", "path", "receive", "scope", "whole")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.path: str = scope["path"]
        self.whole: bytes | None = scope.get(WHOLE)
        """The body, where somebody has read it already."""
        # Of a header that came twice the first counts.
        self._headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.content = _media_type(self._headers.get(b"content-type", b""))
        """The body's type, in lower case, without parameters."""

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def principal(self) -> str:
        """Who calls; "" where nobody is asked."""
        return str(self.scope.get(PRINCIPAL, ""))

    @property
    def caller(self) -> Principal | None:
        """What he may do; None where nobody has found out."""
        found: Principal | None = self.scope.get(CALLER)
        return found

    @property
    def client_host(self) -> str:
        """The address that it comes from; "" where that isn't known."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    @property
    def shown_path(self) -> str:
        """On one line, whatever was asked for."""
        return quote(self.path)

    def has(self, name: bytes) -> bool:
        return name in self._headers

    def header(self, name: bytes) -> str:
        """ "" where there is none."""
        return self._headers.get(name, b"").decode("latin-1")

    def query(self, name: str) -> str:
        """The last value of that name; "" where there is none."""
        given: bytes = self.scope["query_string"]
        return dict(parse_qsl(given.decode("latin-1"), keep_blank_values=True)).get(name, "")

    async def piece(self) -> tuple[bytes, bool]:
        """What comes next of the body, and whether there is more. Raises CutShort."""
        message = await self.receive()
        if message["type"] != _PIECES:
            raise CutShort
        return message.get("body", b""), message.get("more_body", False)


@lru_cache(maxsize=64)
def _media_type(header: bytes) -> str:
    return header.decode("latin-1").partition(";")[0].strip().lower()


@dataclass(slots=True)
class Answer:
    """One that is whole."""

    body: bytes
    media_type: str
    status: int = 200
    more_headers: tuple[tuple[bytes, bytes], ...] = ()

    def head(self) -> Message:
        length, kind = str(len(self.body)).encode(), self.media_type.encode()
        headers = [(b"content-length", length), (b"content-type", kind), *self.more_headers]
        return {"type": "http.response.start", "status": self.status, "headers": headers}

    async def send(self, send: Send) -> None:
        await send(self.head())
        await send({"type": "http.response.body", "body": self.body})
