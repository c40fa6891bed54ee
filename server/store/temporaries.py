"""Temporaries: where the bytes of a two-phase create lie until they are copied.

    temporary/{key}.{uuid}.{checksum}

The uuid is one of version 7, so that its time tells how old the object is; the checksum is the xxh3-64 of the bytes, so
that no two creates share a name, and whoever copies them for another knows that they are whole. They have a folder of
their own: no listing of what lies elsewhere meets them, and one listing finds what was left behind.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple
from uuid import UUID

import xxhash

from ...volume.errors import BadInput
from .protocol import Data, buffers, check_key

FOLDER: Final = "temporary/"
BEHIND: Final = "temporary0"
"""The first string behind all that starts with the folder."""
_ADDED: Final = len(f".{UUID(int=0)}.") + 16
_MOST_PART: Final = 200 - _ADDED
_MOST_KEY: Final = 512 - _ADDED - len(FOLDER)


class Temporary(NamedTuple):
    dest: str
    time_ms: int
    checksum: str


def check_dest(key: str) -> str:
    """Raises BadInput unless an object may be created there in two phases."""
    check_key(key)
    if key.startswith(FOLDER):
        raise BadInput(f"{key!r} can't be an object's key: what lies under {FOLDER} is the store's own")
    if len(key) > _MOST_KEY or len(key.rpartition("/")[2]) > _MOST_PART:
        raise BadInput(f"{key!r} is too long for a store with records: {_MOST_KEY} bytes, the last part {_MOST_PART}")
    return key


def checksum_of(data: Data) -> str:
    hashed = xxhash.xxh3_64()
    for piece in buffers(data):
        hashed.update(piece)
    return hashed.hexdigest()


def new_temporary(dest: str, time_ms: int, checksum: str) -> str:
    """A name that nobody has had."""
    noise = int.from_bytes(os.urandom(10), "big")
    uuid = UUID(int=time_ms << 80 | 7 << 76 | (noise >> 66 & 0xFFF) << 64 | 2 << 62 | noise & (1 << 62) - 1)
    return f"{FOLDER}{dest}.{uuid}.{checksum}"


def parse_temporary(key: str) -> Temporary | None:
    """None for what is no such name."""
    dest, _, last = key.removeprefix(FOLDER).rpartition(".")
    dest, _, uuid = dest.rpartition(".")
    try:
        parsed = UUID(uuid)
    except ValueError:
        return None
    return Temporary(dest, parsed.int >> 80, last) if dest and parsed.version == 7 else None
