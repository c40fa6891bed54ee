"""Births: the objects that volumes begin with, each made once (DESIGN §4)."""

from __future__ import annotations

from typing import Final

from ...volume.envelope import BIRTH, decode, encode, open_head, seal, unseal
from ...volume.errors import AlreadyExists, Corrupt, NotFound
from ...volume.ids import VolumeId
from ...volume.page import check_page_size
from ...volume.records import Birth
from ..store.protocol import Store
from ..store.retrying import Patience, create_settled, get_retried

ENCRYPTED: Final = 1 << 0
"""Required feature of an encrypted volume's: whoever passed over that would take in pages that everyone can read."""


def birth_key(vid: VolumeId) -> str:
    return f"volumes/{vid}/birth"


async def make_birth(store: Store, birth: Birth, patience: Patience) -> bool:
    """Make the birth; whether this call made it. Raises AlreadyExists if another stands there that differs."""
    vid = VolumeId(birth.vid)
    check_page_size(birth.page_size)
    features = ENCRYPTED if birth.encryption else 0
    found = await create_settled(store, birth_key(vid), seal(BIRTH, encode(birth), features=features), patience)
    if found is None:
        return True
    stands = _parse(vid, found)
    wanted = (birth.page_size, birth.kind, birth.parent, birth.parent_lsn, bool(birth.encryption))
    if (stands.page_size, stands.kind, stands.parent, stands.parent_lsn, bool(stands.encryption)) != wanted:
        what = f"with pages of {stands.page_size} bytes" + (", as a fork" if stands.parent else "")
        what += ", encrypted" if stands.encryption else ", not encrypted"
        raise AlreadyExists(f"volume {vid} stands already, {what}")
    return False


async def read_birth(store: Store, vid: VolumeId, patience: Patience) -> Birth:
    """Raises NotFound, Corrupt."""
    try:
        return _parse(vid, await get_retried(store, birth_key(vid), patience=patience))
    except NotFound:
        raise NotFound(f"there is no volume {vid} in this store") from None


def _parse(vid: VolumeId, data: bytes) -> Birth:
    key = birth_key(vid)
    birth = decode(key, unseal(key, BIRTH, data), Birth)
    if birth.vid != vid.raw:
        raise Corrupt(key, "it is the birth of another volume")
    if birth.encryption and not open_head(key, BIRTH, data).features & ENCRYPTED:
        raise Corrupt(key, "it is an encrypted volume's, and does not say that its reader must know that")
    return birth
