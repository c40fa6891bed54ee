"""Attributes that two homes have changed: what they come to, by a dict that is merged key by key."""

from __future__ import annotations

import stat
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from budwood.sync.attributes import Attributes

wires = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from([stat.S_IFREG | 0o600, stat.S_IFREG | 0o640]),
        "uid": st.integers(0, 2),
        "mtime_ns": st.integers(1, 3),
        "size": st.integers(1, 3),
        "xattr.user.tag": st.sampled_from([None, b"", b"x"]),
        "gid": st.sampled_from(["of a kind that isn't known", 7]),
    },
)


@given(wires, wires, wires)
def test_each_is_the_one_that_was_changed(base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    lacking = object()
    expected: dict[str, Any] = {}
    for key in base.keys() | ours.keys() | theirs.keys():
        unchanged = ours.get(key, lacking) == base.get(key, lacking)
        side = theirs if unchanged else ours
        if key in side:
            expected[key] = side[key]
    merged = Attributes.from_wire(ours).merged(Attributes.from_wire(base), Attributes.from_wire(theirs))
    assert merged == Attributes.from_wire(expected)
    assert merged.to_wire() == expected
