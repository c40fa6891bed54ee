"""Fuzz of the part stream: whatever arrives, however it is cut, gives the parts that were sent or Corrupt (S3.10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.volume.errors import BudwoodError, Corrupt
from budwood.volume.frame import FrameInfo
from budwood.volume.wire import (
    CommitRequest,
    End,
    FramePart,
    PagesHead,
    PartReader,
    SnapshotInfo,
    pack_part,
    split_part,
)

HEAD = PagesHead(snapshot=SnapshotInfo(vid=b"v" * 16, lsn=3, length=4096, page_size=4096), zeros=b"zeros")

frames = st.builds(
    FramePart,
    info=st.builds(
        FrameInfo,
        encoding=st.integers(0, 3),
        length=st.integers(0, 2**32 - 1),
        checksum=st.integers(0, 2**64 - 1),
        pages=st.lists(st.integers(1, 2**32 - 1), max_size=64).map(tuple),
    ),
    valid=st.binary(max_size=20),
)
streams = st.lists(st.tuples(frames, st.binary(max_size=300)), max_size=6)


def packed(parts: list[tuple[FramePart, bytes]]) -> bytes:
    sent = [pack_part(HEAD), *(pack_part(header, body) for header, body in parts), pack_part(End(frames=len(parts)))]
    return b"".join(sent)


def read(data: bytes, sizes: list[int]) -> list[tuple[PagesHead | FramePart, bytes]]:
    """What a reader makes of the bytes, fed in chunks of these sizes, over and over."""
    reader = PartReader("the stream")
    parts: list[tuple[PagesHead | FramePart, bytes]] = []
    at, turn = 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        parts += reader.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    reader.finish()
    return parts


chunk_sizes = st.lists(st.integers(1, 200), min_size=1, max_size=5)


@given(streams, chunk_sizes)
def test_parts_arrive_as_they_were_sent(parts: list[tuple[FramePart, bytes]], sizes: list[int]) -> None:
    assert read(packed(parts), sizes) == [(HEAD, b""), *parts]


@given(streams, chunk_sizes, st.data())
def test_a_damaged_stream_is_an_error_or_says_what_was_sent(
    parts: list[tuple[FramePart, bytes]], sizes: list[int], data: st.DataObject
) -> None:
    """A frame's own bytes have their own checksum; here it counts that nothing but our errors comes out, and no part
    is lost or made up."""
    whole = bytearray(packed(parts))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        found = read(bytes(whole), sizes)
    except BudwoodError:
        return
    assert len(found) == len(parts) + 1


@given(st.binary(max_size=400), chunk_sizes)
def test_noise_is_corrupt(noise: bytes, sizes: list[int]) -> None:
    with pytest.raises(Corrupt, match="the stream"):
        read(noise, sizes)


@given(streams, st.data())
def test_a_stream_that_lost_a_frame_is_corrupt(parts: list[tuple[FramePart, bytes]], data: st.DataObject) -> None:
    sent = [pack_part(header, body) for header, body in parts]
    if not sent:
        return
    del sent[data.draw(st.integers(0, len(sent) - 1))]
    with pytest.raises(Corrupt, match=f"it sent {len(sent)} frames where {len(parts)} belong"):
        read(b"".join((pack_part(HEAD), *sent, pack_part(End(frames=len(parts))))), [1000])


def test_a_size_that_cannot_be_is_refused_before_it_is_waited_for() -> None:
    with pytest.raises(Corrupt, match="impossible size"):
        list(PartReader("the stream").feed(b"\xff" * 8))


COMMIT = CommitRequest(
    vid=b"v" * 16, base=1, length=2, floor=3, pages=b"", client=b"c", nonce=b"n", content=b"", setsum=b"", token=b"t"
)


@given(st.binary(max_size=200))
def test_a_single_part_splits_into_what_it_was_made_of(body: bytes) -> None:
    header, found = split_part("the body", pack_part(COMMIT, body))
    assert bytes(found) == body
    assert pack_part(COMMIT)[8:] == bytes(header)


@given(st.binary(max_size=200))
def test_a_single_part_that_does_not_add_up_is_corrupt(noise: bytes) -> None:
    """The two lengths lie in the first eight bytes; random ones don't add up to the rest."""
    if len(noise) >= 8 and int.from_bytes(noise[:4], "little") + int.from_bytes(noise[4:8], "little") + 8 == len(noise):
        return
    with pytest.raises(Corrupt, match="the body"):
        split_part("the body", noise)
