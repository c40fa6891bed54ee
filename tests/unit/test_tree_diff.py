"""The difference of two trees of rollups: what each item is in one and not in the other, and what a lost node hides."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
from hypothesis import given
from hypothesis import strategies as st

from budwood.server.store.tree import Tree
from budwood.server.store.tree_change import Bounds, put, without
from budwood.server.store.tree_nodes import Nodes
from budwood.server.upkeep.tree_diff import difference
from budwood.testing.stores import MemoryStore
from budwood.volume.tree_node import Pointer

FOLDER = "logs/main/nodes"
SMALL = Bounds(most_bytes=200, most_children=4)

Items = Mapping[bytes, bytes]

items = st.dictionaries(
    st.integers(0, 60).map(lambda number: bytes(16) + b"k" + bytes([number])),
    st.integers(0, 3).map(lambda number: b"%d" % number * 9),
    max_size=40,
)


def fresh(store: MemoryStore) -> Nodes:
    return Nodes(store, limit_bytes=1 << 20)


async def grown(store: MemoryStore, before: Items, after: Items, root: Pointer | None, number: int) -> Pointer | None:
    tree = Tree(fresh(store), FOLDER, root, bounds=SMALL)
    gone = [(key, without(key)) for key in before if key not in after]
    new = [(key, put(key, value)) for key, value in after.items() if before.get(key) != value]
    changed = await tree.changed([splice for _, splice in sorted([*gone, *new], key=lambda each: each[0])], number)
    await fresh(store).save(FOLDER, changed.made)
    return changed.root


@given(items, items)
def test_it_is_that_of_the_items(before: Items, after: Items) -> None:
    async def check() -> None:
        store = MemoryStore()
        old = await grown(store, {}, before, None, 1)
        new = await grown(store, before, after, old, 2)
        found = await difference(fresh(store), FOLDER, old, new)
        keys = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        assert found.items == {key: after.get(key) for key in keys}
        assert found.hidden == []

    anyio.run(check)


@given(items.filter(bool), items.filter(bool), st.integers(0, 1 << 30))
def test_a_lost_node_hides_what_lies_below_it_and_nothing_else(before: Items, after: Items, which: int) -> None:
    async def check() -> None:
        store = MemoryStore()
        old = await grown(store, {}, before, None, 1)
        kept = set(store.objects)
        new = await grown(store, before, after, old, 2)
        written = sorted(set(store.objects) - kept)
        if not written:
            return
        lost = written[which % len(written)]
        await store.delete(lost)
        found = await difference(fresh(store), FOLDER, old, new)
        assert [hidden.key for hidden in found.hidden] == [lost]
        keys = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        assert found.items == {key: after.get(key) for key in keys if not found.hides(key)}

    anyio.run(check)


def test_a_node_that_was_made_twice_is_two_objects() -> None:
    """The same items under two numbers: each of the leaves is read."""

    async def check() -> None:
        store = MemoryStore()
        held = {bytes(16) + b"k" + bytes([number]): b"value" * 3 for number in range(20)}
        old = await grown(store, {}, held, None, 1)
        kept = {key.rpartition("/")[2] for key in store.objects}
        new = await grown(store, {}, held, None, 2)
        twice = [key for key in store.objects if f"/{2:016x}/" in key and key.rpartition("/")[2] in kept]
        for key in twice:
            await store.delete(key)
        found = await difference(fresh(store), FOLDER, old, new)
        assert twice
        assert sorted(hidden.key for hidden in found.hidden) == sorted(twice)

    anyio.run(check)
