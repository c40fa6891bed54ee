"""Sorted map: an immutable map in the order of its keys, cheap to change by one entry or by many that lie together.

It is a B-tree whose nodes are never written to: a change makes anew the nodes on its way down, and shares the others
with the map that it was made from. So an old version stays as it was, which is what a tentative state needs
(state.py). Keys are text or bytes. With n entries

    get, put, without      O(log n)
    between(start, end)    O(log n), and what it yields
    spliced                O(log n + k), k the entries that it puts in place of whatever stood there

Invariants: all leaves are equally deep; every node but the root has between `LEAST` and `MOST` entries or children;
a branch keeps the first key of each child.

Rejected: one sorted list or dict with a bisected index, which copies all its keys at each change; a table of few
changes over a large dict, which has no order, so that what lies below a prefix costs a walk over all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast


class Key(Protocol):
    """Text, or bytes."""

    def __lt__(self, other: Any, /) -> bool: ...
    def __le__(self, other: Any, /) -> bool: ...
    def __add__(self, other: Any, /) -> Any: ...


K = TypeVar("K", bound=Key)
V = TypeVar("V")

MOST: Final = 64
"""Entries of a leaf, children of a branch."""
LEAST: Final = MOST // 4
"""A quarter and not half, so that a node that was just halved or merged is not at once halved or merged again."""


class _Leaf(Generic[K, V]):
    __slots__ = ("keys", "size", "values")

    def __init__(self, keys: list[K], values: list[V]) -> None:
        self.keys = keys
        self.values = values
        self.size: int = len(keys)


class _Branch(Generic[K, V]):
    __slots__ = ("children", "keys", "size")

    def __init__(self, keys: list[K], children: list[_Node[K, V]]) -> None:
        self.keys = keys
        """Of each child the first."""
        self.children = children
        self.size: int = sum(child.size for child in children)


_Node: TypeAlias = "_Leaf[K, V] | _Branch[K, V]"


class SortedMap(Generic[K, V]):
    __slots__ = ("root",)

    def __init__(self, pairs: Iterable[tuple[K, V]] = ()) -> None:
        """`pairs` in any order; of two with the same key the last counts."""
        entries = sorted(dict(pairs).items(), key=lambda pair: pair[0])
        self.root: _Node[K, V] = _grown(_leaves([key for key, _ in entries], [value for _, value in entries]))

    def get(self, key: K) -> V | None:
        node = self.root
        while isinstance(node, _Branch):
            node = node.children[max(bisect_right(node.keys, key) - 1, 0)]
        at = bisect_left(node.keys, key)
        return node.values[at] if at < node.size and node.keys[at] == key else None

    def between(self, start: K, end: K | None = None) -> Iterator[tuple[K, V]]:
        """The entries whose keys are in [start, end), sorted; to the last one without an `end`, or where that is
        empty."""
        return _between(self.root, start, end)

    def put(self, key: K, value: V) -> SortedMap[K, V]:
        """A map with this entry more, or changed."""
        root = self.root
        if isinstance(root, _Leaf) and root.size < MOST:
            # Each commit to a volume puts one into a map that is mostly this small.
            return _of(_with(root, key, value))
        return self.spliced(key, _behind(key), [(key, value)])

    def without(self, key: K) -> SortedMap[K, V]:
        """A map that lacks the key."""
        return self.spliced(key, _behind(key), ()) if key in self else self

    def spliced(self, start: K, end: K, pairs: Sequence[tuple[K, V]]) -> SortedMap[K, V]:
        """A map with `pairs`, sorted, in place of everything in [start, end), where all of them belong."""
        assert start < end, f"{start!r} does not come before {end!r}"
        assert all(one[0] < two[0] for one, two in pairwise(pairs)), "the pairs are not sorted"
        assert not pairs or (start <= pairs[0][0] and pairs[-1][0] < end), "some of the pairs belong elsewhere"
        return _of(_grown(_spliced(self.root, start, end, [key for key, _ in pairs], [value for _, value in pairs])))

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        return self.root.size

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.items())

    def items(self) -> Iterator[tuple[K, V]]:
        return _between(self.root, None, None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SortedMap) and list(self.items()) == list(cast("SortedMap[K, V]", other).items())

    def __hash__(self) -> int:
        raise TypeError("a map can't be a key")

    def __repr__(self) -> str:
        return f"SortedMap({dict(self.items())!r})"


def _of(root: _Node[K, V]) -> SortedMap[K, V]:
    # Made without going by way of an empty one: each commit to a volume makes a few.
    made = cast("SortedMap[K, V]", object.__new__(SortedMap))
    made.root = root
    return made


def _with(leaf: _Leaf[K, V], key: K, value: V) -> _Leaf[K, V]:
    """The leaf with this entry more, or changed; it had room."""
    at = bisect_left(leaf.keys, key)
    stands = at < leaf.size and leaf.keys[at] == key
    keys, values = leaf.keys, leaf.values.copy()
    if stands:
        values[at] = value
    else:
        keys = keys.copy()
        keys.insert(at, key)
        values.insert(at, value)
    return _Leaf(keys, values)


def _behind(key: K) -> K:
    """The least key that comes after `key`."""
    behind: K = key + (b"\0" if isinstance(key, bytes) else "\0")
    return behind


def _between(node: _Node[K, V], start: K | None, end: K | None) -> Iterator[tuple[K, V]]:
    if isinstance(node, _Leaf):
        last = bisect_left(node.keys, end) if end else node.size
        for at in range(bisect_left(node.keys, start) if start else 0, last):
            yield node.keys[at], node.values[at]
        return
    last = bisect_left(node.keys, end) if end else len(node.children)
    for at in range(max(bisect_right(node.keys, start) - 1, 0) if start else 0, last):
        yield from _between(node.children[at], start, end)


def _spliced(node: _Node[K, V], start: K, end: K, keys: list[K], values: list[V]) -> list[_Node[K, V]]:
    """The nodes, as deep as `node` and in its place, that hold its entries with those in [start, end) replaced. A lone
    one may have fewer than `LEAST`."""
    if isinstance(node, _Leaf):
        first, last = bisect_left(node.keys, start), bisect_left(node.keys, end)
        return _leaves(
            [*node.keys[:first], *keys, *node.keys[last:]], [*node.values[:first], *values, *node.values[last:]]
        )
    first = max(bisect_right(node.keys, start) - 1, 0)
    last = max(bisect_left(node.keys, end) - 1, first)
    # What lies between the first and the last is dropped whole, however much hangs below it.
    made = _spliced(node.children[first], start, end, keys, values)
    if last > first:
        made += _spliced(node.children[last], start, end, [], [])
    # Too small a one is joined to its neighbour, so one neighbour on each side takes part.
    left, right = max(first - 1, 0), min(last + 2, len(node.children))
    made = _joined([*node.children[left:first], *made, *node.children[last + 1 : right]])
    return _branches([*node.children[:left], *made, *node.children[right:]])


def _joined(nodes: list[_Node[K, V]]) -> list[_Node[K, V]]:
    """The nodes, those with fewer than `LEAST` together with a neighbour."""
    made: list[_Node[K, V]] = []
    for node in nodes:
        if made and (len(node.keys) < LEAST or len(made[-1].keys) < LEAST):
            made[-1:] = _both(made[-1], node)
        else:
            made.append(node)
    return made


def _both(left: _Node[K, V], right: _Node[K, V]) -> list[_Node[K, V]]:
    if isinstance(left, _Leaf) and isinstance(right, _Leaf):
        return _leaves(left.keys + right.keys, left.values + right.values)
    assert isinstance(left, _Branch), "neighbours are equally deep"
    assert isinstance(right, _Branch), "neighbours are equally deep"
    # The one at the seam may be a lone one that is too small.
    return _branches(_joined(left.children + right.children))


def _leaves(keys: list[K], values: list[V]) -> list[_Node[K, V]]:
    return [_Leaf(keys[start:end], values[start:end]) for start, end in _cut(len(keys))]


def _branches(children: list[_Node[K, V]]) -> list[_Node[K, V]]:
    keys = [child.keys[0] for child in children]
    return [_Branch(keys[start:end], children[start:end]) for start, end in _cut(len(children))]


def _cut(count: int) -> Iterator[tuple[int, int]]:
    """`count` things in the fewest runs of at most `MOST`, about equally long."""
    runs = -(-count // MOST)
    return ((at * count // runs, (at + 1) * count // runs) for at in range(runs))


def _grown(nodes: list[_Node[K, V]]) -> _Node[K, V]:
    """One root over them, no higher than it must be."""
    while len(nodes) > 1:
        nodes = _branches(nodes)
    if not nodes:
        return _Leaf[K, V]([], [])
    root = nodes[0]
    while isinstance(root, _Branch) and len(root.children) == 1:
        root = root.children[0]
    return root
