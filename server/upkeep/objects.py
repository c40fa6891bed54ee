"""Objects: a store's, read raw, counted, and several at a time where that is asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from ...volume.envelope import head_length
from ...volume.errors import NotFound
from ..log.reader import MOST_HEAD_BYTES
from ..store.protocol import Keys, Store
from ..store.retrying import Patience, get_retried, retried
from ..store.tree_nodes import several_at_once

_PAGE: Final = 1000
"""Keys of one listing."""

_Get: TypeAlias = Callable[[str], Awaitable[bytes | None]]


class Objects:
    """Raises Unavailable and Unauthorized, as any request."""

    def __init__(self, store: Store, patience: Patience) -> None:
        self.store = store
        self.patience = patience
        self.count = 0
        self.bytes = 0

    async def get(self, key: str) -> bytes | None:
        """All of it; None where it is missing."""
        try:
            data = await get_retried(self.store, key, patience=self.patience)
        except NotFound:
            return None
        self.count += 1
        self.bytes += len(data)
        return data

    async def stands(self, key: str) -> bool:
        return (await self.listed(key, limit=1))[:1] == [key]

    async def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        return await self._all(keys, self.get)

    async def heads(self, keys: Sequence[str]) -> list[bytes | None]:
        """As much of them as their heads take, at least."""
        return await self._all(keys, self._head)

    async def keys(self, prefix: str, *, start: str = "") -> AsyncGenerator[str]:
        """Those that stand, sorted, from `start` on."""
        full = True
        while full:
            keys = await self.listed(prefix, start=start, limit=_PAGE)
            for key in keys:
                yield key
            full = len(keys) == _PAGE
            start = f"{keys[-1]}\0" if keys else ""

    async def listed(self, prefix: str, *, start: str = "", limit: int) -> Keys:
        asking = partial(self.store.list, prefix, start=start, limit=limit)
        return await retried(f"list {prefix}", asking, self.patience)

    async def _all(self, keys: Sequence[str], get: _Get) -> list[bytes | None]:
        found: list[bytes | None] = [None] * len(keys)

        async def read(at: int) -> None:
            found[at] = await get(keys[at])

        await several_at_once([partial(read, at) for at in range(len(keys))])
        return found

    async def _head(self, key: str) -> bytes | None:
        try:
            data = await get_retried(self.store, key, end=MOST_HEAD_BYTES, patience=self.patience)
            size = head_length(data)
            if size > len(data) == MOST_HEAD_BYTES:
                data += await get_retried(self.store, key, start=len(data), end=size, patience=self.patience)
        except NotFound:
            return None
        return data
