"""Two edges, one store and a model: whatever happens, each edge reads what the model says (DESIGN §7, §9).

The model knows a volume as the list of its remote states, and an edge's copy of it as a place in that list and the
unpushed states after it. Steps: commit (shrinking and regrowing too), push, pull, reset, fork, clone; views held over
all of that; answers that get lost; commits made while a push is on its way; and crashes at every fault point, after
which a reopened edge must hold either all of the step or nothing. S2.24-S2.29, B1, B3, B9, B10.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import budwood.sync.dirty_pages
import budwood.sync.eviction
import budwood.sync.pull
import budwood.sync.push
import budwood.sync.stage
import budwood.sync.upload
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.free_room import give_back, room
from budwood.sync.remote_snapshot import RemoteSnapshot
from budwood.sync.snapshot import LocalSnapshot
from budwood.sync.tables import Head, PushRecord, VolumeRecord
from budwood.sync.volume import Volume
from budwood.volume import faults
from budwood.volume.calls import LOOKUP, SNAPSHOT, LookupRequest, SnapshotRequest
from budwood.volume.errors import Diverged, NotFound, Unavailable
from budwood.volume.protocols import Durability

from ..lost_answers import no_outcomes
from ..second_reader import Home, Store, directory

PAGES = 12
"""The volumes of this test have at most so many pages."""

ROOMS = {"birth", "commit", "fork", "pull", "push", "reset", "stage"}
POINTS = sorted(point for point in faults.registered() if point.split(":")[0] in ROOMS)


@dataclass(frozen=True)
class State:
    """A volume's content: its length in pages, and what byte fills each page (0: zeros)."""

    length: int = 0
    pages: tuple[int, ...] = ()

    def changed(self, cut: int | None, writes: dict[int, int]) -> State:
        pages: list[int] = list(self.pages)
        if cut is not None:
            del pages[cut:]
        for page, value in writes.items():
            pages += [0] * (page - len(pages))
            pages[page - 1] = value
        return State(len(pages), tuple(pages))


@dataclass
class Shared:
    """A volume as the store has it; the index is the LSN."""

    history: list[State]
    known: bool = False
    """Whether the store has it, or a parent of it."""

    @property
    def head(self) -> int:
        return len(self.history) - 1


@dataclass
class Copy:
    """A volume as one edge has it."""

    shared: Shared
    sync: int
    unpushed: list[State] = field(default_factory=list[State])
    captured: int = 0
    """How many of the unpushed commits a push has captured whose outcome the edge doesn't know."""
    landed: int = 0
    """The LSN they landed as; 0 if they didn't."""
    under_way: bool = False
    """Whether some of their pages were sent, and no commit: a push goes on with it, and all else lets go of it."""

    @property
    def state(self) -> State:
        return self.unpushed[-1] if self.unpushed else self.shared.history[self.sync]

    @property
    def label(self) -> str:
        return f"{self.sync}+{len(self.unpushed)}" if self.unpushed else str(self.sync)

    def push(self, count: int) -> None:
        """The first `count` unpushed commits become the next LSN. Raises Diverged."""
        if self.shared.head != self.sync:
            raise Diverged("model")
        self.shared.history.append(self.unpushed[count - 1])
        self.shared.known = True
        self.accept(self.shared.head, count)

    def accept(self, lsn: int, count: int) -> None:
        self.sync, self.unpushed = lsn, self.unpushed[count:]
        self.captured, self.landed, self.under_way = 0, 0, False

    def settle(self, *, go_on: bool = False) -> None:
        if self.under_way and not go_on:
            self.captured = 0
        self.under_way = False
        if self.captured and self.landed:
            self.accept(self.landed, self.captured)
        elif self.captured:
            count, self.captured = self.captured, 0
            self.push(count)


