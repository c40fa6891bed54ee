"""What an edge knows of the names, told by what changed: against a dict, while others change them between the parts.

A namespace changes by binds, moves (of directories too) and unbinds; an edge that knows the names of some revision asks
what became of them, a few names a part. Between two parts anything may change, and a node may be another that has read
its log anew, or remember little. In the end the edge has the names of the revision that it says, and no others.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.metastore import recent_changes
from budwood.server.metastore.entry_draft import Drafted
from budwood.server.metastore.namespace_state import Namespace, judge_change
from budwood.server.metastore.streams import Placed
from budwood.sync.connection import Connection
from budwood.sync.names_delta import gather
from budwood.sync.tables import KnownRecord, NamespaceRecord
from budwood.volume.calls import PullNamesRequest
from budwood.volume.errors import Corrupt
from budwood.volume.ids import VolumeId
from budwood.volume.records import NameChange
from budwood.volume.wire import NameDelta, NameRequest

VID = VolumeId.new(at_ms=1, noise=bytes(9))
TARGET = VolumeId.new(at_ms=2, noise=bytes(9)).raw

Tree = dict[str, int]
"""Each name's revision."""
Change = tuple[str, str, str]
"""What, of which name, and for a move to which."""

names = st.sampled_from([
    "a", "b", "a/a", "a/b", "a/b/a", "a/b/b", "b/a", "b/b", "a.b", "a/a.b", "b0", "c", "c/a", "c/a/b", "c/b/a/b",
])  # fmt: skip
changes = st.tuples(st.sampled_from(["bind", "bind", "bind", "move", "move", "unbind"]), names, names)
some = st.lists(changes, max_size=6)


def at_once(told: Coroutine[Any, Any, NameDelta]) -> NameDelta:
    """Of so few names that nothing else runs between them."""
    with pytest.raises(StopIteration) as answer:
        told.send(None)
    return cast("NameDelta", answer.value.value)


class World:
    """The names, a plain dict of them, and that dict as it was at each revision."""

    def __init__(self) -> None:
        self.node = Namespace(VID)
        self.tree: Tree = {}
        self.at: list[Tree] = [{}]
        self.records: list[NameChange] = []

    def change(self, change: Change) -> None:
        op, name, new = change
        more: dict[str, Any] = {"target": TARGET} if op == "bind" else {}
        if op == "move":
            more = {"new": new, "new_revision": self.tree.get(new, 0)}
        request = NameRequest(op=op, name=name, revision=self.tree.get(name, 0), **more)
        judged = judge_change(self.node.state, request, 0)
        if not isinstance(judged, Drafted) or not isinstance(judged.record, NameChange):
            return
        if not isinstance(self.node.apply(self.node.state, judged.record), type(self.node.state)):
            return
        self._take(judged.record)
        self._model(op, name, new, judged.record.lsn)
        self.at.append(dict(self.tree))

    def _take(self, record: NameChange) -> None:
        self.node.take(Placed(record, "", 0, 0))
        self.records.append(record)

    def _model(self, op: str, name: str, new: str, lsn: int) -> None:
        if op == "bind":
            self.tree[name] = lsn
        elif op == "unbind":
            del self.tree[name]
        else:
            moving = [one for one in self.tree if one == name or one.startswith(f"{name}/")]
            for one in moving:
                del self.tree[one]
            self.tree.pop(new, None)
            self.tree |= {new + one[len(name) :]: lsn for one in moving}

    def restart(self) -> None:
        """Another process has read the log."""
        records, self.node, self.records = self.records, Namespace(VID), []
        for record in records:
            self._take(record)


class Edge:
    """What a home keeps of the names, and a remote whose every answer is followed by some changes."""

    def __init__(self, world: World, part: int) -> None:
        self.world = world
        self.known: dict[str, KnownRecord] = {}
        self.record: NamespaceRecord | None = None
        self.between: list[list[Change]] = []
        self.restarts = 0
        self._part = part
        self.bytes = 0

    def ask(self, _call: object, request: PullNamesRequest) -> NameDelta:
        answer = at_once(self.world.node.delta(request.since, request.after, min(self._part, request.limit)))
        for change in self.between.pop() if self.between else ():
            self.world.change(change)
        if self.restarts and self.restarts > len(self.between):
            self.restarts = 0
            self.world.restart()
        return answer

    def pull(self) -> None:
        connection = cast("Connection", SimpleNamespace(url="test://", remote=self))
        delta = gather(connection, self.record)
        if delta is not None:
            self.known = delta.over(self.known.values())
            self.record = NamespaceRecord(remote="", store="", head=delta.head, seen=delta.head)

    def own(self, change: Change) -> None:
        """The edge's own change, noted in what it knows as a push does, though others' before it may be lacking."""
        name, lsn = change[1], len(self.world.at)
        if self.record is None or self.known_revision(name) != self.world.tree.get(name, 0):
            return
        self.world.change(("bind", name, ""))
        assert len(self.world.at) == lsn + 1
        self.known[name] = KnownRecord(name=name, target=TARGET, revision=lsn)
        head = lsn if lsn == self.record.head + 1 else self.record.head
        self.record = NamespaceRecord(remote="", store="", head=head, seen=lsn)

    def known_revision(self, name: str) -> int:
        row = self.known.get(name)
        return 0 if row is None else row.revision

    def revisions(self) -> Tree:
        return {name: row.revision for name, row in self.known.items()}


