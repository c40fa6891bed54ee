"""Key order: the pages that a reader wants next which goes through a B-tree whose leaves lie anywhere.

Rows that came in no order, as keys that are random do, leave a tree's neighbours far apart: misses that follow one
another there look like look-ups at random. What tells them apart is the page above: SQLite has read it just before the
first miss below it. From there on this knows the order. The first miss in a tree asks for its page alone, so that a
point query costs what it did; one that goes on where the last one ended asks for what follows in twice as many places
each time, up to a limit, and steps over what is here. A join goes through several trees at once, so several are known.

No I/O of its own: pages are looked up by what the reader gives it, and none is fetched for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol

from ..volume.errors import Corrupt
from ..volume.frame import pages_per_frame
from ..volume.pageset import PageSet
from .btree import children, is_skeleton

FIRST: Final = 4
"""Places: as many pages as a frame holds, which comes along with any of them."""
MOST_BYTES: Final = 8 * 1024 * 1024
_AHEAD: Final = 512
"""Pages that are looked at for those that are missing."""
_FARTHEST: Final = 4096
_KNOWN: Final = 1024
_LINES: Final = 4
"""Trees that are gone through at once."""
SEEN: Final = 64
"""So many pages that were read last tell enough."""


class Reader(Protocol):
    """Whose misses these are."""

    def held(self, page: int) -> bytes | None:
        """The page, if it is here."""
        ...

    def missing(self, pages: PageSet) -> PageSet:
        """Those that aren't."""
        ...