class Edges(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        shm = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="budwood-", dir=shm if os.access(shm, os.W_OK) else None))
        (self.folder / "store").mkdir()
        self.url = f"file://{self.folder}/store"
        self.edges: list[Edge] = [self._open(0), self._open(1)]
        self.copies: list[dict[str, Copy]] = [{}, {}]
        self.bound: dict[str, Shared] = {}
        self.held: list[tuple[int, LocalSnapshot | RemoteSnapshot, State]] = []
        self.value = 0
        self.names = 0
        self.limits = [0, 0]
        """Bytes that each home may keep of what the remote has too; 0: all."""

    def _open(self, number: int) -> Edge:
        return open_edge(home=self.folder / f"home{number}", remote=self.url)

    def teardown(self) -> None:
        try:
            for number, copies in enumerate(self.copies):
                for name, copy in copies.items():
                    self._check(number, name, copy, range(1, PAGES + 1))
                    self._check_rows(number, name)
        finally:
            for _, snapshot, _ in self.held:
                snapshot.close()
            for edge in self.edges:
                edge.close()
            try:
                self._reread(Store(self._objects()))
            finally:
                shutil.rmtree(self.folder)

    def _objects(self) -> dict[str, bytes]:
        """The store's."""
        return directory(self.folder / "store")

    def _reread(self, store: Store) -> None:
        """By the reader that was written from docs/formats.md."""
        store.check()
        for number, copies in enumerate(self.copies):
            home = Home(self.folder / f"home{number}")
            names = home.names()
            for name, copy in copies.items():
                volume = home.volume(names[name])
                assert volume.label == copy.label
                assert volume.pages(store) == self._filled(copy.state)
                if volume.created:
                    kept = store.volume(volume.vid)
                    assert kept.head == copy.shared.head
                    for lsn in range(1, kept.head + 1):
                        assert kept.pages_at(lsn) == self._filled(copy.shared.history[lsn])

    def _filled(self, state: State) -> dict[int, bytes]:
        return {at + 1: bytes([value]) * self.size for at, value in enumerate(state.pages) if value}

    @initialize(size=st.sampled_from([512, 4096]), inline_bytes=st.sampled_from([0, 1 << 20]))
    def begin(self, size: int, inline_bytes: int) -> None:
        self.size = size
        budwood.sync.push.INLINE_BYTES = inline_bytes
        budwood.sync.stage.BATCH_BYTES = budwood.sync.dirty_pages.MEMORY_BYTES = 2 * size
        self.create(0)
        volume, copy = self.edges[0].volume("v1"), self.copies[0]["v1"]
        self._commit(volume, copy, None, {page: page for page in range(1, 7)})
        self._push("v1", volume, copy)
        self.edges[1].volume("v1")
        self.copies[1]["v1"] = Copy(copy.shared, 1)

    @rule(number=st.sampled_from([0, 1]), limit_bytes=st.sampled_from([1, 1 << 14, 0]))
    def limit(self, number: int, limit_bytes: int) -> None:
        """Pages that the remote has go, from now on, or at least now."""
        self.edges[number].environment.cache.set_limit(limit_bytes)
        self.limits[number] = limit_bytes

    @rule(number=st.sampled_from([0, 1]))
    def give_room_back(self, number: int) -> None:
        assert give_back(self.edges[number].environment)

    @precondition(lambda self: not self.held)
    @rule(number=st.sampled_from([0, 1]))
    def compact(self, number: int) -> None:
        edge = self.edges[number]
        edge.environment.compacts = True
        edge.close()
        self.edges[number] = self._open(number)
        found = room(self.edges[number].environment)
        # LMDB's lists of free pages take some; and what was written since it was opened again.
        assert found.length - found.used < 1 << 16

    @precondition(lambda self: self.volumes < 4)
    @rule(number=st.sampled_from([0, 1]))
    def create(self, number: int) -> None:
        name = self._name()
        self.edges[number].create(name, page_size=self.size)
        self.copies[number][name] = Copy(Shared([State()]), 0)

    @property
    def volumes(self) -> int:
        return sum(len(copies) for copies in self.copies)

    def _name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def _pick(self, data: st.DataObject) -> tuple[int, str, Volume, Copy]:
        number = data.draw(st.sampled_from([n for n in (0, 1) if self.copies[n]]), label="edge")
        name = data.draw(st.sampled_from(sorted(self.copies[number])), label="volume")
        return number, name, self.edges[number].volume(name), self.copies[number][name]

    def _draw_change(self, data: st.DataObject, state: State) -> tuple[int | None, dict[int, int]]:
        cut = data.draw(st.none() | st.integers(0, state.length), label="cut")
        pages = data.draw(st.lists(st.integers(1, PAGES), min_size=1, max_size=5, unique=True), label="write")
        return cut, self._values(pages)

    def _values(self, pages: list[int]) -> dict[int, int]:
        writes: dict[int, int] = {}
        for page in pages:
            self.value = self.value % 255 + 1
            writes[page] = self.value
        return writes

    def _commit(self, volume: Volume, copy: Copy, cut: int | None, writes: dict[int, int]) -> None:
        snapshot = volume.snapshot()
        try:
            writer = volume.writer(snapshot, page_size=self.size)
            if cut is not None:
                writer.truncate(cut * self.size)
            for page, value in writes.items():
                writer.write(page, bytes([value]) * self.size)
            made = writer.commit(Durability.ORDERED)
        finally:
            snapshot.close()
        if made is not None:
            made.close()
            copy.unpushed.append(copy.state.changed(cut, writes))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        _, _, volume, copy = self._pick(data)
        cut, writes = self._draw_change(data, copy.state)
        self._commit(volume, copy, cut, writes)

    @rule(data=st.data())
    def push(self, data: st.DataObject) -> None:
        _, name, volume, copy = self._pick(data)
        self._push(name, volume, copy)

    def _push(self, name: str, volume: Volume, copy: Copy) -> None:
        try:
            copy.settle(go_on=True)
            if copy.unpushed:
                copy.push(len(copy.unpushed))
                self.bound.setdefault(name, copy.shared)
        except Diverged:
            with pytest.raises(Diverged):
                volume.push()
            assert volume.status()["diverged"]
            return
        assert volume.push() == copy.label

    @rule(data=st.data())
    def pull(self, data: st.DataObject) -> None:
        _, _, volume, copy = self._pick(data)
        self._pull(volume, copy)

    def _pull(self, volume: Volume, copy: Copy) -> None:
        try:
            if copy.shared.head != copy.sync or not copy.under_way:
                copy.settle()
            if copy.shared.head != copy.sync and copy.unpushed:
                raise Diverged("model")
        except Diverged:
            with pytest.raises(Diverged):
                volume.pull()
            return
        copy.sync = copy.shared.head
        assert volume.pull() == copy.label

    @rule(data=st.data(), way=st.sampled_from(["ask", "keep", "discard"]))
    def reset(self, data: st.DataObject, way: str) -> None:
        number, _, volume, copy = self._pick(data)
        self._reset(number, volume, copy, way, self._name())

    def _reset(self, number: int, volume: Volume, copy: Copy, way: str, new: str) -> None:
        with suppress(Diverged):
            copy.settle()
        arguments: dict[str, Any] = {}
        if way != "ask":
            arguments = {"keep_as": new} if way == "keep" else {"discard": True}
        if copy.unpushed and way == "ask":
            with pytest.raises(Diverged):
                volume.reset()
            return
        if not copy.shared.known:
            with pytest.raises(NotFound):
                volume.reset(**arguments)
            return
        kept = self._forked(copy) if copy.unpushed and way == "keep" else None
        copy.unpushed, copy.sync = [], copy.shared.head
        assert volume.reset(**arguments) == copy.label
        if kept is not None:
            self.copies[number][new] = kept

    @staticmethod
    def _forked(copy: Copy) -> Copy:
        """A fork's model: the same history to the sync point, and one commit with what was unpushed."""
        shared = Shared(copy.shared.history[: copy.sync + 1], known=copy.sync > 0)
        return Copy(shared, copy.sync, [copy.state] if copy.unpushed else [])

    @precondition(lambda self: self.volumes < 5)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        number, name, _, copy = self._pick(data)
        new = self._name()
        self.edges[number].fork(name, new)
        self.copies[number][new] = self._forked(copy)

    @precondition(lambda self: len(self.bound) > 0)
    @rule(data=st.data())
    def clone(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([0, 1]), label="edge")
        name = data.draw(st.sampled_from(sorted(self.bound)), label="name")
        if name not in self.copies[number]:
            assert self.edges[number].volume(name).name == name
            self.copies[number][name] = Copy(self.bound[name], self.bound[name].head)

    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        """Reads some pages only: what stays unread stays unfetched, and gets its chance to be fetched wrongly later."""
        number, name, _, copy = self._pick(data)
        self._check(number, name, copy, data.draw(st.lists(st.integers(1, PAGES), max_size=3), label="pages"))

    def _check(self, number: int, name: str, copy: Copy, pages: Iterable[int]) -> None:
        snapshot = self.edges[number].volume(name).snapshot()
        try:
            assert snapshot.label == copy.label
            self._check_view(snapshot, copy.state, pages)
        finally:
            snapshot.close()

    def _check_view(self, snapshot: LocalSnapshot | RemoteSnapshot, state: State, pages: Iterable[int]) -> None:
        assert snapshot.length == state.length * self.size
        for page in pages:
            value = state.pages[page - 1] if page <= state.length else 0
            assert snapshot.read(page) == bytes([value]) * self.size, f"page {page}"

    def _check_rows(self, number: int, name: str) -> None:
        """One version of each page is kept, and no body without its tail."""
        volume = self.edges[number].volume(name)
        if volume.status()["pending"]:
            return
        # The next writer tidies what a crash left.
        volume.writer().rollback()
        environment = self.edges[number].environment
        with environment.view() as txn:
            tails = [key for key, _ in txn.cursor(environment.tables.tails) if key[:16] == volume.id.raw]
            bodies = [key for key, _ in txn.cursor(environment.tables.bodies) if key[:16] == volume.id.raw]
        assert len({key[:20] for key in tails}) == len(tails)
        assert set(bodies) <= set(tails)

    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        number, _, volume, copy = self._pick(data)
        self.held.append((number, volume.snapshot(), copy.state))

    @rule(data=st.data())
    def hold_past(self, data: st.DataObject) -> None:
        number, _, volume, copy = self._pick(data)
        if copy.sync:
            lsn = data.draw(st.integers(1, copy.sync), label="lsn")
            self.held.append((number, volume.snapshot(lsn=lsn), copy.shared.history[lsn]))

    @precondition(lambda self: len(self.held) > 0)
    @rule(data=st.data())
    def look_at_held(self, data: st.DataObject) -> None:
        """A view that is held reads the same for ever, whatever its volume has come to."""
        at = data.draw(st.integers(0, len(self.held) - 1), label="held")
        _, snapshot, state = self.held[at]
        self._check_view(snapshot, state, data.draw(st.lists(st.integers(1, PAGES), max_size=4), label="pages"))

    @precondition(lambda self: len(self.held) > 0)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        self.held.pop(data.draw(st.integers(0, len(self.held) - 1), label="held"))[1].close()

    @rule(
        data=st.data(),
        point=st.sampled_from(["pull: changes known, head not moved", "pull: rows looked up, head not moved"]),
    )
    def read_while_pulling(self, data: st.DataObject, point: str) -> None:
        """A page that is fetched for the old sync point, during the pull or after it, is never taken for the new one's
        (B10)."""
        number, name, volume, copy = self._pick(data)
        other = self.copies[1 - number].get(name)
        if copy.unpushed or copy.captured or other is None or other.captured or copy.sync != copy.shared.head:
            return
        pages = data.draw(st.lists(st.integers(1, PAGES), min_size=1, max_size=4, unique=True), label="pages")
        theirs = self.edges[1 - number].volume(name)
        if not other.unpushed:
            self._pull(theirs, other)
            self._commit(theirs, other, None, self._values(pages))
        self._push(name, theirs, other)
        held, before = volume.snapshot(), copy.state

        def meanwhile() -> None:
            faults.disarm(point)
            self._check(number, name, copy, pages[::2])

        faults.arm(point, meanwhile)
        try:
            assert volume.pull() == f"{copy.shared.head}"
        finally:
            faults.disarm(point)
        copy.sync = copy.shared.head
        self._check_view(held, before, pages)
        held.close()
        self._check(number, name, copy, pages)

    @rule(data=st.data())
    def push_while_committing(self, data: st.DataObject) -> None:
        """A commit made while a push is on its way stays unpushed (B1)."""
        _, name, volume, copy = self._pick(data)
        cut, writes = self._draw_change(data, copy.state)
        point = data.draw(st.sampled_from(["push: end captured, nothing sent", "push: token durable, commit not sent"]))
        if copy.captured or copy.shared.head != copy.sync:
            return
        if not copy.unpushed:
            self._commit(volume, copy, None, self._values(sorted(writes)))
        later = Copy(copy.shared, copy.sync, list(copy.unpushed))

        def meanwhile() -> None:
            faults.disarm(point)
            self._commit(volume, later, cut, writes)

        faults.arm(point, meanwhile)
        label = volume.push()
        count = len(copy.unpushed)
        copy.unpushed = later.unpushed
        copy.push(count)
        assert label == copy.label
        self.bound.setdefault(name, copy.shared)

    @rule(data=st.data(), arrives=st.booleans(), silent=st.booleans())
    def push_into_silence(self, data: st.DataObject, arrives: bool, silent: bool) -> None:
        """The answer to a commit is lost, after or before it arrived; and maybe the question about it too."""
        number, name, volume, copy = self._pick(data)
        if copy.captured or copy.shared.head != copy.sync:
            return
        if not copy.unpushed:
            self._commit(volume, copy, None, self._values([1, 2]))
        with self._losing(number, arrives=arrives, silent=silent):
            if silent:
                with pytest.raises(Unavailable):
                    volume.push()
            else:
                volume.push()
        count = len(copy.unpushed)
        if arrives or not silent:
            before = copy.sync, copy.unpushed
            copy.push(count)
            if silent:
                landed = copy.sync
                copy.sync, copy.unpushed = before
                copy.captured, copy.landed = count, landed
                assert volume.status()["pending"]
        else:
            copy.captured = count
            copy.shared.known = True
        if not silent:
            # Else the name waits for the next push.
            self.bound.setdefault(name, copy.shared)

    @contextmanager
    def _losing(self, number: int, *, arrives: bool, silent: bool) -> Generator[None]:
        remote = self.edges[number].connection().remote
        commit, ask = remote.commit, remote.ask
        lost = iter([True])

        def deaf(*arguments: Any) -> Any:
            if next(lost, False):
                if arrives:
                    commit(*arguments)
                raise Unavailable("the answer is lost", determinate=False)
            return commit(*arguments)

        with no_outcomes(remote) if silent else nullcontext(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(remote, "commit", deaf)
            yield
        assert remote.ask == ask

    @rule(
        data=st.data(),
        point=st.sampled_from(POINTS),
        nth=st.integers(1, 2),
        step=st.sampled_from(["commit", "push", "pull", "discard", "keep", "fork"]),
    )
    def crash(self, data: st.DataObject, point: str, nth: int, step: str) -> None:
        """Cut at a fault point; the edge is opened anew and has all of the step or nothing."""
        number, name, _, copy = self._pick(data)
        change = self._draw_change(data, copy.state)
        if not copy.captured:
            self._crash(number, name, point, nth, step, change)

    def _crash(
        self, number: int, name: str, point: str, nth: int, step: str, change: tuple[int | None, dict[int, int]]
    ) -> bool:
        """Whether the step reached the point."""
        volume, copy = self.edges[number].volume(name), self.copies[number][name]
        (cut, writes), new, left = change, self._name(), iter(range(nth - 1))

        def action() -> None:
            if next(left, None) is None:
                raise faults.Cut

        before = Copy(copy.shared, copy.sync, list(copy.unpushed))
        faults.arm(point, action)
        try:
            match step:
                case "commit":
                    self._commit(volume, copy, cut, writes)
                case "push":
                    volume.push()
                case "pull":
                    volume.pull()
                case "fork":
                    self.edges[number].fork(name, new)
                case _:
                    volume.reset(keep_as=new) if step == "keep" else volume.reset(discard=True)
        except (Diverged, NotFound):
            reached = False
        except faults.Cut:
            reached = True
        else:
            reached = False
        finally:
            faults.disarm(point)
        copy.unpushed = before.unpushed
        self._reopen(number)
        self._adopt(number, name, copy, new, step, before.state.changed(cut, writes))
        self._check(number, name, copy, range(1, PAGES + 1))
        return reached

    def _reopen(self, number: int) -> None:
        for held, snapshot, _ in self.held:
            if held == number:
                snapshot.close()
        self.held = [entry for entry in self.held if entry[0] != number]
        self.edges[number].close()
        self.edges[number] = self._open(number)

    def _adopt(self, number: int, name: str, copy: Copy, new: str, step: str, after: State) -> None:
        """See which of the two allowed states the edge is in, and what the store has come to."""
        edge = self.edges[number]
        volume = edge.volume(name)
        status = volume.status()
        record = volume._local.record()  # pyright: ignore[reportPrivateUsage]
        sync, unpushed = status["remote_lsn"], status["unpushed"]
        has_moved = (sync, unpushed) != (copy.sync, len(copy.unpushed))
        is_forked = any(row["name"] == new for row in edge.ls())
        if step == "keep" and copy.unpushed:
            assert is_forked == has_moved
        if is_forked:
            assert step in ("fork", "keep")
            self.copies[number][new] = self._forked(copy)
            self._check(number, new, self.copies[number][new], range(1, PAGES + 1))
        copy.shared.known = copy.shared.known or record.created
        remote = edge.connection().remote
        if record.created:
            self.bound.update({name: copy.shared} if remote.ask(LOOKUP, LookupRequest(name)).entry is not None else {})
            if remote.ask(SNAPSHOT, SnapshotRequest(volume.id.raw)).lsn > copy.shared.head:
                assert step == "push"
                copy.shared.history.append(copy.unpushed[-1])
                copy.landed = copy.shared.head
        if step == "commit" and unpushed > len(copy.unpushed):
            copy.unpushed.append(after)
        elif step == "push" and sync != copy.sync:
            copy.accept(copy.landed, len(copy.unpushed))
        elif step in ("pull", "keep", "discard") and has_moved:
            copy.sync, copy.unpushed = copy.shared.head, []
        if status["pending"]:
            # One without a token was cut before a commit was sent: the next push goes on with it, or begins anew.
            pending = self._pending(volume)
            assert step == "push" or not pending.token
            copy.under_way = bool(pending.sent) and not pending.token
            copy.captured = len(copy.unpushed) if pending.token or copy.under_way else 0
        assert not copy.landed or copy.captured, "what landed must be known to be on its way"

    @staticmethod
    def _pending(volume: Volume) -> PushRecord:
        local = volume._local  # pyright: ignore[reportPrivateUsage]
        with local.environment.view() as txn:
            pending = local.push(txn)
        assert pending is not None
        return pending


def _always(_record: VolumeRecord, _head: Head) -> bool:
    return True


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that changes of a few pages are staged, spilled and sent in segments, like large ones; `begin` sets three of
    them anew."""
    # The remote forgets nothing here: all may go that it has, without a lease.
    monkeypatch.setattr(budwood.sync.eviction, "_comes_back", _always)
    monkeypatch.setattr(budwood.sync.stage, "BATCH_BYTES", 1 << 20)
    monkeypatch.setattr(budwood.sync.dirty_pages, "MEMORY_BYTES", 1 << 20)
    monkeypatch.setattr(budwood.sync.pull, "BATCH_PAGES", 2)
    monkeypatch.setattr(budwood.sync.push, "DELAYS_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(budwood.sync.upload, "DELAYS_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(budwood.sync.push, "INLINE_BYTES", 1 << 20)
    monkeypatch.setattr(budwood.sync.push, "NOTED_BYTES", 1)


Edges.TestCase.settings = settings(
    max_examples=settings().max_examples * 2, stateful_step_count=settings().stateful_step_count
)
TestEdges = pytest.mark.usefixtures("small_batches")(Edges.TestCase)
