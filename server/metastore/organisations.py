"""Organisations, as they are made and looked for (volume/access.py). Each has a namespace, in a private log."""

from __future__ import annotations

from functools import partial
from typing import Final, TypeVar

import msgspec

from ...volume.access import ORGANISATIONS_PREFIX, Organisation, check_organisation, organisation_key
from ...volume.envelope import ORGANISATION, decode, encode, seal, unseal
from ...volume.errors import Corrupt, NotFound
from ...volume.ids import VolumeId
from ...volume.lru_cache import LruCache
from ..store.protocol import Store
from ..store.retrying import Patience, create_settled, get_retried, retried

REMEMBERED: Final = 16_384

T = TypeVar("T", bound=msgspec.Struct)


class Organisations:
    """Of one store. What was read of one stays true."""

    def __init__(self, store: Store, patience: Patience) -> None:
        self._store = store
        self._patience = patience
        self._known = LruCache[str, Organisation](REMEMBERED)

    async def get(self, name: str) -> Organisation:
        """Raises NotFound, Corrupt, Unavailable."""
        found = self._known.get(name)
        if found is None:
            key = organisation_key(check_organisation(name))
            try:
                data = await get_retried(self._store, key, patience=self._patience)
            except NotFound:
                raise NotFound(f"there is no organisation {name!r} in this store") from None
            found = parse_record(key, ORGANISATION, data, Organisation)
            self._known.put(name, found)
        return found

    async def make(self, name: str, now_ms: int) -> Organisation:
        """The one that stands afterwards. Raises BadInput, Corrupt, Unavailable."""
        wanted = Organisation(name=check_organisation(name), names=VolumeId.new(at_ms=now_ms).raw, time=now_ms)
        key = organisation_key(name)
        found = await create_settled(self._store, key, seal(ORGANISATION, encode(wanted)), self._patience)
        return wanted if found is None else parse_record(key, ORGANISATION, found, Organisation)

    async def all(self) -> list[str]:
        """Their names. Raises Unavailable."""
        listing = partial(self._store.list, ORGANISATIONS_PREFIX)
        keys = await retried(f"list {ORGANISATIONS_PREFIX}", listing, self._patience)
        return [key.removeprefix(ORGANISATIONS_PREFIX) for key in keys]

    async def namespaces(self) -> list[VolumeId]:
        """Of all of them. Raises Corrupt, Unavailable."""
        return [VolumeId((await self.get(name)).names) for name in await self.all()]


def parse_record(key: str, kind: bytes, data: bytes, record: type[T]) -> T:
    """The record of access at that key of the store. Raises Corrupt, Unsupported."""
    found = decode(key, unseal(key, kind, data), record)
    own = getattr(found, "id", "") or getattr(found, "name", "")
    if key.rpartition("/")[2] != own:
        raise Corrupt(key, f"it says that it is {own[:100]!r}")
    return found
