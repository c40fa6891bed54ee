"""Access check: what stands under access/ is what it says (volume/access.py)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from ...volume.access import (
    KEYS_PREFIX,
    ORGANISATIONS_PREFIX,
    PREFIX,
    REVOKED_PREFIX,
    Key,
    Organisation,
    Revocation,
    organisation_key,
)
from ...volume.envelope import KEY, ORGANISATION, REVOCATION
from ...volume.errors import Corrupt, Unsupported
from ...volume.ids import VolumeId
from ..metastore.organisations import parse_record
from .findings import Findings, Wrong, words_of
from .objects import Objects

_SPOILT: Final = {
    ORGANISATIONS_PREFIX: "so that nobody finds the organisation's names",
    KEYS_PREFIX: "so that no node takes the key",
    REVOKED_PREFIX: "so that no node takes the key, which was revoked",
}
_KINDS: Final[dict[str, tuple[bytes, type[msgspec.Struct]]]] = {
    ORGANISATIONS_PREFIX: (ORGANISATION, Organisation),
    KEYS_PREFIX: (KEY, Key),
    REVOKED_PREFIX: (REVOCATION, Revocation),
}


async def check_access(objects: Objects, findings: Findings) -> None:
    """Raises Unavailable, Unauthorized."""
    stand, named = set[str](), set[str]()
    async for key, found in _records(objects):
        stand.add(key)
        if isinstance(found, Corrupt | Unsupported):
            prefix = next((each for each in _KINDS if key.startswith(each)), "")
            spoilt = f", {_SPOILT[prefix]}" if prefix else ""
            findings.tell(Wrong(key, [f"{words_of(key, found)}{spoilt}"]))
        elif isinstance(found, Key) and found.org:
            named.add(organisation_key(found.org))
    for key in sorted(named - stand):
        findings.tell(Wrong(key, [f"it is missing, though it has keys, {_SPOILT[ORGANISATIONS_PREFIX]}"]))


async def namespaces(objects: Objects) -> list[str]:
    """The ids of organisations' namespaces, as far as they can be read. Raises Unavailable, Unauthorized."""
    return [
        str(VolumeId(found.names))
        async for _, found in _records(objects, ORGANISATIONS_PREFIX)
        if isinstance(found, Organisation)
    ]


async def _records(
    objects: Objects, prefix: str = PREFIX
) -> AsyncGenerator[tuple[str, msgspec.Struct | Corrupt | Unsupported]]:
    async for key in objects.keys(prefix):
        kind = next((kind for start, kind in _KINDS.items() if key.startswith(start)), None)
        if kind is None:
            yield key, Corrupt(key, "it is no object of a store")
            continue
        data = await objects.get(key)
        try:
            if data is not None:
                yield key, parse_record(key, kind[0], data, kind[1])
        except (Corrupt, Unsupported) as error:
            yield key, error
