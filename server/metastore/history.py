"""History: a volume's commits since its beginning, and which of them holds a page at an LSN (DESIGN §5).

Commits lie in the order of their LSNs, which have no gaps. Above them stands a pyramid: level k keeps, for each whole
run of 16^k commits, the union of their page sets and their least floor, so that a run that touches none of the pages
in question is passed over in one look. A page costs O(16 · log16 n) looks at bitmaps, whatever the history; an append
costs one union in 16, and so on upwards.

What a page reads as at an LSN, newest commit first:
- beyond the length at that LSN: zeros
- in a commit's page set: as that commit has it
- beyond a commit's floor, and not in its set: zeros, whatever lies below (B9)
- in none: zeros, or what the parent has that this volume was forked from

Only acknowledged commits get here: tentative ones live in states (state.py), which carry no pages. A history only
grows: threads may read what is below its head while the loop appends to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from ...volume.errors import Corrupt
from ...volume.pageset import PageSet, beyond, decode_pages, page_count, span
from ...volume.records import Commit, Location

_FAN: Final = 16


@dataclass(slots=True)
class Landed:
    """A commit as it stands."""

    lsn: int
    length: int
    floor: int
    time: int
    pages: PageSet
    locations: tuple[Location, ...]
    """Where they lie, by objects' keys."""
    client: bytes
    token: bytes
    content: bytes
    bindings: bytes
    _placed: tuple[tuple[Location, PageSet], ...] | None = None

    @classmethod
    def of(cls, commit: Commit, key: str, size: int) -> Landed:
        """From the record that the entry `key`, `size` bytes long, carries. Raises Corrupt."""
        locations = commit.locations
        if len(locations) > 1 and not all(location.pages for location in locations):
            raise Corrupt(key, "a commit does not say which of its pages lie where")
        if not all(location.object for location in locations):
            entry = {"object": key, "size": size}
            locations = tuple(each if each.object else msgspec.structs.replace(each, **entry) for each in locations)
        return cls(
            commit.lsn,
            commit.length,
            commit.floor,
            commit.time,
            commit.page_set,
            locations,
            commit.client,
            commit.token,
            commit.content,
            commit.bindings,
        )

    def placed(self) -> tuple[tuple[Location, PageSet], ...]:
        """The locations, and the pages in each; no page is in two of them. A commit may have thousands, so they are
        unpacked when they are first wanted. Raises Corrupt."""
        if self._placed is None:
            self._placed = tuple(
                (location, decode_pages(location.object, location.pages) if location.pages else self.pages)
                for location in self.locations
            )
        return self._placed


class Resolved(NamedTuple):
    """Where pages lie at an LSN. The parts are disjoint, and together they are all that was asked for."""

    found: list[tuple[Landed, PageSet]]
    """Newest commit first."""
    zeros: PageSet
    below: PageSet
    """In no commit of this history: the parent's, or zeros where there is none."""


class _Run(NamedTuple):
    """One or more commits, taken together. They cut off the pages beyond `floor`, of which none lay beyond `reach`: a
    commit that only grows its volume cuts nothing."""

    pages: PageSet
    floor: int
    reach: int

    def touches(self, wanted: PageSet) -> bool:
        return wanted.max() > self.floor or wanted.intersect(self.pages)


_NO_FLOOR: Final = 1 << 32


