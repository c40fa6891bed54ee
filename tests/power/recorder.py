"""Recorder: FOLDER at DIRECTORY, and what is done to it in LOG, in its order, a msgpack array each.

    python -m tests.power.recorder FOLDER DIRECTORY LOG

    ["write", inode, offset, bytes] ["sync", inode] ["cut", inode, size]
    ["name", inode, path]           a file of that name is there: made, linked or renamed to it
    ["folder", inode, path]         a folder was made
    ["gone", path]                  it isn't any more: removed, or renamed away

It says so with a line once it serves, and ends when it is told to, or unmounted.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO, Any

import msgspec
from bench.passthrough import Passthrough, passed_on, serve

_encode = msgspec.msgpack.Encoder().encode


class Recorder(Passthrough):
    def __init__(self, folder: str, log: IO[bytes]) -> None:
        super().__init__(folder)
        self._log = log

    def _tell(self, *what: object) -> None:
        data = _encode(what)
        self._log.write(len(data).to_bytes(4) + data)

    def _path(self, parent: int, name: bytes) -> str:
        above = os.readlink(self._nodes[parent].path)
        return os.path.relpath(os.path.join(above, os.fsdecode(name)), os.path.realpath(self.folder))

    def _hold(self, parent: int, name: bytes) -> None:
        """What loses its name, for good: the number of its inode is not to become another one's."""
        with suppress(FileNotFoundError):
            os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self._nodes[parent].fd)

    async def write(self, fh: Any, off: int, buf: bytes) -> int:
        done: int = await super().write(fh, off, buf)
        self._tell("write", os.fstat(fh).st_ino, off, bytes(buf[:done]))
        return done

    async def fsync(self, fh: Any, datasync: bool) -> None:
        # What it is recorded for is not to be waited for.
        self._tell("sync", os.fstat(fh).st_ino)

    async def fsyncdir(self, fh: Any, datasync: bool) -> None:
        self._tell("sync", os.fstat(fh).st_ino)

    async def setattr(self, inode: Any, attr: Any, fields: Any, fh: Any, ctx: Any) -> Any:
        answer = await super().setattr(inode, attr, fields, fh, ctx)
        if fields.update_size:
            self._tell("cut", inode, attr.st_size)
        return answer

    async def create(self, parent_inode: Any, name: Any, mode: Any, flags: Any, ctx: Any) -> Any:
        info, attributes = await super().create(parent_inode, name, mode, flags, ctx)
        self._tell("name", attributes.st_ino, self._path(parent_inode, name))
        return info, attributes

    async def mkdir(self, parent_inode: Any, name: Any, mode: Any, ctx: Any) -> Any:
        attributes = await super().mkdir(parent_inode, name, mode, ctx)
        self._tell("folder", attributes.st_ino, self._path(parent_inode, name))
        return attributes

    async def rmdir(self, parent_inode: Any, name: Any, ctx: Any) -> None:
        self._hold(parent_inode, name)
        await super().rmdir(parent_inode, name, ctx)
        self._tell("gone", self._path(parent_inode, name))

    @passed_on
    async def link(self, inode: Any, new_parent_inode: Any, new_name: Any, ctx: Any) -> Any:
        os.link(self._nodes[inode].path, new_name, dst_dir_fd=self._nodes[new_parent_inode].fd, follow_symlinks=True)
        self._tell("name", inode, self._path(new_parent_inode, new_name))
        return self._known(new_parent_inode, new_name)

    async def unlink(self, parent_inode: Any, name: Any, ctx: Any) -> None:
        self._hold(parent_inode, name)
        await super().unlink(parent_inode, name, ctx)
        self._tell("gone", self._path(parent_inode, name))

    async def rename(
        self, parent_inode_old: Any, name_old: Any, parent_inode_new: Any, name_new: Any, flags: Any, ctx: Any
    ) -> None:
        self._hold(parent_inode_new, name_new)
        await super().rename(parent_inode_old, name_old, parent_inode_new, name_new, flags, ctx)
        self._tell("gone", self._path(parent_inode_old, name_old))
        inode = os.stat(name_new, dir_fd=self._nodes[parent_inode_new].fd).st_ino
        self._tell("name", inode, self._path(parent_inode_new, name_new))


if __name__ == "__main__":
    with open(sys.argv[3], "wb") as file:
        serve(Recorder(sys.argv[1], file), sys.argv[2])
