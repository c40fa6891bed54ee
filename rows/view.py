"""View: one snapshot of a SQLite database, as pages and as a connection that reads them.

Both are the same moment: the connection opens the very snapshot that the pages are read from, so that what is found in
the pages (candidates.py) can be asked of SQLite, which knows what a row is. Only pages that are asked for are fetched;
many at once where it is known beforehand which.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Final, TypeAlias

from ..sqlite.header import HEADER_SIZE, Header, is_sqlite, parse_header
from ..vfs.system import Opened, Request, VolumeVFS
from ..volume.errors import BadInput, ReadOnly, Unsupported
from ..volume.pageset import PageSet, page_count, rescaled
from ..volume.protocols import Row, Snapshot, Writer

AT_ONCE_BYTES: Final = 4 * 1024 * 1024
"""Of one request: what a snapshot holds of it meanwhile."""
CACHED_PAGES: Final = 256
"""Of this room's own: interior pages, above all."""

_numbers = count(1)


Fetches: TypeAlias = Callable[[PageSet], None]
"""Brings pages that a snapshot lacks, all in one request."""


def batches(pages: Iterable[int], page_size: int) -> Iterator[list[int]]:
    """So many of them at a time as are fetched at once."""
    remaining = iter(pages)
    while some := list(islice(remaining, max(1, AT_ONCE_BYTES // page_size))):
        yield some


def nothing_to_fetch(_: PageSet) -> None:
    """For a snapshot whose pages are all here."""


class View:
    """Pages are the database's, whatever the volume's size of them. A snapshot of nothing is a database without tables.

    Closing it closes the connection, and not the snapshot. Raises BadInput where there is no database.
    """

    def __init__(self, name: str, snapshot: Snapshot, fetch: Fetches = nothing_to_fetch) -> None:
        self.name = name
        self.snapshot = snapshot
        self._fetch = fetch
        self._kept: dict[int, bytes] = {}
        first = snapshot.read(1) if snapshot.length else b""
        if snapshot.length and not is_sqlite(first[:HEADER_SIZE]):
            raise BadInput(f"volume {name!r} holds no SQLite database at {snapshot.label}: its rows can't be compared")
        self._header = parse_header(first) if first else None
        self.page_count = page_count(snapshot.length, self.header.page_size) if self._header else 0
        self._vfs = VolumeVFS(f"budwood-view-{next(_numbers)}", refuse)
        opened = Opened(OneSnapshot(name, snapshot), lambda: None)
        self.connection = self._vfs.connect_opened(opened, Request(name, "ro"), fixed=True, timeout_seconds=0)
        self.connection.pragma("cache_size", -16_384)

    @property
    def empty(self) -> bool:
        return self._header is None

    @property
    def header(self) -> Header:
        """Of a view that isn't empty."""
        assert self._header is not None
        return self._header

    def fetch(self, pages: PageSet) -> None:
        """Have these here before they are read one by one."""
        size = self.snapshot.page_size
        for some in batches(rescaled(pages, self.header.page_size, size), size):
            self._fetch(PageSet(some))

    def read(self, page: int) -> bytes:
        data = self._kept.get(page)
        if data is None:
            data = self._read(page)
            if len(self._kept) >= CACHED_PAGES:
                del self._kept[next(iter(self._kept))]
            self._kept[page] = data
        return data

    def _read(self, page: int) -> bytes:
        size, own = self.header.page_size, self.snapshot.page_size
        if size == own:
            return bytes(self.snapshot.read(page))
        pages = rescaled(PageSet((page,)), size, own)
        data = b"".join(self.snapshot.read(each) for each in pages)
        start = (page - 1) * size - (pages.min() - 1) * own
        return data[start : start + size]

    def close(self) -> None:
        self.connection.close()
        self._vfs.unregister()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def valid_schema() -> Generator[None]:
    """Raises Unsupported where a name or a statement of a database's schema isn't text in its encoding."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise Unsupported(f"the database's schema has a name or a statement that is no text: {error}") from error


class OneSnapshot:
    """Answers the protocol `Pages` with one snapshot, which stays its owner's."""

    read_only = True

    def __init__(self, name: str, snapshot: Snapshot) -> None:
        self.name = name
        self._snapshot = snapshot

    @property
    def page_size(self) -> int | None:
        return self._snapshot.page_size

    def snapshot(self) -> Snapshot:
        return _Held(self._snapshot)

    def writer(self, snapshot: Snapshot, *, page_size: int | None = None) -> Writer:
        raise ReadOnly(f"this view of {self.name!r} is read and not written")

    def status(self) -> Row:
        return self.view_row(None)

    def view_row(self, view: Snapshot | None) -> Row:
        return {"name": self.name, "lsn": self._snapshot.label, "length": self._snapshot.length, "read_only": True}

    def log_rows(self, argument: str | None) -> list[Row]:
        raise self._refusal()

    def bind_rows(self, argument: str | None) -> list[Row]:
        raise self._refusal()

    def push_row(self, as_name: str | None) -> Row:
        raise self._refusal()

    def pull_row(self) -> Row:
        raise self._refusal()

    def fetch_row(self) -> Row:
        raise self._refusal()

    def close(self) -> None: ...

    def _refusal(self) -> ReadOnly:
        return ReadOnly(f"this view of {self.name!r} is of one snapshot, and is only read")


class _Held:
    """A snapshot that others hold: it is neither let go of nor closed here."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.read = snapshot.read
        self.ahead = dict[int, bytes]()

    @property
    def length(self) -> int:
        return self._snapshot.length

    @property
    def page_size(self) -> int:
        return self._snapshot.page_size

    @property
    def identity(self) -> int:
        return self._snapshot.identity

    @property
    def history(self) -> int:
        return self._snapshot.history

    @property
    def label(self) -> str:
        return self._snapshot.label

    def release(self) -> None: ...

    def renew(self) -> bool:
        return True

    def close(self) -> None: ...


def refuse(request: Request) -> Opened:
    raise BadInput(f"{request.name!r} can't be opened beside a view")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
