"""Setsum: a checksum of a multiset that does not depend on order (S4.24; DESIGN §8).

Eight columns, each a sum modulo one of the eight largest primes below 2^32. An item is its SHA3-256 read as eight
little-endian u32. Insert adds, remove adds the inverse, so `sum(a) + sum(b) == sum(a and b)` and a part that was
taken out leaves exactly what remains.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Final, Self

from .errors import BadInput

__all__ = ["EMPTY_SUM", "Setsum", "item_hash", "log_item", "page_item"]

PRIMES: Final = tuple(2**32 - gap for gap in (5, 17, 65, 99, 107, 135, 153, 185))
EMPTY_SUM: Final = bytes(32)
"""The digest of nothing."""
_COLUMNS: Final = struct.Struct("<8I")
_INDEX: Final = struct.Struct("<I")
_LSN_INDEX: Final = struct.Struct("<QI")


def item_hash(item: bytes) -> bytes:
    """32 bytes that stand for one item."""
    return hashlib.sha3_256(item).digest()


def page_item(page: int, data: bytes | memoryview) -> bytes:
    """The content item's hash: page index ‖ page. It does not depend on the LSN, so that replicas compare."""
    digest = hashlib.sha3_256(_INDEX.pack(page))
    digest.update(data)
    return digest.digest()


def log_item(vid: bytes, lsn: int, page: int, data: bytes | memoryview) -> bytes:
    """The log item's hash: vid ‖ LSN ‖ page index ‖ page."""
    digest = hashlib.sha3_256(vid + _LSN_INDEX.pack(lsn, page))
    digest.update(data)
    return digest.digest()


class Setsum:
    """A running sum. Equal sums mean equal multisets, but for a chance of about 2^-256."""

    __slots__ = ("columns",)

    columns: tuple[int, ...]

    def __init__(self, columns: tuple[int, ...] = (0,) * 8) -> None:
        self.columns = columns

    @classmethod
    def of_hashes(cls, hashes: Iterable[bytes]) -> Self:
        """The sum of items given by their hashes (32 bytes each)."""
        totals = [0] * 8
        unpack = _COLUMNS.unpack
        for digest in hashes:
            for column, value in enumerate(unpack(digest)):
                totals[column] += value
        return cls(tuple(total % prime for total, prime in zip(totals, PRIMES, strict=True)))

    @classmethod
    def from_digest(cls, digest: bytes) -> Self:
        """Raises BadInput unless these are eight reduced columns."""
        if len(digest) != _COLUMNS.size:
            raise BadInput(f"a setsum has 32 bytes, not {len(digest)}")
        columns = _COLUMNS.unpack(digest)
        if any(value >= prime for value, prime in zip(columns, PRIMES, strict=True)):
            raise BadInput("a setsum's columns lie below their primes")
        return cls(columns)

    @property
    def digest(self) -> bytes:
        return _COLUMNS.pack(*self.columns)

    def insert(self, item: bytes) -> Setsum:
        return self + Setsum.of_hashes([item_hash(item)])

    def remove(self, item: bytes) -> Setsum:
        return self - Setsum.of_hashes([item_hash(item)])

    def __add__(self, other: Setsum) -> Setsum:
        return Setsum(tuple((a + b) % p for a, b, p in zip(self.columns, other.columns, PRIMES, strict=True)))

    def __sub__(self, other: Setsum) -> Setsum:
        return Setsum(tuple((a - b) % p for a, b, p in zip(self.columns, other.columns, PRIMES, strict=True)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setsum) and other.columns == self.columns

    def __hash__(self) -> int:
        return hash(self.columns)

    def __str__(self) -> str:
        return self.digest.hex()

    def __repr__(self) -> str:
        return f"Setsum({self})"
