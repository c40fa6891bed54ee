"""Blocking callers: one loop a process, threads at once, Ctrl-C, forks, the end of the process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from budwood.remote.loop import Job, Portal, call, portal
from budwood.remote.portal import (
    BATCH_BYTES,
    BlockingRead,
    BlockingRemote,
    _Session,  # pyright: ignore[reportPrivateUsage]
    open_remote,
)
from budwood.testing.commits import commit_of
from budwood.volume.calls import CREATE, HELLO, CreateRequest, Done
from budwood.volume.errors import BadInput, Conflict, NotFound, Unavailable
from budwood.volume.frame import unpack_frame
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import PageSet, span

from ..waits import LIMIT_SECONDS, wait_until

PAGE = 65536
CLIENT = ClientId.new()


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[BlockingRemote]:
    opened = open_remote(f"file://{tmp_path}")
    yield opened
    opened.close()


def page(index: int) -> bytes:
    return index.to_bytes(4, "big") + os.urandom(PAGE - 4)


def volume_with(remote: BlockingRemote, pages: dict[int, bytes]) -> VolumeId:
    vid = VolumeId.new()
    remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    request, segment = commit_of(vid, 0, pages, client=CLIENT, page_size=PAGE)
    assert remote.commit(request, segment).lsn == 1
    return vid


def read(remote: BlockingRemote, vid: VolumeId, pages: PageSet) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    with remote.read_pages(vid, 1, pages) as answer:
        assert answer.snapshot.lsn == 1
        found.update(dict.fromkeys(answer.zeros, b""))
        for frame in answer.frames():
            plain = unpack_frame("answer", frame.info, frame.stored, PAGE)
            found |= dict(zip(frame.info.pages, plain, strict=True))
    return found


def test_a_read_in_many_batches_is_whole_and_a_missing_page_is_zeros(remote: BlockingRemote) -> None:
    pages = {index: page(index) for index in range(1, 61)}
    vid = volume_with(remote, pages)
    assert sum(map(len, pages.values())) > 3 * BATCH_BYTES
    assert read(remote, vid, span(1, 61)) == pages | {61: b""}


def test_errors_come_as_they_are(remote: BlockingRemote) -> None:
    vid = volume_with(remote, {1: page(1)})
    request, segment = commit_of(vid, 0, {1: page(2)}, client=CLIENT, page_size=PAGE)
    with pytest.raises(Conflict) as late:
        remote.commit(request, segment)
    assert late.value.head == 1
    with pytest.raises(NotFound), remote.read_pages(VolumeId.new(), 0, PageSet([1])):
        pass
    with pytest.raises(BadInput, match="must start with one of http://"):
        open_remote("ftp://somewhere")


def test_a_reader_who_leaves_early_leaves_nothing_running(remote: BlockingRemote) -> None:
    vid = volume_with(remote, {index: page(index) for index in range(1, 200)})
    before, seen = call(_running), 0
    for taken in (0, 1, 30, 0, 1, 30):
        with remote.read_pages(vid, 1, span(1, 199)) as answer:
            frames = answer.frames()
            assert len([next(frames) for _ in range(taken)]) == taken
            seen += len(call(_running) - before)
        assert not call(_running) - before
    assert seen, "of one that has read all ahead already nothing runs; of six one has not"


async def _running() -> set[asyncio.Task[Any]]:
    """The loop's tasks. Held, so that a later one is another; of earlier ones some may end meanwhile by themselves."""
    await anyio.lowlevel.checkpoint()
    return asyncio.all_tasks() - {asyncio.current_task()}


def test_many_threads_share_one_remote(remote: BlockingRemote) -> None:
    pages = {index: page(index) for index in range(1, 9)}
    vid = volume_with(remote, pages)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(read, remote, vid, PageSet([index])) for index in [*pages] * 5]
        answers = [future.result()[index] for future, index in zip(asked, [*pages] * 5, strict=True)]
    assert answers == [*pages.values()] * 5


def test_it_can_be_closed_and_used_again(remote: BlockingRemote) -> None:
    store = remote.ask(HELLO, Done()).store
    remote.close()
    remote.close()
    assert remote.ask(HELLO, Done()).store == store


def test_it_is_closed_from_the_loop_itself_while_it_is_read(remote: BlockingRemote) -> None:
    """As by the garbage collector, which runs in any thread: nothing waits there, and all is given back."""
    vid = volume_with(remote, {index: page(index) for index in range(1, 200)})
    running = call(_running)

    def frames() -> Iterator[object]:
        with remote.read_pages(vid, 1, span(1, 199)) as answer:
            yield from answer.frames()

    left = [frames()]
    next(left[0])

    async def close() -> None:
        left.clear()
        remote.close()

    # A loop that waits for itself would never answer.
    job = Job(close)
    portal().start(job)
    job.result()
    # The node's own tasks end with it.
    wait_until(lambda: call(_running) < running)
    assert read(remote, vid, PageSet([200])) == {200: b""}


