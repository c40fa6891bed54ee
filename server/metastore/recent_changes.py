"""Recent changes: which names the newest changes of a namespace touched, so that an edge is told of those and not of
all.

A change touches the names that it states; a move touches what lies below the two as well. What stands at a touched name
was written by that change or a later one, and so was all that stands below a touched directory, since a move leaves
nothing below the one and takes everything below the other along. So what became of the names since a revision is: which
names were touched since, and what stands there now. It says what is, not what was done; so it may be put over names of
which some are newer than that revision, and comes out the same.

The newest `MOST_REMEMBERED` changes are remembered, whatever the number of names and the age of the log, by every
process alike: those up to the newest rollup lie in that. Who asks for more lists the names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from ...volume.rollup import RolledChange
from .name_map import NameMap, V

Range = tuple[str, str]
"""The names in [start, end): one, or all below a directory; an empty end is behind all names."""
EVERYTHING: Final[Range] = ("", "")

MOST_REMEMBERED: Final = 10_000


def range_of(name: str) -> Range:
    return name, f"{name}\0"


def range_below(name: str) -> Range:
    """Of all names that begin with `name/`: "0" is the character after "/"."""
    return f"{name}/", f"{name}0"


def reach_at(head: int) -> int:
    """The revision since which every change is remembered, where the newest is `head`."""
    return max(0, head - MOST_REMEMBERED)


class RecentChanges:
    """Those that no rollup has."""

    def __init__(self) -> None:
        self._changes: deque[RolledChange] = deque()

    def note(self, change: RolledChange) -> None:
        self._changes.append(change)
        self.forget(reach_at(change.lsn))

    def forget(self, upto: int) -> None:
        """Those up to that LSN."""
        while self._changes and self._changes[0].lsn <= upto:
            self._changes.popleft()

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[RolledChange]:
        """Oldest first."""
        return iter(self._changes)

    def since(self, revision: int, rolled: Iterable[RolledChange] = ()) -> list[Range]:
        """What was touched after that revision, which is remembered, and by the changes `rolled`: sorted, none within
        another."""
        touched = set[Range]()
        for change in (*rolled, *self._changes):
            if change.lsn > revision:
                touched.update(range_of(name) for name in change.names)
                touched.update(range_below(name) for name in change.names if change.below)
        found: list[Range] = []
        for one in sorted(touched):
            # Any two are apart, or one lies within the other, which begins earlier.
            if not found or one[0] >= found[-1][1]:
                found.append(one)
        return found


def standing(names: NameMap[V], ranges: list[Range], after: str) -> Iterator[tuple[str, V | None]]:
    """What stands in `ranges`, behind `after`, sorted: each name with its value, or with None where it is free; and
    before what lies below a directory that was touched `directory/` with None."""
    for start, end in ranges:
        if (start, end) == range_of(start):
            if start > after:
                yield start, names.get(start)
        elif not end or end > after:
            if start > after:
                yield start, None
            yield from ((name, value) for name, value in names.between(max(start, after), end) if name > after)