def told(world: World, edge: Edge, changes: Iterable[Change]) -> None:
    for change in changes:
        world.change(change)
    edge.pull()
    head = 0 if edge.record is None else edge.record.head
    assert edge.revisions() == world.at[head]


@settings(max_examples=300)
@given(
    st.integers(1, 4),
    st.sampled_from([1, 4, 10_000]),
    some,
    st.lists(st.tuples(some, st.lists(some, max_size=5), st.integers(0, 3), st.none() | changes), max_size=4),
)
def test_an_edge_knows_the_names_of_the_revision_that_it_says(
    part: int,
    remembered: int,
    first: list[Change],
    rounds: list[tuple[list[Change], list[list[Change]], int, Change | None]],
) -> None:
    before = recent_changes.MOST_REMEMBERED
    recent_changes.MOST_REMEMBERED = remembered  # type: ignore[misc]  # pyright: ignore
    try:
        world = World()
        edge = Edge(world, part)
        told(world, edge, first)
        for changes, edge.between, edge.restarts, own in rounds:
            if own is not None:
                edge.own(own)
            told(world, edge, changes)
        edge.between.clear()
        told(world, edge, ())
        assert edge.revisions() == world.tree
    finally:
        recent_changes.MOST_REMEMBERED = before  # type: ignore[misc]  # pyright: ignore


def test_what_is_forgotten_between_two_parts_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part tells of changes, the second would tell all names that are left: and not which are gone."""
    monkeypatch.setattr(recent_changes, "MOST_REMEMBERED", 4)
    world = World()
    edge = Edge(world, 1)
    told(world, edge, [("bind", name, "") for name in ("a", "b", "c", "e")])
    edge.between = [[], [("bind", "c/a", ""), ("bind", "c/b", ""), ("bind", "b/a", "")]]
    told(world, edge, [("bind", "a/a", ""), ("unbind", "e", "")])
    assert "e" not in edge.revisions()


def test_of_what_is_remembered_only_what_was_touched_is_told() -> None:
    world = World()
    for number in range(100):
        world.change(("bind", f"d/{number}", ""))
    edge = Edge(world, 10_000)
    told(world, edge, [("bind", "other", "")])
    delta = at_once(world.node.delta(101, "", 10_000))
    assert (delta.since, delta.entries, delta.gone, delta.next) == (101, (), (), "")
    world.change(("bind", "d/7", ""))
    world.change(("unbind", "other", ""))
    delta = at_once(world.node.delta(101, "", 10_000))
    assert ([entry.name for entry in delta.entries], delta.gone, delta.head) == (["d/7"], ("other",), 103)
    world.change(("move", "d", "e"))
    delta = at_once(world.node.delta(103, "", 10_000))
    assert (len(delta.entries), delta.gone) == (100, ("d", "d/", "e", "e/"))


def test_what_is_remembered_is_bounded_and_who_asks_for_more_is_told_all_names() -> None:
    world = World()
    for number in range(recent_changes.MOST_REMEMBERED + 50):
        world.change(("bind", f"d/{number % 60}", ""))
    remembered = at_once(world.node.delta(50, "", 10_000))
    forgotten = at_once(world.node.delta(49, "", 10_000))
    assert (remembered.since, forgotten.since) == (50, 0)
    assert len(forgotten.entries) == 60
    assert len(world.node._recent) <= recent_changes.MOST_REMEMBERED  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("lost", [1, 2])
def test_names_that_end_before_what_was_seen_are_corrupt(lost: int) -> None:
    """Whoever answers has lost changes, and gives their revisions to others; no lag is taken for that."""
    world = World()
    edge = Edge(world, 1)
    told(world, edge, [("bind", "a", ""), ("bind", "b", ""), ("bind", "c", "")])
    known = edge.revisions()
    short = World()
    for change in [("bind", "a", ""), ("bind", "b", "")][: 3 - lost]:
        short.change(change)
    edge.world = short
    with pytest.raises(Corrupt, match=rf"they end at revision {3 - lost}, and 3 was seen before"):
        edge.pull()
    assert edge.revisions() == known
