"""Console routes: the pages of server/console over HTTP, and how a browser comes to show who calls.

A browser keeps what its user typed in a cookie that goes to these pages alone, that no script reads and no other site
has sent: what a caller else says in a header. The pages change nothing, so there is nothing to be done by it.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qs

from ...volume.errors import BadInput, BudwoodError
from ...volume.protocols import Remote
from ..console.console import Console, Page
from ..telemetry.node_figures import Tariff
from .access_control import COOKIE, LOGIN, PAGES
from .asgi import ADMITS, Answer, CutShort, Request, Send
from .error_status import known, status_of

MOST_BYTES: Final = 16 * 1024
"""Of what somebody logs in with."""
_HTML: Final = "text/html; charset=utf-8"
_CSS: Final = "text/css; charset=utf-8"
_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; "
        b"base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    # With "no-referrer" a browser wouldn't say of its own form where that comes from.
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

Endpoint = Callable[[Request, Send], Awaitable[None]]


class ConsoleRoutes:
    """Of one node; `remote_for` is the node as whoever calls may use it."""

    def __init__(self, remote_for: Callable[[Request], Remote], tariff: Tariff | None) -> None:
        self._remote_for = remote_for
        self._console = Console(tariff)

    def endpoints(self) -> dict[str, tuple[frozenset[str], Endpoint]]:
        """By path: the methods, and what answers."""
        reading = frozenset({"GET", "HEAD"})
        return {
            **dict.fromkeys(self._console.pages, (reading, self._page)),
            PAGES.rstrip("/"): (reading, self._to_first),
            f"{PAGES}style.css": (reading, self._style),
            LOGIN: (reading | {"POST"}, self._login),
        }

    async def _page(self, request: Request, send: Send) -> None:
        try:
            page: Page = await self._console.pages[request.path](
                self._remote_for(request), lambda name: request.query(name)
            )
        except Exception as error:
            told = known(error, request.path)
            page = self._console.error(told, status_of(told))
        await _answer(page).send(send)

    async def _style(self, _: Request, send: Send) -> None:
        await Answer(self._console.style, _CSS, more_headers=_HEADERS[1:2]).send(send)

    async def _to_first(self, _: Request, send: Send) -> None:
        await Answer(b"", _HTML, 303, ((b"location", PAGES.encode()),)).send(send)

    async def _login(self, request: Request, send: Send) -> None:
        if request.method != "POST":
            await _answer(self._console.login()).send(send)
            return
        try:
            text = await _typed(request)
            refused: BudwoodError | None = await request.scope[ADMITS](text)
        except BudwoodError as error:
            text, refused = "", error
        if refused is not None:
            await _answer(self._console.login(str(refused), status_of(refused))).send(send)
            return
        kept = base64.urlsafe_b64encode(text.encode()).decode()
        secure = "; Secure" if request.scope.get("scheme") == "https" else ""
        cookie = f"{COOKIE}={kept}; Path={PAGES}; HttpOnly; SameSite=Strict{secure}"
        headers = ((b"location", PAGES.encode()), (b"set-cookie", cookie.encode()), *_HEADERS)
        await Answer(b"", _HTML, 303, headers).send(send)


async def _typed(request: Request) -> str:
    """What somebody logs in with. Raises BadInput."""
    body, more = b"", True
    try:
        while more:
            piece, more = await request.piece()
            body += piece
            if len(body) > MOST_BYTES:
                raise BadInput("that is too long for a key")
    except CutShort:
        raise BadInput("the form was cut short") from None
    found = parse_qs(body.decode("latin-1")).get("key", [""])[0].strip()
    if not (found and found.isascii() and found.isprintable()):
        raise BadInput("that is no key, and no token")
    return found


def _answer(page: Page) -> Answer:
    return Answer(page.text.encode(), _HTML, page.status, _HEADERS)
