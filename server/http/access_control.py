"""Access control: who may call at all, looked at before anything else of a request.

A browser sends what a page of any site tells it to, to any address that it reaches, so a node on somebody's machine
would be everybody's. Three things keep pages out:

    Host     names this node: an address, a name of loopback, this machine's own, what it is told it is called. Another
             name may be an attacker's, who lets it lead here ("DNS rebinding"). Looked at where no token is asked for:
             a page doesn't have the token
    Origin   which a browser adds and nobody else: the node's own, if there is one
    type     of the body, always (app.py): a page can't send ours to a foreign host without the browser's asking first,
             and nobody answers that question here

Where callers have keys, who calls is found out here, and what he may do is looked at where he is answered
(server/access/guarded.py).
"""

from __future__ import annotations

import base64
import hmac
import socket
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ...volume.errors import BadInput, BudwoodError, Unauthorized
from ..access.principal import OPERATORS
from .asgi import ADMITS, CALLER, PRINCIPAL, ASGIApp, Receive, Request, Scope, Send
from .body import refusal

if TYPE_CHECKING:
    from ..access.access import Access

ANY: Final = "*"
METRICS: Final = "/metrics"
PAGES: Final = "/ui/"
LOGIN: Final = "/ui/login"
COOKIE: Final = "budwood"
"""Holds what a browser shows in place of a header; it is sent to pages alone, and by no other site's doing."""
_OPEN_PAGES: Final = frozenset({LOGIN, "/ui/style.css"})
_MISSING: Final = "this node wants a token: give it with --token or BUDWOOD_TOKEN"
_NO_KEY: Final = "this node wants a key: keep one with `budwood login`, or give it with --token or BUDWOOD_TOKEN"
_WRONG: Final = "the token that was given is not this node's: check --token and BUDWOOD_TOKEN"


class AccessControl:
    """Lets requests pass that carry the token, or, where there is none, that speak to one of the `hosts`."""

    def __init__(
        self, app: ASGIApp, *, token: str = "", hosts: Iterable[str] = (), access: Access | None = None
    ) -> None:
        """With `access`, whoever doesn't have the token needs a key."""
        self.app = app
        self.access = access
        self.expected = f"Bearer {token}".encode() if token else b""
        self.names = {name_of(host) for host in (*hosts, socket.gethostname()) if host}
        self._last_host: str | None = None
        """Which was found to be ours: most requests name the same."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refused = self._refused(scope)
            if refused is None and self.access is not None and _is_guarded(scope):
                refused = await self._identified(scope, self.access)
            if refused is None and scope["path"] == LOGIN:
                scope[ADMITS] = self.admits
            if refused is not None:
                error, status = refused
                if scope["path"].startswith(PAGES) and status != 403:
                    await _sent_to_login(send)
                    return
                answer = refusal(Request(scope, receive), error, "the request's head", status)
                if answer.status == 401:
                    answer.more_headers += ((b"www-authenticate", b"Bearer"),)
                await answer.send(send)
                return
        await self.app(scope, receive, send)

    def _refused(self, scope: Scope) -> tuple[BudwoodError, int] | None:
        hosts = _header(scope, b"host")
        if not self.expected and self.access is None:
            # Whoever names none is no browser.
            strange = next((host for host in hosts if not self._is_ours(host)), None)
            if strange is not None:
                words = f"{strange[:100]!r} is no name of this node: give it with --allowed-host if it is"
                return BadInput(words), 403
        if not _is_guarded(scope) and scope["path"] != LOGIN:
            return None
        for origin in _header(scope, b"origin"):
            if origin.lower() not in {f"{scheme}://{host.lower()}" for scheme in ("http", "https") for host in hosts}:
                return BadInput(f"a page of {origin[:100]!r} may not call this node"), 403
        if scope["path"] == LOGIN:
            return None
        given = _shown(scope)
        if self.access is None and self.expected and not hmac.compare_digest(given.encode("latin-1"), self.expected):
            error = Unauthorized(_WRONG, reason="wrong") if given else Unauthorized(_MISSING, reason="missing")
            return error, 401
        return None

    async def _identified(self, scope: Scope, access: Access) -> tuple[BudwoodError, int] | None:
        """Find out who calls; why he isn't let in, and 0 for that error's own status."""
        given = _shown(scope)
        if self.expected and hmac.compare_digest(given.encode("latin-1"), self.expected):
            caller = OPERATORS
        else:
            kind, _, text = given.partition(" ")
            if not text.strip() or kind.lower() != "bearer":
                return Unauthorized(_NO_KEY, reason="missing"), 0
            try:
                caller = await access.principal(text.strip())
            except BudwoodError as error:
                return error, 0
        scope[CALLER], scope[PRINCIPAL] = caller, caller.name
        return None

    async def admits(self, text: str) -> BudwoodError | None:
        """Why whoever shows that is not let in."""
        if not (self.expected or self.access):
            return None
        if self.expected and hmac.compare_digest(f"Bearer {text}".encode(), self.expected):
            return None
        if self.access is None:
            return Unauthorized(_WRONG, reason="wrong")
        try:
            await self.access.principal(text)
        except BudwoodError as error:
            return error
        return None

    def _is_ours(self, host: str) -> bool:
        """Addresses are: whoever gave the browser an address didn't give it a name that leads here."""
        if host == self._last_host:
            return True
        name = name_of(host)
        if not (_is_address(name) or _is_loopback(name) or name in self.names or ANY in self.names):
            return False
        self._last_host = host
        return True


def _is_guarded(scope: Scope) -> bool:
    """Whether who calls matters."""
    path: str = scope["path"]
    return path.startswith("/v1/") or path == METRICS or (path.startswith(PAGES) and path not in _OPEN_PAGES)


def _shown(scope: Scope) -> str:
    """What the caller shows: the header, or a browser's cookie where it asks for a page."""
    given = next(iter(_header(scope, b"authorization")), "")
    if given or not scope["path"].startswith(PAGES):
        return given
    kept = next((text for name, text in _cookies(scope) if name == COOKIE), "")
    try:
        return f"Bearer {base64.urlsafe_b64decode(kept.encode('ascii')).decode()}" if kept else ""
    except ValueError:
        return ""


def _cookies(scope: Scope) -> Iterator[tuple[str, str]]:
    for header in _header(scope, b"cookie"):
        for each in header.split(";"):
            name, _, text = each.strip().partition("=")
            yield name, text


async def _sent_to_login(send: Send) -> None:
    headers = [(b"location", LOGIN.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def name_of(address: str) -> str:
    """The host of a URL, of HOST:PORT or of HOST alone, in lower case; "" where there is none."""
    place = address if "://" in address else f"//{address}"
    try:
        return (urlsplit(place).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _header(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _is_loopback(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
