"""Conflict names: what an entry of this home is called where the remote has another one by its name:
`NAME (conflict CLIENT)`, then with numbers, within what a name may have. What gives way to another that is to be called
so on the remote is `NAME (moving CLIENT)` until that is done; this home never takes it for the entry's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..volume.ids import ClientId
from .environment import Environment

_LONGEST_PART_BYTES = 255
_LONGEST_BYTES = 1024


def conflict_names(environment: Environment, name: str, *, why: str = "conflict") -> Iterator[str]:
    """One after the other, without end."""
    above, slash, last = name.rpartition("/")
    number = 1
    while True:
        tail = f" ({why} {_client(environment)})" if number == 1 else f" ({why} {_client(environment)} {number})"
        room = min(_LONGEST_PART_BYTES, _LONGEST_BYTES - len((above + slash).encode())) - len(tail.encode())
        yield above + slash + last.encode()[:room].decode(errors="ignore") + tail
        number += 1


def is_conflict_name(environment: Environment, name: str, *, why: str = "conflict") -> bool:
    """Whether this home gave it."""
    return re.search(rf" \({why} {_client(environment)}(?: [0-9]+)?\)$", name) is not None


def _client(environment: Environment) -> str:
    return str(ClientId(environment.format.client))[-8:]
