"""Principal: who calls, and what he may do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ...volume.access import Grant, Key, Right, right_of
from ...volume.errors import BadInput, Forbidden, Unauthorized
from .credentials import KEY_MARK, MOST_BYTES, TOKEN_MARK, Secret, check_token, parse_secret, parse_token
from .registry import Registry

OPERATOR: Final = "operator"


class Principal(NamedTuple):
    name: str
    """As an audit's lines and limits have it: ORGANISATION/LABEL of a key, or LABEL where it has no organisation."""
    org: str
    """"": the store's own."""
    key: str
    """The key's id, by which volumes remember who made them; "" of the operator's token."""
    grants: tuple[Grant, ...]
    until_ms: int = 0
    """0: for ever."""

    def prefixes(self, right: Right) -> list[str]:
        """Of the names of volumes that he has it of, in his organisation; [""] for all."""
        if right is Right.OPERATE:
            return [""] if not self.org and self._has(Right.ADMIN, "") else []
        found = [grant.prefix for grant in self.grants if right_of(grant) >= right]
        return [""] if "" in found else found

    def check(self, right: Right, what: str, names: Iterable[str] = ("",)) -> None:
        """Raises Forbidden unless he has it of each of these names; "" is everything."""
        prefixes = self.prefixes(right)
        for name in names:
            if not any(name.startswith(prefix) for prefix in prefixes):
                raise self.refusal(right, what)

    def refusal(self, right: Right, what: str) -> Forbidden:
        who = "the store's admins" if right is Right.OPERATE else f"keys with the right to {right.name.lower()}"
        return Forbidden(f"{what} is for {who}: {self.name} is none of them")

    def _has(self, right: Right, prefix: str) -> bool:
        return any(right_of(grant) >= right and grant.prefix == prefix for grant in self.grants)


OPERATORS: Final = Principal(OPERATOR, "", "", (Grant("admin"),))
"""Whoever has the node's own token."""


async def authenticated(registry: Registry, store: str, text: str) -> Principal:
    """Whose credential that is, of the store of this id. Raises Unauthorized with a reason, Corrupt, Unavailable."""
    if len(text) > MOST_BYTES or not text.startswith((KEY_MARK, TOKEN_MARK)):
        raise Unauthorized("that is no key of this store, and no token: `budwood login` keeps one", reason="malformed")
    token = parse_token(text) if text.startswith(TOKEN_MARK) else None
    secret = None if token is not None else _parsed(text)
    key_id = token.claims.key if token is not None else secret.id if secret is not None else ""
    found = await registry.key(key_id)
    if found is None:
        raise Unauthorized(f"this store has no key {key_id[:40]!r}", reason="unknown")
    key, revoked = found
    if secret is not None and secret.public != key.public:
        raise Unauthorized(f"that is not key {key.id} of this store", reason="wrong")
    now_ms, grants, until = registry.now_ms(), key.grants, key.expires
    if token is not None:
        check_token(token, key, store=store, now_ms=now_ms)
        grants, until = _narrowed(key, token.claims.grants), min(token.claims.until, key.expires or token.claims.until)
    if revoked:
        raise Unauthorized(f"key {key.id} ({key.label}) was revoked", reason="revoked")
    if key.expires and now_ms >= key.expires:
        raise Unauthorized(f"key {key.id} ({key.label}) has expired: make another", reason="expired")
    name = f"{key.org}/{key.label}" if key.org else key.label
    return Principal(name, key.org, key.id, grants, until)


def _parsed(text: str) -> Secret:
    try:
        return parse_secret(text)
    except BadInput as error:
        raise Unauthorized(str(error), reason="malformed") from None


def _narrowed(key: Key, wanted: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """What a token grants. Raises Unauthorized where its key has less."""
    own = Principal(key.label, key.org, key.id, key.grants)
    for grant in wanted:
        try:
            right = right_of(grant)
        except BadInput as error:
            raise Unauthorized(f"the token says: {error}", reason="grants") from None
        if not any(grant.prefix.startswith(prefix) for prefix in own.prefixes(right)):
            words = f"the token grants {grant.right[:20]} of {grant.prefix[:100]!r}, which its key has not"
            raise Unauthorized(words, reason="grants")
    return wanted or key.grants
