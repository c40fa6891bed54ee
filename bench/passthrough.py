"""The yardstick of the mount's bench: a bare pyfuse3 file system that passes every call on to the files of a folder.

    python -m bench.passthrough FOLDER DIR

What the mount costs beyond this is Budwood's own; what both cost beyond ext4 is the kernel's way to a Python process
and back. So it is as quick as one can be made without doing less than it says:

- every answer is one or two system calls, inline, and there is one task: no request waits to be scheduled
- the kernel may keep what it was told, for an hour: nobody but this process touches the folder. Names that aren't there
  too: SQLite asks for a journal at every transaction. Pages stay cached when a file is opened again
- writes go to the file at once, in order; no writeback cache. An fsync is an fsync of the file, or of the folder
- extended attributes and flush are answered once with ENOSYS, after which the kernel asks no more
- a file's mtime is shown as it was when it was last opened, synced or cut: the kernel drops a file's cached pages
  whenever it sees that its mtime has moved, and SQLite looks at its file's size in every transaction

An inode known to the kernel holds an O_PATH descriptor of the real file, so that a rename or unlink changes nothing for
who has it open, and no inode number comes back while the kernel still knows it. A file handle is the real file's
descriptor.

It prints one line once it serves, and ends with 0 on SIGTERM, SIGINT or when it is unmounted, leaving no mount behind.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
import signal
import stat
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NoReturn, TypeVar, cast

import pyfuse3
import trio
from pyfuse3 import (
    EntryAttributes,
    FileHandleT,
    FileInfo,
    FileNameT,
    FlagT,
    FUSEError,
    InodeT,
    ModeT,
    ReaddirToken,
    RequestContext,
    SetattrFields,
    StatvfsData,
)

SUBTYPE: Final = "budwood-passthrough"
REMEMBERED_SECONDS: Final = 3600.0
NOT_PASSED_ON: Final = os.O_APPEND | os.O_DIRECT | os.O_NOFOLLOW
"""Of an open's flags: the kernel has done the first and the last, and O_DIRECT would ask aligned buffers of us."""

Handler = TypeVar("Handler", bound=Callable[..., Coroutine[Any, Any, object]])


def passed_on(handler: Handler) -> Handler:
    """A handler whose OSError is the answer."""

    @functools.wraps(handler)
    async def run(*args: Any) -> Any:
        try:
            return await handler(*args)
        except OSError as error:
            refuse(error)

    return cast(Handler, run)


def refuse(error: OSError) -> NoReturn:
    raise FUSEError(error.errno or errno.EIO) from None


class Node:
    """What the kernel knows by an inode number: its descriptor, how often it was looked up, the mtime that is shown."""

    __slots__ = ("fd", "lookups", "mtime_ns")

    def __init__(self, fd: int, mtime_ns: int) -> None:
        self.fd = fd
        self.lookups = 0
        self.mtime_ns = mtime_ns

    @property
    def path(self) -> str:
        """For calls that take no O_PATH descriptor."""
        return f"/proc/self/fd/{self.fd}"


