"""Offsets: how far a stream has come, as Spark keeps it in a checkpoint, and what a batch between two of them reads.

    {"volume": …, "table": …}                                       nothing was given yet: where every stream starts
    {"volume": …, "table": …, "lsn": 7, "snapshot": true}           a batch gave the whole table as LSN 7 has it
    {"volume": …, "table": …, "lsn": 9, "after": 7}                 a batch gave what LSNs 8 and 9 changed
    {"volume": …, "table": …, "lsn": 9, "after": 7, "net": true}    … as one change from LSN 7 to LSN 9
    {…, "pin": …, "before": …}                                      the pin that holds the LSN, and that of `after`

Spark writes the end of a batch down before it runs the batch, and after a crash runs it again between the same two
offsets. But where the first batch starts it does not write down: it asks anew, and the head may have moved. Hence:

1. What a batch reads is told by its end alone, `after` included. `start` is only checked against it.
2. A stream starts at a constant. The first batch says where it really began, if only by an end without rows.
3. The LSN of the offsets never falls, and where nothing is new the end is the start, byte for byte.
4. `after` of a batch is the LSN of the one before. Where it is higher, the LSNs between were forgotten, and were left
   out because the user had said so (failOnDataLoss=false): a loss is on record.
5. An offset names volume and table, so that a checkpoint is never continued with another's rows.

Nothing here does I/O or has a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...volume.errors import BadInput, Forgotten


@dataclass(frozen=True, slots=True)
class Offset:
    """`lsn` is None at the start. `after` is None for a batch that gave the whole table."""

    volume: str
    table: str
    lsn: int | None = None
    after: int | None = None
    net: bool = False
    pin: str = ""
    before: str = ""

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"volume": self.volume, "table": self.table}
        if self.lsn is not None:
            found["lsn"] = self.lsn
            found |= {"snapshot": True} if self.after is None else {"after": self.after}
        if self.net:
            found["net"] = True
        found |= {name: pin for name, pin in (("pin", self.pin), ("before", self.before)) if pin}
        return found


@dataclass(frozen=True, slots=True)
class AvailableLsns:
    """What can be read of a volume: every LSN from `oldest` to `newest`; and LSN 0, which is empty."""

    oldest: int
    newest: int


def parse_offset(raw: Mapping[str, Any]) -> Offset:
    """Raises BadInput for what no stream of ours has written."""
    match raw:
        case {"volume": str(volume), "table": str(table), **rest}:
            pass
        case _:
            raise BadInput(f"the checkpoint's offset is of another source: {dict(raw)}")
    lsn, after = rest.pop("lsn", None), rest.pop("after", None)
    snapshot, net = rest.pop("snapshot", False), rest.pop("net", False)
    pin, before = rest.pop("pin", ""), rest.pop("before", "")
    right = not rest and [type(value) for value in (snapshot, net, pin, before)] == [bool, bool, str, str]
    if lsn is None:
        right = right and after is None and not (snapshot or net or pin or before)
    elif right:
        right = _is_lsn(lsn) and (snapshot and not net if after is None else _is_lsn(after) and after <= lsn)
        right = right and not (snapshot and after is not None)
    if not right:
        raise BadInput(f"the checkpoint's offset is of a newer version, or damaged: {dict(raw)}")
    return Offset(volume, table, lsn, after, net, pin, before)


def _is_lsn(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def opening(
    start: Offset, available: AvailableLsns, first: int | None, *, limit: int | None, held: bool, loses: bool
) -> Offset:
    """The end of the first batch: the whole table, or where the LSN `first` was asked for, what changed from it on.

    `first` may be one above the newest: then the batch has no rows and only says where the stream begins. `held`: the
    LSN before `first` can be read even if it lies below the oldest, as LSN 0 always can.
    """
    assert start.lsn is None
    if first is None:
        return replace(start, lsn=available.newest)
    after = first - 1
    if after > available.newest:
        raise BadInput(f"startingVersion is {first}, and the newest LSN is {available.newest}: give one that is there")
    if loses and not is_whole(after, available, held=held):
        if held or after == 0:
            return replace(start, lsn=available.oldest, after=after, net=True)
        after = min(available.oldest, available.newest)
    check_start(after, available, held=held)
    return replace(start, lsn=_limited(after, available.newest, limit), after=after)


def check_start(after: int, available: AvailableLsns, *, held: bool = False) -> None:
    """Raises Forgotten unless every change behind that LSN can be told."""
    if after < available.newest and not is_whole(after, available, held=held):
        gone = after + 1 if held or after == 0 else after
        raise Forgotten(
            f"what LSN {after + 1} changed can't be told: LSN {gone} is forgotten; the volume's oldest readable LSN, "
            f"its since, is {available.oldest}: start with {available.oldest + 1} or later",
            oldest=available.oldest,
        )


def following(start: Offset, available: AvailableLsns, *, limit: int | None, held: bool, loses: bool) -> Offset | None:
    """The end of the next batch, at most `limit` LSNs on; None where nothing is new.

    `held`: the start's LSN can be read even if it lies below the oldest. `loses`: the user lets the stream go on
    where LSNs were forgotten: else that raises Forgotten.
    """
    after = start.lsn
    assert after is not None
    if available.newest <= after:
        return None
    if is_whole(after, available, held=held):
        return _next(start, after, _limited(after, available.newest, limit))
    if not loses:
        raise forgotten(after, available, held=held)
    if available.oldest > available.newest:
        return None
    if held:
        return _next(start, after, available.oldest, net=True)
    return _next(start, available.oldest, _limited(available.oldest, available.newest, limit))


def _next(start: Offset, after: int, lsn: int, *, net: bool = False) -> Offset:
    return Offset(start.volume, start.table, lsn, after, net, before=start.pin)


def is_whole(after: int, available: AvailableLsns, *, held: bool = False) -> bool:
    """Whether every step from that LSN on can be read: the LSN itself, which may be held, and all behind it."""
    return after >= available.oldest or ((held or after == 0) and available.oldest <= after + 1)


def forgotten(after: int, available: AvailableLsns, *, held: bool) -> Forgotten:
    way = (
        f"it still holds LSN {after}, so failOnDataLoss=false goes on with the sum of these changes as one"
        if held
        else "failOnDataLoss=false goes on without them, and a new checkpoint begins with the whole table again"
    )
    return Forgotten(
        f"the stream has come to LSN {after}, and what changed up to LSN {available.oldest} is forgotten "
        f"(the volume's oldest readable LSN, its since, is {available.oldest}): {way}",
        oldest=available.oldest,
    )


def _limited(after: int, newest: int, limit: int | None) -> int:
    return newest if limit is None else min(newest, after + limit)


def check_batch(start: Offset, end: Offset) -> None:
    """Raises BadInput unless a batch of one stream can go from the one to the other."""
    if (start.volume, start.table) != (end.volume, end.table):
        raise BadInput(
            f"the checkpoint is of table {end.table!r} of volume {end.volume}, and the query reads {start.table!r} of "
            f"volume {start.volume}: read that one by its id, or use a new checkpoint"
        )
    if end.lsn is None:
        raise BadInput("a batch can't end where every stream starts: the checkpoint is damaged")
    if start.lsn is not None and (end.after is None or end.after < start.lsn):
        raise BadInput(f"a batch from LSN {start.lsn} on can't end at {end.json()}: the checkpoint is damaged")


def steps(end: Offset, available: AvailableLsns, *, held: bool, loses: bool) -> list[tuple[int, int]]:
    """The pairs of LSNs whose differences make up a batch of changes.

    They are a function of `end`, as long as all of it can be read. A batch that was planned may be run again after
    LSNs of it were forgotten. Then it raises Forgotten, or, where the user accepts it, has what can still be had:
    the whole as one step if both of its ends are held (`held`), else the steps that are left. Of a batch of one step
    that is all there is.
    """
    after, last = end.after, end.lsn
    assert after is not None
    assert last is not None
    if after == last:
        return []
    if is_whole(after, available, held=held):
        return [(after, last)] if end.net else _each(after, last)
    if held and (end.net or last == after + 1):
        return [(after, last)]
    if not loses:
        raise forgotten(after, available, held=held)
    return [(after, last)] if held else _each(max(after, available.oldest), last)


def _each(after: int, last: int) -> list[tuple[int, int]]:
    return [(lsn - 1, lsn) for lsn in range(after + 1, last + 1)]
