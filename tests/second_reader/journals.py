"""The journal of a home: commits that its tables don't have yet."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import xxhash

from .basics import Damaged, TooNew, xxh3

HEADER = struct.Struct("<8sII16sQQQQQ")
RECORD = struct.Struct("<Q4sIQQQQ16sIIII")
BLOCK = 4096


class Record(NamedTuple):
    lsn: int
    generation: int
    page_size: int
    commit: bytes
    pages: list[bytes]


def read_journal(path: Path, position: int, link: int, generation: int) -> dict[bytes, list[Record]]:
    """By volume, oldest first. Raises Damaged."""
    if not path.exists():
        if generation:
            raise Damaged("journal", "it is gone")
        return {}
    data = path.read_bytes()
    headers = [HEADER.unpack_from(data, at) for at in (0, BLOCK)]
    sound = [head for at, head in zip((0, BLOCK), headers, strict=True) if head[8] == xxh3(data[at : at + 64])]
    if not sound:
        if generation:
            raise Damaged("journal", "it has no header")
        return {}
    magic, version, _, _, own, salt, base, capacity, _ = max(sound, key=lambda head: head[4])
    if magic != b"bwjournl" or version != 1:
        raise TooNew(f"a journal of version {version}")
    if own < generation:
        return {}
    if own > generation:
        if base != position:
            raise Damaged("journal", f"it begins at {base}, and the tables end at {position}")
        link = salt
    found: dict[bytes, list[Record]] = {}
    while position < base + capacity:
        at = 2 * BLOCK + position - base
        if at + RECORD.size > len(data):
            break
        summed, magic, size, where, before, _, lsn, vid, drawn, page_size, packed, _ = RECORD.unpack_from(data, at)
        body = data[at + 8 : at + size]
        holds = magic == b"bwjr" and summed == xxhash.xxh3_64_intdigest(body, seed=salt)
        if not holds or where != position or before != link:
            break
        start = at + RECORD.size + packed
        pages = [data[page : page + page_size] for page in range(start, at + size, page_size)]
        found.setdefault(vid, []).append(Record(lsn, drawn, page_size, data[at + RECORD.size : start], pages))
        link, position = summed, position + -(-size // BLOCK) * BLOCK
    return found
