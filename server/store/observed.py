"""ObservedStore: a store whose requests are told to whoever watches: of which kind they are, and how each ends."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from .protocol import Data, Keys, Sizes, Store


class StoreWatch(Protocol):
    """Entered as a request is made; left, with its error if it has one, as it ends."""

    def request(self, kind: str, key: str) -> AbstractContextManager[object]:
        """`kind` is get, create, delete or list. A key is for traces: there is no end of them."""
        ...


class ObservedStore:
    """See protocol.Store."""

    def __init__(self, inner: Store, watch: StoreWatch) -> None:
        self.inner = inner
        self._watch = watch

    @property
    def url(self) -> str:
        return self.inner.url

    def figures(self) -> dict[str, float]:
        """It counts nothing itself (figures.py)."""
        return {}

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        with self._watch.request("get", key):
            return await self.inner.get(key, start=start, end=end)

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        with self._watch.request("get", key):
            return await self.inner.get_tail(key, size)

    async def create(self, key: str, data: Data) -> None:
        with self._watch.request("create", key):
            await self.inner.create(key, data)

    async def delete(self, key: str) -> None:
        with self._watch.request("delete", key):
            await self.inner.delete(key)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        with self._watch.request("list", prefix):
            return await self.inner.list(prefix, start=start, limit=limit)

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        with self._watch.request("list", prefix):
            return await self.inner.sizes(prefix, start=start, limit=limit)

    async def aclose(self) -> None:
        await self.inner.aclose()
