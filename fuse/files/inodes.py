"""Inodes: what the tree is made of, and how each looks to the kernel.

Every node has an inode number that is never used again within a mount. Times are nanoseconds since the Unix epoch.
"""

from __future__ import annotations

import stat
import time
from typing import Final

import msgspec
import pyfuse3

from ...sync.attributes import Attributes

_FOREVER: Final = 3600.0
"""Seconds. Whatever changes without the kernel's doing is invalidated; nothing waits for a timeout."""
_BLOCK: Final = 512


class Node:
    """Not in the tree (`parent` is None): unlinked, and alive only while someone has it open or remembers it."""

    __slots__ = (
        "atime",
        "ctime",
        "gid",
        "held_mtime",
        "id",
        "ino",
        "lookups",
        "mode",
        "mtime",
        "name",
        "parent",
        "stored",
        "uid",
    )

    def __init__(self, ino: int, attributes: Attributes) -> None:
        self.ino = ino
        self.id = b""
        """Of its entry among the names, if it has one."""
        self.name = ""
        self.parent: Directory | None = None
        self.lookups = 0
        """References of the kernel."""
        self.held_mtime: int | None = None
        """Shown in place of `mtime` for a moment: by a file's owner, or by NameInvalidation."""
        self.set_attributes(attributes)

    def set_attributes(self, attributes: Attributes) -> None:
        self.stored = attributes
        """As its name told them last."""
        self.show_attributes(attributes)

    def show_attributes(self, attributes: Attributes) -> None:
        self.mode = attributes.mode
        self.uid = attributes.uid
        self.gid = attributes.gid
        self.atime = attributes.atime_ns
        self.mtime = attributes.mtime_ns
        self.ctime = attributes.ctime_ns

    @property
    def attributes(self) -> Attributes:
        """As they are kept with the name."""
        return msgspec.structs.replace(
            self.stored,
            mode=self.mode,
            uid=self.uid,
            gid=self.gid,
            atime_ns=self.atime,
            mtime_ns=self.mtime,
            ctime_ns=self.ctime,
            size=self.length if stat.S_ISREG(self.mode) else 0,
        )

    @property
    def length(self) -> int:
        """Bytes, as stat tells them."""
        return 0

    @property
    def shown_mtime(self) -> int:
        return self.mtime if self.held_mtime is None else self.held_mtime

    @property
    def links(self) -> int:
        return 1 if self.parent is not None else 0

    @property
    def open_handles(self) -> int:
        return 0

    @property
    def is_fleeting(self) -> bool:
        """Whether it may go without the kernel's doing, when its database loses its name: then the kernel must not
        believe for a moment that it is still there.
        """
        return False

    @property
    def path(self) -> str:
        """From the root, without a leading "/"; "" for the root, and for what is in no directory."""
        parts: list[str] = []
        node: Node = self
        while node.parent is not None:
            parts.append(node.name)
            node = node.parent
        return "/".join(reversed(parts))

    def touch(self) -> None:
        self.mtime = self.ctime = time.time_ns()


class Directory(Node):
    """Without an id it is there because names lie below it."""

    __slots__ = ("_directories", "children", "listed")

    def __init__(self, ino: int, attributes: Attributes) -> None:
        super().__init__(ino, attributes)
        self.children: dict[str, Node] = {}
        self._directories = 0
        """How many of them are directories: each change of a file asks for the links of its own."""
        self.listed = 0.0
        """When a program read it last, by the monotonic clock."""

    @property
    def length(self) -> int:
        return 4096

    def touch(self) -> None:
        super().touch()
        if self.held_mtime is not None:
            # It moves now, and once more when that ends.
            self.held_mtime = self.mtime - 1

    @property
    def links(self) -> int:
        if self.parent is None and self.ino != pyfuse3.ROOT_INODE:
            return 0
        return 2 + self._directories

    def add(self, name: str, node: Node, *, told: bool = False) -> None:
        """`told`: it was there all the time, and is only learnt of."""
        node.parent, node.name = self, name
        self._directories += isinstance(node, Directory) - isinstance(self.children.get(name), Directory)
        self.children[name] = node
        if not told:
            self.touch()

    def drop(self, name: str) -> Node:
        node = self.children.pop(name)
        self._directories -= isinstance(node, Directory)
        node.parent = None
        self.touch()
        return node


class Link(Node):
    __slots__ = ("target",)

    def __init__(self, ino: int, attributes: Attributes) -> None:
        super().__init__(ino, attributes)
        self.target = attributes.link

    @property
    def length(self) -> int:
        return len(self.target.encode())


def entry_of(node: Node, *, known: bool = True) -> pyfuse3.EntryAttributes:
    """`known`: its length is; else the kernel has to ask whenever it wants to know."""
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = pyfuse3.InodeT(node.ino)
    entry.entry_timeout = 0 if node.is_fleeting else _FOREVER
    entry.attr_timeout = _FOREVER if known else 0
    entry.st_mode = pyfuse3.ModeT(node.mode)
    entry.st_nlink = node.links
    entry.st_uid = node.uid
    entry.st_gid = node.gid
    length = node.length
    entry.st_size = length
    entry.st_blksize = 4096 if stat.S_ISDIR(node.mode) else 131072
    entry.st_blocks = -(-length // _BLOCK)
    entry.st_atime_ns = node.atime
    entry.st_mtime_ns = node.shown_mtime
    entry.st_ctime_ns = node.ctime
    return entry


def negative_entry() -> pyfuse3.EntryAttributes:
    """No such name: the kernel remembers it, as SQLite asks for -journal and -wal at every transaction."""
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = pyfuse3.InodeT(0)
    entry.entry_timeout = _FOREVER
    return entry
