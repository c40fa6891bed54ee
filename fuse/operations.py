"""Operations: the kernel's requests, each answered by one handler.

What is here is answered at once; only pages that have to be fetched are awaited (fetch.py), and work on the disk, which
goes to a thread. No handler's error ends the mount (guarded.py).

Not offered: hard links (EPERM; a name is a volume), devices, pipes and sockets (EPERM), extended attributes (ENOSYS,
as pyfuse3's own handlers say; the kernel remembers it: asking at each write would halve them).
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from typing import Final

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileHandleT, FileInfo, FileNameT, FlagT, FUSEError, InodeT, ModeT, RequestContext

from ..volume.errors import BudwoodError, NotFound
from .exchange.locking import own_threads
from .files.fetch import NeedsFetch
from .files.image import Handle
from .files.inodes import Directory, Link, Node, entry_of, negative_entry
from .files.regular import File
from .files.sidecar import Sidecar, split_name
from .files.transitions import Event
from .names.nameops import LONGEST_NAME, Naming, text_of
from .names.virtual import VirtualNode
from .requests.guarded import changing, counters, guarded, log
from .requests.offload import Offload

_LISTED_SECONDS: Final = 10.0
"""How long after a directory was listed a program that asks for one file's length is taken to want the others' too."""
_SLOW_SECONDS: Final = 1.0
_UNASKED_SECONDS: Final = 10.0
"""Where it took long to find the remote out of reach it isn't asked again for so long: a listing asks for each file."""


class _Listing:
    """One open of a directory, and what it had when it was read from its beginning."""

    __slots__ = ("directory", "entries", "is_read")

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.entries: list[tuple[str, Node]] = []
        self.is_read = False

    def read(self, now: float) -> None:
        self.directory.listed, self.is_read = now, True
        # In the order of their inodes, which are what a reader's place is counted by.
        self.entries = sorted(self.directory.children.items(), key=lambda item: item[1].ino)


