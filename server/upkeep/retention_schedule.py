"""Retention schedule: what a policy (volume/retention_policy.py) forgets at some time, and what it has held. Pure.

`since` moves up to the LSN that was the newest so long ago as every LSN stays; it moves in steps of a part of that
time, so that a volume which is always written to has a few records of it a day, and not one for each commit. Of the
LSNs that it passes, those are held that were the newest at a full hour, or at midnight. Each is held once for all the
hours it stands for, until the last of them is too long ago: so what is held doesn't depend on when anybody looked.

    time      10:20      11:40                            14:10
    LSN       7          8                                9
    hours          11:00 → 7    12:00, 13:00, 14:00 → 8

The cost is that of what `since` passes: LSNs are searched from the oldest on, in strides that double.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from ...volume.pins import DAILY, HOURLY
from ...volume.retention_policy import RetentionPolicy

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
STEPS: Final = 32
"""In which the time passes that every LSN stays."""
MOST_HOLDS: Final = 256
"""Of a kind, in one schedule."""

TimeOf = Callable[[int], int]
"""When the commit was made that made an LSN. Whatever it raises ends the schedule."""


class Hold(NamedTuple):
    lsn: int
    kind: str
    at_ms: int
    """The last full hour, or midnight, that it stands for."""
    until_ms: int


class Schedule(NamedTuple):
    since: int
    holds: tuple[Hold, ...]
    """Of the LSNs below that: what must be held before it moves."""
    whole: bool
    """Whether that is all; else the rest follows from there on."""


def schedule(policy: RetentionPolicy, time_of: TimeOf, oldest: int, head: int, now_ms: int) -> Schedule | None:
    """What there is to do, where each of the LSNs from `oldest` to `head` can be read; None for nothing."""
    if not policy.forgets or head <= oldest:
        return None
    step = max(1, policy.all_ms // STEPS)
    since = _newest_at((now_ms - policy.all_ms) // step * step, time_of, oldest, head)
    if since <= oldest:
        return None
    holds, whole = list[Hold](), True
    for kind, period in ((HOURLY, HOUR_MS), (DAILY, DAY_MS)):
        found = list(islice(_holds(policy, kind, period, time_of, oldest, since, now_ms), MOST_HOLDS + 1))
        if len(found) > MOST_HOLDS:
            since, whole = found[MOST_HOLDS].lsn, False
        holds += found
    return Schedule(since, tuple(sorted(hold for hold in holds if hold.lsn < since)), whole)


def kept_until(policy: RetentionPolicy, kind: str, at_ms: int) -> int:
    """Until when what stands for that hour or midnight is held; 0: for ever."""
    return at_ms + _lasting(policy, kind) if policy.forgets else 0


def _lasting(policy: RetentionPolicy, kind: str) -> int:
    return policy.hourly_ms if kind == HOURLY else policy.daily_ms


def _holds(
    policy: RetentionPolicy, kind: str, period: int, time_of: TimeOf, oldest: int, since: int, now_ms: int
) -> Iterator[Hold]:
    """Those of [oldest, since), ascending."""
    ended = now_ms - _lasting(policy, kind)
    at = max(-(-time_of(oldest) // period), ended // period + 1) * period
    lsn = oldest
    while at <= now_ms and (lsn := _newest_at(at, time_of, lsn, since)) < since:
        followed = time_of(lsn + 1)
        last = (followed - 1) // period * period
        yield Hold(lsn, kind, last, kept_until(policy, kind, last))
        at, lsn = last + period, lsn + 1


def _newest_at(ms: int, time_of: TimeOf, low: int, high: int) -> int:
    """The last of the LSNs [low, high] that is not later; below `low` if there is none."""
    stride, end = 1, low
    while end <= high and time_of(end) <= ms:
        low, end, stride = end + 1, end + stride, 2 * stride
    return low - 1 + bisect_right(range(low, min(end, high + 1)), ms, key=time_of)
