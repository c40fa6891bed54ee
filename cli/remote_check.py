"""Remote check: whether a remote can be worked with, asked of the remote itself; nothing is left there.

A store is read and probed as a node probes it when it starts: two objects that are deleted again. A store that isn't
there yet isn't made; neither is anything written into a directory that is no store. A node is asked who it is, with the
token; it has probed its own store.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio

from ..volume.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from ..server.store.protocol import Store
    from ..server.store.retrying import Patience

_LIMIT_SECONDS: Final = 30.0
_PATIENCE_SECONDS: Final = 5.0
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class RemoteCheck:
    store: str
    """The store's id; "" for a place that can hold one, and holds none yet."""
    node: str
    """Its name and version; "" for a store that is reached directly."""
    latency_ms: float
    """Of the smallest request, once connected: the median of three."""
    probed: bool
    """Creates are refused where something stands, and lists are in order: seen just now."""


def check_remote(url: str, token: str | None) -> RemoteCheck:
    """Raises NotFound where nothing is, and as any request: BadInput, Unauthorized, Unsupported, Unavailable."""
    from ..remote.loop import call
    from ..remote.open import NODES, check_url

    url = check_url(url)
    return call(_node if urlsplit(url).scheme in NODES else _store, url, token or "")


async def _node(url: str, token: str) -> RemoteCheck:
    from ..remote.http import HttpRemote
    from ..remote.token import Tokens
    from ..volume.calls import HELLO, Done

    remote = HttpRemote(url, token=Tokens.of(token).for_remote(url))
    try:
        with _within(url):
            info = await remote.ask(HELLO, Done())
            latency = await _timed(lambda: remote.ask(HELLO, Done()))
    finally:
        await remote.aclose()
    return RemoteCheck(info.store, f"{info.node} {info.version}".strip() or "unnamed", latency, probed=False)


async def _store(url: str, _token: str) -> RemoteCheck:
    from ..server.store.open_store import open_store
    from ..server.store.probe import probe
    from ..server.store.retrying import Patience

    patience = Patience(deadline_seconds=_PATIENCE_SECONDS, try_seconds=_PATIENCE_SECONDS)
    store = await open_store(url, create=False)
    try:
        with _within(url):
            found = await _root(store, patience)
            latency = await _timed(lambda: _root(store, patience))
            # A directory that is no store may be anything else.
            probing = bool(found) or urlsplit(url).scheme != "file"
            if probing:
                await probe(store, patience)
    finally:
        await store.aclose()
    return RemoteCheck(found, "", latency, probing)


@contextmanager
def _within(url: str) -> Generator[None]:
    try:
        with anyio.fail_after(_LIMIT_SECONDS):
            yield
    except TimeoutError:
        raise Unavailable(f"{url} has not answered within {_LIMIT_SECONDS:g} s: try again") from None


async def _root(store: Store, patience: Patience) -> str:
    from ..server.store.root import open_root

    try:
        return str((await open_root(store, create=False, patience=patience)).store_id)
    except NotFound:
        return ""


async def _timed(request: Callable[[], Awaitable[object]]) -> float:
    taken: list[float] = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        await request()
        taken.append(time.perf_counter() - begun)
    return median(taken) * 1000
