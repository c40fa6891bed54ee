"""Query plan: which pages of a snapshot a query touches, found by running it here, over that snapshot.

An edge that holds nothing would ask for a B-tree's pages level by level, a request each; a node is next to the store
and most of what it reads is in its cache. So it runs the query, throws the rows away and answers with the page set,
which the edge then fetches in one.

Whoever asks may send any text, and the database may be anybody's too. So the query is given

- nothing but reading: an authorizer refuses all but SELECT, the columns it reads, recursion and functions; there is no
  ATTACH, no PRAGMA, no extension, no file but the snapshot's (temporary ones are kept in memory, which is bounded);
- so much time, counted by a progress handler and at each page it reads, so many pages, and so much memory, and values
  no longer than a megabyte, so that no single step of SQLite's machine takes longer than the whole may;
- a thread, one for all queries of a node (and one for those of its pages, which show what they find: `rows`), so that
  its loop goes on and nobody's queries take more than one core.

What goes beyond is BadInput, in words.
"""

# The methods' names are SQLite's.
# ruff: noqa: N802

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple, TypeAlias, TypeVar, cast

import anyio
import anyio.from_thread
import apsw

from ..sqlite.invalid_text import decoded, in_hex
from ..sqlite.record import Value
from ..volume.calls import SNAPSHOT, PlanRequest, QueryPages, SnapshotRequest
from ..volume.errors import BadInput, Locked
from ..volume.frame import Frame, unpack_frame
from ..volume.ids import VolumeId
from ..volume.page import zeros
from ..volume.page_cache import PageCache
from ..volume.pageset import PageSet, encode_pages, page_count
from ..volume.protocols import Remote
from ..volume.wire import SnapshotInfo
from .in_thread import in_thread

_ALLOWED: Final = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_RECURSIVE})
_REFUSED_FUNCTIONS: Final = frozenset({"load_extension", "fts3_tokenizer"})
_CACHE_BYTES: Final = 16 * 1024 * 1024
"""Pages that came in a frame with one that was asked for."""
_STEPS: Final = 25
"""Of SQLite's machine, between two looks at the clock."""
_BOUNDS: Final = (
    (apsw.SQLITE_LIMIT_LENGTH, 1_000_000),
    (apsw.SQLITE_LIMIT_SQL_LENGTH, 1_000_000),
    (apsw.SQLITE_LIMIT_EXPR_DEPTH, 200),
    (apsw.SQLITE_LIMIT_COMPOUND_SELECT, 100),
    (apsw.SQLITE_LIMIT_VDBE_OP, 100_000),
    (apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
    (apsw.SQLITE_LIMIT_ATTACHED, 0),
    (apsw.SQLITE_LIMIT_WORKER_THREADS, 0),
)
_GIVEN_SQL_BYTES: Final = 64 * 1024
"""Of a caller's; what is made here names each column of a table, of which there may be thousands."""
_numbers = count(1)

Values: TypeAlias = tuple[Value, ...]
T = TypeVar("T")
U = TypeVar("U")
Ask: TypeAlias = Callable[[apsw.Connection, T], U]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one query."""

    seconds: float = 5.0
    pages: int = 16_384
    memory_bytes: int = 64 * 1024 * 1024


LIMITS: Final = Limits()


class QueryPlanner:
    """Of one node. Belongs to its event loop."""

    def __init__(self) -> None:
        self._thread = anyio.CapacityLimiter(1)

    async def pages(self, node: Remote, request: PlanRequest) -> QueryPages:
        """Raises BadInput for what can't be run, or takes too much; NotFound, Forgotten, Corrupt, Unavailable."""
        view = await node.ask(SNAPSHOT, SnapshotRequest(request.vid, lsn=request.lsn or None))
        check_readable(view)
        if not view.length:
            return QueryPages(snapshot=view, pages=encode_pages(PageSet()))
        run = _Run(node, [view], LIMITS)
        await in_thread(run.run_through, request.sql, limiter=self._thread)
        return QueryPages(snapshot=view, pages=encode_pages(run.sources[0].touched))

    async def rows(self, node: Remote, view: SnapshotInfo, sql: str, values: Values = (), *, most: int) -> Rows:
        """What the query says of a snapshot, as far as `most` rows. Raises as `pages`."""
        check_readable(view)
        run = _Run(node, [view], LIMITS)
        return await in_thread(run.query, sql, values, most, limiter=self._thread)

    async def beside(
        self, node: Remote, view: SnapshotInfo, old: SnapshotInfo, look: Callable[[apsw.Connection], T], ask: Ask[T, U]
    ) -> U:
        """What is asked of two snapshots, `main` and `old`, in one: `look` may read their schemas by pragmas, and `ask`
        makes queries of what that found. Raises as `pages`."""
        check_readable(view)
        check_readable(old)
        run = _Run(node, [view, old], LIMITS)
        return await in_thread(run.work, look, ask, limiter=self._thread)


def check_readable(view: SnapshotInfo) -> None:
    """Raises Locked of an encrypted volume, which no node can look into."""
    if view.encryption:
        raise Locked("the volume is encrypted, and a node has none of its keys: run the query where one is")


class Rows(NamedTuple):
    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]]
    is_all: bool


