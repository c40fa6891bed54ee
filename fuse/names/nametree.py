"""Name tree: the names of a home as directories, files and links.

It is made from the namespace when the mount starts, without reading a volume, and changed together with it: first the
namespace, which is on the disk, then the tree. What other processes and the remote change of the names comes in through
`refresh`, which looks at what was changed alone: a node is found by the id of its entry.

A name may be a volume and have names below it (a, a/b). The tree shows the directory; the volume is `hidden` until the
directory goes, or one of the two is given another name.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import pyfuse3

from ...sync.attributes import Attributes
from ...sync.namespace import Entry, Look
from ..files.image import Image
from ..files.inodes import Directory, Link, Node
from ..files.invalidate import NameInvalidation, forget_attributes
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
        self.invalidation = NameInvalidation(services.background)
        self._file = file or _file
        self.owner = owner
        self.made = time.time_ns()
        self.hidden: dict[str, bytes] = {}
        """What a directory hides: by its name, the id of its entry."""
        self.held: list[Directory] = []
        """Directories that nothing makes one any more, but for programs that expect them still."""
        self._made: dict[Directory, Entry] = {}
        """Directories that names below them made, and those."""
        self._shown: dict[Directory, int] = {}
        """The times that directories showed before others changed them."""
        self._stirred: set[Directory] = set()
        """Those in which others changed names."""
        self._dated: dict[Directory, int] = {}
        """Those of which others told a time, and that: what they changed in them they did before."""
        self.nodes: dict[int, Node] = {}
        """By inode number: those that are in the tree, and those that someone knows still."""
        self._named: dict[bytes, Node] = {}
        """Those that are in the tree, by the id of their entry."""
        self._last = int(pyfuse3.ROOT_INODE)
        self.root = Directory(self._last, self._attributes(Attributes(mode=_DIRECTORY)))
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
        if node.parent is not None or node is self.root:
            return
        if self._named.get(node.id) is node:
            del self._named[node.id]
        if node.lookups <= 0 and not node.open_handles:
            self.nodes.pop(node.ino, None)

    def identify(self, node: Node, key: bytes) -> None:
        """A node has the entry with this id; without one, it has none any more."""
        if self._named.get(node.id) is node:
            del self._named[node.id]
        node.id = key
        if key and node.parent is not None:
            self._named[key] = node

    def file_of(self, vid: bytes) -> File | None:
        """The file that stands for a volume of this home, if one does."""
        node = self._named.get(vid)
        return node if isinstance(node, File) else None

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for part in path.split("/") if path else ():
            if not isinstance(node, Directory) or part not in node.children:
                return None
            node = node.children[part]
        return node

    def below(self, directory: Directory) -> Iterator[Node]:
        """Whatever has a name below it."""
        for child in directory.children.values():
            yield child
            if isinstance(child, Directory):
                yield from self.below(child)

    def files(self) -> Iterator[File]:
        return (node for node in list(self.nodes.values()) if isinstance(node, File))

    # Entries of the namespace

    def take(self, entry: Entry) -> Node | None:
        """Give an entry its node; None for a volume that a directory hides."""
        parent, name = self._parent_of(entry)
        standing = parent.children.get(name)
        if entry.kind == "directory":
            return self._take_directory(parent, name, entry, standing)
        if isinstance(standing, Directory):
            self.hidden[entry.name] = entry.id
            return None
        attributes = self._attributes(entry.attributes)
        if entry.kind == "link":
            return self.add(parent, name, Link(self.number(), attributes), entry.id, told=True)
        return self.add(parent, name, self._file(self.number(), attributes, self.services, entry), entry.id, told=True)

    def add(self, parent: Directory, name: str, node: Node, key: bytes = b"", *, told: bool = False) -> Node:
        parent.add(name, node, told=told)
        self.nodes[node.ino] = node
        self.identify(node, key)
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
        self.add(parent, name, fresh, file.id)
        self.invalidation.forget(parent, name)
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
                self.invalidation.forget(parent, beside)

    def drop(self, node: Node) -> None:
        """Out of its directory; it lives on while someone has it open."""
        if node.parent is not None:
            node.parent.drop(node.name)
        self.discard(node)

    def _take_directory(self, parent: Directory, name: str, entry: Entry, standing: Node | None) -> Directory:
        if isinstance(standing, Directory):
            self.identify(standing, entry.id)
            self._note_shown(standing)
            standing.set_attributes(self._attributes(entry.attributes))
            self.services.background.start_soon(forget_attributes, standing)
            return standing
        if standing is not None:
            self._hide(standing)
        directory = Directory(self.number(), self._attributes(entry.attributes))
        self.add(parent, name, directory, entry.id, told=True)
        return directory

    def _parent_of(self, entry: Entry) -> tuple[Directory, str]:
        """Its directory, made if there is none: names below a name make it one."""
        node = self.root
        *parts, name = entry.name.split("/")
        for part in parts:
            child = node.children.get(part)
            if not isinstance(child, Directory):
                if child is not None:
                    self._hide(child)
                child = Directory(self.number(), self._attributes(Attributes(mode=_DIRECTORY)))
                self.add(node, part, child, told=True)
                self._made[child] = entry
            node = child
        return node, name

    def _hide(self, node: Node) -> None:
        if node.id:
            self.hidden[node.path] = node.id
        if node.parent is not None:
            self._note_shown(node.parent)
        self.drop(node)

    def _attributes(self, attributes: Attributes) -> Attributes:
        return attributes.seen_by(*self.owner, self.made)

    # What others changed

    def refresh(self, look: Look) -> None:
        """Become what the namespace is; the look was at what is hidden, in any case. Files that are open go on, under
        another name or without one.
        """
        self.hidden.clear()
        self._made.clear()
        self._shown.clear()
        self._stirred.clear()
        self._dated.clear()
        told = {entry.name: entry for entry in look.entries}
        wanted = dict(told)
        astray: list[Node] = []
        gone = self._named.keys() - look.seen.keys()
        keys = {entry.id for entry in look.entries} | look.retired | gone
        for node in [self._named[key] for key in keys if key in self._named]:
            entry = wanted.get(node.path)
            if entry is None or not _is_still(node, entry):
                astray.append(node)
            else:
                del wanted[entry.name]
                self.identify(node, entry.id)
                self._take_attributes(node, entry)
        left = self._move(astray, wanted)
        for entry in sorted(wanted.values(), key=lambda entry: entry.name):
            self._take_told(entry)
        for directory, entry in self._made.items():
            self._note_made(directory, entry)
        self._prune(left + [directory for directory in self.held if directory.path not in self.hidden])
        self.held = [directory for directory in self.held if directory.path in self.hidden]
        for name in [name for name in self.hidden if name in told and self.find(name) is None]:
            del self.hidden[name]
            self._take_told(told[name])
        for directory in self._stirred:
            self._note_shown(directory)
            directory.touch()
        for directory, mtime in self._dated.items():
            directory.mtime = mtime
        for directory, mtime in self._shown.items():
            self.invalidation.hold(directory, mtime)

    def _note_shown(self, directory: Directory) -> None:
        """Before its time changes."""
        self._shown.setdefault(directory, directory.shown_mtime)

    def _move(self, astray: list[Node], wanted: dict[str, Entry]) -> list[Directory]:
        """Take what has another name there, or none, from its place; a file gets the one that is `wanted` for it. The
        directories that may be there for nothing now.
        """
        elsewhere = {entry.vid: entry for entry in wanted.values() if entry.kind == "file"}
        left: list[Directory] = []
        moved: list[tuple[File, Entry]] = []
        for node in astray:
            if isinstance(node, Directory):
                # It stays as long as names lie below it.
                self.identify(node, b"")
                left.append(node)
            elif node.parent is not None:
                left.append(node.parent)
                self._stirred.add(node.parent)
                entry = elsewhere.get(node.vid) if isinstance(node, File) else None
                if isinstance(node, File) and entry is not None and _is_still(node, entry):
                    # Kept from being discarded until it has its new place.
                    self._detach(node)
                    moved.append((node, entry))
                else:
                    self._lose(node)
        for file, entry in moved:
            if self._place(file, entry):
                del wanted[entry.name]
        return left

    def _take_told(self, entry: Entry) -> None:
        standing = self.find(entry.name)
        taken = self.take(entry)
        if isinstance(taken, Directory):
            self._dated[taken] = taken.mtime
        # A directory that stands is never forgotten: programs that work in it would lose their way to it.
        if taken is not None and taken is not standing:
            self._note_made(taken, entry)

    def _note_made(self, node: Node, entry: Entry) -> None:
        """The entry brought it in."""
        if node.parent is not None:
            if not _was_dated_later(node.parent, entry):
                self._stirred.add(node.parent)
            self.invalidation.forget(node.parent, node.name)

    def _detach(self, node: Node) -> None:
        parent, name = node.parent, node.name
        if parent is not None:
            self._note_shown(parent)
            parent.drop(name)
            self.invalidation.forget(parent, name)

    def _place(self, file: File, entry: Entry) -> bool:
        """Give a file that was moved its new place; whether that was free."""
        parent, name = self._parent_of(entry)
        if name in parent.children:
            self.discard(file)
            return False
        self._note_shown(parent)
        self.take_along(file, parent, name)
        parent.add(name, file)
        self.identify(file, entry.id)
        self._take_attributes(file, entry)
        self._stirred.add(parent)
        self.invalidation.forget(parent, name)
        return True

    def _take_attributes(self, node: Node, entry: Entry) -> None:
        told, known = self._attributes(entry.attributes), node.stored
        is_news = told.mtime_ns != known.mtime_ns and told.ctime_ns >= known.ctime_ns
        is_dated = is_news or told.mtime_ns > node.mtime
        if isinstance(node, File) and node.untold:
            # It was written here after that.
            is_dated = False
        if is_dated or (told.mode, told.uid, told.gid) != (known.mode, known.uid, known.gid):
            mtime = told.mtime_ns if is_dated else node.mtime
            if isinstance(node, Directory):
                self._note_shown(node)
            node.set_attributes(told)
            node.mtime = mtime
            if isinstance(node, Directory) and is_dated:
                self._dated[node] = mtime
            if isinstance(node, File) and is_dated:
                node.unread = not node.open_handles
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

    def _prune(self, directories: list[Directory]) -> None:
        """Directories that nothing makes one any more go."""
        for directory in directories:
            while directory.parent is not None and not directory.children and not directory.id:
                above = directory.parent
                self._lose(directory)
                directory = above


def _was_dated_later(directory: Directory, made: Entry) -> bool:
    """Somebody has given the directory a time after this was made in it, and its name came later than that time."""
    known = directory.stored
    return known.mtime_ns != known.ctime_ns and made.attributes.ctime_ns <= known.ctime_ns


def _is_still(node: Node, entry: Entry) -> bool:
    if isinstance(node, Link):
        return entry.kind == "link" and entry.attributes.link == node.target
    if isinstance(node, File):
        # A volume that has left this home comes in anew; who has it open goes on with what there was.
        return entry.kind == "file" and node.vid == entry.vid and (entry.here or not node.here)
    return entry.kind == "directory"
