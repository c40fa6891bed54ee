"""Pictures: what a template draws, as numbers: commits over time, what was written each day, and a volume's pages in a
grid. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ...volume.pageset import decode_pages
from ...volume.store_report import Heat, WrittenDay
from ...volume.wire import CommitInfo, Placement

WIDTH: Final = 960
HEIGHT: Final = 96
SHADES: Final = 5
COLUMNS: Final = 64
MOST_CELLS: Final = 2048


class Bar(NamedTuple):
    """A commit: where it stands, from the oldest to the newest, and how much it changed."""

    x: float
    width: float
    height: float
    lsn: int
    pages: int


class DayBar(NamedTuple):
    x: float
    width: float
    height: float
    written: WrittenDay


class Cell(NamedTuple):
    x: int
    y: int
    shade: int
    """1 is the newest, or the hottest; 0: there is nothing to be told."""
    title: str


class PageMap(NamedTuple):
    cells: list[Cell]
    rows: int
    pages_a_cell: int
    bounds: list[tuple[int, int]]
    """Of each shade, its LSNs; or how often its pages were asked for."""


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


def growth(days: Sequence[WrittenDay]) -> list[DayBar]:
    """Bars of equal width, the last day at the right, as high as bytes were written; none for a day without any."""
    most = max((day.bytes for day in days), default=0.0) or 1.0
    step = WIDTH / max(days[-1].day - days[0].day + 1 if days else 0, 8)
    return [
        DayBar(
            round(WIDTH - step * (days[-1].day - day.day + 1), 2),
            round(step - 4, 2),
            round((HEIGHT - 8) * day.bytes / most, 2) + 1,
            day,
        )
        for day in days
    ]


def age_map(placements: Sequence[Placement], last_page: int) -> PageMap:
    """Each page by the LSN that wrote it, the newest in its cell."""
    per_cell, count = _grid(last_page)
    newest = [0] * count
    for placement in placements:
        for page in decode_pages("a placement", placement.pages):
            cell = (page - 1) // per_cell
            newest[cell] = max(newest[cell], placement.lsn)
    return _shaded(newest, per_cell, last_page, lambda lsn: f"LSN {lsn}" if lsn else "zeros")


def heat_map(heat: Heat, last_page: int) -> PageMap:
    """Each page by how often it is asked for, on average of its block."""
    per_cell, count = _grid(last_page)
    asked = [0.0] * count
    for block, pages in heat.blocks.items():
        first, end = block * heat.block_pages, min((block + 1) * heat.block_pages, last_page)
        # What lies beyond the end was asked for while the volume was longer.
        for cell in range(first // per_cell, -(-end // per_cell)) if first < end else ():
            inside = min(end, (cell + 1) * per_cell) - max(first, cell * per_cell)
            asked[cell] += pages * inside / heat.block_pages / per_cell
    times = [max(1, round(each)) if each else 0 for each in asked]
    return _shaded(times, per_cell, last_page, lambda count: f"asked for {count}×" if count else "not asked for")


def _grid(last_page: int) -> tuple[int, int]:
    """So many pages to a cell that there are `MOST_CELLS` at most; and how many there are."""
    per_cell = max(1, -(-last_page // MOST_CELLS))
    return per_cell, -(-last_page // per_cell)


def _shaded(values: Sequence[int], per_cell: int, last_page: int, words: Callable[[int], str]) -> PageMap:
    bounds = _shades(sorted({value for value in values if value}))
    cells: list[Cell] = []
    for number, value in enumerate(values):
        first, last = number * per_cell + 1, min(last_page, (number + 1) * per_cell)
        shade = next((shade for shade, (low, high) in enumerate(bounds, 1) if low <= value <= high), 0)
        where = f"page {first}" if first == last else f"pages {first}-{last}"
        cells.append(Cell(number % COLUMNS, number // COLUMNS, shade, f"{where}: {words(value)}"))
    return PageMap(cells, -(-len(values) // COLUMNS), per_cell, bounds)


def _shades(values: Sequence[int]) -> list[tuple[int, int]]:
    """As many values in each, the highest first."""
    if not values:
        return []
    size = -(-len(values) // SHADES)
    parts = [values[max(0, end - size) : end] for end in range(len(values), 0, -size)]
    return [(part[0], part[-1]) for part in parts]