class Passthrough(pyfuse3.Operations):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        root = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self._nodes: dict[int, Node] = {pyfuse3.ROOT_INODE: Node(root, os.fstat(root).st_mtime_ns)}
        self._open: dict[int, Node] = {}
        self._listings: dict[int, tuple[int, list[bytes]]] = {}
        self._absent = EntryAttributes()
        self._absent.st_ino = InodeT(0)
        self._absent.entry_timeout = REMEMBERED_SECONDS

    # What is where

    def _find(self, parent: int, name: bytes) -> EntryAttributes:
        """A name's attributes, its node made if it is new; the caller counts the lookup."""
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self._nodes[parent].fd)
        found = os.fstat(fd)
        node = self._nodes.get(found.st_ino)
        if node is None:
            self._nodes[found.st_ino] = node = Node(fd, found.st_mtime_ns)
        else:
            os.close(fd)
        return self._attributes(found, node)

    def _known(self, parent: int, name: bytes) -> EntryAttributes:
        """As `_find`, for an answer by which the kernel counts a lookup."""
        attributes = self._find(parent, name)
        self._nodes[attributes.st_ino].lookups += 1
        return attributes

    def _attributes(self, found: os.stat_result, node: Node) -> EntryAttributes:
        answer = EntryAttributes()
        answer.st_ino = InodeT(found.st_ino)
        answer.entry_timeout = answer.attr_timeout = REMEMBERED_SECONDS
        answer.st_mode = ModeT(found.st_mode)
        answer.st_nlink = found.st_nlink
        answer.st_uid = found.st_uid
        answer.st_gid = found.st_gid
        answer.st_size = found.st_size
        answer.st_blksize = found.st_blksize
        answer.st_blocks = found.st_blocks
        answer.st_atime_ns = found.st_atime_ns
        answer.st_mtime_ns = node.mtime_ns if stat.S_ISREG(found.st_mode) else found.st_mtime_ns
        answer.st_ctime_ns = found.st_ctime_ns
        return answer

    def _handle(self, fd: int, node: Node) -> FileInfo:
        self._open[fd] = node
        node.mtime_ns = os.fstat(fd).st_mtime_ns
        return FileInfo(fh=FileHandleT(fd), keep_cache=True)

    async def lookup(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> EntryAttributes:
        try:
            return self._known(parent_inode, name)
        except FileNotFoundError:
            return self._absent
        except OSError as error:
            refuse(error)

    async def forget(self, inode_list: Sequence[tuple[InodeT, int]]) -> None:
        for inode, count in inode_list:
            node = self._nodes[inode]
            node.lookups -= count
            if node.lookups <= 0 and inode != pyfuse3.ROOT_INODE:
                os.close(self._nodes.pop(inode).fd)

    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        node = self._nodes[inode]
        return self._attributes(os.fstat(node.fd), node)

    @passed_on
    async def setattr(
        self,
        inode: InodeT,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: FileHandleT | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        node = self._nodes[inode]
        if fields.update_size:
            os.truncate(node.path if fh is None else fh, attr.st_size)
        if fields.update_mode:
            os.chmod(node.path, stat.S_IMODE(attr.st_mode))
        if fields.update_uid or fields.update_gid:
            os.chown(node.path, attr.st_uid if fields.update_uid else -1, attr.st_gid if fields.update_gid else -1)
        if fields.update_atime or fields.update_mtime:
            now = os.fstat(node.fd)
            times = (
                attr.st_atime_ns if fields.update_atime else now.st_atime_ns,
                attr.st_mtime_ns if fields.update_mtime else now.st_mtime_ns,
            )
            os.utime(node.path, ns=times)
        found = os.fstat(node.fd)
        node.mtime_ns = found.st_mtime_ns
        return self._attributes(found, node)

    @passed_on
    async def readlink(self, inode: InodeT, ctx: RequestContext) -> FileNameT:
        return FileNameT(os.readlink(b"", dir_fd=self._nodes[inode].fd))

    @passed_on
    async def mkdir(self, parent_inode: InodeT, name: FileNameT, mode: ModeT, ctx: RequestContext) -> EntryAttributes:
        os.mkdir(name, mode, dir_fd=self._nodes[parent_inode].fd)
        return self._known(parent_inode, name)

    @passed_on
    async def mknod(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        os.mknod(name, mode, rdev, dir_fd=self._nodes[parent_inode].fd)
        return self._known(parent_inode, name)

    @passed_on
    async def symlink(
        self, parent_inode: InodeT, name: FileNameT, target: FileNameT, ctx: RequestContext
    ) -> EntryAttributes:
        os.symlink(target, name, dir_fd=self._nodes[parent_inode].fd)
        return self._known(parent_inode, name)

    @passed_on
    async def link(
        self, inode: InodeT, new_parent_inode: InodeT, new_name: FileNameT, ctx: RequestContext
    ) -> EntryAttributes:
        os.link(self._nodes[inode].path, new_name, dst_dir_fd=self._nodes[new_parent_inode].fd)
        return self._known(new_parent_inode, new_name)

    @passed_on
    async def unlink(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        os.unlink(name, dir_fd=self._nodes[parent_inode].fd)

    @passed_on
    async def rmdir(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        os.rmdir(name, dir_fd=self._nodes[parent_inode].fd)

    @passed_on
    async def rename(
        self,
        parent_inode_old: InodeT,
        name_old: FileNameT,
        parent_inode_new: InodeT,
        name_new: FileNameT,
        flags: FlagT,
        ctx: RequestContext,
    ) -> None:
        if flags:
            # Python has no renameat2; nothing that is measured asks for its flags.
            raise FUSEError(errno.EINVAL)
        source, target = self._nodes[parent_inode_old].fd, self._nodes[parent_inode_new].fd
        os.rename(name_old, name_new, src_dir_fd=source, dst_dir_fd=target)

    @passed_on
    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:
        fd = os.open(self._nodes[inode].path, os.O_RDONLY | os.O_DIRECTORY)
        self._listings[fd] = (inode, [os.fsencode(name) for name in os.listdir(fd)])
        return FileHandleT(fd)

    @passed_on
    async def readdir(self, fh: FileHandleT, start_id: int, token: ReaddirToken) -> None:
        inode, names = self._listings[fh]
        for number in range(start_id, len(names)):
            name = FileNameT(names[number])
            try:
                attributes = self._find(inode, name)
            except FileNotFoundError:
                continue  # It went since the folder was opened.
            if not pyfuse3.readdir_reply(token, name, attributes, number + 1):
                break
            self._nodes[attributes.st_ino].lookups += 1

    async def releasedir(self, fh: FileHandleT) -> None:
        del self._listings[fh]
        os.close(fh)

    @passed_on
    async def fsyncdir(self, fh: FileHandleT, datasync: bool) -> None:
        os.fsync(fh)

    @passed_on
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        found, answer = os.statvfs(self._nodes[pyfuse3.ROOT_INODE].fd), StatvfsData()
        answer.f_bsize, answer.f_frsize, answer.f_namemax = found.f_bsize, found.f_frsize, found.f_namemax
        answer.f_blocks, answer.f_bfree, answer.f_bavail = found.f_blocks, found.f_bfree, found.f_bavail
        answer.f_files, answer.f_ffree, answer.f_favail = found.f_files, found.f_ffree, found.f_favail
        return answer

    # What is in it

    @passed_on
    async def open(self, inode: InodeT, flags: FlagT, ctx: RequestContext) -> FileInfo:
        node = self._nodes[inode]
        return self._handle(os.open(node.path, flags & ~NOT_PASSED_ON), node)

    @passed_on
    async def create(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, flags: FlagT, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        flags = FlagT(flags & ~NOT_PASSED_ON | os.O_CREAT)
        fd = os.open(name, flags, stat.S_IMODE(mode), dir_fd=self._nodes[parent_inode].fd)
        attributes = self._known(parent_inode, name)
        return self._handle(fd, self._nodes[attributes.st_ino]), attributes

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        try:
            return os.pread(fh, size, off)
        except OSError as error:
            refuse(error)

    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        try:
            return os.pwrite(fh, buf, off)
        except OSError as error:
            refuse(error)

    @passed_on
    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:
        (os.fdatasync if datasync else os.fsync)(fh)
        self._open[fh].mtime_ns = os.fstat(fh).st_mtime_ns

    async def release(self, fh: FileHandleT) -> None:
        del self._open[fh]
        os.close(fh)

    async def flush(self, fh: FileHandleT) -> None:
        raise FUSEError(errno.ENOSYS)

    async def getxattr(self, inode: InodeT, name: pyfuse3.XAttrNameT, ctx: RequestContext) -> bytes:
        raise FUSEError(errno.ENOSYS)


def serve(operations: Passthrough, directory: str) -> None:
    """Serve until it is unmounted or told to end."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    # The kernel has applied the program's umask.
    os.umask(0)
    pyfuse3.init(operations, directory, {*pyfuse3.default_options, f"subtype={SUBTYPE}", f"fsname={operations.folder}"})
    try:
        trio.run(_main, directory)
    finally:
        pyfuse3.close(unmount=True)


async def _main(directory: str) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                async for _ in signals:
                    pyfuse3.terminate()

            nursery.start_soon(end)
            print(f"passthrough: {directory} mounted", flush=True)
            await pyfuse3.main(max_tasks=1)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    serve(Passthrough(sys.argv[1]), sys.argv[2])
