"""Registry: the keys of a store, as a node looks them up.

Records never change, so what was read stays true, but for two things that are looked at again each `REVOKED_SECONDS`,
if they are asked for: whether a key was revoked, and whether there is one that was not there. So a revocation holds at
every node that much later at the latest, and whoever uses a key costs the store one request in that time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec

from ...volume.access import (
    KEYS_PREFIX,
    REVOKED_PREFIX,
    Grant,
    Key,
    Revocation,
    check_grants,
    check_label,
    key_key,
    revoked_key,
)
from ...volume.envelope import KEY, REVOCATION, encode, seal
from ...volume.errors import NotFound
from ...volume.lru_cache import LruCache
from ..metastore.organisations import Organisations, parse_record
from ..pagestore.concurrent_map import concurrent_map, each
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience, create_settled, get_retried, retried
from .credentials import Secret, new_secret

REVOKED_SECONDS: Final = 10.0
REMEMBERED: Final = 65_536
_AT_ONCE: Final = 16

T = TypeVar("T", bound=msgspec.Struct)


class Registry:
    """Of one store. Belongs to one event loop."""

    def __init__(self, store: Store, now_ms: Callable[[], int], patience: Patience = PATIENT) -> None:
        self.store = store
        self.now_ms = now_ms
        self.patience = patience
        self.organisations = Organisations(store, patience)
        self._keys = LruCache[str, tuple[Key | None, bool, float]](REMEMBERED)
        """By id: the key, whether it was revoked, and when that was looked at."""

    async def key(self, key_id: str) -> tuple[Key, bool] | None:
        """And whether it was revoked; None where there is none. Raises Corrupt, Unavailable."""
        known, now = self._keys.get(key_id), self.patience.now()
        if known is not None and (known[1] or now < known[2] + REVOKED_SECONDS):
            return None if known[0] is None else (known[0], known[1])
        key = None if known is None else known[0]
        if key is None and _is_id(key_id):
            key = await self._read(key_key(key_id), KEY, Key)
        revoked = key is not None and await self._read(revoked_key(key_id), REVOCATION, Revocation) is not None
        self._keys.put(key_id, (key, revoked, now))
        return None if key is None else (key, revoked)

    async def make_key(
        self, label: str, grants: tuple[Grant, ...], *, org: str = "", expires_ms: int = 0
    ) -> tuple[Key, Secret]:
        """A new key, and what its holder is given. Raises BadInput, Unavailable."""
        check_label(label)
        check_grants(grants)
        if org:
            await self.organisations.make(org, self.now_ms())
        secret = new_secret()
        key = Key(
            id=secret.id,
            label=label,
            org=org,
            public=secret.public,
            grants=grants,
            time=self.now_ms(),
            expires=expires_ms,
        )
        return await self._make(key_key(key.id), KEY, key), secret

    async def revoke(self, key_id: str) -> Revocation:
        """The revocation that stands. Raises NotFound, Unavailable."""
        if not _is_id(key_id) or await self._read(key_key(key_id), KEY, Key) is None:
            raise NotFound(f"there is no key {key_id[:100]!r} in this store: `budwood keys list` has them")
        return await self._make(revoked_key(key_id), REVOCATION, Revocation(id=key_id, time=self.now_ms()))

    async def keys(self) -> list[tuple[Key, Revocation | None]]:
        """All that were ever made, oldest first."""
        revoked = {name.removeprefix(REVOKED_PREFIX) for name in await self._listed(REVOKED_PREFIX)}

        async def read(name: str) -> tuple[Key, Revocation | None] | None:
            key = await self._read(name, KEY, Key)
            if key is None:
                return None
            return key, await self._read(revoked_key(key.id), REVOCATION, Revocation) if key.id in revoked else None

        names = await self._listed(KEYS_PREFIX)
        async with concurrent_map(each(names), read, limit=_AT_ONCE, window=len(names) + 1) as rows:
            found = [row async for row in rows if row is not None]
        return sorted(found, key=lambda row: (row[0].time, row[0].id))

    async def has_keys(self) -> bool:
        return bool(await self._listed(KEYS_PREFIX, limit=1))

    async def _listed(self, prefix: str, limit: int | None = None) -> list[str]:
        listing = partial(self.store.list, prefix) if limit is None else partial(self.store.list, prefix, limit=limit)
        return await retried(f"list {prefix}", listing, self.patience)

    async def _read(self, name: str, kind: bytes, record: type[T]) -> T | None:
        try:
            return parse_record(name, kind, await get_retried(self.store, name, patience=self.patience), record)
        except NotFound:
            return None

    async def _make(self, name: str, kind: bytes, wanted: T) -> T:
        found = await create_settled(self.store, name, seal(kind, encode(wanted)), self.patience)
        return wanted if found is None else parse_record(name, kind, found, type(wanted))


def _is_id(key_id: str) -> bool:
    """Anything else would be another object's key."""
    return key_id.isascii() and key_id.isalnum() and len(key_id) <= 32
