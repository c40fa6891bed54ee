"""Names: what a namespace's stream comes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from .basics import Damaged, Fields
from .log import Placed


class Name(NamedTuple):
    target: bytes
    revision: int
    attributes: dict[str, Any]
    time: int


def names_of(vid: bytes, stream: Iterable[Placed]) -> dict[str, Name]:
    names: dict[str, Name] = {}
    lsn = time = 0
    for record, entry in stream:
        if record.text("k") != "names" or record.data("vid") != vid:
            raise Damaged(entry.key, "a namespace takes changes of its names alone")
        if record.number("lsn") != lsn + 1 or record.number("time", 0) <= time:
            raise Damaged(entry.key, f"change {record.number('lsn')} of the names can't follow {lsn}")
        lsn, time = lsn + 1, record.number("time")
        touched = [(each.text("name"), each.number("revision")) for each in record.maps("touched")]
        for name, revision in touched:
            if (names[name].revision if name in names else 0) != revision:
                raise Damaged(entry.key, f"the name {name!r} is at another revision")
        _change(names, record, touched, lsn, time)
    return names


def _change(names: dict[str, Name], record: Fields, touched: list[tuple[str, int]], lsn: int, time: int) -> None:
    match record.text("op"), touched:
        case "bind", [(name, _)]:
            attributes = record.map("attributes")
            names[name] = Name(record.data("target", b""), lsn, attributes if _depth(attributes) <= 64 else {}, time)
        case "unbind", [(name, revision)] if revision:
            del names[name]
        case "move", [(old, revision), (new, _)] if not f"{new}/".startswith(f"{old}/"):
            moving = {name for name in names if name.startswith(f"{old}/")} | ({old} if revision else set[str]())
            standing = {name for name in names if name.startswith(f"{new}/")} - moving - {old}
            if not moving or standing:
                raise Damaged(record.key, f"{old!r} can't be moved to {new!r}")
            moved = {new + name[len(old) :]: names.pop(name) for name in sorted(moving)}
            names.pop(new, None)
            names |= {name: bound._replace(revision=lsn, time=time) for name, bound in moved.items()}
        case op, _:
            raise Damaged(record.key, f"a change of names by {op!r} that can't be")


def _depth(attributes: Any) -> int:
    level: list[Any] = [attributes]
    depth = -1
    while level:
        depth += 1
        level = [inner for each in level for inner in _held(each)]
    return depth


def _held(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("Mapping[str, Any]", value).values()
    return cast("Iterable[Any]", value) if isinstance(value, list) else ()
