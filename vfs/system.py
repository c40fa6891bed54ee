"""System: the VFS object that SQLite opens files through.

A database's name is a volume's name: no directory is put in front of it, and a file of that name is never touched.
What else SQLite asks a VFS for:

- its journals: anonymous, since no journal outlives its transaction (journal.py); asked whether one exists, the
  answer is no;
- temporary files, which have no name: SQLite's own VFS makes them;
- a super-journal, by which it would commit several files at once: refused in words, since a crash could leave a
  database beside this one half written and its journal disbelieved;
- a WAL: never, as the VFS offers no shared memory.

Which volume a name stands for is the `Opener`'s to say. `connect` opens the volume first and hands it over, so that
an error comes out as it is and not as SQLite's "unable to open".
"""

# The methods' names are SQLite's.
# ruff: noqa: N802

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from itertools import count
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote
from weakref import WeakValueDictionary

import apsw
import msgspec

from ..volume.errors import BadInput, BudwoodError
from ..volume.ids import check_name
from ..volume.page import DEFAULT_PAGE_SIZE
from ..volume.protocols import Pages
from .apsw_connection import VolumeConnection
from .codes import as_sqlite
from .file import VolumeFile
from .journal import JournalFile

_MODES: Final = {
    "ro": apsw.SQLITE_OPEN_READONLY,
    "rw": apsw.SQLITE_OPEN_READWRITE,
    "rwc": apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE,
}
_HANDLE: Final = "handle"
_SYNCHRONOUS_COMMIT: Final = "synchronous_commit"
_FILE: Final = f"{VolumeFile.__module__}.{VolumeFile.__qualname__}"
"""What apsw calls the VFS of a database that is a volume."""
_numbers = count(1)

named: Final[WeakValueDictionary[str, VolumeVFS]] = WeakValueDictionary()
"""The newest VFS of each name."""


