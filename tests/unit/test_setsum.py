"""Setsum: S4.24, DESIGN §8."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.volume.errors import BadInput
from budwood.volume.setsum import PRIMES, Setsum, item_hash, log_sum

items = st.lists(st.binary(max_size=40), max_size=20)


def sha3(item: bytes) -> bytes:
    return hashlib.sha3_256(item).digest()


def total(of: list[bytes]) -> Setsum:
    return Setsum.of(b"".join(map(sha3, of)))


def test_the_published_vector() -> None:
    words = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"]
    running = Setsum()
    for word in words:
        running += total([f"this is the {word} value".encode()])
    assert str(running) == "c5b3fd4d01f2b8040f54ab7412ca53bbfc990e272a40add1c4ceba6b2fe472d5"


@given(items)
def test_order_does_not_matter(some: list[bytes]) -> None:
    assert total(some) == total(sorted(some, key=sha3))


@given(items, items)
def test_sums_add_and_what_is_taken_out_leaves_the_rest(some: list[bytes], more: list[bytes]) -> None:
    both = total(some + more)
    assert both == total(some) + total(more)
    assert both - total(more) == total(some)


@given(items)
def test_a_digest_comes_back(some: list[bytes]) -> None:
    assert Setsum.of_sums([total(some).digest]) == total(some)


def test_unreduced_columns_are_refused() -> None:
    for column, prime in enumerate(PRIMES):
        digest = bytearray(32)
        digest[4 * column : 4 * column + 4] = prime.to_bytes(4, "little")
        for beside in ([], [bytes(32)]):
            with pytest.raises(BadInput):
                Setsum.of_sums([bytes(digest), *beside])


def test_items_are_the_concatenations_that_the_design_names() -> None:
    """A page's bytes are hashed once: a log item is of the page's item hash."""
    vid, pages = bytes(range(16)), {7: b"page" * 128, 2: bytes(512)}
    hashes = {index: sha3(index.to_bytes(4, "little") + page) for index, page in pages.items()}
    assert hashes == {index: item_hash(index, page) for index, page in pages.items()}
    log_items = [
        vid + (9).to_bytes(8, "little") + index.to_bytes(4, "little") + digest for index, digest in hashes.items()
    ]
    assert log_sum(vid, 9, pages, b"".join(hashes.values())) == total(log_items)
