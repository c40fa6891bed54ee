"""A tree in a store against a dict: whatever is put, taken out or replaced by ranges, in whatever batches.

After each change, with nodes so small that a few hundred items make a deep tree:

- the tree holds what the dict holds, and its root says how much that is, and what it adds up to
- what the root leads to is what it led to before, without the nodes that the change says are gone, and with those that
  it says were made; and no other
- each node keeps its bounds, and all leaves are equally deep
- the same change, made anew by a stranger with no memory to speak of, is the same to the byte
- every earlier root leads to what it led to
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from threading import get_ident
from typing import NamedTuple

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from budwood.server.store.tree import Tree
from budwood.server.store.tree_change import BOUNDS, Bounds, Changed, Splice, put, without
from budwood.server.store.tree_nodes import Nodes, NotLoaded, loading, loading_in_thread
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.errors import Corrupt
from budwood.volume.setsum import Setsum
from budwood.volume.tree_node import Item, Node, Pointer, node_key, parse_node

FOLDER = "logs/main/rollups"
LAST = 400
"""Keys are made of the numbers below."""
NO_ROOM = 1
"""A limit in bytes at which only the newest node stays in memory."""


def key_of(n: int) -> bytes:
    """In the order of the numbers; of several lengths."""
    return b"%04d" % n + b"." * (n % 5)


def weigh(key: bytes, value: bytes) -> Setsum:
    return Setsum.of(hashlib.sha3_256(b"%d " % len(key) + key + value).digest())


def sum_of(model: dict[bytes, bytes]) -> bytes:
    return sum((weigh(key, value) for key, value in model.items()), Setsum()).digest


def between(model: dict[bytes, bytes], start: bytes, end: bytes | None) -> list[Item]:
    return [item for item in sorted(model.items()) if start <= item[0] and (end is None or item[0] < end)]


def spliced(model: dict[bytes, bytes], splices: Sequence[Splice]) -> dict[bytes, bytes]:
    made = dict(model)
    for start, end, items in splices:
        for key, _ in between(model, start, end):
            del made[key]
        made |= dict(items)
    return made


class World:
    """One store, the tree's newest state, and the dict that it must equal."""

    def __init__(self, bounds: Bounds = BOUNDS, *, limit_bytes: int = 1 << 22) -> None:
        self.bounds = bounds
        self.memory = MemoryStore()
        self.store = RiggedStore(self.memory)
        self.nodes = Nodes(self.store, limit_bytes=limit_bytes)
        self.tree = Tree(self.nodes, FOLDER, None, weigh, bounds=bounds)
        self.model: dict[bytes, bytes] = {}
        self.number = 0

    def stranger(self, limit_bytes: int = NO_ROOM) -> Tree:
        """The same tree to someone who has seen nothing of it."""
        nodes = Nodes(self.store, limit_bytes=limit_bytes)
        return Tree(nodes, FOLDER, self.tree.root, weigh, bounds=self.bounds)

    def reached(self, root: Pointer | None) -> dict[Pointer, Node]:
        """All that a root leads to, read from the store's objects."""
        found: dict[Pointer, Node] = {}
        waiting = [] if root is None else [root]
        while waiting:
            pointer = waiting.pop()
            key = node_key(FOLDER, pointer)
            found[pointer] = parse_node(key, self.memory.objects[key], pointer)
            waiting += found[pointer].children
        return found

    async def change(self, *splices: Splice) -> Changed:
        self.number += 1
        changed = await self.tree.changed(splices, self.number)
        await self.nodes.save(FOLDER, changed.made)
        self.tree = self.tree.at(changed.root)
        self.model = spliced(self.model, splices)
        return changed

    async def checked_change(self, *splices: Splice, small_items: bool = True) -> Changed:
        before = self.reached(self.tree.root)
        stranger = self.stranger()
        changed = await self.change(*splices)
        assert await stranger.changed(splices, self.number) == changed
        after = self.reached(changed.root)
        self.check_nodes(after, small_items=small_items)
        made = {pointer for pointer, _ in changed.made}
        assert len(made) == len(changed.made)
        assert all(pointer.number == self.number for pointer in made)
        assert len(set(changed.gone)) == len(changed.gone)
        assert set(changed.gone) == before.keys() - after.keys()
        assert made == after.keys() - before.keys()
        return changed

    def check_nodes(self, reached: dict[Pointer, Node], *, small_items: bool) -> None:
        root = self.tree.root
        items = [item for _, leaf in sorted_leaves(reached) for item in leaf.items()]
        assert items == sorted(self.model.items())
        assert (root is None) == (not self.model)
        if root is not None:
            assert root.count == len(self.model)
            assert root.setsum == sum_of(self.model)
            assert not root.level or len(reached[root].children) >= 2, "its root is of no use"
        for pointer, node in reached.items():
            if node.level:
                assert len(node.children) <= self.bounds.most_children
                assert len(node.children) >= 2
                assert pointer == root or len(node.children) >= self.bounds.most_children // 4
            else:
                assert leaf_bytes(node) <= self.bounds.most_bytes or len(node.keys) == 1
                if small_items and pointer != root:
                    assert leaf_bytes(node) >= self.bounds.most_bytes // 4


