"""Pictures of the node's pages, as numbers."""

from __future__ import annotations

from budwood.server.console.pictures import WIDTH, growth, heat_map
from budwood.volume.store_report import Heat, WrittenDay


def day(number: int, size: float) -> WrittenDay:
    return WrittenDay(day=number, commits=1, creates=1, bytes=size)


def test_a_day_without_a_commit_is_a_gap() -> None:
    assert growth([]) == []
    first, last = growth([day(20_000, 10), day(20_003, 20)])
    assert last.x + last.width + 4 == WIDTH
    assert last.x - first.x == 3 * (last.width + 4)
    assert last.height > first.height


def test_heat_is_divided_among_the_pages_that_there_are() -> None:
    heat = Heat(block_pages=16, blocks={0: 32.0, 1: 16.0, 3: 400.0})
    cells = heat_map(heat, 20).cells
    assert [cell.title for cell in (cells[0], cells[15], cells[16], cells[19])] == [
        "page 1: asked for 2×",
        "page 16: asked for 2×",
        "page 17: asked for 1×",
        "page 20: asked for 1×",
    ]
    assert {cell.shade for cell in cells[:16]} == {1}
    assert len(cells) == 20
    large = heat_map(Heat(block_pages=16, blocks={1_000: 5.0}), 4_096).cells
    assert not any(cell.shade for cell in large), "beyond the end"
    assert heat_map(heat, 0).cells == []
