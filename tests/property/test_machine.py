"""Two edges and a node against a model (DESIGN §9): what `test_edge_machine.py` does, with a node that dies.

The node is a process's worth of memory over a store that outlives it (nodes.py): named, with a log that it owns and
fences at each start; or embedded, with none. Steps, on top of those of the edges: the node dies at any of its fault
points, and comes back, at the first attempt or the second; nobody is there for a while; the store loses answers to
writes, fails reads, or fails altogether; the node is deposed by another and doesn't know it; volumes move between logs
and the move is cut; volumes are removed.

After each: what was acknowledged is readable by everyone, also without the node; LSNs have no gaps; an old LSN reads as
it always did; no reader sees a mixture; unpushed work survives.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

import budwood.sync.push
from budwood.remote.loop import call
from budwood.server.node import Node
from budwood.sync import commit_journal
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.volume import Volume
from budwood.testing.commits import pages_at
from budwood.testing.stores import Rule
from budwood.volume import faults
from budwood.volume.calls import (
    MOVE_LOG,
    OUTCOME,
    PULL_COMMITS,
    SNAPSHOT,
    MoveRequest,
    OutcomeRequest,
    RangeRequest,
    SnapshotRequest,
)
from budwood.volume.errors import Diverged, NotFound, Unavailable
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import decode_pages, span

from .nodes import HOME, Town
from .test_edge_machine import PAGES, POINTS, Copy, Edges, State, small_batches

__all__ = ["small_batches"]

EDGE_STEPS = {
    "birth: pages written, volume not visible": ["fork", "keep"],
    "commit: about to be written": ["commit"],
    "commit: written, the writer not told": ["commit"],
    "fork: volume visible, held pages not copied": ["fork", "keep"],
    "pull: changes known, head not moved": ["pull"],
    "pull: head moved, caller not told": ["pull"],
    "pull: rows looked up, head not moved": ["pull", "discard"],
    "push: committed, answer not recorded": ["push", "first push", "long push"],
    "push: committed, its name not bound": ["first push", "fork's first push"],
    "push: end captured, nothing sent": ["push", "first push", "long push"],
    "push: some pages sent, token not recorded": ["long push"],
    "push: what was sent is noted, some pages not sent": ["long push"],
    "push: success recorded, caller not told": ["push", "first push", "long push"],
    "push: token durable, commit not sent": ["push", "first push", "long push"],
    "push: volume made on the remote, name not bound": ["first push", "fork's first push"],
    "reset: head moved, caller not told": ["keep", "discard"],
    "stage: all rows written, head not moved": ["commit"],
    "stage: head moved, older versions not removed": ["commit"],
    "stage: some older versions removed": ["commit"],
    "stage: some rows written, head not moved": ["commit"],
}
"""What an edge is doing when it dies at a point."""

NODE_STEPS = {
    "log: entry sealed, not sent": ["push", "first push", "long push", "fork's first push"],
    "log: entry durable, not acknowledged": ["push", "first push", "long push", "fork's first push"],
    "pagestore: fragment checked, not stored": ["long push"],
    "pagestore: fragment durable, not answered": ["long push"],
    "node: fork born, parent not told": ["fork's first push"],
}
OWNER_STEPS = {
    "log: epoch taken, not fenced": ["start"],
    "log: fence durable, not open": ["start"],
    "move: close written, open not": ["move"],
}
EMBEDDED_STEPS = {
    "log: anchor durable, log empty": ["first push"],
    "node: birth written, log not anchored": ["first push"],
}
"""What is asked of a node when it dies at a point: of any, of the owner of a log, of one that owns none."""

KEYS = ["*", "logs/*/entries/*", "logs/*/t/*", "volumes/*"]


class Machine(Edges):
    log: str | None
    memory_bytes: int | None = None

    def __init__(self) -> None:
        self.town = Town(self.log, self.memory_bytes)
        assert self.town.start()
        super().__init__()

    def teardown(self) -> None:
        try:
            for number, copies in enumerate(self.copies):
                for name, copy in copies.items():
                    self._check_history(self._known(number, name), copy)
        finally:
            try:
                super().teardown()
            finally:
                for address in list(self.town.processes):
                    self.town.kill(address)

    def _objects(self) -> dict[str, bytes]:
        return self.town.memory.objects

    def _known(self, number: int, name: str) -> VolumeId | None:
        """The volume's id, if the remote has the volume."""
        volume = self.edges[number].volume(name)
        return volume.id if volume._local.record().created else None  # pyright: ignore[reportPrivateUsage]

    @precondition(lambda self: self.volumes < 6)
    @rule(data=st.data(), point=st.sampled_from(sorted(EDGE_STEPS)))
    def edge_dies(self, data: st.DataObject, point: str) -> None:
        self.edge_dies_at(data, point)

    def edge_dies_at(self, data: st.DataObject, point: str) -> bool:
        """`crash`, with something for the step to do; whether it reached the point."""
        step = data.draw(st.sampled_from(EDGE_STEPS[point]), label="step")
        number, name, copy = self._prepared(data, step)
        writes = self._values([1, 2, 3, 4, 5, 6] if point.startswith("stage") else [1, PAGES])
        with self._sending(step), pytest.MonkeyPatch.context() as patch:
            if point.startswith("stage"):
                # Small commits go into the journal, and stage nothing.
                patch.setattr(commit_journal, "MAX_COMMIT_BYTES", 0)
            reached = self._crash(number, name, point, 1, step.split()[-1], (None, writes))
        self._check_everywhere(number, name, copy)
        return reached

    @precondition(lambda self: self.volumes < 6)
    @rule(data=st.data(), nth=st.sampled_from([1, 1, 2]))
    def node_dies(self, data: st.DataObject, nth: int) -> None:
        point = data.draw(st.sampled_from(sorted(self.node_steps)), label="point")
        self.node_dies_at(data, point, nth)

    @property
    def node_steps(self) -> dict[str, list[str]]:
        return NODE_STEPS | (OWNER_STEPS if self.log else EMBEDDED_STEPS)

    def node_dies_at(self, data: st.DataObject, point: str, nth: int) -> bool:
        """The node is cut at the point while it is asked for something, and starts again; whether it was cut."""
        step = data.draw(st.sampled_from(self.node_steps[point]), label="step")
        number, name, copy = self._prepared(data, step)
        left, reached = iter(range(nth - 1)), False

        def action() -> None:
            nonlocal reached
            if next(left, None) is None:
                reached = True
                self.town.cut()

        faults.arm(point, action)
        try:
            with self._sending(step):
                self._ask(number, name, step)
        finally:
            faults.disarm(point)
        self._restart()
        self._adopt(number, name, copy, "", "push", copy.state)
        self._check_everywhere(number, name, copy)
        return reached

    def _ask(self, number: int, name: str, step: str) -> None:
        volume = self.edges[number].volume(name)
        if step == "start":
            self.town.kill()
            self.town.start()
        elif step == "move":
            remote = self.edges[number].connection().remote
            with suppress(Unavailable, NotFound):
                log = remote.ask(SNAPSHOT, SnapshotRequest(volume.id.raw)).log
                remote.ask(MOVE_LOG, MoveRequest(volume.id.raw, to="private" if log == self.log else "main"))
        else:
            self._try_to_push(volume)

    def _prepared(self, data: st.DataObject, step: str) -> tuple[int, str, Copy]:
        """A copy that has work for the step: something unpushed, on the newest base for a push; or something to
        pull."""
        number, name, volume, copy = self._pick(data)
        if step == "first push":
            self.create(number)
            name = f"v{self.names}"
        elif step == "fork's first push":
            name = self._name()
            self.edges[number].fork(volume.name, name)
            self.copies[number][name] = self._forked(copy)
        volume, copy = self.edges[number].volume(name), self.copies[number][name]
        if copy.captured:
            self._push(name, volume, copy)
        if step in ("push", "long push", "pull") and copy.shared.known:
            self._reset(number, volume, copy, "discard", "")
        if step == "pull":
            self._another_pushes(number, name, data)
        elif not copy.unpushed:
            self._commit(volume, copy, *self._draw_change(data, copy.state))
        return number, name, copy

    def _another_pushes(self, number: int, name: str, data: st.DataObject) -> None:
        """The other edge, if it has the volume too."""
        other = self.copies[1 - number].get(name)
        if other is None or other.captured or other.shared is not self.copies[number][name].shared:
            return
        theirs = self.edges[1 - number].volume(name)
        self._reset(1 - number, theirs, other, "discard", "")
        self._commit(theirs, other, *self._draw_change(data, other.state))
        self._push(name, theirs, other)

    @contextmanager
    def _sending(self, step: str) -> Generator[None]:
        """A long push sends its pages before its commit."""
        inline_bytes = budwood.sync.push.INLINE_BYTES
        if step == "long push":
            budwood.sync.push.INLINE_BYTES = 0
        try:
            yield
        finally:
            budwood.sync.push.INLINE_BYTES = inline_bytes

    @rule(data=st.data())
    def commit_while_pulling(self, data: st.DataObject) -> None:
        """Whoever pulls looks again once it holds the lock."""
        number, name, copy = self._prepared(data, "pull")
        if copy.captured or copy.unpushed or copy.shared.head == copy.sync:
            return
        volume, point = self.edges[number].volume(name), "pull: changes known, head not moved"
        change = self._draw_change(data, copy.state)

        def meanwhile() -> None:
            faults.disarm(point)
            self._commit(volume, copy, *change)

        faults.arm(point, meanwhile)
        try:
            with pytest.raises(Diverged):
                volume.pull()
        finally:
            faults.disarm(point)
        self._check(number, name, copy, range(1, PAGES + 1))

    @rule(data=st.data())
    def nobody_is_there(self, data: st.DataObject) -> None:
        """Commits go on, and what is held can be read; a push says that it could not be sent, and loses nothing."""
        number, name, volume, copy = self._pick(data)
        if copy.captured:
            return
        self._check(number, name, copy, range(1, copy.state.length + 1))
        cut, writes = self._draw_change(data, copy.state)
        self.town.kill()
        self._commit(volume, copy, cut, writes)
        with closing(volume.snapshot()) as snapshot:
            gone = snapshot.missing(span(1, copy.state.length))
        # Where a home may keep but so much, what was read before has gone again.
        assert not gone or self.limits[number]
        self._check(number, name, copy, [page for page in range(1, copy.state.length + 1) if page not in gone])
        with pytest.raises((Unavailable, Diverged)):
            volume.push()
        if copy.shared.known:
            with pytest.raises((Unavailable, Diverged)):
                volume.pull()
        self._restart()
        self._adopt(number, name, copy, "", "push", copy.state)

    @rule(data=st.data(), key=st.sampled_from(KEYS), nth=st.integers(1, 3), arrives=st.booleans())
    def store_loses_an_answer(self, data: st.DataObject, key: str, nth: int, arrives: bool) -> None:
        """The node finds out what became of its write; the client never hears of it."""
        _, name, volume, copy = self._pick(data)
        with self._rigged(_losing(key, nth, 1, arrives=arrives)):
            self._push(name, volume, copy)

    @rule(data=st.data(), key=st.sampled_from(KEYS), nth=st.integers(1, 3), times=st.integers(1, 3))
    def store_fails_to_read(self, data: st.DataObject, key: str, nth: int, times: int) -> None:
        number, name, volume, copy = self._pick(data)
        with self._rigged(Rule(op="get", key=key, nth=nth, times=times, before=Unavailable("not now"))):
            self._pull(volume, copy)
            self._check(number, name, copy, [1, 2, 3])

    @rule(data=st.data(), key=st.sampled_from(KEYS), nth=st.integers(1, 3), arrives=st.booleans())
    def store_fails_for_long(self, data: st.DataObject, key: str, nth: int, arrives: bool) -> None:
        """From some write on no create is answered, whether it arrives or not. Later all is well again."""
        number, name, volume, copy = self._pick(data)
        if copy.captured:
            return
        with self._rigged(_losing(key, nth, None, arrives=arrives)):
            self._try_to_push(volume)
        if self._known(number, name) is not None:
            # The entry may be on its way still: whoever asks for the outcome of anything learns what became of it.
            client = self.edges[number].environment.client.raw
            self.edges[number].connection().remote.ask(
                OUTCOME, OutcomeRequest(volume.id.raw, client=client, token=bytes(32))
            )
        self._adopt(number, name, copy, "", "push", copy.state)
        self._check_everywhere(number, name, copy)

    @precondition(lambda self: self.log is not None)
    @rule(data=st.data())
    def node_is_deposed(self, data: st.DataObject) -> None:
        """Another node takes the log; the old one doesn't know, and is asked first."""
        _, name, volume, copy = self._pick(data)
        assert self.town.start(f"{HOME}-2")
        try:
            self._push(name, volume, copy)
        finally:
            self._restart()
            self.town.kill(f"{HOME}-2")

    @rule(data=st.data(), away=st.booleans())
    def move(self, data: st.DataObject, away: bool) -> None:
        """A volume goes to another log."""
        number, name, volume, copy = self._pick(data)
        if self._known(number, name) is not None:
            to = "private" if away or self.log is None else self.log
            log = self.edges[number].connection().remote.ask(MOVE_LOG, MoveRequest(volume.id.raw, to=to)).log
            assert log == (str(volume.id) if to == "private" else to)
            self._check_history(volume.id, copy)

    @precondition(lambda self: self.volumes > 2)
    @rule(data=st.data(), cut=st.booleans())
    def remove(self, data: st.DataObject, cut: bool) -> None:
        """The local copy goes; the remote keeps what it has."""
        number, name, _, copy = self._pick(data)
        if copy.captured or any(held == number for held, _, _ in self.held):
            return
        vid = self._known(number, name)
        point = "remove: name gone, some rows left"

        def action() -> None:
            raise faults.Cut

        if cut:
            faults.arm(point, action)
        try:
            with suppress(faults.Cut):
                self.edges[number].rm(name, discard=True)
        finally:
            faults.disarm(point)
        if cut:
            self._reopen(number)
        assert name not in [row["name"] for row in self.edges[number].ls()]
        del self.copies[number][name]
        self._check_history(vid, copy)

    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        number, name, _, copy = self._pick(data)
        self._check_history(self._known(number, name), copy)

    def _try_to_push(self, volume: Volume) -> None:
        with suppress(Unavailable, Diverged):
            volume.push()

    def _restart(self) -> None:
        self.town.kill()
        assert self.town.start()

    def _check_everywhere(self, number: int, name: str, copy: Copy) -> None:
        self._check(number, name, copy, [1, 2, 3])
        self._check_history(self._known(number, name), copy)

    def _check_history(self, vid: VolumeId | None, copy: Copy) -> None:
        """Every LSN, by someone who has nothing but the store: gapless, growing in time, and as the model has it."""
        if vid is None:
            return
        history, store = copy.shared.history, self.town.store.inner

        async def check() -> None:
            async with Node.open(store) as reader:
                commits = (await reader.ask(PULL_COMMITS, RangeRequest(vid.raw))).commits
                assert [commit.lsn for commit in commits] == list(range(1, len(history)))
                times = [commit.time for commit in commits]
                assert sorted(set(times)) == times
                for commit, before, after in zip(commits, history[:-1], history[1:], strict=True):
                    touched = decode_pages("a commit", commit.pages)
                    assert commit.length == after.length * self.size
                    assert _differ(before, after) - set(touched) <= _cut(commit.floor // self.size, before)
                for lsn in {len(history) - 1, 1 + len(history) // 2} - {0, len(history)}:
                    expected = {at + 1: bytes([v]) * self.size for at, v in enumerate(history[lsn].pages) if v}
                    assert await pages_at(reader, vid, lsn) == expected

        call(check)

    @contextmanager
    def _rigged(self, rule: Rule) -> Generator[None]:
        self.town.store.add(rule)
        try:
            yield
        finally:
            self.town.store.rules.remove(rule)

    def _open(self, number: int) -> Edge:
        # The edge looks its remote up when it first needs one.
        edge = open_edge(home=self.folder / f"home{number}", remote=HOME)
        edge.connection()._remote = self.town.remote()  # pyright: ignore[reportPrivateUsage]
        return edge


def _losing(key: str, nth: int, times: int | None, *, arrives: bool) -> Rule:
    lost = Unavailable("no answer", determinate=False)
    rule = Rule(op="create", key=key, nth=nth, times=times)
    rule.before, rule.after = (None, lost) if arrives else (lost, None)
    return rule


def _differ(before: State, after: State) -> set[int]:
    """The pages that read differently."""
    pages = range(1, max(before.length, after.length) + 1)
    return {page for page in pages if _value(before, page) != _value(after, page)}


def _value(state: State, page: int) -> int:
    return state.pages[page - 1] if page <= state.length else 0


def _cut(floor: int, before: State) -> set[int]:
    return set(range(floor + 1, before.length + 1))


class WithANode(Machine):
    log = "main"


class Embedded(Machine):
    log = None


class Forgetful(Embedded):
    """A node that lets go of everything that no call uses."""

    memory_bytes = 0


TestWithANode = pytest.mark.usefixtures("small_batches")(WithANode.TestCase)
TestEmbedded = pytest.mark.usefixtures("small_batches")(Embedded.TestCase)
TestForgetful = pytest.mark.usefixtures("small_batches")(Forgetful.TestCase)

KINDS: Mapping[str, type[Machine]] = {
    **dict.fromkeys(EDGE_STEPS | OWNER_STEPS | NODE_STEPS, WithANode),
    **dict.fromkeys(EMBEDDED_STEPS, Embedded),
}


@pytest.mark.parametrize("point", sorted(KINDS))
def test_the_machine_reaches_every_point_and_goes_on(point: str) -> None:
    """What the machine draws now and then, here for certain: so no point escapes it because the dice fell so."""
    reached: list[bool] = []

    @settings(max_examples=4)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        machine = KINDS[point]()
        try:
            machine.begin(512, 1 << 20)
            if point in EDGE_STEPS:
                reached.append(machine.edge_dies_at(data, point))
            else:
                reached.append(machine.node_dies_at(data, point, 1))
            machine.commit(data)
            machine.look_back(data)
        finally:
            machine.teardown()

    run()
    assert any(reached)


def test_no_point_of_an_edge_is_left_out() -> None:
    assert set(EDGE_STEPS) == set(POINTS)