class History:
    """Belongs to one volume. LSNs start behind `start`, at which the volume was `length` bytes long."""

    def __init__(self, page_size: int, start: int = 0, length: int = 0) -> None:
        self.page_size = page_size
        self.start = start
        self.start_length = length
        self.commits: list[Landed] = []
        self._levels: list[list[_Run]] = [[]]

    @property
    def head(self) -> int:
        return self.start + len(self.commits)

    def append(self, commit: Landed) -> None:
        assert commit.lsn == self.head + 1, f"LSN {commit.lsn} can't follow LSN {self.head}"
        floor, reach = page_count(commit.floor, self.page_size), page_count(self.length_at(self.head), self.page_size)
        self._levels[0].append(_Run(commit.pages, floor, reach) if floor < reach else _Run(commit.pages, _NO_FLOOR, 0))
        self.commits.append(commit)
        self._raise_pyramid()

    def at(self, lsn: int) -> Landed:
        """The commit that made this LSN, which must be of this history."""
        return self.commits[lsn - self.start - 1]

    def find(self, client: bytes, token: bytes) -> Landed | None:
        """The commit with this token."""
        same = (landed for landed in reversed(self.commits) if landed.token == token and landed.client == client)
        return next(same, None)

    def length_at(self, lsn: int) -> int:
        """In bytes; `lsn` may be the start."""
        return self.at(lsn).length if lsn > self.start else self.start_length

    def at_time(self, ms: int) -> int:
        """The last LSN that is not later; the start if all are."""
        return self.start + bisect_right(self.commits, ms, key=lambda commit: commit.time)

    def resolve(self, lsn: int, pages: PageSet) -> Resolved:
        """Where these pages lie at `lsn`, from the start to the head."""
        last = page_count(self.length_at(lsn), self.page_size)
        zeros = beyond(pages, last)
        wanted = pages - zeros
        found: list[tuple[Landed, PageSet]] = []
        for at in self._touching(wanted, 0, lsn - self.start):
            run = self._levels[0][at]
            held = wanted & run.pages
            if held:
                found.append((self.commits[at], held))
                wanted.difference_update(held)
            cut = beyond(wanted, run.floor)
            zeros.update(cut)
            wanted.difference_update(cut)
        return Resolved(found, zeros, wanted)

    def newest_in(self, commit_lsn: int, lsn: int, pages: PageSet) -> PageSet:
        """Those of `pages`, all of them in the commit `commit_lsn`, that at `lsn` still read as it has them."""
        wanted = pages - beyond(pages, page_count(self.length_at(lsn), self.page_size))
        for at in self._touching(wanted, commit_lsn - self.start, lsn - self.start):
            run = self._levels[0][at]
            wanted.difference_update(run.pages)
            wanted.difference_update(beyond(wanted, run.floor))
        return wanted

    def changed(self, after: int, to: int) -> PageSet:
        """Every page that may read differently at `to` than at `after`: all that was written, and all that was cut
        off."""
        pages, floor, reach = PageSet(), _NO_FLOOR, 0
        for level, at in self._runs(after - self.start, to - self.start):
            run = self._levels[level][at]
            pages.update(run.pages)
            floor, reach = min(floor, run.floor), max(reach, run.reach)
        return pages | span(floor + 1, reach)

    def _touching(self, wanted: PageSet, first: int, end: int) -> Iterator[int]:
        """Those of the commits [first, end), newest first, that hold or cut one of `wanted`, which the caller shrinks
        on the way."""
        while wanted and end > first:
            level = self._highest(first, end)
            while level >= 0 and self._levels[level][(end >> 4 * level) - 1].touches(wanted):
                level -= 1
            if level >= 0:
                end -= 1 << 4 * level
            else:
                end -= 1
                yield end

    def _runs(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """(level, place) of the fewest runs that make up [first, end)."""
        while end > first:
            level = self._highest(first, end)
            yield level, (end >> 4 * level) - 1
            end -= 1 << 4 * level

    def _highest(self, first: int, end: int) -> int:
        """The level of the largest run that ends at `end` and does not begin before `first`."""
        level = 0
        while level + 1 < len(self._levels):
            size = 1 << 4 * (level + 1)
            if end % size or end - size < first:
                break
            level += 1
        return level

    def _raise_pyramid(self) -> None:
        level = 0
        while len(self._levels[level]) % _FAN == 0:
            runs = self._levels[level][-_FAN:]
            if level + 1 == len(self._levels):
                self._levels.append([])
            pages = PageSet.union(*(run.pages for run in runs))
            self._levels[level + 1].append(_Run(pages, min(r.floor for r in runs), max(r.reach for r in runs)))
            level += 1
