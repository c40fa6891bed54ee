"""Attributes of a mount's files that can't be kept are not shown, either."""

from __future__ import annotations

import stat
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyfuse3")

import pyfuse3
import trio

from budwood.fuse.files.inodes import Directory
from budwood.fuse.operations import Operations
from budwood.sync.attributes import Attributes
from budwood.volume.errors import Full


@pytest.mark.parametrize("fails", [False, True])
def test_what_could_not_be_kept_is_as_it_was(fails: bool) -> None:
    shown = Attributes(mode=stat.S_IFDIR | 0o755, uid=1, gid=2, atime_ns=3, mtime_ns=4, ctime_ns=5)
    directory = Directory(2, shown)

    async def keep_attributes(_: Directory) -> None:
        if fails:
            raise Full("the disk is full")

    naming: Any = SimpleNamespace(tree=SimpleNamespace(nodes={2: directory}), keep_attributes=keep_attributes)
    wanted = pyfuse3.EntryAttributes()
    wanted.st_mode, wanted.st_uid, wanted.st_gid = pyfuse3.ModeT(0o700), 11, 12
    wanted.st_atime_ns = wanted.st_mtime_ns = 13
    everything: Any = SimpleNamespace(
        update_size=False,
        **{f"update_{field}": True for field in ("mode", "uid", "gid", "atime", "mtime")},
    )

    async def run() -> None:
        operations = Operations(naming, lambda: pytest.fail("nobody asks for room"))
        await operations.setattr(pyfuse3.InodeT(2), wanted, everything, None, pyfuse3.RequestContext())

    if not fails:
        trio.run(run)
        assert stat.S_IMODE(directory.mode) == 0o700
        assert (directory.uid, directory.gid, directory.atime, directory.mtime) == (11, 12, 13, 13)
        return
    with pytest.raises(pyfuse3.FUSEError):
        trio.run(run)
    assert directory.attributes == shown
