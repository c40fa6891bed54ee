"""Credentials: the two texts by which a caller says who he is, as `Authorization: Bearer TEXT`.

    bwk_{id}_{seed}{sum}      a key, shown once: 32 bytes that only its holder has
    bwt_{claims}.{signature}  a token, signed with a key by its holder: may do no more than the key, and not for long

A node needs nobody to verify either: it derives the public half of a key, or checks a signature against it, and the
store has that half (volume/access.py). A token names the store that it is for, since a copy of a store has the same
keys. Base64 as in URLs, without "="; the sum finds a key that was typed wrong before anyone is asked.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import string
from typing import Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ...volume.access import Grant, Key
from ...volume.decoded_kinds import decodable
from ...volume.errors import BadInput, Unauthorized

KEY_MARK: Final = "bwk_"
TOKEN_MARK: Final = "bwt_"
MOST_TOKEN_SECONDS: Final = 24 * 3600
SKEW_SECONDS: Final = 60
"""By which the clocks of a signer and a node may differ."""
MOST_BYTES: Final = 8192
"""Of a text: what is longer is none."""

_ID_LETTERS: Final = string.ascii_letters + string.digits
_ID_LENGTH: Final = 12
_SEED_BYTES: Final = 32
_SUM_BYTES: Final = 3
_CONTEXT: Final = b"budwood token 1\0"
"""Signed before the claims, so that no signature of something else is one of a token."""


class Secret(NamedTuple):
    """A key as its holder has it."""

    id: str
    seed: bytes

    @property
    def text(self) -> str:
        return f"{KEY_MARK}{self.id}_{_packed(self.seed + _sum(self.id, self.seed))}"

    @property
    def public(self) -> bytes:
        return _private(self.seed).public_key().public_bytes_raw()


class Claims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a token says. Times in milliseconds since 1970."""

    key: str
    store: str
    """The store's id."""
    since: int
    until: int
    grants: tuple[Grant, ...] = ()
    """Those of the key, where there are none."""


class Token(NamedTuple):
    claims: Claims
    signed: bytes
    signature: bytes


def new_secret() -> Secret:
    key_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
    return Secret(key_id, secrets.token_bytes(_SEED_BYTES))


def parse_secret(text: str) -> Secret:
    """Raises BadInput, which doesn't show the text."""
    key_id, _, packed = text.removeprefix(KEY_MARK).partition("_")
    data = _unpacked(packed)
    seed, found = data[:_SEED_BYTES], data[_SEED_BYTES:]
    if not text.startswith(KEY_MARK) or len(seed) != _SEED_BYTES or found != _sum(key_id, seed):
        raise BadInput("that is no key, or was not copied whole: a key begins with bwk_")
    return Secret(key_id, seed)


def sign(secret: Secret, claims: Claims) -> str:
    """The token. Raises BadInput for one that would be refused as too long."""
    if not 0 < claims.until - claims.since <= MOST_TOKEN_SECONDS * 1000:
        raise BadInput(f"a token holds for {MOST_TOKEN_SECONDS // 3600} hours at most")
    signed = msgspec.json.encode(claims)
    signature = _private(secret.seed).sign(_CONTEXT + signed)
    return f"{TOKEN_MARK}{_packed(signed)}.{_packed(signature)}"


def parse_token(text: str) -> Token:
    """Nothing of it is believed yet. Raises Unauthorized."""
    packed, _, signature = text.removeprefix(TOKEN_MARK).partition(".")
    signed = _unpacked(packed)
    try:
        claims = msgspec.json.decode(signed, type=decodable(Claims))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unauthorized("that is no token: it can't be read", reason="malformed") from error
    return Token(claims, signed, _unpacked(signature))


def check_token(token: Token, key: Key, *, store: str, now_ms: int) -> None:
    """That the key's holder has signed it, for this store, and that it holds now. Raises Unauthorized."""
    claims = token.claims
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(token.signature, _CONTEXT + token.signed)
    except InvalidSignature:
        raise Unauthorized("the token's signature is not its key's", reason="signature") from None
    if claims.store != store:
        raise Unauthorized(f"the token is for another store than this one, {store}", reason="store")
    if not 0 < claims.until - claims.since <= MOST_TOKEN_SECONDS * 1000:
        raise Unauthorized(
            f"the token would hold for longer than {MOST_TOKEN_SECONDS // 3600} hours", reason="lifetime"
        )
    if now_ms < claims.since - SKEW_SECONDS * 1000:
        raise Unauthorized("the token holds later only: look at the clock of whoever made it", reason="early")
    if now_ms >= claims.until + SKEW_SECONDS * 1000:
        raise Unauthorized("the token has expired: make another", reason="expired")


def digest(text: str) -> bytes:
    """By which a text that was looked at is known again, without being kept."""
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"budwood.access").digest()


def _private(seed: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seed)


def _sum(key_id: str, seed: bytes) -> bytes:
    return hashlib.blake2b(key_id.encode() + b"\0" + seed, digest_size=_SUM_BYTES, person=b"budwood.key").digest()


def _packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unpacked(text: str) -> bytes:
    """b"" for what is no such text, or for another spelling of one."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return b""
    return data if _packed(data) == text else b""
