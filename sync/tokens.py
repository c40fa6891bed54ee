"""Tokens: for which remotes this home was given which token.

A home's volumes remember their remotes, and BUDWOOD_TOKEN may be set for one of them alone. So a token is sent to a
remote that a volume remembers only if somebody gave the two together before; the home keeps a digest of it, which is
of no use to anybody else.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from ..remote.token import Tokens, origin_of
from ..volume.errors import ReadOnly, StoreError
from .environment import Environment
from .tables import Txn

_KEY: Final = b"tokens"


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    given: dict[str, bytes] = {}
    """Origin → digest of the token that was last given with it."""


def given_for(environment: Environment, tokens: Tokens, url: str) -> Tokens:
    """What of it may go to a remote that nobody named now."""
    if not tokens.bare or not origin_of(url):
        return tokens
    with environment.view() as txn:
        known = _read(environment, txn).given.get(origin_of(url))
    return tokens if known == _digest(environment, tokens.bare) else tokens.withhold()


def note_given(environment: Environment, tokens: Tokens, url: str) -> None:
    """The token and this remote were given together."""
    origin = origin_of(url)
    if not tokens.bare or not origin:
        return
    digest = _digest(environment, tokens.bare)

    def put(txn: Txn) -> None:
        record = _Record(given={**_read(environment, txn).given, origin: digest})
        environment.put(txn, "meta", _KEY, record)

    with environment.view() as txn:
        if _read(environment, txn).given.get(origin) == digest:
            return
    try:
        environment.update(put)
    except (ReadOnly, StoreError):
        # A home that can't be written, or is full, is read all the same; the token is given again next time.
        return


def _read(environment: Environment, txn: Txn) -> _Record:
    return environment.get(txn, "meta", _KEY, _Record) or _Record()


def _digest(environment: Environment, token: str) -> bytes:
    return hashlib.blake2b(token.encode(), digest_size=32, key=environment.format.home, person=b"budwood.home").digest()
