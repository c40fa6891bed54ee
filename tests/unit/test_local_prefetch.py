"""Prefetch: how much is asked for at a miss, and that one request serves all who miss."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from budwood.sync.prefetch import SKELETON_BYTES, MissRun, SharedFetches
from budwood.sync.remote_snapshot import RemoteMisses, RemoteSnapshot
from budwood.sync.tables import NO_HEAD, Head
from budwood.volume.errors import Unavailable
from budwood.volume.page_cache import PageCache
from budwood.volume.pageset import PageSet, span
from budwood.volume.wire import SnapshotInfo

from ..waits import LIMIT_SECONDS

if TYPE_CHECKING:
    from budwood.remote.portal import BlockingRead

HEAD = NO_HEAD._replace(sync_remote=3, page_size=4096)


class AskedAhead:
    """Stands for an answer that waits to be read."""

    def __init__(self, pages: PageSet) -> None:
        self.pages = pages
        self.left = 0

    def leave(self) -> None:
        self.left += 1


class Remote:
    """What `SharedFetches` asks, and how often; `down` raises Unavailable so many times."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.ahead: list[AskedAhead] = []
        self.down = 0
        self.fetches = SharedFetches(self.request, self.ask_ahead)

    def request(self, head: Head, wanted: PageSet, _: int, begun: BlockingRead | None) -> dict[int, bytes]:
        if begun is None:
            self.asked.append(list(wanted))
        if self.down:
            self.down -= 1
            raise Unavailable("down")
        return pages(*wanted)

    def ask_ahead(self, head: Head, wanted: PageSet) -> BlockingRead:
        if self.down:
            raise Unavailable("down")
        self.ahead.append(AskedAhead(wanted))
        return cast("BlockingRead", self.ahead[-1])


def none_ahead(head: Head, wanted: PageSet) -> BlockingRead:
    raise Unavailable("nothing is asked ahead here")


def pages(*numbers: int) -> dict[int, bytes]:
    return dict.fromkeys(numbers, b"")


def test_a_lone_miss_asks_for_its_page_and_a_scan_for_twice_as_much_each_time() -> None:
    run = MissRun()
    assert run.ask(50, 4096) == 1
    run.got(51, pages(*range(40, 104)))
    windows: list[int] = []
    at = 104
    for _ in range(7):
        windows.append(run.ask(at, 4096))
        run.got(at + windows[-1], pages(*range(at, at + windows[-1])))
        at += windows[-1]
    assert windows == [64, 128, 256, 512, 1024, 1024, 1024]
    assert run.ask(7, 4096) == 1


@pytest.mark.parametrize(("size", "most"), [(512, 1024), (4096, 1024), (65536, 64)])
def test_a_scan_never_asks_for_more_than_four_mebibytes(size: int, most: int) -> None:
    run, at, window = MissRun(), 1, 0
    for _ in range(20):
        window = run.ask(at, size)
        at += window
        run.got(at, pages(*range(at - window, at)))
    assert window == most


def test_page_1_brings_the_skeleton_along_and_others_do_not() -> None:
    asked: list[tuple[list[int], int]] = []

    def request(head: Head, wanted: PageSet, extra_bytes: int, begun: BlockingRead | None) -> dict[int, bytes]:
        asked.append((list(wanted), extra_bytes))
        return pages(*wanted)

    fetches = SharedFetches(request, none_ahead)
    fetches.fetch(HEAD, 1, PageSet())
    fetches.fetch(HEAD, 9, span(9, 11))
    assert asked == [([1], SKELETON_BYTES), ([9, 10, 11], 0)]


def test_a_request_that_fails_is_tried_again_by_whoever_waited_for_it() -> None:
    entered, go = threading.Event(), threading.Event()
    calls: list[int] = []

    def request(head: Head, wanted: PageSet, extra_bytes: int, begun: BlockingRead | None) -> dict[int, bytes]:
        calls.append(1)
        if len(calls) == 1:
            entered.set()
            assert go.wait(LIMIT_SECONDS)
            raise Unavailable("down")
        return pages(*wanted)

    fetches = SharedFetches(request, none_ahead)
    first: list[Exception] = []

    def leader() -> None:
        try:
            fetches.fetch(HEAD, 5, PageSet())
        except Unavailable as error:
            first.append(error)

    thread = threading.Thread(target=leader)
    thread.start()
    assert entered.wait(LIMIT_SECONDS)
    follower: list[dict[int, bytes]] = []
    waiting = threading.Thread(target=lambda: follower.append(fetches.fetch(HEAD, 5, PageSet())))
    waiting.start()
    go.set()
    thread.join()
    waiting.join()
    assert len(first) == 1
    assert follower == [pages(5)]


