"""Access: organisations, keys and what a key may do, as they stand in a store (docs/design/0119).

    access/organisations/{name}     Organisation, once
    access/keys/{id}                Key, once
    access/revoked/{id}             Revocation, once: the key is none from then on

Each is created if it is absent, and never changed or deleted; so a store tells who could ever do what. A key's secret
is the seed of an Ed25519 key, of which the store has the public half: whoever reads the bucket can't sign with it.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

import msgspec

from .errors import BadInput

PREFIX: Final = "access/"
KEYS_PREFIX: Final = f"{PREFIX}keys/"
ORGANISATIONS_PREFIX: Final = f"{PREFIX}organisations/"
REVOKED_PREFIX: Final = f"{PREFIX}revoked/"
MOST_GRANTS: Final = 64

_ORGANISATION: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Right(IntEnum):
    """Each has what those before it have."""

    READ = 1
    WRITE = 2
    ADMIN = 3
    """Of an organisation's volumes: retention, removal, modes."""
    OPERATE = 4
    """Of the store: logs, nodes, moves, defaults. Keys of no organisation alone have it, by an admin's grant."""


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A right, of the volumes whose name starts with a prefix; of all, where that is ""."""

    right: str
    """read, write or admin."""
    prefix: str = ""


class Organisation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object. Its volumes are named in a namespace of its own."""

    name: str
    names: bytes
    """The VolumeId of that namespace."""
    time: int = 0


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object."""

    id: str
    label: str
    org: str = ""
    """"": the store's own."""
    public: bytes
    """Ed25519, 32 bytes."""
    grants: tuple[Grant, ...]
    time: int = 0
    expires: int = 0
    """Milliseconds since 1970; 0: never."""


class Revocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object."""

    id: str
    time: int = 0


def organisation_key(name: str) -> str:
    return f"{ORGANISATIONS_PREFIX}{name}"


def key_key(key_id: str) -> str:
    return f"{KEYS_PREFIX}{key_id}"


def revoked_key(key_id: str) -> str:
    return f"{REVOKED_PREFIX}{key_id}"


def check_organisation(name: str) -> str:
    """ "", or 1 to 32 of a-z, 0-9 and '-'. Raises BadInput."""
    if name and _ORGANISATION.fullmatch(name) is None:
        raise BadInput(f"{name[:100]!r} can't name an organisation: take 1 to 32 lower-case letters, digits or '-'")
    return name


def check_label(label: str) -> str:
    """Raises BadInput."""
    if _LABEL.fullmatch(label) is None:
        raise BadInput(f"{label[:100]!r} can't label a key: take 1 to 64 letters, digits, '.', '_' or '-'")
    return label


def check_grants(grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """Raises BadInput."""
    if not grants or len(grants) > MOST_GRANTS:
        raise BadInput(f"a key has 1 to {MOST_GRANTS} grants, not {len(grants)}")
    for grant in grants:
        right_of(grant)
    return grants


def right_of(grant: Grant) -> Right:
    """Raises BadInput."""
    rights = {"read": Right.READ, "write": Right.WRITE, "admin": Right.ADMIN}
    if grant.right not in rights:
        raise BadInput(f"{grant.right[:100]!r} is no right: take {', '.join(rights)}")
    return rights[grant.right]
