"""A node is what its pointer says, or it is damage that names the object."""

from __future__ import annotations

from hashlib import blake2b, sha3_256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from budwood.volume.envelope import NODE, encode, seal
from budwood.volume.errors import Corrupt
from budwood.volume.setsum import EMPTY_SUM, Setsum
from budwood.volume.tree_node import Node, Pointer, node_key, parse_node, seal_node

FOLDER = "logs/main/rollups"


def sum_of(text: bytes) -> bytes:
    return Setsum.of(sha3_256(text).digest()).digest


def leaf(*keys: bytes) -> Node:
    return Node(keys=keys, values=tuple(key.upper() for key in keys))


def child(first: bytes, *, count: int = 1, level: int = 0) -> Pointer:
    pointer, _ = seal_node(leaf(first), 1, sum_of(first))
    return replace(pointer, level=level, count=count)


def branch(*firsts: bytes) -> Node:
    return Node(level=1, children=tuple(child(first, count=at) for at, first in enumerate(firsts, 1)))


def reread(pointer: Pointer, data: bytes) -> Node:
    return parse_node(node_key(FOLDER, pointer), data, pointer)


def test_a_leaf_is_read_as_it_was_sealed() -> None:
    node = leaf(b"", b"a", b"a\0", b"b\xff")
    pointer, data = seal_node(node, 7, sum_of(b"its items"))
    assert reread(pointer, data) == node
    assert (pointer.number, pointer.level, pointer.first, pointer.count) == (7, 0, b"", 4)
    assert (pointer.setsum, pointer.size) == (sum_of(b"its items"), len(data))
    assert data.startswith(NODE)
    assert list(node.items()) == [(b"", b""), (b"a", b"A"), (b"a\0", b"A\0"), (b"b\xff", b"B\xff")]


def test_a_branch_is_read_as_it_was_sealed_and_sums_up_its_children() -> None:
    node = branch(b"a", b"b", b"c")
    pointer, data = seal_node(node, 2**64 - 1)
    assert reread(pointer, data) == node
    assert (pointer.level, pointer.first, pointer.count) == (1, b"a", 6)
    assert pointer.setsum == Setsum.of_sums([sum_of(b"a"), sum_of(b"b"), sum_of(b"c")]).digest != EMPTY_SUM


def test_a_nodes_key_says_its_number_and_its_digest() -> None:
    pointer, data = seal_node(leaf(b"a"), 0xBEEF)
    digest = blake2b(data, digest_size=16)
    assert pointer.digest == digest.digest()
    assert node_key(FOLDER, pointer) == f"{FOLDER}/000000000000beef/{digest.hexdigest()}"


def test_the_same_items_are_the_same_bytes_whoever_seals_them() -> None:
    (one, data), (other, same) = seal_node(leaf(b"a"), 1), seal_node(leaf(b"a"), 2)
    assert data == same
    assert other == replace(one, number=2)


KEYS = st.binary(max_size=2)


@given(st.sets(KEYS, min_size=1), KEYS, st.none() | KEYS)
def test_a_range_of_a_leaf_is_that_of_its_keys(drawn: set[bytes], start: bytes, end: bytes | None) -> None:
    node = leaf(*sorted(drawn))
    right = [key for key in sorted(drawn) if start <= key and (end is None or key < end)]
    assert list(node.items(start, end)) == [(key, key.upper()) for key in right]
    assert node.value_of(start) == (start.upper() if start in drawn else None)


@given(st.sets(KEYS, min_size=1), KEYS, st.none() | KEYS)
def test_a_range_of_a_branch_is_all_that_may_have_its_keys(firsts: set[bytes], start: bytes, end: bytes | None) -> None:
    node = branch(*sorted(firsts))
    ends = [*sorted(firsts)[1:], None]
    # The first child has nothing below its own first key, whatever it would be asked for.
    right = [
        at
        for at, (first, bound) in enumerate(zip(sorted(firsts), ends, strict=True))
        if (bound is None or start < bound) and (end is None or first < end)
    ]
    if end is None or start < end:
        assert list(node.within(start, end)) == right
    assert node.child_for(start) == max(sum(first <= start for first in firsts) - 1, 0)


