"""Wire parts and errors: DESIGN §6."""

import inspect
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.volume import errors
from budwood.volume.errors import BudwoodError, Conflict, Corrupt, NotOwner, Unavailable, Unsupported
from budwood.volume.frame import FrameInfo
from budwood.volume.pageset import PageSet, beyond, decode_pages, encode_pages, page_count, span
from budwood.volume.wire import End, FramePart, PagesHead, PartReader, SnapshotInfo, from_wire, pack_part, to_wire

HEAD = PagesHead(snapshot=SnapshotInfo(vid=b"v" * 16, lsn=3, length=4096, page_size=4096), zeros=b"")
FRAME = FramePart(info=FrameInfo(0, 3, 5, (1,)), valid=b"")
STREAM = pack_part(HEAD) + pack_part(FRAME, b"abc") + pack_part(End(frames=1))


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_parts_come_back_however_the_stream_is_cut(cuts: list[int]) -> None:
    reader = PartReader("r")
    edges = [0, *sorted(cuts), len(STREAM)]
    parts = [part for a, b in pairwise(edges) for part in reader.feed(STREAM[a:b])]
    reader.finish()
    assert parts == [(HEAD, b""), (FRAME, b"abc")]


@given(st.integers(0, len(STREAM) - 1))
def test_a_cut_connection_is_never_the_end_of_the_data(size: int) -> None:
    reader = PartReader("r")
    list(reader.feed(STREAM[:size]))
    with pytest.raises(Corrupt, match="cut short"):
        reader.finish()


@given(st.binary(max_size=100))
def test_garbage_is_corrupt(data: bytes) -> None:
    reader = PartReader("r")

    def read() -> None:
        list(reader.feed(data))
        reader.finish()

    with pytest.raises(Corrupt):
        read()


def test_an_error_on_the_way_is_raised_as_it_was() -> None:
    code, message, _ = to_wire(Unavailable("the store is gone"))
    reader = PartReader("r")
    with pytest.raises(Unavailable, match="the store is gone"):
        list(reader.feed(pack_part(End(code=code, message=message))))


@pytest.mark.parametrize(
    "error",
    [
        Conflict("late", head=7),
        NotOwner("not mine", owner="http://there", log="main"),
        Unavailable("gone", determinate=False),
        Corrupt("logs/x", "its checksum does not match"),
    ],
)
def test_errors_cross_the_wire_with_what_they_carry(error: BudwoodError) -> None:
    back = from_wire(*to_wire(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_an_unknown_error_is_still_one() -> None:
    assert isinstance(from_wire("Melted", "…", {}), Unsupported)
    assert isinstance(from_wire("annotations", "…", {}), Unsupported)


def test_every_error_is_drawn_in_the_tree_and_exported() -> None:
    assert errors.__doc__ is not None
    found = inspect.getmembers(errors, inspect.isclass)
    classes = {name for name, value in found if value.__module__ == errors.__name__}
    assert classes == set(errors.__all__)
    assert all(name in errors.__doc__ for name in classes)


indexes = st.sets(st.integers(1, 2**32 - 1), max_size=50)


@given(indexes)
def test_page_sets_come_back(some: set[int]) -> None:
    assert decode_pages("p", encode_pages(PageSet(some))) == PageSet(some)


@given(indexes, st.integers(0, 2**32 - 1))
def test_beyond_is_what_lies_after(some: set[int], last: int) -> None:
    assert set(beyond(PageSet(some), last)) == {index for index in some if index > last}


@given(st.binary(max_size=60))
def test_garbage_is_no_page_set(data: bytes) -> None:
    with suppress(Corrupt):
        assert 0 not in decode_pages("p", data)


def test_spans_and_counts() -> None:
    assert list(span(3, 5)) == [3, 4, 5]
    assert not span(3, 2)
    assert [page_count(length, 512) for length in (0, 1, 512, 513)] == [0, 1, 1, 2]
