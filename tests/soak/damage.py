"""Damage: bytes of a home that are no more what was written; drawn from the seed, and told in words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import IO


def damage(home: Path, dice: random.Random) -> str:
    """In the local store's file, mostly where something is written; what was done, and where."""
    path = home / "store" / "data.mdb"
    size = path.stat().st_size
    with path.open("r+b") as file:
        way = dice.choice(["bit", "bit", "sector", "page", "end"])
        if way == "end":
            size = dice.randrange(size)
            file.truncate(size)
            return f"cut to {size} bytes"
        at = _written(file, size, dice)
        if way == "bit":
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ (1 << dice.randrange(8))]))
            return f"a bit at {at}"
        length = 512 if way == "sector" else 4096
        at -= at % length
        file.seek(at)
        file.write(bytes(min(length, size - at)))
        return f"{length} zeros at {at}"


def _written(file: IO[bytes], size: int, dice: random.Random) -> int:
    """A place where something other than zero is."""
    while True:
        at = dice.randrange(size)
        file.seek(at)
        if file.read(1) != b"\0":
            return at