class KeyOrder:
    """Of one reader."""

    __slots__ = ("_known", "_lines", "_reader", "most", "place_pages")

    def __init__(self, page_size: int, most_bytes: int = MOST_BYTES) -> None:
        """`most_bytes` of pages come at once, or those of one frame."""
        self.place_pages = pages_per_frame(page_size)
        self.most = max(1, most_bytes // (self.place_pages * page_size))
        self._known: dict[int, list[int]] = {}
        """The children of pages that were looked at. If their tree has changed since, a worse guess is made."""
        self._lines: list[_Line] = []
        """Those that a miss was on last first."""
        self._reader: Reader | None = None
        """While it asks: else it would live as long as this."""

    def ask(self, reader: Reader, page: int, seen: Iterable[int]) -> PageSet:
        """What to ask for at a miss of this page, itself among them. `seen` are those of the pages that were read last
        that lie above others, newest first."""
        self._reader = reader
        try:
            return self._ask(page, list(seen))
        finally:
            self._reader = None

    def _ask(self, page: int, seen: list[int]) -> PageSet:
        for line in self._lines:
            wanted = line.asked(page)
            if wanted is not None:
                self._lines.remove(line)
                self._lines.insert(0, line)
                return wanted
        return self._begun(page, seen)

    def _begun(self, page: int, seen: list[int]) -> PageSet:
        """A miss that no line knows begins one, if the page above it is among these."""
        for parent in seen:
            below = self.children(parent)
            if page in below:
                beside = next((level for each in seen if parent in (level := self.children(each))), [parent])
                ended = next((line for line in self._lines if line.is_at_end), None)
                line = _Line(self, below, beside, beside.index(parent))
                wanted = line.begun(page, ended)
                self._add(line, ended)
                return wanted
        return PageSet([page])

    def _add(self, line: _Line, ended: _Line | None) -> None:
        """In the place of the one that it goes on from, or of the one that is the least worth keeping."""
        if ended is not None and line.places:
            self._lines.remove(ended)
        elif len(self._lines) >= _LINES:
            idle = [each for each in self._lines if not each.places]
            self._lines.remove((idle or self._lines)[-1])
        self._lines.insert(0, line)

    def missing(self, pages: list[int]) -> PageSet:
        assert self._reader is not None
        return self._reader.missing(PageSet(pages))

    def children(self, page: int) -> list[int]:
        """Those of a page above; none of any other, and of one that isn't here."""
        known = self._known.get(page)
        if known is not None:
            return known
        assert self._reader is not None
        data = self._reader.held(page) if page else None
        if data is None:
            return []
        below: list[int] = []
        if is_skeleton(data, page):
            # Or it only looks like one: overflow pages may.
            with suppress(Corrupt):
                below = children(data, page)
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[page] = below
        return below


class _Line:
    """Pages of one level of one tree, and where in it a reader is."""

    __slots__ = ("_after", "_at", "_before", "_is_turned", "_last", "_order", "_tree", "places")

    def __init__(self, tree: KeyOrder, below: list[int], beside: list[int], at: int) -> None:
        """The children of one page above; `beside` are the pages of that one's level, and it is the one `at` there."""
        self._tree = tree
        self._order = below.copy()
        """In the order in which the reader goes: that of their keys, or turned."""
        self._before, self._after = beside[:at][::-1], beside[at + 1 :]
        """The pages above those that come before, and after; the nearest first."""
        self._is_turned = False
        self._last = 0
        """The place of the last miss."""
        self._at = 0
        """Where the next one is, if the reader goes on."""
        self.places = 0
        """That were asked for the last time; 0 where nothing was beyond the page."""

    @property
    def is_at_end(self) -> bool:
        """Whether what comes after isn't known."""
        return self.places > 0 and not self._after and not self._tree.missing(self._order[self._at :])

    def begun(self, page: int, ended: _Line | None) -> PageSet:
        """What to ask for at the first miss, which may go on from another line."""
        if ended is not None and ended._is_turned:
            self._turn()
        at = self._order.index(page)
        if ended is None or self._tree.missing(self._order[:at]):
            self._last, self._at = at, at + 1
            return PageSet([page])
        self.places = ended.places
        return self._on(at)

    def asked(self, page: int) -> PageSet | None:
        """What to ask for at a miss of this page; None if it isn't on this line."""
        at = self._next(page)
        if at is None:
            self._turn()
            at = self._next(page)
        if at is not None:
            return self._on(at)
        self._turn()
        if page in self._before:
            self._turn()
        return self._above(page) if page in self._after else self._again(page)

    def _again(self, page: int) -> PageSet | None:
        """A miss elsewhere on it: the reader may go on from there."""
        if page not in self._order:
            return None
        self._last = self._order.index(page)
        self._at, self.places = self._last + 1, 0
        return PageSet([page])

    def _on(self, at: int) -> PageSet:
        self.places = min(self._tree.most, 2 * self.places or FIRST)
        while len(self._order) < at + _AHEAD and self._extend():
            pass
        ahead = self._order[at : at + _AHEAD]
        wanted = self._first_places(ahead)
        self._last, self._at = at, at + 1 + max(number for number, each in enumerate(ahead) if each in wanted)
        return wanted

    def _next(self, page: int) -> int | None:
        """The page's place, if nothing is missing between the last miss and it, the way that the reader goes."""
        if self._at > _AHEAD:
            # What lies behind is hardly come back to: a tree may be as large as the volume.
            del self._order[: self._last]
            self._at, self._last, self._before = self._at - self._last, 0, []
        farthest = _FARTHEST if self.places else self._at + 1
        while page not in self._order:
            if len(self._order) >= farthest or not self._extend():
                return None
        at = self._order.index(page)
        return at if self._at <= at and not self._tree.missing(self._order[self._at : at]) else None

    def _turn(self) -> None:
        """The same order from behind; what is next is what lies beside the last miss."""
        self._order.reverse()
        self._after, self._before, self._is_turned = self._before, self._after, not self._is_turned
        self._at = len(self._order) - self._last
        self._last = self._at - 1

    def _first_places(self, pages: list[int]) -> PageSet:
        """The first of these pages, and those that are missing behind it, in so many places."""
        missing, wanted, place_pages = self._tree.missing(pages), PageSet(pages[:1]), self._tree.place_pages
        places = {pages[0] // place_pages}
        for each in pages:
            if each in missing:
                places.add(each // place_pages)
                if len(places) > self.places:
                    break
                wanted.add(each)
        return wanted

    def _above(self, page: int) -> PageSet:
        """A page above is missed: if it is the next one, those that come after it are missed next."""
        at = self._after.index(page)
        if at == 0:
            self.places = max(self.places, FIRST)
            return self._first_places(self._after[:_AHEAD])
        del self._after[:at]
        self._order, self._at, self._last, self.places, self._before = [], 0, 0, 0, []
        return PageSet([page])

    def _extend(self) -> bool:
        """By the children of what comes after, if that is here."""
        below = self._tree.children(self._after[0]) if self._after else []
        if below:
            self._order += reversed(below) if self._is_turned else below
            del self._after[0]
        return bool(below)