class Request(msgspec.Struct, frozen=True):
    """What is to be opened. `home` and `remote` are None where the VFS's own apply."""

    name: str
    mode: str = "rwc"
    """ro, rw, or rwc, which creates the volume if there is none."""
    lsn: int | None = None
    at: int | str | datetime | None = None
    """Milliseconds since the Unix epoch, an ISO 8601 text, or a datetime."""
    home: str | None = None
    remote: str | None = None
    wait_seconds: float = 0.0
    """For an LSN that is still to come."""
    cache_bytes: str | None = None
    """Of the home, from then on."""
    synchronous_commit: bool = False
    """Whether its commits are the remote's before they are made here."""
    on_invalidated: Callable[[Any], object] | None = None
    """Is told that what was read was discarded."""
    on_open: Callable[[Any, str], Callable[[], None]] | None = None
    """Is given the edge that the opener has, and the name; what it answers is called when the volume is closed."""

    @property
    def is_past(self) -> bool:
        """Whether one snapshot is asked for, and not the newest."""
        return self.lsn is not None or self.at is not None

    def __post_init__(self) -> None:
        """Raises BadInput on what can't name a volume or a view."""
        check_name(self.name)
        if self.mode not in _MODES:
            raise BadInput(f"mode {self.mode!r} is none of ro, rw and rwc")
        if self.lsn is not None and self.at is not None:
            raise BadInput("a view has an LSN or a time, not both")
        if self.lsn is not None and not (isinstance(self.lsn, int) and self.lsn >= 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput(f"{self.lsn!r} is not an LSN")


class Opened(NamedTuple):
    pages: Pages
    close: Callable[[], None]
    """Ends the pages and whatever was opened for them."""
    warm_bytes: int = 0
    """How much each connection may hold of what was read before (file.py); 0 where the pages hold it themselves."""


Opener = Callable[[Request], Opened]


class VolumeVFS(apsw.VFS):
    """Registered under `name` for as long as this object lives. `opener` opens the volumes that URIs name."""

    def __init__(self, name: str, opener: Opener) -> None:
        super().__init__(name, base="")
        self.name = name
        self.opener = opener
        self._handed: dict[str, tuple[Opened, bool]] = {}
        named[name] = self

    def connect(self, request: Request, *, timeout_seconds: float) -> apsw.Connection:
        """An open connection. The opener's errors come out untouched."""
        opened = self.opener(request)
        return self.connect_opened(opened, request, fixed=request.is_past, timeout_seconds=timeout_seconds)

    def connect_opened(
        self,
        opened: Opened,
        request: Request,
        *,
        fixed: bool,
        timeout_seconds: float,
    ) -> apsw.Connection:
        """A connection over pages that are open; it closes them, and so does a failure."""
        handle = str(next(_numbers))
        self._handed[handle] = opened, fixed
        uri = f"file:{quote(request.name)}?{_HANDLE}={handle}"
        if request.synchronous_commit:
            uri += f"&{_SYNCHRONOUS_COMMIT}=on"
        try:
            flags = apsw.SQLITE_OPEN_URI | _MODES[request.mode]
            # By this name, and not by a URI's, apsw holds this object until SQLite has closed the connection.
            connection = VolumeConnection(uri, flags, vfs=self.name)
        finally:
            if self._handed.pop(handle, None) is not None:
                opened.close()
        connection.set_busy_timeout(round(timeout_seconds * 1000))
        size = opened.pages.page_size
        if size is not None and size != DEFAULT_PAGE_SIZE:
            # Of an empty volume SQLite can't see the size that was settled when it was made; of any other, this says
            # what it knows.
            connection.pragma("page_size", size)
        return connection

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        wanted = flags[0]
        if name is None:
            return super().xOpen(name, flags)
        try:
            if wanted & apsw.SQLITE_OPEN_MAIN_DB:
                _check_no_path(name)
                # apsw takes any object that has the methods.
                return cast("apsw.VFSFile", self._open_volume(name, flags))
            if wanted & (apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL):
                raise BadInput(
                    "one transaction can't write to several databases when a volume is the main one: "
                    "it was rolled back; write to each in a transaction of its own"
                )
        except BudwoodError as error:
            raise as_sqlite(error) from None
        flags[1] = wanted
        return cast("apsw.VFSFile", JournalFile())

    def _open_volume(self, name: str | apsw.URIFilename, flags: list[int]) -> VolumeFile:
        if isinstance(name, apsw.URIFilename):
            handed = self._handed.pop(name.uri_parameter(_HANDLE) or "", None)
            synchronous = name.uri_boolean(_SYNCHRONOUS_COMMIT, False)
            opened, fixed = handed or self._open_named(name, flags[0])
        else:
            synchronous = False
            opened, fixed = self.opener(Request(name, _mode(flags[0]))), False
        try:
            file = VolumeFile(
                opened.pages,
                opened.close,
                fixed=fixed,
                warm_bytes=opened.warm_bytes,
                synchronous_commit=synchronous,
            )
        except BaseException:
            opened.close()
            raise
        flags[1] = flags[0]
        if opened.pages.read_only or fixed:
            flags[1] = flags[0] & ~_MODES["rwc"] | apsw.SQLITE_OPEN_READONLY
        return file

    def _open_named(self, name: apsw.URIFilename, wanted: int) -> tuple[Opened, bool]:
        """A volume by the parameters of a URI: they are valid only while the file is being opened."""
        lsn, at = name.uri_parameter("lsn"), name.uri_parameter("at")
        if lsn is not None and not lsn.isdecimal():
            raise BadInput(f"lsn={lsn} in the URI of volume {name.filename()!r} is not a number")
        request = Request(
            name.filename(),
            _mode(wanted),
            None if lsn is None else int(lsn),
            at,
            name.uri_parameter("home"),
            name.uri_parameter("remote"),
            cache_bytes=name.uri_parameter("cache_bytes"),
        )
        # Without locks SQLite would mix the views of two moments; so whoever asks for none gets one view.
        frozen = name.uri_boolean("immutable", False) or name.uri_boolean("nolock", False)
        return self.opener(request), frozen or request.is_past

    def xFullPathname(self, name: str) -> str:
        return name

    def xAccess(self, pathname: str, flags: int) -> bool:
        """Asked for journals, before each transaction."""
        return False

    def xSleep(self, microseconds: int) -> int:
        """How the busy handler waits. The inherited one keeps the GIL, and with it the thread that is waited for."""
        time.sleep(microseconds / 1e6)
        return microseconds

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """A journal, which went when it was closed."""


@atexit.register
def _close_all() -> None:
    """What a program leaves open when it ends, while Python still can: later SQLite would call into modules that have
    been taken apart."""
    for connection in apsw.connections():
        # One that a thread is using at this moment stays.
        with suppress(apsw.Error):
            if any(connection.vfsname(database) == _FILE for database in connection.db_names()):
                connection.close(force=True)


def _check_no_path(name: str | apsw.URIFilename) -> None:
    """ATTACH and VACUUM INTO take volumes' names, where a user of SQLite may write a path."""
    text = name.filename() if isinstance(name, apsw.URIFilename) else name
    if text.startswith("/"):
        raise BadInput(f"{text!r} can't name a volume: to ATTACH or VACUUM INTO a file say 'file:{text}?vfs=unix'")


def _mode(flags: int) -> str:
    if flags & apsw.SQLITE_OPEN_CREATE:
        return "rwc"
    return "rw" if flags & apsw.SQLITE_OPEN_READWRITE else "ro"
