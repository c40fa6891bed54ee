"""The tree of a mount, step by step: whatever programs in it, other processes and other homes do with its names, it
becomes what the namespace is, and the kernel is told of all that it can't know: of names before the time of their
directory moves.

The mount's own naming and tree, over a real home and a real store, without a kernel: in its stead stands what it has
been told. Names lie below names that are files, too. MOUNT_TREE_SEEDS=500 tries as many schedules.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pyfuse3
import pytest
import trio
import trio.testing

import budwood
from budwood.fuse.files import invalidate
from budwood.fuse.files.inodes import Directory, Link, Node
from budwood.fuse.files.regular import File
from budwood.fuse.names.nameops import Naming
from budwood.fuse.names.nametree import Tree
from budwood.sync.attributes import Attributes
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.namespace import Look, Namespace
from budwood.volume import ids
from budwood.volume.errors import BudwoodError

from ..waits import wait_until

SEEDS: Final = int(os.environ.get("MOUNT_TREE_SEEDS", "25"))
STEPS: Final = 60
NAMES: Final = ("a", "b", "a/b", "a/c", "b/c", "a/b/c", "c/d/e")
CONTEXT: Final[Any] = SimpleNamespace(uid=os.getuid(), gid=os.getgid(), pid=0, umask=0)

DATED_NS: Final = 1_000
"""A time before that was given."""
LATER_NS: Final = 2_000_000_000_000_000_000
"""Whatever is changed of a name is changed after this."""

Shape = dict[str, tuple[str, object, int, int]]
"""By path: the kind, what it leads to, the mode, the time that it was given, if any."""
Known = dict[tuple[int, str], int]
"""The inode of each name in each directory."""


def nodes(directory: Directory) -> Iterator[Node]:
    for child in directory.children.values():
        yield child
        if isinstance(child, Directory):
            yield from nodes(child)


def shape(tree: Tree) -> Shape:
    found: Shape = {}
    for node in nodes(tree.root):
        dated = node.mtime if node.mtime < DATED_NS else 0
        if isinstance(node, File):
            found[node.path] = ("file", node.vid, node.mode, dated)
        elif isinstance(node, Link):
            found[node.path] = ("link", node.target, node.mode, dated)
        else:
            # Its time moves with what is in it.
            found[node.path] = ("directory", bool(node.id), node.mode if node.id else 0, 0)
    return found


class Kernel:
    """One that has looked everywhere, and again wherever it was told to; it watches the times of directories."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.known: Known = {}
        self.times: dict[int, int] = {}
        """By directory: what it knows of its time."""
        self.shown: dict[int, int] = {}
        """By directory: the time that it would have been told if it had asked after the last step."""
        self.unseen: set[int] = set()
        """Directories whose time hasn't moved since it learnt of names in them."""
        self.dated: set[int] = set()
        """Those that others dated, or changed otherwise: what came into them before that doesn't move their time."""
        self.look()

    def names(self) -> Known:
        return {(each.ino, name): child.ino for each in self.directories() for name, child in each.children.items()}

    def directories(self) -> list[Directory]:
        return [self.tree.root, *(node for node in nodes(self.tree.root) if isinstance(node, Directory))]

    def look(self) -> None:
        """At directories that it didn't know."""
        now = self.names()
        for each in self.directories():
            if each.ino not in self.shown:
                self.shown[each.ino] = self.times[each.ino] = each.shown_mtime
                self.known |= {key: ino for key, ino in now.items() if key[0] == each.ino}

    def acted(self, keys: set[tuple[int, str]], before: Known) -> None:
        """A program had it change these names, if they could be: it knows what there is, and asks for the times."""
        now = self.names()
        for key in keys:
            self._learn(key, now.get(key))
        changed = {key[0] for key in keys if before.get(key) != now.get(key)}
        for ino in {ino for ino, _ in keys} & {each.ino for each in self.directories()}:
            shown = self._directory(ino).shown_mtime
            assert shown != self.shown[ino] or ino not in changed
            self.times[ino] = self.shown[ino] = shown

    def forget(self, ino: int, name: bytes) -> None:
        key, now = (ino, name.decode()), self.names()
        if ino in self.shown and self.known.get(key) != now.get(key):
            self.unseen.add(ino)
            self._learn(key, now.get(key))

    def forget_inode(self, ino: int, *, attr_only: bool) -> None:
        assert attr_only
        if ino in self.times and isinstance(self.tree.nodes.get(ino), Directory):
            self.times[ino] = self._directory(ino).shown_mtime

    def check(self) -> None:
        """A directory whose time has moved is as the kernel knows it."""
        now = self.names()
        for each in self.directories():
            if each.stored.mtime_ns != each.stored.ctime_ns:
                self.dated.add(each.ino)
            if each.ino in self.shown and self.shown[each.ino] != each.shown_mtime:
                self.shown[each.ino] = each.shown_mtime
                self.unseen.discard(each.ino)
                assert self._known_of(each.ino, self.known) == self._known_of(each.ino, now)

    def check_told(self) -> None:
        """There is nothing left that it should be told."""
        now = self.names()
        for each in [each for each in self.directories() if each.ino in self.shown]:
            assert self._known_of(each.ino, self.known) == self._known_of(each.ino, now)
            assert self.times[each.ino] == each.shown_mtime == each.mtime
        assert not (self.unseen - self.dated) & {each.ino for each in self.directories()}
        self.unseen.clear()
        self.dated.clear()

    def _learn(self, key: tuple[int, str], ino: int | None) -> None:
        if ino is None:
            self.known.pop(key, None)
        else:
            self.known[key] = ino

    def _known_of(self, directory: int, known: Known) -> Known:
        return {key: ino for key, ino in known.items() if key[0] == directory}

    def _directory(self, ino: int) -> Directory:
        node = self.tree.nodes[ino]
        assert isinstance(node, Directory)
        return node