def sorted_leaves(reached: dict[Pointer, Node]) -> list[tuple[Pointer, Node]]:
    return sorted(
        ((pointer, node) for pointer, node in reached.items() if not node.level), key=lambda one: one[0].first
    )


def leaf_bytes(leaf: Node) -> int:
    return sum(len(key) + len(value) for key, value in leaf.items())


class Piece(NamedTuple):
    """What a splice is drawn from: each `step`th key of [start, start + width), 0 for none, with values so long."""

    start: int
    width: int
    step: int
    value_bytes: int
    version: int
    behind: bool
    """It begins, and ends, just behind a key rather than at one."""
    open_end: bool


def splices_of(pieces: Sequence[Piece], most_value_bytes: int) -> list[Splice]:
    """Those that begin behind the end of the one before."""
    made: list[Splice] = []
    for piece in sorted(pieces):
        edge = b"\0" if piece.behind else b""
        start = key_of(piece.start) + edge if piece.start else b""
        end = None if piece.open_end else key_of(piece.start + piece.width) + edge
        if made and (made[-1].end is None or made[-1].end > start):
            continue
        keys = [key_of(n) for n in range(piece.start, piece.start + piece.width, piece.step)] if piece.step else []
        text = b"%d" % piece.version * min(piece.value_bytes, most_value_bytes)
        made.append(Splice(start, end, [(key, text[: piece.value_bytes]) for key in keys if key >= start]))
    return made


NUMBERS = st.integers(0, LAST)
PIECES = st.lists(
    st.builds(
        Piece,
        start=NUMBERS,
        width=st.integers(1, 9) | st.integers(1, LAST),
        step=st.integers(0, 3),
        value_bytes=st.integers(0, 90),
        version=st.integers(0, 1),
        behind=st.booleans(),
        open_end=st.integers(0, 15).map(lambda n: n == 0),
    ),
    max_size=8,
)
SIZES = st.sampled_from([Bounds(48, 4), Bounds(100, 5), Bounds(160, 9)])


