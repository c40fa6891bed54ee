"""Access to one node: from what a caller shows to the node as he may use it."""

from __future__ import annotations

from typing import Final

from ...volume.lru_cache import LruCache
from ...volume.protocols import Remote
from ..store.protocol import Store
from .credentials import digest
from .guarded import Guarded, Guards
from .principal import Principal, authenticated
from .registry import REVOKED_SECONDS, Registry

REMEMBERED: Final = 16_384


class Access:
    """Of the callers of `remote`, which serves `store`, whose id is `store_id`. Belongs to one event loop."""

    def __init__(self, remote: Remote, store: Store, store_id: str, registry: Registry) -> None:
        self._store_id = store_id
        self._registry = registry
        self._guards = Guards(remote, store, registry.patience)
        self._known = LruCache[bytes, tuple[Principal, float]](REMEMBERED)

    async def principal(self, text: str) -> Principal:
        """Who shows that text. Raises Unauthorized, Corrupt, Unavailable."""
        known, now = self._known.get(digest(text)), self._registry.patience.now()
        if known is not None and now < known[1]:
            principal, _ = known
            if not principal.until_ms or self._registry.now_ms() < principal.until_ms:
                return principal
        principal = await authenticated(self._registry, self._store_id, text)
        self._known.put(digest(text), (principal, now + REVOKED_SECONDS))
        return principal

    def of(self, principal: Principal) -> Guarded:
        """The node as he may use it."""
        return self._guards.of(principal)
