"""The sorted map against a dict: whatever is put, taken out or spliced, and whatever stood before stays as it was."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.server.metastore.sorted_map import LEAST, MOST, SortedMap

KEYS = st.text("ab/", max_size=5)
WIDE = st.lists(st.integers(0, 5000), max_size=600, unique=True).map(lambda ns: [f"{n:04}" for n in sorted(ns)])


def nodes(root: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    yield root, depth
    for child in getattr(root, "children", ()):
        yield from nodes(child, depth + 1)


def check(made: SortedMap[str, int], model: dict[str, int]) -> None:
    """It holds what the dict holds, and its tree is one."""
    assert list(made.items()) == sorted(model.items())
    assert len(made) == len(model)
    root: Any = made.root
    leaves = {depth for node, depth in nodes(root) if not hasattr(node, "children")}
    assert len(leaves) == 1, "its leaves are not equally deep"
    for node, _ in nodes(root):
        if hasattr(node, "children"):
            assert node.keys == [child.keys[0] for child in node.children]
            assert node.size == sum(child.size for child in node.children)
            assert 2 <= len(node.keys) <= MOST
        if node is not root:
            assert LEAST <= len(node.keys) <= MOST


@given(st.lists(st.tuples(st.booleans(), KEYS, st.integers()), max_size=200), KEYS, KEYS)
def test_it_is_a_dict_that_is_sorted_and_never_changes(
    steps: list[tuple[bool, str, int]], start: str, end: str
) -> None:
    made, model = SortedMap[str, int](), dict[str, int]()
    versions = [(made, dict(model))]
    for put, key, value in steps:
        if put:
            made, model = made.put(key, value), {**model, key: value}
        else:
            made, model = made.without(key), {k: v for k, v in model.items() if k != key}
        assert made.get(key) == model.get(key)
        versions.append((made, model))
    for version, stood in versions:
        check(version, stood)
    assert list(made.between(start, end)) == [
        pair for pair in sorted(model.items()) if start <= pair[0] and (not end or pair[0] < end)
    ]


@given(st.lists(st.tuples(st.binary(max_size=1), st.one_of(st.none(), st.integers())), max_size=200))
def test_its_keys_may_be_bytes(steps: list[tuple[bytes, int | None]]) -> None:
    made, model = SortedMap[bytes, int](), dict[bytes, int]()
    versions = [(made, dict(model))]
    for key, value in steps:
        made = made.without(key) if value is None else made.put(key, value)
        model = {k: v for k, v in (model | {key: value}).items() if v is not None}
        versions.append((made, dict(model)))
    for version, stood in versions:
        assert list(version.items()) == sorted(stood.items())
        assert list(version) == sorted(stood)
        assert len(version) == len(stood)
        assert all(version.get(key) == stood.get(key) for key in [b"", *(bytes([n]) for n in range(256))])


@given(WIDE, st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000), WIDE), max_size=6))
def test_a_splice_replaces_a_range_whole_and_leaves_a_tree(
    first: list[str], splices: list[tuple[int, int, list[str]]]
) -> None:
    model = dict.fromkeys(first, 0)
    made = SortedMap(model.items())
    check(made, model)
    for number, (one, two, keys) in enumerate(splices, 1):
        start, end = f"{min(one, two):04}", f"{max(one, two) + 1:04}"
        inside = [key for key in keys if start <= key < end]
        before, stood = made, model
        made = made.spliced(start, end, [(key, number) for key in inside])
        model = {key: value for key, value in model.items() if not start <= key < end} | dict.fromkeys(inside, number)
        check(made, model)
        check(before, stood)


def test_what_is_cut_out_of_a_deep_tree_leaves_no_small_node_at_the_seam() -> None:
    """From just behind where a branch begins to just before where a later one does, so that a leaf is left of each."""
    made = SortedMap((f"{n:06}", n) for n in range(3 * MOST * MOST))
    root: Any = made.root
    firsts = [int(child.keys[0]) for child in root.children]
    assert len(firsts) > 2
    for one in firsts:
        for other in (*firsts, len(made)):
            for more, less in itertools.product((1, LEAST - 1), repeat=2):
                start, end = f"{one + more:06}", f"{other - less:06}"
                if start < end:
                    check(
                        made.spliced(start, end, ()),
                        {key: value for key, value in made.items() if not start <= key < end},
                    )


def test_a_change_makes_few_nodes_anew_and_shares_the_rest() -> None:
    """O(log n): what a change costs is what it makes."""
    made = SortedMap((f"{n:06}", n) for n in range(100_000))
    old = {id(node) for node, _ in nodes(made.root)}
    for changed in (made.put("0500005", 1), made.put("050000", 1), made.without("050000")):
        assert len([node for node, _ in nodes(changed.root) if id(node) not in old]) <= 6
    halved = made.spliced("000001", "099999", ())
    assert list(halved) == ["000000", "099999"]
    moved = halved.spliced("0000010", "0000011", [(f"0000010{n:05}", n) for n in range(50_000)])
    assert len(moved) == 50_002


@pytest.mark.parametrize(("start", "end", "keys"), [("b", "a", []), ("a", "c", ["b", "a"]), ("a", "b", ["c"])])
def test_a_splice_that_would_break_the_order_is_our_own_mistake(start: str, end: str, keys: list[str]) -> None:
    with pytest.raises(AssertionError):
        SortedMap[str, int]().spliced(start, end, [(key, 0) for key in keys])