class Trees(RuleBasedStateMachine):
    @initialize(bounds=SIZES, small_items=st.booleans(), count=NUMBERS)
    def begin(self, bounds: Bounds, small_items: bool, count: int) -> None:
        self.world = World(bounds)
        self.small_items = small_items
        self.most_value_bytes = bounds.most_bytes // 4 - len(key_of(4)) if small_items else 2 * bounds.most_bytes
        self.stood: list[tuple[Tree, dict[bytes, bytes]]] = []
        self.change([Piece(0, count, 1, 4, 0, behind=False, open_end=True)])

    @rule(pieces=PIECES)
    def change(self, pieces: list[Piece]) -> None:
        self.stood.append((self.world.tree, self.world.model))
        splices = splices_of(pieces, self.most_value_bytes)
        anyio.run(partial(self.world.checked_change, *splices, small_items=self.small_items))

    @rule(numbers=st.sets(NUMBERS, min_size=1, max_size=5), value=st.binary(max_size=3), gone=st.booleans())
    def change_single_ones(self, numbers: set[int], value: bytes, gone: bool) -> None:
        keys = [key_of(n) for n in sorted(numbers)]
        splices = [without(key) if gone else put(key, value) for key in keys]
        anyio.run(partial(self.world.checked_change, *splices, small_items=self.small_items))

    @precondition(lambda self: len(self.world.model) > 3)
    @rule(few=st.integers(1, 3), last=st.booleans())
    def leave_few(self, few: int, last: bool) -> None:
        keys = sorted(self.world.model)
        splice = Splice(b"", keys[-few]) if last else Splice(keys[few - 1] + b"\0", None)
        anyio.run(partial(self.world.checked_change, splice, small_items=self.small_items))

    @rule(start=NUMBERS, end=st.none() | NUMBERS, key=NUMBERS)
    def read(self, start: int, end: int | None, key: int) -> None:
        """From memory that holds a single node, too."""
        first, last = key_of(start), None if end is None else key_of(end)
        for tree, model in [(self.world.tree, self.world.model), *self.stood[-1:], *self.stood[:1]]:
            right = between(model, first, last)
            small = Tree(Nodes(self.world.store, limit_bytes=NO_ROOM), FOLDER, tree.root)
            for each in (tree, small):
                assert anyio.run(each.between, first, last) == right
                assert anyio.run(loading, lambda each=each: list(each.entries(first, last))) == right
                assert anyio.run(loading, lambda each=each: each.get(key_of(key))) == model.get(key_of(key))


Trees.TestCase.settings = settings(stateful_step_count=15)
TestTrees = Trees.TestCase


pytestmark = pytest.mark.anyio

SMALL = Bounds(64, 4)


async def small_world(count: int = 200) -> World:
    world = World(SMALL)
    await world.checked_change(Splice(b"", None, [(key_of(n), b"value") for n in range(count)]))
    assert world.tree.root is not None
    assert world.tree.root.level >= 2
    return world


LARGE = 18_000


@pytest.fixture(scope="module")
async def large() -> World:
    """With nodes as large as they are in earnest. For strangers: nothing is saved to it."""
    world = World()
    await world.change(Splice(b"", None, [(b"%06d" % n, b"%0994d" % n) for n in range(LARGE)]))
    return world


async def test_a_change_reads_and_makes_the_nodes_on_its_way_alone(large: World) -> None:
    assert large.tree.root is not None
    assert large.tree.root.level == 2
    for splice in (put(b"009000", b"other"), without(b"009001"), Splice(b"0090", b"009003", [(b"0090020", b"")])):
        tree = large.stranger()
        large.store.forget()
        changed = await tree.changed([splice], 10)
        assert len(changed.made) == len(changed.gone) == large.store.count() == large.store.count("get") == 3


async def test_a_range_goes_without_its_leaves_being_read(large: World) -> None:
    before = large.reached(large.tree.root)
    leaves = {node_key(FOLDER, pointer) for pointer, _ in sorted_leaves(before)}

    async def changed(splice: Splice) -> tuple[Changed, int]:
        """And how many leaves it took."""
        tree = large.stranger()
        large.store.forget()
        return await tree.changed([splice], 10), sum(request.key in leaves for request in large.store.requests)

    everything = tuple(sorted(before, key=lambda pointer: (pointer.level, pointer.first)))
    assert await changed(Splice(b"", None)) == (Changed(None, (), everything), 0)
    firsts = sorted(pointer.first for pointer in before if not pointer.level)
    (root, _, gone), taken = await changed(Splice(firsts[20], firsts[-20]))
    assert sum(not pointer.level for pointer in gone) == len(firsts) - 40
    assert taken == 0, "it ends where leaves end"
    (root, _, gone), taken = await changed(Splice(b"002001", b"016001"))
    assert root is not None
    assert root.count == LARGE - 14_000
    assert len(gone) > len(leaves) // 2
    assert taken <= 3, "one at each end, and a neighbour of a small one"
    (root, _, gone), taken = await changed(Splice(b"", b"016001", [(b"0", b"")]))
    assert root is not None
    assert root.count == LARGE - 16_000
    assert len(gone) > len(leaves) // 2
    assert taken <= 3


