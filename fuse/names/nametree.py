"""Name tree: the names of a home as directories, files and links.

It is made from the namespace when the mount starts, without reading a volume, and changed together with it: first the
namespace, which is on the disk, then the tree. What other processes and the remote change of the names comes in through
`refresh`.

A name may be a volume and have names below it (a, a/b). The tree shows the directory; the volume is `hidden` until one
of the two is given another name.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import pyfuse3

from ...sync.attributes import Attributes
from ...sync.namespace import Entry
from ..files.image import Image
from ..files.inodes import Directory, Link, Node
from ..files.invalidate import forget_attributes, forget_entry
from ..files.regular import File, Services

_DIRECTORY: Final = stat.S_IFDIR | 0o755

MakeFile: TypeAlias = Callable[[int, Attributes, Services, Entry], File]
"""Makes the file that stands for an entry, with an inode number of its own."""


def _file(ino: int, attributes: Attributes, services: Services, entry: Entry) -> File:
    return File(ino, attributes, services, entry.vid, Image(services, entry.length, entry.head), here=entry.here)


class Tree:
    """For the mount's event loop. `owner` (uid, gid) has what nobody else was said to have; `file` makes other
    files than those of the present.
    """

    def __init__(self, services: Services, owner: tuple[int, int], file: MakeFile | None = None) -> None:
        self.services = services
        self._file = file or _file
        self.owner = owner
        self.made = time.time_ns()
        self.hidden: list[str] = []
        self._made: list[Directory] = []
        """Directories that names below them made."""
        self.nodes: dict[int, Node] = {}
        self._last = int(pyfuse3.ROOT_INODE)
        self.root = Directory(self._last, self._attributes(Attributes(mode=_DIRECTORY)), explicit=True)
        self.nodes[self._last] = self.root

    def number(self) -> int:
        self._last += 1
        return self._last

    def forget(self, ino: int, count: int) -> None:
        """The kernel gives references back."""
        node = self.nodes.get(ino)
        if node is not None:
            node.lookups -= count
            self.discard(node)

    def discard(self, node: Node) -> None:
        """Drop a node that nobody can reach any more."""
        if node.parent is None and node.lookups <= 0 and not node.open_handles and node is not self.root:
            self.nodes.pop(node.ino, None)

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for part in path.split("/") if path else ():
            if not isinstance(node, Directory) or part not in node.children:
                return None
            node = node.children[part]
        return node

    def files(self) -> Iterator[File]:
        return (node for node in list(self.nodes.values()) if isinstance(node, File))

    # Entries of the namespace

    def take(self, entry: Entry) -> Node | None:
        """Give an entry its node; None for a volume that a directory hides."""
        parent, name = self._parent_of(entry.name)
        standing = parent.children.get(name)
        if entry.kind == "directory" or isinstance(standing, Directory):
            if entry.kind != "directory":
                self.hidden.append(entry.name)
                return None
            return self._take_directory(parent, name, entry, standing)
        attributes = self._attributes(entry.attributes)
        if entry.kind == "link":
            return self.add(parent, name, Link(self.number(), attributes), told=True)
        return self.add(parent, name, self._file(self.number(), attributes, self.services, entry), told=True)

    def add(self, parent: Directory, name: str, node: Node, *, told: bool = False) -> Node:
        parent.add(name, node, told=told)
        self.nodes[node.ino] = node
        return node

    def renew(self, file: File) -> File | None:
        """Put another file for the same volume in the place of one that is stale; None if that has no name any more."""
        parent, name, volume = file.parent, file.name, file.image.known_volume
        if parent is None:
            return None
        fresh = File(self.number(), file.attributes, self.services, file.vid, Image(self.services, 0))
        head = volume.local.peek()
        fresh.image.learn(volume, head)
        fresh.note_moved(head)
        self.drop(file)
        self.add(parent, name, fresh)
        forget_entry(parent, name)
        return fresh

    def take_along(self, file: File, parent: Directory, name: str) -> None:
        """The sidecars of a file that is about to get this name stay beside it: the same to those who have them open,
        and found by those who come.
        """
        for sidecar in file.sidecars:
            beside = name + sidecar.name.removeprefix(file.name)
            if sidecar.parent is not None and beside not in parent.children:
                self._detach(sidecar)
                parent.add(beside, sidecar)
                forget_entry(parent, beside)

    def drop(self, node: Node) -> None:
        """Out of its directory; it lives on while someone has it open."""
        if node.parent is not None:
            node.parent.drop(node.name)
        self.discard(node)

    def _take_directory(self, parent: Directory, name: str, entry: Entry, standing: Node | None) -> Directory:
        if isinstance(standing, Directory):
            if standing.explicit:
                self._take_attributes(standing, entry)
            else:
                standing.explicit = True
                standing.set_attributes(self._attributes(entry.attributes))
                self.services.background.start_soon(forget_attributes, standing)
            return standing
        if standing is not None:
            self.hidden.append(entry.name)
            self.drop(standing)
        directory = Directory(self.number(), self._attributes(entry.attributes), explicit=True)
        self.add(parent, name, directory, told=True)
        return directory

    def _parent_of(self, path: str) -> tuple[Directory, str]:
        """Its directory, made if there is none: names below a name make it one."""
        node = self.root
        *parts, name = path.split("/")
        for part in parts:
            child = node.children.get(part)
            if not isinstance(child, Directory):
                if child is not None:
                    self.hidden.append(child.path)
                    self.drop(child)
                child = Directory(self.number(), self._attributes(Attributes(mode=_DIRECTORY)), explicit=False)
                self.add(node, part, child, told=True)
                self._made.append(child)
            node = child
        return node, name

    def _attributes(self, attributes: Attributes) -> Attributes:
        return attributes.seen_by(*self.owner, self.made)

    # What others changed

    def refresh(self, entries: list[Entry]) -> None:
        """Become what the namespace is. Files that are open go on, under another name or without one."""
        self.hidden.clear()
        self._made.clear()
        wanted = {entry.name: entry for entry in entries}
        named = [each for each in self.nodes.values() if isinstance(each, File | Link) and each.parent is not None]
        astray: list[File | Link] = []
        for node in named:
            entry = wanted.get(node.path)
            if entry is None or not self._is_still(node, entry):
                astray.append(node)
            else:
                del wanted[entry.name]
                self._take_attributes(node, entry)
        elsewhere = {entry.vid: entry for entry in wanted.values() if entry.kind == "file"}
        moved = [(node, elsewhere[node.vid]) for node in astray if isinstance(node, File) and node.vid in elsewhere]
        for node, _ in moved:
            # Kept from being discarded until it has its new place.
            self._detach(node)
        for node in astray:
            if node.parent is not None:
                self._lose(node)
        for node, entry in moved:
            if self._place(node, entry):
                del wanted[entry.name]
        for entry in sorted(wanted.values(), key=lambda entry: entry.name):
            standing = self.find(entry.name)
            taken = self.take(entry)
            # A directory that stands is never forgotten: programs that work in it would lose their way to it.
            if taken is not None and taken is not standing and taken.parent is not None:
                forget_entry(taken.parent, taken.name)
        for directory in self._made:
            if directory.parent is not None:
                forget_entry(directory.parent, directory.name)
        explicit = {entry.name for entry in entries if entry.kind == "directory"}
        self._prune(self.root, explicit)

    def _detach(self, node: Node) -> None:
        parent, name = node.parent, node.name
        if parent is not None:
            parent.drop(name)
            forget_entry(parent, name)

    def _place(self, file: File, entry: Entry) -> bool:
        """Give a file that was moved its new place; whether that was free."""
        parent, name = self._parent_of(entry.name)
        if name in parent.children:
            self.discard(file)
            return False
        self.take_along(file, parent, name)
        parent.add(name, file)
        self._take_attributes(file, entry)
        forget_entry(parent, name)
        return True

    def _is_still(self, node: File | Link, entry: Entry) -> bool:
        if isinstance(node, Link):
            return entry.kind == "link" and entry.attributes.link == node.target
        return entry.kind == "file" and node.vid == entry.vid

    def _take_attributes(self, node: File | Link | Directory, entry: Entry) -> None:
        attributes = self._attributes(entry.attributes)
        if (attributes.mode, attributes.uid, attributes.gid) != (node.mode, node.uid, node.gid) or (
            entry.attributes.mtime_ns > node.mtime
        ):
            node.set_attributes(attributes)
            self.services.background.start_soon(forget_attributes, node)

    def orphan(self, file: File) -> None:
        """The sidecars of a file that has lost its name are nothing to the one that takes that name next."""
        for sidecar in file.sidecars:
            if sidecar.parent is not None:
                self.services.remove_sidecar(sidecar)

    def _lose(self, node: Node) -> None:
        if isinstance(node, File):
            self.orphan(node)
        self._detach(node)
        self.discard(node)

    def _prune(self, directory: Directory, explicit: set[str]) -> None:
        """Directories that nothing makes one any more go."""
        for child in [child for child in directory.children.values() if isinstance(child, Directory)]:
            self._prune(child, explicit)
            child.explicit = child.path in explicit
            if not child.children and not child.explicit:
                self._lose(child)
