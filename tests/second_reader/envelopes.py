"""Envelopes: the objects of a store but for segments."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from .basics import Damaged, Fields, TooNew, unpack_map, xxh3

FIXED = struct.Struct("<4sHHQIIQ")
KNOWN = {
    b"BWLE": {"garbage": 1 << 0, "rollup": 1 << 1, "fragments_since": 1 << 2, "shards": 1 << 3},
    b"BWRU": {
        "folds": 1 << 0,
        "garbage": 1 << 1,
        "policies": 1 << 2,
        "relocations": 1 << 3,
        "fragments_since": 1 << 4,
        "rules": 1 << 5,
        "shards": 1 << 6,
    },
    b"BWPI": {"label": 1 << 0},
    b"BWGP": {"shards": 1 << 0},
    b"BWDL": {"shards": 1 << 0},
}
"""Features: the fields of a kind of object that have a bit."""


class Envelope(NamedTuple):
    fields: Fields
    head: bytes
    """As stored."""
    body: bytes


def object_of(objects: Mapping[str, bytes], key: str) -> bytes:
    if key not in objects:
        raise Damaged(key, "it is missing")
    return objects[key]


def features_of(data: bytes) -> int:
    """Of an object that was unsealed."""
    features: int = FIXED.unpack_from(data)[3]
    return features


def unseal(key: str, magic: bytes, data: bytes) -> Envelope:
    if len(data) < FIXED.size:
        raise Damaged(key, "it is too short")
    found, version, _, features, header_length, body_length, checksum = FIXED.unpack_from(data)
    end = FIXED.size + header_length
    head = data[:end]
    if len(head) < end or xxh3(head[:24] + head[32:]) != checksum:
        raise Damaged(key, "its head does not match its checksum")
    if found != magic:
        raise Damaged(key, f"it is a {found!r}, and no {magic!r}")
    known = KNOWN.get(magic, {})
    if version != 2 or features & ~sum(known.values()):
        raise TooNew(f"{key}: format {version}, features {features:#x}")
    if len(data) != end + body_length or (body_length and magic != b"BWLE"):
        raise Damaged(key, "its body has another length than its head says")
    fields = Fields(key, unpack_map(key, head[FIXED.size :]))
    if any(fields.is_set(name) and not features & bit for name, bit in known.items()):
        raise Damaged(key, "it has a field without the bit of that feature")
    return Envelope(fields, head, data[end:])
