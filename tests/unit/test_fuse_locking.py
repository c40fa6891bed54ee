"""Files are opened, locked and written by another process, and what that one leaves behind when it dies is mended."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

pytest.importorskip("pyfuse3")

import trio

from budwood.fuse.exchange.locking import Broken, Locking, own_threads
from budwood.fuse.exchange.swap import _Locks  # pyright: ignore[reportPrivateUsage]
from budwood.fuse.host.process_state import ProcessState, process_state
from budwood.sqlite.walindex import HEADER_SIZE

from ..waits import LIMIT_SECONDS, wait_until


@asynccontextmanager
async def locking_in(directory: Path) -> AsyncGenerator[Locking]:
    locking = Locking(directory)
    locking.start()
    try:
        with trio.fail_after(LIMIT_SECONDS):
            yield locking
    finally:
        pid = locking.pid
        locking.close()
        assert pid is None or process_state(pid) is ProcessState.DEAD


def kill(locking: Locking) -> None:
    pid = locking.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: locking.pid is None)


def test_two_conversations_lock_one_another_out_and_locks_go_with_them(tmp_path: Path) -> None:
    path, place = tmp_path / "file", range(100, 110)
    path.write_bytes(b"content")

    async def main() -> None:
        async with locking_in(tmp_path) as locking, locking.conversation() as first:
            async with locking.conversation() as second:
                assert len(own_threads) == 2
                assert os.getpid() not in own_threads
                one, ino = await first.open(path)
                two, _ = await second.open(path)
                assert ino == path.stat().st_ino
                assert await first.lock(one, fcntl.F_WRLCK, place)
                assert not await second.lock(two, fcntl.F_RDLCK, place)
                await first.close()
                assert await second.lock(two, fcntl.F_WRLCK, place)
                await second.write(two, b"X", 3)
                assert await second.read(two, 100, 1) == b"onXent"
                await second.cut(path)
                assert path.read_bytes() == b""
                with pytest.raises(FileNotFoundError):
                    await second.open(tmp_path / "nothing")
                (tmp_path / "link").symlink_to(path)
                with pytest.raises(OSError, match="symbolic") as refused:
                    await second.open(tmp_path / "link")
                assert refused.value.errno == errno.ELOOP
            three, _ = await first.open(path)
            # The other conversation is over; its thread lets go in a moment.
            while not await first.lock(three, fcntl.F_WRLCK, place):  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
        assert not own_threads

    trio.run(main)


def test_a_conversation_that_breaks_off_says_so_and_the_next_one_has_another_process(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def main() -> None:
        async with locking_in(tmp_path) as locking:
            async with locking.conversation() as told:
                kill(locking)
                with pytest.raises(Broken):
                    await told.open(tmp_path / "file")
            async with locking.conversation() as told:
                await told.open(tmp_path / "file")
            locking.close()
            with pytest.raises(Broken):
                async with locking.conversation():
                    pass

    trio.run(main)


def test_an_index_that_must_be_written_is_though_the_process_that_held_its_locks_has_died(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("pragma journal_mode = wal").fetchall()
        db.execute("create table t(a)")
        index = tmp_path / "db-shm"
        assert int.from_bytes(index.read_bytes()[16:20], sys.byteorder) > 0

        async def main() -> None:
            async with locking_in(tmp_path) as locking, locking.conversation() as told:
                locks = _Locks(locking, told, path, LIMIT_SECONDS)
                assert await locks.take(path.stat().st_ino)
                kill(locking)
                await locks.restart(path.stat().st_size)
                await locks.release()

        trio.run(main)
        content = index.read_bytes()
        assert content[:HEADER_SIZE] == content[HEADER_SIZE : 2 * HEADER_SIZE]
        assert int.from_bytes(content[16:20], sys.byteorder) == 0, "the -wal starts over"
