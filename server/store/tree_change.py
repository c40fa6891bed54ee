"""Change: from a tree and some splices, the nodes of the tree as it is afterwards. Nothing is written here.

Only nodes on the way to what changes are made anew, with the number of the change; the others are shared with the tree
from before, which stays as it was. The same tree, splices and number give the same bytes.

How: from the root down, each node that a splice reaches is opened, changed and cut into as many as it takes; a node
that came out small is joined with its neighbour. What comes of that are drafts; when all of them stand, they are sealed
from the leaves up.

Invariants: all leaves are equally deep. A leaf has at most `most_bytes` of keys and values, or is a single item; a
branch has at most `most_children`. Every node but the root has a quarter of that, and every branch two children, but
for leaves that stand, or stood, beside an item that is larger than a quarter of a leaf itself.

What is made anew is made of what was checked: each leaf that is opened is weighed, and a branch's sum is compared with
those of its children (tree_node.py). So a root's sum changes by what the splices change, and never by damage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from ...volume.errors import Corrupt
from ...volume.setsum import Setsum
from ...volume.tree_node import Item, Node, Pointer, node_key, seal_node
from ..in_thread import in_thread
from .tree_nodes import AT_ONCE, Nodes

Weigh: TypeAlias = Callable[[bytes, bytes], Setsum]

_NOTHING: Final = Setsum()
_FEW: Final = 1000
"""Splices: more are shared out in a thread."""


class Splice(NamedTuple):
    """Puts `items`, sorted, in place of everything in [start, end), where all of them belong; without an `end`, of
    everything from `start` on."""

    start: bytes
    end: bytes | None
    items: Sequence[Item] = ()


def put(key: bytes, value: bytes) -> Splice:
    """The item is there, with this value."""
    return Splice(key, key + b"\0", ((key, value),))


def without(key: bytes) -> Splice:
    """No item has the key."""
    return Splice(key, key + b"\0")


class Bounds(NamedTuple):
    """How large a node may be."""

    most_bytes: int = 64 * 1024
    """Of a leaf's keys and values, unless a single item is larger."""
    most_children: int = 256


BOUNDS: Final = Bounds()


class Changed(NamedTuple):
    root: Pointer | None
    """None when nothing is left."""
    made: tuple[tuple[Pointer, bytes], ...]
    """The nodes that have to be written, children before their parents."""
    gone: tuple[Pointer, ...]
    """Those that the tree had and has no more, sorted by level, then key."""


def weightless(_key: bytes, _value: bytes) -> Setsum:
    return _NOTHING


class _Leaf:
    __slots__ = ("items",)

    def __init__(self, items: list[Item]) -> None:
        self.items = items


class _Branch:
    __slots__ = ("children", "level")

    def __init__(self, level: int, children: list[_Part]) -> None:
        self.level = level
        self.children = children


_Part: TypeAlias = "Pointer | _Leaf | _Branch"
"""A node of the new tree: one that stands already, or a draft."""


