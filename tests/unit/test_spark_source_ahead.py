"""Reading ahead: the same pages in the same order, the next ones on their way, none for a reader that stops early."""

from __future__ import annotations

import threading

import pytest

from budwood.spark_export.source.prefetch import Prefetcher
from budwood.volume.errors import Unavailable
from budwood.volume.pageset import PageSet

from ..waits import LIMIT_SECONDS

LEAVES = [9, 3, 4, 8, 1, 7, 2]
RUNS = [PageSet((9, 3)), PageSet((4, 8)), PageSet((1, 7)), PageSet((2,))]


class Source:
    page_size = 1
    page_count = 9
    lsn = 1

    def __init__(self) -> None:
        self.asked: list[PageSet] = []
        self.came = threading.Condition()
        self.broken = PageSet()

    def read(self, pages: PageSet) -> dict[int, bytes]:
        with self.came:
            self.asked.append(pages)
            self.came.notify_all()
        if pages & self.broken:
            raise Unavailable("no answer")
        return {page: bytes([page]) for page in pages}

    def wait_for(self, count: int) -> None:
        with self.came:
            assert self.came.wait_for(lambda: len(self.asked) >= count, LIMIT_SECONDS)


def test_each_run_is_read_once_and_from_the_second_on_the_next_is_begun_before_it_is_asked_for() -> None:
    source = Source()
    with Prefetcher(source, LEAVES, 2) as ahead:
        assert ahead.read(RUNS[0]) == {9: b"\x09", 3: b"\x03"}
        assert source.asked == RUNS[:1]
        assert set(ahead.read(RUNS[1])) == {4, 8}
        source.wait_for(3)
        # A chain that a leaf names is read in between.
        assert ahead.read(PageSet((5,))) == {5: b"\x05"}
        assert set(ahead.read(RUNS[2])) == {1, 7}
        assert set(ahead.read(RUNS[3])) == {2}
        assert set(ahead.read(RUNS[3])) == {2}
    assert [pages for pages in source.asked if 5 not in pages] == [*RUNS, RUNS[3]]


def test_a_failure_is_met_when_its_run_is_asked_for() -> None:
    source = Source()
    source.broken = RUNS[2]
    with Prefetcher(source, LEAVES, 2) as ahead:
        ahead.read(RUNS[0])
        ahead.read(RUNS[1])
        source.wait_for(3)
        with pytest.raises(Unavailable):
            ahead.read(RUNS[2])


def test_a_reader_that_stops_leaves_no_thread_behind() -> None:
    source = Source()
    with Prefetcher(source, LEAVES, 2) as ahead:
        ahead.read(RUNS[0])
        ahead.read(RUNS[1])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("budwood-ahead")]
    with Prefetcher(source, [], 2) as ahead:
        assert ahead.read(PageSet((1,))) == {1: b"\x01"}