class _Run:
    """One query, or several of one connection, in their thread. The first snapshot is `main`, a second `old`."""

    def __init__(self, node: Remote, views: Sequence[SnapshotInfo], limits: Limits) -> None:
        self.node = node
        self.sources = [_Source(self, view) for view in views]
        self._limits = limits
        self._end = 0.0
        self._used_before = 0
        self._failure: BaseException | None = None
        """What SQLite was stopped for: it would wrap it."""

    def query(self, sql: str, values: Values, most: int) -> Rows:
        """The first rows."""
        return self.work(lambda _: None, lambda connection, _: first_rows(connection, sql, values, most))

    def run_through(self, sql: str) -> None:
        """To its end."""
        self.work(lambda _: None, lambda connection, _: _run_through(connection, sql))

    def work(self, look: Callable[[apsw.Connection], T], ask: Ask[T, U]) -> U:
        """`look` is before what is asked is confined to SELECT."""
        self._end = time.monotonic() + self._limits.seconds
        self._used_before = apsw.memory_used()
        try:
            with ExitStack() as stack:
                uris: list[str] = []
                for source in self.sources:
                    vfs = _SnapshotVFS(f"budwood-plan-{next(_numbers)}", source)
                    stack.callback(vfs.unregister)
                    uris.append(f"file:snapshot?vfs={vfs.name}")
                flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READONLY
                connection = stack.enter_context(closing(apsw.Connection(uris[0], flags)))
                connection.set_progress_handler(self._is_over, _STEPS)
                for uri in uris[1:]:
                    connection.execute("ATTACH ? AS old", (uri,))
                self._bound(connection)
                found = look(connection)
                connection.authorizer = _authorized
                answer = ask(connection, found)
        except BaseException as error:
            if self._failure is not None:
                raise self._failure from None
            if isinstance(error, apsw.Error | UnicodeError):
                raise BadInput(f"that query can't be run here: {error}") from None
            raise
        if self._failure is not None:
            raise self._failure
        return answer

    def take(self, source: _Source, page: int) -> None:
        """Count a page. Raises what ends the query, which is kept for who asked."""
        try:
            if page not in source.touched:
                if sum(len(each.touched) for each in self.sources) >= self._limits.pages:
                    raise BadInput(f"that query touches more than {self._limits.pages:,} pages, {_INSTEAD}")
                source.touched.add(page)
            if self._is_over():
                assert self._failure is not None
                raise self._failure
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        self._failure = self._failure or error

    def _bound(self, connection: apsw.Connection) -> None:
        for limit, most in _BOUNDS:
            connection.limit(limit, most)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.pragma("temp_store", "memory")
        connection.pragma("cell_size_check", "on")
        connection.pragma("mmap_size", 0)

    def _is_over(self) -> bool:
        if self._failure is None:
            limits = self._limits
            if time.monotonic() >= self._end:
                self._failure = BadInput(f"that query takes longer than {limits.seconds:g} s here, {_INSTEAD}")
            elif apsw.memory_used() - self._used_before > limits.memory_bytes:
                most = limits.memory_bytes >> 20
                self._failure = BadInput(f"that query takes more than {most} MiB of memory, {_INSTEAD}")
        return self._failure is not None


class _Source:
    """One snapshot's pages, for SQLite."""

    def __init__(self, run: _Run, view: SnapshotInfo) -> None:
        self.view = view
        self.touched = PageSet()
        self._run = run
        self._vid = VolumeId(view.vid)
        self._cache = PageCache(_CACHE_BYTES)

    def read(self, page: int) -> bytes:
        """Raises what befell it, which is kept for who asked."""
        self._run.take(self, page)
        try:
            data = self._cache.get(page)
            return self._fetch(page) if data is None else data
        except BaseException as error:
            self._run.fail(error)
            raise

    def _fetch(self, page: int) -> bytes:
        view = self.view
        if page > page_count(view.length, view.page_size):
            return zeros(view.page_size)
        frames = anyio.from_thread.run(self._frames, page)
        found = {page: zeros(view.page_size)}
        for frame in frames:
            pages = unpack_frame("the store", frame.info, frame.stored, view.page_size)
            found.update((at, data) for at, data in zip(frame.info.pages, pages, strict=True) if at in frame.valid)
        self._cache.update(found)
        return found[page]

    async def _frames(self, page: int) -> list[Frame]:
        async with self._run.node.read_pages(self._vid, self.view.lsn, PageSet([page])) as answer:
            return [frame async for frame in answer.frames()]