async def test_many_changes_at_once_load_neighbours_together() -> None:
    world = await small_world()
    tree = world.stranger()
    gate = anyio.Event()
    world.store.forget()
    root = world.reached(world.tree.root)[world.tree.root] if world.tree.root else Node()
    world.store.add(Rule(op="get", nth=2, times=None, gate=gate))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tree.changed, [put(child.first, b"other") for child in root.children], 10)
        await anyio.wait_all_tasks_blocked()
        assert world.store.count() == 1 + len(root.children) >= 3
        gate.set()


async def test_leaves_are_filled_and_the_last_two_share_evenly(large: World) -> None:
    sizes = [leaf_bytes(leaf) for _, leaf in sorted_leaves(large.reached(large.tree.root))]
    assert all(BOUNDS.most_bytes - 1000 < size <= BOUNDS.most_bytes for size in sizes[:-2])
    assert abs(sizes[-1] - sizes[-2]) <= 1000
    assert len(sizes) == -(-LARGE // (BOUNDS.most_bytes // 1000))


async def test_nodes_are_small_and_a_root_is_one_of_them(large: World) -> None:
    """S4.17: of items that aren't large themselves. A rollup has the pointer to one root, and an entry the name of a
    rollup (test_rollups_written.py), so that no more than that is written anew for each commit."""
    reached = large.reached(large.tree.root)
    assert max(pointer.size for pointer in reached) < 70_000
    assert all(len(node.children) <= BOUNDS.most_children for node in reached.values())
    assert large.tree.root is not None
    assert len(reached[large.tree.root].children) <= 25


async def test_an_item_larger_than_a_leaf_has_one_of_its_own() -> None:
    world = World()
    large = bytes(BOUNDS.most_bytes)
    await world.checked_change(*(put(b"%d" % n, large if n == 4 else b"small") for n in range(9)), small_items=False)
    leaves = [leaf.keys for _, leaf in sorted_leaves(world.reached(world.tree.root))]
    assert (b"4",) in leaves
    assert len(leaves) == 3
    await world.checked_change(put(b"4", b"small"), small_items=False)
    assert len(world.reached(world.tree.root)) == 1, "its neighbours are joined when it has gone"


async def test_what_comes_out_as_it_went_in_stays_as_it_is() -> None:
    world = await small_world()
    root = world.tree.root
    everything = Splice(b"", None, sorted(world.model.items()))
    same: list[list[Splice]] = [
        [],
        [put(key_of(7), b"value")],
        [without(b"nothing")],
        [everything],
    ]
    for splices in same:
        assert await world.tree.changed(splices, 10) == Changed(root, (), ())
    changed = await world.tree.changed([put(key_of(7), b"other"), put(key_of(150), b"value")], 10)
    assert root is not None
    assert len(changed.made) == len(changed.gone) == root.level + 1, "the second put changed nothing"


@pytest.mark.parametrize("count", [1, 60])
async def test_two_trees_take_turns_in_memory_for_a_single_node(count: int) -> None:
    """Each drives the other's nodes out; what is asked is answered all the same, after as many loads as there are
    nodes at most."""
    one, other = await small_world(), await small_world()
    nodes = Nodes(one.store, limit_bytes=NO_ROOM)
    left = Tree(nodes, FOLDER, one.tree.root)
    right = Tree(nodes, FOLDER, one.tree.root)
    assert other.tree.root == one.tree.root
    asked = 0

    def ask() -> list[tuple[bytes | None, bytes | None]]:
        nonlocal asked
        asked += 1
        return [(left.get(key_of(n)), right.get(key_of(199 - n))) for n in range(count)]

    one.store.forget()
    assert await loading(ask) == [(b"value", b"value")] * count
    assert asked <= one.store.count() + 1
    assert asked < 40, "who misses many is given several at once"
    assert one.store.count() <= 2 * len(one.reached(one.tree.root))
    with pytest.raises(NotLoaded):
        ask()


async def test_what_is_asked_in_a_thread_is_asked_there() -> None:
    world = await small_world()
    threads = set[int]()
    tree = world.stranger()

    def ask() -> list[Item]:
        threads.add(get_ident())
        return list(tree.entries(key_of(30), key_of(60)))

    assert await loading_in_thread(ask) == between(world.model, key_of(30), key_of(60))
    assert threads
    assert get_ident() not in threads


async def test_what_is_asked_may_fail_and_lets_go_of_what_it_kept() -> None:
    world = await small_world()
    tree = world.stranger()

    def ask() -> None:
        list(tree.entries())
        raise ZeroDivisionError

    for load in (loading, loading_in_thread):
        with pytest.raises(ZeroDivisionError):
            await load(ask)
        with pytest.raises(NotLoaded):
            list(tree.entries())


async def test_trees_of_other_nodes_may_be_asked_together() -> None:
    world = await small_world()
    here, there = world.stranger(), world.stranger()
    assert await loading(lambda: list(here.entries()) == list(there.entries()))


READS: dict[str, Callable[[Tree], Awaitable[object]]] = {
    "between": lambda tree: tree.between(),
    "loading": lambda tree: loading(lambda: list(tree.entries())),
    "in a thread": lambda tree: loading_in_thread(lambda: list(tree.entries())),
    "changed": lambda tree: tree.changed([put(key_of(n), b"new") for n in range(200)], 10),
}


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[bytes, bytes], bytes | None]] = {
    "flipped": lambda data, _: flipped(data),
    "truncated": lambda data, _: data[:-1],
    "empty": lambda _, __: b"",
    "missing": lambda _, __: None,
    "another's": lambda _, other: other,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_node_is_named_whoever_reads_it(
    read: Callable[[Tree], Awaitable[object]], damage: Callable[[bytes, bytes], bytes | None]
) -> None:
    world = await small_world(60)
    objects = world.memory.objects
    keys = sorted(objects)
    for key, neighbour in zip(keys, [*keys[1:], keys[0]], strict=True):
        whole = objects[key]
        await read(world.stranger())
        bytes_now = damage(whole, objects[neighbour])
        if bytes_now is None:
            del objects[key]
        else:
            objects[key] = bytes_now
        with pytest.raises(Corrupt) as found:
            await read(world.stranger())
        assert found.value.key == key
        objects[key] = whole


async def test_a_leaf_that_weighs_other_than_it_should_is_not_rewritten() -> None:
    """Its bytes are those that were sealed: whoever sealed them took them from damaged memory."""
    world = await small_world()
    leaf = next(pointer for pointer, node in world.reached(world.tree.root).items() if key_of(77) in node.keys)

    def other(key: bytes, value: bytes) -> Setsum:
        return Setsum() if key == key_of(77) else weigh(key, value)

    tree = Tree(world.nodes, FOLDER, world.tree.root, other, bounds=SMALL)
    for splice in (put(key_of(77), b""), put(leaf.first, b""), without(key_of(77))):
        with pytest.raises(Corrupt, match="do not add up") as found:
            await tree.changed([splice], 10)
        assert found.value.key == node_key(FOLDER, leaf)
    await tree.changed([put(key_of(177), b"")], 10)


@pytest.mark.parametrize(
    "splices",
    [
        [Splice(b"b", b"a")],
        [Splice(b"a", b"a")],
        [Splice(b"a", b"c", [(b"b", b""), (b"a", b"")])],
        [Splice(b"a", b"c", [(b"b", b""), (b"b", b"")])],
        [Splice(b"b", b"c", [(b"a", b"")])],
        [Splice(b"b", b"c", [(b"c", b"")])],
        [Splice(b"b", None, [(b"a", b"")])],
        [put(b"b", b""), put(b"a", b"")],
        [put(b"a", b""), put(b"a", b"")],
        [Splice(b"a", None), put(b"b", b"")],
    ],
)
async def test_splices_that_would_break_the_order_are_our_own_mistake(splices: list[Splice]) -> None:
    world = await small_world()
    with pytest.raises(AssertionError):
        await world.tree.changed(splices, 10)
