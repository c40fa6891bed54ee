"""What every format rests on: ids, checksums, setsums, page sets, MessagePack maps."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
import xxhash
from pyroaring import BitMap

VOLUME, SEGMENT, CLIENT, STORE, PIN = 0x80, 0x81, 0x82, 0x83, 0x84
LETTERS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
PRIMES = [2**32 - gap for gap in (5, 17, 65, 99, 107, 135, 153, 185)]
EMPTY_SUM = bytes(32)
MOST_PAGE = 2**32 - 1

T = TypeVar("T")

xxh3: Callable[[bytes], int] = xxhash.xxh3_64_intdigest


class Damaged(Exception):
    """The bytes of an object, or of a row of a home, are not what was written."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key}: {what}")
        self.key = key


class TooNew(Exception):
    """Whoever wrote this knew a format, a feature or a kind that the document doesn't."""


def base58(raw: bytes) -> str:
    number, text = int.from_bytes(raw, "big"), ""
    for _ in range(22):
        number, digit = divmod(number, 58)
        text = LETTERS[digit] + text
    return text


def unbase58(text: str) -> bytes:
    number = 0
    for letter in text:
        number = number * 58 + LETTERS.index(letter)
    return number.to_bytes(16, "big")


def check_id(key: str, raw: bytes, kind: int) -> bytes:
    if len(raw) != 16 or raw[0] != kind:
        raise Damaged(key, f"{raw.hex()} is no id of type {kind:#x}")
    return raw


def shard_in(log: str, key: str) -> int:
    """Of a log's shards the one that a key lies in; 0: in none."""
    prefix = f"logs/{log}/shards/"
    return int(key[len(prefix) :][:2]) if key.startswith(prefix) else 0


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


def sum_of(key: str, data: bytes) -> bytes:
    """A setsum as it was read."""
    if len(data) != 32 or any(value >= prime for value, prime in zip(struct.unpack("<8I", data), PRIMES, strict=True)):
        raise Damaged(key, "a setsum has eight columns below their primes")
    return data


def _columns(sums: Iterable[bytes], sign: int) -> list[int]:
    rows = [struct.unpack("<8I", each) for each in sums]
    return [sign * sum(column) for column in zip(*rows, strict=True)] if rows else [0] * 8


def add(*sums: bytes) -> bytes:
    """The sum of setsums, and of items by their hashes."""
    return struct.pack("<8I", *(total % prime for total, prime in zip(_columns(sums, 1), PRIMES, strict=True)))


def subtract(total: bytes, part: bytes) -> bytes:
    both = zip(_columns([total], 1), _columns([part], -1), PRIMES, strict=True)
    return struct.pack("<8I", *((a + b) % prime for a, b, prime in both))


def log_item(vid: bytes, lsn: int, page: int, item_hash: bytes) -> bytes:
    """What an item of a log's sums is added as."""
    return hashlib.sha3_256(vid + struct.pack("<QI", lsn, page) + item_hash).digest()


def page_count(length: int, page_size: int) -> int:
    return -(-length // page_size)


def page_set(key: str, data: bytes) -> set[int]:
    try:
        pages = set(BitMap.deserialize(data))
    except (ValueError, IndexError) as error:
        raise Damaged(key, f"a page set can't be read: {error}") from error
    if 0 in pages:
        raise Damaged(key, "a page set holds page 0")
    return pages


def unpack_map(key: str, data: bytes) -> dict[str, Any]:
    try:
        return msgspec.msgpack.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(key, f"no MessagePack map: {error}") from error


Policy: TypeAlias = tuple[int, ...]
"""For how long: all, hourly, daily."""

Rules: TypeAlias = tuple[str, int, dict[str, tuple[int, int]]]
"""Mode, writer epoch, and by source: its offset, and the LSN that bound it."""

NO_RULES: Rules = ("optimistic", 0, {})


class Fields:
    """A MessagePack map, read field by field: each of one type, with a default or without."""

    def __init__(self, key: str, values: dict[str, Any]) -> None:
        self.key = key
        self._values = values

    @classmethod
    def of(cls, key: str, value: Any) -> Fields:
        if not isinstance(value, dict):
            raise Damaged(key, f"{value!r} stands where a map belongs")
        return cls(key, cast("dict[str, Any]", value))

    def all(self) -> dict[str, Any]:
        """Every field, but the kind."""
        return {name: value for name, value in self._values.items() if name != "k"}

    def is_set(self, name: str) -> bool:
        """Whether it is neither left out nor empty."""
        return bool(self._values.get(name))

    def _take(self, name: str, kind: type[T], default: T | None) -> T:
        value = self._values.get(name, default)
        if type(value) is not kind:
            raise Damaged(self.key, f"its field {name!r} is {value!r}, and no {kind.__name__}")
        return value

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        value = self._take(name, int, default)
        if not least <= value < 1 << 64:
            raise Damaged(self.key, f"its field {name!r} is {value}")
        return value

    def data(self, name: str, default: bytes | None = None) -> bytes:
        return self._take(name, bytes, default)

    def text(self, name: str, default: str | None = None) -> str:
        return self._take(name, str, default)

    def flag(self, name: str) -> bool:
        return self._take(name, bool, False)

    def items(self, name: str) -> list[Any]:
        return self._take(name, list, [])

    def maps(self, name: str) -> list[Fields]:
        return [Fields.of(self.key, each) for each in self.items(name)]

    def map(self, name: str) -> dict[str, Any]:
        return self._take(name, dict, {})

    def policy(self) -> Policy | None:
        """None where it is left out, which is something else than an empty one. An `open` has none."""
        if "policy" not in self._values or self._values.get("k") == "open":
            return None
        terms = Fields.of(self.key, self._values["policy"])
        return tuple(terms.number(name, 0) for name in ("all_ms", "hourly_ms", "daily_ms"))

    def rules(self) -> Rules:
        """Those that an `open` or a stay has."""
        if self._values.get("k", "open-ruled") != "open-ruled":
            return NO_RULES
        rules = Fields.of(self.key, self.map("rules"))
        sources = {each.text("source"): (each.number("offset"), each.number("lsn")) for each in rules.maps("sources")}
        if list(sources) != sorted(sources) or len(sources) != len(rules.maps("sources")):
            raise Damaged(self.key, "its sources are not sorted")
        return rules.text("mode", "optimistic"), rules.number("writer_epoch", 0), sources

    def ruling(self, rules: Rules) -> Rules | None:
        """What the rules are behind this record of a stream; None where they don't take it."""
        mode, epoch, sources = rules
        match self.text("k"):
            case "mode" if self.text("mode") in {"optimistic", "exclusive", "replicated"}:
                return self.text("mode"), epoch, sources
            case "writer-epoch" if mode == "exclusive" and self.number("epoch") == epoch + 1:
                return mode, epoch + 1, sources
            case "commit" | "commit-bound" if mode != "exclusive" or self.number("writer_epoch", 0) == epoch:
                offsets = {each.text("source"): each.number("offset") for each in self.maps("sources")}
                if bool(offsets) != (self.text("k") == "commit-bound") or len(offsets) != len(self.maps("sources")):
                    return None
                if any(source in sources and sources[source][0] >= offset for source, offset in offsets.items()):
                    return None
                return mode, epoch, sources | {source: (at, self.number("lsn")) for source, at in offsets.items()}
            case _:
                return None
