"""Lookup: which volume of a remote is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..remote.opening import Opening, Unopened, open_by_name
from ..remote.portal import BlockingRemote
from ..volume.calls import LOOKUP, SNAPSHOT, LookupRequest
from ..volume.errors import BadInput, NotFound
from ..volume.ids import VolumeId, check_utf8
from ..volume.name_attributes import volume_of

if TYPE_CHECKING:
    from ..volume.as_of import Time


def is_id(volume: str) -> bool:
    """Whether it is an id of 22 characters, and no name."""
    try:
        VolumeId.parse(volume)
    except BadInput:
        return False
    return True


def find_volume(remote: BlockingRemote, volume: str) -> VolumeId:
    """By its name, or its id of 22 characters, which asks nothing. Raises NotFound, BadInput."""
    check_utf8(volume, f"{volume!r} is no name: it")
    if is_id(volume):
        return VolumeId.parse(volume)
    entry = remote.ask(LOOKUP, LookupRequest(volume)).entry
    if entry is None:
        raise _unknown(remote, volume)
    return volume_of(entry, remote.url)


def open_volume(remote: BlockingRemote, name: str, lsn: int | None) -> Opening | None:
    """All that is needed to begin, in one request; None where it takes several. Raises NotFound."""
    opening = open_by_name(remote, name, lsn=lsn)
    if opening is Unopened.FREE:
        raise _unknown(remote, name)
    return opening if isinstance(opening, Opening) else None


def lsn_as_of(remote: BlockingRemote, vid: VolumeId, at: Time) -> int:
    """Raises BadInput, NotFound, Forgotten."""
    from ..volume.as_of import snapshot_request

    lsn = remote.ask(SNAPSHOT, snapshot_request(vid, at=at)).lsn
    if lsn == 0:
        raise BadInput(f"volume {vid} had no commits yet at {at}")
    return lsn


def _unknown(remote: BlockingRemote, name: str) -> NotFound:
    return NotFound(f"{remote.url} knows no volume {name!r}: make one with `budwood create` or `budwood import`")
