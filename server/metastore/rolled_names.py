"""Rolled names: what a rollup says of a namespace (volume/rollup.py; DESIGN §5, Names).

It is one rollup's word and stays so, whatever the log goes by later. All of it raises NotLoaded (store/tree_nodes.py)
where a node isn't in memory, and Corrupt where one is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...volume.envelope import decode
from ...volume.errors import Corrupt
from ...volume.rollup import (
    CHANGE,
    CLIENT,
    NAME,
    NAMES,
    RolledChange,
    RolledClient,
    RolledName,
    RolledNames,
    number,
    rollup_key,
    stream_key,
)
from .rolled_stream import RolledLog


class NamesBehind:
    """See name_map.NamesBelow. Threads may ask."""

    def __init__(self, log: RolledLog, stream: str) -> None:
        self._tree = log.tree
        self._rollup = rollup_key(log.log, log.name)
        self._key = stream_key(stream)

    def state(self) -> RolledNames | None:
        """None where it is no namespace, or there was nothing of it."""
        found = self._tree.get(self._key + NAMES)
        return None if found is None else decode(self._rollup, found, RolledNames)

    def get(self, name: str) -> RolledName | None:
        found = self._tree.get(self._key + NAME + name.encode())
        return None if found is None else decode(self._rollup, found, RolledName)

    def between(self, start: str, end: str) -> Iterator[tuple[str, RolledName]]:
        prefix = self._key + NAME
        last = prefix + end.encode() if end else _behind(prefix)
        for key, value in self._tree.entries(prefix + start.encode(), last):
            yield self._name_in(key[len(prefix) :]), decode(self._rollup, value, RolledName)

    def client(self, client: bytes) -> tuple[bytes, int] | None:
        """Of its newest change: the token and the LSN."""
        found = self._tree.get(self._key + CLIENT + client)
        return None if found is None else self._last_in(found)

    def clients(self) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        prefix = self._key + CLIENT
        found = self._tree.entries(prefix, _behind(prefix))
        return ((key[len(prefix) :], self._last_in(value)) for key, value in found)

    def changes(self, after: int) -> Iterator[RolledChange]:
        """Those behind that LSN that are remembered, oldest first."""
        prefix = self._key + CHANGE
        found = self._tree.entries(prefix + number(after + 1), _behind(prefix))
        return (decode(self._rollup, value, RolledChange) for _, value in found)

    def _last_in(self, value: bytes) -> tuple[bytes, int]:
        rolled = decode(self._rollup, value, RolledClient)
        return rolled.token, rolled.lsn

    def _name_in(self, key: bytes) -> str:
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise Corrupt(self._rollup, f"a name in it is no text: {key.hex()}") from error


class ClientsBehind:
    """See layered_map.Below."""

    def __init__(self, names: NamesBehind) -> None:
        self._names = names

    def get(self, client: bytes, /) -> tuple[bytes, int] | None:
        return self._names.client(client)

    def items(self) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        return self._names.clients()


def _behind(prefix: bytes) -> bytes:
    """Of all keys that begin so."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
