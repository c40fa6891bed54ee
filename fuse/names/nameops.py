"""Name operations: how programs change names: create, mkdir, symlink, unlink, rmdir, rename, chmod.

Each change is made in the namespace first, in one LMDB transaction, then in the tree; one at a time, so that the two
agree. Sidecars are in the tree alone. What is unlinked while it is open goes on until its last close, when its volume
is swept away.
"""

from __future__ import annotations

import errno
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import pyfuse3
import trio

from ...sync.attributes import Attributes
from ...sync.edge import Edge
from ...sync.namespace import Look, Namespace
from ...sync.tables import Head
from ...sync.volume import Volume
from ...volume.errors import AlreadyExists, BudwoodError
from ...volume.ids import check_name
from ..files.image import Image
from ..files.inodes import Directory, Link, Node
from ..files.invalidate import forget_attributes
from ..files.localfile import LocalFile
from ..files.regular import File
from ..files.sidecar import Kind, Sidecar, split_name
from ..files.transitions import Event
from ..files.wal_tail import Wal
from ..files.watermark import load
from ..requests.guarded import log
from ..requests.in_thread import in_thread
from ..requests.quick_lock import QuickLock
from .nametree import Tree
from .sweep import Sweep
from .virtual import FOLDER

LONGEST_NAME: Final = 255
"""Bytes."""

_ADOPTIONS: Final = 16
"""Volumes that come in at once."""
_TELL_SECONDS: Final = 0.3
"""Before a push, which waits for a second of quiet."""

T = TypeVar("T")


def text_of(name: bytes) -> str:
    """A name as text; names are UTF-8 of at most 255 bytes, printable, and without a backslash."""
    if len(name) > LONGEST_NAME:
        raise pyfuse3.FUSEError(errno.ENAMETOOLONG)
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise pyfuse3.FUSEError(errno.EILSEQ) from None


def _found(find: Callable[[str], Volume], path: str) -> tuple[Volume, Head]:
    volume = find(path)
    return volume, volume.local.peek()


