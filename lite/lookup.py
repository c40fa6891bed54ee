"""Lookup: which volume of a remote is meant."""

from __future__ import annotations

from ..remote.portal import BlockingRemote
from ..volume.calls import LOOKUP, LookupRequest
from ..volume.errors import BadInput, NotFound
from ..volume.ids import VolumeId


def find_volume(remote: BlockingRemote, volume: str) -> VolumeId:
    """By its name, or its id of 22 characters, which asks nothing. Raises NotFound."""
    try:
        return VolumeId.parse(volume)
    except BadInput:
        entry = remote.ask(LOOKUP, LookupRequest(volume)).entry
    if entry is None:
        raise NotFound(f"{remote.url} knows no volume {volume!r}: make one with `budwood create` or `budwood import`")
    return VolumeId(entry.target)
