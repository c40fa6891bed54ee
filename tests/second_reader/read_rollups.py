"""A rollup, as it is read: where its log stands, and the items of its tree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple, cast

from .basics import (
    EMPTY_SUM,
    NO_RULES,
    VOLUME,
    Damaged,
    Fields,
    Policy,
    Rules,
    add,
    base58,
    digest,
    page_set,
    sum_of,
    unbase58,
    unpack_map,
)
from .envelopes import object_of, unseal
from .namespaces import Name
from .trees import Pointer, items_of, keys_of

Items = dict[bytes, object]
Kept = tuple[int, int, int, bytes]
"""Of a commit: slot and size of its entry, the length before it, its record."""

NAME = re.compile("[0-9a-f]{16}/[0-9a-f]{64}")


class Stay(NamedTuple):
    """A volume's time in the log, and what its stream came to at the end of it."""

    start: int
    start_length: int
    opened: tuple[object, ...]
    closed: tuple[object, ...]
    head: int
    length: int
    time: int
    since: int
    collect: int
    collected: int
    fold: dict[str, object]
    policy: Policy | None
    rules: Rules


State = tuple[int, tuple[Stay, ...], bool, bytes]
"""Of a stream: the size of its pages, its stays, whether it is finished, and the sum of what was folded."""


class Run(NamedTuple):
    pages: frozenset[int]
    floor: int
    reach: int


class Position(NamedTuple):
    """How a log's chain goes on behind one of its slots."""

    epoch: int
    n: int
    writer: bytes
    canonical: int
    digest: bytes
    total: bytes
    collected: bytes
    named: str
    """The newest rollup that an entry up to there names."""
    garbage: str
    """The newest plan that one of them acknowledges."""
    fragments_since: int
    shards: int
    """The highest that one of them has named a fragment in."""


class Rollup:
    """One that stands, by its name. Raises Damaged, TooNew."""

    def __init__(self, objects: Mapping[str, bytes], log: str, name: str) -> None:
        self.log, self.name = log, name
        self.key = f"logs/{log}/rollups/{name}"
        self._objects = objects
        self._folder = f"logs/{log}/nodes"
        data = object_of(objects, self.key)
        self.fields = fields = unseal(self.key, b"BWRU", data).fields
        self.slot = fields.number("slot")
        self.previous = fields.text("previous", "")
        if (fields.text("log"), f"{self.slot:016x}/{digest(data).hex()}") != (log, name):
            raise Damaged(self.key, "it is another rollup, or other bytes than its name says")
        if self.previous and slot_of_rollup(self.key, self.previous) >= self.slot:
            raise Damaged(self.key, "it was made from a rollup of no fewer slots")
        self.position = Position(
            fields.number("epoch", 0),
            fields.number("n", 0, least=-1),
            fields.data("writer", b""),
            fields.number("canonical"),
            fields.data("digest"),
            sum_of(self.key, fields.data("total", EMPTY_SUM)),
            sum_of(self.key, fields.data("collected", EMPTY_SUM)),
            fields.text("named", ""),
            fields.text("garbage", ""),
            fields.number("fragments_since", 0),
            fields.number("shards", 0),
        )
        tree = fields.map("tree")
        self._tree = Pointer.of(Fields.of(self.key, tree)) if tree else None

    @cached_property
    def items(self) -> Items:
        live, items = EMPTY_SUM, Items()
        if self._tree is not None:
            if self._tree.number > self.slot:
                raise Damaged(self.key, "its tree is of a later slot")
            stored = items_of(self._objects, self._folder, self._tree, _weight)
            live, items = self._tree.setsum, {at: _value(self.key, at, value) for at, value in stored}
        if add(live, self.position.collected) != self.position.total:
            raise Damaged(self.key, "the sum of its tree and that of what was collected are not its log's total")
        states = (cast("State", value) for at, value in items.items() if at[16:17] == b"s")
        if self.fields.flag("folds") != any(stay.fold for _, stays, *_ in states for stay in stays):
            raise Damaged(self.key, "it says otherwise whether a stream was folded")
        if not self.fields.flag("policies") and any(_has_policy(at, value) for at, value in items.items()):
            raise Damaged(self.key, "it doesn't say that a stream has a policy")
        if not self.fields.flag("relocations") and any(_has_relocations(at, value) for at, value in items.items()):
            raise Damaged(self.key, "it doesn't say that a fold has relocated pages")
        if not self.fields.flag("rules") and any(_has_rules(at, value) for at, value in items.items()):
            raise Damaged(self.key, "it doesn't say that a stream has rules")
        if self.fields.flag("followed") and any(at[16:17] == b"p" for at in items):
            raise Damaged(self.key, "it says that every part was followed, and has one that was not")
        return items

    @property
    def nodes(self) -> set[str]:
        """The keys of its tree's."""
        return set() if self._tree is None else keys_of(self._objects, self._folder, self._tree)

    def state(self, stream: bytes) -> State | None:
        return cast("State | None", self.items.get(stream + b"s"))

    def commit(self, stream: bytes, lsn: int) -> Kept | None:
        return cast("Kept | None", self.items.get(stream + b"c" + lsn.to_bytes(8, "big")))

    def all_of(self, stream: bytes, letter: bytes) -> Items:
        """By what follows the letter."""
        start = stream + letter
        return {at[len(start) :]: value for at, value in self.items.items() if at.startswith(start)}