class Naming:
    """For the mount's event loop."""

    def __init__(self, tree: Tree, namespace: Namespace, edge: Edge, look: Look, *, follows: bool = True) -> None:
        """`look`: what the tree was made of."""
        self.tree = tree
        self.namespace = namespace
        self.edge = edge
        self.version = look.version
        """Of the namespace, as far as the tree has it."""
        self._seen = look.seen
        """What is in the tree as others made it: what was changed here is looked at with the next change of theirs."""
        self._follows = follows
        """Whether what others change is taken in; the past stays what it was."""
        self.sweeping = Sweep(namespace, tree.services.background)
        self._lock = QuickLock()
        self._unflushed = False
        self._unstored: set[File] = set()
        self._coming: dict[File, trio.Event] = {}
        """Files whose volumes are being asked for."""
        self._adoptions = trio.CapacityLimiter(_ADOPTIONS)
        self._side = trio.CapacityLimiter(_ADOPTIONS - 4)

    async def flush(self) -> None:
        """What was changed survives a power loss once this returns. SQLite asks for it each time it makes a journal."""
        if self._unflushed:
            self._unflushed = False
            try:
                await in_thread(self.edge.environment.flush)
            except BaseException:
                self._unflushed = True
                raise

    async def refresh(self) -> bool:
        """Take in what others changed; whether there was anything. Where there isn't, nobody waits for a change that is
        under way here.
        """
        if not self._follows or self.namespace.version() == self.version:
            return False
        async with self._lock:
            if self.namespace.version() == self.version:
                return False
            await self._look()
            return True

    async def _look(self) -> None:
        """The caller holds the lock."""
        hidden = list(self.tree.hidden.values())
        look = await in_thread(self.namespace.look, self._seen, hidden)
        self.tree.refresh(look)
        self._seen, self.version = look.seen, look.version

    async def _uncover(self) -> None:
        """Show what was hidden by a name that has gone."""
        if self.tree.hidden:
            await self._look()

    async def _change(self, work: Callable[[], T], *changed: Node | None) -> T:
        """In a thread; the caller holds the lock. The nodes whose entries are `changed` are looked at again, whatever
        others make of them.
        """

        def change() -> tuple[int, T]:
            result = work()
            return self.namespace.version(), result

        version, result = await in_thread(change)
        self._unflushed = True
        for node in changed:
            if node is not None:
                self._seen.pop(node.id, None)
        if version == self.version + 1:
            self.version = version
        return result

    async def bring(self, file: File) -> None:
        """See that a file's volume is known; one that only the remote has comes in, without its pages. What is shown of
        the past needs no volume here. Raises Unavailable, NotFound.
        """
        while file.volume is None and self._follows:
            if file.parent is None:
                raise pyfuse3.FUSEError(errno.ESTALE)
            other = self._coming.get(file)
            if other is not None:
                await other.wait()
                continue
            self._coming[file] = trio.Event()
            try:
                path = file.path
                find = self.edge.volume_here if file.here else self.namespace.adopt
                volume, head = await in_thread(_found, find, path, limiter=self._adoptions)
                if volume.id.raw != file.vid:
                    # Another process gave the name to another volume: the kernel looks it up again.
                    await self.refresh()
                    raise pyfuse3.FUSEError(errno.ESTALE)
                file.image.learn(volume, head)
                async with self._lock:
                    # Not while the tree is given what was seen before the volume came.
                    self.tree.identify(file, file.vid)
            finally:
                self._coming.pop(file).set()

    def bring_others(self, directory: Directory) -> None:
        """Bring a directory's files in the background, several at a time: a program asks for one after the other."""
        wanted = [child for child in directory.children.values() if isinstance(child, File) and not child.here]
        directory.listed = 0.0
        for file in wanted:
            self.tree.services.background.start_soon(self._bring_quietly, file)

    async def _bring_quietly(self, file: File) -> None:
        async with self._side:
            try:
                await self.bring(file)
            except (BudwoodError, pyfuse3.FUSEError) as error:
                # Whoever wants it will ask, and be told.
                log.info("%s: %s", file.name, error)

    # Making

    async def make_file(self, parent: Directory, name: str, mode: int, ctx: pyfuse3.RequestContext) -> File:
        path = self._free(parent, name)
        attributes = _fresh(parent, stat.S_IFREG | stat.S_IMODE(mode), ctx)
        async with self._lock:
            self._free(parent, name)
            volume = await self._change(lambda: self.namespace.make_file(path, attributes))
            file = File(self.tree.number(), attributes, self.tree.services, volume.id.raw, Image(self.tree.services, 0))
            file.image.learn(volume, volume.local.peek())
            file.writeback.made()
            self.tree.add(parent, name, file, file.vid)
            return file

    async def make_directory(self, parent: Directory, name: str, mode: int, ctx: pyfuse3.RequestContext) -> Directory:
        path = self._free(parent, name)
        attributes = _fresh(parent, stat.S_IFDIR | stat.S_IMODE(mode), ctx)
        async with self._lock:
            self._free(parent, name)
            key = await self._change(lambda: self.namespace.make_directory(path, attributes))
            directory = Directory(self.tree.number(), attributes)
            self.tree.add(parent, name, directory, key)
            return directory

    async def make_link(self, parent: Directory, name: str, target: str, ctx: pyfuse3.RequestContext) -> Link:
        path = self._free(parent, name)
        attributes = msgspec.structs.replace(_fresh(parent, stat.S_IFLNK | 0o777, ctx), link=target)
        async with self._lock:
            self._free(parent, name)
            key = await self._change(lambda: self.namespace.make_link(path, attributes))
            link = Link(self.tree.number(), attributes)
            self.tree.add(parent, name, link, key)
            return link

    def make_sidecar(
        self, parent: Directory, name: str, kind: Kind, owner: File, mode: int, ctx: pyfuse3.RequestContext
    ) -> Sidecar:
        folder = self.tree.services.sidecars
        attributes = _fresh(parent, stat.S_IFREG | stat.S_IMODE(mode), ctx)
        if kind is Kind.WAL:
            volume = owner.image.known_volume
            file = LocalFile(folder, f"{volume.id}{kind.value}")
            file.truncate(0)
            owner.writeback.wal = Wal(volume, file, self.tree.services.background)
        else:
            file = LocalFile(folder)
        sidecar = Sidecar(self.tree.number(), attributes, kind, owner, file)
        owner.sidecars = (*owner.sidecars, sidecar)
        self.tree.add(parent, name, sidecar)
        return sidecar

    def stand(self, file: File, volume: Volume, path: Path) -> None:
        """A -wal that an earlier mount left stands beside its file, with which it is parted."""
        mark = load(volume.local)
        assert mark is not None
        assert mark.parted is not None
        assert file.parent is not None
        file.image.learn(volume, volume.local.peek())
        wal = Wal(volume, LocalFile(path.parent, path.name), self.tree.services.background)
        wal.resume(mark.parted)
        file.writeback.wal = wal
        name = file.name + Kind.WAL.value
        if name in file.parent.children:
            # A user's own, which was there first.
            return
        sidecar = Sidecar(self.tree.number(), file.attributes, Kind.WAL, file, wal.file)
        file.sidecars = (*file.sidecars, sidecar)
        self.tree.add(file.parent, name, sidecar, told=True)

    # Taking away

    async def unlink(self, parent: Directory, name: str) -> None:
        if name not in parent.children and split_name(name) is not None:
            # The kernel had it until now: its database lost its name a moment ago, and so did it.
            return
        node = self._child(parent, name)
        if isinstance(node, Directory):
            raise pyfuse3.FUSEError(errno.EISDIR)
        if isinstance(node, Sidecar):
            await node.unlinked()
            self.drop_sidecar(node)
        elif isinstance(node, File | Link):
            async with self._lock:
                node = self._child(parent, name)
                await self._hold(parent)
                await self._change(lambda: self.namespace.remove(node.path), node)
                self._lose(node)
            await self._after_unlink(node)
        else:
            raise pyfuse3.FUSEError(errno.EPERM)

    def drop_sidecar(self, sidecar: Sidecar) -> None:
        sidecar.file.remove()
        self.tree.drop(sidecar)
        if not sidecar.handles:
            self.close_sidecar(sidecar)

    def close_sidecar(self, sidecar: Sidecar) -> None:
        """Nobody can read it any more; but for a -wal, whose commits are taken over until its database is let go."""
        if sidecar.wal is not None:
            return
        owner = sidecar.owner
        owner.sidecars = tuple(each for each in owner.sidecars if each is not sidecar)
        sidecar.file.close()

    async def rmdir(self, parent: Directory, name: str) -> None:
        async with self._lock:
            node = self._child(parent, name)
            if not isinstance(node, Directory):
                raise pyfuse3.FUSEError(errno.ENOTDIR)
            if node.children:
                raise pyfuse3.FUSEError(errno.ENOTEMPTY)
            if self.is_ours(node):
                raise pyfuse3.FUSEError(errno.EPERM)
            await self._hold(parent)
            if node.id:
                await self._change(lambda: self.namespace.remove(node.path), node)
            self.tree.drop(node)
            await self._uncover()

    def _lose(self, node: Node) -> None:
        if isinstance(node, File):
            self.tree.orphan(node)
            node.unlinked = True
        self.tree.drop(node)

    async def sweep(self, file: File) -> None:
        """An unlinked file was closed for the last time."""
        if file.parent is None and not file.stale and not file.open_handles and file.volume is not None:
            await self.sweeping.drop(file.vid)

    async def _after_unlink(self, node: Node) -> None:
        if isinstance(node, File) and not node.open_handles:
            # It may not have been let go when it was closed.
            await node.let_go()
            await self.sweeping.drop(node.vid)

    # Renaming

    async def rename(self, parent: Directory, name: str, new_parent: Directory, new_name: str, flags: int) -> None:
        if flags & ~pyfuse3.RENAME_NOREPLACE:
            raise pyfuse3.FUSEError(errno.EINVAL)
        node = self._child(parent, name)
        if isinstance(node, File) and node.dirty:
            # An atomic save: what takes the other's place is committed first.
            await node.writeback.act(Event.CLOSE)
        async with self._lock:
            node, over = self._child(parent, name), new_parent.children.get(new_name)
            if over is node:
                return
            if over is not None and flags & pyfuse3.RENAME_NOREPLACE:
                raise pyfuse3.FUSEError(errno.EEXIST)
            self._check_rename(node, over, new_parent)
            path = self._path(new_parent, new_name)
            await self._hold(parent)
            key = await self._move(node, path, over)
            if over is not None:
                self._lose(over)
            if isinstance(node, File):
                self.tree.take_along(node, new_parent, new_name)
            parent.drop(name)
            new_parent.add(new_name, node)
            self.tree.identify(node, key)
            node.ctime = time.time_ns()
            await self._uncover()
        if over is not None:
            await self._after_unlink(over)

    async def _move(self, node: Node, path: str, over: Node | None) -> bytes:
        """Among the names; the id of its entry from then on."""
        if not isinstance(node, Directory):
            await self._change(lambda: self.namespace.move(node.path, path, replace=over is not None), node, over)
        elif node.id or node.children:
            changed = [node, over, *self.tree.below(node)]
            await self._change(
                lambda: self.namespace.move(node.path, path, replace=over is not None, directory=True), *changed
            )
        elif over is None:
            return await self._change(lambda: self.namespace.make_directory(path, node.attributes))
        else:
            await self._change(lambda: self.namespace.set_attributes(path, node.attributes), over)
            return over.id
        return node.id

    def _check_rename(self, node: Node, over: Node | None, new_parent: Directory) -> None:
        if not isinstance(node, File | Link | Directory) or self.is_ours(node) or self.is_ours(new_parent):
            # A sidecar belongs to its database, and stays beside it.
            raise pyfuse3.FUSEError(errno.EPERM)
        if over is None:
            return
        if isinstance(over, Directory):
            if not isinstance(node, Directory):
                raise pyfuse3.FUSEError(errno.EISDIR)
            if over.children:
                raise pyfuse3.FUSEError(errno.ENOTEMPTY)
        elif isinstance(node, Directory):
            raise pyfuse3.FUSEError(errno.ENOTDIR)
        if not isinstance(over, File | Link | Directory) or self.is_ours(over):
            raise pyfuse3.FUSEError(errno.EPERM)

    # Attributes

    async def keep_attributes(self, node: Node) -> None:
        """What chmod, chown and utimens set goes to the names. What has no name is soon gone."""
        if node is self.tree.root or not isinstance(node, File | Link | Directory):
            return
        async with self._lock:
            path, attributes = node.path, node.attributes
            if node.parent is None:
                return
            if node.id or not isinstance(node, Directory):
                await self._change(lambda: self.namespace.set_attributes(path, attributes), node)
                node.stored = attributes
                return
            try:
                await self._record(node)
            except AlreadyExists as error:
                log.warning("the directory %r has no attributes of its own: %s", path, error)
                raise pyfuse3.FUSEError(errno.EPERM) from None

    def store_attributes_soon(self, file: File) -> None:
        """A file was written: the names shall tell its length and time, together with those of others, in a moment."""
        if not self._unstored:
            self.tree.services.background.start_soon(self._store_attributes_later)
        self._unstored.add(file)

    async def store_attributes(self) -> None:
        async with self._lock:
            unstored, self._unstored = self._unstored, set()
            told = {file: file.attributes for file in unstored if file.parent is not None}
            for file in unstored:
                file.untold = False
            if told:
                by_name = {file.path: attributes for file, attributes in told.items()}
                await self._change(lambda: self.namespace.set_attributes_of(by_name), *told)
                for file, attributes in told.items():
                    file.stored = attributes
        for file in unstored:
            if file.held_mtime is not None:
                file.held_mtime = None
                self.tree.services.background.start_soon(forget_attributes, file)

    async def _store_attributes_later(self) -> None:
        await trio.sleep(_TELL_SECONDS)
        try:
            await self.store_attributes()
        except BudwoodError as error:
            # Their content is committed; the next commit tries again.
            log.error("times and lengths of files that were written last: %s", error)

    # Within

    async def _hold(self, directory: Directory) -> None:
        """A directory that is there because of names below it stays when the last of them goes, as programs expect: as
        long as this mount does, where a volume has its name, too.
        """
        if directory is self.tree.root or directory.id or len(directory.children) > 1:
            return
        try:
            await self._record(directory)
        except AlreadyExists:
            self.tree.held.append(directory)

    async def _record(self, directory: Directory) -> None:
        """Raises AlreadyExists."""
        path, attributes = directory.path, directory.attributes

        def record() -> bytes:
            # It may stand in the way of a removal.
            with self.edge.environment.ballast.making_room():
                return self.namespace.make_directory(path, attributes)

        self.tree.identify(directory, await self._change(record))
        directory.stored = attributes

    def _child(self, parent: Directory, name: str) -> Node:
        node = parent.children.get(name)
        if node is None:
            raise pyfuse3.FUSEError(errno.ENOENT)
        return node

    def _free(self, parent: Directory, name: str) -> str:
        if name in parent.children:
            raise pyfuse3.FUSEError(errno.EEXIST)
        return self._path(parent, name)

    def _path(self, parent: Directory, name: str) -> str:
        """Raises BadInput for a name that no volume can have."""
        if self.is_ours(parent) or (parent is self.tree.root and name == FOLDER):
            raise pyfuse3.FUSEError(errno.EPERM)
        if parent is not self.tree.root and parent.parent is None:
            raise pyfuse3.FUSEError(errno.ENOENT)
        path = f"{parent.path}/{name}" if parent.path else name
        if len(path.encode()) > 1024:
            raise pyfuse3.FUSEError(errno.ENAMETOOLONG)
        return check_name(path)

    def is_ours(self, node: Node) -> bool:
        """`.budwood` itself."""
        return node.parent is self.tree.root and node.name == FOLDER


def _fresh(parent: Directory, mode: int, ctx: pyfuse3.RequestContext) -> Attributes:
    now = time.time_ns()
    gid = ctx.gid
    if parent.mode & stat.S_ISGID:
        gid = parent.gid
        if stat.S_ISDIR(mode):
            mode |= stat.S_ISGID
    return Attributes(mode=mode, uid=ctx.uid, gid=gid, atime_ns=now, mtime_ns=now, ctime_ns=now)
