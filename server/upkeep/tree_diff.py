"""Tree difference: what one tree of a log's rollups has otherwise than another, by reading only nodes that differ.

Both are walked level by level from above. A node that both have is the same in both, with all below it, and is passed
over; so what is read is what was written between the two, and memory holds the pointers of one level of that. A node
that can't be read hides what lies below it, and nothing else: what keys that may be is told with it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...volume.errors import BadInput, Corrupt, Unsupported
from ...volume.setsum import Setsum
from ...volume.tree_node import Item, Node, Pointer, node_key
from ..metastore import rolled_stream
from ..store.tree_change import Weigh
from ..store.tree_nodes import Nodes
from .findings import words_of


class Hidden(NamedTuple):
    """A node that can't be read, or isn't what its pointer says."""

    key: str
    pointer: Pointer
    end: bytes | None
    """Of the keys below it: they are less than that, where it is known."""
    problem: str

    def hides(self, key: bytes) -> bool:
        return self.pointer.first <= key and (self.end is None or key < self.end)


class _Place(NamedTuple):
    pointer: Pointer
    end: bytes | None

    @property
    def object(self) -> tuple[int, bytes]:
        """Which it is. The same node may stand twice, made for two rollups that did not know of each other."""
        return self.pointer.number, self.pointer.digest


@dataclass(slots=True)
class Difference:
    items: dict[bytes, bytes | None] = field(default_factory=dict[bytes, "bytes | None"])
    """Those that the new tree has anew or otherwise, by key; None: which it has no more."""
    hidden: list[Hidden] = field(default_factory=list[Hidden])
    """Of the new tree."""

    def hides(self, key: bytes) -> bool:
        return any(each.hides(key) for each in self.hidden)


async def difference(
    nodes: Nodes, folder: str, old: Pointer | None, new: Pointer | None, weigh: Weigh = rolled_stream.weigh
) -> Difference:
    """`weigh` is what an item counts in these trees. Raises Corrupt, Unsupported where the old tree can't be read."""
    walk = _Walk(nodes, folder, weigh)
    await walk.descend([_Place(old, None)] if old else [], [_Place(new, None)] if new else [])
    await walk.compare()
    return walk.found


class _Walk:
    def __init__(self, nodes: Nodes, folder: str, weigh: Weigh) -> None:
        self._nodes = nodes
        self._folder = folder
        self._weigh = weigh
        self._old: list[_Place] = []
        self._new: list[_Place] = []
        """Leaves that only that tree has."""
        self.found = Difference()

    async def descend(self, old: list[_Place], new: list[_Place]) -> None:
        level = max((place.pointer.level for place in (*old, *new)), default=0)
        while True:
            both = _objects(old, level) & _objects(new, level)
            old = [place for place in old if place.object not in both]
            new = [place for place in new if place.object not in both]
            if not level:
                break
            old = [below for place in old for below in await self._below_old(place, level)]
            new = [below for place in new for below in await self._below_new(place, level)]
            level -= 1
        self._old, self._new = old, new

    async def compare(self) -> None:
        before, after = self._old_items(), self._new_items()
        old, new = await anext(before, None), await anext(after, None)
        while old is not None or new is not None:
            if new is None or (old is not None and old[0] < new[0]):
                assert old is not None
                if not self.found.hides(old[0]):
                    self.found.items[old[0]] = None
                old = await anext(before, None)
            elif old is None or new[0] < old[0]:
                self.found.items[new[0]] = new[1]
                new = await anext(after, None)
            else:
                if old[1] != new[1]:
                    self.found.items[new[0]] = new[1]
                old, new = await anext(before, None), await anext(after, None)

    async def _below_old(self, place: _Place, level: int) -> list[_Place]:
        if place.pointer.level < level:
            return [place]
        return _children(place, await self._nodes.load(self._folder, place.pointer))

    async def _below_new(self, place: _Place, level: int) -> list[_Place]:
        if place.pointer.level < level:
            return [place]
        node = await self._new_node(place)
        return [] if node is None else _children(place, node)

    async def _old_items(self) -> AsyncGenerator[Item]:
        for place in self._old:
            for item in (await self._nodes.load(self._folder, place.pointer)).items():
                yield item

    async def _new_items(self) -> AsyncGenerator[Item]:
        for place in self._new:
            node = await self._new_node(place)
            if node is not None:
                for item in node.items():
                    yield item

    async def _new_node(self, place: _Place) -> Node | None:
        try:
            node = await self._nodes.load(self._folder, place.pointer)
            problem = _problem(place, node, self._weigh)
        except (Corrupt, Unsupported) as error:
            problem, node = words_of(node_key(self._folder, place.pointer), error), None
        if problem:
            key = node_key(self._folder, place.pointer)
            self.found.hidden.append(Hidden(key, place.pointer, place.end, problem))
            return None
        return node


def _objects(places: Sequence[_Place], level: int) -> set[tuple[int, bytes]]:
    return {place.object for place in places if place.pointer.level == level}


def _children(place: _Place, node: Node) -> list[_Place]:
    ends: Sequence[bytes | None] = [*(child.first for child in node.children[1:]), place.end]
    return [_Place(child, end) for child, end in zip(node.children, ends, strict=True)]


def _problem(place: _Place, node: Node, weigh: Weigh) -> str:
    """What is wrong with a node that is the one that its pointer names."""
    if node.level:
        if any(child.number > place.pointer.number for child in node.children):
            return "a child of it is of a later rollup than it is"
        return ""
    if place.end is not None and node.keys[-1] >= place.end:
        return "it has keys that belong behind it"
    try:
        weight = Setsum()
        for key, value in node.items():
            weight = weight + weigh(key, value)
    except (Corrupt, Unsupported, BadInput) as error:
        return f"an item of it can't be weighed: {error}"
    return "" if weight.digest == place.pointer.setsum else "its items add up to another sum than its pointer's"
