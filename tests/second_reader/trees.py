"""Trees: sorted maps from bytes to bytes, in write-once nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from .basics import EMPTY_SUM, Damaged, Fields, add, sum_of
from .envelopes import object_of, unseal

Item = tuple[bytes, bytes]
Weigh = Callable[[str, bytes, bytes], bytes]


@dataclass(frozen=True)
class Pointer:
    """Where a node lies, and what it must be."""

    number: int
    digest: bytes
    size: int
    level: int
    first: bytes
    count: int
    setsum: bytes

    @classmethod
    def of(cls, fields: Fields) -> Pointer:
        return cls(
            fields.number("number"),
            fields.data("digest"),
            fields.number("size"),
            fields.number("level", 0),
            fields.data("first"),
            fields.number("count"),
            sum_of(fields.key, fields.data("setsum", EMPTY_SUM)),
        )


def items_of(objects: Mapping[str, bytes], folder: str, pointer: Pointer, weigh: Weigh) -> list[Item]:
    """All below, each leaf's sum made anew."""
    key = f"{folder}/{pointer.number:016x}/{pointer.digest.hex()}"
    data = object_of(objects, key)
    if (len(data), node_digest(data)) != (pointer.size, pointer.digest):
        raise Damaged(key, "it is another node than its pointer says")
    node = unseal(key, b"BWTN", data).fields
    level, keys, values = node.number("level", 0), node.items("keys"), node.items("values")
    children = [Pointer.of(each) for each in node.maps("children")]
    if level != pointer.level or len(keys) != len(values) or bool(children) != bool(level) or bool(keys) == bool(level):
        raise Damaged(key, f"it is no node of level {pointer.level}")
    if any(child.level != level - 1 or child.number > pointer.number for child in children):
        raise Damaged(key, "a child of it can't be one")
    if any(type(each) is not bytes for each in (*keys, *values)):
        raise Damaged(key, "its keys and values are no bytes")
    items: list[Item] = list(zip(keys, values, strict=True))
    sums = [child.setsum for child in children] + [weigh(key, *item) for item in items]
    for child in children:
        items += items_of(objects, folder, child, weigh)
    if (items[0][0], len(items), add(*sums)) != (pointer.first, pointer.count, pointer.setsum):
        raise Damaged(key, "its first key, its count or its sum is another than its pointer says")
    if any(after[0] <= before[0] for before, after in pairwise(items)):
        raise Damaged(key, "its keys do not ascend")
    return items


def keys_of(objects: Mapping[str, bytes], folder: str, pointer: Pointer) -> set[str]:
    """Of all nodes of a tree."""
    key = f"{folder}/{pointer.number:016x}/{pointer.digest.hex()}"
    children = unseal(key, b"BWTN", object_of(objects, key)).fields.maps("children")
    return {key}.union(*(keys_of(objects, folder, Pointer.of(each)) for each in children))


def check_names(objects: Mapping[str, bytes], folder: str) -> None:
    """Of all nodes that stand, those that no tree has too: they are what their names say."""
    for key in (key for key in objects if key.startswith(f"{folder}/")):
        if key.rpartition("/")[2] != node_digest(objects[key]).hex():
            raise Damaged(key, "it is another node than its name says")


def node_digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
