"""Scrub of what says who may do what: organisations, keys, revocations."""

from __future__ import annotations

import pytest

from budwood.server.access.registry import Registry
from budwood.server.node import Node
from budwood.testing.stores import MemoryStore
from budwood.volume.access import KEYS_PREFIX, ORGANISATIONS_PREFIX, REVOKED_PREFIX, Grant

from ..damage import Objects, cut, flip, scrubbed, swapped, without

pytestmark = pytest.mark.anyio


async def made() -> Objects:
    """Two organisations, three keys, and one that was revoked."""
    store = MemoryStore()
    async with Node.open(store, name="main"):
        registry = Registry(store, lambda: 1_700_000_000_000)
        for label, org in (("ci", "acme"), ("ann", "acme"), ("bob", "other"), ("root", "")):
            key, _ = await registry.make_key(label, (Grant("write"),), org=org)
        await registry.revoke(key.id)
    return dict(store.objects)


async def test_whatever_of_it_is_damaged_is_named() -> None:
    objects = await made()
    assert await scrubbed(objects) == {}
    keys = [key for key in objects if key.startswith("access/")]
    assert {key.rpartition("/")[0] + "/" for key in keys} == {KEYS_PREFIX, ORGANISATIONS_PREFIX, REVOKED_PREFIX}
    for key in keys:
        size = len(objects[key])
        for after in (
            *(flip(objects, key, bit) for bit in range(0, 8 * size, 61)),
            cut(objects, key, 0),
            cut(objects, key, size - 1),
            {**objects, key: objects[key] + b"\0"},
        ):
            assert set(await scrubbed(after)) == {key}
        for other in keys:
            if other != key:
                assert set(await scrubbed(swapped(objects, key, other))) == {key, other}


async def test_an_organisation_that_is_lost_is_missed_if_it_has_keys() -> None:
    """Else its next key would make one of that name anew, with no names."""
    objects = await made()
    for name in ("acme", "other"):
        key = f"{ORGANISATIONS_PREFIX}{name}"
        found = await scrubbed(without(objects, key))
        assert set(found) == {key}
        assert "it is missing, though it has keys, so that nobody finds" in str(found[key])