class Change:
    """One change of one tree. Memory: what it makes anew, and one branch's changing children at a time."""

    def __init__(self, nodes: Nodes, folder: str, weigh: Weigh, bounds: Bounds, number: int) -> None:
        assert bounds.most_children >= 4, "a node that is cut in two would be too small at once"
        self._nodes = nodes
        self._folder = folder
        self._weigh = weigh
        self._bounds = bounds
        self._number = number
        self._made: list[tuple[Pointer, bytes]] = []
        self._gone: dict[bytes, Pointer] = {}
        """By digest."""

    async def run(self, root: Pointer | None, splices: Sequence[Splice]) -> Changed:
        """Raises Corrupt, Unavailable, Unsupported."""
        await in_thread(_check, splices)
        parts: list[_Part]
        if root is None:
            parts = self._leaves([item for splice in splices for item in splice.items])
        else:
            (node,) = await self._nodes.load_all(self._folder, [root])
            parts = await self._changed(root, node, None, splices)
        top = self._root_over(parts)
        made = None if top is None else await self._seal(top)
        gone = sorted(self._gone.values(), key=lambda pointer: (pointer.level, pointer.first))
        return Changed(made, tuple(self._made), tuple(gone))

    async def _changed(
        self, pointer: Pointer, node: Node, bound: bytes | None, splices: Sequence[Splice]
    ) -> list[_Part]:
        """What takes the place of a node that ends where key `bound` begins: nodes of its level. Only a lone one may be
        small."""
        self._open(pointer, node)
        await checkpoint()
        if not node.level:
            return self._leaves(_spliced(node, splices))
        few = len(splices) <= _FEW
        shares = _shares(node, splices) if few else await in_thread(_shares, node, splices)
        bounds = [*(child.first for child in node.children[1:]), bound]
        dropped = {at for at, share in shares.items() if _is_covered(node.children[at], bounds[at], share)}
        await self._drop([node.children[at] for at in dropped])
        reached = [at for at in shares if at not in dropped]
        opened = await self._nodes.load_all(self._folder, [node.children[at] for at in reached])
        nodes = dict(zip(reached, opened, strict=True))
        parts: list[_Part] = []
        for at, child in enumerate(node.children):
            if at in nodes:
                parts += await self._changed(child, nodes[at], bounds[at], shares[at])
            elif at not in dropped:
                parts.append(child)
        return self._branches(node.level, await self._joined(parts))

    def _open(self, pointer: Pointer, node: Node) -> None:
        """The node won't be part of the new tree. Raises Corrupt if its items don't weigh what they should."""
        if not node.level and self._sum_of(node.items()) != pointer.setsum:
            raise Corrupt(node_key(self._folder, pointer), "its items do not add up to its pointer's sum")
        self._gone[pointer.digest] = pointer

    async def _drop(self, dropped: Sequence[Pointer]) -> None:
        """Nor will these nodes, and all below them. Leaves are known by their parents, and not read."""
        branches = self._forget(dropped)
        while branches:
            branches, taken = branches[:-AT_ONCE], branches[-AT_ONCE:]
            for branch in await self._nodes.load_all(self._folder, taken):
                branches += self._forget(branch.children)

    def _forget(self, pointers: Sequence[Pointer]) -> list[Pointer]:
        """Those that have children are given back."""
        self._gone.update((pointer.digest, pointer) for pointer in pointers)
        return [pointer for pointer in pointers if pointer.level]

    async def _joined(self, parts: Iterable[_Part]) -> list[_Part]:
        """Neighbours in their order, those that are small together with the one before them, or else behind."""
        made: list[_Part] = []
        for part in parts:
            if made and (self._is_small(made[-1]) or self._is_small(part)):
                made[-1:] = await self._both(made[-1], part)
            else:
                made.append(part)
        return made

    async def _both(self, left: _Part, right: _Part) -> list[_Part]:
        one, other = await self._draft(left), await self._draft(right)
        if isinstance(one, _Leaf):
            assert isinstance(other, _Leaf), "neighbours are equally deep"
            return self._leaves(one.items + other.items)
        assert isinstance(other, _Branch), "neighbours are equally deep"
        # The one at the seam may be a lone one that is small.
        return self._branches(one.level, await self._joined(one.children + other.children))

    async def _draft(self, part: _Part) -> _Leaf | _Branch:
        if not isinstance(part, Pointer):
            return part
        node = await self._nodes.load(self._folder, part)
        self._open(part, node)
        return _Branch(node.level, list(node.children)) if node.level else _Leaf(list(node.items()))

    def _is_small(self, part: _Part) -> bool:
        match part:
            case _Leaf():
                return sum(map(_size_of, part.items)) < self._bounds.most_bytes // 4
            case _Branch():
                return len(part.children) < max(self._bounds.most_children // 4, 2)
            case _:
                # It stood in a tree, with neighbours, and so it isn't.
                return False

    def _leaves(self, items: list[Item]) -> list[_Part]:
        cuts = _cut([_size_of(item) for item in items], self._bounds.most_bytes)
        return [_Leaf(items[start:end]) for start, end in cuts]

    def _branches(self, level: int, children: list[_Part]) -> list[_Part]:
        cuts = _cut([1] * len(children), self._bounds.most_children)
        return [_Branch(level, children[start:end]) for start, end in cuts]

    def _root_over(self, parts: list[_Part]) -> _Part | None:
        """One node over them all, no higher than it must be."""
        while len(parts) > 1:
            parts = self._branches(_level_of(parts[0]) + 1, parts)
        if not parts:
            return None
        root = parts[0]
        while isinstance(root, _Branch) and len(root.children) == 1:
            root = root.children[0]
        return root

    async def _seal(self, part: _Part) -> Pointer:
        if isinstance(part, Pointer):
            return part
        if isinstance(part, _Leaf):
            await checkpoint()
            keys, values = zip(*part.items, strict=True)
            made, data = seal_node(Node(keys=keys, values=values), self._number, self._sum_of(part.items))
        else:
            children = tuple([await self._seal(child) for child in part.children])
            made, data = seal_node(Node(level=part.level, children=children), self._number)
        stood = self._gone.get(made.digest)
        if stood is not None and replace(stood, number=self._number) == made:
            # What comes out as it went in stays.
            return self._gone.pop(made.digest)
        self._made.append((made, data))
        return made

    def _sum_of(self, items: Iterable[Item]) -> bytes:
        return sum((self._weigh(key, value) for key, value in items), _NOTHING).digest


def _check(splices: Sequence[Splice]) -> None:
    for start, end, items in splices:
        assert end is None or start < end, f"{start!r} does not come before {end!r}"
        assert all(one[0] < two[0] for one, two in pairwise(items)), "the items are not sorted"
        inside = not items or (start <= items[0][0] and (end is None or items[-1][0] < end))
        assert inside, "some of the items belong elsewhere"
    sorted_apart = all(one.end is not None and one.end <= two.start for one, two in pairwise(splices))
    assert sorted_apart, "the splices are not sorted, or overlap"


def _shares(node: Node, splices: Iterable[Splice]) -> dict[int, list[Splice]]:
    """What each child of a branch has to do with them, in order; a splice's items all go to the first it reaches."""
    shares = defaultdict[int, list[Splice]](list)
    for splice in splices:
        # What lies before the first key of all has no child of its own.
        reached = node.within(splice.start, splice.end) or range(1)
        for at in reached:
            shares[at].append(splice if at == reached.start else splice._replace(items=()))
    return shares


def _is_covered(child: Pointer, bound: bytes | None, share: Sequence[Splice]) -> bool:
    """Whether nothing is left of a child that ends at `bound`. If so, no other splice reaches it."""
    start, end, items = share[0]
    return not items and start <= child.first and (end is None or (bound is not None and bound <= end))


def _spliced(leaf: Node, splices: Iterable[Splice]) -> list[Item]:
    items = list(leaf.items())
    made: list[Item] = []
    done = 0
    for splice in splices:
        replaced = leaf.within(splice.start, splice.end)
        made += items[done : replaced.start]
        made += splice.items
        done = replaced.stop
    return made + items[done:]


def _cut(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Where to cut a row of things so that no run is larger than `most`, unless it is one thing: each run is filled
    before the next is begun, but the last two share evenly."""
    starts: list[int] = []
    filled = 0
    for at, size in enumerate(sizes):
        if not starts or filled + size > most:
            starts.append(at)
            filled = 0
        filled += size
    if len(starts) > 1:
        starts[-1] = _middle(sizes, starts[-2], starts[-1])
    return pairwise([*starts, len(sizes)])


def _middle(sizes: Sequence[int], start: int, cut: int) -> int:
    """Where the last two runs, from `start` on and from `cut` on, are best parted: `cut` is as far as it can lie."""
    left, right = sum(sizes[start:cut]), sum(sizes[cut:])
    # What is moved is less than what the first has more: so the second never outgrows what the first was.
    while sizes[cut - 1] < left - right:
        cut -= 1
        left, right = left - sizes[cut], right + sizes[cut]
    return cut


def _size_of(item: Item) -> int:
    return len(item[0]) + len(item[1])


def _level_of(part: _Part) -> int:
    return 0 if isinstance(part, _Leaf) else part.level