class Schedule:
    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        remote = (folder / "store").as_uri()
        self.edges = [open_edge(home=folder / name, remote=remote) for name in ("home", "home", "far")]
        self.edge, self.other, self.far = self.edges
        self.others, self.away = Namespace(self.other), Namespace(self.far)
        self.changes = 0
        self.naming = self._mounted()
        self.kernel = Kernel(self.naming.tree)

    def _mounted(self) -> Naming:
        namespace = Namespace(self.edge)
        look = namespace.look({})
        tree = self._tree()
        for entry in look.entries:
            tree.take(entry)
        return Naming(tree, namespace, self.edge, look)

    def _tree(self) -> Tree:
        background = SimpleNamespace(start_soon=_nobody_hears)
        services: Any = SimpleNamespace(
            background=background,
            read_only=False,
            touched=_nobody_hears,
            opening=_nobody_waits,
            released=_nobody_waits,
            invalidate=_nobody_waits,
        )
        return Tree(services, (os.getuid(), os.getgid()))

    async def run(self) -> None:
        steps: list[Callable[[], Awaitable[None] | None]] = [
            *[lambda: self._change_names(self.other, self.others)] * 4,
            *[lambda: self._change_names(self.far, self.away)] * 2,
            self._push_away,
            self._pull,
            *[self._program] * 6,
            self._refresh,
            *[self._tell_kernel] * 3,
        ]
        for _ in range(STEPS):
            done = self.random.choice(steps)()
            if done is not None:
                await done
            self.kernel.check()
            self.kernel.look()
        await self._refresh()
        self.kernel.check()
        await self._tell_kernel()
        for file in [node for node in nodes(self.naming.tree.root) if isinstance(node, File)]:
            assert self.naming.tree.file_of(file.vid) is file or not file.here

    async def rename_and_back(self) -> None:
        self.others.make_file("a", _attributes(stat.S_IFREG | 0o600))
        await self._refresh()
        root = self.naming.tree.root
        await self.naming.rename(root, "a", root, "b", 0)
        self.others.move("b", "a")
        await self._refresh()

    async def bring_while_looking(self) -> None:
        """A file of the remote comes in after the names were looked at, and before the tree has what was seen."""
        self.away.make_file("far", _attributes(stat.S_IFREG | 0o600))
        with closing(budwood.connect("far", home=self.far.home, remote=self.far.remote)) as db:
            db.execute("CREATE TABLE t(x)")
        self.far.volume("far").push()
        self._push_away()
        self._pull()
        await self._refresh()
        file = self.naming.tree.find("far")
        assert isinstance(file, File)
        assert not file.here
        namespace, look = self.naming.namespace, self.naming.namespace.look

        def look_slowly(seen: Mapping[bytes, int], again: Iterable[bytes] = ()) -> Look:
            found = look(seen, again)
            wait_until(lambda: namespace.entry("far") is not None and file.here)
            trio.from_thread.run(trio.testing.wait_all_tasks_blocked)
            return found

        namespace.look = look_slowly  # type: ignore[method-assign]
        self.others.make_file("near", _attributes(stat.S_IFREG | 0o600))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.naming.refresh)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(self.naming.bring, file)
        assert self.naming.tree.find("far") is file
        namespace.look = look  # type: ignore[method-assign]
        await self._refresh()
        assert self.naming.tree.file_of(file.vid) is file

    async def dated_and_opened(self, *, opens: bool) -> None:
        """Others tell a file's time, and then its content comes."""
        self.others.make_file("a", _attributes(stat.S_IFREG | 0o600))
        await self._refresh()
        file = self.naming.tree.find("a")
        assert isinstance(file, File)
        self._date(self.others, "a")
        await self._refresh()
        told = file.mtime
        assert told < DATED_NS
        await self.naming.bring(file)
        if opens:
            await file.close(await file.open(writable=False))
        file.note_moved(file.image.known_volume.local.peek())
        assert (file.mtime == told) != opens

    async def packed(self) -> None:
        """Others fill a directory and date it, all in one change of names."""
        self.others.make_directory("a", _attributes(stat.S_IFDIR | 0o700))
        await self._refresh()
        directory = self.naming.tree.find("a")
        assert isinstance(directory, Directory)
        for name in ("a/b", "a/c"):
            self.others.make_file(name, _attributes(stat.S_IFREG | 0o600))
            await self._refresh()
            assert directory.mtime > DATED_NS
        self.others.remove("a/b")
        self.others.make_directory("a/d", _attributes(stat.S_IFDIR | 0o700))
        self._date(self.others, "a/d")
        self.others.make_file("a/d/e", _attributes(stat.S_IFREG | 0o600))
        self._date(self.others, "a")
        await self._refresh()
        inner = self.naming.tree.find("a/d")
        assert inner is not None
        assert max(directory.mtime, inner.mtime) < DATED_NS

    # What others do

    def _change_names(self, edge: Edge, names: Namespace) -> None:
        name, other, mode = self.random.choice(NAMES), self.random.choice(NAMES), self.random.choice((0o600, 0o640))
        known = [entry.name for entry in names.entries()]
        some = self.random.choice(known) if known and self.random.random() < 0.7 else other
        acts: list[Callable[[], object]] = [
            lambda: names.make_file(name, _attributes(stat.S_IFREG | mode)),
            lambda: names.make_directory(name, _attributes(stat.S_IFDIR | mode)),
            lambda: names.make_link(name, _attributes(stat.S_IFLNK | 0o777, link=other)),
            lambda: names.move(some, name, replace=bool(mode & 0o40), directory=self.random.random() < 0.5),
            lambda: names.remove(some),
            lambda: edge.rm(some, discard=True),
            lambda: edge.volume(some),
            lambda: self._set_mode(names, some, mode),
            lambda: self._date(names, some),
        ]
        with suppress(BudwoodError):
            # There is no such name, or there is one already.
            self.random.choice(acts)()

    def _set_mode(self, names: Namespace, name: str, mode: int) -> None:
        entry = names.entry(name)
        if entry is not None:
            of_kind = stat.S_IFMT(entry.attributes.mode)
            names.set_attributes(name, _attributes(of_kind | mode, link=entry.attributes.link))

    def _date(self, names: Namespace, name: str) -> None:
        entry, self.changes = names.entry(name), self.changes + 1
        if entry is not None:
            given = self.random.randrange(DATED_NS)
            dated = msgspec.structs.replace(entry.attributes, mtime_ns=given, ctime_ns=LATER_NS + self.changes)
            names.set_attributes(name, dated)

    def _push_away(self) -> None:
        self.away.push()

    def _pull(self) -> None:
        for names in (self.others, self.away):
            names.push()
            names.pull()

    # What programs in the mount do

    async def _program(self) -> None:
        tree = self.naming.tree
        every = [node for node in nodes(tree.root) if node.parent is not None]
        directories = [tree.root, *(node for node in every if isinstance(node, Directory))]
        parent, name = self.random.choice(directories), self.random.choice("abcde")
        known, own = self.kernel.names(), {(parent.ino, name)}
        node = self.random.choice(every) if every else None
        acts: list[Callable[[], Awaitable[object]]] = [
            lambda: self.naming.make_file(parent, name, 0o600, CONTEXT),
            lambda: self.naming.make_directory(parent, name, 0o700, CONTEXT),
            lambda: self.naming.make_link(parent, name, "target", CONTEXT),
        ]
        if node is not None and node.parent is not None:
            above, old = node.parent, node.name
            remove = self.naming.rmdir if isinstance(node, Directory) else self.naming.unlink
            acts += [
                *[lambda: remove(above, old)] * 2,
                *[lambda: self._rename(above, old, parent, name)] * 2,
                lambda: self._chmod(node),
            ]
            if isinstance(node, File):
                acts.append(lambda: self.naming.bring(node))
            own.add((above.ino, old))
        fresh = self.naming.version == self.naming.namespace.version()
        try:
            await self.random.choice(acts)()
        except (BudwoodError, pyfuse3.FUSEError):
            # It isn't there, is there already, or isn't empty.
            assert self.kernel.names() == known or not fresh or tree.hidden
        self.kernel.acted(own, known)
        if fresh and self.naming.version == self.naming.namespace.version():
            self._check_tree()

    async def _rename(self, above: Directory, own: str, parent: Directory, name: str) -> None:
        node = above.children[own]
        inside: Node | None = parent
        while inside is not None:
            if inside is node:
                # The kernel doesn't ask for that.
                return
            inside = inside.parent
        await self.naming.rename(above, own, parent, name, 0)

    async def _chmod(self, node: Node) -> None:
        before = node.attributes
        node.mode = stat.S_IFMT(node.mode) | self.random.choice((0o700, 0o770))
        try:
            await self.naming.keep_attributes(node)
        except (BudwoodError, pyfuse3.FUSEError):
            node.show_attributes(before)
            raise

    # What is to hold

    async def _refresh(self) -> None:
        await self.naming.refresh()
        self._check_tree()

    def _check_tree(self) -> None:
        fresh = self._tree()
        for entry in self.naming.namespace.entries():
            fresh.take(entry)
        told, wanted = shape(self.naming.tree), shape(fresh)
        # A directory whose last name a program took away stays, where a file that it hides has its name: until it goes.
        for path, node in [(node.path, node) for node in nodes(self.naming.tree.root)]:
            if isinstance(node, Directory) and not node.id and not node.children and path in self.naming.tree.hidden:
                wanted[path] = told[path]
        assert told == wanted

    async def _tell_kernel(self) -> None:
        await self.naming.tree.invalidation.run()
        self.kernel.check()
        self.kernel.look()
        self.kernel.check_told()


