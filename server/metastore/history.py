"""History: a volume's commits since its beginning, and which of them holds a page at an LSN (DESIGN §5).

Commits lie in the order of their LSNs, which have no gaps, in *ranges*: one for each stay of the volume in a log. The
oldest commits of a range may lie in that log's rollup; they are the same there, and raise NotLoaded
(store/tree_nodes.py) where they aren't in memory. The rest lie here.

Above the commits of a range stands a pyramid: level k keeps, for a whole run of 16^k commits counted from the range's
start, the union of their page sets and their least floor, so that a run that touches none of the pages in question is
passed over in one look. A page costs O(16 · log16 n) looks at bitmaps, whatever the history; an append costs one union
in 16, and so on upwards. A run that lies partly in the rollup is made when all of it does; until then its parts are
looked at.

Commits that were folded are looked at no more: up to the checkpoint's LSN, it is asked instead (folded.py). It is
asked, too, where the pages of those lie that follow, once their entries need not have them any more.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from ...volume.entry import is_entry
from ...volume.errors import Corrupt, Forgotten
from ...volume.pageset import PageSet, beyond, decode_pages, page_count, span
from ...volume.records import Commit, Location
from ...volume.setsum import EMPTY_SUM

T = TypeVar("T")

FAN: Final = 16
"""Runs, or commits, in a run of the next level."""
LEVEL_BITS: Final = FAN.bit_length() - 1


@dataclass(slots=True)
class Landed:
    """A commit as it stands."""

    lsn: int
    before: int
    length: int
    """In bytes: the volume before it, and with it."""
    floor: int
    time: int
    pages: PageSet
    locations: tuple[Location, ...]
    """Where they lie, by objects' keys."""
    client: bytes
    token: bytes
    content: bytes
    bindings: bytes
    setsum: bytes = EMPTY_SUM
    _placed: tuple[tuple[Location, PageSet], ...] | None = None

    @classmethod
    def of(cls, commit: Commit, key: str, size: int, before: int) -> Landed:
        """From the record that the entry `key`, `size` bytes long, carries, for a volume that was `before` bytes long.
        Raises Corrupt."""
        locations = commit.locations
        if len(locations) > 1 and not all(location.pages for location in locations):
            raise Corrupt(key, "a commit does not say which of its pages lie where")
        if not all(location.object for location in locations):
            entry = {"object": key, "size": size}
            locations = tuple(each if each.object else msgspec.structs.replace(each, **entry) for each in locations)
        return cls(
            commit.lsn,
            before,
            commit.length,
            commit.floor,
            commit.time,
            commit.page_set,
            locations,
            commit.client,
            commit.token,
            commit.content,
            commit.bindings,
            commit.setsum,
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

    @property
    def is_inline(self) -> bool:
        """Whether pages of it lie in a log's entry."""
        return any(is_entry(location.object) for location in self.locations)

    def moved(self, locations: tuple[Location, ...]) -> Landed:
        """The same, whose pages lie there by now."""
        return replace(self, locations=locations, _placed=None)


class Resolved(NamedTuple):
    """Where pages lie at an LSN. The parts are disjoint, and together they are all that was asked for."""

    found: list[tuple[Landed, PageSet]]
    """Newest commit first."""
    zeros: PageSet
    below: PageSet
    """In no commit of this history: the parent's, or zeros where there is none."""


_NO_FLOOR: Final = 1 << 32


class Run(NamedTuple):
    """One or more commits, taken together. They cut off the pages beyond `floor`, of which none lay beyond `reach`: a
    commit that only grows its volume cuts nothing."""

    pages: PageSet
    floor: int
    reach: int

    @classmethod
    def of(cls, commit: Landed, page_size: int) -> Run:
        floor, reach = page_count(commit.floor, page_size), page_count(commit.before, page_size)
        return cls(commit.pages, floor, reach) if floor < reach else cls(commit.pages, _NO_FLOOR, 0)

    @classmethod
    def joined(cls, runs: Iterable[Run]) -> Run:
        every = list(runs)
        pages = PageSet.union(*(run.pages for run in every))
        return cls(pages, min(run.floor for run in every), max(run.reach for run in every))

    def touches(self, wanted: PageSet) -> bool:
        return wanted.max() > self.floor or wanted.intersect(self.pages)


class Rolled(Protocol):
    """The commits of a range that lie in a rollup. Raises NotLoaded, Corrupt."""

    def commit(self, lsn: int) -> Landed: ...

    def run(self, level: int, place: int) -> Run: ...


class Folding(Protocol):
    """The commits up to `lsn`, of which few LSNs can still be read; and where the pages of those lie that follow, up to
    `settled_to`. Raises NotLoaded, Corrupt, and Forgotten for any other LSN."""

    lsn: int
    settled_to: int

    def settled(self, landed: Landed) -> Landed: ...

    def at(self, lsn: int) -> Landed: ...

    def length_at(self, lsn: int) -> int: ...

    def resolve(self, lsn: int, pages: PageSet) -> Resolved: ...

    def newest_in(self, region_lsn: int, lsn: int, pages: PageSet) -> PageSet: ...

    def changed(self, after: int, to: int) -> Run: ...


class _Tail:
    """What of a range lies in memory: all behind its first `rolled` commits. Only ever appended to."""

    __slots__ = ("commits", "length", "levels", "rolled")

    def __init__(self, rolled: int, length: int, commits: list[Landed], levels: list[list[Run]]) -> None:
        self.rolled = rolled
        self.length = length
        """In bytes: the volume's behind those."""
        self.commits = commits
        self.levels = levels
        """Whole runs, from the first that lies here."""

    def first(self, level: int) -> int:
        """The place of the first whole run that lies here."""
        return -(-self.rolled >> LEVEL_BITS * level) if level else self.rolled

    def raise_pyramid(self) -> None:
        level, end = 0, self.rolled + len(self.commits)
        while end % (1 << LEVEL_BITS * (level + 1)) == 0:
            runs = self.levels[level][-FAN:]
            if len(runs) < FAN:
                return
            if level + 1 == len(self.levels):
                self.levels.append([])
            self.levels[level + 1].append(Run.joined(runs))
            level += 1

    def behind(self, rolled: int) -> _Tail:
        """Without those that are in the rollup by now."""
        at = rolled - self.rolled
        after = _Tail(rolled, self.commits[at - 1].length, self.commits[at:], [])
        after.levels = [runs[after.first(at) - self.first(at) :] for at, runs in enumerate(self.levels)]
        return after


class CommitRange:
    """The commits of one stay: (start, head]."""

    def __init__(
        self, page_size: int, start: int, start_length: int, rolled: Rolled, count: int = 0, length: int = 0
    ) -> None:
        """The first `count` commits lie in the rollup, and `length` is the volume's behind them, in bytes."""
        self.page_size = page_size
        self.start = start
        self._rolled = rolled
        self._tail = _Tail(count, length if count else start_length, [], [[]])

    @property
    def head(self) -> int:
        tail = self._tail
        return self.start + tail.rolled + len(tail.commits)

    @property
    def rolled(self) -> int:
        """How many of its commits are taken from the rollup."""
        return self._tail.rolled

    def append(self, commit: Landed) -> None:
        assert commit.lsn == self.head + 1, f"LSN {commit.lsn} can't follow LSN {self.head}"
        tail = self._tail
        tail.levels[0].append(Run.of(commit, self.page_size))
        tail.commits.append(commit)
        tail.raise_pyramid()

    def rebase(self, rolled: int) -> None:
        """So many of the commits are in the rollup by now."""
        if rolled > self._tail.rolled:
            self._tail = self._tail.behind(rolled)

    def here(self) -> Iterator[Landed]:
        """The commits in memory, newest first."""
        return reversed(self._tail.commits)

    def at(self, lsn: int) -> Landed:
        tail, place = self._tail, lsn - self.start - 1
        return self._rolled.commit(lsn) if place < tail.rolled else tail.commits[place - tail.rolled]

    def length_at(self, lsn: int) -> int:
        """In bytes."""
        tail = self._tail
        return tail.length if lsn == self.start + tail.rolled else self.at(lsn).length

    def touching(self, wanted: PageSet, after: int, to: int) -> Iterator[tuple[int, Run]]:
        """Those of the commits (after, to], newest first, that hold or cut one of `wanted`, which the caller shrinks
        on the way: by their LSNs."""
        tail, first, end = self._tail, after - self.start, to - self.start
        while wanted and end > first:
            level = self._highest(tail, first, end)
            while level > 0 and self._run(tail, level, (end >> LEVEL_BITS * level) - 1).touches(wanted):
                level = self._highest(tail, first, end, level - 1)
            if level > 0:
                end -= 1 << LEVEL_BITS * level
            else:
                end -= 1
                run = self._run(tail, 0, end)
                if run.touches(wanted):
                    yield self.start + end + 1, run

    def runs(self, after: int, to: int) -> Iterator[Run]:
        """The fewest that make up the commits (after, to]."""
        tail, first, end = self._tail, after - self.start, to - self.start
        while end > first:
            level = self._highest(tail, first, end)
            yield self._run(tail, level, (end >> LEVEL_BITS * level) - 1)
            end -= 1 << LEVEL_BITS * level

    def _highest(self, tail: _Tail, first: int, end: int, most: int = 16) -> int:
        """The level of the largest run, up to `most`, that ends at `end` and does not begin before `first`."""
        level = 0
        while level < most:
            size = 1 << LEVEL_BITS * (level + 1)
            if end % size or end - size < first:
                break
            level += 1
        # One that lies partly in the rollup isn't made.
        while level and end - (1 << LEVEL_BITS * level) < tail.rolled < end:
            level -= 1
        return level

    def _run(self, tail: _Tail, level: int, place: int) -> Run:
        if (place + 1) << LEVEL_BITS * level > tail.rolled:
            return tail.levels[level][place - tail.first(level)]
        return self._rolled.run(level, place)


class History:
    """Belongs to one volume. LSNs start behind `start`, at which the volume was `length` bytes long."""

    def __init__(self, page_size: int, start: int = 0, length: int = 0) -> None:
        self.page_size = page_size
        self.start = start
        self.start_length = length
        self.ranges: list[CommitRange] = []
        self.folding: Folding | None = None

    @property
    def folded_to(self) -> int:
        """The LSN behind which every commit can be looked at."""
        return self.folding.lsn if self.folding else self.start

    @property
    def settled_to(self) -> int:
        """The LSN behind which commits may have their pages in entries of a log."""
        return self.folding.settled_to if self.folding else self.start

    @property
    def head(self) -> int:
        return self.ranges[-1].head if self.ranges else self.start

    def begin_range(self, rolled: Rolled, start_length: int, *, count: int = 0, length: int = 0) -> None:
        """The volume comes to stay in a log, `start_length` bytes long. The log's rollup has the first `count` commits
        of the stay; behind them it is `length` bytes long."""
        self.ranges.append(CommitRange(self.page_size, self.head, start_length, rolled, count, length))

    def append(self, commit: Landed) -> None:
        self.ranges[-1].append(commit)

    @property
    def rolled(self) -> int:
        """The newest LSN that is taken from the rollup of the log that the volume is in; the start if none is."""
        own = self.ranges[-1]
        return own.start + own.rolled if own.rolled else self.start

    def rebase(self, lsn: int) -> None:
        """The rollup of the log that the volume is in has its commits up to that LSN."""
        own = self.ranges[-1]
        own.rebase(min(lsn, own.head) - own.start)

    def at(self, lsn: int) -> Landed:
        """The commit that made this LSN, which must be of this history. Raises Forgotten."""
        return self._steadily(lambda folding: self._at(folding, lsn))

    def _at(self, folding: Folding | None, lsn: int) -> Landed:
        if folding is not None and lsn <= folding.lsn:
            return folding.at(lsn)
        return _settled(folding, self._range_of(lsn).at(lsn))

    def length_at(self, lsn: int) -> int:
        """In bytes; `lsn` may be the start. Raises Forgotten."""
        if self.folding is not None and self.start < lsn <= self.folding.lsn:
            return self.folding.length_at(lsn)
        return self._range_of(lsn).length_at(lsn) if lsn > self.start else self.start_length

    def at_time(self, ms: int) -> int:
        """The last LSN that is not later; the start if all are. Raises Forgotten where it was folded."""
        folded = self.folded_to
        if folded > self.start and self.at(folded).time > ms:
            words = f"which LSN was the newest at that time is forgotten: ask from LSN {folded} on"
            raise Forgotten(words, oldest=folded)
        lsns = range(folded + 1, self.head + 1)
        return folded + bisect_right(lsns, ms, key=lambda lsn: self._range_of(lsn).at(lsn).time)

    def resolve(self, lsn: int, pages: PageSet) -> Resolved:
        """Where these pages lie at `lsn`, from the start to the head."""
        return self._steadily(lambda folding: self._resolve(folding, lsn, pages))

    def _resolve(self, folding: Folding | None, lsn: int, pages: PageSet) -> Resolved:
        last = page_count(self.length_at(lsn), self.page_size)
        zeros = beyond(pages, last)
        wanted = pages - zeros
        found: list[tuple[Landed, PageSet]] = []
        for own, at, run in self._touching(wanted, folding.lsn if folding else self.start, lsn):
            held = wanted & run.pages
            if held:
                found.append((_settled(folding, own.at(at)), held))
                wanted.difference_update(held)
            cut = beyond(wanted, run.floor)
            zeros.update(cut)
            wanted.difference_update(cut)
        if folding is None or min(lsn, folding.lsn) <= self.start:
            return Resolved(found, zeros, wanted)
        below = folding.resolve(min(lsn, folding.lsn), wanted)
        return Resolved([*found, *below.found], zeros | below.zeros, below.below)

    def newest_in(self, commit_lsn: int, lsn: int, pages: PageSet) -> PageSet:
        """Those of `pages`, all of them in the commit `commit_lsn`, or in the region up to it, that at `lsn` still read
        as it has them."""
        return self._steadily(lambda folding: self._newest_in(folding, commit_lsn, lsn, pages))

    def _newest_in(self, folding: Folding | None, commit_lsn: int, lsn: int, pages: PageSet) -> PageSet:
        wanted = pages - beyond(pages, page_count(self.length_at(lsn), self.page_size))
        after = commit_lsn
        if folding is not None and commit_lsn < folding.lsn:
            wanted = folding.newest_in(commit_lsn, min(lsn, folding.lsn), wanted)
            after = folding.lsn
        for _, _, run in self._touching(wanted, after, lsn):
            wanted.difference_update(run.pages)
            wanted.difference_update(beyond(wanted, run.floor))
        return wanted

    def changed(self, after: int, to: int) -> PageSet:
        """Every page that may read differently at `to` than at `after`: all that was written, and all that was cut
        off."""
        return self._steadily(lambda folding: self._changed(folding, after, to))

    def _changed(self, folding: Folding | None, after: int, to: int) -> PageSet:
        pages, floor, reach = PageSet(), _NO_FLOOR, 0
        for run in self._runs(folding, after, to):
            pages.update(run.pages)
            floor, reach = min(floor, run.floor), max(reach, run.reach)
        return pages | span(floor + 1, reach)

    def _runs(self, folding: Folding | None, after: int, to: int) -> Iterator[Run]:
        folded = folding.lsn if folding else self.start
        for own, first, last in self._ranges(max(after, folded), to):
            yield from own.runs(first, last)
        if folding is not None and max(after, self.start) < folded and to > self.start:
            yield folding.changed(max(after, self.start), min(to, folded))

    def _steadily(self, ask: Callable[[Folding | None], T]) -> T:
        """A commit that was folded while a thread looked for it may be gone by then: it is looked for anew."""
        while True:
            folding = self.folding
            try:
                return ask(folding)
            except Corrupt:
                if self.folding is folding:
                    raise

    def _range_of(self, lsn: int) -> CommitRange:
        return self.ranges[bisect_right(self.ranges, lsn - 1, key=lambda own: own.start) - 1]

    def _ranges(self, after: int, to: int) -> Iterator[tuple[CommitRange, int, int]]:
        """Those that hold commits of (after, to], newest first: which of them."""
        for own in reversed(self.ranges):
            if own.start < to and own.head > after:
                yield own, max(own.start, after), min(own.head, to)

    def _touching(self, wanted: PageSet, after: int, to: int) -> Iterator[tuple[CommitRange, int, Run]]:
        for own, first, last in self._ranges(after, to):
            for lsn, run in own.touching(wanted, first, last):
                yield own, lsn, run


def _settled(folding: Folding | None, landed: Landed) -> Landed:
    return landed if folding is None or landed.lsn > folding.settled_to else folding.settled(landed)
