"""What the streams of a log come to, as the items of a rollup's tree.

A stream is followed part after part. The first part that can't be followed is kept as it stands, and so is everything
behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from .basics import (
    EMPTY_SUM,
    NO_RULES,
    Damaged,
    Fields,
    Policy,
    Rules,
    TooNew,
    add,
    page_count,
    page_set,
    sum_of,
    unpack_map,
)
from .envelopes import object_of, unseal
from .log import Entry
from .namespaces import Namespace
from .read_rollups import Kept, Rollup, Run, Stay, stream_key

FAN = 16
NO_FLOOR = 2**32
GONE = object()
REMEMBERED = 10_000
"""Changes of names."""


_ALL_THAT_FOLLOWS = {"since", "collect", "collected", "fold", "fold-relocating"}
"""The end of a volume."""


OPENS = {"open", "open-retained", "open-relocated", "open-ruled"}


def kind_of_open(rules: Rules, policy: Policy | None, fold: dict[str, object]) -> str:
    """It says what its reader must know."""
    if rules != NO_RULES:
        return "open-ruled"
    if "relocated" in fold:
        return "open-relocated"
    return "open" if policy is None else "open-retained"


class RolledStream:
    def __init__(self, objects: Mapping[str, bytes], log: str, name: str, base: Rollup | None = None) -> None:
        """`base` is the rollup that the log is read behind."""
        self.items: dict[bytes, object] = {}
        """By key, their values decoded as rollups.py does it."""
        self._log, self._name = log, name
        self._key = stream_key(name)
        self._page_size, self._birth = _birth(objects, name)
        self._names = Namespace(self._key) if not self._page_size else None
        """Without a birth it may be a namespace."""
        self._followed = True
        self._stays: list[Stay] = []
        self._runs: list[Run] = []
        """Of the last stay's commits, one by one."""
        self._finished = False
        self._folded = EMPTY_SUM
        self._forks: dict[bytes, int] = {}
        if base is not None:
            self._begin(base)

    def _begin(self, base: Rollup) -> None:
        self.items = {at: value for at, value in base.items.items() if at[:16] == self._key}
        self._followed = not base.all_of(self._key, b"p")
        state = base.state(self._key)
        if state is not None:
            self._names = None
            self._page_size, stays, self._finished, self._folded = state
            self._stays = list(stays)
            self._forks = {child: cast("int", lsn) for child, lsn in base.all_of(self._key, b"f").items()}
            self._runs = [
                self._run_of(base.commit(self._key, lsn)) for lsn in range(stays[-1].start + 1, stays[-1].head + 1)
            ]
        elif self._names is not None:
            self._names = Namespace.of(self._key, base)

    def _run_of(self, kept: Kept | None) -> Run:
        """Of one commit; of one that was folded it doesn't matter."""
        if kept is None:
            return Run(frozenset(), NO_FLOOR, 0)
        _, _, before, raw = kept
        record = Fields(self._name, unpack_map(self._name, raw))
        return self._run(record, before)

    def _run(self, record: Fields, before: int) -> Run:
        pages = frozenset(page_set(record.key, record.data("pages")))
        cut, reach = (page_count(each, self._page_size) for each in (record.number("floor"), before))
        return Run(pages, cut, reach) if cut < reach else Run(pages, NO_FLOOR, 0)

    def take(self, entry: Entry, size: int) -> None:
        if self._followed:
            made: dict[bytes, object] = {}
            try:
                if self._names is not None:
                    self._take_names(self._names.copy(), entry)
                    return
                records = zip(entry.records(self._name), entry.streams[self._name].items("records"), strict=True)
                for record, raw in records:
                    self._apply(record, raw, entry, size, made)
                made[self._key + b"s"] = self._page_size, tuple(self._stays), self._finished, self._folded
                self.items = {key: value for key, value in (self.items | made).items() if value is not GONE}
                return
            except (Damaged, TooNew):
                # The state is of no use any more: nothing is followed after this.
                self._followed = False
        part = entry.streams[self._name]
        self.items[self._key + b"p" + number(entry.slot)] = size, part.items("records"), part.data("setsum", EMPTY_SUM)

    def _take_names(self, names: Namespace, entry: Entry) -> None:
        for record in entry.records(self._name):
            names.take(record, entry.key)
        oldest = max(0, names.lsn - REMEMBERED) + 1
        self._names, key = names, self._key
        self.items = {key + b"n": (names.lsn, names.time, len(names.names), names.policy)}
        self.items |= {key + b"b" + name.encode(): (*n, names.tokens[name]) for name, n in names.names.items()}
        self.items |= {key + b"k" + client: (token, lsn - 1, lsn, 0) for client, (token, lsn) in names.clients.items()}
        self.items |= {key + b"h" + number(lsn): (lsn, *names.touched[lsn]) for lsn in range(oldest, names.lsn + 1)}

    def _apply(self, record: Fields, raw: bytes, entry: Entry, size: int, made: dict[bytes, object]) -> None:
        kind = record.text("k")
        _need(record.data("vid") == self._key, entry)
        if kind in OPENS and (not self._stays or self._stays[-1].closed):
            self._open(record, entry, made)
            return
        if not self._stays:
            _need(self._birth is not None and self._birth.text("log") == self._log, entry)
            self._stays.append(_born(self._birth))
        stay = self._stays[-1]
        _need(not stay.closed and (not self._finished or kind in _ALL_THAT_FOLLOWS), entry)
        match kind:
            case "commit" | "commit-bound":
                stay = stay._replace(rules=_ruling(record, stay, entry))
                stay = self._commit(record, raw, stay, entry, size, made)
            case "close":
                _need((record.number("head"), record.number("length")) == (stay.head, stay.length), entry)
                stay = stay._replace(closed=(record.text("to"), entry.slot))
            case "fork":
                self._fork(record, stay, entry, made)
            case "since" | "collect" | "collected":
                stay = self._retain(kind, record.number("since"), stay, entry)
            case "retain":
                stay = stay._replace(policy=record.policy())
            case "mode" | "writer-epoch":
                stay = stay._replace(rules=_ruling(record, stay, entry))
            case "fold" | "fold-relocating":
                stay = self._fold(record, stay, entry, made)
            case "tombstone":
                self._finished = True
            case _:
                raise Damaged(entry.key, f"a volume's stream has no {kind} there")
        self._stays[-1] = stay

    def _open(self, record: Fields, entry: Entry, made: dict[bytes, object]) -> None:
        head, length, newest = record.number("head"), record.number("length"), record.number("newest", 0)
        opened = record.text("log"), record.number("slot")
        retained = record.number("since", 1), record.number("collect", 0), record.number("collected", 0)
        fold = Fields.of(entry.key, record.map("fold")).all()
        policy, rules = record.policy(), record.rules()
        _need(record.text("k") == kind_of_open(rules, policy, fold), entry)
        self._stays.append(Stay(head, length, opened, (), head, length, newest, *retained, fold, policy, rules))
        self._runs = []
        self._without(Fields.of(entry.key, fold).number("lsn", 0), entry, made)
        for client, token, base, lsn in record.items("clients"):
            made[self._key + b"k" + client] = token, base, lsn, newest if lsn == head else 0
        stand = dict(record.items("forks"))
        for child in self._forks.keys() - stand.keys():
            del self._forks[child]
            made[self._key + b"f" + child] = GONE
        for child, lsn in stand.items():
            self._forks[child] = made[self._key + b"f" + child] = lsn

    def _commit(
        self, record: Fields, raw: bytes, stay: Stay, entry: Entry, size: int, made: dict[bytes, object]
    ) -> Stay:
        lsn, length, floor, time = (record.number(each) for each in ("lsn", "length", "floor", "time"))
        _need((record.number("base"), lsn) == (stay.head, stay.head + 1) and time > stay.time, entry)
        _need(floor <= min(stay.length, length), entry)
        places = record.maps("locations")
        _need(len(places) < 2 or all(place.data("pages", b"") for place in places), entry)
        made[self._key + b"c" + number(lsn)] = entry.slot, size, stay.length, raw
        if not record.data("client").endswith(bytes(4)):
            made[self._key + b"k" + record.data("client")] = record.data("token"), stay.head, lsn, time
        self._runs.append(self._run(record, stay.length))
        level, whole = 1, FAN
        while len(self._runs) % whole == 0:
            runs = self._runs[-whole:]
            place = number(stay.start) + bytes([level]) + number(len(self._runs) // whole - 1)
            union = frozenset(page for run in runs for page in run.pages)
            joined = Run(union, min(run.floor for run in runs), max(run.reach for run in runs))
            if lsn - whole >= Fields.of(entry.key, stay.fold).number("lsn", 0):
                made[self._key + b"r" + place] = joined
            level, whole = level + 1, whole * FAN
        return stay._replace(head=lsn, length=length, time=time)

    def _fold(self, record: Fields, stay: Stay, entry: Entry, made: dict[bytes, object]) -> Stay:
        """The commits that it has folded are the log's no more, nor are runs that begin with one."""
        lsn, before = record.number("lsn"), Fields.of(entry.key, stay.fold)
        _need(record.text("base", "") == before.text("checkpoint", ""), entry)
        _need(before.number("lsn", 0) <= lsn <= min(stay.collect, stay.head), entry)
        _need(before.number("relocated", 0) <= max(lsn, record.number("relocated", 0)) <= stay.head, entry)
        self._without(lsn, entry, made)
        for child in record.items("ended"):
            self._forks.pop(child, None)
            made[self._key + b"f" + child] = GONE
        return stay._replace(fold=record.all())

    def _without(self, lsn: int, entry: Entry, made: dict[bytes, object]) -> None:
        for key, value in (self.items | made).items():
            if key[16:17] == b"c" and int.from_bytes(key[17:], "big") <= lsn and value is not GONE:
                _, _, _, raw = cast("tuple[int, int, int, bytes]", value)
                setsum = Fields(entry.key, unpack_map(entry.key, raw)).data("setsum")
                self._folded = add(self._folded, sum_of(entry.key, setsum))
                made[key] = GONE
            if key[16:17] == b"r":
                start, level, place = (int.from_bytes(key[at:end], "big") for at, end in ((17, 25), (25, 26), (26, 34)))
                if start + place * FAN**level < lsn:
                    made[key] = GONE

    def _retain(self, kind: str, since: int, stay: Stay, entry: Entry) -> Stay:
        match kind:
            case "since":
                _need(stay.since < since <= stay.head + self._finished, entry)
                return stay._replace(since=since)
            case "collect":
                _need(stay.collect < since <= stay.since, entry)
                return stay._replace(collect=since)
            case _:
                _need(stay.collected < since <= stay.collect, entry)
                return stay._replace(collected=since)

    def _fork(self, record: Fields, stay: Stay, entry: Entry, made: dict[bytes, object]) -> None:
        child, lsn = record.data("child"), record.number("lsn")
        _need(lsn <= stay.head and self._forks.get(child, lsn) == lsn, entry)
        _need(lsn >= stay.collect or bool(record.data("pin", b"")) or lsn in self._forks.values(), entry)
        self._forks[child] = made[self._key + b"f" + child] = lsn


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _birth(objects: Mapping[str, bytes], name: str) -> tuple[int, Fields | None]:
    """The size of the volume's pages, 0 where there is no birth of one, and the birth."""
    key = f"volumes/{name}/birth"
    try:
        birth = unseal(key, b"BWVB", object_of(objects, key)).fields
        if birth.data("vid") == stream_key(name) and birth.text("kind", "pages") == "pages":
            return birth.number("page_size"), birth
    except (Damaged, TooNew):
        pass
    return 0, None


def _born(birth: Fields | None) -> Stay:
    assert birth is not None
    lsn, length = birth.number("parent_lsn", 0), birth.number("parent_length", 0)
    return Stay(lsn, length, (), (), lsn, length, birth.number("time", 0), max(1, lsn), 0, 0, {}, None, NO_RULES)


def _ruling(record: Fields, stay: Stay, entry: Entry) -> Rules:
    rules = record.ruling(stay.rules)
    if rules is None:
        raise Damaged(entry.key, "it carries what the volume's rules don't allow")
    return rules


def _need(holds: bool, entry: Entry) -> None:
    if not holds:
        raise Damaged(entry.key, "it carries what can't be followed")