def slot_of_rollup(key: str, name: str) -> int:
    """That it covers, by its name."""
    if not NAME.fullmatch(name):
        raise Damaged(key, f"it names {name!r}, which is no rollup")
    return int(name[:16], 16)


def stream_key(name: str) -> bytes:
    """What all keys of a stream begin with."""
    try:
        raw = unbase58(name)
    except (ValueError, OverflowError):
        raw = b""
    is_volume = raw[:1] == bytes([VOLUME]) and base58(raw) == name
    return raw if is_volume else blake2b(name.encode(), digest_size=16).digest()


def _weight(key: str, at: bytes, value: bytes) -> bytes:
    """What an item adds to its leaf's sum."""
    fields = Fields(key, unpack_map(key, value))
    match at[16:17]:
        case b"c":
            return sum_of(key, Fields(key, unpack_map(key, fields.data("record"))).data("setsum"))
        case b"p":
            return sum_of(key, Fields.of(key, fields.map("part")).data("setsum", EMPTY_SUM))
        case b"s":
            return sum_of(key, fields.data("folded", EMPTY_SUM))
        case _:
            return EMPTY_SUM


def _value(key: str, at: bytes, value: bytes) -> object:
    fields = Fields(key, unpack_map(key, value))
    match at[16:17]:
        case b"s":
            stays = tuple(_stay(each) for each in fields.maps("stays"))
            return fields.number("page_size"), stays, fields.flag("finished"), fields.data("folded", EMPTY_SUM)
        case b"c":
            return fields.number("slot"), fields.number("size"), fields.number("before"), fields.data("record")
        case b"r":
            pages = frozenset(page_set(key, fields.data("pages")))
            return Run(pages, fields.number("floor"), fields.number("reach"))
        case b"k":
            return fields.data("token"), fields.number("base"), fields.number("lsn"), fields.number("time", 0)
        case b"f":
            return fields.number("lsn")
        case b"n":
            return fields.number("head"), fields.number("time"), fields.number("count"), fields.policy()
        case b"b":
            return *_name(fields), fields.data("token", b"")
        case b"h":
            was = tuple(None if each is None else _name(Fields.of(key, each)) for each in fields.items("was"))
            names = tuple(fields.items("names"))
            return fields.number("lsn"), names, fields.flag("below"), fields.number("time", 0), was
        case b"p":
            part = Fields.of(key, fields.map("part"))
            return fields.number("size"), part.items("records"), part.data("setsum", EMPTY_SUM)
        case _:
            raise Damaged(key, f"its tree has an item {at.hex()}, of no kind")


def _name(fields: Fields) -> Name:
    return Name(fields.data("target"), fields.number("revision"), fields.map("attributes"), fields.number("time", 0))


def _has_policy(at: bytes, value: object) -> bool:
    match at[16:17]:
        case b"s":
            return any(stay.policy is not None for stay in cast("State", value)[1])
        case b"n":
            return cast("tuple[object, ...]", value)[-1] is not None
        case _:
            return False


def _has_relocations(at: bytes, value: object) -> bool:
    stays = cast("State", value)[1] if at[16:17] == b"s" else ()
    return any("relocated" in stay.fold for stay in stays)


def _has_rules(at: bytes, value: object) -> bool:
    stays = cast("State", value)[1] if at[16:17] == b"s" else ()
    return any(stay.rules != NO_RULES for stay in stays)


def _stay(fields: Fields) -> Stay:
    return Stay(
        fields.number("start", 0),
        fields.number("start_length", 0),
        tuple(fields.items("opened")),
        tuple(fields.items("closed")),
        fields.number("head", 0),
        fields.number("length", 0),
        fields.number("time", 0),
        fields.number("since", 1),
        fields.number("collect", 0),
        fields.number("collected", 0),
        Fields.of(key=fields.key, value=fields.map("fold")).all(),
        fields.policy(),
        fields.rules(),
    )
