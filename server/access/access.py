"""Access to one node: from what a caller shows to the node as he may use it."""

from __future__ import annotations

from typing import Final

from ...volume.lru_cache import LruCache
from ...volume.protocols import Remote
from ..store.protocol import Store
from .credentials import digest
from .guarded import Guarded, Guards
from .principal import Principal, authenticated
from .registry import Registry

REMEMBERED: Final = 16_384


class Access:
    """Of the callers of `remote`, which serves `store`, whose id is `store_id`. Belongs to one event loop."""

    def __init__(self, remote: Remote, store: Store, store_id: str, registry: Registry) -> None:
        self._store_id = store_id
        self._registry = registry
        self._guards = Guards(remote, store, registry.patience)
        self._known = LruCache[bytes, Principal](REMEMBERED)
        """By what was shown: what has been verified once is not verified again."""

    async def principal(self, text: str) -> Principal:
        """Who shows that text. Raises Unauthorized, Corrupt, Unavailable."""
        seen = digest(text)
        known = self._known.get(seen)
        if known is not None and not (known.until_ms and self._registry.now_ms() >= known.until_ms):
            # Whether it was revoked since is the registry's to say, or a revocation would wait for two memories.
            found = await self._registry.key(known.key)
            if found is not None and not found[1]:
                return known
        principal = await authenticated(self._registry, self._store_id, text)
        self._known.put(seen, principal)
        return principal

    def of(self, principal: Principal) -> Guarded:
        """The node as he may use it."""
        return self._guards.of(principal)
