"""Setsum: S4.24, DESIGN §8."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.volume.errors import BadInput
from budwood.volume.setsum import PRIMES, Setsum, item_hash, log_item, page_item

items = st.lists(st.binary(max_size=40), max_size=20)


def total(of: list[bytes]) -> Setsum:
    return Setsum.of_hashes(map(item_hash, of))


def test_the_published_vector() -> None:
    words = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"]
    running = Setsum()
    for word in words:
        running = running.insert(f"this is the {word} value".encode())
    assert str(running) == "c5b3fd4d01f2b8040f54ab7412ca53bbfc990e272a40add1c4ceba6b2fe472d5"


@given(items, st.randoms())
def test_order_does_not_matter(some: list[bytes], random: object) -> None:
    shuffled = sorted(some, key=lambda item: item_hash(item))
    assert total(some) == total(shuffled)


@given(items, items)
def test_sums_add_and_what_is_taken_out_leaves_the_rest(some: list[bytes], more: list[bytes]) -> None:
    both = total(some + more)
    assert both == total(some) + total(more)
    assert both - total(more) == total(some)
    for item in more:
        both = both.remove(item)
    assert both == total(some)


@given(items)
def test_a_digest_comes_back(some: list[bytes]) -> None:
    assert Setsum.from_digest(total(some).digest) == total(some)


def test_unreduced_columns_are_refused() -> None:
    for column, prime in enumerate(PRIMES):
        digest = bytearray(32)
        digest[4 * column : 4 * column + 4] = prime.to_bytes(4, "little")
        with pytest.raises(BadInput):
            Setsum.from_digest(bytes(digest))


def test_items_are_the_concatenations_that_the_design_names() -> None:
    vid, page = bytes(range(16)), b"page" * 128
    assert page_item(7, page) == item_hash((7).to_bytes(4, "little") + page)
    assert log_item(vid, 9, 7, page) == item_hash(vid + (9).to_bytes(8, "little") + (7).to_bytes(4, "little") + page)
