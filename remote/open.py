"""Open: the remote that a URL names.

    http://node:7447  https://…                     a node, over HTTP
    file:///directory  s3://bucket/prefix
    gs://…  az://…  memory://…                      a store: an embedded node of this process serves it

Either is wrapped so that calls for a volume whose log another node owns go to that node (routed.py), and the token goes
where it belongs (token.py). The server's code and httpx are loaded only when such a remote is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ..volume.errors import BadInput, NotOwner
from ..volume.ids import check_utf8
from ..volume.protocols import Remote
from .keyring import names_are_encrypted
from .token import Tokens

NODES: Final = ("http", "https")
STORES: Final = ("file", "s3", "gs", "az", "memory")


def check_url(url: str) -> str:
    """The URL as it is remembered. Raises BadInput, in words, unless it can be a remote's."""
    check_utf8(url, f"{url!r} is no remote: it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadInput(f"{url!r} is not a URL: {error}") from error
    if parts.scheme not in NODES + STORES:
        known = ", ".join(f"{scheme}://" for scheme in NODES + STORES)
        raise BadInput(f"{url!r} is no remote: it must start with one of {known}")
    if parts.scheme in STORES:
        return url
    if parts.username or parts.password:
        # Whatever it is, it is not to be shown.
        raise BadInput("a node's URL has no user and no password: give a token with --token or BUDWOOD_TOKEN")
    if not parts.hostname or port == 0:
        raise BadInput(f"{url!r} names no node: write {parts.scheme}://HOST:PORT")
    if parts.query or parts.fragment:
        raise BadInput(f"{url!r}: a node's URL has no '?' or '#'; give a token with --token or BUDWOOD_TOKEN")
    return url.rstrip("/")


async def open_remote(
    url: str, *, token: str | Tokens = "", cache_dir: Path | None = None, create: bool = True
) -> Remote:
    """A `Remote` for this event loop. The token is one that was given for it.

    A node is not asked anything yet; a store is opened, and made where there is none unless `create` is false (then
    NotFound). `cache_dir` keeps what an embedded node reads from a bucket (see Pagestore). Raises BadInput,
    Unsupported, Unavailable.
    """
    from .routed import Routed

    url = check_url(url)
    tokens = Tokens.of(token) if isinstance(token, str) else token

    def connect(address: str) -> Remote:
        from .http import HttpRemote

        return HttpRemote(address, token=tokens.for_remote(address), hint=tokens.hint(address))

    def owner_of(refused: NotOwner) -> str:
        return tokens.owner_of(url, refused)

    named = _encrypting_names() if names_are_encrypted() else _as_it_is
    if urlsplit(url).scheme in NODES:
        return named(Routed(connect(url), connect, owner_of))
    # For this store's nodes: of those, only the ones that it was given for get it.
    tokens = tokens.withhold()
    from .embedded import Host

    host = await Host.open(url, cache_dir=cache_dir, create=create)
    return named(Routed(host.node, connect, owner_of, host.aclose))


def _encrypting_names() -> Callable[[Remote], Remote]:
    from .encrypted_names import with_encrypted_names

    return with_encrypted_names


def _as_it_is(remote: Remote) -> Remote:
    return remote