def test_a_blocking_call_from_the_loop_itself_is_refused_instead_of_waiting_for_ever(remote: BlockingRemote) -> None:
    async def ask() -> None:
        remote.ask(HELLO, Done())

    async def read_pages() -> None:
        with remote.read_pages(VolumeId.new(), 0, PageSet([1])):
            pass

    for inside in (ask, read_pages):
        with pytest.raises(RuntimeError, match="would wait for itself"):
            call(inside)


def test_a_function_that_cannot_be_called_so_says_that_to_its_caller() -> None:
    def wrong() -> Coroutine[Any, Any, None]:
        raise TypeError("it takes one more")

    with pytest.raises(TypeError, match="one more"):
        call(wrong)


def test_ctrl_c_ends_the_wait_and_the_call() -> None:
    ended = threading.Event()

    async def forever() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        call(forever)
    assert ended.wait(LIMIT_SECONDS)


def test_a_forked_child_opens_anew_what_its_parent_had_open(remote: BlockingRemote) -> None:
    vid = volume_with(remote, {1: page(1)})
    expected = read(remote, vid, PageSet([1]))
    parents = portal()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if read(remote, vid, PageSet([1])) == expected and portal() is not parents else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert read(remote, vid, PageSet([1])) == expected
    assert portal() is parents


def test_who_comes_to_a_loop_that_ends_is_told_at_once(remote: BlockingRemote) -> None:
    """A thread that found it before the process began to end: whatever it asks for, it waits for nothing."""
    vid = volume_with(remote, {1: page(1)})
    host = Portal()
    host.close()
    session = _Session(host, remote._opener)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(Unavailable, match="ending"):
        host.call(anyio.lowlevel.checkpoint)
    reading = BlockingRead(session, lambda it: it.read_pages(vid, 0, PageSet([1])))
    with pytest.raises(Unavailable, match="ending"), reading:
        pass


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "remote.close()",
        "threading.Thread(target=waits, daemon=True).start()",
        "threading.Thread(target=begins_tasks, daemon=True).start(); begun.wait()",
    ],
)
def test_a_process_ends_at_once_and_in_silence(tmp_path: Path, end: str) -> None:
    program = f"""
import asyncio, contextlib, threading
import anyio
from budwood.remote.loop import call
from budwood.remote.portal import open_remote
from budwood.volume.calls import CREATE, WAIT, CreateRequest, WaitRequest
from budwood.volume.errors import Unavailable, Unavailable
from budwood.volume.ids import VolumeId
remote = open_remote("file://{tmp_path}")
vid = VolumeId.new()
remote.ask(CREATE, CreateRequest(vid.raw, page_size=512))
def waits():
    with contextlib.suppress(Unavailable):
        remote.ask(WAIT, WaitRequest(vid.raw, after=0, timeout_seconds={10 * LIMIT_SECONDS}))
begun = threading.Event()
async def one_at_each_step():
    async with anyio.create_task_group() as tasks:
        while True:
            tasks.start_soon(asyncio.sleep, 0)
            await asyncio.sleep(0)
            begun.set()
def begins_tasks():
    with contextlib.suppress(Unavailable):
        call(one_at_each_step)
{end}
"""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_opening_and_importing_load_no_more_than_is_needed() -> None:
    program = """
import sys
from budwood.remote.portal import open_remote
open_remote("http://127.0.0.1:1")
heavy = {"httpx", "asyncio", "anyio", "trio", "uvloop", "granian", "obstore", "lmdb", "apsw"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_process_that_may_open_no_more_files_is_told_so_and_nothing_else_is_said() -> None:
    """The loop's thread ended, and whoever had it begun waited for it for ever."""
    code = (
        "import asyncio, os, resource\n"
        "from budwood.remote.loop import portal\n"
        "from budwood.volume.errors import Unavailable\n"
        "_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "taken = os.open('/dev/null', os.O_RDONLY) + 1\n"
        "for room in range(4):\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (taken + room, most))\n"
        "    try:\n"
        "        portal()\n"
        "        print('begun')\n"
        "    except Unavailable as error:\n"
        "        print('refused' if 'Too many open files' in str(error) else error)\n"
    )
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (done.stdout.split(), done.stderr) == (["refused"] * 3 + ["begun"], "")