@pytest.mark.parametrize("node", [leaf(b"a", b"b"), branch(b"a", b"b")])
def test_bytes_that_are_not_those_that_were_sealed_are_damage(node: Node) -> None:
    pointer, data = seal_node(node, 1)
    key = node_key(FOLDER, pointer)
    for at in range(len(data)):
        with pytest.raises(Corrupt, match="its digest is another") as found:
            parse_node(key, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], pointer)
        assert found.value.key == key
        with pytest.raises(Corrupt, match=f"it has {at} bytes where {len(data)} belong"):
            parse_node(key, data[:at], pointer)
    with pytest.raises(Corrupt, match=f"it has {len(data) + 1} bytes"):
        parse_node(key, data + b"\0", pointer)


@pytest.mark.parametrize("node", [leaf(b"a", b"b"), branch(b"a", b"b")])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": 1}, "bytes where 1 belong"),
        ({"digest": bytes(16)}, "its digest is another"),
        ({"level": 2}, "where one of level 2 belongs"),
        ({"count": 9}, "where 9 belong"),
        ({"first": b"b"}, "its first key is another"),
    ],
)
def test_another_node_than_its_pointer_says_is_damage(node: Node, change: dict[str, object], words: str) -> None:
    pointer, data = seal_node(node, 1)
    with pytest.raises(Corrupt, match=words):
        parse_node("k", data, replace(pointer, **change))


def test_a_branch_whose_children_add_up_to_another_sum_is_damage() -> None:
    pointer, data = seal_node(branch(b"a", b"b"), 1)
    with pytest.raises(Corrupt, match="add up to another"):
        parse_node("k", data, replace(pointer, setsum=sum_of(b"other")))


A, B = child(b"a"), child(b"b")


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (Node(), "0 keys, 0 values, 0 children in a leaf"),
        (Node(keys=(b"a",)), "1 keys, 0 values"),
        (Node(keys=(b"a",), values=(b"", b"")), "1 keys, 2 values"),
        (Node(keys=(b"a",), values=(b"",), children=(A,)), "1 children in a leaf"),
        (Node(keys=(b"b", b"a"), values=(b"", b"")), "its keys do not ascend"),
        (Node(keys=(b"a", b"a"), values=(b"", b"")), "its keys do not ascend"),
        (Node(level=1), "0 children in a branch"),
        (Node(level=1, keys=(b"a",), children=(A,)), "1 keys, 0 values, 1 children in a branch"),
        (Node(level=1, values=(b"a",), children=(A,)), "0 keys, 1 values, 1 children in a branch"),
        (Node(level=1, children=(B, A)), "first keys of its children do not ascend"),
        (Node(level=1, children=(A, A)), "first keys of its children do not ascend"),
        (Node(level=1, children=(A, child(b"b", level=1))), "not one level below"),
        (Node(level=2, children=(A, B)), "not one level below"),
        (Node(level=1, children=(replace(A, setsum=b"\xff" * 32),)), "a child's sum: a setsum's columns"),
        (Node(level=1, children=(replace(A, setsum=b"short"),)), "a child's sum: a setsum has 32 bytes"),
    ],
)
def test_a_node_that_someone_made_wrongly_is_damage(node: Node, words: str) -> None:
    """Its bytes are those that its pointer says; what they say can't be."""
    data = seal(NODE, encode(node))
    digest = blake2b(data, digest_size=16).digest()
    count = sum(each.count for each in node.children) if node.level else len(node.keys)
    pointer = Pointer(number=1, digest=digest, size=len(data), level=node.level, first=b"a", count=count)
    with pytest.raises(Corrupt, match=words) as found:
        parse_node("k", data, pointer)
    assert found.value.key == "k"


@pytest.mark.parametrize("data", [seal(b"BWPI", encode(leaf(b"a"))), seal(NODE, b"\xc1"), b"BWTN"])
def test_what_is_no_node_at_all_is_damage(data: bytes) -> None:
    digest = blake2b(data, digest_size=16).digest()
    with pytest.raises(Corrupt):
        parse_node("k", data, Pointer(number=1, digest=digest, size=len(data), first=b"a", count=1))
