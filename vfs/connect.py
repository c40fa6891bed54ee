"""Connect: SQLite over the edge's volumes. The only module here that knows sync.

One VFS serves each (home, remote, token), so that ATTACH on a connection finds the volumes of the same place
(systems.py); `register` makes one known by a name, for URIs. An edge is opened with its first volume and closed with
its last.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from threading import Thread
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import apsw
from msgspec.structs import replace

from ..remote.token import origin_of
from ..sync.afterfork import ForkSafeLock
from ..sync.connection import may_wait
from ..sync.divergence import OnDiverged
from ..sync.edge import Edge
from ..sync.edge import open as open_edge
from ..sync.invalidation import OnInvalidated
from ..sync.shared_autosync import SharedAutosync, policy_of
from ..sync.volume import Volume
from ..volume.errors import BudwoodError
from ..volume.tracebacks import strip_traceback
from .system import Opened, Request, VolumeVFS
from .systems import Systems


class Place(NamedTuple):
    """None where the environment or the default decides."""

    home: str | None
    remote: str | None
    token: str | None
    fallback: str = ""
    """A remote that only a URI names."""
    cache_bytes: int | str | None = None


_registered: Final[dict[str, VolumeVFS]] = {}

WARM_BYTES: Final = 64 * 1024 * 1024
"""Pages that a connection may hold beyond SQLite's own cache."""


def connect(
    name: str,
    *,
    home: str | os.PathLike[str] | None = None,
    remote: str | None = None,
    token: str | None = None,
    lsn: int | None = None,
    at: int | str | datetime | None = None,
    mode: str = "rwc",
    timeout: float = 5.0,
    wait: float = 0.0,
    cache_bytes: int | str | None = None,
    synchronous_commit: bool = False,
    autosync: str | None = None,
    on_diverged: str | OnDiverged = "tell",
    on_invalidated: OnInvalidated | None = None,
) -> apsw.Connection:
    """A volume as a SQLite database.

    `mode` is ro, rw, or rwc, which makes the volume if neither this home nor the remote knows the name. With `lsn`,
    or with `at` (a time), the view is of that moment, and read-only; an LSN that is still to come is waited for, `wait`
    seconds at most. `timeout`, in seconds, is how long a statement waits for another writer. `cache_bytes`
    is the home's, as `budwood.open` takes it. With `synchronous_commit` COMMIT returns once the remote has acknowledged
    the commit; where that has moved on it fails with SQLITE_BUSY_SNAPSHOT, and nothing of the transaction stays.

    `autosync` sets the volume's sync mode (push, pull, both, disabled), and has this process take part in syncing the
    home, all of its volumes as each one's mode says, for as long as the connection is open. `on_diverged` is what it
    does where this volume has diverged: "tell" leaves it as it is, "fork" keeps what is unpushed as a volume of its
    own, `budwood.replaying(…)` replays it; or any function that `edge.autosync` takes.

    `on_invalidated` is told, at the start of a transaction, that what this connection saw last was discarded by a
    replay or a reset since (sync/invalidation.py); what it raises, the statement raises.

    Raises NotFound, BadInput, Unavailable when the remote has to be asked and can't be, and whatever else stands in
    the error tree. What a statement raises later is one of these and SQLite's own error at once.
    """
    place = Place(None if home is None else os.fspath(home), remote, token, cache_bytes=cache_bytes)
    try:
        request = Request(name, mode, lsn, at, wait_seconds=wait, synchronous_commit=synchronous_commit)
        if autosync is not None:
            request = replace(request, on_open=_syncing(autosync, policy_of(on_diverged)))
        if on_invalidated is not None:
            request = replace(request, on_invalidated=on_invalidated)
        return _systems.connect(place, request, fixed=request.is_past, timeout_seconds=timeout)
    except BudwoodError as error:
        raise strip_traceback(error)  # noqa: B904 - the same one


def register(
    home: str | os.PathLike[str] | None = None,
    remote: str | None = None,
    token: str | None = None,
    name: str = "budwood",
) -> None:
    """Make volumes known to SQLite: `apsw.Connection("file:inventory?vfs=budwood", flags=SQLITE_OPEN_URI | …)`.

    A URI may say `home`, `remote`, `lsn`, `at`, `cache_bytes`, `synchronous_commit` and `mode`. Registering a name
    again replaces what it stood for; connections that are open go on.
    """
    before = _registered.pop(name, None)
    if before is not None:
        before.unregister()
    _registered[name] = VolumeVFS(name, partial(_open, Place(None if home is None else os.fspath(home), remote, token)))


def _open(own: Place, request: Request) -> Opened:
    """A volume in one place, or in the one that a URI names instead."""
    place = own._replace(home=request.home or own.home)
    if request.cache_bytes is not None:
        place = place._replace(cache_bytes=request.cache_bytes)
    if request.remote:
        # A URI stands in statements, which may be anybody's: it takes no token to wherever it says.
        place = place._replace(remote="", fallback=request.remote)
        given = os.environ.get("BUDWOOD_REMOTE", "") if own.remote is None else own.remote
        if given and origin_of(given) == origin_of(request.remote):
            place = place._replace(remote=request.remote, fallback="")
    edge = _take(place)
    try:
        pages = edge.pages(
            request.name, mode=request.mode, lsn=request.lsn, at=request.at, wait_seconds=request.wait_seconds
        )
    except BaseException:
        _drop(place)
        raise

    leave = _nothing
    try:
        if isinstance(pages, Volume):
            pages.invalidation.on_invalidated = request.on_invalidated
        if request.on_open is not None:
            leave = request.on_open(edge, request.name)
    except BaseException:
        pages.close()
        _drop(place)
        raise

    def end() -> None:
        try:
            leave()
            pages.close()
        finally:
            _drop(place)

    def close() -> None:
        if leave is _nothing or may_wait():
            end()
        else:
            # Collected in the loop's own thread, for which what is to end may wait.
            Thread(target=end, name="budwood-close").start()

    return Opened(pages, close, WARM_BYTES)


def _nothing() -> None:
    """Nobody was joined."""


def _syncing(mode: str, on_diverged: OnDiverged) -> Callable[[Edge, str], Callable[[], None]]:
    def join(edge: Edge, name: str) -> Callable[[], None]:
        with _lock.held:
            shared = _shared.setdefault(edge, SharedAutosync(edge))
        return shared.join(edge.volume_here(name), mode, on_diverged)

    return join


_systems: Final[Systems[Place]] = Systems("budwood", _open)
_shared: Final[WeakKeyDictionary[Edge, SharedAutosync]] = WeakKeyDictionary()
_edges: Final[dict[Place, Edge]] = {}
_users: Final[Counter[Place]] = Counter()
"""How many connections have each of them."""
_lock: Final = ForkSafeLock()


def _take(place: Place) -> Edge:
    with _lock.held:
        if place not in _edges:
            _edges[place] = open_edge(
                home=place.home,
                remote=place.remote,
                token=place.token,
                fallback=place.fallback,
                cache_bytes=place.cache_bytes,
            )
        _users[place] += 1
        return _edges[place]


def _drop(place: Place) -> None:
    with _lock.held:
        _users[place] -= 1
        if _users[place]:
            return
        del _users[place]
        edge = _edges.pop(place)
    edge.close()
