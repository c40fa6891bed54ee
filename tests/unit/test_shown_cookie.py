"""The schema cookie that SQLite is shown (sqlite/shown_cookie.py)."""

from __future__ import annotations

import pytest

from budwood.sqlite.header import MAGIC
from budwood.sqlite.shown_cookie import ShownCookie, counted_on

SIZE = 512


def page1(cookie: int, root: bytes = b"one", *, size: int = SIZE) -> bytes:
    head = MAGIC + (1 if size == 65536 else size).to_bytes(2)
    return (head.ljust(40, b"\0") + cookie.to_bytes(4)).ljust(100, b"\0") + root.ljust(size - 100, b"\0")


def number(page: bytes) -> int:
    return int.from_bytes(page[40:44])


def test_of_one_history_it_is_what_is_stored() -> None:
    cookie = ShownCookie()
    cookie.follow(7)
    for page in (page1(1), page1(1), page1(2, b"two"), page1(9, b"nine")):
        cookie.follow(7)
        assert cookie.show(page) == page


def test_of_another_history_it_is_another_until_it_was_written() -> None:
    cookie = ShownCookie()
    cookie.follow(1)
    assert number(cookie.show(page1(5))) == 5
    cookie.follow(2)
    shown = number(cookie.show(page1(5)))
    assert shown != 5
    assert number(cookie.show(page1(5))) == shown
    assert number(cookie.show(page1(6, b"more"))) == shown + 1, "it counts on as what is stored does"
    written = page1(shown + 2, b"mine")
    cookie.wrote(written)
    assert cookie.show(written) == written
    assert number(cookie.show(page1(shown + 3, b"theirs"))) == shown + 3


def test_what_was_written_and_dropped_settles_nothing() -> None:
    cookie = ShownCookie()
    cookie.follow(1)
    cookie.show(page1(5))
    cookie.follow(2)
    shown = number(cookie.show(page1(5, b"two")))
    assert number(cookie.show(page1(shown + 1, b"mine"), committed=False)) == shown + 1
    assert number(cookie.show(page1(5, b"two"))) == shown


@pytest.mark.parametrize("size", [512, 4096, 65536])
def test_another_root_page_under_the_same_number_is_another_schema(size: int) -> None:
    cookie = ShownCookie()
    cookie.follow(1)
    assert number(cookie.show(page1(5, size=size))) == 5
    assert number(cookie.show(page1(5, size=size))) == 5
    shown = number(cookie.show(page1(5, b"two", size=size)))
    assert shown != 5
    assert number(cookie.show(page1(5, b"two", size=size))) == shown
    assert number(cookie.show(page1(5, b"three", size=size))) not in {5, shown}


def test_what_it_wrote_itself_is_in_its_mind() -> None:
    cookie = ShownCookie()
    cookie.follow(1)
    cookie.show(page1(5))
    cookie.wrote(page1(6, b"mine"))
    assert number(cookie.show(page1(6, b"another"))) != 6


def test_what_is_no_database_stays_what_it_is() -> None:
    cookie = ShownCookie()
    cookie.follow(1)
    cookie.follow(2)
    assert cookie.show(bytes(SIZE)) == bytes(SIZE)
    cookie.wrote(b"")
    assert counted_on(bytes(SIZE), page1(3)) == bytes(SIZE)


def test_a_page_of_long_ago_counts_on() -> None:
    assert counted_on(page1(3), b"") == page1(3)
    assert counted_on(page1(3), page1(3, b"rows")) == page1(3)
    assert number(counted_on(page1(3), page1(9))) == 10
    assert number(counted_on(page1(3), page1(0xFFFFFFFF))) == 0
