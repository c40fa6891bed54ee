"""Recent changes: which names the newest changes of a namespace touched, so that an edge is told of those and not of
all.

A change touches the names that it states; a move touches what lies below the two as well. What stands at a touched name
was written by that change or a later one, and so was all that stands below a touched directory, since a move leaves
nothing below the one and takes everything below the other along. So what became of the names since a revision is: which
names were touched since, and what stands there now. It says what is, not what was done; so it may be put over names of
which some are newer than that revision, and comes out the same.

The newest `MOST_TOUCHED` are remembered, whatever the number of names and the age of the log. Who asks for more lists
the names. A process that opens the log anew remembers the same again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from ...volume.records import NameChange
from .sorted_map import SortedMap, V

Range = tuple[str, str]
"""The names in [start, end): one, or all below a directory; an empty end is behind all names."""
EVERYTHING: Final[Range] = ("", "")

MOST_TOUCHED: Final = 10_000
"""Ranges: 10,000 binds, or 2,500 moves. A megabyte or two, and 20 where every name is as long as may be."""


def range_of(name: str) -> Range:
    return name, f"{name}\0"


def range_below(name: str) -> Range:
    """Of all names that begin with `name/`: "0" is the character after "/"."""
    return f"{name}/", f"{name}0"


class RecentChanges:
    def __init__(self) -> None:
        self._touched: deque[tuple[int, Range]] = deque()
        self._reach = 0
        """The revision since which every change is remembered."""

    def note(self, change: NameChange) -> None:
        for touched in change.touched:
            self._touched.append((change.lsn, range_of(touched.name)))
            if change.op == "move":
                self._touched.append((change.lsn, range_below(touched.name)))
        while len(self._touched) > MOST_TOUCHED:
            self._reach = self._touched[0][0]
            while self._touched and self._touched[0][0] == self._reach:
                self._touched.popleft()

    def since(self, revision: int) -> list[Range] | None:
        """What was touched after that revision, sorted, none within another; None where that is not remembered."""
        if revision < self._reach:
            return None
        touched: set[Range] = set()
        for lsn, one in reversed(self._touched):
            if lsn <= revision:
                break
            touched.add(one)
        found: list[Range] = []
        for one in sorted(touched):
            # Any two are apart, or one lies within the other, which begins earlier.
            if not found or one[0] >= found[-1][1]:
                found.append(one)
        return found


def standing(names: SortedMap[str, V], ranges: list[Range], after: str) -> Iterator[tuple[str, V | None]]:
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
