"""Names: what a namespace's stream comes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .basics import Damaged, Fields, Policy

if TYPE_CHECKING:
    from .log import Placed
    from .read_rollups import Rollup


class Name(NamedTuple):
    target: bytes
    revision: int
    attributes: dict[str, Any]
    time: int


class Namespace:
    """What a stream of names has come to."""

    def __init__(self, vid: bytes) -> None:
        self.vid = vid
        self.lsn = self.time = 0
        self.names: dict[str, Name] = {}
        self.policy: Policy | None = None
        """The default of the store's volumes."""
        self.tokens: dict[str, bytes] = {}
        """Of the change that each was written by."""
        self.clients: dict[bytes, tuple[bytes, int]] = {}
        """Each one's newest change: the token and the LSN."""
        self.touched: dict[int, tuple[tuple[str, ...], bool, int, tuple[Name | None, ...]]] = {}
        """By LSN: the names that a change states, and whether all below them is touched, too; its time, and what stood
        under those names before."""

    @classmethod
    def of(cls, vid: bytes, base: Rollup | None) -> Namespace:
        """As a rollup has it."""
        space = cls(vid)
        stands = base.items.get(vid + b"n") if base is not None else None
        if base is None or stands is None:
            return space
        space.lsn, space.time, count, space.policy = cast("tuple[int, int, int, Policy | None]", stands)
        for name, value in base.all_of(vid, b"b").items():
            *bound, token = cast("tuple[Any, ...]", value)
            space.names[name.decode()] = Name(*bound)
            space.tokens[name.decode()] = token
        for client, last in base.all_of(vid, b"k").items():
            token, _, lsn, _ = cast("tuple[bytes, int, int, int]", last)
            space.clients[client] = token, lsn
        for change in base.all_of(vid, b"h").values():
            lsn, *told = cast("tuple[Any, ...]", change)
            space.touched[lsn] = cast("Any", tuple(told))
        if len(space.names) != count:
            raise Damaged(base.key, f"it counts {count} names, and has {len(space.names)}")
        return space

    def copy(self) -> Namespace:
        other = Namespace(self.vid)
        other.lsn, other.time, other.policy = self.lsn, self.time, self.policy
        other.names, other.tokens = dict(self.names), dict(self.tokens)
        other.clients, other.touched = dict(self.clients), dict(self.touched)
        return other

    def take(self, record: Fields, key: str) -> None:
        """Raises Damaged, and is of no use then."""
        if record.text("k") == "retain" and record.data("vid") == self.vid:
            self.policy = record.policy()
            return
        if record.text("k") != "names" or record.data("vid") != self.vid:
            raise Damaged(key, "a namespace takes changes of its names alone")
        if record.number("lsn") != self.lsn + 1 or record.number("time", 0) <= self.time:
            raise Damaged(key, f"change {record.number('lsn')} of the names can't follow {self.lsn}")
        self.lsn, self.time = self.lsn + 1, record.number("time")
        touched = [(each.text("name"), each.number("revision")) for each in record.maps("touched")]
        for name, revision in touched:
            if (self.names[name].revision if name in self.names else 0) != revision:
                raise Damaged(key, f"the name {name!r} is at another revision")
        before, was = set(self.names), tuple(self.names.get(name) for name, _ in touched)
        _change(self.names, record, touched, self.lsn, self.time)
        token = record.data("token", b"")
        for name in before - self.names.keys():
            del self.tokens[name]
        self.tokens |= {name: token for name, bound in self.names.items() if bound.revision == self.lsn}
        self.clients[record.data("client", b"")] = token, self.lsn
        stated, below = tuple(name for name, _ in touched), record.text("op") == "move"
        self.touched[self.lsn] = stated, below, self.time, was


def namespace_of(vid: bytes, base: Rollup | None, stream: Iterable[Placed]) -> Namespace:
    space = Namespace.of(vid, base)
    for record, entry in stream:
        space.take(record, entry.key)
    return space


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
