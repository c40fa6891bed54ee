"""Name cipher: names and attributes that only those who hold a key can read (docs/design/0123, docs/encryption.md).

The same part of a name always comes to the same text, so that a node looks names up, lists below a prefix and moves
directories with no key. What it comes to is decided by the namespace's *name secret*: 64 bytes, made of the key that
was the first at hand when the first name was encrypted. So a name is looked up in one round trip.

Once others are to open names, the secret is wrapped for each of them, in a *names header*: an attribute of the name
`~`, which encrypts nothing itself. The secret stays, and with it every name.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from .encryption import LACKING, SALT_BYTES, VERSION, KeySlot, WrappingKey, invalid_tag, unwrapped
from .envelope import UNREADABLE, encode, unpack
from .errors import BadInput, Corrupt, Unsupported
from .ids import check_name
from .limits import MOST_PART_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

MARK: Final = "~"
"""Before each part of an encrypted name."""
HEADER_NAME: Final = MARK
"""Whose attributes hold the names header. It sorts before every encrypted name."""
MOST_PLAIN_PART_BYTES: Final = 142
_SECRET_BYTES: Final = 64
_PURPOSE: Final = b"budwood names"
_ATTRIBUTES = dict[str, Any]


class NamesHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The name secret, wrapped for each who holds a key to it."""

    version: int = VERSION
    id: bytes
    """16 random bytes."""
    slots: tuple[KeySlot, ...]

    @classmethod
    def parse(cls, data: object) -> Self:
        """Raises Corrupt on what is none, Unsupported on a newer version's."""
        try:
            header = unpack(data if isinstance(data, bytes) else b"", cls)
        except UNREADABLE as error:
            raise Corrupt("the remote's names", f"that is no names header: {error}") from error
        if header.version > VERSION:
            raise Unsupported(f"the names were encrypted by a newer Budwood (version {header.version}): upgrade")
        return header


class NameCipher:
    """Encrypts names part by part, and attributes, by AES-256-SIV. Not bound to where a part stands."""

    __slots__ = ("_secret", "_siv", "id")

    def __init__(self, secret: bytes) -> None:
        """Raises BadInput where it is none."""
        if len(secret) != _SECRET_BYTES:
            raise BadInput(f"a name secret has {_SECRET_BYTES} bytes")
        self._secret = secret
        self._siv = _siv(secret)
        self.id = hashlib.blake2b(secret, digest_size=8, person=b"budwood.names").digest()

    @classmethod
    def of(cls, holder: WrappingKey) -> Self:
        """The one of names that were first encrypted with that key at hand."""
        return cls(holder.derived(_PURPOSE))

    @classmethod
    def opened(cls, header: NamesHeader, holders: Iterable[WrappingKey]) -> Self | None:
        """By the first of these that fits; None where none does."""
        secret = unwrapped(header.id, header.slots, holders)
        return None if secret is None else cls(secret)

    def wrapped(self, holders: Iterable[WrappingKey]) -> bytes:
        """The header by which these open it, and no others."""
        id_ = os.urandom(SALT_BYTES)
        return encode(NamesHeader(id=id_, slots=tuple(holder.wrap(id_, self._secret) for holder in holders)))

    def encrypted(self, name: str) -> str:
        """`a/b` as `~…/~…`. A part of n bytes comes to 1.6 n + 27; raises BadInput where that is too long."""
        parts = [part and self._text(part) for part in name.split("/")]
        if any(len(part) > MOST_PART_BYTES for part in parts):
            raise BadInput(
                f"{name!r} is too long: a part of a name that is encrypted has {MOST_PLAIN_PART_BYTES} bytes at most"
            )
        return "/".join(parts)

    def decrypted(self, name: str) -> str | None:
        """None where it is none of these, or stands for what can be no name: no node could see to that."""
        parts = [self._plain(part) for part in name.split("/")]
        if any(part is None or "/" in part for part in parts):
            return None
        try:
            return check_name("/".join(part for part in parts if part is not None))
        except BadInput:
            return None

    def encrypted_attributes(self, attributes: dict[str, Any]) -> dict[str, Any]:
        return {MARK: self._siv.encrypt(encode(attributes), [b"attributes"])} if attributes else {}

    def decrypted_attributes(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Raises Corrupt where they are none of these."""
        if not attributes:
            return {}
        encrypted = attributes.get(MARK)
        try:
            plain = self._siv.decrypt(encrypted if isinstance(encrypted, bytes) else b"", [b"attributes"])
            return unpack(plain, _ATTRIBUTES)
        except (invalid_tag(), ValueError, *UNREADABLE):
            raise Corrupt("the remote's names", "the attributes of one are not what was encrypted for it") from None

    def _text(self, part: str) -> str:
        sealed = self._siv.encrypt(part.encode("utf-8", "surrogateescape"), [b"name"])
        return MARK + base64.b32encode(sealed).decode().rstrip("=").lower()

    def _plain(self, part: str) -> str | None:
        packed = part.removeprefix(MARK).upper()
        try:
            sealed = base64.b32decode(packed + "=" * (-len(packed) % 8))
            return self._siv.decrypt(sealed, [b"name"]).decode() if part.startswith(MARK) else None
        except (invalid_tag(), ValueError):
            return None


def _siv(key: bytes) -> AESSIV:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV
    except ImportError as error:
        raise BadInput(LACKING) from error
    return AESSIV(key)
