"""Where the system gives a process no more threads, work waits for those there are, and is refused in words."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

from budwood.cli.exit_status import line_of
from budwood.fuse.requests import in_thread as of_a_mount
from budwood.server import in_thread as of_a_node
from budwood.server.store.directory_store import FileStore
from budwood.sync.autosync import Autosync
from budwood.sync.edge import open as open_edge
from budwood.volume import thread_limit
from budwood.volume.errors import Unavailable
from budwood.volume.protocols import Durability
from budwood.volume.thread_pool import ThreadPool

from ..waits import LIMIT_SECONDS, wait_until

REFUSAL = "can't start new thread"
NEVER = 1 << 30


class Refusing:
    """Threads can't be started: so many times, of those whose names begin so."""

    def __init__(self, times: int, prefix: str = "") -> None:
        self.times = times
        self.refused = 0
        self._prefix = prefix
        self._start = threading.Thread.start

    def __call__(self, thread: threading.Thread) -> None:
        if thread.name.startswith(self._prefix) and self.refused < self.times:
            self.refused += 1
            raise RuntimeError(REFUSAL)
        self._start(thread)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Refusing]:
    monkeypatch.setattr(thread_limit, "PAUSES_SECONDS", (0.01,) * 1000)

    def begin(times: int, prefix: str = "") -> Refusing:
        refusing = Refusing(times, prefix)

        def start(thread: threading.Thread) -> None:
            refusing(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        return refusing

    return begin


FACES = [
    pytest.param(anyio.run, of_a_node.in_thread, anyio.CapacityLimiter, id="node"),
    pytest.param(trio.run, of_a_mount.in_thread, trio.CapacityLimiter, id="mount"),
]


@pytest.mark.parametrize(("run", "in_thread", "limiter"), FACES)
def test_work_waits_for_a_thread_and_is_done_once(
    run: Callable[..., Any],
    in_thread: Callable[..., Any],
    limiter: Callable[[int], Any],
    refuse: Callable[..., Refusing],
) -> None:
    done, asked, may_end = list[int](), 0, threading.Event()
    refusing = refuse(2)

    def work(number: int) -> None:
        done.append(number)
        assert may_end.wait(LIMIT_SECONDS)

    async def main() -> None:
        nonlocal asked
        many = limiter(1000)
        async with anyio.create_task_group() as tasks:
            # Threads that were idle before this test serve first.
            while refusing.refused < refusing.times:
                tasks.start_soon(partial(in_thread, work, asked, limiter=many))
                asked += 1
                await anyio.sleep(0.001)
            may_end.set()

    run(main)
    assert sorted(done) == list(range(asked))


@pytest.mark.anyio
async def test_where_none_is_to_be_had_for_a_while_it_is_refused_and_was_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_limit, "PAUSES_SECONDS", (0.0, 0.001, 0.001))
    asked = list[object]()

    async def run(begin: Callable[[], object]) -> None:
        asked.append(begin)
        raise RuntimeError(REFUSAL)

    with pytest.raises(Unavailable, match="ulimit -u"):
        await thread_limit.run_patiently(run, lambda: pytest.fail("begun"), anyio.sleep)
    assert len(asked) == len(thread_limit.PAUSES_SECONDS)


@pytest.mark.parametrize(("run", "in_thread", "limiter"), FACES)
def test_what_the_work_itself_raises_is_not_taken_for_a_refusal(
    run: Callable[..., Any], in_thread: Callable[..., Any], limiter: Callable[[int], Any]
) -> None:
    done = list[int]()

    def fail() -> None:
        done.append(1)
        raise RuntimeError(REFUSAL)

    async def main() -> None:
        with pytest.raises(RuntimeError, match=REFUSAL):
            await in_thread(fail, limiter=limiter(1))

    run(main)
    assert done == [1]


@pytest.mark.anyio
async def test_a_store_goes_on_with_the_threads_it_has(tmp_path: Path, refuse: Callable[..., Refusing]) -> None:
    store = await FileStore.open(str(tmp_path / "store"))
    refuse(NEVER)
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(store.create, f"logs/{number}", b"x")
    assert len(await store.list("logs/")) == 20


def test_a_pool_goes_on_with_the_threads_it_has_and_says_so_where_it_has_none(refuse: Callable[..., Refusing]) -> None:
    with ThreadPool(4) as pool:
        assert pool.submit(int, "1").result() == 1
        refuse(NEVER)
        held = threading.Event()
        pool.submit(held.wait)
        try:
            later = [pool.submit(int, str(number)) for number in range(5)]
        finally:
            held.set()
        assert [each.result() for each in later] == [0, 1, 2, 3, 4]
    with ThreadPool(4) as pool, pytest.raises(Unavailable, match="ulimit -u"):
        pool.submit(int, "1")


def test_autosync_outlives_it(tmp_path: Path, refuse: Callable[..., Refusing]) -> None:
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v")
        writer = volume.writer()
        writer.write(1, bytes(4096))
        made = writer.commit(Durability.ORDERED)
        assert made is not None
        made.close()
        refusing = refuse(2, "budwood-autosync_")
        with Autosync(edge) as syncing:
            wait_until(lambda: volume.status()["unpushed"] == 0)
            assert syncing.is_running
            assert refusing.refused == 2


def test_a_command_says_what_to_raise() -> None:
    assert "ulimit -u" in line_of(RuntimeError(REFUSAL))
