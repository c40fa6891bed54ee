"""Volume reference: what any process needs to reach one volume: its remote's URL, its id, a token. It pickles.

A name is resolved once, where a job is planned: whatever the name leads to later, the job goes on with the volume that
it led to then.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...remote.open import check_url
from ...remote.token import carried
from ...remote.token import usual as usual_token
from ...volume.calls import LOOKUP, LookupRequest
from ...volume.errors import BadInput, NotFound
from ...volume.ids import VolumeId
from ...volume.name_attributes import volume_of
from ...volume.user_paths import expanded
from .remotes import connected

CACHE_BYTES: Final = 64 * 1024 * 1024
"""What a worker keeps of pages it has read, in memory."""


@dataclass(frozen=True, slots=True)
class VolumeRef:
    remote: str
    """The URL of a node or a store."""
    vid: VolumeId
    name: str
    """As the user named it: for messages, and for what is exported."""
    token: str = field(default="", repr=False)
    cache_bytes: int = CACHE_BYTES


def find_volume_ref(
    volume: str,
    *,
    remote: str | None = None,
    home: str | None = None,
    token: str | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> VolumeRef:
    """A volume by its name, or by its id of 22 characters.

    `home` is asked first, for the remote and the volume that an edge remembers by the name; `remote`, where it is
    given, goes before that remote. Names that no home knows are asked of `remote`, else of $BUDWOOD_REMOTE. Raises
    NotFound, BadInput, Unavailable.
    """
    token = usual_token(remote) if token is None else token
    usual = os.environ.get("BUDWOOD_REMOTE") or None
    if home is not None:
        remembered = _remembered(volume, expanded(home), token)
        if remembered is not None:
            theirs, vid, allowed = remembered
            url = remote or theirs or usual
            if not url:
                raise BadInput(f"the home {home} has never pushed volume {volume!r}: push it, then read it")
            if url not in {remote, usual}:
                token = allowed
            return VolumeRef(check_url(url), vid, volume, carried(token, url), cache_bytes)
        if not (remote or usual):
            raise NotFound(f"the home {home} knows no volume {volume!r}: name another, or give the option remote")
    remote = remote or usual
    if remote is None:
        raise BadInput("it isn't said where the volume lies: give the option remote (a URL) or home (an edge's folder)")
    url = check_url(remote)
    return VolumeRef(url, _looked_up(url, token, volume), volume, carried(token, url), cache_bytes)


def _looked_up(url: str, token: str, volume: str) -> VolumeId:
    """An id is taken as one and asks nothing."""
    try:
        return VolumeId.parse(volume)
    except BadInput:
        entry = connected(url, token).ask(LOOKUP, LookupRequest(volume)).entry
    if entry is None:
        raise NotFound(f"{url} knows no volume {volume!r}: see its names with `budwood ls --remote`")
    return volume_of(entry, url)


def _remembered(volume: str, home: Path, token: str) -> tuple[str, VolumeId, str] | None:
    """The remote and the volume there that a home knows by this name, and what of the token may go to that remote.
    Nothing in the home is changed."""
    from ...remote.token import Tokens
    from ...sync.connection import origin
    from ...sync.environment import open_environment
    from ...sync.name_table import find_volume
    from ...sync.tokens import given_for

    if not (home / "store").is_dir():
        raise NotFound(
            f"there is no home at {home}: give the folder that an edge uses, on the machine that plans the job"
        )
    environment = open_environment(home)
    try:
        record = find_volume(environment, volume)
        if record is None:
            return None
        return record.remote, origin(record), given_for(environment, Tokens.of(token), record.remote).text
    finally:
        environment.close()
