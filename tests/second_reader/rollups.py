"""Rollups: each is what its log comes to at its slot, to the last item.

The log is followed from slot 0 on, and every item of every rollup compared with what that comes to. So a rollup that is
whole, and says something else than its log, is damage too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from .basics import EMPTY_SUM, Damaged, Fields, add, digest, page_set, sum_of, unpack_map
from .envelopes import unseal
from .log import Log, Position, slot_of_rollup
from .namespaces import Name
from .rolled_streams import RolledStream, Run, Stay
from .trees import Pointer, check_names, items_of

Items = dict[bytes, object]


def check_rollups(objects: Mapping[str, bytes], log: Log) -> dict[str, Items]:
    """All of a log that stand, those that no entry names too: what each holds. Raises Damaged, TooNew."""
    prefix = f"logs/{log.name}/rollups/"
    rollups: dict[str, Items] = {}
    streams: dict[str, RolledStream] = {}
    waiting = list(reversed(log.canonical))
    for key in sorted(key for key in objects if key.startswith(prefix)):
        fields = unseal(key, b"BWRU", objects[key]).fields
        slot = fields.number("slot")
        if (fields.text("log"), f"{slot:016x}/{digest(objects[key]).hex()}") != (log.name, key[len(prefix) :]):
            raise Damaged(key, "it is another rollup, or other bytes than its name says")
        _check_position(key, fields, log)
        while waiting and waiting[-1].slot <= slot:
            entry = waiting.pop()
            for name in entry.streams:
                stream = streams.setdefault(name, RolledStream(objects, log.name, name))
                stream.take(entry, len(objects[entry.key]))
        rollups[key] = _items(objects, key, fields, log)
        stays = (stay for at, value in rollups[key].items() if at[16:17] == b"s" for stay in _stays(value))
        if fields.flag("folds") != any(stay.fold for stay in stays):
            raise Damaged(key, "it says otherwise whether a stream was folded")
        _compare(key, rollups[key], streams)
    check_names(objects, f"logs/{log.name}/nodes")
    return rollups


def _check_position(key: str, fields: Fields, log: Log) -> None:
    slot, previous = fields.number("slot"), fields.text("previous", "")
    told = Position(
        fields.number("epoch", 0),
        fields.number("n", 0, least=-1),
        fields.data("writer", b""),
        fields.number("canonical"),
        fields.data("digest"),
        sum_of(key, fields.data("total", EMPTY_SUM)),
        sum_of(key, fields.data("collected", EMPTY_SUM)),
        fields.text("named", ""),
    )
    if slot >= log.end or told != log.positions[slot]:
        raise Damaged(key, f"its log doesn't stand at slot {slot} as it says")
    if previous and slot_of_rollup(key, previous) >= slot:
        raise Damaged(key, "it was made from a rollup of no fewer slots")


def _items(objects: Mapping[str, bytes], key: str, fields: Fields, log: Log) -> Items:
    live, items = EMPTY_SUM, Items()
    if fields.map("tree"):
        tree = Pointer.of(Fields.of(key, fields.map("tree")))
        if tree.number > fields.number("slot"):
            raise Damaged(key, "its tree is of a later slot")
        stored = items_of(objects, f"logs/{log.name}/nodes", tree, _weight)
        live, items = tree.setsum, {at: _value(key, at, value) for at, value in stored}
    if add(live, fields.data("collected", EMPTY_SUM)) != fields.data("total", EMPTY_SUM):
        raise Damaged(key, "the sum of its tree and that of what was collected are not its log's total")
    return items


def _compare(key: str, found: Items, streams: Mapping[str, RolledStream]) -> None:
    expected: Items = {}
    for stream in streams.values():
        expected |= stream.items
    for at in sorted(found.keys() | expected.keys()):
        if at not in found or at not in expected or found[at] != expected[at]:
            told, known = found.get(at, "nothing"), expected.get(at, "nothing")
            raise Damaged(key, f"of {at.hex()} it says {told}, and its log {known}")


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
            return fields.number("head"), fields.number("time"), fields.number("count")
        case b"b":
            attributes = fields.map("attributes")
            bound = Name(fields.data("target"), fields.number("revision"), attributes, fields.number("time", 0))
            return *bound, fields.data("token", b"")
        case b"h":
            return fields.number("lsn"), tuple(fields.items("names")), fields.flag("below")
        case b"p":
            part = Fields.of(key, fields.map("part"))
            return fields.number("size"), part.items("records"), part.data("setsum", EMPTY_SUM)
        case _:
            raise Damaged(key, f"its tree has an item {at.hex()}, of no kind")


def _stays(value: object) -> tuple[Stay, ...]:
    _, stays, *_ = cast("tuple[int, tuple[Stay, ...], bool, bytes]", value)
    return stays


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
    )