_INSTEAD: Final = "which is more than a node spends on one: narrow it, or fetch the whole volume"


def _authorized(action: int, _: str | None, function: str | None, *__: str | None) -> int:
    if action in _ALLOWED or (action == apsw.SQLITE_FUNCTION and function not in _REFUSED_FUNCTIONS):
        return apsw.SQLITE_OK
    return apsw.SQLITE_DENY


def _run_through(connection: apsw.Connection, sql: str) -> None:
    connection.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, _GIVEN_SQL_BYTES)
    rows = connection.execute(sql, can_cache=False)
    while True:
        try:
            next(rows)
        except StopIteration:
            return
        except UnicodeDecodeError:
            # SQLite takes any bytes for a text. They were read, and are nobody's business here.
            continue


def first_rows(connection: apsw.Connection, sql: str, values: Values, most: int) -> Rows:
    """Of one SELECT, as far as `most`. Where a text isn't valid in the database's encoding, it is shown with \\x.. for
    each byte that isn't."""
    try:
        return _first_rows(connection, sql, values, most)
    except UnicodeDecodeError:
        columns = tuple(str(each[0]) for each in connection.execute(sql, values, can_cache=False).get_description())
        found = _first_rows(connection, in_hex(sql, len(columns)), values, most)
        codec = _CODECS[connection.execute("SELECT CAST('a' AS BLOB)").get]
        return Rows(columns, [decoded(row, codec, "backslashreplace") for row in found.rows], found.is_all)


def _first_rows(connection: apsw.Connection, sql: str, values: Values, most: int) -> Rows:
    cursor = connection.execute(sql, values, can_cache=False)
    rows: list[tuple[Value, ...]] = []
    columns: tuple[str, ...] = ()
    for row in cursor:
        columns = columns or tuple(str(each[0]) for each in cursor.get_description())
        if len(rows) == most:
            return Rows(columns, rows, is_all=False)
        rows.append(row)
    return Rows(columns, rows, is_all=True)


_CODECS: Final[dict[object, str]] = {b"a": "utf-8", b"a\0": "utf-16-le", b"\0a": "utf-16-be"}
"""By what an "a" is in the database."""


class _SnapshotVFS(apsw.VFS):
    """One file, which can't be written. Nothing else is opened."""

    def __init__(self, name: str, source: _Source) -> None:
        super().__init__(name, base="")
        self.name = name
        self._source = source

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if not flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            raise apsw.CantOpenError("a query that is only looked at has no files")
        flags[1] = flags[0]
        # apsw takes any object that has the methods.
        return cast("apsw.VFSFile", _SnapshotFile(self._source.view, self._source.read))

    def xFullPathname(self, name: str) -> str:
        return name

    def xAccess(self, pathname: str, flags: int) -> bool:
        return False

    def xDelete(self, filename: str, syncdir: bool) -> None:
        raise apsw.ReadOnlyError("a snapshot can't be written")


class _SnapshotFile:
    def __init__(self, view: SnapshotInfo, read: Callable[[int], bytes]) -> None:
        self._view = view
        self._read = read

    def xRead(self, amount: int, offset: int) -> bytes:
        size = self._view.page_size
        if offset >= self._view.length:
            return b""
        first, last = offset // size, (offset + amount - 1) // size
        data = b"".join(self._read(page + 1) for page in range(first, last + 1))
        return data[offset - first * size :][:amount]

    def xFileSize(self) -> int:
        return self._view.length

    def xWrite(self, data: bytes, offset: int) -> None:
        raise apsw.ReadOnlyError("a snapshot can't be written")

    def xTruncate(self, size: int) -> None:
        raise apsw.ReadOnlyError("a snapshot can't be written")

    def xSync(self, flags: int) -> None:
        """There is nothing to write."""

    def xLock(self, level: int) -> None:
        """A snapshot never changes."""

    def xUnlock(self, level: int) -> None:
        """See xLock."""

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return 4096

    def xDeviceCharacteristics(self) -> int:
        return int(apsw.SQLITE_IOCAP_IMMUTABLE)

    def xClose(self) -> None:
        """See xSync."""