def _nobody_hears(*_: object) -> None:
    pass


async def _nobody_waits(*_: object) -> None:
    pass


def _attributes(mode: int, link: str = "") -> Attributes:
    return Attributes(mode=mode, uid=os.getuid(), gid=os.getgid(), link=link)


@pytest.fixture
def schedule_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Schedule]]:
    made: list[Schedule] = []

    def make(seed: int) -> Schedule:
        # Names that two homes gave to different files are told apart by ids, which the seed decides, too.
        noise, ticks = random.Random(seed), count(1_800_000_000_000_000_000, 1_000_000)
        monkeypatch.setattr(ids, "os", SimpleNamespace(urandom=noise.randbytes))
        monkeypatch.setattr(ids, "time", SimpleNamespace(time_ns=lambda: next(ticks)))
        made.append(Schedule(tmp_path, seed))
        kernel = made[-1].kernel
        notices = SimpleNamespace(
            InodeT=int, FileNameT=bytes, invalidate_entry=kernel.forget, invalidate_inode=kernel.forget_inode
        )
        monkeypatch.setattr(invalidate, "pyfuse3", notices)
        return made[-1]

    yield make
    for edge in made[0].edges:
        edge.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_tree_becomes_what_the_names_are(schedule_of: Callable[[int], Schedule], seed: int) -> None:
    trio.run(schedule_of(seed).run)


def test_what_a_program_renamed_and_others_renamed_back_has_its_old_name(
    schedule_of: Callable[[int], Schedule],
) -> None:
    schedule = schedule_of(0)
    trio.run(schedule.rename_and_back)


def test_a_file_that_comes_in_while_the_names_are_looked_at_stays(schedule_of: Callable[[int], Schedule]) -> None:
    schedule = schedule_of(0)
    trio.run(schedule.bring_while_looking)


@pytest.mark.parametrize("opens", [False, True])
def test_content_comes_with_the_time_that_was_told_unless_the_old_content_was_read_by_then(
    schedule_of: Callable[[int], Schedule], opens: bool
) -> None:
    schedule = schedule_of(0)

    async def run() -> None:
        await schedule.dated_and_opened(opens=opens)

    trio.run(run)


def test_a_directory_that_was_filled_and_dated_has_that_time(schedule_of: Callable[[int], Schedule]) -> None:
    schedule = schedule_of(0)
    trio.run(schedule.packed)
