"""Setsum: a checksum of a multiset that does not depend on order (S4.24; DESIGN §8).

Eight columns, each a sum modulo one of the eight largest primes below 2^32. An item is its SHA3-256 read as eight
little-endian u32. Insert adds, remove adds the inverse, so `sum(a) + sum(b) == sum(a and b)` and a part that was
taken out leaves exactly what remains.

A page's bytes are hashed once: its *item hash*, which the index of its segment keeps, is its content item as it stands,
and its log item is hashed from that. So whoever has an index computes both sums of a commit and never sees a page.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Iterable
from operator import add, ge, mod, sub
from typing import Final, Self

from .errors import BadInput

PRIMES: Final = tuple(2**32 - gap for gap in (5, 17, 65, 99, 107, 135, 153, 185))
HASH_SIZE: Final = 32
EMPTY_SUM: Final = bytes(32)
"""The digest of nothing."""
_COLUMNS: Final = struct.Struct("<8I")
_NO_COLUMNS: Final = (0,) * 8
_EVERY_EIGHTH: Final = tuple(slice(column, None, 8) for column in range(8))
_INDEX: Final = struct.Struct("<I")
_LSN: Final = struct.Struct("<Q")
_sha3: Final = hashlib.sha3_256


def item_hash(page: int, data: bytes | memoryview) -> bytes:
    """Of page index ‖ page. It does not depend on the LSN, so that replicas compare."""
    return _sha3(_INDEX.pack(page) + data).digest()


def log_sum(vid: bytes, lsn: int, pages: Iterable[int], hashes: bytes) -> Setsum:
    """The sum of the log items, vid ‖ LSN ‖ page index ‖ item hash, of pages whose item hashes lie back to back."""
    prefix = vid + _LSN.pack(lsn)
    places = zip(pages, range(0, len(hashes), HASH_SIZE), strict=True)
    items = (_sha3(prefix + _INDEX.pack(page) + hashes[at : at + HASH_SIZE]).digest() for page, at in places)
    return Setsum.of(b"".join(items))


class Setsum:
    """A running sum. Equal sums mean equal multisets, but for a chance of about 2^-256."""

    __slots__ = ("columns",)

    columns: tuple[int, ...]

    def __init__(self, columns: tuple[int, ...] = _NO_COLUMNS) -> None:
        self.columns = columns

    @classmethod
    def of(cls, hashes: bytes) -> Self:
        """The sum of items given by their hashes, which lie back to back."""
        if len(hashes) == HASH_SIZE:
            # Most commits are of one page.
            return cls(tuple(map(mod, _COLUMNS.unpack(hashes), PRIMES)))
        words = array("I", hashes)
        return cls(tuple(map(mod, map(sum, map(words.__getitem__, _EVERY_EIGHTH)), PRIMES)))

    @classmethod
    def of_sums(cls, digests: Iterable[bytes]) -> Self:
        """The sum of sums given by their digests. Raises BadInput unless each is eight reduced columns."""
        parts = list(digests)
        if any(len(digest) != HASH_SIZE for digest in parts):
            raise BadInput("a setsum has 32 bytes")
        if len(parts) == 1:
            columns = _COLUMNS.unpack(parts[0])
            if any(map(ge, columns, PRIMES)):
                raise _not_reduced()
            return cls(columns)
        sums: list[int] = []
        for column, prime in zip(zip(*_COLUMNS.iter_unpack(b"".join(parts)), strict=True), PRIMES, strict=False):
            if max(column) >= prime:
                raise _not_reduced()
            sums.append(sum(column) % prime)
        return cls(tuple(sums)) if parts else cls()

    @property
    def digest(self) -> bytes:
        return _COLUMNS.pack(*self.columns)

    def __add__(self, other: Setsum) -> Setsum:
        if self.columns is _NO_COLUMNS:
            return other
        return Setsum(tuple(map(mod, map(add, self.columns, other.columns), PRIMES)))

    def __sub__(self, other: Setsum) -> Setsum:
        return Setsum(tuple(map(mod, map(sub, self.columns, other.columns), PRIMES)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setsum) and other.columns == self.columns

    def __hash__(self) -> int:
        return hash(self.columns)

    def __str__(self) -> str:
        return self.digest.hex()

    def __repr__(self) -> str:
        return f"Setsum({self})"


def _not_reduced() -> BadInput:
    return BadInput("a setsum's columns lie below their primes")
