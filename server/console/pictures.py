"""Pictures: what a template draws, as numbers: commits over time, and a volume's pages in a grid. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...volume.pageset import decode_pages
from ...volume.wire import CommitInfo, Placement

WIDTH: Final = 960
HEIGHT: Final = 96
AGES: Final = 5
"""Shades: 1 is the newest."""
COLUMNS: Final = 64
MOST_CELLS: Final = 2048


class Bar(NamedTuple):
    """A commit: where it stands, from the oldest to the newest, and how much it changed."""

    x: float
    width: float
    height: float
    lsn: int
    pages: int


class Cell(NamedTuple):
    x: int
    y: int
    age: int
    """0: no page of it was ever written."""
    title: str


class PageMap(NamedTuple):
    cells: list[Cell]
    rows: int
    pages_a_cell: int
    bounds: list[tuple[int, int]]
    """Of each shade, its LSNs."""


def timeline(commits: Sequence[CommitInfo]) -> list[Bar]:
    """Bars of equal width, the newest at the right; of the height of the logarithm of their pages."""
    counts = [len(decode_pages("a commit", commit.pages)) for commit in commits]
    most = max((count.bit_length() for count in counts), default=1) or 1
    step = WIDTH / max(len(commits), 24)
    start = WIDTH - step * len(commits)
    return [
        Bar(
            round(start + step * number, 2),
            round(max(1.0, step - 2), 2),
            round(8 + (HEIGHT - 16) * count.bit_length() / most, 2),
            commit.lsn,
            count,
        )
        for number, (commit, count) in enumerate(zip(commits, counts, strict=True))
    ]


def page_map(placements: Sequence[Placement], last_page: int) -> PageMap:
    """Each page by the LSN that wrote it, so many pages to a cell that there are `MOST_CELLS` at most."""
    per_cell = max(1, -(-last_page // MOST_CELLS))
    count = -(-last_page // per_cell)
    newest = [0] * count
    for placement in placements:
        for page in decode_pages("a placement", placement.pages):
            cell = (page - 1) // per_cell
            newest[cell] = max(newest[cell], placement.lsn)
    written = sorted({lsn for lsn in newest if lsn})
    bounds = _shades(written)
    cells: list[Cell] = []
    for number, lsn in enumerate(newest):
        first, last = number * per_cell + 1, min(last_page, (number + 1) * per_cell)
        age = next((shade for shade, (low, high) in enumerate(bounds, 1) if low <= lsn <= high), 0) if lsn else 0
        where = f"page {first}" if first == last else f"pages {first}-{last}"
        cells.append(
            Cell(number % COLUMNS, number // COLUMNS, age, f"{where}: LSN {lsn}" if lsn else f"{where}: zeros")
        )
    return PageMap(cells, -(-count // COLUMNS), per_cell, bounds)


def _shades(lsns: Sequence[int]) -> list[tuple[int, int]]:
    """As many LSNs in each, the newest first."""
    if not lsns:
        return []
    size = -(-len(lsns) // AGES)
    parts = [lsns[max(0, end - size) : end] for end in range(len(lsns), 0, -size)]
    return [(part[0], part[-1]) for part in parts]
