"""A directory's listing is the sorted list of its keys, whatever the keys, the prefix, the start and the limit."""

from __future__ import annotations

import tempfile

from hypothesis import given
from hypothesis import strategies as st

from budwood.server.store.directory_tree import Tree
from budwood.server.store.protocol import check_key, check_prefix, is_part, key_below
from budwood.volume.errors import BadInput

# Few letters, and those that sort around '/', so that names often share beginnings.
PARTS = st.text("-./a0", min_size=1, max_size=3).filter(is_part)
KEYS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
STARTS = st.text("-./a0\0~", max_size=8)


def without_directories(keys: set[str]) -> list[str]:
    """No key is another's directory."""
    return sorted(key for key in keys if not any(other.startswith(f"{key}/") for other in keys))


@given(st.sets(KEYS, max_size=25), st.lists(st.tuples(STARTS, STARTS, st.none() | st.integers(0, 5)), max_size=12))
def test_a_listing_equals_a_sorted_list(drawn: set[str], asked: list[tuple[str, str, int | None]]) -> None:
    keys = without_directories(drawn)
    with tempfile.TemporaryDirectory() as path:
        tree = Tree(path)
        for key in keys:
            tree.place(key, b"")
        assert tree.list("", "", None) == keys
        for prefix, start, limit in asked:
            right = [key for key in keys if key.startswith(prefix) and key >= start][:limit]
            found = tree.list(prefix, start, limit) if check_prefix(prefix, limit) else []
            assert found == right, (prefix, start, limit)
        for key in keys:
            tree.remove(key)
        assert tree.list("", "", None) == []
        tree.close()


@given(STARTS)
def test_the_key_below_lies_below(start: str) -> None:
    below = key_below(start)
    assert start.startswith(below)
    assert below < start or below == start == ""
    if below:
        check_key(below)


@given(st.text(max_size=12) | STARTS)
def test_a_key_is_taken_or_refused(key: str) -> None:
    try:
        check_key(key)
    except BadInput:
        return
    assert all(is_part(part) for part in key.split("/"))
    assert check_prefix(key, None)
