"""Client: SQLite straight over a remote, for a process that lives for one request and has no disk to speak of.

Nothing is kept between two connections and nothing is written locally, except what a ROLLBACK of more than 8 MiB
needs. Over HTTP a volume, its first page and the pages near the B-tree's roots cost one request, by its name or its id;
a node that doesn't know `open` yet is asked twice for a name. The reads after it cost what the query misses.

`lsn`, or `at`, is where to begin: it saves nothing but the question for the head. In mode "ro" the view stays there for
good; in mode "rw" it stays until a write transaction, or `PRAGMA budwood_pull`, moves it to the newest. (S2.31)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

from ..remote.portal import open_remote
from ..remote.token import elsewhere
from ..vfs.system import Opened, Request
from ..vfs.systems import Systems
from ..volume.calls import TAKE_EPOCH, VolumeRequest
from ..volume.errors import BadInput, BudwoodError
from ..volume.ids import VolumeId
from ..volume.tracebacks import strip_traceback
from .lookup import find_volume, is_id, lsn_as_of, open_volume
from .pages import LitePages
from .source import Source

if TYPE_CHECKING:
    from ..volume.as_of import Time

MEMORY_BYTES: Final = 64 * 1024 * 1024


class _Options(NamedTuple):
    """What a connection was opened with, and ATTACH on it goes by."""

    remote: str
    token: str | None
    memory_bytes: int
    refresh_seconds: float | None
    exclusive: bool


def connect(
    remote: str,
    volume: str,
    lsn: int | None = None,
    *,
    at: Time | None = None,
    token: str | None = None,
    mode: str = "rw",
    timeout: float = 5.0,
    refresh: float | None = 1.0,
    memory_bytes: int = MEMORY_BYTES,
    exclusive: bool = False,
) -> apsw.Connection:
    """A volume of a remote as a SQLite database.

    `remote` is a URL (http://node, or file:///dir and the like, served by this process), `volume` a name or an id
    of 22 characters. `at` is a time (milliseconds since the Unix epoch, ISO 8601, a datetime) or "@label", in place of
    `lsn`, and costs a request of its own. `timeout`, in seconds, is how long a transaction is begun anew while others
    move the head.
    `refresh`, in seconds, is how old a view may be when a read transaction begins; 0 asks each time, None never;
    with `lsn` or `at` it is None. `memory_bytes` bounds the pages held for reading, and apart from them those that a
    transaction changes. `exclusive` takes the next writer epoch of a volume in mode exclusive (`budwood mode`): whoever
    wrote it before is refused from then on.

    Raises NotFound, Forgotten, Unauthorized, Unavailable, BadInput. A COMMIT that came too late raises Conflict,
    which is an apsw.BusyError too.
    """
    if mode not in {"ro", "rw"}:
        raise BadInput(f"mode {mode!r} is neither ro nor rw; a lite client never creates a volume: use budwood.connect")
    if memory_bytes < 0:
        raise BadInput(f"{memory_bytes} bytes of memory can't be kept to: give none, or more")
    request = Request(volume, mode, lsn, at)
    options = _Options(remote, token, memory_bytes, refresh, exclusive and mode == "rw")
    try:
        return _systems.connect(options, request, fixed=request.is_past and mode == "ro", timeout_seconds=timeout)
    except BudwoodError as error:
        raise strip_traceback(error)  # noqa: B904 - the same one


def _open(options: _Options, request: Request) -> Opened:
    if request.home is not None:
        raise BadInput("a lite client has no home: use budwood.connect for one")
    if request.remote is not None:
        # A URI stands in statements, which may be anybody's: it takes no token to wherever it says.
        token = elsewhere(options.token, options.remote, request.remote)
        options = options._replace(remote=request.remote, token=token)
    lsn = request.lsn
    if lsn is not None and lsn < 1:
        raise BadInput(f"{lsn} is not an LSN: they count from 1")
    remote = open_remote(options.remote, token=options.token, create=lambda: False)
    try:
        # Whoever takes an epoch must see what was committed before it, so its view comes after.
        several = options.exclusive or request.at is not None or is_id(request.name)
        opening = None if several else open_volume(remote, request.name, lsn)
        vid = find_volume(remote, request.name) if opening is None else VolumeId(opening.entry.target)
        writer_epoch = remote.ask(TAKE_EPOCH, VolumeRequest(vid.raw)).epoch if options.exclusive else 0
        if request.at is not None:
            lsn = lsn_as_of(remote, vid, request.at)
        source = Source(remote, vid, lsn=lsn, memory_bytes=options.memory_bytes, opening=opening)
    except BaseException:
        remote.close()
        raise
    read_only = request.mode == "ro"
    pages = LitePages(
        source,
        request.name,
        read_only=read_only,
        fixed=read_only and request.is_past,
        refresh_seconds=None if request.is_past else options.refresh_seconds,
        writer_epoch=writer_epoch,
    )

    def close() -> None:
        pages.close()
        remote.close()

    return Opened(pages, close)


_systems: Final[Systems[_Options]] = Systems("budwood-lite", _open)
