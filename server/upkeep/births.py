"""Births, as a scrub asks for them: each read when it is first wanted, and the forks of a volume."""

from __future__ import annotations

from typing import Final

from ...volume.errors import BadInput, Corrupt, NotFound, Unsupported
from ...volume.ids import VolumeId
from ...volume.lru_cache import LruCache
from ...volume.records import Birth
from ..metastore.births import birth_key, read_birth
from .objects import Objects

NO_BIRTH: Final = "it is missing, though its log carries records of the volume"
_KEPT: Final = 16_384


class Births:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known = LruCache[str, Birth](_KEPT)
        self._forks: dict[str, list[tuple[str, int]]] | None = None

    async def get(self, stream: str) -> Birth | None:
        """None where there is none that can be read."""
        try:
            return await self.read(stream)
        except (BadInput, NotFound, Corrupt, Unsupported):
            return None

    async def is_missing(self, stream: str) -> bool:
        """Whether there is none of that volume; one that can't be read is there."""
        try:
            await self.read(stream)
        except NotFound:
            return True
        except (BadInput, Corrupt, Unsupported):
            return False
        return False

    async def read(self, stream: str) -> Birth:
        """Raises BadInput where that is no volume's id, NotFound, Corrupt, Unsupported."""
        birth = self._known.get(stream)
        if birth is None:
            birth = await read_birth(self._objects.store, VolumeId.parse(stream), self._objects.patience)
            self._known.put(stream, birth)
        return birth

    async def all(self, start: str = "") -> list[str]:
        """Ids of volumes that have a birth, or had one: some of them, those behind `start`."""
        found: list[str] = []
        at = f"volumes/{start}0" if start else ""
        while len(found) < _PAGE and (keys := await self._objects.listed("volumes/", start=at, limit=_PAGE)):
            # One LIST finds as many as have few pins.
            found += dict.fromkeys(key.split("/")[1] for key in keys)
            # Behind all that lies below: "0" is the character after "/".
            at = f"volumes/{found[-1]}0"
        return found

    async def forks_of(self, stream: str) -> list[tuple[str, int]]:
        """Its forks, and the LSNs that they start from. All births are read at the first call."""
        if self._forks is None:
            self._forks = {}
            start = ""
            while vids := await self.all(start):
                for vid in vids:
                    birth = await self.get(vid)
                    if birth is not None and birth.parent:
                        self._forks.setdefault(_text(birth.parent), []).append((vid, birth.parent_lsn))
                start = vids[-1]
        return self._forks.get(stream, [])


_PAGE: Final = 256


def _text(raw: bytes) -> str:
    try:
        return str(VolumeId(raw))
    except BadInput:
        return ""


def key_of(stream: str) -> str:
    return birth_key(VolumeId.parse(stream))
