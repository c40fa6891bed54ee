"""Tree node: one object of a tree, which is a sorted map from bytes to bytes in the store (DESIGN §4, rule 9).

    {folder}/{number:016x}/{digest}     number: that of whoever made the node; digest: of the whole object

A *leaf*, of level 0, holds items, which are pairs of key and value. A *branch* holds pointers to nodes one level below
it. Either way keys ascend, and no node is empty.

A pointer says all that its node must be, down to what the items below it add up to. So whoever has the root's pointer
can tell every damaged, missing or exchanged node, and knows the count and the sum of all items without reading one.
A node doesn't say its own number: the same items are the same bytes, whoever writes them.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter, lt
from typing import Final, TypeAlias

import msgspec

from .envelope import NODE, decode, encode, seal, unseal
from .errors import BadInput, Corrupt, Unsupported
from .setsum import EMPTY_SUM, Setsum

Item: TypeAlias = tuple[bytes, bytes]

DIGEST_SIZE: Final = 16

_first: Final = attrgetter("first")


class Pointer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where a node lies, and what it must be."""

    number: int
    digest: bytes
    size: int
    """Of the object, in bytes."""
    level: int = 0
    first: bytes
    """The lowest key of all below."""
    count: int
    """Of all items below."""
    setsum: bytes = EMPTY_SUM
    """Of the weights of all items below. What an item weighs is up to whoever keeps the tree."""


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    level: int = 0
    keys: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] = ()
    children: tuple[Pointer, ...] = ()

    def child_for(self, key: bytes) -> int:
        """Which child has the key, if any has."""
        return max(bisect_right(self.children, key, key=_first) - 1, 0)

    def within(self, start: bytes, end: bytes | None) -> range:
        """Which children, or in a leaf which items, may have keys in [start, end); without an `end`, to the last."""
        if self.level:
            first = self.child_for(start)
            return range(first, len(self.children) if end is None else bisect_left(self.children, end, key=_first))
        first = bisect_left(self.keys, start)
        return range(first, len(self.keys) if end is None else bisect_left(self.keys, end))

    def value_of(self, key: bytes) -> bytes | None:
        """A leaf's."""
        at = bisect_left(self.keys, key)
        return self.values[at] if at < len(self.keys) and self.keys[at] == key else None

    def items(self, start: bytes = b"", end: bytes | None = None) -> Iterator[Item]:
        """A leaf's, of which the keys are in [start, end)."""
        return ((self.keys[at], self.values[at]) for at in self.within(start, end))


def node_key(folder: str, pointer: Pointer) -> str:
    return f"{folder}/{pointer.number:016x}/{pointer.digest.hex()}"


def seal_node(node: Node, number: int, setsum: bytes = EMPTY_SUM) -> tuple[Pointer, bytes]:
    """The node's bytes, and what leads to them. `setsum` is a leaf's own; a branch has the sum of its children's."""
    data = seal(NODE, encode(node))
    pointer = Pointer(
        number=number,
        digest=_digest_of(data),
        size=len(data),
        level=node.level,
        first=node.children[0].first if node.level else node.keys[0],
        count=_count_of(node),
        setsum=_sum_of(node.children) if node.level else setsum,
    )
    return pointer, data


def parse_node(key: str, data: bytes, pointer: Pointer) -> Node:
    """The node that `pointer` leads to. Raises Corrupt, also if it is another, and Unsupported.

    A leaf's sum is not looked at here, since only whoever keeps the tree can weigh its items.
    """
    if len(data) != pointer.size:
        raise Corrupt(key, f"it has {len(data)} bytes where {pointer.size} belong")
    if _digest_of(data) != pointer.digest:
        raise Corrupt(key, "its digest is another than its pointer's")
    node = decode(key, unseal(key, NODE, data), Node)
    if node.level != pointer.level:
        raise Corrupt(key, f"it is of level {node.level} where one of level {pointer.level} belongs")
    if node.level:
        _check_branch(key, node, pointer)
    else:
        _check_leaf(key, node)
    if _count_of(node) != pointer.count:
        raise Corrupt(key, f"it holds {_count_of(node)} items where {pointer.count} belong")
    if (node.children[0].first if node.level else node.keys[0]) != pointer.first:
        raise Corrupt(key, "its first key is another than its pointer's")
    return node


def node_problem(key: str, data: bytes) -> str:
    """What is wrong with the node of that key, where nothing leads to it that says what it must be; or ""."""
    if key.rpartition("/")[2] != _digest_of(data).hex():
        return "its digest is another than its name"
    try:
        decode(key, unseal(key, NODE, data), Node)
    except (Corrupt, Unsupported) as error:
        return str(error)
    return ""


def _check_leaf(key: str, node: Node) -> None:
    if node.children or not node.keys or len(node.values) != len(node.keys):
        raise Corrupt(key, f"{len(node.keys)} keys, {len(node.values)} values, {len(node.children)} children in a leaf")
    if not _ascending(node.keys):
        raise Corrupt(key, "its keys do not ascend")


def _check_branch(key: str, node: Node, pointer: Pointer) -> None:
    if node.keys or node.values or not node.children:
        raise Corrupt(
            key, f"{len(node.keys)} keys, {len(node.values)} values, {len(node.children)} children in a branch"
        )
    if any(child.level != node.level - 1 for child in node.children):
        raise Corrupt(key, "a child of it is not one level below it")
    if not _ascending([child.first for child in node.children]):
        raise Corrupt(key, "the first keys of its children do not ascend")
    try:
        total = _sum_of(node.children)
    except BadInput as error:
        raise Corrupt(key, f"a child's sum: {error}") from error
    if total != pointer.setsum:
        raise Corrupt(key, "its children's sums add up to another than its pointer's")


def _ascending(keys: Sequence[bytes]) -> bool:
    return all(map(lt, keys, keys[1:]))


def _count_of(node: Node) -> int:
    return sum(child.count for child in node.children) if node.level else len(node.keys)


def _sum_of(children: Sequence[Pointer]) -> bytes:
    return Setsum.of_sums(child.setsum for child in children).digest


def _digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE).digest()