class Operations(pyfuse3.Operations):
    """For the mount's event loop."""

    supports_dot_lookup = False
    enable_writeback_cache = False
    enable_acl = False

    def __init__(self, naming: Naming, space: Callable[[], os.statvfs_result]) -> None:
        super().__init__()
        self._naming = naming
        self._tree = naming.tree
        self._space = space
        self._nodes = naming.tree.nodes
        self._files: dict[int, tuple[File, Handle]] = {}
        self._sidecars: dict[int, Sidecar] = {}
        self._virtual: dict[int, tuple[VirtualNode, bytes]] = {}
        self._listings: dict[int, _Listing] = {}
        self._flushes = Offload()
        self._unasked_until = 0.0
        """Until then nobody is made to wait for lengths that the remote would have to tell."""
        self._last = 0

    # Names

    @guarded
    async def lookup(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> EntryAttributes:
        parent = self._directory(parent_inode)
        if len(name) > LONGEST_NAME:
            raise FUSEError(errno.ENAMETOOLONG)
        # What is no text is no name of ours.
        text = name.decode(errors="surrogateescape")
        node = parent.children.get(text) or await self._just_made(parent, text)
        if node is None:
            return negative_entry()
        if isinstance(node, File):
            await self._measure(node)
        return self._entry(node)

    async def forget(self, inode_list: Sequence[tuple[InodeT, int]]) -> None:
        for inode, count in inode_list:
            self._tree.forget(inode, count)

    @guarded
    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        node = self._node(inode)
        if isinstance(node, File):
            await self._measure(node)
        return entry_of(node, known=_is_known(node))

    @changing
    async def mkdir(self, parent_inode: InodeT, name: FileNameT, mode: ModeT, ctx: RequestContext) -> EntryAttributes:
        return self._entry(await self._naming.make_directory(self._directory(parent_inode), text_of(name), mode, ctx))

    @changing
    async def mknod(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise FUSEError(errno.EPERM)
        return self._entry(await self._naming.make_file(self._directory(parent_inode), text_of(name), mode, ctx))

    @changing
    async def symlink(
        self, parent_inode: InodeT, name: FileNameT, target: FileNameT, ctx: RequestContext
    ) -> EntryAttributes:
        try:
            text = target.decode()
        except UnicodeDecodeError:
            raise FUSEError(errno.EILSEQ) from None
        return self._entry(await self._naming.make_link(self._directory(parent_inode), text_of(name), text, ctx))

    @guarded
    async def readlink(self, inode: InodeT, ctx: RequestContext) -> FileNameT:
        node = self._node(inode)
        if not isinstance(node, Link):
            raise FUSEError(errno.EINVAL)
        return FileNameT(node.target.encode())

    @guarded
    async def link(
        self, inode: InodeT, new_parent_inode: InodeT, new_name: FileNameT, ctx: RequestContext
    ) -> EntryAttributes:
        raise FUSEError(errno.EPERM)

    @changing
    async def unlink(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        await self._naming.unlink(self._directory(parent_inode), text_of(name))

    @changing
    async def rmdir(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        await self._naming.rmdir(self._directory(parent_inode), text_of(name))

    @changing
    async def rename(
        self,
        parent_inode_old: InodeT,
        name_old: FileNameT,
        parent_inode_new: InodeT,
        name_new: FileNameT,
        flags: FlagT,
        ctx: RequestContext,
    ) -> None:
        old, new = self._directory(parent_inode_old), self._directory(parent_inode_new)
        await self._naming.rename(old, text_of(name_old), new, text_of(name_new), flags)

    @changing
    async def setattr(
        self,
        inode: InodeT,
        attr: EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: FileHandleT | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        node = self._node(inode)
        if fields.update_size:
            await self._resize(node, attr.st_size, fh)
        before = node.attributes
        if fields.update_mode:
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(attr.st_mode)
        if fields.update_uid:
            node.uid = attr.st_uid
        if fields.update_gid:
            node.gid = attr.st_gid
        if fields.update_atime:
            node.atime = attr.st_atime_ns
        if fields.update_mtime:
            node.mtime, node.held_mtime = attr.st_mtime_ns, None
            if isinstance(node, File):
                node.dated = not fields.update_size
        told = fields.update_mode or fields.update_uid or fields.update_gid or fields.update_atime
        if told or (fields.update_mtime and not fields.update_size):
            node.ctime = time.time_ns()
            try:
                await self._naming.keep_attributes(node)
            except BaseException:
                node.show_attributes(before)
                if isinstance(node, File):
                    node.dated = False
                raise
        return entry_of(node, known=_is_known(node))

    @guarded
    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:
        # Nothing is read yet: SQLite opens it at each commit, to flush it.
        fh = self._number()
        self._listings[fh] = _Listing(self._directory(inode))
        return fh

    @guarded
    async def readdir(self, fh: FileHandleT, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        listing = self._listings[fh]
        if not start_id or not listing.is_read:
            # After rewinddir, too; and who serves files to others goes on in the midst.
            await self._naming.refresh()
            listing.read(trio.current_time())
        for at in range(start_id, len(listing.entries)):
            name, node = listing.entries[at]
            if node.parent is None or (isinstance(node, Directory) and self._naming.is_ours(node)):
                continue
            entry = entry_of(node, known=_is_known(node))
            if not pyfuse3.readdir_reply(token, FileNameT(name.encode()), entry, at + 1):
                return
            node.lookups += 1

    @guarded
    async def releasedir(self, fh: FileHandleT) -> None:
        del self._listings[fh]

    @changing
    async def fsyncdir(self, fh: FileHandleT, datasync: bool) -> None:
        await self._naming.flush()

    @guarded
    async def statfs(self, ctx: RequestContext) -> pyfuse3.StatvfsData:
        space, told = self._space(), pyfuse3.StatvfsData()
        told.f_bsize, told.f_frsize = space.f_bsize, space.f_frsize
        told.f_blocks, told.f_bfree, told.f_bavail = space.f_blocks, space.f_bfree, space.f_bavail
        told.f_files, told.f_ffree, told.f_favail = space.f_files, space.f_ffree, space.f_favail
        told.f_namemax = 255
        return told

    # Content

    @changing
    async def create(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, flags: FlagT, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        parent, text = self._directory(parent_inode), text_of(name)
        node = parent.children.get(text) or await self._just_made(parent, text)
        if node is not None and flags & os.O_EXCL:
            raise FUSEError(errno.EEXIST)
        if node is None:
            node = await self._make(parent, text, mode, ctx)
        info = await self._open(node, flags, ctx)
        return info, self._entry(node)

    @guarded
    async def open(self, inode: InodeT, flags: FlagT, ctx: RequestContext) -> FileInfo:
        return await self._open(self._node(inode), flags, ctx)

    async def _just_made(self, parent: Directory, name: str) -> Node | None:
        """What another process has called so since the names were looked at."""
        await self._naming.refresh()
        return parent.children.get(name)

    async def _make(self, parent: Directory, name: str, mode: int, ctx: RequestContext) -> Node:
        split = split_name(name)
        owner = parent.children.get(split[0]) if split else None
        if split is None or not isinstance(owner, File) or not await self._is_database(owner):
            return await self._naming.make_file(parent, name, mode, ctx)
        return self._naming.make_sidecar(parent, name, split[1], owner, mode, ctx)

    async def _is_database(self, file: File) -> bool:
        """Whether someone has it open, and it may be one of SQLite's."""
        return file.image.view is not None and (not file.length or await file.image.begins_database())

    async def _open(self, node: Node, flags: int, ctx: RequestContext) -> FileInfo:
        fh = self._number()
        if isinstance(node, File):
            # The locker opens it for its locks alone, and is no writer (swap.py).
            cut = bool(flags & os.O_TRUNC)
            writable = (cut or flags & os.O_ACCMODE != os.O_RDONLY) and ctx.pid not in own_threads
            blind = cut or flags & os.O_ACCMODE == os.O_WRONLY
            try:
                await self._naming.bring(node)
                handle = await node.open(writable=writable, blind=writable and blind)
            except NotFound:
                await self._naming.refresh()
                if node.parent is None:
                    # Its name has gone with it, or is another volume's: the kernel looks it up again.
                    raise FUSEError(errno.ESTALE) from None
                raise
            self._files[fh] = node, handle
            if cut:
                await self._cut(fh, node, handle)
            node.services.opened(node)
            return FileInfo(fh=fh, keep_cache=node.image.cache_is_good)
        if isinstance(node, Sidecar):
            if node.parent is None:
                # Its database was let go a moment ago, and it with that; the kernel looks again.
                raise FUSEError(errno.ESTALE)
            if flags & os.O_TRUNC:
                await self._resize(node, 0, None)
            node.handles += 1
            self._sidecars[fh] = node
            return FileInfo(fh=fh)
        if isinstance(node, VirtualNode):
            self._virtual[fh] = node, await node.virtual.open(flags)
            return FileInfo(fh=fh, direct_io=True, keep_cache=False)
        raise FUSEError(errno.ELOOP if isinstance(node, Link) else errno.EISDIR)

    async def _cut(self, fh: int, file: File, handle: Handle) -> None:
        try:
            await file.truncate(0)
        except BaseException:
            del self._files[fh]
            await file.close(handle)
            raise
        handle.wrote = True
        file.touch()

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        counters.requests["read"] += 1
        found = self._files.get(fh)
        if found is not None:
            image, handle = found[0].image, found[1]
            if image.busy is None and handle.readahead is None:
                try:
                    return image.read(off, size)
                except NeedsFetch:
                    pass
                except Exception:
                    # It is told, and logged, below.
                    pass
        return await self._read_slowly(fh, off, size)

    @guarded
    async def _read_slowly(self, fh: FileHandleT, off: int, size: int) -> bytes:
        if fh in self._files:
            file, handle = self._files[fh]
            return await file.image.read_slowly(handle, off, size)
        if fh in self._sidecars:
            return self._sidecars[fh].file.read(off, size)
        return self._virtual[fh][1][off : off + size]

    @changing
    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        found = self._files.get(fh)
        if found is not None:
            file, handle = found
            await file.write(handle, off, buf)
        elif fh in self._sidecars:
            await self._sidecars[fh].write(off, buf)
        else:
            await self._virtual[fh][0].virtual.write(buf)
        return len(buf)

    async def _resize(self, node: Node, size: int, fh: FileHandleT | None) -> None:
        if isinstance(node, File):
            await self._resize_file(node, size, self._files.get(fh) if fh is not None else None)
        elif isinstance(node, Sidecar):
            await node.truncate(size, by_sqlite=fh is not None)
        elif isinstance(node, Directory):
            raise FUSEError(errno.EISDIR)

    async def _resize_file(self, file: File, size: int, found: tuple[File, Handle] | None) -> None:
        if found is not None:
            await file.truncate(size)
            found[1].wrote = True
            return
        await self._naming.bring(file)
        # Nobody has to close it before it is committed.
        handle = await file.open(writable=True)
        try:
            await file.truncate(size)
            await file.writeback.act(Event.CLOSE)
        finally:
            await file.close(handle)

    @changing
    async def flush(self, fh: FileHandleT) -> None:
        found = self._files.get(fh)
        if found is not None and found[1].wrote and not found[0].unlinked:
            await found[0].writeback.act(Event.CLOSE)
            found[1].wrote = False

    @changing
    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:
        if fh in self._files:
            await self._files[fh][0].writeback.act(Event.FSYNC)
        elif fh in self._sidecars:
            await self._sidecars[fh].sync(self._flushes)

    @changing
    async def release(self, fh: FileHandleT) -> None:
        if fh in self._files:
            file, handle = self._files.pop(fh)
            await file.close(handle)
            self._tree.discard(file)
        elif fh in self._sidecars:
            sidecar = self._sidecars.pop(fh)
            sidecar.handles -= 1
            if not sidecar.handles and sidecar.parent is None:
                self._naming.close_sidecar(sidecar)
            self._tree.discard(sidecar)
            await sidecar.owner.let_go()
        else:
            del self._virtual[fh]

    # Within

    def _number(self) -> FileHandleT:
        self._last += 1
        return FileHandleT(self._last)

    def _node(self, inode: InodeT) -> Node:
        node = self._nodes.get(inode)
        if node is None:
            raise FUSEError(errno.ENOENT)
        return node

    def _directory(self, inode: InodeT) -> Directory:
        node = self._node(inode)
        if not isinstance(node, Directory):
            raise FUSEError(errno.ENOTDIR)
        return node

    def _entry(self, node: Node) -> EntryAttributes:
        node.lookups += 1
        return entry_of(node, known=_is_known(node))

    async def _measure(self, file: File) -> None:
        """Of a file that only the remote has, learn how long it is. Out of reach it is as long as its name tells, and
        empty where that tells nothing: whoever opens it is told what is wrong. Raises NotFound if it has gone.
        """
        began = trio.current_time()
        if file.here or began < self._unasked_until:
            return
        parent = file.parent
        if parent is not None and began - parent.listed < _LISTED_SECONDS:
            self._naming.bring_others(parent)
        try:
            await self._naming.bring(file)
        except NotFound:
            raise
        except BudwoodError as error:
            log.info("how long %s is can't be told: %s", file.path, error)
            if trio.current_time() - began > _SLOW_SECONDS:
                self._unasked_until = trio.current_time() + _UNASKED_SECONDS


def _is_known(node: Node) -> bool:
    """Whether its length and time change by the kernel's doing alone. A commit moves the time of what was written."""
    return not isinstance(node, File) or (node.here and not node.dirty)
