"""Asyncio and trio: a volume's connection for programs that run in an event loop; `from budwood import aio`.

    async with aio.connect("inventory", remote="https://db.example") as db:
        async with db.transaction():
            await db.execute("UPDATE item SET n = n - 1 WHERE name = ?", ("bolt",))
        async for name, n in db.execute("SELECT name, n FROM item"): …
        await db.push()
        lsn = await db.wait()               # until the remote has something newer
        await db.pull()

Each connection has a thread of its own, which does what is asked in its order; the loop never waits. Errors are those
of `budwood.connect`: Budwood's own, and apsw's.

**Cancellation.** A cancelled statement is interrupted, and its caller goes on at once; the connection can be used
again, and does what is asked next when the statement has ended. What a single statement wrote is then rolled back,
unless it had ended just before. SQLite rolls back the whole transaction with a statement of it that wrote: whatever is
asked in that transaction's block afterwards says so, and does nothing. BEGIN's block ends in COMMIT or ROLLBACK in any
case. A push or a pull that was cancelled goes on in its thread; `status` waits for it, and says what it came to.

**Tasks.** A transaction of another task on the same connection is waited for; other statements are not kept apart:
whoever has several tasks that write gives each a connection. Tasks that are begun within a transaction are within it.
"""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeVar, cast

import anyio
import apsw

from ..volume.errors import BadInput, NotFound, UsageError
from .worker import Worker, waker

Bindings = Sequence[Any] | dict[str, Any]
Mode = Literal["DEFERRED", "IMMEDIATE"]
T = TypeVar("T")

BATCH_ROWS: Final = 64
"""Of a result, fetched at once."""
_TRANSACTIONS: Final = ContextVar[frozenset[object]]("budwood_aio_transactions", default=frozenset())
"""Those whose blocks this task is in, or the one that began it was."""
_STEPS: Final = 2_000
"""Of SQLite's machine, between two looks whether a statement is still wanted: far less than a millisecond."""


class _Closes(Protocol):
    async def aclose(self) -> None: ...


R = TypeVar("R", bound=_Closes)


class Asked(Generic[R]):
    """`await` it for what was asked, or enter it with `async with`, which closes that at the end."""

    def __init__(self, made: Coroutine[Any, Any, R]) -> None:
        self._made: Awaitable[R] = made
        self._entered: R | None = None

    def __await__(self) -> Generator[Any, Any, R]:
        return self._made.__await__()

    async def __aenter__(self) -> R:
        self._entered = await self._made
        return self._entered

    async def __aexit__(self, *error: object) -> None:
        assert self._entered is not None
        await self._entered.aclose()


class AskedRows(Asked["Cursor"]):
    """An execution; `async for` goes over its rows and closes it."""

    async def __aiter__(self) -> AsyncGenerator[tuple[Any, ...]]:
        async with self as cursor:
            async for row in cursor:
                yield row


def connect(name: str, **options: Any) -> Asked[Connection]:
    """A volume; the options are those of `budwood.connect`, and so are its errors."""
    return Asked(_connect(name, options))


async def _connect(name: str, options: dict[str, Any]) -> Connection:
    from .connect import connect as connect_blocking

    worker = Worker(f"budwood-aio-{name}")
    try:
        raw = await worker.do(lambda: connect_blocking(name, **options), unwanted=lambda made: made.close())
    except BaseException:
        worker.stop()
        raise
    return Connection(worker, raw, name, options.get("token"))


