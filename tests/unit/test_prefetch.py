"""How much a miss asks for: S2.25."""

from __future__ import annotations

from budwood.sync.prefetch import SKELETON_BYTES, LoneMisses, MissRun
from budwood.volume.pageset import PageSet
from budwood.volume.wire import ALONE


def scan(run: MissRun, first: int, last: int, held: set[int], page_size: int = 4096) -> list[int]:
    """Read in order; what each miss asked for. `held` is there before, as a B-tree's inner pages are."""
    asked: list[int] = []
    here = set(held)
    for page in range(first, last + 1):
        if page not in here:
            asked.append(run.ask(page, page_size))
            came = set(range(page, page + asked[-1])) - here
            here |= came
            run.got(page + asked[-1], dict.fromkeys(came, b""))
    return asked


def test_a_scan_asks_for_twice_as_much_each_time_up_to_a_limit() -> None:
    assert scan(MissRun(), 1, 5000, set()) == [1, 64, 128, 256, 512, 1024, 1024, 1024, 1024]


def test_pages_that_are_here_already_do_not_end_a_scan() -> None:
    assert scan(MissRun(), 1, 5000, set(range(50, 5000, 67))) == [1, 64, 128, 256, 512, 1024, 1024, 1024, 1024]


def test_lone_misses_ask_for_their_page_alone() -> None:
    run = MissRun()
    for page in (900, 20, 3000, 500, 7000):
        assert run.ask(page, 4096) == 1
        run.got(page + 1, {page: b""})


def test_large_pages_keep_to_a_limit_of_bytes() -> None:
    assert scan(MissRun(), 1, 300, set(), page_size=65536) == [1, 64, 64, 64, 64, 64]


def test_look_ups_at_random_ask_for_no_neighbours_after_a_while_but_where_they_come_often() -> None:
    lone = LoneMisses()
    assert lone.extra_bytes(PageSet([1])) == SKELETON_BYTES
    far = [lone.extra_bytes(PageSet([page * 1000])) for page in range(1, 20)]
    assert far == [0] * 8 + [ALONE] * 11
    near = [lone.extra_bytes(PageSet([64_000_000 + at])) for at in range(8)]
    assert near == [ALONE] * 5 + [0] * 3
    assert lone.extra_bytes(PageSet([5, 6, 7])) == 0
    assert lone.extra_bytes(PageSet([99_000])) == 0, "a scan came between"
