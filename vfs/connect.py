"""Connect: SQLite over the edge's volumes. The only module here that knows sync.

One VFS serves each (home, remote, token), so that ATTACH on a connection finds the volumes of the same place;
`register` makes one known by a name, for URIs. An edge is opened with its first volume and closed with its last.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime
from itertools import count
from typing import Final, NamedTuple

import apsw

from ..remote.token import origin_of
from ..sync.afterfork import ForkSafeLock
from ..sync.edge import Edge
from ..sync.edge import open as open_edge
from ..volume.errors import BudwoodError
from ..volume.tracebacks import strip_traceback
from .system import Opened, Request, VolumeVFS


class Place(NamedTuple):
    """None where the environment or the default decides."""

    home: str | None
    remote: str | None
    token: str | None
    fallback: str = ""
    """A remote that only a URI names."""


_places: Final[dict[Place, VolumeVFS]] = {}
_registered: Final[dict[str, VolumeVFS]] = {}
_numbers = count(1)

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
) -> apsw.Connection:
    """A volume as a SQLite database.

    `mode` is ro, rw, or rwc, which makes the volume if neither this home nor the remote knows the name. With `lsn`,
    or with `at` (a time), the view is of that moment, and read-only; an LSN that is still to come is waited for, `wait`
    seconds at most. `timeout`, in seconds, is how long a statement waits for another writer.

    Raises NotFound, BadInput, Unavailable when the remote has to be asked and can't be, and whatever else stands in
    the error tree. What a statement raises later is one of these and SQLite's own error at once.
    """
    place = Place(None if home is None else os.fspath(home), remote, token)
    vfs = _places.get(place)
    if vfs is None:
        vfs = _places.setdefault(place, VolumeVFS(f"budwood-{next(_numbers)}", _Opener(place)))
    try:
        return vfs.connect(Request(name, mode, lsn, at, wait_seconds=wait), timeout_seconds=timeout)
    except BudwoodError as error:
        raise strip_traceback(error)  # noqa: B904 - the same one


def register(
    home: str | os.PathLike[str] | None = None,
    remote: str | None = None,
    token: str | None = None,
    name: str = "budwood",
) -> None:
    """Make volumes known to SQLite: `apsw.Connection("file:inventory?vfs=budwood", flags=SQLITE_OPEN_URI | …)`.

    A URI may say `home`, `remote`, `lsn`, `at` and `mode`. Registering a name again replaces what it stood for;
    connections that are open go on.
    """
    before = _registered.pop(name, None)
    if before is not None:
        before.unregister()
    _registered[name] = VolumeVFS(name, _Opener(Place(None if home is None else os.fspath(home), remote, token)))


class _Opener:
    """Opens volumes in one place, or in the one that a URI names instead."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __call__(self, request: Request) -> Opened:
        place = self.place._replace(home=request.home or self.place.home)
        if request.remote:
            # A URI stands in statements, which may be anybody's: it takes no token to wherever it says.
            place = place._replace(remote="", fallback=request.remote)
            given = os.environ.get("BUDWOOD_REMOTE", "") if self.place.remote is None else self.place.remote
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

        def close() -> None:
            try:
                pages.close()
            finally:
                _drop(place)

        return Opened(pages, close, WARM_BYTES)


_edges: Final[dict[Place, Edge]] = {}
_users: Final[Counter[Place]] = Counter()
"""How many connections have each of them."""
_lock: Final = ForkSafeLock()


def _take(place: Place) -> Edge:
    with _lock:
        if place not in _edges:
            _edges[place] = open_edge(home=place.home, remote=place.remote, token=place.token, fallback=place.fallback)
        _users[place] += 1
        return _edges[place]


def _drop(place: Place) -> None:
    with _lock:
        _users[place] -= 1
        if _users[place]:
            return
        del _users[place]
        edge = _edges.pop(place)
    edge.close()
