"""A volume in an event loop, asyncio's and trio's alike."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

import budwood
from budwood import aio
from budwood.vfs.worker import waker
from budwood.volume.errors import BadInput, Diverged, NotFound, UsageError

from ..waits import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
ENDLESS_WRITE = "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def connect(self, home: str = "one", **options: Any) -> aio.Asked[aio.Connection]:
        return aio.connect("shop", home=self.folder / home, remote=f"file://{self.folder}/store", **options)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def cancelled(db: aio.Connection, sql: str) -> None:
    """A statement that would never end is under way, and then is cancelled: it ends within a few hundred rows."""
    begun = anyio.Event()
    wake, calls = waker(begun), count()

    def one(*_: object) -> int:
        if next(calls) == 0:
            wake()
        return 1

    await db.run(lambda raw: raw.create_scalar_function("one", one))
    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(db.fetchall, sql.replace("i + 1", "i + one()", 1))
            await begun.wait()
            tasks.cancel_scope.cancel()
        cancelled_at = next(calls)
        await db.run(lambda _: None)
    assert next(calls) - cancelled_at < 500


async def test_rows_go_in_and_come_out(place: Place) -> None:
    async with place.connect() as db:
        await db.execute("CREATE TABLE t(a, b)")
        await db.executemany("INSERT INTO t VALUES(?, ?)", ((n, f"{n}") for n in range(500)))
        async with db.execute("SELECT a AS first, b FROM t WHERE a < ? ORDER BY a", (300,)) as cursor:
            assert cursor.columns == ("first", "b")
            assert await cursor.fetchone() == (0, "0")
            assert await cursor.fetchmany(2) == [(1, "1"), (2, "2")]
            assert len(await cursor.fetchall()) == 297
            assert await cursor.fetchone() is None
        assert [row async for row in db.execute("SELECT a FROM t WHERE a > :a", {"a": 497})] == [(498,), (499,)]
        assert await db.fetchone("SELECT count(*) FROM t") == (500,)
        assert await db.fetchone("SELECT 1 WHERE 0") is None
        cursor = await db.execute("SELECT 1 AS none WHERE 0")
        assert (cursor.columns, await cursor.fetchall()) == (("none",), [])
        with pytest.raises(apsw.SQLError, match="no such table"):
            await db.execute("SELECT * FROM missing")
        assert await db.run(lambda raw: raw.total_changes()) == 500
    await db.close()
    with pytest.raises(BadInput, match="is closed"):
        await db.execute("SELECT 1")


async def test_all_of_a_connection_is_done_in_one_thread_of_its_own(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        found = [await db.run(lambda _: threading.get_ident()) for db in (one, one, other)]
        assert found[0] == found[1]
        assert len({*found, threading.get_ident()}) == 3


async def test_the_loop_goes_on_while_a_statement_runs(place: Place) -> None:
    async with place.connect() as db:
        released = threading.Event()
        async with anyio.create_task_group() as tasks:

            async def release() -> None:
                # It runs only if the loop isn't what waits below.
                released.set()

            await db.run(lambda raw: raw.create_scalar_function("held", lambda *_: released.wait(LIMIT_SECONDS)))
            tasks.start_soon(release)
            assert await db.fetchone("SELECT held()") == (1,)


async def test_a_transaction_commits_or_rolls_back_whole(place: Place) -> None:
    async with place.connect() as db, place.connect() as other:
        await db.execute("CREATE TABLE t(a UNIQUE)")
        async with db.transaction("IMMEDIATE"):
            await db.execute("INSERT INTO t VALUES(1)")
            with pytest.raises(apsw.ConstraintError):  # noqa: PT012
                async with db.transaction():
                    await db.execute("INSERT INTO t VALUES(2)")
                    await db.execute("INSERT INTO t VALUES(1)")
            assert await other.fetchall("SELECT a FROM t") == []
            async with db.transaction():
                await db.execute("INSERT INTO t VALUES(3)")
            with pytest.raises(BadInput, match="COMMIT or ROLLBACK first"):
                await db.push()
        assert await other.fetchall("SELECT a FROM t") == [(1,), (3,)]
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with db.transaction():
                await db.execute("DELETE FROM t")
                raise ZeroDivisionError
        assert await db.fetchall("SELECT a FROM t") == [(1,), (3,)]


async def test_the_transaction_of_another_task_is_waited_for(place: Place) -> None:
    async with place.connect() as db:
        await db.execute("CREATE TABLE t(a)")

        async def write(number: int) -> None:
            async with db.transaction():
                for _ in range(3):
                    await db.execute("INSERT INTO t VALUES(?)", (number,))
                    await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(write, number)
        written = [number for (number,) in await db.fetchall("SELECT a FROM t ORDER BY rowid")]
        assert len(written) == 12
        assert all(len(set(written[at : at + 3])) == 1 for at in range(0, 12, 3))


async def test_a_cancelled_query_is_interrupted_and_the_connection_goes_on(place: Place) -> None:
    async with place.connect() as db:
        await db.execute("CREATE TABLE t(a)")
        for sql in (ENDLESS, ENDLESS_WRITE):
            await cancelled(db, sql)
            assert await db.fetchone("SELECT count(*) FROM t") == (0,)
        with anyio.fail_after(LIMIT_SECONDS):
            cursor = await db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n")
            async with aclosing(cursor):
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await cursor.fetchmany(1000)
                with pytest.raises(UsageError, match="rows of it are lost"):
                    await cursor.fetchmany()
        await db.execute("INSERT INTO t VALUES(1)")
        assert await db.fetchall("SELECT a FROM t") == [(1,)]


async def test_a_cancelled_statement_leaves_others_whose_rows_are_still_read_alone(place: Place) -> None:
    async with place.connect() as db:
        await db.execute("CREATE TABLE t(a)")
        await db.executemany("INSERT INTO t VALUES(?)", ((number,) for number in range(1000)))
        async with db.execute("SELECT a FROM t") as rows:
            assert await rows.fetchone() == (0,)
            await cancelled(db, ENDLESS)
            assert await db.fetchone("SELECT count(*) FROM t") == (1000,)
            assert len(await rows.fetchall()) == 999


async def test_a_transaction_that_is_cancelled_at_any_step_is_as_if_it_had_never_been(place: Place) -> None:
    """Or it was committed; the one that it stands in goes on."""
    async with place.connect() as db:
        await db.execute("CREATE TABLE t(a)")
        done: list[int] = []

        async def insert(number: int) -> None:
            async with db.transaction():
                await db.execute("INSERT INTO t VALUES(?)", (number,))
            done.append(number)

        for steps in range(60):
            async with db.transaction():
                await db.execute("INSERT INTO t VALUES(-1)")
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(_after, steps, scope.cancel)
                        await insert(steps)
            assert not await db.run(lambda raw: raw.in_transaction)
        assert await db.fetchone("SELECT count(*) FROM t WHERE a = -1") == (60,)
        assert {(number,) for number in done} <= set(await db.fetchall("SELECT a FROM t WHERE a >= 0"))


async def _after(steps: int, work: Callable[[], object]) -> None:
    for _ in range(steps):
        await anyio.lowlevel.checkpoint()
    work()


async def test_what_was_cancelled_before_it_began_is_never_done(place: Place) -> None:
    async with place.connect() as db:
        await db.execute("CREATE TABLE t(a)")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await db.execute("INSERT INTO t VALUES(1)")
        # Whether the thread was faster: the row is there whole, or not at all.
        first = await db.fetchone("SELECT count(*) FROM t")
        assert first in {(0,), (1,)}
        assert await db.fetchone("SELECT count(*) FROM t") == first


async def test_a_transaction_that_lost_a_statement_does_nothing_more(place: Place) -> None:
    async with place.connect() as db:
        await db.execute("CREATE TABLE t(a)")
        with pytest.raises(UsageError, match="rolled this transaction back"):  # noqa: PT012
            async with db.transaction():
                await db.execute("INSERT INTO t VALUES(1)")
                await cancelled(db, ENDLESS_WRITE)
                await db.execute("INSERT INTO t VALUES(2)")
        assert await db.fetchall("SELECT a FROM t") == []
        with anyio.CancelScope() as scope:
            async with db.transaction():
                await db.execute("INSERT INTO t VALUES(3)")
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert not await db.run(lambda raw: raw.in_transaction)
        assert await db.fetchall("SELECT a FROM t") == []


async def test_a_transaction_that_lost_a_statement_refuses_tasks_of_its_own_and_no_others(place: Place) -> None:
    lost, read, found = anyio.Event(), anyio.Event(), list[object]()

    async def look() -> None:
        try:
            found.append(await db.fetchall("SELECT a FROM t"))
        except UsageError:
            found.append("refused")

    async def other() -> None:
        await lost.wait()
        await look()
        read.set()

    async with place.connect() as db, anyio.create_task_group() as tasks:
        await db.execute("CREATE TABLE t(a)")
        tasks.start_soon(other)
        with pytest.raises(UsageError):  # noqa: PT012
            async with db.transaction():
                await db.execute("INSERT INTO t VALUES(1)")
                await cancelled(db, ENDLESS_WRITE)
                async with anyio.create_task_group() as own:
                    own.start_soon(look)
                lost.set()
                await read.wait()
        await look()
    assert found == ["refused", [], []]


async def test_what_is_pushed_is_waited_for_and_pulled_elsewhere(place: Place) -> None:
    async with place.connect() as one, place.connect("two") as two:
        with pytest.raises(NotFound, match="never pushed"):
            await one.wait()
        await one.execute("CREATE TABLE t(a)")
        assert (await one.push())["lsn"] == "1"
        async with place.connect("three") as three:
            heard: list[int] = []

            async def hear() -> None:
                heard.append(await three.wait())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hear)
                # The thread of the connection that waits is free.
                assert await three.fetchall("SELECT a FROM t") == []
                await one.execute("INSERT INTO t VALUES(1)")
                await one.push()
            assert heard == [2]
            assert (await three.pull())["lsn"] == "2"
            assert await three.fetchall("SELECT a FROM t") == [(1,)]
            with anyio.CancelScope() as scope:
                scope.cancel()
                await three.wait()
            assert scope.cancelled_caught
            await three.execute("INSERT INTO t VALUES(2)")
            await one.execute("INSERT INTO t VALUES(3)")
            await one.push()
            with pytest.raises(Diverged):
                await three.push()
        assert (await two.status())["name"] == "shop"


async def test_a_connection_that_fails_or_is_forgotten_leaves_no_thread(place: Place) -> None:
    def threads() -> int:
        return len([thread for thread in threading.enumerate() if thread.name.startswith("budwood-aio")])

    with pytest.raises(NotFound):
        await place.connect(mode="rw")
    db = await place.connect()
    ended = [thread for thread in threading.enumerate() if thread.name == "budwood-aio-shop"]
    with pytest.warns(ResourceWarning, match="was not closed"):  # noqa: PT031
        del db
        gc.collect()
    for thread in ended:
        await anyio.to_thread.run_sync(thread.join, LIMIT_SECONDS)
    assert threads() == 0
    assert budwood.aio is aio
