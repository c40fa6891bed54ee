"""Log names: what the names of a log's objects say by themselves, none of them read (S4.7).

A log has no index beside its objects. An entry's name says its slot; a fragment's, under which number it was written,
and when; a rollup's, what it covers; a boundary's, where the log begins. So one listing makes anew what a reader goes
by. It can't say which entries are void, who acknowledged what, or which fragments were ever named: heads say that, and
`budwood scrub` reads them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...volume.entry import slot_of
from ...volume.errors import BadInput
from ...volume.fragments import fragment_name
from ...volume.ids import SegmentId
from ...volume.rollup import slot_of_rollup
from ..log.boundary import OVER
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience, retried

_PAGE: Final = 1000


@dataclass(slots=True)
class NumberNames:
    """What stands under a number: a writer's epoch or a transaction's, which the name doesn't tell."""

    taken: bool = False
    """Whether its epoch stands. Else nobody has it, or it was collected: what it has written is nobody's."""
    segments: int = 0
    others: int = 0
    """Nodes and deadlists of folds."""


@dataclass(slots=True)
class LogNames:
    log: str
    runs: list[range] = field(default_factory=list[range])
    """Slots whose entries stand, in ascending order; none touches the next."""
    boundary: int = 0
    rollups: list[int] = field(default_factory=list[int])
    """The last slot that each covers."""
    numbers: dict[int, NumberNames] = field(default_factory=dict[int, NumberNames])
    plans: int = 0
    unknown: list[str] = field(default_factory=list[str])
    """Keys of no kind that a log has."""

    @property
    def is_over(self) -> bool:
        """Whether its volume was removed, and the rest of this is to go."""
        return self.boundary == OVER

    @property
    def missing(self) -> list[range]:
        """Slots without an entry, below one that has it and not below the boundary; and the anchor's. What was in
        flight may leave such gaps near the end: a head behind one says whether it was acknowledged."""
        if self.is_over:
            return []
        ends = [0, *(run.stop for run in self.runs)]
        gaps = [range(end, run.start) for end, run in zip(ends, self.runs, strict=False)]
        below = [range(0, 1)] if self.runs and self.runs[0].start else []
        standing = [range(max(gap.start, self.boundary, 1), gap.stop) for gap in gaps]
        return below + [gap for gap in standing if gap]


async def names_of(store: Store, log: str, patience: Patience = PATIENT) -> LogNames:
    """By a LIST for each 1,000 objects. Raises Unavailable, Unauthorized."""
    names, prefix = LogNames(log), f"logs/{log}/"
    runs = list[range]()
    async with aclosing(_keys(store, prefix, patience)) as keys:
        async for key in keys:
            try:
                _take(names, runs, key.removeprefix(prefix).split("/"))
            except (BadInput, ValueError):
                names.unknown.append(key)
    names.runs = runs[::-1]
    return names


def _take(names: LogNames, runs: list[range], parts: list[str]) -> None:
    """`runs` come from the newest to the oldest, as the names do."""
    match parts:
        case ["entries", name]:
            slot = slot_of(_number(name))
            if runs and runs[-1].start == slot + 1:
                runs[-1] = range(slot, runs[-1].stop)
            else:
                runs.append(range(slot, slot + 1))
        case ["boundary", name]:
            names.boundary = max(names.boundary, slot_of(_number(name)))
        case ["rollups", slot, digest]:
            names.rollups.append(slot_of_rollup(f"{slot}/{digest}"))
        case ["nodes", slot, _]:
            _number(slot)
        case ["epochs", name]:
            _under(names, name).taken = True
        case ["t", name, last]:
            under = _under(names, name)
            if _is_segment(last):
                under.segments += 1
            else:
                under.others += 1
        case ["shards", _, name, _]:
            fragment_name(names.log, f"logs/{names.log}/{'/'.join(parts)}")
            _under(names, name).segments += 1
        case ["gc", name, *_]:
            _number(name)
            names.plans += parts[-1] == "plan"
        case _:
            raise BadInput("/".join(parts))


def _under(names: LogNames, name: str) -> NumberNames:
    return names.numbers.setdefault(int(_number(name), 16), NumberNames())


def _number(name: str) -> str:
    if len(name) != 16 or int(name, 16) < 0:
        raise BadInput(f"{name!r} is no number")
    return name


def _is_segment(name: str) -> bool:
    try:
        SegmentId.parse(name)
    except BadInput:
        return False
    return True


async def _keys(store: Store, prefix: str, patience: Patience) -> AsyncGenerator[str]:
    start, full = "", True
    while full:
        ask = partial(store.list, prefix, start=start, limit=_PAGE)
        keys = await retried(f"list {prefix}", ask, patience)
        for key in keys:
            yield key
        full = len(keys) == _PAGE
        start = f"{keys[-1]}\0" if keys else ""