def test_what_was_asked_ahead_is_not_asked_for_again_and_is_read_by_whoever_misses_it() -> None:
    remote = Remote()
    fetches = remote.fetches
    ahead = fetches.ahead(HEAD, span(10, 19))
    assert ahead is not None
    assert ahead.pages == span(10, 19)
    assert fetches.ahead(HEAD, span(12, 15)) is None
    assert fetches.fetch(HEAD, 12, span(8, 14)) == pages(*range(10, 20))
    assert remote.asked == []
    ahead.leave()
    assert remote.ahead[0].left == 0, "it was read"
    assert fetches.fetch(HEAD, 12, span(12, 13)) == pages(12, 13)
    assert remote.asked == [[12, 13]]


def test_what_was_asked_ahead_and_nobody_missed_is_left() -> None:
    remote = Remote()
    ahead = remote.fetches.ahead(HEAD, span(10, 19))
    assert ahead is not None
    ahead.leave()
    ahead.leave()
    assert remote.ahead[0].left == 1
    assert remote.fetches.fetch(HEAD, 12, span(12, 13)) == pages(12, 13)


def test_a_failure_ahead_is_told_to_nobody_and_asked_for_again_by_whoever_misses() -> None:
    remote = Remote()
    remote.down = 1
    assert remote.fetches.ahead(HEAD, span(10, 19)) is None
    remote.down = 0
    assert remote.fetches.ahead(HEAD, span(10, 19)) is not None
    remote.down = 1
    assert remote.fetches.fetch(HEAD, 12, span(12, 13)) == pages(12, 13)
    assert remote.asked == [[12, 13]]


def test_of_many_threads_that_miss_what_was_asked_ahead_one_reads_it_and_all_get_it() -> None:
    remote = Remote()
    for start in range(0, 4000, 10):
        window = span(start + 1, start + 10)
        ahead = remote.fetches.ahead(HEAD, window)
        assert ahead is not None
        got: list[dict[int, bytes]] = []

        def miss(window: PageSet = window, got: list[dict[int, bytes]] = got) -> None:
            got.append(remote.fetches.fetch(HEAD, window.min(), window))

        threads = [threading.Thread(target=miss) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_SECONDS)
        assert len(got) == 4
        assert all(set(window) <= set(each) for each in got)
        ahead.leave()


def test_in_a_child_what_was_asked_ahead_is_the_parents() -> None:
    remote = Remote()
    ahead = remote.fetches.ahead(HEAD, span(10, 19))
    remote.fetches.forget()
    assert remote.fetches.fetch(HEAD, 12, span(12, 13)) == pages(12, 13)
    assert remote.asked == [[12, 13]]
    assert ahead is not None
    assert remote.ahead[0].left == 0


def test_snapshots_of_one_lsn_share_the_cache_that_they_are_given() -> None:
    cache, info = PageCache(1 << 20), SnapshotInfo(vid=b"", lsn=3, length=4096, page_size=4096)
    fetched: list[PageSet] = []

    def fetch(wanted: PageSet, _: int) -> dict[int, bytes]:
        fetched.append(wanted)
        return {1: bytes(4096)}

    for _ in range(2):
        assert RemoteSnapshot(info, RemoteMisses(fetch), cache=cache).read(1) == bytes(4096)
    assert fetched == [PageSet([1])]


def test_a_cache_drops_what_was_not_used_for_longest() -> None:
    cache = PageCache(30)
    cache.update({1: b"x" * 10, 2: b"y" * 10, 3: b"z" * 10})
    assert cache.get(1) is not None
    cache.update({4: b"w" * 10})
    assert [page for page in range(1, 5) if cache.get(page) is not None] == [1, 3, 4]
    cache.update({4: b"w" * 20})
    assert cache.held <= 30
    cache.update({9: b"v" * 50})
    assert cache.get(9) is not None