class Connection:
    """Made by `connect`."""

    def __init__(self, worker: Worker, raw: apsw.Connection, name: str, token: str | None) -> None:
        self.name = name
        self._worker = worker
        self._raw: apsw.Connection | None = raw
        self._token = token
        self._turn = anyio.Lock()
        self._owner: int | None = None
        """The task whose transaction is open."""
        self._transaction: object = None
        self._depth = 0
        # What was cancelled ends by these. SQLite's `interrupt` would end whatever else the connection has open, too.
        raw.set_progress_handler(lambda: worker.is_unwanted, _STEPS)
        raw.exec_trace = lambda cursor, sql, bindings: not worker.is_unwanted

    def execute(self, sql: str, bindings: Bindings = ()) -> AskedRows:
        """One or more statements; `await` it, enter it, or go over its rows."""
        return AskedRows(self._execute(sql, bindings))

    async def executemany(self, sql: str, rows: Iterable[Bindings]) -> None:
        """A statement for each of the rows; in one transaction, if it stands in one."""
        given = list(rows)
        await self._statement(lambda raw: raw.executemany(sql, given).close())

    async def fetchall(self, sql: str, bindings: Bindings = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement, in one turn."""
        return await self._statement(lambda raw: raw.execute(sql, bindings).fetchall())

    async def fetchone(self, sql: str, bindings: Bindings = ()) -> tuple[Any, ...] | None:
        """The first row of a statement, if it has one."""

        def first(raw: apsw.Connection) -> tuple[Any, ...] | None:
            cursor = raw.execute(sql, bindings)
            try:
                return cast("tuple[Any, ...] | None", cursor.fetchone())
            finally:
                cursor.close(True)

        return await self._statement(first)

    async def run(self, function: Callable[[apsw.Connection], T]) -> T:
        """What `function` answers, called with the apsw.Connection in its thread: for all that stands nowhere here. It
        must keep nothing of the connection's."""
        raw = self._opened()
        return await self._worker.do(lambda: function(raw))

    @asynccontextmanager
    async def transaction(self, mode: Mode = "DEFERRED") -> AsyncGenerator[Self]:
        """BEGIN, and COMMIT at the end; ROLLBACK if it ends in an error. Within a transaction of the same task it is a
        savepoint. Raises what COMMIT raises, once all is rolled back."""
        task = anyio.get_current_task().id
        if self._owner == task:
            async with self._savepoint():
                yield self
            return
        async with self._turn:
            self._owner, self._transaction, around = task, object(), _TRANSACTIONS.get()
            _TRANSACTIONS.set(around | {self._transaction})
            try:
                async with self._block(f"BEGIN {mode}", "COMMIT", "ROLLBACK"):
                    yield self
            finally:
                self._owner = self._transaction = None
                _TRANSACTIONS.set(around)

    @asynccontextmanager
    async def _savepoint(self) -> AsyncGenerator[None]:
        name = f"budwood_{self._depth}"
        undo = f"ROLLBACK TO {name}; RELEASE {name}"
        async with self._block(f"SAVEPOINT {name}", f"RELEASE {name}", undo):
            yield

    @asynccontextmanager
    async def _block(self, begin: str, end: str, undo: str) -> AsyncGenerator[None]:
        has_begun = False

        def enter(raw: apsw.Connection) -> None:
            nonlocal has_begun
            raw.execute(begin)
            has_begun = True

        def leave(raw: apsw.Connection) -> None:
            if has_begun and raw.in_transaction:
                raw.execute(undo)

        try:
            await self._statement(enter)
            self._depth += 1
            try:
                yield
                # From here on it is decided here, whoever is cancelled.
                with anyio.CancelScope(shield=True):
                    await self._statement(lambda raw: raw.execute(end))
            finally:
                self._depth -= 1
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.run(leave)
            raise

    async def push(self) -> dict[str, Any]:
        """Send what was committed here to the remote. Raises Diverged, Unavailable, BadInput within a transaction."""
        return await self._ask("push")

    async def pull(self) -> dict[str, Any]:
        """Move to the remote's newest commit."""
        return await self._ask("pull")

    async def fetch(self) -> dict[str, Any]:
        """Bring in all pages that are not here yet."""
        return await self._ask("fetch")

    async def status(self) -> dict[str, Any]:
        """How the volume stands here."""
        return await self._ask("status")

    async def wait(self, after: int | None = None) -> int:
        """The LSN of the remote's newest commit, once it has one after `after`, or after the one that this home stands
        on. The connection's thread is free meanwhile. Raises NotFound if the remote doesn't know the volume."""
        from ..remote.listening import Progress
        from ..remote.portal import open_remote
        from ..volume.ids import VolumeId

        status = await self.status()
        if not status["remote"] or not status["remote_lsn"]:
            raise NotFound(f"volume {self.name!r} was never pushed: its remote has nothing to wait for")
        since = status["remote_lsn"] if after is None else after
        vid = VolumeId.parse(status["id"])

        async def newer(remote: Any) -> int:
            progress = await Progress.begin(remote, vid, after=since)
            return (await progress.ask_more(remote))[-1].lsn

        remote = open_remote(status["remote"], token=self._token, create=lambda: False)
        try:
            return await _begun(remote, newer)
        finally:
            remote.close()

    async def aclose(self) -> None:
        """Close it; what was not committed is rolled back. Twice is as once."""
        raw, self._raw = self._raw, None
        if raw is None:
            return
        with anyio.CancelScope(shield=True):
            try:
                await self._worker.do(lambda: raw.close(True))
            finally:
                self._worker.stop()

    close = aclose

    def __del__(self) -> None:
        raw = self._raw
        if raw is not None:
            warnings.warn(f"a connection to volume {self.name!r} was not closed", ResourceWarning, stacklevel=2)
            self._worker.begin(lambda: raw.close(True))
            self._worker.stop()

    async def _execute(self, sql: str, bindings: Bindings) -> Cursor:
        cursor = Cursor(self._worker)

        def start(raw: apsw.Connection) -> Cursor:
            cursor.start(raw.cursor(), sql, bindings)
            return cursor

        return await self._statement(start, unwanted=Cursor.drop)

    async def _statement(
        self, work: Callable[[apsw.Connection], T], unwanted: Callable[[T], object] | None = None
    ) -> T:
        raw = self._opened()
        within = self._depth > 0 and self._transaction in _TRANSACTIONS.get()

        def do() -> T:
            if within and not raw.in_transaction:
                raise UsageError(
                    f"volume {self.name!r}: SQLite rolled this transaction back when a statement of it was cut off: "
                    "leave its block, and begin it anew"
                )
            return work(raw)

        return await self._worker.do(do, unwanted=unwanted)

    async def _ask(self, verb: str) -> dict[str, Any]:
        def ask(raw: apsw.Connection) -> dict[str, Any]:
            ((told,),) = raw.execute(f"PRAGMA budwood_{verb}").fetchall()
            return cast("dict[str, Any]", json.loads(cast("str", told))[0])

        return await self.run(ask)

    def _opened(self) -> apsw.Connection:
        if self._raw is None:
            raise BadInput(f"this connection to volume {self.name!r} is closed: open another")
        return self._raw


class Cursor:
    """The rows of an execution; its first are there already. Closed at their end, or by `aclose`."""

    def __init__(self, worker: Worker) -> None:
        self.columns: tuple[str, ...] = ()
        """Their names; of the last statement that has any."""
        self._worker = worker
        self._raw: apsw.Cursor | None = None
        self._rows: deque[tuple[Any, ...]] = deque()
        self._cut = False

    def start(self, raw: apsw.Cursor, sql: str, bindings: Bindings) -> None:
        """In the thread."""
        self._raw = raw
        raw.exec_trace = self._look
        try:
            raw.execute(sql, bindings)
            self._rows.extend(self._more(BATCH_ROWS))
        except BaseException:
            self.drop()
            raise

    def _look(self, raw: apsw.Cursor, sql: str, bindings: Any) -> bool:
        self.columns = tuple(column[0] for column in raw.get_description()) or self.columns
        return not self._worker.is_unwanted

    def _more(self, number: int) -> list[tuple[Any, ...]]:
        assert self._raw is not None
        rows = list(islice(self._raw, number))
        if len(rows) < number:
            self.drop()
        return rows

    def drop(self) -> None:
        """In the thread."""
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.close(True)

    async def fetchmany(self, number: int = BATCH_ROWS) -> list[tuple[Any, ...]]:
        """The next rows, fewer at the end."""
        missing = number - len(self._rows)
        if self._cut:
            raise UsageError("a fetch of this cursor was cut off, and rows of it are lost: execute it again")
        if missing > 0 and self._raw is not None:
            try:
                self._rows.extend(await self._worker.do(lambda: self._more(missing) if self._raw else []))
            except BaseException:
                self._cut = True
                raise
        return [self._rows.popleft() for _ in range(min(number, len(self._rows)))]

    async def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None at the end."""
        if not self._rows:
            self._rows.extend(await self.fetchmany())
        return self._rows.popleft() if self._rows else None

    async def fetchall(self) -> list[tuple[Any, ...]]:
        """All that are left."""
        rows: list[tuple[Any, ...]] = []
        while some := await self.fetchmany():
            rows += some
        return rows

    async def __aiter__(self) -> AsyncGenerator[tuple[Any, ...]]:
        while (row := await self.fetchone()) is not None:
            yield row

    async def aclose(self) -> None:
        self._rows.clear()
        if self._raw is not None:
            with anyio.CancelScope(shield=True):
                await self._worker.do(self.drop)

    close = aclose

    def __del__(self) -> None:
        if self._raw is not None:
            # Closing waits for the connection's mutex, which is the thread's to do.
            self._worker.begin(self._raw.close)


async def _begun(remote: Any, work: Callable[[Any], Awaitable[int]]) -> int:
    """What `work` comes to in the remotes' own loop; abandoned where its caller is cancelled."""
    ended = anyio.Event()
    begun = remote.begin(work, waker(ended))
    try:
        await ended.wait()
    except BaseException:
        begun.abandon()
        raise
    return cast("int", begun.result())
