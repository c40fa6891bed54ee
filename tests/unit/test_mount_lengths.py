"""Lengths of files that only the remote has are asked for, and nobody waits for each of them in turn in vain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyfuse3")

import pyfuse3
import trio
import trio.testing

from budwood.fuse.files.image import Image
from budwood.fuse.files.inodes import Directory
from budwood.fuse.files.regular import File
from budwood.fuse.operations import Operations
from budwood.sync.attributes import Attributes
from budwood.volume.errors import Unavailable


def test_who_opens_a_directory_to_flush_it_wants_no_lengths() -> None:
    """SQLite does so at each commit."""

    async def flush() -> None:
        pass

    directory = Directory(1, Attributes(uid=0, gid=0, atime_ns=0, mtime_ns=0, ctime_ns=0))
    naming: Any = SimpleNamespace(tree=SimpleNamespace(nodes={1: directory}), flush=flush)

    async def run() -> None:
        operations = Operations(naming, lambda: pytest.fail("nobody asks for room"))
        opened = await operations.opendir(pyfuse3.InodeT(1), pyfuse3.RequestContext())
        await operations.fsyncdir(opened, datasync=False)
        await operations.releasedir(opened)

    trio.run(run)
    assert not directory.listed


def test_a_remote_that_takes_long_to_be_found_out_of_reach_is_not_asked_for_each_file() -> None:
    asked: list[Any] = []

    async def bring(file: Any) -> None:
        asked.append(file)
        await trio.sleep(30)
        raise Unavailable("it doesn't answer")

    naming: Any = SimpleNamespace(tree=SimpleNamespace(nodes={}), bring=bring)
    services: Any = SimpleNamespace()

    async def run() -> None:
        operations = Operations(naming, lambda: pytest.fail("nobody asks for room"))
        naming.tree.nodes.update(
            {
                number: File(
                    number,
                    Attributes(uid=0, gid=0, atime_ns=0, mtime_ns=0, ctime_ns=0),
                    services,
                    b"",
                    Image(services, number),
                    here=False,
                )
                for number in (2, 3, 4)
            }
        )
        began, context = trio.current_time(), SimpleNamespace(pid=0)
        sizes = [(await operations.getattr(number, context)).st_size for number in naming.tree.nodes]  # type: ignore[arg-type]
        assert sizes == [2, 3, 4]
        assert trio.current_time() == began + 30
        assert len(asked) == 1
        await trio.sleep(10.5)
        await operations.getattr(3, context)  # type: ignore[arg-type]
        assert len(asked) == 2

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
