"""Tree: a sorted map from bytes to bytes whose nodes lie in a store, and are never written to (volume/tree_node.py).

    nodes = Nodes(store, limit_bytes=…)                      # memory, shared by many trees
    tree = Tree(nodes, "logs/main/rollups", root)
    value = await loading(lambda: tree.get(b"a"))            # store/tree_nodes.py
    changed = await tree.changed([put(b"a", b"1"), without(b"b")], number)
    await nodes.save(tree.folder, changed.made)
    tree = tree.at(changed.root)

A tree is a view that never changes: its root's pointer, and where its nodes lie. `get` and `entries` read from memory
alone, so that they can be called where nothing may wait, and from any thread; they raise NotLoaded for a node that
isn't there, and `loading` is the way to have it brought. What `changed` makes is told, not written; nobody sees it
before its maker has saved it, and then put the new root's pointer where others look for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...volume.tree_node import Item, Pointer, node_key
from .tree_change import BOUNDS, Bounds, Change, Changed, Splice, Weigh, weightless
from .tree_nodes import Nodes


class Tree:
    """`root` is None when it holds nothing. `weigh` is what an item counts towards a pointer's sum: the same for all
    of a tree's life."""

    __slots__ = ("_bounds", "_nodes", "_weigh", "folder", "root")

    def __init__(
        self, nodes: Nodes, folder: str, root: Pointer | None, weigh: Weigh = weightless, *, bounds: Bounds = BOUNDS
    ) -> None:
        self._nodes = nodes
        self.folder = folder
        self.root = root
        self._weigh = weigh
        self._bounds = bounds

    def at(self, root: Pointer | None) -> Tree:
        """The same tree as it is, or was, with another root."""
        return Tree(self._nodes, self.folder, root, self._weigh, bounds=self._bounds)

    def get(self, key: bytes) -> bytes | None:
        """From memory; raises NotLoaded."""
        if self.root is None:
            return None
        node = self._nodes.get(self.folder, self.root)
        while node.level:
            at = node.child_for(key)
            node = self._nodes.get(self.folder, node.children[at], node.children[:at])
        return node.value_of(key)

    def entries(self, start: bytes = b"", end: bytes | None = None) -> Iterator[Item]:
        """Those whose keys are in [start, end), sorted; without an `end`, to the last. From memory; raises NotLoaded
        where it comes to what isn't there: for `loading`, exhaust it within what is asked."""
        return iter(()) if self.root is None else self._entries(self.root, start, end, ())

    def _entries(
        self, pointer: Pointer, start: bytes, end: bytes | None, following: Sequence[Pointer]
    ) -> Iterator[Item]:
        node = self._nodes.get(self.folder, pointer, following)
        if not node.level:
            yield from node.items(start, end)
            return
        reached = node.within(start, end)
        for at in reached:
            # Those that it comes to next, the nearest last.
            following = node.children[at + 1 : reached.stop][::-1]
            yield from self._entries(node.children[at], start, end, following)

    async def between(self, start: bytes = b"", end: bytes | None = None) -> list[Item]:
        """As `entries`, with what isn't in memory loaded, neighbours several at a time.

        Raises Corrupt, Unavailable, Unsupported.
        """
        row = [] if self.root is None else [self.root]
        while row:
            nodes = await self._nodes.load_all(self.folder, row)
            if not row[0].level:
                return [item for leaf in nodes for item in leaf.items(start, end)]
            row = [node.children[at] for node in nodes for at in node.within(start, end)]
        return []

    async def node_keys(self) -> list[str]:
        """Of all its nodes, from the root down. Raises Corrupt, Unavailable, Unsupported."""
        return [node_key(self.folder, pointer) for pointer in await self.pointers()]

    async def pointers(self) -> list[Pointer]:
        """To all its nodes, from the root down. Leaves aren't read. Raises Corrupt, Unavailable, Unsupported."""
        row, every = [] if self.root is None else [self.root], list[Pointer]()
        while row:
            every += row
            nodes = await self._nodes.load_all(self.folder, row) if row[0].level else []
            row = [child for node in nodes for child in node.children]
        return every

    async def changed(self, splices: Sequence[Splice], number: int) -> Changed:
        """What the tree is after the splices, which are sorted and don't overlap (tree_change.py). Raises Corrupt,
        Unavailable, Unsupported."""
        return await Change(self._nodes, self.folder, self._weigh, self._bounds, number).run(self.root, splices)
