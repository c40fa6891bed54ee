"""Two edges' names, one store and a model: what programs do offline at each home, then syncs, crashes, lost answers.

Each home is compared with a dict of its own after every call, errors included. When both have said all they have to
say, both must show the same names with the same attributes, and the remote too; nobody's file may be lost that nobody
removed; and where only one home had changed anything since they last agreed, what they agree on is exactly that home's
dict. A crash, or an answer that is lost, at any point of a sync changes nothing of this. DESIGN §5 (Names), §9.6.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import budwood.sync.push
import budwood.sync.upload
from budwood.sync.attributes import Attributes
from budwood.sync.name_table import NameTable, is_reserved
from budwood.sync.namespace import Namespace
from budwood.volume import faults
from budwood.volume.calls import CHANGE_NAME, LIST_NAMES, A, Call, NamesRequest, Q
from budwood.volume.errors import AlreadyExists, BadInput, NotFound, Unavailable

from ..namespaces import DIRECTORY, FILE, Side, link
from ..second_reader import Home, Store, directory

POINTS = [
    "names: remote changed, not recorded",
    "names: gathered, not merged",
    "names: merged, caller not told",
    "push: volume made on the remote, name not bound",
    "push: committed, its name not bound",
    "push: end captured, nothing sent",
    "push: committed, answer not recorded",
]
MOST_ROUNDS = 6

names = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a"])
sides = st.sampled_from([0, 1])


class Thing(NamedTuple):
    kind: str
    content: str
    """A file's text, which no other file ever had, "" while it is empty; a link's."""
    mode: int


Tree = dict[str, Thing]


def is_below(name: str, directory: str) -> bool:
    return name.startswith(f"{directory}/")


class Names(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        shm = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="budwood-", dir=shm if os.access(shm, os.W_OK) else None))
        (self.folder / "store").mkdir()
        self.sides = [self._open(0), self._open(1)]
        self.trees: list[Tree] = [{}, {}]
        self.agreed: Tree = {}
        self.changed: set[int] = set()
        """Who has changed anything since they agreed."""
        self.removed: set[str] = set()
        """Texts of files that somebody removed or replaced."""
        self.made: dict[str, str] = {}
        self.count = 0
        self.texts: dict[bytes, str] = {}
        """Of volumes. Each is written once at most."""
        self.filled: set[str] = set()
        """Those that were written to a file which was there already, and was empty."""

    def _open(self, number: int) -> Side:
        return Side(self.folder / f"home{number}", f"file://{self.folder}/store")

    def teardown(self) -> None:
        try:
            self._agree()
        finally:
            for side in self.sides:
                side.edge.close()
            try:
                self._reread()
            finally:
                shutil.rmtree(self.folder)

    def _reread(self) -> None:
        """By the reader that was written from docs/formats.md."""
        store = Store(directory(self.folder / "store"))
        store.check()
        names = store.names()
        for number in (0, 1):
            home = Home(self.folder / f"home{number}")
            assert home.names().keys() == names.keys() == self.agreed.keys()
            assert home.known() == {name: (bound.target, bound.revision) for name, bound in names.items()}
            for name, vid in home.names().items():
                assert home.kind(vid) == self.agreed[name].kind

    @initialize()
    def begin(self) -> None:
        for name in ("d", "d/e", "z"):
            self.make_directory(0, name)
        for name in ("a", "b", "d/a", "d/e/a"):
            self.make_file(0, name)
        self.make_link(0, "d/b", "a")
        self._agree()

    # What programs do.

    @rule(number=sides, name=names)
    def make_directory(self, number: int, name: str) -> None:
        self._change(
            number,
            lambda: self.sides[number].names.make_directory(name, DIRECTORY),
            self._make(number, name, Thing("directory", "", 0o750)),
        )

    @rule(number=sides, name=names, to=names)
    def make_link(self, number: int, name: str, to: str) -> None:
        self._change(
            number,
            lambda: self.sides[number].names.make_link(name, link(to)),
            self._make(number, name, Thing("link", to, 0o777)),
        )

    @rule(number=sides, name=names)
    def make_file(self, number: int, name: str) -> None:
        self.count += 1
        text = f"text {self.count}"
        new = name not in self.trees[number]
        self._change(
            number,
            lambda: self._write(number, name, text),
            self._make(number, name, Thing("file", text, 0o640)),
        )
        if new:
            self.made[text] = name

    @rule(number=sides, name=names)
    def make_empty(self, number: int, name: str) -> None:
        self._change(
            number,
            lambda: self.sides[number].names.make_file(name, FILE),
            self._make(number, name, Thing("file", "", 0o640)),
        )

    @rule(number=sides, data=st.data())
    def fill(self, number: int, data: st.DataObject) -> None:
        """A program writes to a file that is empty everywhere, the other home's programs not yet knowing it."""
        found = sorted(name for name, thing in self.trees[number].items() if thing.kind == "file" and not thing.content)
        if not found:
            return
        name = data.draw(st.sampled_from(found), label="name")
        self.count += 1
        text = f"text {self.count}"
        self.texts[self.sides[number].write(name, text.encode()).id.raw] = text
        self.filled.add(text)
        self.made[text] = name
        self.changed.add(number)
        for each in (0, 1):
            self._look(each)

    def _write(self, number: int, name: str, text: str) -> None:
        side = self.sides[number]
        volume = side.names.make_file(name, FILE)
        side.write(name, text.encode())
        self.texts[volume.id.raw] = text

    def _make(self, number: int, name: str, thing: Thing) -> Callable[[Tree], None]:
        def make(tree: Tree) -> None:
            if name in tree:
                raise AlreadyExists("model")
            tree[name] = thing

        return make

    @rule(number=sides, name=names, mode=st.sampled_from([0o600, 0o644, 0o700]))
    def set_mode(self, number: int, name: str, mode: int) -> None:
        thing = self.trees[number].get(name)
        kind = {"file": stat.S_IFREG, "directory": stat.S_IFDIR, "link": stat.S_IFLNK}[thing.kind if thing else "file"]
        before = self.sides[number].names.entry(name)
        own = before.attributes if before is not None else Attributes()

        def change(tree: Tree) -> None:
            if thing is None:
                raise NotFound("model")
            tree[name] = thing._replace(mode=mode)

        text = own.link
        attributes = Attributes(mode=kind | mode, uid=7, gid=8, mtime_ns=self.count + 10, link=text, size=own.size)
        self._change(number, lambda: self.sides[number].names.set_attributes(name, attributes), change)
        if thing is not None:
            # The time, whatever the mode was.
            self.changed.add(number)

    @rule(number=sides, old=names, new=names, replace=st.booleans())
    def move(self, number: int, old: str, new: str, replace: bool) -> None:
        def move(tree: Tree) -> None:
            moving = [name for name in tree if is_below(name, old)]
            if new != old and is_below(new, old):
                raise BadInput("model")
            if old not in tree and not moving:
                raise NotFound("model")
            if new == old:
                return
            standing = tree.get(new)
            if standing is not None and not replace:
                raise AlreadyExists("model")
            directory = old not in tree or tree[old].kind == "directory"
            occupied = any(is_below(name, new) for name in tree)
            if occupied and (directory or standing is None or standing.kind == "directory"):
                raise AlreadyExists("model")
            if standing is not None and directory != (standing.kind == "directory"):
                raise AlreadyExists("model")
            self._lose(tree.pop(new, None))
            if old in tree and not directory:
                moving = []
            for name in [*moving, *([old] if old in tree else [])]:
                tree[new + name[len(old) :]] = tree.pop(name)

        self._change(number, lambda: self.sides[number].names.move(old, new, replace=replace), move)

    @rule(number=sides, data=st.data())
    def save(self, number: int, data: st.DataObject) -> None:
        """As editors do: a new file is renamed over the old one."""
        name = self._pick(number, data, "file")
        if name and "saving~" not in self.trees[number]:
            self.make_file(number, "saving~")
            self.move(number, "saving~", name, replace=True)

    @rule(number=sides, data=st.data(), kind=st.sampled_from(["file", "directory"]))
    def swap(self, number: int, data: st.DataObject, kind: str) -> None:
        first, second = self._pick(number, data, kind), self._pick(number, data, kind)
        apart = first != second and not is_below(first, second) and not is_below(second, first)
        if first and apart and "swapping~" not in self.trees[number]:
            self.move(number, first, "swapping~", replace=False)
            self.move(number, second, first, replace=False)
            self.move(number, "swapping~", second, replace=False)

    @rule(number=sides, data=st.data(), to=names)
    def move_one(self, number: int, data: st.DataObject, to: str) -> None:
        name = self._pick(number, data)
        if name:
            self.move(number, name, to, replace=True)

    @rule(number=sides, data=st.data())
    def remove_one(self, number: int, data: st.DataObject) -> None:
        name = self._pick(number, data)
        if name:
            self.remove(number, name)

    @rule(name=names, kind=st.sampled_from(["directory", "link", "file", "empty file"]))
    def make_at_both(self, name: str, kind: str) -> None:
        for number in (0, 1):
            if kind == "file":
                self.make_file(number, name)
            elif kind == "empty file":
                self.make_empty(number, name)
            elif kind == "link":
                self.make_link(number, name, "same")
            else:
                self.make_directory(number, name)

    def _pick(self, number: int, data: st.DataObject, kind: str = "") -> str:
        """A name that is there; "" if there is none."""
        found = sorted(name for name, thing in self.trees[number].items() if not kind or thing.kind == kind)
        return data.draw(st.sampled_from(found), label="name") if found else ""

    @rule(number=sides, name=names)
    def remove(self, number: int, name: str) -> None:
        def remove(tree: Tree) -> None:
            directory = name not in tree or tree[name].kind == "directory"
            if directory and any(is_below(other, name) for other in tree):
                raise AlreadyExists("model")
            if name not in tree:
                raise NotFound("model")
            self._lose(tree.pop(name))

        self._change(number, lambda: self.sides[number].names.remove(name), remove)

    @rule(number=sides)
    def sweep(self, number: int) -> None:
        self.sides[number].names.sweep()

    @rule(number=sides, name=names)
    def read(self, number: int, name: str) -> None:
        thing = self.trees[number].get(name)
        names = [own.vid for own in self.sides[number].names.entries() if own.kind == "file"]
        if thing is not None and thing.kind == "file":
            if names.count(self.sides[number].entry(name).vid) > 1:
                # On its way from one name to another, at the other home; it is to be read by one of them.
                with suppress(AlreadyExists):
                    self.sides[number].names.adopt(name)
                return
            if thing.content not in self.filled:
                assert self.sides[number].read(name) == thing.content.encode()
            else:
                self.sides[number].names.adopt(name)
            assert self.sides[number].entry(name).here

    @rule(number=sides, name=names)
    def remove_tree(self, number: int, name: str) -> None:
        """As `rm -r` does."""
        for below in sorted((other for other in self.trees[number] if is_below(other, name)), reverse=True):
            self.remove(number, below)
        if name in self.trees[number]:
            self.remove(number, name)

    def _lose(self, thing: Thing | None) -> None:
        if thing is not None and thing.kind == "file":
            self.removed.add(thing.content)

    def _change(self, number: int, act: Callable[[], object], model: Callable[[Tree], None]) -> None:
        """The same of both; the same error, or none."""
        before, tree = self._shown(number), dict(self.trees[number])
        assert before == self.trees[number], "seen before the change"
        expected: type[Exception] | None = None
        removed = set(self.removed)
        try:
            model(tree)
        except (AlreadyExists, BadInput, NotFound) as error:
            expected = type(error)
            self.removed = removed
        if expected is not None:
            with pytest.raises(expected):
                act()
        else:
            act()
            if tree != self.trees[number]:
                self.changed.add(number)
            self.trees[number] = tree
        assert self._shown(number) == self.trees[number]

    # How they hear of each other.

    @rule(number=sides)
    def sync(self, number: int) -> None:
        self.sides[number].pull()
        self.sides[number].push()
        self._look(number)

    @rule(number=sides)
    def push(self, number: int) -> None:
        self.sides[number].push()
        self._look(number)

    @rule(number=sides)
    def pull(self, number: int) -> None:
        self.sides[number].pull()
        self._look(number)

    @rule(number=sides)
    def push_watched(self, number: int) -> None:
        """The other home syncs after each change that this one makes there."""
        other = 1 - number

        def watch() -> None:
            faults.disarm("names: remote changed, not recorded")
            self.sync(other)
            faults.arm("names: remote changed, not recorded", watch)

        faults.arm("names: remote changed, not recorded", watch)
        try:
            self.push(number)
        finally:
            faults.disarm("names: remote changed, not recorded")

    @rule(number=sides, point=st.sampled_from(POINTS), nth=st.integers(0, 3), pulling=st.booleans())
    def crash(self, number: int, point: str, nth: int, pulling: bool) -> None:
        left = iter(range(nth))

        def cut() -> None:
            if next(left, None) is None:
                raise faults.Cut

        faults.arm(point, cut)
        try:
            self.sides[number].pull() if pulling else self.sides[number].push()
        except faults.Cut:
            pass
        finally:
            faults.disarm(point)
        self.sides[number].edge.close()
        self.sides[number] = self._open(number)
        self._look(number)

    @rule(number=sides, nth=st.integers(0, 3), arrives=st.booleans())
    def lose_an_answer(self, number: int, nth: int, arrives: bool) -> None:
        # It may end before so many answers were asked for.
        with self._losing(number, nth, arrives), suppress(Unavailable):
            self.sides[number].push()
        self._look(number)

    @contextmanager
    def _losing(self, number: int, nth: int, arrives: bool) -> Generator[None]:
        remote = self.sides[number].edge.connection().remote
        ask, left = remote.ask, iter(range(nth))

        def deaf(call: Call[Q, A], request: Q) -> A:
            if call.name == CHANGE_NAME.name and next(left, None) is None:
                if arrives:
                    ask(call, request)
                raise Unavailable("the answer is lost", determinate=False)
            return ask(call, request)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(remote, "ask", deaf)
            yield

    @rule(number=sides, other_changes=st.sampled_from(POINTS[:2]), name=names)
    def change_while_syncing(self, number: int, other_changes: str, name: str) -> None:
        """A program renames or removes a file in the middle of a sync."""
        side, done = self.sides[number], list[str]()

        def meanwhile() -> None:
            faults.disarm(other_changes)
            tree = self._shown(number)
            thing = tree.get(name)
            if thing is None or thing.kind != "file":
                return
            if name < "d":
                side.names.remove(name)
                self.removed.add(thing.content)
            else:
                try:
                    side.names.move(name, "meanwhile")
                except AlreadyExists:
                    return
            done.append(name)

        faults.arm(other_changes, meanwhile)
        try:
            side.push()
        finally:
            faults.disarm(other_changes)
        if done:
            # What exactly comes of it depends on the moment.
            self.changed = {0, 1}
        self._look(number)

    def _look(self, number: int) -> None:
        """Take over what a sync made of the names here: nothing, unless programs of the other home changed some."""
        shown = self._shown(number)
        if 1 - number not in self.changed:
            self._check_as_before(number, shown)
        self.trees[number] = shown

    def _check_as_before(self, number: int, shown: Tree) -> None:
        # A directory stays where others have found something in it that was not seen to leave.
        kept = {name for name in shown if any(is_below(other, name) for other in shown)} - self.trees[number].keys()
        assert {name: thing for name, thing in shown.items() if name not in kept} == self.trees[number]

    def _shown(self, number: int) -> Tree:
        side = self.sides[number]
        tree: Tree = {}
        for entry in side.names.entries():
            content = entry.attributes.link
            if entry.kind == "file":
                content = self.texts.get(entry.vid, "")
            tree[entry.name] = Thing(entry.kind, content, entry.attributes.mode & 0o7777)
        assert list(tree) == sorted(tree)
        return tree

    @rule()
    def agree(self) -> None:
        self._agree()

    def _agree(self) -> None:
        """Both say all they have to say, and must show the same then."""
        said = [list[str](), list[str]()]
        before: list[list[Any]] = []
        for _ in range(MOST_ROUNDS):
            before = [self._full(number) for number in (0, 1)]
            for number, side in enumerate(self.sides):
                said[number] += side.push()
                side.pull()
            if before == [self._full(number) for number in (0, 1)] and before[0] == before[1]:
                break
        else:
            raise AssertionError(f"they never agree: {before[0]} against {before[1]}")
        shown = self._shown(0)
        assert shown == self._shown(1)
        if len(self.changed) == 1:
            (author,) = self.changed
            self._check_as_before(author, shown)
            assert said == [[], []]
        if not self.changed:
            assert shown == self.agreed
        there = {
            entry.name: (entry.target, Attributes.from_wire(entry.attributes).mode & 0o7777)
            for entry in self.sides[0].edge.connection().remote.ask(LIST_NAMES, NamesRequest()).entries
        }
        entries = {entry.name: entry for entry in self.sides[0].names.entries()}
        assert there == {name: (entry.vid, entry.attributes.mode & 0o7777) for name, entry in entries.items()}
        files = {name: thing.content for name, thing in shown.items() if thing.kind == "file" and thing.content}
        found = set(files.values())
        assert set(self.made) - self.removed <= found, "a file is lost that nobody removed"
        assert len(found) == len(files), "a file is there twice"
        for name, text in files.items():
            if text in self.filled - self.removed:
                for side in self.sides:
                    side.names.adopt(name).pull()
                    assert side.read(name) == text.encode()
        for number in (0, 1):
            self.trees[number] = shown
            self._check_records(number, there)
            assert Namespace(self.sides[number].edge).push() == []
        self.agreed, self.changed = shown, set()
        self.made = {text: name for text, name in self.made.items() if text in found}

    def _check_records(self, number: int, there: dict[str, tuple[bytes, int]]) -> None:
        """Nothing is owed: each entry is bound by its name, and what is known is what the remote has."""
        environment = self.sides[number].edge.environment
        with environment.view() as txn:
            records = [row for row in NameTable(environment, txn).everything() if not is_reserved(row.name)]
            known = list(NameTable(environment, txn).known())
        assert {row.name: row.bound for row in records} == {name: name for name in there}
        assert not any(row.moved for row in records)
        assert {row.name: row.target for row in known} == {name: target for name, (target, _) in there.items()}
        assert not any(row.dropped for row in known)

    def _full(self, number: int) -> list[Any]:
        return [
            (entry.name, entry.kind, entry.vid, entry.attributes.mode, entry.attributes.link, entry.unpushed)
            for entry in self.sides[number].names.entries()
        ]


@pytest.fixture(autouse=True)
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budwood.sync.push, "DELAYS_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(budwood.sync.upload, "DELAYS_SECONDS", (0.0, 0.0))


TestNames = pytest.mark.usefixtures("no_delays")(Names.TestCase)
