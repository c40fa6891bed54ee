"""Failing passthrough: FOLDER at DIRECTORY, where writes and flushes fail as the file CONTROL says (failing_disk.py).

python -m tests.failing_passthrough FOLDER DIRECTORY CONTROL
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pyfuse3
from bench.passthrough import Passthrough, serve

from .failing_disk import FLUSH, NAME, SOCKET, WRITE, refused_file

SHARED = ("-shm", "/shared", "/lock.mdb")
"""Memory that processes share, SQLite's, a home's and LMDB's, which is a file only so that it can be mapped: what the
kernel can't write of it back stays as it is on a disk, and may be gone here, a lock's state among it.
"""


class FailingPassthrough(Passthrough):
    def __init__(self, folder: str, control: Path) -> None:
        super().__init__(folder)
        self._control = control
        self._dice = random.Random(1)
        self._token, self._let_through, self._refused = "", 0, 0

    def _may(self, kind: str, offset: int = 0) -> None:
        try:
            told = json.loads(self._control.read_bytes())
        except FileNotFoundError:
            return
        if kind not in told["of"] or (told["below"] is not None and offset >= told["below"]):
            return
        if self._token != told["token"]:
            self._token, self._let_through, self._refused = told["token"], 0, 0
        if self._let_through < told["after"]:
            self._let_through += 1
        elif self._refused != told["times"] and self._dice.random() < told["chance"]:
            self._refused += 1
            refused_file(self._control).touch()
            raise pyfuse3.FUSEError(told["errno"])

    async def write(self, fh: Any, off: int, buf: bytes) -> int:
        if not os.readlink(f"/proc/self/fd/{fh}").endswith(SHARED):
            self._may(WRITE, off)
        return await super().write(fh, off, buf)

    async def fsync(self, fh: Any, datasync: bool) -> None:
        self._may(FLUSH)

    async def fsyncdir(self, fh: Any, datasync: bool) -> None:
        self._may(FLUSH)

    async def setattr(self, inode: Any, attr: Any, fields: Any, fh: Any, ctx: Any) -> Any:
        if fields.update_size:
            self._may(WRITE, attr.st_size)
        return await super().setattr(inode, attr, fields, fh, ctx)

    async def create(self, parent_inode: Any, name: Any, mode: Any, flags: Any, ctx: Any) -> Any:
        self._may(NAME)
        return await super().create(parent_inode, name, mode, flags, ctx)

    async def mkdir(self, parent_inode: Any, name: Any, mode: Any, ctx: Any) -> Any:
        self._may(NAME)
        return await super().mkdir(parent_inode, name, mode, ctx)

    async def link(self, inode: Any, new_parent_inode: Any, new_name: Any, ctx: Any) -> Any:
        self._may(NAME)
        return await super().link(inode, new_parent_inode, new_name, ctx)

    async def mknod(self, parent_inode: Any, name: Any, mode: Any, rdev: Any, ctx: Any) -> Any:
        self._may(SOCKET)
        return await super().mknod(parent_inode, name, mode, rdev, ctx)

    async def unlink(self, parent_inode: Any, name: Any, ctx: Any) -> None:
        self._may(NAME)
        await super().unlink(parent_inode, name, ctx)

    async def rename(
        self, parent_inode_old: Any, name_old: Any, parent_inode_new: Any, name_new: Any, flags: Any, ctx: Any
    ) -> None:
        self._may(NAME)
        await super().rename(parent_inode_old, name_old, parent_inode_new, name_new, flags, ctx)


if __name__ == "__main__":
    serve(FailingPassthrough(sys.argv[1], Path(sys.argv[3])), sys.argv[2])
